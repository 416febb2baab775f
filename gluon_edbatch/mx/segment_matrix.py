"""Sparse 0/1 matrices that sum the rows of each segment, made without waiting for the engine.

``csr_matrix`` copies its parts by the engine and waits for that, so it would wait for all that is
queued before: for most of the previous minibatch. An array read from bytes is there at once, but
on ``cpu(0)`` only.
"""

import ctypes
import struct
from typing import Any

import mxnet as mx
import numpy as np
from mxnet.base import _LIB, NDArrayHandle, check_call
from mxnet.ndarray.sparse import CSRNDArray, csr_matrix

from .modes import numpy_shapes

_MAGIC, _CSR, _CPU, _INT64 = 0xF993FAC9, 2, 1, 6  # NDARRAY_V2_MAGIC, kCSRStorage, kCPU, kInt64
_HERE = mx.cpu(0)
_TYPE_FLAGS = {'float32': 0, 'float64': 1, 'float16': 2}


def segment_matrix(parents: np.ndarray, rows: int, dtype: Any, ctx: mx.Context) -> CSRNDArray:
    """A matrix whose transposed product with values sums those of each parent.

    Parameters
    ----------
    parents : numpy.ndarray
        (M,) integers in ``range(rows)``, the segment of each value.
    rows : int
        N, how many segments there are.
    dtype : type
        Floating-point type of the values.
    ctx : mxnet.Context
        A CPU.

    Returns
    -------
    CSRNDArray
        (M, N), with a one at ``parents[i]`` in row i.
    """
    count, dtype = len(parents), np.dtype(dtype)
    if ctx != _HERE:
        return csr_matrix(
            (np.ones(count, dtype), parents, np.arange(count + 1)),
            shape=(count, rows),
            ctx=ctx,
            dtype=dtype,
        )
    header = struct.pack(  # as NDArray::Load reads it
        '<Iiiqiqqiiiiiqiiq',
        _MAGIC,
        _CSR,
        1,
        count,  # stored values
        2,
        count,
        rows,
        _CPU,
        0,
        _TYPE_FLAGS[dtype.name],
        _INT64,
        1,
        count + 1,
        _INT64,
        1,
        count,
    )  # shapes of indptr and indices
    data = b''.join(
        [
            header,
            np.ones(count, dtype).tobytes(),
            np.arange(count + 1, dtype=np.int64).tobytes(),
            parents.astype(np.int64).tobytes(),
        ]
    )
    handle = NDArrayHandle()
    with numpy_shapes(False):  # of which this format knows nothing
        check_call(
            _LIB.MXNDArrayLoadFromRawBytes(data, ctypes.c_size_t(len(data)), ctypes.byref(handle))
        )
    return CSRNDArray(handle)
