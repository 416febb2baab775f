# Types of layout.py that Cython does not infer; without it the module is ordinary Python.
cimport cython

cimport gluon_edbatch_core.graph.columns as columns

cdef extern from "../graph/references.h":
    pass

@cython.final
cdef class Indices:
    cdef int[::1] items  # of the buffer
    cdef object _buffer
    cdef public Py_ssize_t size
    cdef Py_ssize_t room
    cdef int append(self, int row) except -1

@cython.final
cdef class _Planner:
    cdef object _recording, _types, _several, _node_type
    cdef public list arenas
    cdef dict _index, _placed, _in_place, _sources
    cdef frozenset _of_several_rows
    cdef public Indices indices
    cdef public Py_ssize_t gathered, sliced
    cdef columns.Ints _kinds, _evaluation, _calls
    cdef columns.Words _forms, _form_rows, _outputs, _offsets, _args, _length_offsets, _lengths
    cdef columns.Words _row, _rows, _words, _values, _tops
    cdef columns.Flags _flags
    cdef long long[::1] _copies, _wanted, _origins
    cdef unsigned char[::1] _taped
    cdef object _waiting, _held, _all_words, _all_flags, _all_calls
    cdef list _sizes, _begins, _writes, _before
    cdef Py_ssize_t _results, _numbers_at, _found
    cdef (Py_ssize_t, long long, long long, Py_ssize_t) _latest
    cdef Py_ssize_t _size, _fixed, _bounds, _call, _word, _flag, _parents, _last  # of a group
    cdef Py_ssize_t _start, _count, _top, _span, _most  # of an argument, a value; of a batch
    cdef bint _masked, _lies_there
    @cython.locals(value='long long', number='long long', earlier=bint)
    cpdef place_given(self)
    cdef _arena(self, key)
    @cython.locals(kind=Py_ssize_t)
    cdef _read_in_place(self)
    @cython.locals(known=Py_ssize_t, number=Py_ssize_t, same=bint)
    cdef _note_sources(self, Py_ssize_t node, list sources)
    cdef _lying(self, number, key, dict placed)
    @cython.locals(copied=list)
    cdef _place_imports(self)
    cdef _want(self, Py_ssize_t arena)
    @cython.locals(origin=Py_ssize_t)
    cdef Py_ssize_t _origin(self, Py_ssize_t arena, long long value) except -1
    @cython.locals(arena=Py_ssize_t, rows='long long[::1]', begin=Py_ssize_t)
    cdef _place_import(self, source, const long long[::1] values)
    @cython.locals(nodes='const int[::1]', cuts='const long long[::1]')
    cpdef place_results(self, order, bounds)
    @cython.locals(kind=Py_ssize_t, words=Py_ssize_t, flags=Py_ssize_t, calls=Py_ssize_t)
    cdef _make_columns(self, const int[::1] nodes, const long long[::1] cuts)
    @cython.locals(size=Py_ssize_t, word=Py_ssize_t, call=Py_ssize_t, bounds=Py_ssize_t,
                   first=Py_ssize_t, column=Py_ssize_t, output=Py_ssize_t, arena=Py_ssize_t,
                   top='long long', value='long long')
    cdef _place_batch(self, Py_ssize_t kind, Py_ssize_t own, Py_ssize_t batch,
                      const int[::1] nodes)
    @cython.locals(size=Py_ssize_t, word=Py_ssize_t, call=Py_ssize_t, position=Py_ssize_t,
                   place=Py_ssize_t, arena=Py_ssize_t, pads=bint)
    cpdef group(self, Py_ssize_t kind, capabilities)
    cdef _column(self)
    cdef _flag_column(self)
    cdef _group_writes(self, arena)
    cdef _plain(self, arena, Py_ssize_t place)
    cdef _segments(self, arena, Py_ssize_t place, bint packed)
    @cython.locals(zero=int)
    cdef _padded(self, arena, Py_ssize_t place)
    cdef void _find(self, Py_ssize_t node, Py_ssize_t place) noexcept
    cdef int _look_up(self, long long value) except -1
    cdef bint _measure(self, Py_ssize_t batch, Py_ssize_t place, bint packed) except -1
    cdef Py_ssize_t _length(self, Py_ssize_t at, Py_ssize_t place, bint packed) except -1
    cdef int _append_values(self, Py_ssize_t batch, Py_ssize_t argument) except -1
    @cython.locals(indices=Indices)
    cdef int _append_rows(self, long long value) except -1
    cdef _append_padded(self, Py_ssize_t batch, Py_ssize_t place, int zero)
    cdef _append_parents(self, Py_ssize_t batch, Py_ssize_t place, bint packed)
    cdef _append_lengths(self, Py_ssize_t batch, Py_ssize_t place)
    @cython.locals(items='int[::1]', neighbours=bint)
    cdef _close(self, Py_ssize_t first, Py_ssize_t word, Py_ssize_t flag)
