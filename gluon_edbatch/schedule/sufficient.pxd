# The types of sufficient.py for Cython; without it the module is ordinary Python.
cimport cython

from gluon_edbatch.schedule.frontier cimport Frontier, Rule

cdef Py_ssize_t _NONE, _LAST

cdef class SufficientCondition(Rule):
    cdef Frontier _frontier
    cdef Py_ssize_t _seen, _width, _free
    cdef const int[::1] _offsets, _readers
    cdef int[::1] _columns, _first, _cells
    @cython.locals(frontier=Frontier, cells='int[::1]', width=Py_ssize_t, kind=Py_ssize_t,
                   node=Py_ssize_t, edge=Py_ssize_t, begin=Py_ssize_t, column=Py_ssize_t,
                   cell=Py_ssize_t)
    cdef int _begin(self) except -1
    @cython.locals(frontier=Frontier, best=Py_ssize_t, most=double, place=Py_ssize_t,
                   kind=Py_ssize_t, share=double)
    cpdef Py_ssize_t choose(self) except -1
    @cython.locals(frontier=Frontier, begin=Py_ssize_t, end=Py_ssize_t, kind=Py_ssize_t,
                   place=Py_ssize_t)
    cdef int _catch_up(self) except -1
    @cython.locals(cell=Py_ssize_t, node=Py_ssize_t, column=Py_ssize_t, kind=Py_ssize_t)
    cdef int _pass_on(self) except -1
    @cython.locals(edge=Py_ssize_t, cell=Py_ssize_t)
    cdef void _release(self, Py_ssize_t node, Py_ssize_t column) noexcept
    cdef void _push(self, Py_ssize_t cell) noexcept
