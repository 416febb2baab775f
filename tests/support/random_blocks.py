"""Draw random static subgraphs, and compute their results, to compare passes on."""

from typing import Callable

import mxnet as mx
import numpy as np
from hypothesis import strategies as st
from mxnet import autograd
from mxnet._ctypes.ndarray import CachedOp

from gluon_edbatch.subgraph.ir import Subgraph

F = mx.sym
H, ROWS = 4, 5
SHAPES = {'edb_input0': (ROWS, H), 'edb_input1': (ROWS, H), 'edb_input2': (ROWS, 3, H)}
PARAMETERS = {'w': (H, H), 'v': (H, H), 'u': (H, 3), 'bias': (H,), 'row': (1, H)}

# From one, or two, arrays of (N, H) to another.
_UNARY = {
    'tanh': F.tanh,
    'sigmoid': F.sigmoid,
    'relu': F.relu,
    'softsign': F.softsign,
    'exp': F.exp,
    'activation': lambda x: F.Activation(x, act_type='sigmoid'),
    'square': lambda x: x**2,
    'negative': lambda x: -x,
    'half': lambda x: x / 2,
    'twice': lambda x: x * 2,
    'once': lambda x: x * 1,
    'same': lambda x: x + 0,
    'less': lambda x: x - 1.5,
    'complement': lambda x: 1 - x,
    'more': lambda x: x + 0.25,
    'no zeros': lambda x: x + F.zeros_like(x),
    'ones': lambda x: F.ones_like(x) * x,
    'zeros': lambda x: F.zeros_like(x) - x,
    'shared': F.identity,
    'halves': lambda x: F.concat(*list(F.split(x, num_outputs=2, axis=1))[::-1], dim=1),
    'parts': lambda x: F.concat(*list(F.split_v2(x, (1, 3), axis=-1))[::-1], dim=1),
    'one of two': lambda x: F.tile(F.split(x, num_outputs=2, axis=1)[1], (1, 2)),
    'softmax': F.softmax,
    'clipped': lambda x: F.clip(x, -0.5, 0.5),
    'centred': lambda x: F.broadcast_sub(x, F.mean(x, axis=1, keepdims=True)),
}
_BINARY = {
    'sum': lambda x, y: x + y,
    'difference': lambda x, y: x - y,
    'product': lambda x, y: x * y,
    'broadcast sum': F.broadcast_add,
    'broadcast product': F.broadcast_mul,
    'sum of three': lambda x, y: x + y + x * y,
    'quotient': lambda x, y: x / (F.exp(y) + 1),
}
_WITH_PARAMETERS = {
    'product with w': lambda x, p: F.dot(x, p['w'], transpose_b=True),
    'product with v': lambda x, p: F.dot(x, p['v']),
    'narrow': lambda x, p: F.dot(F.dot(x, p['u']), p['u'], transpose_b=True),
    'layer': lambda x, p: F.broadcast_add(
        F.FullyConnected(x, p['w'], num_hidden=H, no_bias=True), p['row']
    ),
    'old layer': lambda x, p: F.broadcast_add(p['bias'], F.dot(x, p['v'])),
    'dense': lambda x, p: F.FullyConnected(x, p['v'], p['bias'], num_hidden=H),
    'scaled': lambda x, p: F.broadcast_mul(x, F.reshape(p['bias'] * 3 / 2, (1, -1))),
}
_PADDED = {
    'sum along axis 1': lambda z, x, p: F.sum(z, axis=1) + x,
    'weighted': lambda z, x, p: F.sum(F.broadcast_mul(z, F.expand_dims(x, axis=1)), axis=1),
    'gated': lambda z, x, p: F.sum(
        F.sigmoid(F.broadcast_add(z, F.expand_dims(x, axis=1))) * z, axis=1
    ),
    'product of each': lambda z, x, p: F.sum(F.dot(z, p['w']), axis=1) * x,
    'largest': lambda z, x, p: F.max(F.broadcast_add(z, F.expand_dims(x, axis=1)), axis=1),
    'least': lambda z, x, p: F.min(F.broadcast_mul(z, F.expand_dims(x, axis=1)), axis=1),
    'mean': lambda z, x, p: F.mean(F.sigmoid(z), axis=1) * x,
    'attention': lambda z, x, p: F.reshape(
        F.batch_dot(F.softmax(_scores(z, x), axis=1), z, transpose_a=True), (0, -1)
    ),
    'attention by rows': lambda z, x, p: F.reshape(
        F.batch_dot(
            F.softmax(F.batch_dot(F.expand_dims(x, axis=1), z, transpose_b=True)),
            F.dot(z, p['v']),
        ),
        (0, -1),
    ),
    'attention of columns': lambda z, x, p: F.sum(F.softmax(z * 2 + 1, axis=1) * z, axis=1) + x,
    'likelihood': lambda z, x, p: F.broadcast_mul(
        F.mean(F.log_softmax(_scores(z, x), axis=1), axis=1), x
    ),
}


def _scores(z: mx.sym.Symbol, x: mx.sym.Symbol) -> mx.sym.Symbol:
    return F.batch_dot(z, F.expand_dims(x, axis=2))


@st.composite
def blocks(draw, most: int = 10, ragged: bool = False) -> mx.sym.Symbol:
    """Draw a Symbol of a few repeated operators, several of which read the same, with one result or
    two; if `ragged`, the last operators read values along an axis."""
    parameters = {
        name: F.var(name, shape=shape, dtype='float32') for name, shape in PARAMETERS.items()
    }
    inputs = [F.var(name, dtype='float32') for name in SHAPES]
    values, few = inputs[:2], draw(st.lists(_OPERATORS, min_size=1, max_size=4))
    for _ in range(draw(st.integers(1, most))):
        x, y = (values[-draw(st.integers(1, min(3, len(values))))] for _ in range(2))
        kind, name = draw(st.sampled_from(few))
        values.append(_apply(kind, name, x, y, inputs[2], parameters))
    if ragged:
        values.append(draw(_ALONG_AXIS)(inputs[2], values[-1], parameters))
    results = [values[-1]]
    if draw(st.booleans()):
        results.append(values[draw(st.integers(2, len(values) - 1))])
    # (A result that is the same entry twice is one output of a type.)
    return F.Group(results if results[0] is not results[-1] else results[:1])


_OPERATORS = st.sampled_from(
    [
        (kind, name)
        for kind, table in enumerate((_UNARY, _BINARY, _WITH_PARAMETERS, _PADDED))
        for name in table
    ]
)


_ALONG_AXIS = st.sampled_from([*_PADDED.values()])


def _apply(kind, name, x, y, z, parameters):
    if kind == 0:
        return _UNARY[name](x)
    if kind == 1:
        return _BINARY[name](x, y)
    if kind == 2:
        return _WITH_PARAMETERS[name](x, parameters)
    return _PADDED[name](z, x, parameters)


def shapes_of(symbol: mx.sym.Symbol) -> dict[str, tuple[int, ...]]:
    """Return shapes of the inputs that a Symbol has."""
    return {name: SHAPES[name] for name in symbol.list_inputs() if name in SHAPES}


def outputs_and_gradients(
    symbol: mx.sym.Symbol, grad_req: str, seed: int = 0
) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
    """Return results for random inputs, and the gradients of a random linear function of them.

    With ``grad_req='add'`` gradients are added to arrays of ones, as to those of other batches.
    """
    random = np.random.RandomState(seed)
    values = {
        name: random.uniform(-1, 1, size=shape).astype(np.float32)
        for name, shape in sorted({**SHAPES, **PARAMETERS}.items())
    }
    inputs = {name: mx.nd.array(values[name]) for name in symbol.list_inputs()}
    for value in inputs.values():
        value.attach_grad(grad_req)
        value.grad[:] = 1
    with autograd.record():
        outputs = CachedOp(symbol)(*inputs.values())
    outputs = outputs if isinstance(outputs, list) else [outputs]
    autograd.backward(
        outputs, [mx.nd.array(random.uniform(0.5, 1.5, size=output.shape)) for output in outputs]
    )
    begin = 1 if grad_req == 'add' else 0
    return (
        [output.asnumpy() for output in outputs],
        {name: value.grad.asnumpy() - begin for name, value in inputs.items()},
    )


def assert_unchanged(change: Callable, symbol: mx.sym.Symbol) -> Subgraph:
    """Assert that a pass does not change a Symbol's results; return the changed subgraph."""
    graph = change(Subgraph(symbol), shapes_of(symbol))
    changed = graph.symbol
    assert changed.list_outputs() and len(changed.list_outputs()) == len(symbol.list_outputs())
    expected, expected_gradients = outputs_and_gradients(symbol, 'write')
    for grad_req in ('write', 'add'):
        found, gradients = outputs_and_gradients(changed, grad_req)
        for mine, wanted in zip(found, expected):
            np.testing.assert_allclose(mine, wanted, rtol=1e-5, atol=1e-6 * _scale(wanted))
        for name, gradient in gradients.items():
            wanted = expected_gradients[name]
            np.testing.assert_allclose(
                gradient,
                wanted,
                rtol=1e-4,
                atol=1e-5 * _scale(wanted),
                err_msg=f'gradient of {name}, {grad_req}',
            )
        assert set(gradients) == set(expected_gradients)
    return graph


def _scale(values: np.ndarray) -> float:
    return max(1.0, float(np.abs(values[np.isfinite(values)]).max(initial=0)))
