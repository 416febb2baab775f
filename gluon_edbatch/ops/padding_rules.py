"""Rules for padding: what an operator makes of ragged values (N, K, ...) that are padded along one
axis.

An entry of the graph that still has that axis is, at the padding, *zero*, or just *finite*, or
*any*thing. Zeros in a sum are exact; a product of a zero and something finite is zero. That holds
for gradients, too, where slopes are finite: what is finite gets no gradient from the padding, and
what is zero gives none. Where an operator wants something else there than what is, it says so, and
`subgraph.padding_proof` writes it there first.
"""

from collections.abc import Sequence
from enum import Enum
from math import inf, isfinite, prod
from typing import Any, Callable, NamedTuple, Optional

from .attrs import Attrs, Shape


class At(Enum):
    """What an entry is at the padding. Those that are numbers can be written there."""

    ZERO = 0.0
    ONE = 1.0
    LOWEST = -inf
    HIGHEST = inf
    FINITE = 'finite'
    ANY = 'any'


class Unproved(Exception):
    """Padding may change the result."""


States = list[Optional[At]]  # of the inputs; None for those without a ragged axis


class RaggedEntry(NamedTuple):
    """The shape of an entry, and which of its axes is ragged, if one is."""

    shape: Shape
    axis: Optional[int] = None


class AxisLink(NamedTuple):
    """Axes of an operator that are equally long."""

    inputs: tuple[Optional[int], ...]  # of each input
    result: Optional[int]  # of the results; None where nothing of them has that length


Places = Sequence[tuple[int, int]]  # inputs of an operator and padded axes of theirs
LinksRule = Callable[[Places], list[AxisLink]]


def known_links(*links: AxisLink) -> LinksRule:
    """Of an operator that has no others."""
    return lambda places: list(links)


def same_axes(places: Places) -> list[AxisLink]:
    """Of an operator of three arrays of one shape."""
    return [
        AxisLink(
            tuple([axis if (position, axis) in places else None for position in range(3)]), axis
        )
        for axis in sorted({axis for _, axis in places})
    ]


class RaggedCall:
    """An operator and what it is applied to, as rules see it.

    Attributes
    ----------
    attrs : Attrs
    states : list of (At or None)
        Of the inputs, after what was written to their padding.
    fills : dict of int to At
        What is to be written to the padding of inputs before.
    counted : bool
        Whether the result is to be divided by the number of values.
    limited : bool
        Whether the second input is to be less than that.
    across : bool
        Whether a value of the result depends on others than those at its place.
    """

    def __init__(
        self,
        attrs: Attrs,
        states: States,
        inputs: Sequence[RaggedEntry] = (),
        result: Optional[RaggedEntry] = None,
    ):
        self.attrs = attrs
        self.states = list(states)
        self.fills: dict[int, At] = {}
        self.counted = self.limited = self.across = False
        self._inputs, self._result = inputs, result

    def want(self, position: int, at: At) -> None:
        """Have this at the padding of an input that has some."""
        if self.states[position] not in (None, at):
            self.states[position] = self.fills[position] = at

    def input(self, position: int = 0) -> RaggedEntry:
        """Its shape and ragged axis, where these are known."""
        if position >= len(self._inputs):
            raise Unproved
        return self._inputs[position]

    @property
    def result(self) -> RaggedEntry:
        """The same of the first result."""
        if self._result is None:
            raise Unproved
        return self._result

    def along(self, name: str, default: Optional[int]) -> bool:
        """Whether an attribute names the ragged axis of the first input."""
        shape, ragged = self.input()
        axis = self.attrs.axis(name, len(shape), default)
        if axis is None:
            raise Unproved
        return axis == ragged


PaddingRule = Callable[[RaggedCall], Optional[At]]


# --- elementwise ---------------------------------------------------------------------------------


def keeps(call: RaggedCall) -> At:
    """Zero of zeros, with finite slopes."""
    return At.ZERO if set(call.states) == {At.ZERO} else finite(call)


def finite(call: RaggedCall) -> At:
    """A number of any number."""
    for position, state in enumerate(call.states):
        if state is At.ANY:
            call.want(position, At.ZERO)
    return At.FINITE


def only_at(wanted: At, result: At) -> Callable[[RaggedCall], At]:
    """For functions that are not finite everywhere, as ``log`` is not."""

    def rule(call: RaggedCall) -> At:
        for position in range(len(call.states)):
            call.want(position, wanted)
        return result

    return rule


def scaled(call: RaggedCall) -> At:
    """A product with a number."""
    if call.attrs.number('scalar', 1) == 0:
        raise Unproved  # what divides
    return keeps(call)


def power(call: RaggedCall) -> At:
    """Of an exponent below one, slopes at zero are infinite."""
    if call.attrs.number('scalar', 1) < 1:
        return only_at(At.ONE, At.FINITE)(call)
    return only_at(At.ZERO, At.ZERO)(call)


def first_input(call: RaggedCall) -> At:
    """As `keeps`, of an array and weights."""
    if any(call.states[1:]):
        raise Unproved
    return At.ZERO if call.states[0] is At.ZERO else finite(call)


def product(call: RaggedCall) -> At:
    """Zero wherever one of them is."""
    at = finite(call)
    return At.ZERO if At.ZERO in call.states else at


def quotient(call: RaggedCall) -> At:
    """Of what is not zero."""
    call.want(1, At.ONE)
    return product(call)


def choice(call: RaggedCall) -> At:
    """Of two arrays, by a third."""
    at = finite(call)
    return At.ZERO if set(call.states[1:]) == {At.ZERO} else at


def activation(call: RaggedCall) -> At:
    """By the kind of function."""
    rule = keeps if call.attrs.get('act_type') in ('tanh', 'relu', 'softsign') else finite
    return rule(call)


def dropout(call: RaggedCall) -> At:
    """As `keeps`; what is drawn may be the same along axes."""
    call.across = bool(call.attrs.integers('axes'))
    return keeps(call)


# --- products ------------------------------------------------------------------------------------


def value_by_value(call: RaggedCall) -> At:
    """As `first_input`, of something along the last axis."""
    shape, ragged = call.input()
    if ragged == len(shape) - 1:
        raise Unproved
    return first_input(call)


def fully_connected(call: RaggedCall) -> At:
    """A product value by value; of all values of a row at once, padding would count."""
    if call.attrs.flag('flatten', True):
        raise Unproved
    at = value_by_value(call)
    return at if call.attrs.flag('no_bias') else At.FINITE


def dot(call: RaggedCall) -> At:
    """Rows by a matrix."""
    if call.attrs.flag('transpose_a'):
        raise Unproved
    return value_by_value(call)


def matrices(call: RaggedCall) -> Optional[At]:
    """Matrix by matrix: a sum over the ragged axis, or a product for each value."""
    at = product(call)
    if call.result.axis is not None:
        return at
    if at is not At.ZERO:
        call.want(0, At.ZERO)
    return None


def lookup(call: RaggedCall) -> At:
    """Rows of a table by their numbers; others than it has are the last or the first."""
    if any(call.states[1:]):
        raise Unproved
    return finite(call)


# --- along axes ----------------------------------------------------------------------------------


def reduced(wanted: At, otherwise: PaddingRule = keeps) -> PaddingRule:
    """A reduction, to which this adds nothing; `otherwise` along other axes."""

    def rule(call: RaggedCall) -> Optional[At]:
        shape, ragged = call.input()
        if ragged not in call.attrs.axes(len(shape)):
            return otherwise(call)
        call.want(0, wanted)
        return None

    return rule


def mean(call: RaggedCall) -> Optional[At]:
    """A sum, by the number of values."""
    at = reduced(At.ZERO)(call)
    call.counted = at is None
    return at


def position_of(wanted: At) -> PaddingRule:
    """Of the largest or the smallest."""

    def rule(call: RaggedCall) -> Optional[At]:
        if not call.along('axis', None):
            return finite(call)
        call.want(0, wanted)
        return None

    return rule


def pick(call: RaggedCall) -> Optional[At]:
    """The value at a position, or the last one."""
    if not call.along('axis', -1):
        return finite(call)
    if call.states[1] or call.attrs.get('mode', 'clip') != 'clip':
        raise Unproved
    call.limited = True
    return None


def normalised(wanted: At, result: At) -> PaddingRule:
    """What is divided among the values along an axis."""

    def rule(call: RaggedCall) -> At:
        for position in range(1, len(call.states)):
            call.want(position, At.ZERO)  # lengths
        if not call.along('axis', -1):
            return finite(call)
        call.want(0, wanted)
        call.across = True
        return result

    return rule


def running(call: RaggedCall) -> At:
    """Of the values so far, which padding follows."""
    call.across = call.along('axis', None)
    return finite(call)


def layer_norm(call: RaggedCall) -> At:
    """Value by value."""
    if call.along('axis', -1):
        raise Unproved
    first_input(call)
    return At.FINITE


def l2_normalization(call: RaggedCall) -> At:
    """By the root of a sum of squares."""
    call.want(0, At.ZERO)
    call.across = True
    return At.ZERO


# --- shapes --------------------------------------------------------------------------------------


def alike(call: RaggedCall) -> Optional[At]:
    """What all inputs are."""
    found = set(call.states)
    if None in found:
        raise Unproved
    return found.pop() if len(found) == 1 else At.ANY if At.ANY in found else At.FINITE


def view(call: RaggedCall) -> Optional[At]:
    """Another shape, in which what is in front of the ragged axis is as much as before."""
    (old, before), (new, after) = call.input(), call.result
    if after is None or prod(old[:before]) != prod(new[:after]) or prod(old) != prod(new):
        raise Unproved
    return alike(call)


def same_shape(call: RaggedCall) -> Optional[At]:
    """An array in the shape of another, which it has already: Gluon's losses do so with labels."""
    if not call.input() == call.input(1) == call.result:
        raise Unproved
    return call.states[0]


def other_axis(name: str, default: Optional[int]) -> PaddingRule:
    """Cuts or joins along another axis."""

    def rule(call: RaggedCall) -> Optional[At]:
        if not call.along(name, default):
            return alike(call)
        if name == 'axis' and call.attrs.get('begin') == '0' and call.attrs.get('end') == '1':
            return None  # a slice of the first, which is no padding
        raise Unproved

    return rule


def broadcast(call: RaggedCall) -> At:
    """An array in the shape of another."""
    return call.states[0] or At.FINITE


def positions(call: RaggedCall) -> Optional[At]:
    """Numbers along an axis."""
    if call.attrs.integer('repeat', 1) != 1:
        raise Unproved
    call.across = True
    return At.FINITE if call.along('axis', None) else None


def sequence_mask(call: RaggedCall) -> Optional[At]:
    """By lengths of the user's."""
    if any(call.states[1:]) or call.states[0] is None:
        raise Unproved
    if not call.attrs.flag('use_sequence_length'):
        return call.states[0]
    call.across = True
    value = call.attrs.number('value', 0)
    if call.states[0] is At.ANY or not isfinite(value):
        return At.ANY
    return call.states[0] if value == 0 else At.FINITE


# --- what works across the values, taken apart ---------------------------------------------------

# Of `Rewriter.add`, a `NodeView` and the ragged axis: reductions of all values, and operators that
# give each value its own result of these. None where that is not known.
ApartRule = Callable[[Callable[..., Any], Any, int], Any]


def softmax_apart(logarithm: bool = False, sign: int = 1) -> ApartRule:
    """The largest is a constant: it is in the results to keep numbers small, and changes none."""

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
