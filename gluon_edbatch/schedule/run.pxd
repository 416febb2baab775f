# The types of run.py for Cython; without it the module is ordinary Python.
cimport cython

from gluon_edbatch.schedule.frontier cimport Frontier, Rule

cdef class Run:
    cdef readonly object graph
    cdef readonly Frontier frontier
    cdef list _safe
    @cython.locals(other=Run)
    cpdef copy(self)
    @cython.locals(frontier=Frontier)
    cpdef bint settle(self) except -1
    cpdef finish(self, Rule rule)
    cpdef take(self, Py_ssize_t kind)
    cpdef Py_ssize_t advance(self, Py_ssize_t kind) except -1
    cpdef schedule(self)
    @cython.locals(frontier=Frontier, place=Py_ssize_t, kind=Py_ssize_t)
    cdef int _find_safe(self) except -1
