# The types of fingerprint.py for Cython; without it the module is ordinary Python.
cimport cython


cdef class Same:
    cdef readonly object _id, _reference
    cdef object __weakref__


cdef class _Search:
    cdef object _names
    cdef public list found
    cdef public set mentioned
    cdef dict _seen
    cdef Py_ssize_t _left, _depth
    @cython.locals(attributes=dict)
    cpdef block(self, block, str path)
    cpdef frozen(self, value, path, key=*)
    cpdef add(self, value, str path)
    cdef _items(self, value, path)
    cdef _reached(self, value, path)
    cdef _named(self, values, path)
    cdef _class(self, owner, cls, path)
    cdef _function(self, function, path)
    cdef _variables(self, function, path)
    cdef bint _is_new(self, value)


cpdef bint has_hooks(block) except -1
cpdef bint has_operator_hook(block) except -1
