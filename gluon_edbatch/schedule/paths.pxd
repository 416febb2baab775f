# The types of paths.py for Cython; without it the module is ordinary Python.
cimport cython

cdef Py_ssize_t _FORGOTTEN

cdef class ReadyPaths:
    cdef dict _ready
    cdef const Py_ssize_t[::1] _last, _before, _takes
    cdef const int[::1] _height
    cdef const double[::1] _weights
    cdef Py_ssize_t[::1] _seen, _taken, _longest
    cdef double[::1] _mass
    @cython.locals(kind=Py_ssize_t, longest=Py_ssize_t, found=list)
    cpdef list order(self)
    @cython.locals(kind=Py_ssize_t, longest=Py_ssize_t, before=Py_ssize_t, first=bint, state=list)
    cpdef tuple state(self, Py_ssize_t steps)
    @cython.locals(node=Py_ssize_t)
    cdef _look_at(self, Py_ssize_t kind)
    @cython.locals(behind=Py_ssize_t)
    cdef _add(self, Py_ssize_t kind, Py_ssize_t height)
