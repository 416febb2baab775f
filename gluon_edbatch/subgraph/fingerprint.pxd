# The types of fingerprint.py for Cython; without it the module is ordinary Python.
cimport cython

cimport gluon_edbatch.subgraph.versions as versions


cdef class Same:
    cdef readonly object _id, _reference
    cdef object __weakref__


cdef class _Search:
    cdef object _names
    cdef public list found
    cdef public set mentioned
    cdef public list entries, held
    cdef dict _seen
    cdef Py_ssize_t _left, _depth
    @cython.locals(attributes=dict)
    cpdef block(self, block, str path)
    cpdef frozen(self, value, path, key=*)
    cpdef add(self, value, str path)
    cdef _items(self, value, path)
    cdef _reached(self, value, path)
    cdef _named(self, values, path)
    cpdef attributes_of_class(self, owner, cls, str path)
    cdef _function(self, function, path)
    cdef _variables(self, function, path)
    cdef bint _is_new(self, value)
    cdef _versioned(self, int kind, value)
    cdef _hold(self, tuple defaults)


@cython.final
cdef class Kept:
    cdef public object block
    cdef public tuple fingerprint
    cdef public list entries, containers, _held

@cython.locals(known=Kept)
cdef Kept _kept_of(block)


cpdef bint has_hooks(block) except -1
cpdef bint has_operator_hook(block) except -1
