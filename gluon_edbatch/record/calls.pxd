# The types of calls.py for Cython; without it the module is ordinary Python.
cimport cython

cimport gluon_edbatch.record.lazy as lazy  # in this form setup.py sees that they changed
cimport gluon_edbatch.record.interpreter as interpreter
cimport gluon_edbatch.mx.ndarray_memory as ndarray_memory
cimport gluon_edbatch.record.scopes as scopes
cimport gluon_edbatch.record.stores as stores
from gluon_edbatch_core.recorded_columns cimport Ints
from gluon_edbatch.record.scopes cimport Entered, current_recording
from gluon_edbatch.record.stores cimport Store

cdef Py_ssize_t _ONE, _PAIR, _NESTED, _OTHER, _ANY, _EQUAL, _MET, _REMEMBERED, _INDEX
cdef long long _LAST
# To find one by name is a search in a dict, which Cython cannot leave out since Python 3.12.
cdef object NDArray, ndarray, numpy_ndarray, SettledArray, _GIVEN, _PLAIN, _EXACT

cdef class Number:
    pass

cdef class Ragged:
    pass

cdef class Nothing:
    pass

cdef class End:
    pass

@cython.final
cdef class CallColumns:
    cdef const long long[::1] kinds, ends, args, codes, instructions, lengths
    cdef list scalars
    cdef Py_ssize_t values

@cython.final
cdef class Prefix:
    cdef public object key, signature
    cdef public long long place
    cdef public list kinds
    cdef public dict packed
    cdef Prefix _last
    cdef dict _others
    @cython.locals(prefix=Prefix)
    cdef Prefix after(self, object key)
    cpdef Prefix make(self, object key)
    @cython.locals(prefix=Prefix)
    cpdef Prefix after_all(self, list keys)

@cython.final
cdef class Callee:
    cdef public object block, function, options, hooks, pre_hooks, mutable
    cdef public tuple shared, place, joined
    cdef public bint recorded, has_states
    cdef public Py_ssize_t children
    cdef public Prefix first
    cpdef bint changed(self) except -1

@cython.final
cdef class Form:
    cdef public Py_ssize_t index, rows, outputs, length, lengths, shape
    cdef public object node_type, template, leaves, nested, first, second
    cdef public object block, mutable, elements
    cdef public bint numpy
    cdef public list stores
    cdef _set_stores(self, list stores)
    @cython.locals(form=Form)
    cpdef Form again(self, Py_ssize_t index, list stores, object block, object mutable)
    @cython.locals(leaf=Py_ssize_t)
    cpdef results(self, Py_ssize_t base)
    cpdef bint changed(self) except -1

cdef class CallLog(Entered):
    cdef public Ints node_forms, node_ends, node_args, node_lengths
    cdef public Ints node_codes, node_instructions
    cdef public list scalars
    cdef list _sentences
    cdef public dict _met_now, forms_at, sentences_at, constants_at
    cdef public long long serial
    cdef public dict packed
    cdef public Py_ssize_t next_value
    cdef bint _given, numpy
    cdef public bint taped
    cdef public Py_ssize_t copied_below, _node_at, _room
    cdef public dict _met, _read, constants
    cdef public Store _numbers
    cdef public dict callees, forms_by_key, shared, stores_by_kind, by_length, known_by_name
    cdef public list forms, all_stores
    cdef public object form_summaries, output_rows
    cdef public set watched
    cdef public object value_type, ragged_type
    @cython.locals(callee=Callee)
    cpdef call_block(self, object block, tuple args)
    cdef Callee _new_callee(self, object block)
    cdef call(self, Callee callee, tuple args)
    @cython.locals(prefix=Prefix, form=Form, place='long long', args_before=Py_ssize_t,
                   scalars_before=Py_ssize_t, lengths_before=Py_ssize_t, values=list)
    cdef _call_of_known_kind(self, Callee callee, tuple args)
    @cython.locals(value=lazy.LazyArray, positions=tuple, axes=tuple, axis=Py_ssize_t,
                   length=Py_ssize_t, own=Py_ssize_t, place=Py_ssize_t, position=Py_ssize_t,
                   shape=tuple)
    cdef Form _form_of_sentences(self, object call, Callee callee, list values, Py_ssize_t before)
    @cython.locals(store=Store, after=Prefix)
    cdef Prefix _follow_value(self, Prefix prefix, lazy.LazyArray value)
    @cython.locals(form=Form)
    cdef Form _form_at(self, Prefix prefix, Callee callee)
    cpdef put_form(self, Prefix prefix, Form form)
    @cython.locals(prefix=Prefix, known=Prefix, arguments=Py_ssize_t, lengths=Py_ssize_t,
                   scalars=Py_ssize_t, leaves=list, kinds=list)
    cpdef tuple describe(self, Callee callee, tuple args)
    cdef _append_leaves(self, object args, list leaves)
    cdef int _take_back(self, Py_ssize_t arguments, Py_ssize_t lengths,
                        Py_ssize_t scalars) except -1
    cdef Prefix _follow_arguments(self, Prefix prefix, Callee callee, tuple args)
    cpdef bint active(self) except -1
    @cython.locals(callee=Callee, key=list, shared=tuple, value=lazy.LazyArray, computed=bint)
    cpdef operation(self, object function, tuple args, dict options)
    @cython.locals(position=Py_ssize_t, shared=list)
    cdef tuple _shared_among(self, tuple args)
    @cython.locals(result=list)
    cdef tuple _with_values(self, tuple args)
    cdef bint _is_given(self, object arg)
    cdef bint _are_values(self, tuple args)
    cdef bint _lengths_fit(self, Form form, Py_ssize_t before)
    @cython.locals(value=lazy.LazyArray, several=lazy.RaggedArray, ragged=bint,
                   store=Store, position=Py_ssize_t, scalars_before=Py_ssize_t)
    cdef Prefix _follow(self, Prefix prefix, object args, Py_ssize_t count, bint nested)
    @cython.locals(known=Prefix, constants=dict)
    cdef Prefix _follow_number(self, Prefix prefix, object number)
    cdef Prefix _follow_given(self, Prefix prefix, object array)
    @cython.locals(known=tuple)
    cdef _value_of(self, object array)
    @cython.locals(numbers='float[::1]', scalars=list, place=Py_ssize_t, number=double,
                   whole='long long', most=double)
    cpdef exact_numbers(self, Py_ssize_t first, Py_ssize_t last)
    @cython.locals(known=tuple)
    cpdef constant(self, tuple key)
    @cython.locals(known=tuple)
    cdef object _given_again(self, object array)
    cdef object _meet(self, object array)
    @cython.locals(found=tuple, key=tuple)
    cpdef read(self, array, bint data=*)
    @cython.locals(store=Store, number=Py_ssize_t, ids=list, length=object)
    cpdef length(self, lazy.RaggedArray several)
    @cython.locals(value=lazy.LazyArray)
    cpdef append_arguments(self, object args)
    @cython.locals(several=lazy.RaggedArray)
    cdef _append_ragged(self, object args)
    @cython.locals(prefix=Prefix, children=list, position=Py_ssize_t, value=lazy.LazyArray)
    cdef Prefix _follow_children(self, Prefix prefix, Callee callee, tuple args)
    @cython.locals(frame=interpreter.Frame, base=Py_ssize_t, code='long long',
                   instruction=Py_ssize_t, place=Py_ssize_t, column=list)
    cpdef append_calls(self, Form form, list columns)
    @cython.locals(kinds='const long long[::1]', args='const long long[::1]', place=Py_ssize_t,
                   node=Py_ssize_t, arg=Py_ssize_t, numbers=Py_ssize_t, value='long long')
    cpdef Py_ssize_t append_columns(self, CallColumns columns, Ints forms, Ints arrays) except -2
    @cython.locals(frame=interpreter.Frame, base=Py_ssize_t, node=Py_ssize_t, code='long long')
    cdef _finish_call(self, Form form)
    @cython.locals(column=Ints)
    cdef int _make_room(self) except -1
    @cython.locals(value=lazy.LazyArray, store=stores.Store)
    cpdef common_store(self, list values)
    @cython.locals(value=lazy.LazyArray, ids=list, store=stores.Store, place=Py_ssize_t)
    cpdef ragged(self, object values, object shape=*, object dtype=*, object ctx=*)
    @cython.locals(store=stores.Store, place=tuple)
    cpdef concat_plain(self, list values)
    @cython.locals(form=Form, stores=list)
    @cython.locals(known=Form, form=Form, stores=list)
    cpdef Form form_again(self, object kind, object block=*, object mutable=*)
    @cython.locals(form=Form)
    cpdef Form add_form(self, object node_type, Py_ssize_t rows, list stores, Py_ssize_t length=*,
                        object block=*, object mutable=*)
    cpdef stores.Store store(self, object spec, object shown=*)
    cpdef value_of(self, object spec, object shown, Py_ssize_t number)
    @cython.locals(value=lazy.LazyArray)
    cpdef concat_call(self, Form form, list values)

@cython.locals(recording=CallLog)
cpdef lengths_of(lazy.RaggedArray several)

cdef bint _is_plain(object option) except -1
cpdef tuple constant_key(object number)
cdef bint _tells_itself(object option) except -1
@cython.locals(scope=Entered)
cdef object _called(object block, tuple args)
cdef object _call_with_user_hooks(CallLog log, Callee callee, tuple args)
@cython.locals(scope=Entered)
cpdef hooked_invoke(object handle, object ndargs, object keys, object vals, object out,
                    object is_np_op, object output_is_list)
