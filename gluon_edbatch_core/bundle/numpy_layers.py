"""MXNet's operators of layers in NumPy: convolution, pooling, norms, softmax, recurrent layers.

Each function here takes an operator's attributes, in the manifest's form, and returns a function of
arrays (see `numpy_operators`).
"""

import math
from collections.abc import Sequence
from typing import Any, Optional

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from .numpy_shapes import Attrs, Function, listed


def softmax(log: bool) -> Any:
    """Return the operator softmax, or log_softmax."""

    def make(attrs: Attrs) -> Function:
        if attrs.get('use_length') or attrs.get('dtype') is not None:
            raise NotImplementedError('softmax with lengths or of another dtype')
        axis, temperature = attrs.get('axis', -1), attrs.get('temperature')

        def compute(x: np.ndarray) -> np.ndarray:
            x = x if temperature is None else x / x.dtype.type(temperature)
            if not x.size:
                return x
            shifted = x - x.max(axis=axis, keepdims=True)
            exps = np.exp(shifted)
            total = exps.sum(axis=axis, keepdims=True)
            return shifted - np.log(total) if log else np.divide(exps, total, out=exps)

        return compute

    return make


def softmin(attrs: Attrs) -> Function:
    """Return the softmax of negative numbers."""
    function = softmax(False)(attrs)
    return lambda x: function(-x)


def LayerNorm(attrs: Attrs) -> Function:
    """Normalise along an axis."""
    axis, eps = attrs.get('axis', -1), float(attrs.get('eps', 1e-5))

    def normalise(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
        shape = [1] * x.ndim
        shape[axis] = -1
        x = x - x.mean(axis=axis, keepdims=True)
        deviation = np.sqrt(np.square(x).mean(axis=axis, keepdims=True) + x.dtype.type(eps))
        return x / deviation * gamma.reshape(shape) + beta.reshape(shape)

    return normalise


def L2Normalization(attrs: Attrs) -> Function:
    """Divide by the norm: of each row, of each channel, or of each place."""
    eps, mode = float(attrs.get('eps', 1e-10)), attrs.get('mode', 'instance')

    def normalise(x: np.ndarray) -> np.ndarray:
        axes: Any = {'instance': tuple(range(1, x.ndim)), 'channel': (1,),
                     'spatial': tuple(range(2, x.ndim))}[mode]  # fmt: skip
        total = np.square(x).sum(axes, keepdims=True)
        return x / np.sqrt(total + x.dtype.type(eps))

    return normalise


def BatchNorm(attrs: Attrs) -> Function:
    """Normalise by statistics that are known, as outside of training."""
    axis, eps = attrs.get('axis', 1), float(attrs.get('eps', 1e-3))
    fixed = attrs.get('fix_gamma', True)
    if attrs.get('output_mean_var'):
        raise NotImplementedError('BatchNorm that returns its statistics')

    def normalise(x: np.ndarray, gamma: Any, beta: Any, mean: Any, variance: Any) -> np.ndarray:
        shape = [1] * x.ndim
        shape[axis] = -1
        scale = 1 / np.sqrt(variance + x.dtype.type(eps))
        scale = scale if fixed else scale * gamma
        return x * scale.reshape(shape) + (beta - mean * scale).reshape(shape)

    return normalise


def FullyConnected(attrs: Attrs) -> Function:
    """Multiply with a matrix."""

    def multiply(x: np.ndarray, weight: np.ndarray, bias: Optional[np.ndarray] = None) -> Any:
        flat = x.ndim == 1 or (attrs.get('flatten', True) and x.ndim > 2)
        found = (x.reshape(len(x), -1) if flat else x) @ weight.T
        return found if bias is None else found + bias

    return multiply


def _windows(x: np.ndarray, kernel: Sequence[int], attrs: Attrs) -> np.ndarray:
    """Return what a kernel sees at each place: (N, C, places..., kernel...), a view."""
    count = len(kernel)
    dilate, stride = [listed(attrs.get(name)) or [1] * count for name in ('dilate', 'stride')]
    span = [(size - 1) * step + 1 for size, step in zip(kernel, dilate)]
    seen = sliding_window_view(x, span, tuple(range(2, 2 + count)))  # type: ignore[call-overload]
    steps = [slice(None, None, step) for step in (*stride, *dilate)]
    return seen[(slice(None), slice(None), *steps)]


def _channels_first(attrs: Attrs, name: str) -> None:
    layout = attrs.get('layout')
    if layout not in (None, 'NCW', 'NCHW', 'NCDHW'):
        raise NotImplementedError(f'{name} of the layout {layout}')


def Convolution(attrs: Attrs) -> Function:
    """Convolve in one product: (N, C, places...)."""
    _channels_first(attrs, 'Convolution')
    kernel, groups = listed(attrs['kernel']), attrs.get('num_group', 1)
    count = len(kernel)
    pad = [(0, 0), (0, 0), *[(each, each) for each in listed(attrs.get('pad')) or [0] * count]]
    order = (0, 1, *range(2 + count, 2 + 2 * count), *range(2, 2 + count))

    def convolve(x: np.ndarray, weight: np.ndarray, bias: Optional[np.ndarray] = None) -> Any:
        if not x.size:
            return np.zeros((len(x), len(weight), *x.shape[2:]), x.dtype)
        x = np.pad(x, pad) if any(map(any, pad)) else x
        seen = _windows(x, kernel, attrs)
        places, inner = seen.shape[2 : 2 + count], math.prod(weight.shape[1:])
        columns = seen.transpose(order).reshape(len(x), groups, inner, -1)
        matrix = weight.reshape(groups, -1, inner)
        if inner < 16:  # many small products, as of each channel alone
            found = np.einsum('gfi,ngip->ngfp', matrix, columns)
        else:
            found = np.matmul(matrix, columns)
        found = found.reshape(len(x), -1, *places)
        return found if bias is None else found + bias.reshape(-1, *[1] * count)

    return convolve


def Pooling(attrs: Attrs) -> Function:
    """Return the largest number, the mean or the sum of what a window sees."""
    _channels_first(attrs, 'Pooling')
    kind, is_global = attrs.get('pool_type', 'max'), attrs.get('global_pool')
    if kind not in ('max', 'avg', 'sum') or attrs.get('pooling_convention') == 'same':
        raise NotImplementedError(f'Pooling of the kind {kind}')
    full, include = attrs.get('pooling_convention') == 'full', attrs.get('count_include_pad', True)
    reduce: Any = np.max if kind == 'max' else np.sum

    def pool(x: np.ndarray) -> np.ndarray:
        places = tuple(range(2, x.ndim))
        if is_global:
            return (np.mean if kind == 'avg' else reduce)(x, axis=places, keepdims=True)
        kernel, own = listed(attrs['kernel']), listed(attrs.get('stride')) or [1] * len(places)
        pad = listed(attrs.get('pad')) or [0] * len(places)
        more = [
            -(size + 2 * wide - span) % step if full else 0
            for size, wide, span, step in zip(x.shape[2:], pad, kernel, own)
        ]
        around = [(0, 0), (0, 0), *[(wide, wide + extra) for wide, extra in zip(pad, more)]]
        axes, lowest = tuple(range(-len(places), 0)), np.finfo(x.dtype).min
        wide_x = np.pad(x, around, constant_values=lowest if kind == 'max' else 0)
        found = reduce(_windows(wide_x, kernel, attrs), axis=axes)
        if kind != 'avg':
            return found
        ones = np.ones((1, 1, *x.shape[2:]), x.dtype)
        inner = [(0, 0), (0, 0), *[(wide, wide) for wide in pad]]
        ones = np.pad(ones, inner, constant_values=1 if include else 0)
        ones = np.pad(ones, [(0, 0), (0, 0), *[(0, extra) for extra in more]])
        return found / np.maximum(_windows(ones, kernel, attrs).sum(axis=axes), 1)  # may be 0

    return pool


_GATES = {'lstm': 4, 'gru': 3, 'rnn_tanh': 1, 'rnn_relu': 1}


def recurrent(sigmoid: Function) -> Any:
    """Return the operator RNN, whose gates use `sigmoid`."""

    def make(attrs: Attrs) -> Function:
        mode, size, layers = attrs['mode'], attrs['state_size'], attrs['num_layers']
        directions = 2 if attrs.get('bidirectional') else 1
        unknown = [name for name in ('projection_size', 'lstm_state_clip_min',
                                     'lstm_state_clip_max', 'use_sequence_length')
                   if attrs.get(name)]  # fmt: skip
        if unknown:
            raise NotImplementedError(f'RNN with {unknown[0]}')
        width = _GATES[mode] * size

        def weights_of(flat: np.ndarray, inputs: int) -> list[list[np.ndarray]]:
            """Return for each layer and direction both weights and both biases."""
            found: list[list[np.ndarray]] = []
            shapes = [(width, inputs if layer == 0 else directions * size)
                      for layer in range(layers) for _ in range(directions)]  # fmt: skip
            begin = 0
            for shape in shapes:
                found.append([])
                for rows, columns in (shape, (width, size)):
                    end = begin + rows * columns
                    found[-1].append(flat[begin:end].reshape(rows, columns).T)
                    begin = end
            for both in found:
                both += [flat[begin : begin + width], flat[begin + width : begin + 2 * width]]
                begin += 2 * width
            return found

        def run(x: np.ndarray, flat: np.ndarray, *states: np.ndarray) -> list[np.ndarray]:
            count = layers * directions
            hs, *cs = [  # zeros whose rows the layer does not know are empty
                list(state) if state.shape[1] == x.shape[1]
                else [np.zeros((x.shape[1], size), x.dtype)] * count for state in states
            ]  # fmt: skip
            weights = weights_of(flat, x.shape[2])
            last: list[list[np.ndarray]] = [[], []]
            for layer in range(layers):
                given, outs = x, []
                for way in range(directions):
                    place = layer * directions + way
                    start = [hs[place], cs[0][place] if cs else None]
                    *ends, made = _layer(mode, sigmoid, given, weights[place], start, way == 1)
                    outs.append(made)
                    last[0].append(ends[0])
                    last[1].append(ends[1])
                x = outs[0] if directions == 1 else np.concatenate(outs, axis=2)
            results = [x, np.stack(last[0])]
            return [*results, np.stack(last[1])] if cs else results

        return run

    return make


def _layer(
    mode: str, sigmoid: Function, x: np.ndarray, weights: list[np.ndarray], start: list[Any],
    backwards: bool,
) -> tuple[np.ndarray, Any, np.ndarray]:  # fmt: skip
    """Run one direction of a layer on (T, N, C); return the last states and (T, N, H)."""
    of_input, of_state, bias, state_bias = weights
    h, c = start
    size = len(of_state)
    given = x @ of_input + (bias if mode == 'gru' else bias + state_bias)
    outs = np.empty((*x.shape[:2], size), x.dtype)
    for time in range(len(x))[:: -1 if backwards else 1]:
        gates = h @ of_state
        if mode == 'lstm':
            gates += given[time]
            i, f, _, o = np.split(sigmoid(gates), 4, axis=1)
            c = f * c + i * np.tanh(gates[:, 2 * size : 3 * size])
            h = o * np.tanh(c)
        elif mode == 'gru':
            gates += state_bias
            r, z = np.split(sigmoid(given[time, :, : 2 * size] + gates[:, : 2 * size]), 2, axis=1)
            new = np.tanh(given[time, :, 2 * size :] + r * gates[:, 2 * size :])
            h = (1 - z) * new + z * h
        else:
            gates += given[time]
            h = np.tanh(gates) if mode == 'rnn_tanh' else np.maximum(gates, 0)
        outs[time] = h
    return h, c, outs
