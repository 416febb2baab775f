"""Make sparse 0/1 matrices that sum the rows of each segment, without waiting for the engine.

``csr_matrix`` waits for all that is queued. An array read from bytes is available immediately, but
on ``cpu(0)`` only.
"""

import ctypes
import struct
from itertools import chain
from typing import Any

import mxnet as mx
import numpy as np
from mxnet.base import _LIB, NDArrayHandle, check_call
from mxnet.ndarray.sparse import CSRNDArray, csr_matrix

from .arrays import dtype_number
from .modes import numpy_shapes

_MAGIC, _CSR, _CPU, _INT64 = 0xF993FAC9, 2, 1, 6  # NDARRAY_V2_MAGIC, kCSRStorage, kCPU, kInt64
_HERE = mx.cpu(0)


def segment_matrix(parents: np.ndarray, rows: int, dtype: Any, ctx: mx.Context) -> CSRNDArray:
    """Return a matrix (M, N) on a CPU whose transposed product with values sums those of each
    parent. `parents` are (M,) integers below N = `rows`, and row i has a one at ``parents[i]``."""
    count, dtype = len(parents), np.dtype(dtype)
    if ctx != _HERE:
        return csr_matrix(
            (np.ones(count, dtype), parents, np.arange(count + 1)),
            shape=(count, rows),
            ctx=ctx,
            dtype=dtype,
        )
    shape, device, number = (2, count, rows), (_CPU, 0), dtype_number(dtype)
    pointers, indices = (_INT64, 1, count + 1), (_INT64, 1, count)
    parts = (_MAGIC, _CSR, 1, count), shape, device, (number,), pointers, indices
    header = struct.pack('<Iiiqiqqiiiiiqiiq', *chain(*parts))  # as NDArray::Load reads it
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
