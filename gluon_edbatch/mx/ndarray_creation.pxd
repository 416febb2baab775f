# What ndarray_creation.py says, in C (ndarray_creation.h).
cdef extern from "ndarray_creation.h":
    object empty "edb_make_empty" (tuple shape, int device, int number, bint late, int dtype)
    object rows_of "edb_cut" (object array, Py_ssize_t begin, Py_ssize_t end)
    bint write "edb_write" (object array, Py_ssize_t begin, object rows, int dtype) except -1
    object wait "edb_wait" (list handles)
    object run "edb_run" (size_t address, object words, list handles)
    int prepare "edb_prepare_creation" (object array, object handle, object writable, object where,
                                      object failed, object handle_class) except -1
