"""Constant hooks: arrays of known contents that are made in a scope (``mx.nd.zeros``, ``array``,
``begin_state``) become constants of the recording, without an NDArray until one is needed.

Arrays that MXNet makes for itself, such as parameters and batches of data, stay NDArrays.
"""

import sys
from typing import Any, Callable, Optional

import mxnet as mx
import numpy as np
from mxnet import gluon
from mxnet.ndarray import NDArray
from mxnet.util import is_np_array

from ..mx.blocks import RECURRENT_LAYERS
from ..mx.modes import modes
from .scopes import current_recording, enter

_DEVICES = frozenset(('cpu', 'gpu'))
_PLAIN = (int, float, str, type, type(None), np.dtype, mx.Context)
_LARGE = 1 << 16  # elements
_BEGUN_WITH = frozenset(('ctx', 'dtype'))
_zeros, _array = mx.nd.zeros, mx.nd.array
_RNNLayer = gluon.rnn.LSTM.__mro__[1]  # which has no public name
_call_layer = _RNNLayer.__call__


def _recording() -> Optional[Any]:
    """Return the recording in which the caller's caller makes an array; None if MXNet makes it."""
    recording = current_recording()
    if (
        recording is None
        or recording.mode.numpy
        or _is_mxnet(sys._getframe(2).f_globals.get('__name__', ''))
    ):
        return None
    return recording


def _is_mxnet(module: str) -> bool:
    """Return whether a module of MXNet makes arrays for its own use; recurrent cells do not."""
    return module.startswith('mxnet.') and not module.startswith('mxnet.gluon.rnn')


def _hooked_zeros(shape, ctx=None, dtype=None, stype=None, **kwargs):
    recording = _recording()
    if (
        recording is None
        or stype
        or isinstance(ctx, str)
        or shape.__class__ not in (int, tuple)
        or 'out' in kwargs
    ):
        return _zeros(shape, ctx, dtype, stype, **kwargs)
    ctx = ctx or mx.current_context()
    key = _zeros, shape, dtype, ctx.device_typeid, ctx.device_id
    value = recording.constant(key)
    return _run_once(recording, key, (shape, ctx, dtype), {}) if value is None else value


def _hooked_begin(begin_state: Callable[..., Any]) -> Callable[..., Any]:
    """Return a faster ``begin_state`` for recurrent cells and layers, which makes no names."""

    def hooked(self, batch_size=0, func=_zeros, **kwargs):
        recording = current_recording()
        if (
            recording is None
            or func not in (_zeros, _hooked_zeros)
            or not set(kwargs) <= _BEGUN_WITH
        ):
            return begin_state(self, batch_size, func, **kwargs)
        states = _known_states(recording, self, batch_size, **kwargs)
        return begin_state(self, batch_size, _hooked_zeros, **kwargs) if states is None else states

    return hooked


def _hooked_layer(self, inputs, states=None, *args, **kwargs):
    recording = current_recording()
    if (
        recording is None
        or recording.mode.numpy  # where a graph cannot leave the rows of zeros open
        or states is not None
        or args
        or kwargs
        or type(self) not in RECURRENT_LAYERS
        or self._forward_hooks
        or self._forward_pre_hooks  # which see the states, too
    ):
        return _call_layer(self, inputs, states, *args, **kwargs)
    if self.skip_states is not True:
        self.skip_states = True
    return recording.call_block(self, (inputs,))  # the layer's graph makes the states


def _known_states(recording, cell, batch_size, ctx=None, dtype=None) -> Optional[list[NDArray]]:
    """Return a cell's initial states if constants are known for all of them; None otherwise."""
    if getattr(cell, '_modified', False) or isinstance(ctx, str) or is_np_array():
        return None
    ctx = ctx or mx.current_context()
    place = dtype, ctx.device_typeid, ctx.device_id
    states = []
    for info in cell.state_info(batch_size):
        value = info and recording.constant((_zeros, info['shape'], *place))
        if value is None:
            return None
        states.append(value)
    return states


def _hooked(function: Callable[..., NDArray]) -> Callable[..., NDArray]:
    """Return a function that records constants, for one whose result depends on arguments only."""

    def hooked(*args, **kwargs):
        recording = _recording()
        parts = _described((*args, *kwargs.values()))
        if recording is None or parts is None:
            return function(*args, **kwargs)
        ctx = mx.current_context()
        key = (function, ctx.device_typeid, ctx.device_id, len(args), *kwargs, *parts)
        value = recording.constant(key)
        return _run_once(recording, key, args, kwargs) if value is None else value

    return hooked


def _described(args: tuple[Any, ...]) -> Optional[list[Any]]:
    """Return a key for these arguments; None if there is none."""
    parts: list[Any] = []
    for arg in args:
        if isinstance(arg, (list, tuple)) and all([type(item) is int for item in arg]):
            parts.append(tuple(arg))
        elif isinstance(arg, _PLAIN):
            parts.append(str(arg) if isinstance(arg, mx.Context) else arg)
        else:
            return None
    return parts


def _run_once(recording, key: tuple, args: tuple, kwargs: dict[str, Any]) -> NDArray:
    """Call MXNet's function, and return its result as a constant if a recording can take it."""
    enter(None)
    try:
        with modes(recording=False):
            array = key[0](*args, **kwargs)
        values = array.asnumpy() if array.size < _LARGE else np.empty(0)
        if not _is_constant(values, array.ctx):
            return array
    finally:
        enter(recording)
    return recording.new_constant(key, values, array.ctx)


def _is_constant(values: np.ndarray, ctx: mx.Context) -> bool:
    return values.ndim > 0 and 0 < values.size < _LARGE and ctx.device_type in _DEVICES


def _hooked_array(source_array, ctx=None, dtype=None):
    recording = None if isinstance(source_array, NDArray) else _recording()
    if recording is None:
        return _array(source_array, ctx, dtype)
    ctx = ctx or mx.current_context()
    try:
        values = np.array(source_array, np.float32 if dtype is None else dtype)
    except (TypeError, ValueError):
        values = np.empty(0)
    if not _is_constant(values, ctx) or not recording.has_dtype(values):
        return _array(source_array, ctx, dtype)
    key = values.shape, values.dtype, values.tobytes(), ctx.device_typeid, ctx.device_id
    value = recording.constant(key)
    return recording.new_constant(key, values, ctx) if value is None else value


HOOKS = (
    (_RNNLayer, '__call__', _hooked_layer, _call_layer),
    (mx.nd, 'zeros', _hooked_zeros, _zeros),
    (mx.nd, 'array', _hooked_array, _array),
    *(
        (mx.nd, name, _hooked(getattr(mx.nd, name)), getattr(mx.nd, name))
        for name in ('ones', 'full', 'arange')
    ),
    *(
        (layer, 'begin_state', _hooked_begin(layer.begin_state), layer.begin_state)
        for layer in (gluon.rnn.RecurrentCell, _RNNLayer)
    ),
)
