"""What MXNet makes of arrays and of NumPy's and Python's numbers, to compare versions of NumPy.

    python -m tests.support.promotion > tests/fixtures/promotion_numpy_1_26.json

NumPy 2 has other rules than NumPy 1 for what a number and an array become together (NEP 50).
"""

import json
import operator
import sys
import warnings
import zlib

import gluon_edbatch as edb  # before MXNet, for later versions of NumPy

# isort: split
import mxnet as mx
import numpy as np

NUMBERS = {
    'True': True,
    '2': 2,
    '300': 300,
    '2.5': 2.5,
    **{
        name: getattr(np, name)(2.5 if 'float' in name else 1)
        for name in 'bool_ int8 uint8 int32 int64 float16 float32 float64'.split()
    },
    'array': np.array([1.5, 2.5]),
    'array of int32': np.array([1, 2], np.int32),
}
TWO = 'add sub mul truediv mod pow eq lt'.split()
FUNCTIONS = 'add subtract multiply power maximum minimum equal'.split()
DTYPES = 'float32 float64 int32 uint8'.split()


def results():
    """A short text for each operator, number and dtype."""
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        for space in ('nd', 'np'):
            for name, function in _functions(space):
                for number, value in NUMBERS.items():
                    for side in ('left', 'right'):
                        found[f'{space}.{name} {number} {side}'] = ' '.join(
                            [_result(space, function, value, side, dtype) for dtype in DTYPES]
                        )
    return found


def _functions(space):
    module = getattr(mx, space)
    yield from [(f'{name} ', getattr(operator, name)) for name in TWO]
    yield from [(name, getattr(module, name)) for name in FUNCTIONS if hasattr(module, name)]
    yield 'batched add', _batched(operator.add)
    yield 'batched mul', _batched(operator.mul)


def _batched(function):
    def run(*args):
        with edb.batching():
            values = [
                function(*[arg * 1 if isinstance(arg, mx.nd.NDArray) else arg for arg in args])
                for _ in range(2)
            ]
        return values[0]

    return run


def _result(space, function, value, side, dtype):
    array = getattr(mx, space).array([3, 5], dtype=dtype)
    try:
        result = function(value, array) if side == 'left' else function(array, value)
        result = result.asnumpy() if isinstance(result, mx.nd.NDArray) else np.asarray(result)
    except Exception as error:
        return type(error).__name__
    if result.dtype == object:  # an array of arrays
        return f'object{result.shape}'.replace(' ', '')
    return f'{result.dtype.str}{zlib.crc32(result.tobytes()) & 0xFFFF:x}'


if __name__ == '__main__':
    json.dump(results(), sys.stdout, indent=0)
    print()
