# Types of rows.py that Cython does not infer; without it the module is ordinary Python.
cimport cython

@cython.locals(begins='const long long[::1]', ends='const long long[::1]',
               gather='const unsigned char[::1]', rows='long long[::1]', items='const int[::1]',
               firsts='const long long[::1]')
cpdef rows_read(object indices, object read, object same=*)

@cython.locals(whole='long long[::1]', given='const float[::1]', bits='const int[::1]',
               word='long long')
cpdef words(object numbers, long long most)

@cython.locals(numbers='const long long[::1]', known='int[::1]', firsts='long long[::1]',
               places='long long[::1]')
cpdef distinct(object keys)

@cython.locals(firsts='long long[::1]', given='const long long[::1]',
               numbers='const long long[::1]', known='int[::1]')
cpdef note_same(object same, object rows, object made_of)

@cython.locals(numbers='const long long[::1]')
cdef int[::1] _room_by_key(object keys)
