# The types of fingerprint.py for Cython; without it the module is ordinary Python.
cdef class Same:
    cdef readonly object _id, _reference
    cdef object __weakref__


cdef class _Search:
    cdef object _names
    cdef public list found
    cdef public set mentioned
    cdef dict _seen
    cdef Py_ssize_t _left, _depth
    cpdef block(self, block, path)
    cpdef frozen(self, value, path, key=*)
    cpdef add(self, value, path)
    cdef _items(self, value, path)
    cdef _reached(self, value, path)
    cdef _named(self, values, path)
    cdef _class(self, owner, cls, path)
    cdef _function(self, function, path)
    cdef _variables(self, function, path)
    cdef bint _is_new(self, value)
