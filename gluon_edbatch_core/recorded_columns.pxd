# The types of recorded_columns.py for Cython; without it the module is ordinary Python.
cimport cython

@cython.final
cdef class Ints:
    cdef long long[::1] items  # of the buffer
    cdef object buffer
    cdef public Py_ssize_t size, room
    cpdef int append(self, long long item) except -1
    @cython.locals(count=Py_ssize_t, size=Py_ssize_t, place=Py_ssize_t)
    cdef copy_from(self, const long long[::1] items)
    cpdef make_room(self, Py_ssize_t more)
    cpdef since(self, Py_ssize_t begin)
