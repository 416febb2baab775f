"""Does the padding of ragged arguments leave a static subgraph's results alone?

Ragged arguments come as (N, K, ...), padded with zeros along axis 1; what each operator makes of
that is a rule (see `ops.padding`). Where one needs something else at the padding than what is
there, a mask writes it first: before a softmax along the ragged axis, before a sum of what is not
zero. So calls with any number of values are one type, in gradients too. What has no rule is not
proved, and such calls batch only with calls of the same lengths, which need no padding.
"""

from typing import Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Set, Tuple

import mxnet as mx
import numpy as np

from ..mx.arrays import dtype_number
from ..ops import op_of
from ..ops.attrs import Shape
from ..ops.padding import At, RaggedCall, RaggedEntry, Unproved
from .ir import Attrs, Entry, Node, Subgraph

LENGTHS = 'edb_lengths_%s'  # of a ragged input, as a further input (N,)
_TRIAL_LENGTHS = (7, 11)  # primes: an axis that is ragged has the one and then the other


class Padding(NamedTuple):
    """Under which conditions padding changes nothing.

    Attributes
    ----------
    neutral : bool
        False: under none that is known;
    reason : str
        which is because of this.
    linked : frozenset of (str, str)
        Ragged inputs that meet along an axis: a call must give them equally many values.
    masked : Subgraph or None
        With masks, and the further inputs `LENGTHS`, where zeros alone change the results. In it
        no values at all are one of zeros, as they are eagerly.
    """

    neutral: bool
    reason: str = ''
    linked: FrozenSet[Tuple[str, str]] = frozenset()
    masked: Optional[Subgraph] = None


def padding_of(graph: Subgraph, shapes: Mapping[str, Shape], ragged: Set[str]) -> Padding:
    """Analyse the padding of the inputs named in `ragged`.

    Parameters
    ----------
    graph : Subgraph
    shapes : dict
        Of its inputs for some numbers of rows and values.
    ragged : set of str
    """
    try:
        masks = _Masks(graph, ragged & set(graph.variables), _entries(graph, shapes, ragged))
        heads = masks.walk()
    except Unproved as unproved:
        return Padding(False, str(unproved))
    except mx.base.MXNetError:
        return Padding(False, 'shapes fit some numbers of values only')
    masked = Subgraph.of(masks.nodes, heads) if masks.lengths else None
    return Padding(True, '', frozenset(masks.linked), masked)


def _entries(
    graph: Subgraph, shapes: Mapping[str, Shape], ragged: Set[str]
) -> List[List[RaggedEntry]]:
    """Shapes of each node's outputs, and which axis of them is as long as ragged arguments are."""
    trials = [
        graph.infer(
            {
                name: shape[:1] + (length,) + shape[2:] if name in ragged else shape
                for name, shape in shapes.items()
            }
        )
        for length in _TRIAL_LENGTHS
    ]
    if None in trials:
        raise Unproved('shapes cannot be inferred')
    return [
        [RaggedEntry(one, _ragged_axis(one, other)) for one, other in zip(*outputs)]
        for outputs in zip(*trials)
    ]


def _ragged_axis(one: Shape, other: Shape) -> Optional[int]:
    differing = [axis for axis, sizes in enumerate(zip(one, other)) if sizes[0] != sizes[1]]
    if not differing and len(one) == len(other):
        return None
    if len(differing) > 1 or (one[differing[0]], other[differing[0]]) != _TRIAL_LENGTHS:
        raise Unproved('axes but that of the ragged values depend on how many there are')
    return differing[0]


class _Origin(NamedTuple):
    """What an entry is at the padding, and the ragged inputs that its axis stems from."""

    at: At
    sources: FrozenSet[str]


class _Masks:
    """The graph with masks, under way."""

    def __init__(self, graph: Subgraph, ragged: Set[str], entries: List[List[RaggedEntry]]):
        self.nodes: List[Node] = []
        self.linked: Set[Tuple[str, str]] = set()
        self.lengths: Dict[str, Entry] = {}
        self._graph, self._ragged, self._entries = graph, ragged, entries
        self._states: Dict[Entry, _Origin] = {}
        self._moved: Dict[Entry, Entry] = {}
        self._filled: Dict[Tuple[Entry, At], Entry] = {}
        self._rows: Dict[str, int] = {}  # of ragged inputs

    def walk(self) -> List[Entry]:
        """Visit all nodes; gives the results."""
        for index, node in enumerate(self._graph.nodes):
            if node.is_variable and node.name in self._ragged:
                self._states[Entry(index)] = _Origin(At.ZERO, frozenset([node.name]))
                self._rows[node.name] = self._entries[index][0].shape[0]
            inputs = [self._moved[entry] for entry in node.inputs]
            if any(entry in self._states for entry in node.inputs):
                place = self._ragged_node(index, node, inputs)
            else:
                place = self._append(node._replace(inputs=tuple(inputs)))
            for output in range(len(self._entries[index])):
                self._moved[Entry(index, output)] = Entry(place.node, output)
        if any(head in self._states for head in self._graph.heads):
            raise Unproved('a result has the axis of the ragged values')
        return [self._moved[head] for head in self._graph.heads]

    def _ragged_node(self, index: int, node: Node, inputs: List[Entry]) -> Entry:
        states = [self._states.get(entry) for entry in node.inputs]
        sources = frozenset().union(*[state.sources for state in states if state])
        self.linked.update((a, b) for a in sources for b in sources if a < b)
        entries = [self._entries[entry.node][entry.output] for entry in node.inputs]
        results = self._entries[index]
        rule = op_of(node.op).padding
        if rule is None:
            raise Unproved(f'no rule for padding is declared for {node.op}')
        call = RaggedCall(node.attrs, [state and state.at for state in states], entries, results[0])
        try:
            at = rule(call)
        except Unproved:
            raise Unproved(f'{node.op} works across the ragged values') from None
        for output, result in enumerate(results):
            if (at is None) != (result.axis is None):
                raise Unproved(f'{node.op} cuts the axis of the ragged values')
            if at is not None:
                self._states[Entry(index, output)] = _Origin(at, sources)
        for position, wanted in call.fills.items():
            own = states[position]
            assert own is not None  # what has no padding wants nothing there
            inputs[position] = self._with(inputs[position], entries[position], own.sources, wanted)
        if call.limited:
            inputs[1] = self._limited(inputs[1], entries, sources)
        if call.counted:
            return self._mean(node, inputs[0], entries[0], sources)
        return self._append(node._replace(inputs=tuple(inputs)))

    def _append(self, node: Node) -> Entry:
        self.nodes.append(node)
        return Entry(len(self.nodes) - 1)

    def _add(self, op: str, *inputs: Entry, **attrs: object) -> Entry:
        text = Attrs({key: str(value) for key, value in attrs.items()})
        return self._append(Node(op, f'edb_masked{len(self.nodes)}', text, inputs))

    def _with(self, entry: Entry, shaped: RaggedEntry, sources: FrozenSet[str], at: At) -> Entry:
        """An entry with a number at its padding."""
        axis = shaped.axis
        if not axis:
            raise Unproved('places of the ragged values are reduced for all rows at once')
        if (entry, at) not in self._filled:
            turned = entry if axis == 1 else self._add('SwapAxis', entry, dim1=1, dim2=axis)
            mask = self._add(
                'SequenceMask',
                turned,
                self._lengths_of(min(sources), shaped.shape[0]),
                use_sequence_length=True,
                axis=1,
                value=at.value,
            )
            self._filled[entry, at] = (
                mask if axis == 1 else self._add('SwapAxis', mask, dim1=1, dim2=axis)
            )
        return self._filled[entry, at]

    def _lengths_of(self, name: str, count: int) -> Entry:
        """The lengths of a ragged input, `count` of them: one or more for each row."""
        if name not in self.lengths:
            kind = Attrs(__dtype__=str(dtype_number(np.int32)))
            self.lengths[name] = self._append(Node('', LENGTHS % name, kind))
        times, rest = divmod(count, self._rows[name])
        if rest:
            raise Unproved('places of the ragged values are reduced for all rows at once')
        lengths = self.lengths[name]
        return lengths if times == 1 else self._add('repeat', lengths, repeats=times, axis=0)

    def _limited(self, index: Entry, entries: List[RaggedEntry], sources: FrozenSet[str]) -> Entry:
        """Positions that are less than the number of values."""
        shape = entries[1].shape
        last = self._add('_minus_scalar', self._lengths_of(min(sources), shape[0]), scalar=1)
        last = self._add('Reshape', last, shape=(-1,) + (1,) * (len(shape) - 1))
        return self._add('broadcast_minimum', self._add('Cast', index, dtype='int32'), last)

    def _mean(
        self, node: Node, values: Entry, shaped: RaggedEntry, sources: FrozenSet[str]
    ) -> Entry:
        """A sum, by as many ones."""
        ones = self._with(self._add('ones_like', values), shaped, sources, At.ZERO)
        total, count = (self._add('sum', each, **node.attrs) for each in (values, ones))
        return self._add('elemwise_div', total, count)
