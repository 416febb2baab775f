# The types of expressions.py for Cython; without it the module is ordinary Python.
cimport cython

cimport gluon_edbatch.record.lazy as lazy
cimport gluon_edbatch.record.stores as stores

cdef object LazyArray, RaggedArray
cdef object _STORE, _KINDS
cdef dict _first_rows

@cython.locals(value=lazy.LazyArray, store=stores.Store, places=dict, lengths=list, shape=tuple,
               position=Py_ssize_t, place=Py_ssize_t)
cdef bint _read(object recording, object args, object matrices, list parts, list key,
                list values) except -1
cdef object _identity(object value)
@cython.locals(lengths=list)
cdef list _lengths(object args)
@cython.locals(store=stores.Store, rows=list, known=list, position=Py_ssize_t, count=Py_ssize_t)
cpdef list rows_that_differ(str op, tuple attrs, object leaves)
