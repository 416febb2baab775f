# What reading.py says of `read`, in C (reading.h).
cdef extern from "reading.h":
    object read "edb_read" (object array, Py_ssize_t most, Py_ssize_t node_at)
    object contents "edb_contents" (object array)
    bint holds "edb_holds" (object array, bytes contents)
    int prepare "edb_prepare_reading" (object handle, object where, object failed) except -1
