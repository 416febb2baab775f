"""Axis rules of layers along sequences: convolution, pooling, and recurrent layers."""

from collections.abc import Sequence
from typing import Any, Callable, Optional

from .attrs import Attrs
from .axis_rules import At, AxisCall, Unproved, finite, first_input
from .recurrence import GATES


def convolution(call: AxisCall) -> At:
    """Return FINITE for a window that moves by one position, which sees zeros behind the end."""
    if call.input().axis == 0:
        return first_input(call)
    names = 'stride', 'kernel', 'pad', 'dilate'
    stride, kernel, pad, dilate = _window(call, names, (1, 1, 0, 1))
    if stride != 1 or any(call.states[1:]):
        raise Unproved
    call.across, call.longer = True, 2 * pad - dilate * (kernel - 1)
    first_input(call)
    if pad:
        call.want(0, At.ZERO)
    return At.FINITE


def pooling(call: AxisCall) -> Optional[At]:
    """Require padding that the largest value or the sum of all positions ignores."""
    if call.input().axis == 0:
        return finite(call)
    kind = call.attrs.get('pool_type', 'max')
    if kind not in ('max', 'sum') or (call.input().axis or 0) < 2:
        raise Unproved
    call.across = True
    if call.attrs.flag('global_pool'):
        call.want(0, At.LOWEST if kind == 'max' else At.ZERO)
        call.unlike_none = At.FINITE if kind == 'max' else None
        return None
    stride, kernel, pad = _window(call, ('stride', 'kernel', 'pad'), (1, 1, 0))
    if stride != 1 or call.attrs.get('pooling_convention', 'valid') != 'valid':
        raise Unproved
    call.longer = 2 * pad - kernel + 1
    finite(call)
    if pad:
        call.want(0, At.LOWEST if kind == 'max' else At.ZERO)
    return At.FINITE if kind == 'sum' or not pad else At.ANY


def _window(call: AxisCall, names: Sequence[str], otherwise: Sequence[int]) -> list[int]:
    """Return a window's numbers along the ragged axis, which is one that the window moves along."""
    place = (call.input().axis or 0) - 2
    if place < 0 or call.attrs.get('layout', 'None') not in ('None', 'NCW', 'NCHW', 'NCDHW'):
        raise Unproved
    given = [call.attrs.integers(name) for name in names]
    return [own[place] if own else other for own, other in zip(given, otherwise)]


def recurrent(call: AxisCall) -> At:
    """Return FINITE for the outputs of a recurrent layer, which come before the padding. A layer in
    both directions begins at the last value of each row."""
    if call.states[1] or call.attrs.flag('use_sequence_length'):
        raise Unproved
    if call.input().axis == 1:
        return finite(call)
    if call.input().axis != 0 or any(call.states[1:]):
        raise Unproved
    call.across = True
    if call.stops:
        return finite(call)
    if call.gives_states:
        raise Unproved
    if call.attrs.flag('bidirectional'):
        if call.attrs.get('projection_size', 'None') != 'None' or call.attrs.number('p', 0):
            raise Unproved  # which devices drop values between layers is MXNet's to know
        call.instead = _both_directions(call.attrs, call.input().shape[2])
    return finite(call)


def _both_directions(attrs: Attrs, width: int) -> Callable[..., Any]:
    """Return a function that applies a layer in both directions as layers of one direction each.

    The weights of all layers are one array: those of each layer and direction, to the input and to
    the state, and then the biases in the same order.
    """
    size, layers = attrs.integer('state_size', 0), attrs.integer('num_layers', 0)
    rows = GATES[attrs['mode']] * size
    counts = [rows * (each + size) for each in [width] * 2 + [2 * size] * (2 * layers - 2)]
    of_one = {**attrs, 'num_layers': 1, 'bidirectional': False}

    def own(add: Callable[..., Any], weights: Any, place: int) -> Any:
        begin, bias = sum(counts[:place]), sum(counts) + 2 * rows * place
        parts = (begin, begin + counts[place]), (bias, bias + 2 * rows)
        cut = [add('slice_axis', [weights], axis=0, begin=a, end=b) for a, b in parts]
        return add('Concat', cut, dim=0, num_args=2)

    def instead(rewriter: Any, inputs: Sequence[Any], lengths: Any) -> Any:
        (x, weights, *states), add = inputs, rewriter.add
        for layer in range(layers):
            both = []
            for turned in (False, True):
                place = 2 * layer + turned
                given = [own(add, weights, place)]
                given += [_state(rewriter, state, place) for state in states]
                result = add('RNN', [_turned(add, x, lengths, turned), *given], **of_one)
                both.append(_turned(add, result, lengths, turned))
            x = add('Concat', both, dim=2, num_args=2)
        return x

    return instead


def _state(rewriter: Any, states: Any, place: int) -> Any:
    """Return one of several states, (1, rows, size). Zeros may not know their rows yet."""
    node = rewriter.nodes[states.node]
    if 'shape' in node.attrs and not node.inputs:
        shape = (1, *node.attrs.integers('shape')[1:])
        return rewriter.add(node.op, [], **{**node.attrs, 'shape': shape})
    return rewriter.add('slice_axis', [states], axis=0, begin=place, end=place + 1)


def _turned(add: Callable[..., Any], x: Any, lengths: Any, turned: bool) -> Any:
    """Return a sequence as it is, or from its last value to the first."""
    return add('SequenceReverse', [x, lengths], use_sequence_length=True) if turned else x
