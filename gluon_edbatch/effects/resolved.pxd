# The types of resolved.py for Cython; without it the module is ordinary Python.
cimport cython

cpdef bint is_atom(object value) except -1
cpdef object in_class(object cls, object name)
cdef object _mark(object value)
cdef object _fetch(object origin, object kind, object key)
cdef list _parts(object origin, object kind)
