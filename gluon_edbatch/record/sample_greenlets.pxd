# The types of sample_greenlets.py for Cython; without it the module is ordinary Python.
cimport cython

cimport gluon_edbatch.record.interpreter as interpreter
cimport gluon_edbatch.record.lazy as lazy
cimport gluon_edbatch.record.stores as stores
from gluon_edbatch.record.calls cimport CallLog
from gluon_edbatch.record.scopes cimport Entered, current_recording

cdef object OVER, VALUES, RAGGED

cdef class ComputedRows:
    cdef dict _blocks
    cdef object _store, _rows
    cdef long long _evaluation
    cdef bytearray _given
    cdef readonly bint has_read
    @cython.locals(own=lazy.LazyArray, store=stores.Store, place=Py_ssize_t, row=Py_ssize_t,
                   evaluation='long long')
    cpdef read(self, object value)

cdef class SuspendedSample:
    cdef ComputedRows _computed
    cdef object _fn, _sample, _suspension, _mode, _worker, _resume, _leave
    cdef CallLog _recording
    cdef long long _serial
    cdef Py_ssize_t _begin_of, _end_of
    cdef bint _closing
    cdef readonly object wanted, result
    cpdef bint waits(self, object answer) except -1
    @cython.locals(recording=CallLog, own=lazy.LazyArray, store=stores.Store, place=Py_ssize_t,
                   several=lazy.RaggedArray)
    cpdef contents(self, object value)

cpdef bint advance_plain(object sample, SuspendedSample own, object answer) except -1
@cython.locals(own=SuspendedSample)
cpdef advance_all(object samples, object answers, list waiting, list suspended)
@cython.locals(sample=SuspendedSample, several=lazy.RaggedArray, value=lazy.LazyArray,
               begin=Py_ssize_t, place=Py_ssize_t, end=Py_ssize_t)
cpdef tuple recorded_by(object samples)
