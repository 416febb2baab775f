# The types of immediate.py for Cython; without it the module is ordinary Python.
cimport cython

cimport gluon_edbatch.mx.running as running
from gluon_edbatch.mx.hybrid cimport HybridCall
from gluon_edbatch.record.scopes cimport Entered, place
from gluon_edbatch.record.calls cimport call_as_ever

@cython.final
cdef class Known:
    cdef bint counts
    cdef HybridCall hybrid
    cdef object _forward
    cdef bint is_of(self, object block, dict state) except -1

cdef class ImmediateScope(Entered):
    cdef public object begun, kind, rest
    cdef public list calls
    cdef object _as_arrays, _new_recording
    cdef bint _begins, _inside, _is_timed
    cdef Py_ssize_t _most
    cdef dict _blocks
    @cython.locals(known=Known)
    cpdef run_block(self, object block, tuple args)
    @cython.locals(hybrid=HybridCall, state=dict)
    cdef object _run(self, Known known, object block, tuple args)
    @cython.locals(known=Known)
    cdef Known _known_of(self, object block)
    @cython.locals(hybrid=HybridCall, known=Known)
    cpdef run_cached(self, object block, tuple args)
    cpdef run_operator(self, object handle, object ndargs, object keys, object vals,
                       object is_np_op, object output_is_list)
    cdef bint _begins_as_expected(self, object block) except -1
