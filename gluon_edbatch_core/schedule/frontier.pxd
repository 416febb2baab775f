# Types of frontier.py that Cython does not infer; without it the module is ordinary Python.
cimport cython

from gluon_edbatch_core.graph.edges cimport Countdown

cdef Py_ssize_t _FEW

cdef class Rule:
    cpdef Py_ssize_t choose(self) except -1

cdef class Frontier:
    cdef Py_ssize_t _count, _num_types
    cdef readonly Py_ssize_t batches, num_ready
    cdef Py_ssize_t num_grown, num_fresh
    cdef const int[::1] types
    cdef const unsigned char[::1] alone
    cdef int[::1] order, bounds, left, size, last, before, takes
    cdef int[::1] ready_types, grown_types, fresh_types
    cdef int[::1] _released, _place, _grew
    cdef object _order, _memory
    cdef Countdown countdown
    cdef dict _heaps
    @cython.locals(memory='int[::1]', parts='int[::1]')
    cdef _divide(self)
    @cython.locals(waiting='const int[::1]')
    cdef int _begin(self) except -1
    @cython.locals(other=Frontier)
    cpdef copy(self)
    cpdef bint is_ready(self, Py_ssize_t kind) noexcept
    cpdef tuple kinds(self)
    cpdef tuple by_size(self)
    cpdef ready(self, Py_ssize_t kind)
    cpdef schedule(self)
    cpdef finish(self, Rule rule)
    cpdef take(self, Py_ssize_t kind)
    cpdef Py_ssize_t advance(self, Py_ssize_t kind) except -1
    @cython.locals(ascending=bint)
    cdef _list(self, Py_ssize_t kind, object array, int[::1] nodes, Py_ssize_t begin)
    cdef void _remove(self, Py_ssize_t kind) noexcept
    cdef int _add(self, Py_ssize_t node) except -1

cdef class Run:
    cdef readonly object graph
    cdef readonly Frontier frontier
    cdef list _safe
    @cython.locals(other=Run)
    cpdef copy(self)
    cpdef bint settle(self) except -1
    cpdef finish(self, Rule rule)
    cpdef take(self, Py_ssize_t kind)
    cpdef Py_ssize_t advance(self, Py_ssize_t kind) except -1
    cpdef schedule(self)
    cdef int _find_safe(self) except -1
