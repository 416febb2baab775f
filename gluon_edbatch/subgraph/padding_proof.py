"""Prove that the padding of some arguments does not change a static subgraph's results.

An argument is padded with zeros along one axis: ragged ones, (N, K, ...), along axis 1. A rule of
each operator tells what becomes of the padding (see `ops.axis_rules`). If an operator needs
other numbers there, a mask writes them first, as before a softmax or a sum. So calls with any
number of values are one type, gradients included. Without a rule there is no proof. Such calls
batch only with calls of equal lengths, which need no padding.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import chain, combinations
from math import inf
from types import MappingProxyType
from typing import Any, NamedTuple, Optional, cast

import mxnet as mx
import numpy as np

from ..mx.arrays import dtype_number
from ..mx.symbols import infer_shape, symbol_function
from ..ops import op_of
from ..ops.attrs import Shape, unlike
from ..ops.axis_rules import (
    At,
    AxisCall,
    AxisEntry,
    AxisLink,
    Places,
    Unproved,
    finite,
)
from .ir import Entry, Node, Subgraph
from .loops import FOREACH, Loop
from .rewrite import Operand, Rewriter

LENGTHS = 'edb_lengths_%s'  # of a padded input, as a further input (N,)
_LENGTH, _LONGER = 37, 4  # a trial length, and how much longer the other is


class Along(NamedTuple):
    """An axis of a result that has the lengths of arguments, one after the other, or more."""

    axis: int
    positions: tuple[Any, ...]  # of the arguments; names of inputs until `Padding.by_position`
    longer: int

    def length(self, lengths: Mapping[int, Any]) -> Any:
        """Return how long the axis is for the lengths of the arguments."""
        return sum([lengths[position] for position in self.positions]) + self.longer


class Padding(NamedTuple):
    """The conditions under which padding changes nothing."""

    neutral: bool  # False: under no condition that is known
    reason: str = ''  # why it is not
    # inputs that meet along an axis: a call must give them equally many values
    linked: frozenset[tuple[Any, Any]] = frozenset()
    # With masks, and the further inputs `LENGTHS`, where zeros alone change the results. No values
    # at all are one of padding in it, and their length is 0.
    masked: Optional[Subgraph] = None
    results: tuple[tuple[Along, ...], ...] = ()  # for each result the axes that are padded
    # the least length of an input in which a window is to fit, as MXNet refuses shorter ones
    shortest: Mapping[Any, int] = MappingProxyType({})

    def by_position(self, names: Sequence[str]) -> 'Padding':
        """Return the same of arguments by their positions, where inputs have these names."""
        at = names.index
        return self._replace(
            linked=frozenset([(at(one), at(other)) for one, other in self.linked]),
            results=tuple(
                [
                    tuple([each._replace(positions=tuple(map(at, each.positions))) for each in own])
                    for own in self.results
                ]
            ),
            shortest={at(name): least for name, least in self.shortest.items()},
        )


def padding_of(
    graph: Subgraph,
    shapes: Mapping[str, Shape],
    axes: Mapping[str, int],
    of_results: bool = False,
    stops: bool = False,
    dtypes: Optional[Mapping[str, Any]] = None,
) -> Padding:
    """Return whether padding of some inputs changes results, and under which conditions.

    Parameters
    ----------
    graph : Subgraph
    shapes : dict
        Shapes of the inputs for some numbers of rows and values.
    axes : dict
        Maps the name of an input to the axis along which it is padded.
    of_results : bool, default False
        Whether results may be padded, too. Then padding of inputs and results may be any numbers.
        If padding of results gets no gradient, padding of inputs gets none. There is at least one
        value then.
    stops : bool, default False
        Whether layers stop before the padding, as native operators do, and MXNet's do not.
    dtypes : dict, optional
        Dtypes of the inputs, as the padding of integers cannot be infinite.
    """
    walk = PaddingWalk(graph, shapes, axes, At.FINITE if of_results else At.ZERO, stops, dtypes)
    try:
        heads = walk.heads()
        results = tuple(map(walk.padded_axes, graph.heads))
        if any(results) and not of_results:
            raise Unproved('a result has the axis of the ragged values')
    except Unproved as error:
        return Padding(False, str(error))
    except mx.base.MXNetError:
        return Padding(False, 'shapes fit some numbers of values only')
    masked = Subgraph.of(walk.rewriter.nodes, heads) if walk.lengths else None
    return Padding(True, '', frozenset(walk.linked), masked, results, walk.shortest)


def loop_keeps_rows_apart(loop: Loop, shapes: Sequence[Shape]) -> bool:
    """Return whether further rows change nothing in the rows that a step of a loop has, and all
    results have these rows. `shapes` are those of the loop's inputs."""
    of_step = loop.of_step(shapes)
    rows = {of_step[name][:1] for name in loop.rowwise}
    if len(rows) != 1 or () in rows or loop.draws_for_all_rows():
        return False
    body = Subgraph.of(loop.body.nodes, loop.body.heads)
    padding = padding_of(body, of_step, dict.fromkeys(loop.rowwise, 0), True)
    return (
        padding.neutral
        and not padding.shortest
        and padding.masked is None
        and all([each.axis for each in own] == [0] for own in padding.results)
        and all_linked(loop.rowwise, padding.linked)
    )


def all_linked(members: Collection[Any], links: Collection[tuple[Any, Any]]) -> bool:
    """Return whether all members are connected, directly or through others, by pairs."""
    group = set(list(members)[:1])
    for _ in members:
        for pair in links:
            if not group.isdisjoint(pair):
                group.update(pair)
    return group.issuperset(members)


class RaggedAxes(NamedTuple):
    """Which entries of a graph have the ragged axis, and where."""

    axes: dict[Entry, int]  # entry -> its ragged axis, of those that have one
    across: frozenset[int]  # operators that have results for each value, but of others, too


def ragged_axes(
    graph: Subgraph, shapes: Mapping[str, Shape], axes: Mapping[str, int]
) -> Optional[RaggedAxes]:
    """Follow the ragged axis of some inputs through a graph. None if padding is not proved, or an
    entry has several. Parameters are as for `padding_of`."""
    walk = PaddingWalk(graph, shapes, axes, At.FINITE)
    try:
        walk.heads()
    except (Unproved, mx.base.MXNetError):
        return None
    if walk.shortest or any(len(own) > 1 for own in walk.states.values()):
        return None
    own = {entry: axis for entry, states in walk.states.items() for axis in states}
    return RaggedAxes(own, frozenset(walk.across))


class NodeShapes(NamedTuple):
    """Shapes of an operator's inputs and results."""

    inputs: list[Shape]
    results: list[Shape]


def links_of(node: Node, shapes: NodeShapes, places: Places) -> list[AxisLink]:
    """Return which padded axes of the inputs are equally long, and which result axes with them."""
    if node.op == FOREACH:
        return [_steps(node, shapes, places)]
    op = op_of(node.op)
    if op.axis is None:
        raise Unproved(f'{node.op} has no rule for padding')
    if op.links is not None:
        links = op.links(places)
        if {place for link in links for place in enumerate(link.inputs)}.issuperset(places):
            return links
        raise Unproved(f'{node.op} joins axes that are padded')
    links = []
    while places:
        group, results = _first_group(node, shapes, places)
        places = [place for place in places if place not in group]
        result = next(iter(results), None)
        beside = [link for link in links if results and link.result == result]
        for link in beside:  # each lengthens the result
            links.remove(link)
            others = [(i, axis) for i, axis in enumerate(link.inputs) if axis is not None]
            group = [*group, *others]
        axes = dict(group)
        if len(axes) < len(group) or len(results) > 1:
            raise Unproved(f'{node.op} joins axes that are padded')
        inputs = tuple([axes.get(position) for position in range(len(shapes.inputs))])
        links.append(AxisLink(inputs, result, bool(beside)))
    return links


def _steps(node: Node, shapes: NodeShapes, places: Places) -> AxisLink:
    """Return the link of a loop over padded sequences; raise `Unproved` for any other loop."""
    loop, count = Loop(node), len(shapes.inputs)
    if {*places} != {(position, 0) for position in loop.data}:
        raise Unproved('foreach reads something padded that is not its sequences')
    if not loop_keeps_rows_apart(loop, shapes.inputs):
        raise Unproved('foreach has steps that do not keep rows independent')
    return AxisLink(tuple([0 if i in loop.data else None for i in range(count)]), 0)


def _first_group(node: Node, shapes: NodeShapes, places: Places) -> tuple[Places, list[int]]:
    """Return the smallest group of axes, the first included, that can change length together, and
    the results' axes that change with it."""
    for others in range(len(places)):
        for chosen in combinations(places[1:], others):
            group = [places[0], *chosen]
            results = _lengthened(node, shapes, group)
            if results is not None:
                return group, results
    raise Unproved(f'{node.op} joins axes that are padded')


def _lengthened(node: Node, shapes: NodeShapes, group: Places) -> Optional[list[int]]:
    """Return the results' axes that change length with these places; None if others must, too."""
    inputs = list(shapes.inputs)
    for position, axis in group:
        inputs[position] = of_length(inputs[position], axis, inputs[position][axis] + _LONGER)
    names = [f'x{position}' for position in range(len(inputs))]
    symbol = symbol_function(node.op)(*map(mx.sym.var, names), **node.attrs)
    if node.op == 'stack' and len({*inputs}) > 1:  # of which MXNet looks at the first shape only
        return None
    try:
        results = infer_shape(symbol, dict(zip(names, inputs)))[1]
    except mx.base.MXNetError:
        return None
    if results is None:
        return None
    differing = list(map(_differing, shapes.results, results))
    if any(axes is None or axes != differing[0] for axes in differing):
        raise Unproved(f'{node.op} has a result that the length changes in another way')
    return differing[0]


def _differing(one: Shape, other: Shape) -> Optional[list[int]]:
    """Return the axes that differ as one or more trial lengths do; None if anything else does."""
    axes = unlike(one, other)
    fit = len(one) == len(other) and not any((other[i] - one[i]) % _LONGER for i in axes)
    return axes if fit else None


def of_length(shape: Shape, axis: int, length: int) -> Shape:
    """Return a shape with another length of one axis."""
    return shape[:axis] + (length,) + shape[axis + 1 :]


class Origin(NamedTuple):
    """What an entry holds in the padding of an axis, and the inputs that the axis comes from."""

    at: At
    sources: frozenset[tuple[str, ...]]  # of several inputs one after the other: all of them
    longer: int = 0  # how much longer the axis is than these, as a convolution makes it

    @property
    def source(self) -> tuple[str, ...]:
        """The inputs that have that axis' length, one after the other."""
        return min(self.sources)

    def followed_by(self, others: Sequence['Origin']) -> 'Origin':
        """Return the origin of an axis that has the positions of others behind its own."""
        names = sorted(sum([each.source for each in others], self.source))
        longer = sum([each.longer for each in others], self.longer)
        return self._replace(sources=frozenset([tuple(names)]), longer=longer)


class PaddingWalk:
    """Visit a graph node by node, and build it again with masks.

    Attributes
    ----------
    rewriter : Rewriter
    linked : set of (str, str)
    lengths : dict
        (inputs, how much longer, how often each is repeated, whether 0 counts as 1) -> lengths of
        their values, one after the other.
    states : dict
        Entry of the old graph -> what it holds at the padding of each padded axis.
    across : set of int
    """

    def __init__(
        self,
        graph: Subgraph,
        shapes: Mapping[str, Shape],
        axes: Mapping[str, int],
        at: At,
        stops: bool = False,
        dtypes: Optional[Mapping[str, Any]] = None,
    ):
        self._dtypes = dtypes
        self.rewriter, self._stops, self._may_be_empty = Rewriter(), stops, at is At.ZERO
        self.linked: set[tuple[str, str]] = set()
        self.lengths: dict[tuple[tuple[str, ...], int, int, bool], Operand] = {}
        self.states: dict[Entry, dict[int, Origin]] = {}
        self.across: set[int] = set()
        self.shortest: dict[str, int] = {}  # see `Padding`
        self._graph, self._at, self._add = graph, at, self.rewriter.add
        self._axes = {name: axis for name, axis in axes.items() if name in graph.variables}
        self._inputs = dict(shapes)
        for name, axis in self._axes.items():
            self._inputs[name] = of_length(shapes[name], axis, _LENGTH)
        self._moved: dict[Entry, Operand] = {}
        self._filled: dict[tuple[Operand, int, At, bool], Operand] = {}
        # Nodes that depend on reductions, and those of them that may be infinite without values.
        self._of_none: set[int] = set()
        self._infinite_of_none: set[int] = set()
        self._biases: dict[tuple[Shape, int, Origin], Operand] = {}

    def heads(self) -> list[Entry]:
        """Visit all nodes; return the padded graph's results, or raise Unproved."""
        shapes = self._graph.infer(self._inputs)
        if shapes is None:
            raise Unproved('shapes cannot be inferred')
        last = {entry.node: entry.output for entry in sorted(self._graph.uses)}  # that is read
        for index, (node, results) in enumerate(zip(self._graph.nodes, shapes)):
            results = results[: 1 + last.get(index, 0)]
            if node.is_variable and node.name in self._axes:
                state = Origin(self._at, frozenset([(node.name,)]))
                self.states[Entry(index)] = {self._axes[node.name]: state}
            inputs = [self._moved[entry] for entry in node.inputs]
            if any(map(self.states.get, node.inputs)):
                made = self._padded_node(index, node, inputs, results)
            else:
                made = self.rewriter.keep(node, inputs)
                self._follow_none(index, node)
            for output, shape in enumerate(results):
                self._moved.setdefault(Entry(index, output), Operand(made.node, output, shape))
        return [self._finite(head) for head in self._graph.heads]

    def _finite(self, head: Entry) -> Entry:
        operand = self._moved[head]
        for number, state in self.states.get(head, {}).items():
            if state.at is At.ANY:
                self._check_dtype(head, At.ZERO)
                operand = self._with_number(operand, number, state, At.ZERO)
        return operand.entry

    def _check_dtype(self, entry: Entry, wanted: At) -> None:
        """Raise `Unproved` if no operator writes a number into an entry's padding."""
        outputs = self._graph.outputs(self._inputs, self._dtypes)
        dtype = outputs[entry.node].dtype if outputs and self._dtypes else None
        kind = 'f' if dtype is None else np.dtype(dtype).kind
        if kind == 'b' or (kind in 'iu' and abs(wanted.value) == inf):
            raise Unproved(f'padding of {np.dtype(dtype).name} cannot be {wanted.value}')

    def padded_axes(self, entry: Entry) -> tuple[Along, ...]:
        """Return the padded axes of an entry, with the name of an input that has the length."""
        states = sorted(self.states.get(entry, {}).items())
        return tuple([Along(axis, state.source, state.longer) for axis, state in states])

    def _read(
        self, node: Node, inputs: list[Operand], results: list[Shape]
    ) -> tuple[NodeShapes, list[dict[Any, Origin]], Places]:
        """Return shapes, what inputs hold in the padding of each padded axis, and these axes."""
        states: list[dict[Any, Origin]] = [self.states.get(entry, {}) for entry in node.inputs]
        places = [(position, axis) for position, own in enumerate(states) for axis in own]
        return NodeShapes([operand.shape for operand in inputs], results), states, places

    def _padded_node(
        self, index: int, node: Node, inputs: list[Operand], results: list[Shape]
    ) -> Operand:
        shapes, states, places = self._read(node, inputs, results)
        fills: dict[int, At] = {}
        counted: list[tuple[Any, Any]] = []
        emptied: list[tuple[Any, Any]] = []  # axes that a reduction is set for, if it has none
        instead: Optional[Operand] = None
        for link in links_of(node, shapes, places):
            if link.result is None:
                self._of_none.add(index)
            own: list[Any] = [each.get(axis) for each, axis in zip(states, link.inputs)]
            found = [state for state in own if state]
            origin = found[0]._replace(sources=frozenset().union(*[each.sources for each in found]))
            if link.joins:
                origin = found[0].followed_by(found[1:])
            elif len({state.longer for state in found}) > 1 or (
                len(origin.sources) > 1 and any([len(source) > 1 for source in origin.sources])
            ):
                raise Unproved(f'{node.op} joins axes that differ in length')
            self.linked.update((*a, *b) for a in origin.sources for b in origin.sources if a < b)
            for position, state in enumerate(own):
                if state is None and self._is_unsafe(node, position):
                    inputs[position] = self._set_if_empty(inputs[position], 0, 1, origin, At.ONE)
            call = AxisCall(
                node.attrs,
                [state and state.at for state in own],
                list(map(AxisEntry, shapes.inputs, link.inputs)),
                AxisEntry(results[0], link.result),
                gives_states=len(results) > 1,
                stops=self._stops,
                may_be_empty=self._may_be_empty,
            )
            at = ruled(node, call)
            if call.across:
                self.across.add(index)
            for position, wanted in call.fills.items():
                self._check_dtype(node.inputs[position], wanted)
                if fills.setdefault(position, wanted) is not wanted:
                    raise Unproved(f'{node.op} works across the padded axis')
                axis: Any = link.inputs[position]  # what has no padding wants nothing there
                inputs[position] = self._with_number(inputs[position], axis, own[position], wanted)
            if call.unlike_none and self._may_be_empty:
                emptied.append((link.inputs[0], own[0]))
                if call.unlike_none is At.ONE:
                    inputs[0] = self._one_if_empty(inputs[0], *emptied[-1])
            if call.limited:
                inputs[1] = self._limited(inputs[1], origin)
            if call.counted:
                counted.append((link.inputs[0], own[0]))
            if call.instead is not None:
                axis = link.inputs[0]
                least, sizes = node.op != FOREACH, shapes.inputs[0]
                if len(sizes) < 2:
                    raise Unproved(f'{node.op} of an array with one axis')
                lengths = self._lengths_of(origin, sizes[1 - axis], least)
                instead = call.instead(self.rewriter, inputs, lengths)
            if call.joins and any([*own[:-1], call.times > 1]):
                instead = self._joined(inputs * call.times, own * call.times, call.result)
            self._require(origin, call.least)
            if at is not None and link.result is not None:
                result = origin.followed_by([origin] * (call.times - 1))._replace(at=at)
                result = result._replace(longer=result.longer + call.longer)
                self._require(result, 1)
                length = _LENGTH * len(result.source) + result.longer
                if results[0][link.result] != length or (link.joins and not call.joins):
                    raise Unproved(f'{node.op} cuts the padded axis')
                for output, shape in enumerate(results):
                    if shape[link.result] == length:  # not the states of a loop
                        self.states.setdefault(Entry(index, output), {})[link.result] = result
        if counted:
            return self._mean(node, inputs[0], counted)
        made = self.rewriter.keep(node, inputs) if instead is None else instead
        for axis, state in emptied:
            made = self._zero_if_empty(made, results[0], inputs[0], axis, state)
        return made

    def _require(self, origin: Origin, least: int) -> None:
        """Require that an axis has `least` positions or more, the same of each of its inputs."""
        own = -((origin.longer - least) // len(origin.source))
        for name in chain(*origin.sources) if own > 1 else ():
            self.shortest[name] = max(self.shortest.get(name, 1), own)

    def _joined(
        self, inputs: list[Operand], states: list[Optional[Origin]], result: AxisEntry
    ) -> Operand:
        """Concatenate arrays along the padded axis, and move all padding to the end of each row: it
        is infinite among the positions that are put in order."""
        add, axis = self._add, cast(int, result.axis)
        count = (*result.shape, _LENGTH)[axis == 0]  # of rows, which come first here
        order = [*dict.fromkeys([int(axis == 0), axis, *range(len(result.shape))])]
        arrays = [x if axis == 1 else add('transpose', [x], axes=order) for x in inputs]
        lines = []
        for line, state in zip(arrays, states):
            for other in range(2, len(order)):
                line = add('slice_axis', [line], axis=other, begin=0, end=1)
            line = add('zeros_like', [add('Cast', [line], dtype='float64')])
            line = add('Reshape', [line], shape=(0, -1))
            lengths = state and self._lengths_of(state, count)
            lines.append(self._sequence_mask(line, lengths, 1, At.HIGHEST) if lengths else line)
        made, line = [add('Concat', each, dim=1, num_args=len(each)) for each in (arrays, lines)]
        rows, places = [add('_contrib_arange_like', [line], axis=each) for each in (0, 1)]
        line = add('argsort', [add('broadcast_add', [line, places])], axis=1, dtype='float64')
        size = add('_plus_scalar', [add('max', [places])], scalar=1)
        begin = add('expand_dims', [add('broadcast_mul', [rows, size])], axis=1)
        index = add('BlockGrad', [add('broadcast_add', [line, begin])])
        found = add('take', [add('Reshape', [made], shape=(-3, -2)), index])
        back = [order.index(each) for each in range(len(order))]
        return found if axis == 1 else add('transpose', [found], axes=back)

    def _one_if_empty(self, operand: Operand, number: int, state: Origin) -> Operand:
        """Return an entry with zeros in the padding of axis `number`, but one if there are no
        values."""
        state = state._replace(at=At.FINITE)
        ones = self._with_number(operand, number, state, At.ONE)
        return self._with_number(ones, number, state, At.ZERO, least=True)

    def _zero_if_empty(
        self, made: Operand, shape: Shape, reduced: Operand, number: int, state: Origin
    ) -> Operand:
        """Return the result of a reduction, zero where there are no values."""
        keeps = len(shape) == len(reduced.shape)
        rows, axis = (0, 1) if number or not keeps else (1, 0)  # of the result
        if not shape or shape[rows : rows + 1] != reduced.shape[number == 0 :][:1]:
            raise Unproved('a reduction is over all rows at once')
        return self._set_if_empty(made._replace(shape=shape), rows, axis, state, At.ZERO)

    def _set_if_empty(
        self, operand: Operand, rows: int, axis: int, state: Origin, at: At
    ) -> Operand:
        """Return an entry without the padded axis, set to a number in rows without values."""
        shape = operand.shape
        if len(shape) <= rows:
            raise Unproved('a reduction is over all rows at once')
        lengths = self._lengths_of(state, shape[rows])
        if shape[axis : axis + 1] == (1,):
            return self._sequence_mask(operand, lengths, axis, at)._replace(shape=shape)
        one = self._add('expand_dims', [operand], axis=1)
        return self._add('squeeze', [self._sequence_mask(one, lengths, 1, at)], shape, axis=1)

    def _follow_none(self, index: int, node: Node) -> None:
        """Note whether a node without the padded axis depends on a reduction along it."""
        if any(entry.node in self._of_none for entry in node.inputs):
            self._of_none.add(index)
            if any(self._is_unsafe(node, position) for position in range(len(node.inputs))):
                self._infinite_of_none.add(index)

    def _is_unsafe(self, node: Node, position: int) -> bool:
        """Return whether an input without the padded axis may make a result infinite where there
        are no values."""
        read, op = node.inputs[position].node, op_of(node.op)
        if not self._may_be_empty or read not in self._of_none:
            return False
        if read in self._infinite_of_none or not op.elementwise:
            return read in self._infinite_of_none
        states = [At.FINITE if place == position else None for place in range(len(node.inputs))]
        call = AxisCall(node.attrs, states)
        try:
            return op.axis is None or bool(op.axis(call) and call.fills)
        except Unproved:
            return True

    def _with_number(
        self, operand: Operand, number: int, state: Origin, at: At, least: bool = False
    ) -> Operand:
        """Return an entry with the number of `at` in the padding of axis `number`. A first one of
        padding, where there are no values, stays if `least`, and if the number is infinite."""
        if at in (At.LOWEST, At.HIGHEST) and self._may_be_empty:
            least = True
            if state.at is At.ANY:
                operand = self._with_number(operand, number, state, At.ZERO)
                state = state._replace(at=At.FINITE)
        key = operand, number, at, least
        if key not in self._filled:
            masked = self._masked(operand, number, state, at, least)
            self._filled[key] = masked._replace(shape=operand.shape)
        return self._filled[key]

    def _masked(self, operand: Operand, number: int, state: Origin, at: At, least: bool) -> Operand:
        """Mask the padding of an axis by an operator that takes axis 0 or 1, and a length for each
        position of the other."""
        shape = operand.shape
        if len(shape) < 2:
            raise Unproved('a reduction is over all rows at once')
        if number < 2:
            lengths = self._lengths_of(state, shape[1 - number], least)
            return self._sequence_mask(operand, lengths, number, at)
        if abs(at.value) == inf and state.at is not At.ANY:
            return self._add('elemwise_add', [operand, self._infinite(operand, number, state, at)])
        if at is At.ZERO and state.at is At.FINITE:
            return self._add('broadcast_mul', [operand, self._marks(operand, number, state, at)])
        axes = [0, number] + [i for i in range(1, len(shape)) if i != number]
        turned = self._add('transpose', [operand], axes=tuple(axes))
        masked = self._sequence_mask(turned, self._lengths_of(state, shape[0], least), 1, at)
        return self._add('transpose', [masked], axes=tuple(map(axes.index, range(len(axes)))))

    def _infinite(self, operand: Operand, number: int, state: Origin, at: At) -> Operand:
        """Return an array of an entry's shape, infinite in the padding and zero elsewhere; computed
        once for all layers."""
        key = operand.shape, number, state._replace(at=at)
        if key not in self._biases:
            marks = self._marks(operand, number, state, at)
            like = self._add('BlockGrad', [operand])
            self._biases[key] = self._add('broadcast_like', [marks, like])
        return self._biases[key]

    def _marks(self, operand: Operand, number: int, state: Origin, at: At) -> Operand:
        """Return an array with `at` in the padding, and one or zero elsewhere, whichever it is not;
        of an entry's shape, but of length one along other axes than 0 and `number`."""
        one = self._add('BlockGrad', [operand])
        for other in range(1, len(operand.shape)):
            if other != number:
                one = self._add('slice_axis', [one], axis=other, begin=0, end=1)
        inside = 'ones_like' if at is At.ZERO else 'zeros_like'
        row = self._add('Reshape', [self._add(inside, [one])], shape=(0, -1))
        least = at is not At.ZERO and self._may_be_empty  # infinite
        row = self._sequence_mask(row, self._lengths_of(state, operand.shape[0], least), 1, at)
        shape = [-1 if i == number else 1 for i in range(1, len(operand.shape))]
        return self._add('Reshape', [row], shape=(0, *shape))

    def _sequence_mask(self, operand: Operand, lengths: Operand, axis: int, at: At) -> Operand:
        attrs = {'use_sequence_length': True, 'axis': axis, 'value': at.value}
        return self._add('SequenceMask', [operand, lengths], **attrs)

    def _lengths_of(self, state: Origin, count: int, least: bool = False) -> Operand:
        """Return `count` lengths of an axis, each repeated if its row became several rows; 1 for 0
        if `least`."""
        names = state.source
        rows = self._inputs[names[0]][0] if self._axes[names[0]] else 1
        times, left = divmod(count, rows)
        if left or not times or not count % _LENGTH:
            raise Unproved('a reduction is over all rows at once')
        return self._lengths(names, state.longer, times, least and self._may_be_empty)

    def _lengths(self, names: tuple[str, ...], longer: int, times: int, least: bool) -> Operand:
        key = names, longer, times, least
        if key in self.lengths:
            return self.lengths[key]
        if least:
            own = self._lengths(names, longer, times, False)
            made = self._add('_maximum_scalar', [own], scalar=1)
        elif times > 1:
            column = self._add('Reshape', [self._lengths(names, longer, 1, False)], shape=(-1, 1))
            repeated = self._add('broadcast_axis', [column], axis=1, size=times)
            made = self._add('Reshape', [repeated], shape=(-1,))
        elif longer:
            made = self._add('_plus_scalar', [self._lengths(names, 0, 1, False)], scalar=longer)
        elif len(names) > 1:
            every = [self._lengths((name,), 0, 1, False) for name in names]
            made = self._add('add_n', every, num_args=len(every))
        else:
            dtype = str(dtype_number(np.int32))
            made = self.rewriter.variable(LENGTHS % names, __dtype__=dtype)
        self.lengths[key] = made
        return made

    def _limited(self, index: Operand, state: Origin) -> Operand:
        """Limit positions to less than the number of values."""
        lengths = self._lengths_of(state, index.shape[0], True)
        last = self._add('_minus_scalar', [lengths], scalar=1)
        last = self._add('Reshape', [last], shape=(-1,) + (1,) * (len(index.shape) - 1))
        index = self._add('Cast', [index], index.shape, dtype='int32')
        return self._add('broadcast_minimum', [index, last], index.shape)

    def _mean(self, node: Node, values: Operand, axes: list[tuple[int, Origin]]) -> Operand:
        """Return a mean along padded axes: a sum, divided by the number of unpadded positions."""
        ones = self._add('ones_like', [values], values.shape)
        for axis, state in axes:
            ones = self._with_number(ones, axis, state, At.ZERO)
        total, count = [self._add('sum', [each], (), **node.attrs) for each in (values, ones)]
        if self._may_be_empty:
            count = self._add('_maximum_scalar', [count], scalar=1)
        return self._add('elemwise_div', [total, count])


def ruled(node: Node, call: AxisCall) -> Optional[At]:
    """Return what the padding of an operator's result holds; None if the result is not padded."""
    if node.op == FOREACH:
        call.across, call.instead = True, Loop(node).until_the_end
        return finite(call)
    rule = op_of(node.op).axis
    assert rule is not None  # as `links_of` saw
    try:
        at = rule(call)
    except Unproved as error:
        raise Unproved(f'{node.op} {str(error) or "works across the padded axis"}') from None
    if (at is None) != (call.result.axis is None):
        raise Unproved(f'{node.op} cuts the padded axis')
    return at
