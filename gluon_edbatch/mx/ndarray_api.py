"""The NDArray C API: make, view, write and pass arrays without MXNet's Python layer.

Cython compiles this module by ``ndarray_api.pxd`` where there is a compiler.
"""

from mxnet.base import MXNetError

from . import ndarray_memory
from .ndarray_memory import IN_C

ndarray_memory.prepare(IN_C)


def empty(shape, device, number, late, dtype):
    """Return an uninitialised array; device and dtype are MXNet's numbers."""
    return ndarray_memory.empty(shape, device, number, late, dtype)


def rows_of(array, begin, end):
    """Return the view ``array[begin:end]``, on a tape if autograd records."""
    return ndarray_memory.rows_of(array, begin, end)


def write(array, begin, rows, dtype):
    """Copy rows, whose dtype is MXNet's number, to an array's rows from `begin` on. Return False,
    and do nothing, if they do not fit or the array is not in host memory."""
    return ndarray_memory.write(array, begin, rows, dtype)


def wait(handles):
    """Wait until the engine has written these arrays."""
    ndarray_memory.wait(handles)


def run(address, words, handles):
    """Call a function of ``execute/native/src/calls_from_python.h`` at an address, with int64 words
    and handles of arrays (or None). Raise `MXNetError` with its message if it fails."""
    result = ndarray_memory.run(address, words, handles)
    if type(result) is str:
        raise MXNetError(f"gluon_edbatch's native operators: {result}")
    return result
