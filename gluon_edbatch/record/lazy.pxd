# Lazy values as C sees them (interpreter.h).
cdef extern from "interpreter.h":
    ctypedef class gluon_edbatch.record.lazy.LazyArray [object EdbLazyArray, check_size error]:
        cdef Py_ssize_t _id
        cdef object _store

    ctypedef class gluon_edbatch.record.lazy.RaggedArray(LazyArray) \
            [object EdbRaggedArray, check_size error]:
        cdef list _ids
