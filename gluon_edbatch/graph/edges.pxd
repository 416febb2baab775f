# The types of edges.py for Cython; without it the module is ordinary Python.
cimport cython

@cython.locals(count=Py_ssize_t, node=Py_ssize_t, edge=Py_ssize_t, producer=int, before=int,
               first='const long long[::1]', producers='const int[::1]',
               places='Py_ssize_t[::1]', waiting='Py_ssize_t[::1]', found='Py_ssize_t[::1]')
cpdef consumers(object offsets, object inputs)

@cython.locals(count=Py_ssize_t, node=Py_ssize_t, edge=Py_ssize_t, above=int, deepest=int,
               first='const long long[::1]', producers='const int[::1]', depth='int[::1]')
cpdef depths(object offsets, object inputs)

@cython.locals(count=Py_ssize_t, node=Py_ssize_t, edge=Py_ssize_t, below=int,
               first='const long long[::1]', producers='const int[::1]', height='int[::1]')
cpdef heights(object offsets, object inputs)

cdef class Countdown:
    cdef const Py_ssize_t[::1] _offsets, _readers
    cdef Py_ssize_t[::1] _waiting
    cdef object _counts
    @cython.locals(other=Countdown)
    cpdef copy(self)
    @cython.locals(ran='const Py_ssize_t[::1]', offsets='const Py_ssize_t[::1]',
                   readers='const Py_ssize_t[::1]', waiting='Py_ssize_t[::1]',
                   ready='Py_ssize_t[::1]', place=Py_ssize_t, edge=Py_ssize_t, edges=Py_ssize_t,
                   found=Py_ssize_t, reader=Py_ssize_t)
    cpdef release(self, object nodes)
