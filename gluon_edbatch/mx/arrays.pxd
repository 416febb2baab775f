# The types of arrays.py for Cython; without it the module is ordinary Python.
cimport gluon_edbatch.mx.ndarray_memory as ndarray_memory

cpdef rows_of(object array, Py_ssize_t begin, Py_ssize_t end)
cpdef wait_for(list handles)
cpdef run_native(object address, object words, list handles)
cpdef bint write(object array, Py_ssize_t begin, object rows, int dtype) except -1
