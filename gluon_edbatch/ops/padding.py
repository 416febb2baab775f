"""Rules for padding: what an operator makes of ragged values (N, K, ...) that are padded along axis
1.

An entry of the graph that still has that axis is, at the padding, *zero*, or *masked* (so negative
that a softmax gives it nothing), or just *finite*. Zeros in a sum are exact; a product of a zero
and something finite is zero. That holds for gradients, too, where slopes are finite.
"""

from enum import Enum
from typing import Callable, List, Optional

from .attrs import Attrs

MASK = -1e8  # and below: nothing is left of it after a softmax in any floating-point type


class At(Enum):
    """What an entry is at the padding."""

    ZERO = 'zero'
    MASKED = 'masked'
    FINITE = 'finite'


class Unproved(Exception):
    """Padding may change the result."""


States = List[Optional[At]]  # of the inputs; None for those without a ragged axis
PaddingRule = Callable[[Attrs, States], Optional[At]]


def keeps(attrs: Attrs, states: States) -> At:
    """Zero of zeros, with finite slopes."""
    return At.ZERO if set(states) == {At.ZERO} else finite(attrs, states)


def finite(attrs: Attrs, states: States) -> At:
    """A number of any number; of what is masked it may be infinite."""
    if At.MASKED in states:
        raise Unproved
    return At.FINITE


def only_at_zero(result: At) -> PaddingRule:
    """For functions that are not finite everywhere, as ``log1p`` is not."""

    def rule(attrs: Attrs, states: States) -> At:
        if set(states) != {At.ZERO}:
            raise Unproved
        return result

    return rule


def scaled(attrs: Attrs, states: States) -> At:
    """A product with a number."""
    if attrs.number('scalar', 1) == 0:
        raise Unproved  # what divides
    return keeps(attrs, states)


def power(attrs: Attrs, states: States) -> Optional[At]:
    """Of an exponent below one, slopes at zero are infinite."""
    if attrs.number('scalar', 1) < 1:
        raise Unproved
    return only_at_zero(At.ZERO)(attrs, states)


def first_input(attrs: Attrs, states: States) -> At:
    """As `keeps`, of an array and weights."""
    if any(states[1:]):
        raise Unproved
    return keeps(attrs, states[:1])


def product(attrs: Attrs, states: States) -> At:
    """Zero wherever one of them is."""
    at = finite(attrs, states)
    return At.ZERO if At.ZERO in states else at


def activation(attrs: Attrs, states: States) -> At:
    """By the kind of function."""
    rule = keeps if attrs.get('act_type') in ('tanh', 'relu', 'softsign') else finite
    return rule(attrs, states)


def fully_connected(attrs: Attrs, states: States) -> At:
    """A product value by value; of all values of a row at once, padding would count."""
    if attrs.flag('flatten', True) or any(states[1:]):
        raise Unproved
    return (keeps if attrs.flag('no_bias') else finite)(attrs, states[:1])


def behind_axis_1(name: str) -> PaddingRule:
    """Shapes the axes of each value."""

    def rule(attrs: Attrs, states: States) -> At:
        if attrs.integer(name, 1) not in (2, 3) or not all(states):
            raise Unproved
        return keeps(attrs, states)

    return rule


def total(attrs: Attrs, states: States) -> Optional[At]:
    """A sum along one axis; along axis 1 it needs zeros, and leaves no ragged axis."""
    axes = attrs.integers('axis')
    if attrs.flag('exclude') or axes not in ((1,), (2,), (3,)):
        raise Unproved
    if axes != (1,):
        return keeps(attrs, states)
    if states[0] is not At.ZERO:
        raise Unproved
    return None


def softmax(attrs: Attrs, states: States) -> At:
    """Along axis 1 of masked values. Not zero: with no values at all, the padding shares the
    whole."""
    if states != [At.MASKED] or attrs.integer('axis', -1) != 1:
        raise Unproved
    return At.FINITE


def sequence_mask(attrs: Attrs, states: States) -> At:
    """Its lengths must be those of the ragged input, which is for `subgraph.padding` to see."""
    value = attrs.number('value', 0)
    if (
        attrs.integer('axis', 0) != 1
        or not attrs.flag('use_sequence_length')
        or not states[0]
        or len(states) != 2
        or states[1]
        or not (value == 0 or value <= MASK)
    ):
        raise Unproved
    return At.ZERO if value == 0 else At.MASKED
