# Types of rules.py that Cython does not infer; without it the module is ordinary Python.
cimport cython
cimport libc.math as math

from gluon_edbatch_core.schedule.frontier cimport Frontier, Rule

cdef Py_ssize_t _FORGOTTEN
cdef Py_ssize_t _STEPS, _TRIED, _NEAR, _MANY
cdef double _ROUNDED, _EQUAL, _CLEAR
ctypedef unsigned long long Types
cdef Types _BIT

cdef class LeastDeep(Rule):
    cdef Frontier _frontier
    cdef bint _remaining
    cdef const int[::1] _depth
    cdef double[::1] _total, _mean
    cdef int[::1] _count
    cdef Py_ssize_t _seen
    cpdef Py_ssize_t choose(self) except -1
    @cython.locals(types='const int[::1]')
    cdef int _sum_up(self) except -1
    cdef int _catch_up(self) except -1

cdef class LongestWay(Rule):
    cdef Frontier _frontier
    cdef const int[::1] _height
    cdef const double[::1] _weights
    cdef int[::1] _seen, _taken, _longest
    cdef double[::1] _mass, _slack
    cpdef Py_ssize_t choose(self) except -1
    @cython.locals(kind=Py_ssize_t, longest=Py_ssize_t, before=Py_ssize_t)
    cpdef tuple state(self)
    cdef _look_at(self, Py_ssize_t kind)
    cdef _weigh(self, Py_ssize_t kind, Py_ssize_t node)

cdef class LookAhead(LongestWay):
    cdef Py_ssize_t _count, _used, _top, _first, _choice
    cdef int[::1] _near, _near_before, _head, _nodes, _next
    cdef double[::1] _gain
    cdef double _best
    cpdef Py_ssize_t choose(self) except -1
    @cython.locals(kind=Py_ssize_t)
    cdef void _search(self, Py_ssize_t step, double gained, Types tried) noexcept
    @cython.locals(found=Py_ssize_t)
    cdef Py_ssize_t _following(self, Py_ssize_t row, Py_ssize_t before) noexcept
    cdef void _judge(self, double gained) noexcept
    cdef void _run(self, Py_ssize_t step, Py_ssize_t kind, double gained, Types tried) noexcept
    cdef void _count_down(self, Py_ssize_t place, Py_ssize_t row, int by) noexcept
    cdef void _push(self, Py_ssize_t row, Py_ssize_t node) noexcept
    cdef _weigh(self, Py_ssize_t kind, Py_ssize_t node)

cdef class LookUp(Rule):
    cdef object _run, _state_of, _coarser, _table, _make_other
    cdef Frontier _frontier
    cdef Rule _other
    cdef readonly Py_ssize_t unseen
    cpdef Py_ssize_t choose(self) except -1
