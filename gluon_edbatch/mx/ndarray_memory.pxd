# What ndarray_memory.py says, in C (ndarray_memory.h).
cdef extern from "ndarray_memory.h":
    object empty "edb_make_empty" (tuple shape, int device, int number, bint late, int dtype)
    object rows_of "edb_cut" (object array, Py_ssize_t begin, Py_ssize_t end)
    bint write "edb_write" (object array, Py_ssize_t begin, object rows, int dtype) except -1
    object wait "edb_wait" (list handles)
    object run "edb_run" (size_t address, object words, list handles)
    object read "edb_read" (object array, Py_ssize_t most, Py_ssize_t node_at)
    bint holds "edb_holds" (object array, object copy)
    int prepare "edb_prepare" (tuple given) except -1
