# The types of row_order.py for Cython; without it the module is ordinary Python.
cimport cython

cdef Py_ssize_t _ARGUMENTS, _FEW

@cython.locals(count=Py_ssize_t, nodes='int[::1]', cuts='const long long[::1]',
               places='long long[::1]', found='long long[::1]', first='const long long[::1]',
               producers='const int[::1]', batch=Py_ssize_t, begin=Py_ssize_t, end=Py_ssize_t,
               sorted_already=bint, place=Py_ssize_t, node=Py_ssize_t, edge=Py_ssize_t,
               argument=Py_ssize_t, at=Py_ssize_t, key='long long')
cpdef arrange(object graph, object order, object bounds)
