# cython: language_level=3
"""Sigmoid and tanh of matrices in single precision, in one pass; all else goes to NumPy."""

import numpy as np

from gluon_edbatch_core.bundle.numpy_operators import sigmoid as sigmoid_in_numpy

cdef extern from 'activations.h' nogil:
    void edb_sigmoid(const float *x, Py_ssize_t x_step, float *y, Py_ssize_t y_step,
                     Py_ssize_t rows, Py_ssize_t columns)
    void edb_tanh(const float *x, Py_ssize_t x_step, float *y, Py_ssize_t y_step,
                  Py_ssize_t rows, Py_ssize_t columns)

cdef object _single = np.dtype(np.float32), _empty = np.empty


cdef bint _run(bint is_tanh, object x, object out) except -1:
    """Whether it was done: columns must be neighbours."""
    cdef const float[:, :] given = x
    cdef float[:, :] to = out
    cdef Py_ssize_t rows = given.shape[0], columns = given.shape[1], size = sizeof(float)
    if rows != to.shape[0] or columns != to.shape[1]:
        return False
    if columns > 1 and (given.strides[1] != size or to.strides[1] != size):
        return False
    if given.strides[0] % size or to.strides[0] % size:
        return False
    if rows and columns:
        with nogil:
            (edb_tanh if is_tanh else edb_sigmoid)(
                &given[0, 0], given.strides[0] // size, &to[0, 0], to.strides[0] // size,
                rows, columns
            )
    return True


cdef _activated(bint is_tanh, object in_numpy, object x, object out):
    if x.dtype is not _single or x.ndim != 2 or (out is not None and out.dtype is not _single):
        return in_numpy(x, out)
    result = _empty(x.shape, _single) if out is None else out
    return result if _run(is_tanh, x, result) else in_numpy(x, out)


def sigmoid(x, out=None):
    """As `bundle.numpy_operators.sigmoid`."""
    return _activated(False, sigmoid_in_numpy, x, out)


def tanh(x, out=None):
    """As ``numpy.tanh``."""
    return _activated(True, np.tanh, x, out)
