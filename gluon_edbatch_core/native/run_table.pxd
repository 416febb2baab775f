# Types of run_table.py that Cython does not infer; without it the module is ordinary Python.
cimport cython

cimport gluon_edbatch_core.graph.columns as columns

@cython.final
cdef class Table:
    cdef public object words
    cdef public Py_ssize_t rows, values
    cdef long long[::1] _words
    cdef Py_ssize_t _place
    cpdef add(self, object words)
    cpdef add_batches(self, object group, Py_ssize_t begin, Py_ssize_t end, dict slots,
                      list private)
    cdef void _put(self, long long word) noexcept
    cdef Py_ssize_t _add_some(self, object column, Py_ssize_t begin, Py_ssize_t end) except? -1
