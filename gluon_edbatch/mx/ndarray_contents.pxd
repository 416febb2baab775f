# What ndarray_contents.py says of `read`, in C (ndarray_contents.h).
cdef extern from "ndarray_contents.h":
    object read "edb_read" (object array, Py_ssize_t most, Py_ssize_t node_at)
    object contents "edb_contents" (object array)
    bint holds "edb_holds" (object array, bytes contents)
    int prepare "edb_prepare_contents" (object handle, object where, object failed) except -1
