# The types of hybrid.py for Cython; without it the module is ordinary Python.
cimport cython

cimport gluon_edbatch.mx.running as running

@cython.final
cdef class HybridCall:
    cdef object _cached_op, _out_format
    cdef list _in_format, _places, _parameters
    cpdef bint is_of(self, dict state) except -1
    cpdef bint is_whole(self, object block, dict state) except -1
    @cython.locals(given=list, inputs=list, results=list, arrays=list, state=dict,
                   number=Py_ssize_t, place=Py_ssize_t)
    cpdef run(self, args, cls)
    cdef bint _append(self, args, list form, list given) except -1

cdef _grouped(form, results)
