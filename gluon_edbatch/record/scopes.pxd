# The types of scopes.py for Cython; without it the module is ordinary Python.
cimport cython

cimport gluon_edbatch.record.interpreter as interpreter

cdef class Entered:
    cdef public bint closed
    cdef public long long thread
    cdef public Entered outer
    cpdef call_block(self, object block, tuple args)

@cython.locals(scope=Entered)
cpdef Entered current_recording()
@cython.locals(frame=interpreter.Frame)
cpdef tuple place()
