# The types of edges.py for Cython; without it the module is ordinary Python.
cimport cython

@cython.locals(count=Py_ssize_t, kinds='const long long[::1]', firsts='long long[::1]',
               bounds='long long[::1]', counts='const long long[::1]',
               lengths='const long long[::1]', tapes='const long long[::1]',
               begins='const long long[::1]', given='const long long[::1]',
               known='long long[::1]', marks='unsigned char[::1]', call=Py_ssize_t,
               form=Py_ssize_t, place=Py_ssize_t)
cpdef note_outputs(object forms, object table, Py_ssize_t value, object rows, object taped)

@cython.locals(count=Py_ssize_t, first='const long long[::1]', values='const long long[::1]',
               firsts='const long long[::1]', there='const int[::1]', bounds='long long[::1]',
               producers='int[::1]', base=Py_ssize_t, makers='int[::1]', found=Py_ssize_t,
               call=Py_ssize_t, place=Py_ssize_t, value=Py_ssize_t, end=Py_ssize_t)
cpdef among(object offsets, object args, object outputs, object evaluation)

@cython.locals(count=Py_ssize_t, end=Py_ssize_t, first='const long long[::1]',
               sources='const int[::1]', firsts='const long long[::1]', there='const int[::1]',
               asked='const unsigned char[::1]', marks='unsigned char[::1]', call=Py_ssize_t,
               edge=Py_ssize_t, value=Py_ssize_t)
cpdef needed(object offsets, object producers, object outputs, object evaluation, object wanted)

@cython.locals(count=Py_ssize_t, node=Py_ssize_t, edge=Py_ssize_t, producer=int, before=int,
               first='const long long[::1]', producers='const int[::1]',
               places='Py_ssize_t[::1]', waiting='Py_ssize_t[::1]', found='Py_ssize_t[::1]')
cpdef consumers(object offsets, object inputs)

@cython.locals(count=Py_ssize_t, node=Py_ssize_t, edge=Py_ssize_t, above=int, deepest=int,
               first='const long long[::1]', producers='const int[::1]', depth='int[::1]')
cpdef depths(object offsets, object inputs)

@cython.locals(count=Py_ssize_t, node=Py_ssize_t, edge=Py_ssize_t, below=int,
               first='const long long[::1]', producers='const int[::1]', height='int[::1]')
cpdef heights(object offsets, object inputs)

cdef class Countdown:
    cdef const Py_ssize_t[::1] _offsets, _readers
    cdef Py_ssize_t[::1] _waiting
    cdef object _counts
    @cython.locals(other=Countdown)
    cpdef copy(self)
    @cython.locals(ran='const Py_ssize_t[::1]', offsets='const Py_ssize_t[::1]',
                   readers='const Py_ssize_t[::1]', waiting='Py_ssize_t[::1]',
                   ready='Py_ssize_t[::1]', place=Py_ssize_t, edge=Py_ssize_t, edges=Py_ssize_t,
                   found=Py_ssize_t, reader=Py_ssize_t)
    cpdef release(self, object nodes)
