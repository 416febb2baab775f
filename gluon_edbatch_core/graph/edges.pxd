# Types of edges.py that Cython does not infer; without it the module is ordinary Python.
cimport cython

cimport gluon_edbatch_core.graph.columns as columns

@cython.locals(begin='long long', argument='long long', value=Py_ssize_t)
cpdef number_calls(object forms, object ends, object table, tuple first, object rows, object taped)
@cython.locals(form=Py_ssize_t)
cpdef kinds_of(object forms, object types)
cpdef among(object offsets, object args, object outputs, object evaluation)
cpdef needed(object offsets, object producers, object outputs, object evaluation, object wanted)
cpdef addition_trees(object calls, object additions, object read, object wanted)
cpdef with_sums(object calls, object roots, object sum_forms)
cpdef consumers(object offsets, object inputs)
cpdef depths(object offsets, object inputs)
cpdef heights(object offsets, object inputs)
cpdef most_on_paths(object offsets, object inputs, object kinds, Py_ssize_t width)

cdef class Countdown:
    cdef const int[::1] offsets, readers
    cdef int[::1] waiting
    cdef object _counts
    @cython.locals(other=Countdown)
    cpdef copy(self)
    cpdef Py_ssize_t release(self, const int[::1] nodes, Py_ssize_t begin, Py_ssize_t end,
                             int[::1] ready) except -1
