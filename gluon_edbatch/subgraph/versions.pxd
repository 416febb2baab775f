# What versions.py says, in C (versions.h).
cdef extern from "versions.h":
    object entry "edb_entry" (int kind, object value)
    bint unchanged "edb_unchanged" (list entries)
    enum:
        OBJECT "EDB_OBJECT"
        DICT "EDB_DICT"
        TYPE "EDB_TYPE"
        FUNCTION "EDB_FUNCTION"
