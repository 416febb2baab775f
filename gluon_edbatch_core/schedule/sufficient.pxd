# Types of sufficient.py that Cython does not infer; without it the module is ordinary Python.
cimport cython

from gluon_edbatch_core.schedule.frontier cimport Frontier, Rule

cdef Py_ssize_t _NONE, _LAST

cdef class SufficientCondition(Rule):
    cdef Frontier _frontier
    cdef Py_ssize_t _seen, _width, _free
    cdef const int[::1] _offsets, _readers
    cdef int[::1] _columns, _first, _cells
    @cython.locals(cells='int[::1]')
    cdef int _begin(self) except -1
    cpdef Py_ssize_t choose(self) except -1
    cdef int _catch_up(self) except -1
    cdef int _pass_on(self) except -1
    cdef void _release(self, Py_ssize_t node, Py_ssize_t column) noexcept
    cdef void _push(self, Py_ssize_t cell) noexcept
