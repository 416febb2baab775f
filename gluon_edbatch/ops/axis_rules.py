"""Axis rules: what an operator makes of one axis of its inputs, whose length is not known.

That axis may be the one along which calls of a batch lie one after the other. A rule then says
whether each position of the result depends on the same position of the inputs only. Shapes tell
which axis of the result that is (see `subgraph.rowwise`).

Or it is an axis of ragged values (N, K, ...), which are padded. The padding of an entry with that
axis holds *zero*, *finite* numbers, or *any* numbers. Zeros in a sum are exact, and zero times a
finite number is zero. The same holds for gradients if slopes are finite: finite padding gets no
gradient, and zero padding gives none. If an operator needs other numbers in the padding of an
input, its rule says so, and `subgraph.padding_proof` writes them there first.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from math import inf, isfinite, prod
from typing import Any, Callable, NamedTuple, Optional

from .attrs import Attrs, Shape, unlike


class At(Enum):
    """What the padding of an entry holds. Members that are numbers can be written there."""

    ZERO = 0.0
    ONE = 1.0
    LOWEST = -inf
    HIGHEST = inf
    FINITE = 'finite'
    ANY = 'any'


class Unproved(Exception):
    """Raised where padding, or other positions of the axis, may change a result."""


States = list[Optional[At]]  # of the inputs; None for those without a ragged axis


class AxisEntry(NamedTuple):
    """The shape of an entry, and where it has the axis, if it has it."""

    shape: Shape
    axis: Optional[int] = None


class AxisLink(NamedTuple):
    """Axes of an operator's inputs and results that are equally long."""

    inputs: tuple[Optional[int], ...]  # of each input
    result: Optional[int]  # of the results; None where nothing of them has that length
    joins: bool = False  # whether the result is as long as all of these together


Places = Sequence[tuple[int, int]]  # inputs of an operator and padded axes of theirs
LinksRule = Callable[[Places], list[AxisLink]]


def known_links(*links: AxisLink) -> LinksRule:
    """Return a rule for operators whose equal axes are always these."""
    return lambda places: list(links)


def same_axes(places: Places) -> list[AxisLink]:
    """Return which axes are equally long, for an operator on three arrays of one shape."""
    return [
        AxisLink(
            tuple([axis if (position, axis) in places else None for position in range(3)]), axis
        )
        for axis in sorted({axis for _, axis in places})
    ]


@dataclass
class AxisCall:
    """An operator and its inputs, as axis rules see them, and what a rule asks for."""

    attrs: Attrs
    states: States  # what the padding of each input holds, after `fills`; None without the axis
    inputs: Sequence[AxisEntry] = ()  # see `input`
    first_result: Optional[AxisEntry] = None  # see `result`
    gives_states: bool = False  # whether states of a recurrent layer after all steps are read
    stops: bool = False  # whether layers and orders stop before the padding
    # whether calls may have no values, but one of padding in their place
    may_be_empty: bool = False
    padded: bool = True  # False where calls lie along the axis: it has no padding
    fills: dict[int, At] = field(default_factory=dict)  # to be written to padding of inputs first
    # what that one is to be for a reduction, whose result of no values is then set; None if the
    # reduction needs neither
    unlike_none: Optional[At] = None
    counted: bool = False  # whether the result has to be divided by the number of values
    limited: bool = False  # whether the second input has to be less than the number of values
    across: bool = False  # whether a value of the result depends on values at other positions
    longer: int = 0  # how much longer the result's axis is than the input's
    times: int = 1  # how many times as long it is
    joins: bool = False  # whether the inputs lie one after the other along it, so many times
    least: int = 1  # the least number of values, as for a slice of the first three
    # what is called in place of the operator if its first input has the axis first or second: takes
    # the `Rewriter`, the inputs, and the number of values of each row
    instead: Optional[Callable[..., Any]] = None

    def want(self, position: int, at: At) -> None:
        """Require that the padding of an input, if there is any, holds `at`."""
        if self.states[position] not in (None, at):
            self.states[position] = self.fills[position] = at

    def input(self, position: int = 0) -> AxisEntry:
        """Return shape and ragged axis of an input; raise `Unproved` if they are unknown."""
        if position >= len(self.inputs):
            raise Unproved
        return self.inputs[position]

    @property
    def result(self) -> AxisEntry:
        """Shape and ragged axis of the first result; raises `Unproved` if they are unknown."""
        if self.first_result is None:
            raise Unproved
        return self.first_result

    def along(self, name: str, default: Optional[int]) -> bool:
        """Return whether an attribute names the ragged axis of the first input."""
        shape, ragged = self.input()
        axis = self.attrs.axis(name, len(shape), default)
        if axis is None:
            raise Unproved
        return axis == ragged


AxisRule = Callable[[AxisCall], Optional[At]]


# --- elementwise ---------------------------------------------------------------------------------


def keeps(call: AxisCall) -> At:
    """Return ZERO if all padding is zero, else FINITE; for functions with f(0) = 0."""
    return At.ZERO if set(call.states) == {At.ZERO} else finite(call)


def finite(call: AxisCall) -> At:
    """Return FINITE, for functions that are finite everywhere."""
    for position, state in enumerate(call.states):
        if state is At.ANY:
            call.want(position, At.ZERO)
    return At.FINITE


def only_at(wanted: At, result: At) -> Callable[[AxisCall], At]:
    """Return a rule for functions that are not finite everywhere, such as ``log``."""

    def rule(call: AxisCall) -> At:
        for position in range(len(call.states)):
            call.want(position, wanted)
        return result

    return rule


def rows_only(rule: AxisRule) -> AxisRule:
    """Return a rule for calls along the axis: what padding becomes is not known."""

    def known(call: AxisCall) -> Optional[At]:
        if call.padded:
            raise Unproved('has no rule for padding')
        return rule(call)

    return known


of_rows = rows_only(finite)


def scaled(call: AxisCall) -> At:
    """Return what a product or quotient with a number has in its padding; refuse a zero."""
    if call.padded and call.attrs.number('scalar', 1) == 0:
        raise Unproved  # what divides
    return keeps(call)


def power(call: AxisCall) -> At:
    """Return what a power has in its padding; exponents below one have infinite slopes at zero."""
    if call.attrs.number('scalar', 1) < 1:
        return only_at(At.ONE, At.FINITE)(call)
    return only_at(At.ZERO, At.ZERO)(call)


def first_input(call: AxisCall) -> At:
    """Return what `keeps` returns, for an array and weights."""
    if any(call.states[1:]):
        raise Unproved
    return At.ZERO if call.states[0] is At.ZERO else finite(call)


def product(call: AxisCall) -> At:
    """Return ZERO if the padding of an input is zero, for a product."""
    at = finite(call)
    return At.ZERO if At.ZERO in call.states else at


def quotient(call: AxisCall) -> At:
    """Return what a quotient has in its padding, whose divisor must not be zero."""
    call.want(1, At.ONE)
    return product(call)


def choice(call: AxisCall) -> At:
    """Return what a choice between two arrays by a third has in its padding."""
    at = finite(call)
    return At.ZERO if set(call.states[1:]) == {At.ZERO} else at


def activation(call: AxisCall) -> At:
    """Return what an activation has in its padding, by the kind of function."""
    rule = keeps if call.attrs.get('act_type') in ('tanh', 'relu', 'softsign') else finite
    return rule(call)


def dropout(call: AxisCall) -> At:
    """Return ZERO if all padding is zero, else FINITE; a mask may be shared along `axes`."""
    shape, axis = call.input()
    call.across = axis in {each % len(shape) for each in call.attrs.integers('axes')}
    return keeps(call)


# --- products ------------------------------------------------------------------------------------


def value_by_value(call: AxisCall) -> At:
    """Return what `first_input` returns, for an operator along the last axis."""
    shape, ragged = call.input()
    if ragged == len(shape) - 1:
        raise Unproved
    return first_input(call)


def fully_connected(call: AxisCall) -> At:
    """Return what a product value by value has in its padding; raise if values are flattened
    together."""
    flat = call.attrs.flag('flatten', True)
    if flat and call.input().axis != 0:
        raise Unproved
    at = first_input(call) if flat else value_by_value(call)
    return at if call.attrs.flag('no_bias') else At.FINITE


def dot(call: AxisCall) -> At:
    """Return what a product of rows and a matrix has in its padding."""
    if call.attrs.flag('transpose_a'):
        raise Unproved
    return value_by_value(call)


def matrices(call: AxisCall) -> Optional[At]:
    """Return what ``batch_dot`` has in its padding; None for a sum over the ragged axis."""
    at = product(call)
    if call.result.axis is not None:
        return at
    if at is not At.ZERO:
        call.want(0, At.ZERO)
    return None


def lookup(call: AxisCall) -> At:
    """Return what a look-up has in its padding, whose ids are clipped to the table."""
    if any(call.states[1:]):
        raise Unproved
    return finite(call)


# --- along axes ----------------------------------------------------------------------------------


def reduced(wanted: At, otherwise: AxisRule = keeps) -> AxisRule:
    """Return a rule for a reduction that ignores `wanted`; `otherwise` is for other axes."""

    def rule(call: AxisCall) -> Optional[At]:
        shape, ragged = call.input()
        if ragged not in call.attrs.axes(len(shape)):
            return otherwise(call)
        call.want(0, wanted)
        if abs(wanted.value) == inf:
            _set_if_empty(call, At.FINITE)
        return None

    return rule


def norm(call: AxisCall) -> Optional[At]:
    """Require zero padding for a root of squares, which has no slope at zero."""
    at = reduced(At.ZERO, only_at(At.ONE, At.FINITE))(call)
    if at is None:
        _set_if_empty(call, At.ONE)
    return at


def _set_if_empty(call: AxisCall, unlike: At) -> None:
    shape, ragged = call.input()
    if call.may_be_empty and int(ragged == 0) in call.attrs.axes(len(shape)):
        raise Unproved  # of all rows at once
    call.unlike_none = unlike


def mean(call: AxisCall) -> Optional[At]:
    """Require zero padding for a mean, whose sum is divided by the number of values."""
    at = reduced(At.ZERO)(call)
    call.counted = at is None
    return at


def position_of(wanted: At) -> AxisRule:
    """Return a rule for the position of the largest or smallest value."""

    def rule(call: AxisCall) -> Optional[At]:
        if not call.along('axis', None):
            return finite(call)
        call.want(0, wanted)
        return None

    return rule


def pick(call: AxisCall) -> Optional[At]:
    """Require that the picked position, or the last one, is within the values."""
    if not call.along('axis', -1):
        return finite(call)
    if call.states[1] or call.attrs.get('mode', 'clip') != 'clip':
        raise Unproved
    call.limited = True
    return None


def channel_position(call: AxisCall) -> At:
    """Return FINITE for the position of the largest value along axis 1."""
    if call.input().axis == 1:
        raise Unproved
    return finite(call)


def first_axis(call: AxisCall) -> At:
    """Return what `first_input` returns, for an operator that knows the first axis as of rows."""
    if call.input().axis != 0:
        raise Unproved
    return first_input(call)


def batch_norm(call: AxisCall) -> At:
    """Return FINITE for a normalisation by given statistics; see `Op.statistics`."""
    if call.along('axis', 1):
        raise Unproved
    return first_input(call)


def upsampling(call: AxisCall) -> At:
    """Return FINITE for images that are joined or added; learned weights are a kernel."""
    if call.attrs.get('sample_type') == 'bilinear':
        return first_axis(call)
    if call.input().axis != 0 or None in call.states:
        raise Unproved
    return finite(call)


def normalised(wanted: At, result: At) -> AxisRule:
    """Return a rule for operators that normalise values along an axis, such as softmax."""

    def rule(call: AxisCall) -> At:
        for position in range(1, len(call.states)):
            call.want(position, At.ZERO)  # lengths
        if not call.along('axis', -1):
            return finite(call)
        call.want(0, wanted)
        call.across = True
        return At.FINITE if result is At.ZERO and call.may_be_empty else result

    return rule


def running(call: AxisCall) -> At:
    """Return FINITE for a running sum, which padding follows."""
    call.across = call.along('axis', None)
    return finite(call)


def layer_norm(call: AxisCall) -> At:
    """Return FINITE for a normalisation of each value."""
    if call.along('axis', -1):
        raise Unproved
    first_input(call)
    return At.FINITE


def l2_normalization(call: AxisCall) -> At:
    """Require zero padding for a division by the root of a sum of squares."""
    if call.input().axis == 0:
        return keeps(call)
    call.want(0, At.ZERO)
    call.across = True
    return At.ZERO


# --- shapes --------------------------------------------------------------------------------------


def alike(call: AxisCall) -> Optional[At]:
    """Return what the padding of all inputs holds, for operators that only move elements."""
    found = set(call.states)
    if None in found:
        raise Unproved
    return found.pop() if len(found) == 1 else At.ANY if At.ANY in found else At.FINITE


def view(call: AxisCall) -> Optional[At]:
    """Return what a reshape has in its padding, if the elements before the axis stay."""
    (old, before), (new, after) = call.input(), call.result
    if after is None or prod(old[:before]) != prod(new[:after]) or prod(old) != prod(new):
        raise Unproved
    if call.states[0] is None:
        raise Unproved
    return call.states[0]


def squeezed(call: AxisCall) -> Optional[At]:
    """Return what `view` returns; without axes, ``squeeze`` would drop an axis of length one."""
    if not call.attrs.integers('axis'):
        raise Unproved
    return view(call)


def same_lengths(call: AxisCall) -> Optional[At]:
    """Return what a slice to another array's shape has, where both have as many positions."""
    (one, axis), (other, along) = call.input(), call.input(1)
    if None in call.states or axis != along or axis in unlike(one, other):
        raise Unproved
    return finite(call)


def other_axis(name: str, default: Optional[int]) -> AxisRule:
    """Return a rule for operators that cut or join along another axis."""

    def rule(call: AxisCall) -> Optional[At]:
        if not call.along(name, default):
            return alike(call)
        if 'begin' not in call.attrs:
            raise Unproved
        if is_last(call.attrs):
            _take_last(call, keeps_axis=True)
            return None
        (begin,), end = call.attrs.integers('begin'), call.attrs.integers('end')
        return _cut(call, begin, end[0] if end else None)

    return rule


def _cut(call: AxisCall, begin: Optional[int], end: Optional[int]) -> Optional[At]:
    """Return what a slice along the ragged axis has in its padding: behind the last value of each
    row is what was there, or the values that were cut off."""
    begin, at = begin or 0, alike(call)
    if begin < 0 or (end is not None and 0 <= end <= begin):
        raise Unproved
    call.across = (begin, end) != (0, None)
    if end is not None and end >= 0:
        call.least = end
        return None
    call.longer = (end or 0) - begin
    return at if end is None else At.ANY  # what is cut off may be infinite


def slices(call: AxisCall) -> Optional[At]:
    """Return what a slice along several axes has in its padding."""
    axis = call.input().axis
    begins, ends, steps = (call.attrs.integers(name) for name in ('begin', 'end', 'step'))
    if axis is None or axis >= len(begins):
        return alike(call)
    if axis < len(steps) and steps[axis] not in (None, 1):
        others = {*steps[:axis], *steps[axis + 1 :]}
        if steps[axis] != -1 or {*begins, *ends} != {None} or not others <= {None, 1}:
            raise Unproved
        return _turned(call)
    return _cut(call, begins[axis], ends[axis])


def joined(call: AxisCall) -> Optional[At]:
    """Return what ``concat`` has in its padding, which is to come last along the ragged axis."""
    axis = call.result.axis
    if axis is None or call.attrs.axis('dim', len(call.result.shape), 1) != axis:
        return alike(call)
    call.across = call.joins = True
    call.longer = sum([each.shape[axis] for each in call.inputs if each.axis is None])
    return alike(replace(call, states=[state for state in call.states if state]))


def repeated(call: AxisCall) -> Optional[At]:
    """Return what ``repeat`` has in its padding, which stays behind all values."""
    if call.along('axis', None):
        call.across, call.times = True, call.attrs.integer('repeats')
    return alike(call)


def tiled(call: AxisCall) -> Optional[At]:
    """Return what ``tile`` has in its padding. Along the ragged axis it joins equal inputs."""
    (shape, axis), reps = call.input(), call.attrs.integers('reps')
    call.times = ((1,) * len(shape) + reps)[(axis or 0) - len(shape)]
    call.across = call.joins = call.times > 1
    if call.joins and (prod(reps), call.result.axis) != (call.times, axis):
        raise Unproved
    return alike(call)


def padded(call: AxisCall) -> Optional[At]:
    """Require zero padding for ``Pad`` with zeros, which lengthens it."""
    axis: Any = call.input().axis
    widths = call.attrs.integers('pad_width')
    own = widths[2 * axis : 2 * axis + 2]
    if any(own):
        if call.attrs.get('mode') != 'constant' or call.attrs.number('constant_value', 0):
            raise Unproved
        call.want(0, At.ZERO)
        call.across, call.longer = True, sum(own)
    elif call.attrs.get('mode') == 'constant':
        finite(call)
        return At.FINITE
    return alike(call)


def turned(call: AxisCall) -> Optional[At]:
    """Return what values in reverse order have in their padding, which stays behind them."""
    (shape, axis), at = call.input(), alike(call)
    axes = {each % len(shape) for each in call.attrs.integers('axis') if each is not None}
    if axis not in axes:
        return at
    if len(axes) > 1:
        raise Unproved
    return _turned(call)


def _turned(call: AxisCall) -> Optional[At]:
    """Turn the values only, so that padding stays behind them."""
    axis = call.input().axis
    if axis not in (0, 1):
        raise Unproved
    call.across = True

    def instead(rewriter: Any, inputs: Sequence[Any], lengths: Any) -> Any:
        x, add = inputs[0], rewriter.add
        x = add('SwapAxis', [x], dim1=0, dim2=1) if axis else x
        x = add('SequenceReverse', [x, lengths], use_sequence_length=True)
        return add('SwapAxis', [x], dim1=0, dim2=1) if axis else x

    call.instead = instead
    return alike(call)


def ordered(ascends: bool, gives: str, count: int = 0) -> AxisRule:
    """Return a rule for values in order, or the first `count` of them, to which padding comes last.
    `gives` and `count` are what the operator returns if no attribute says it. Which of equal values
    MXNet puts first depends on the padding, but for the first of all."""

    def rule(call: AxisCall) -> Optional[At]:
        if not call.along('axis', -1):
            return finite(call)
        some = call.attrs.integer('k', count)
        if not call.stops:
            if call.attrs.get('ret_typ', gives) != 'value' and some != 1:
                raise Unproved
            call.want(0, At.HIGHEST if call.attrs.flag('is_ascend', ascends) else At.LOWEST)
        call.across = True
        call.least = max(some, 1)
        return None if call.result.axis is None else At.ANY

    return rule


def is_last(attrs: Attrs) -> bool:
    """Return whether a slice along an axis takes the last position."""
    return attrs.get('begin') == '-1' and attrs.get('end', 'None') == 'None'


def sequence_last(call: AxisCall) -> Optional[At]:
    """Take the last position that is no padding."""
    if call.attrs.integer('axis', 0) != call.input().axis:
        return sequences(call)
    if len(call.states) > 1:
        raise Unproved
    _take_last(call, keeps_axis=False)
    return None


def sequences(call: AxisCall) -> Optional[At]:
    """Return what an operator along other positions than those of the axis has in its padding. If
    it has a length for each sequence, the axis is to be that of the sequences."""
    (_, axis), along, lengths = call.input(), call.attrs.integer('axis', 0), call.states[1:]
    if axis in (None, along) or any(lengths) != (axis < 2 and len(lengths) > 0):
        raise Unproved
    if call.padded and any(lengths):
        raise Unproved  # of none, there is no last one
    return call.states[0]


def _take_last(call: AxisCall, keeps_axis: bool) -> None:
    axis = call.input().axis
    if axis not in (0, 1):
        raise Unproved

    def instead(rewriter: Any, inputs: Sequence[Any], lengths: Any) -> Any:
        attrs = {'use_sequence_length': True, 'axis': axis}
        last = rewriter.add('SequenceLast', [inputs[0], lengths], **attrs)
        return rewriter.add('expand_dims', [last], axis=axis) if keeps_axis else last

    call.instead = instead


def taken(call: AxisCall) -> Optional[At]:
    """Return what a look-up by positions has in its padding: of positions in what has no such axis,
    or of the values along another axis."""
    table, index = call.states
    if table and index:
        raise Unproved
    if index:
        return finite(call)
    if call.along('axis', 0):
        raise Unproved
    return table


def broadcast(call: AxisCall) -> At:
    """Return what a broadcast of an array to another's shape has in its padding."""
    return call.states[0] or At.FINITE


def positions(call: AxisCall) -> Optional[At]:
    """Return FINITE for positions along an axis."""
    if call.attrs.integer('repeat', 1) != 1:
        raise Unproved
    call.across = True
    return At.FINITE if call.along('axis', None) else None


def sequence_mask(call: AxisCall) -> Optional[At]:
    """Return what a mask by the user's own lengths has in its padding."""
    state, value = call.states[0], call.attrs.number('value', 0)
    if not call.attrs.flag('use_sequence_length'):
        return state
    if call.input().axis != call.attrs.integer('axis', 0):
        state = sequences(call)
    elif any(call.states[1:]):
        raise Unproved
    else:
        call.across = True
    if state is At.ANY or not isfinite(value):
        return At.ANY
    return state if value == 0 else At.FINITE


# --- what works across the values, taken apart ---------------------------------------------------

# Takes `Rewriter.add`, a `NodeView` and the ragged axis. Returns reductions over all values and
# the operators that compute each value's result from them. None where there is no such form.
DecompositionRule = Callable[[Callable[..., Any], Any, int], Any]


def decomposed_softmax(logarithm: bool = False, sign: int = 1) -> DecompositionRule:
    """Return a rule for the softmax decomposition. The largest score is a constant there: it keeps
    numbers small, and cancels out."""

    def rule(add: Callable[..., Any], node: Any, axis: int) -> Any:
        if len(node.inputs) > 1 or node.attrs.get('dtype', 'None') != 'None':
            return None
        (x,), temperature = node.inputs, node.attrs.get('temperature', 'None')
        if sign < 0:
            x = add('negative', [x])
        if temperature != 'None':
            x = add('_div_scalar', [x], scalar=temperature)
        largest = add('BlockGrad', [add('max', [x], axis=axis, keepdims=True)])
        x = add('broadcast_sub', [x, largest])
        total = add('sum', [add('exp', [x])], axis=axis, keepdims=True)
        if logarithm:
            return add('broadcast_sub', [x, add('log', [total])])
        return add('broadcast_div', [add('exp', [x]), total])

    return rule
