# What columns.py says, in C (array_columns.h).
ctypedef long long *Words
ctypedef int *Ints
ctypedef unsigned char *Flags

cdef extern from "array_columns.h":
    Words words "edb_words" (object array) except NULL
    Ints ints "edb_ints" (object array) except NULL
    Flags flags "edb_flags" (object array) except NULL
    int prepare "edb_prepare_columns" (object array) except -1
