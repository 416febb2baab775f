# The types of stores.py for Cython; without it the module is ordinary Python.
cimport cython

@cython.final
cdef class Store:
    cdef public object recording, spec, kind, ragged, any_length, locations
    cdef public tuple shape
    cdef public bint packed
    cdef public dict arenas, given
    cdef object __weakref__
