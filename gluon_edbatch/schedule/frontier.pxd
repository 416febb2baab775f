# The types of frontier.py for Cython; without it the module is ordinary Python.
cimport cython

cdef class Frontier:
    cdef public dict counts
    cdef public list fresh, grown
    cdef public object last, before, takes
    cdef object _sizes, _times, _countdown
    cdef dict _alone
    cdef Py_ssize_t _now
    cdef const int[::1] _kinds
    cdef const unsigned char[::1] _runs_alone
    cdef Py_ssize_t[::1] _last, _before, _takes, _grew, _size
    cdef _watch(self)
    @cython.locals(other=Frontier)
    cpdef copy(self)
    @cython.locals(places='Py_ssize_t[::1]', node=Py_ssize_t, place=Py_ssize_t)
    cpdef ready(self, Py_ssize_t kind)
    cpdef take(self, Py_ssize_t kind)
    cdef _take_alone(self, Py_ssize_t kind)
    @cython.locals(added='const Py_ssize_t[::1]', node=Py_ssize_t, place=Py_ssize_t,
                   kind=Py_ssize_t)
    cdef _add(self, object nodes)
