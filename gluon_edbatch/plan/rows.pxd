# The types of rows.py for Cython; without it the module is ordinary Python.
cimport cython

@cython.locals(begins='const long long[::1]', ends='const long long[::1]',
               gather='const unsigned char[::1]', count=Py_ssize_t, place=Py_ssize_t,
               batch=Py_ssize_t, at='long long', rows='long long[::1]', items='const int[::1]',
               firsts='const long long[::1]')
cpdef rows_read(object indices, object read, object same=*)

@cython.locals(begins='const long long[::1]', ends='const long long[::1]', count=Py_ssize_t,
               place=Py_ssize_t, batch=Py_ssize_t, at='long long', rows='long long[::1]')
cpdef rows_written(object write)

@cython.locals(whole='long long[::1]', given='const float[::1]', bits='const int[::1]',
               place=Py_ssize_t, number=float, word='long long')
cpdef words(object numbers, long long most)

@cython.locals(numbers='const long long[::1]', count=Py_ssize_t, known='int[::1]',
               firsts='long long[::1]', places='long long[::1]', found=Py_ssize_t,
               place=Py_ssize_t, at=Py_ssize_t, key='long long')
cpdef distinct(object keys)

@cython.locals(firsts='long long[::1]', given='const long long[::1]',
               numbers='const long long[::1]', known='int[::1]', place=Py_ssize_t,
               at=Py_ssize_t, key='long long')
cpdef note_same(object same, object rows, object made_of)

@cython.locals(numbers='const long long[::1]', most='long long', place=Py_ssize_t)
cdef int[::1] _room_by_key(object keys)
