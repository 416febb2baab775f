# The types of calls.py for Cython; without it the module is ordinary Python.
cimport cython

from gluon_edbatch_core.recorded_columns cimport Ints

cdef object ndarray, Array, _current, _RAGGED, _NOTHING, _BEGIN, _END, _NUMBER

cdef class Store:
    cdef public object row_shape, dtype, arena
    cdef public Py_ssize_t rows

# A recording does not refer to its values: they are in no cycle.
@cython.no_gc
@cython.freelist(1024)
cdef class Value:
    cdef public CallLog log
    cdef public Store store
    cdef public Py_ssize_t number

@cython.locals(value=Value)
cpdef Value new_value(CallLog log, Store store, Py_ssize_t number)

cdef class Ragged:
    cdef public Store store
    cdef public list numbers
    cdef public CallLog log

@cython.locals(ragged=Ragged)
cpdef Ragged new_ragged(CallLog log, Store store, list numbers)

@cython.locals(value=Value, store=Store, numbers=list)
cpdef Ragged plain_ragged(CallLog log, object values, Py_ssize_t place=*)

cdef class Prefix:
    cdef public Form form
    cdef public bint stacks
    cdef object key
    cdef Prefix _latest
    cdef dict _others
    @cython.locals(prefix=Prefix)
    cdef Prefix after(self, object key)

cdef class Form:
    cdef public Py_ssize_t index, rows, outputs
    cdef public object type, nested
    cdef public list stores
    cdef public bint fills, is_one, is_pair
    cdef Store first, second

cdef class CallLog:
    cdef public Ints node_forms, node_ends, node_args, node_lengths
    cdef public Py_ssize_t next_value
    cdef public list numbers, arrays
    cdef list _later
    cdef dict _small
    cdef Py_ssize_t _lengths_before
    @cython.locals(found=tuple)
    cpdef small(self, given)
    @cython.locals(value=Value, ragged=Ragged)
    cdef Prefix follow(self, Prefix prefix, object arg)
    @cython.locals(value=Value, ragged=Ragged, numbers=list)
    cdef int put(self, Form form, object arg) except -1
    @cython.locals(base=Py_ssize_t)
    cdef finish(self, Form form)
    @cython.locals(values=list)
    cdef nested(self, Form form, object template, Py_ssize_t base)

cpdef recorded(CallLog log, Form form, tuple args)

cdef class Cell:
    cdef public object name
    cdef public int children
    cdef public Prefix first
    cdef dict __dict__
    cdef object __weakref__
    cpdef record(self, CallLog log, tuple args)
    @cython.locals(prefix=Prefix, form=Form)
    cdef call(self, CallLog log, tuple args)
    @cython.locals(place=Py_ssize_t, ragged=Ragged, spread=list)
    cdef call_with_children(self, CallLog log, tuple args)
