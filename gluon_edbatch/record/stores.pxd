# The types of stores.py for Cython; without it the module is ordinary Python.
cimport cython

@cython.final
cdef class Store:
    cdef public object recording, spec, shown, kind, ragged, token, locations
    cdef public tuple shape, axes
    cdef public Py_ssize_t packed
    cdef public dict arenas, given
    cdef object __weakref__
