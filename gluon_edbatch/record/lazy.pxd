# How lazy values lie in memory: Python sorts slots by name. `native.prepare` checks it.
cdef extern from *:
    """
    typedef struct {
        PyObject_HEAD
        PyObject *handle;
        PyObject *writable;
        PyObject *_array;
        PyObject *_id;
        PyObject *_memory;
        PyObject *_store;
    } EdbLazyArray;

    typedef struct {
        EdbLazyArray __pyx_base;
        PyObject *_ids;
    } EdbRaggedArray;
    """
    ctypedef class gluon_edbatch.record.lazy.LazyArray [object EdbLazyArray, check_size error]:
        cdef object _id
        cdef object _store

    ctypedef class gluon_edbatch.record.lazy.RaggedArray(LazyArray) \
            [object EdbRaggedArray, check_size error]:
        cdef object _ids
