# The types of indexing.py for Cython; without it the module is ordinary Python.
cimport cython

cdef object _PLAIN, _OTHER

@cython.locals(parts=list)
cpdef object known_index(object key, tuple shape)
cdef object _part(object each)
