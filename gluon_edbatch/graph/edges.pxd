# Types of edges.py that Cython does not infer; without it the module is ordinary Python.
cimport cython

@cython.locals(kinds='const long long[::1]', stops='const long long[::1]',
               numbers='long long[::1]', firsts='long long[::1]', starts='long long[::1]',
               bounds='long long[::1]', counts='const long long[::1]',
               lengths='const long long[::1]', tapes='const long long[::1]',
               begins='const long long[::1]', given='const long long[::1]',
               known='long long[::1]', marks='unsigned char[::1]', begin='long long',
               argument='long long', value=Py_ssize_t)
cpdef number_calls(object forms, object ends, object table, tuple first, object rows, object taped)

@cython.locals(kinds='int[::1]', given='const long long[::1]', all_forms='const long long[::1]',
               of_form='int[::1]')
cpdef kinds_of(object forms, object types)

@cython.locals(first='const long long[::1]', values='const long long[::1]',
               firsts='const long long[::1]', there='const int[::1]', bounds='long long[::1]',
               producers='int[::1]', makers='int[::1]')
cpdef among(object offsets, object args, object outputs, object evaluation)

@cython.locals(first='const long long[::1]', sources='const int[::1]',
               firsts='const long long[::1]', there='const int[::1]',
               values='const long long[::1]', asked='unsigned char[::1]',
               marks='unsigned char[::1]', found='long long[::1]')
cpdef needed(object offsets, object producers, object outputs, object evaluation, object wanted)

@cython.locals(first='const long long[::1]', values='const long long[::1]',
               firsts='const long long[::1]', kinds='const long long[::1]',
               groups='const long long[::1]', readers='int[::1]', makers='int[::1]',
               uses='const long long[::1]', asked='const long long[::1]', above='int[::1]',
               roots='int[::1]', tops='unsigned char[::1]')
cpdef addition_trees(object calls, object additions, object read, object wanted)

@cython.locals(first='const long long[::1]', values='const long long[::1]',
               firsts='const long long[::1]', kinds='const long long[::1]', top='const int[::1]',
               sums='const long long[::1]', bounds='const long long[::1]',
               counts='const long long[::1]', makers='int[::1]',
               positions='long long[::1]', new_kinds='long long[::1]', ends='long long[::1]',
               stops='long long[::1]', new_values='long long[::1]', new_counts='long long[::1]',
               waiting='long long[::1]')
cpdef with_sums(object calls, object roots, object sum_forms)

@cython.locals(first='const long long[::1]', producers='const int[::1]', places='int[::1]',
               waiting='int[::1]', found='int[::1]')
cpdef consumers(object offsets, object inputs)

@cython.locals(first='const long long[::1]', producers='const int[::1]', depth='int[::1]')
cpdef depths(object offsets, object inputs)

@cython.locals(first='const long long[::1]', producers='const int[::1]', height='int[::1]')
cpdef heights(object offsets, object inputs)

@cython.locals(first='const long long[::1]', producers='const int[::1]', own='const int[::1]',
               most='int[::1]')
cpdef most_on_paths(object offsets, object inputs, object columns, Py_ssize_t width)

cdef class Countdown:
    cdef const int[::1] offsets, readers
    cdef int[::1] waiting
    cdef object _counts
    @cython.locals(other=Countdown)
    cpdef copy(self)
    cpdef Py_ssize_t release(self, const int[::1] nodes, Py_ssize_t begin, Py_ssize_t end,
                             int[::1] ready) except -1
