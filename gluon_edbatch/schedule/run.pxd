# The types of run.py for Cython; without it the module is ordinary Python.
cimport cython

from gluon_edbatch.schedule.frontier cimport Frontier

cdef class Run:
    cdef public object graph
    cdef public Frontier frontier
    cdef public list left, batches
    cdef list _alone, _safe
    @cython.locals(other=Run)
    cpdef copy(self)
    @cython.locals(counts=dict)
    cpdef bint settle(self) except -1
    @cython.locals(frontier=Frontier)
    cpdef take(self, Py_ssize_t kind)
    @cython.locals(frontier=Frontier, kind=Py_ssize_t)
    cdef _find_safe(self)
