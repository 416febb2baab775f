"""Horizontal fusion: compute products with the same input, and what follows, as one operator.

A cell with one ``Dense`` for each gate multiplies the same input by several weights. One product
with the concatenated weights (a *pack*) computes all gates side by side. Elementwise operators on
neighbours become one operator on both. The sigmoids of an LSTM's three gates are one operator on
one slice if these gates lie together, in the same order, in every array involved. A PQ-tree decides
which gates are neighbours, as in ED-Batch (Chen et al., 2023 [1]_).

Operators whose columns are not one slice stay apart: gathering columns costs more than it saves.

References
----------
.. [1] Chen et al. (2023). ED-Batch: efficient automatic batching of dynamic neural networks via
   learned finite state machines. https://arxiv.org/abs/2302.03851
"""

import json
from collections import ChainMap
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, Optional

from ...ops import op_of
from ..ir import Attrs, Entry, Node, Subgraph
from ..pq_tree import NotConsecutive, PQTree
from ..rewrite import Operand, Rewriter

MOST_ELEMENTS = 1 << 15  # of a gate in a batch; see `pays`
PACK = 'edb_pack%d'
_NAMES = '__edb_pack__'  # MXNet keeps attributes of variables that look like this
_PRODUCT = 'FullyConnected'


def horizontal(graph: Subgraph) -> Subgraph:
    """Fuse products with the same input, and elementwise operators on their results.

    Return the graph itself if there is nothing to fuse. Otherwise new variables stand for several
    parameters, concatenated along axis 0; see `packs`.
    """
    nodes, apart = graph.nodes, set[int]()
    while True:
        groups, widths = _groups(nodes, apart)
        places = _places(nodes, groups)
        groups = [sorted(members, key=places.__getitem__) for members in groups]
        columns = {
            member: (number, column)
            for number, members in enumerate(groups)
            for column, member in enumerate(members)
        }
        scattered = {
            member
            for members in groups
            if not all(_are_neighbours(each, columns) for each in _operands(nodes, members))
            for member in members
        }
        if not scattered:
            break
        apart |= scattered
    return _Fusion(graph, groups, widths).fused() if groups else graph


def most_rows(columns: int) -> int:
    """Return the most rows of a batch that is faster fused, for so many columns of a gate.

    Fusion saves operators. It adds slices and, in the backward pass, arrays of all gates' width to
    which the gradient of each slice is added. LSTM cells gain up to 2 ** 15 elements (a third for
    few), GRU cells up to 2 ** 13; above, training takes a tenth longer.
    """
    return MOST_ELEMENTS // columns


def packs(graph: Subgraph) -> dict[str, list[str]]:
    """Return the parameters, by name, that variables made by `horizontal` stand for."""
    return {
        node.name: json.loads(node.attrs[_NAMES]) for node in graph.nodes if _NAMES in node.attrs
    }


def _groups(nodes: Sequence[Node], apart: set[int]) -> tuple[list[list[int]], dict[int, int]]:
    """Return the groups of two or more nodes that can be one operator, because they differ in
    columns only; and how many columns each node has.

    Products are alike if they have the same input, elementwise operators if their operands at each
    position are alike. So members of a group depend on the same nodes, apart from other groups.
    """
    kinds: dict[Hashable, int] = {}
    kind_of: dict[int, int] = {}
    members: list[list[int]] = []
    widths: dict[int, int] = {}
    for index, node in enumerate(nodes):
        key = None if index in apart else _key(nodes, node, kind_of, widths)
        if key is None:
            continue
        kind_of[index] = kind = kinds.setdefault(key, len(kinds))
        if kind == len(members):
            members.append([])
        members[kind].append(index)
        widths[index] = (
            node.attrs.integer('num_hidden') if node.op == _PRODUCT else widths[node.inputs[0].node]
        )
    return [mine for mine in members if len(mine) > 1], widths


def _key(
    nodes: Sequence[Node], node: Node, kind_of: dict[int, int], widths: dict[int, int]
) -> Optional[Hashable]:
    """Return what nodes that can be one operator have in common; None for a node of no group."""
    if node.op == _PRODUCT and all(nodes[entry.node].is_parameter for entry in node.inputs[1:]):
        common = frozenset(item for item in node.attrs.items() if item[0] != 'num_hidden')
        return _PRODUCT, common, node.inputs[0], len(node.inputs)
    op = op_of(node.op)
    if (
        op.elementwise
        and op.noise is None
        and all(entry.node in kind_of for entry in node.inputs)
        and len({widths[entry.node] for entry in node.inputs}) == 1
    ):
        return (
            node.op,
            frozenset(node.attrs.items()),
            tuple(kind_of[entry.node] for entry in node.inputs),
        )
    return None


def _operands(nodes: Sequence[Node], members: Sequence[int]) -> list[list[int]]:
    """Return for elementwise operators the nodes that the members read at each position."""
    if nodes[members[0]].op == _PRODUCT:
        return []
    read = [[entry.node for entry in nodes[member].inputs] for member in members]
    return list(map(list, zip(*read)))


# --- the order of gates --------------------------------------------------------------------------


def _places(nodes: Sequence[Node], groups: Sequence[list[int]]) -> dict[int, int]:
    """Return numbers by which the members of groups are to be sorted, so that neighbours read
    neighbours, where this can be."""
    lanes = _lanes(nodes, groups)
    parts = {lane: {lane} for lane in lanes.values()}  # lanes of groups that have some in common
    for members in groups:
        joined = set().union(*[parts[lanes[member]] for member in members])
        parts.update(dict.fromkeys(joined, joined))
    distinct = {id(part): part for part in parts.values()}
    trees = {key: PQTree.of(sorted(part, key=min)) for key, part in distinct.items()}
    for members in groups:
        part = id(parts[lanes[members[0]]])
        with suppress(NotConsecutive):
            trees[part] = trees[part].reduce([lanes[member] for member in members])
    order = [lane for tree in trees.values() for lane in tree.frontier()]
    return {member: place for place, lane in enumerate(order) for member in lane}


def _lanes(nodes: Sequence[Node], groups: Sequence[list[int]]) -> dict[int, frozenset[int]]:
    """Return the *lane* of each member: the members of other groups that are to have its place
    there. A member and its operands are in one lane, unless two of a group would be."""
    group_of = {member: number for number, members in enumerate(groups) for member in members}
    lanes = {member: frozenset([member]) for member in group_of}
    for members in groups:
        for operands in _operands(nodes, members):
            joined = ChainMap({}, lanes)
            for member, operand in zip(members, operands):
                lane = joined[member] | joined.get(operand, frozenset())
                if len({group_of[each] for each in lane}) < len(lane):
                    break
                joined.update(dict.fromkeys(lane, lane))
            else:
                lanes.update(joined.maps[0])
    return lanes


def _are_neighbours(operands: Sequence[int], columns: Mapping[int, tuple[int, int]]) -> bool:
    """Return whether nodes are neighbours in a group, in this order."""
    group, first = columns.get(operands[0], (-1, 0))
    found = [columns.get(operand) for operand in operands]
    return found == [(group, first + place) for place in range(len(operands))]


# --- the new graph -------------------------------------------------------------------------------


class _Columns(NamedTuple):
    """The columns of a group's result that hold a member's result."""

    group: int
    begin: int
    end: int


class _Fusion:
    """Build the graph with each group as one operator.

    The operator takes the place of the first member: all its inputs come before that (see
    `_groups`).
    """

    def __init__(self, graph: Subgraph, groups: list[list[int]], widths: dict[int, int]):
        self._graph = graph
        self._nodes = graph.nodes
        self._groups = groups
        self._places: dict[int, _Columns] = {}
        for number, members in enumerate(groups):
            end = 0
            for member in members:
                begin, end = end, end + widths[member]
                self._places[member] = _Columns(number, begin, end)
        self._rewriter = Rewriter()
        self._kept: dict[int, Operand] = {}  # by the place of an old node
        self._results: dict[int, Operand] = {}  # of groups
        self._slices: dict[_Columns, Operand] = {}
        self._packs: dict[tuple[str, ...], Operand] = {}

    def fused(self) -> Subgraph:
        """Return the graph with each group of operators as one."""
        for index, node in enumerate(self._nodes):
            if index not in self._places:
                self._kept[index] = self._rewriter.keep(node, list(map(self._moved, node.inputs)))
            elif self._places[index].group not in self._results:
                number = self._places[index].group
                self._results[number] = self._operator(self._groups[number])
        return Subgraph.of(
            self._rewriter.nodes, [self._moved(head).entry for head in self._graph.heads]
        )

    def _operator(self, members: list[int]) -> Operand:
        nodes = [self._nodes[member] for member in members]
        op, attrs = nodes[0].op, Attrs(nodes[0].attrs)
        if op != _PRODUCT:
            operands = _operands(self._nodes, members)
            inputs = [self._columns(each[0], each[-1]) for each in operands]
            return self._rewriter.add(op, inputs, (), **attrs)
        attrs['num_hidden'] = str(self._places[members[-1]].end)
        parameters = zip(*([entry.node for entry in node.inputs[1:]] for node in nodes))
        inputs = [self._moved(nodes[0].inputs[0]), *map(self._pack, parameters)]
        return self._rewriter.add(op, inputs, (), **attrs)

    def _moved(self, entry: Entry) -> Operand:
        """Return the new graph's operand for an output of the old one."""
        if entry.node in self._places:
            return self._columns(entry.node, entry.node)
        return self._kept[entry.node]._replace(output=entry.output)

    def _columns(self, first: int, last: int) -> Operand:
        """Return the columns of neighbouring members of a group."""
        number, begin, _ = self._places[first]
        end = self._places[last].end
        if begin == 0 and end == self._places[self._groups[number][-1]].end:
            return self._results[number]
        place = _Columns(number, begin, end)
        if place not in self._slices:
            self._slices[place] = self._rewriter.add(
                'slice_axis', [self._results[number]], axis=-1, begin=begin, end=end
            )
        return self._slices[place]

    def _pack(self, parameters: Sequence[int]) -> Operand:
        names = tuple(self._nodes[parameter].name for parameter in parameters)
        if names not in self._packs:
            self._packs[names] = self._rewriter.variable(
                PACK % len(self._packs), **{_NAMES: json.dumps(names)}
            )
        return self._packs[names]
