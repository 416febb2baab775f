# What columns.py says, in C (columns.h).
cdef extern from "columns.h":
    const long long *words "edb_words" (object array) except NULL
    const unsigned char *flags "edb_flags" (object array) except NULL
    int prepare "edb_prepare_columns" (object array, size_t address) except -1
