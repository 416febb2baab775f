# The types of calls.py for Cython; without it the module is ordinary Python.
cimport cython

cdef class Form:
    cdef public Py_ssize_t index, rows, outputs, lengths, shape
    cdef public object node_type, template, leaves, first, second
    cdef public object mutable
    cdef public list stores
    @cython.locals(leaf=Py_ssize_t)
    cpdef results(self, Py_ssize_t base)

cdef new_value(object store, object value)
cdef new_ragged(object store, list ids)

cdef class CallLog:
    cdef public list node_forms, node_ends, node_args, node_lengths
    cdef public list node_codes, node_instructions, scalars
    cdef public Py_ssize_t next_value
    cdef public dict static, forms_by_key, _no_pairs
    @cython.locals(key=list, ids=list, ragged=list, whole=tuple, form=Form, values=list)
    cpdef call(self, object block, tuple args)
    @cython.locals(base=Py_ssize_t)
    cpdef append(self, Form form, list ids)
    @cython.locals(ids=list, others=list)
    cpdef ragged_pairs(self, object pairs, object shape, object like)
