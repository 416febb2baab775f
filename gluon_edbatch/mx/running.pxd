# What running.py says, in C (running.h).
cdef extern from "running.h":
    list run_cached "edb_run_cached" (object cached_op, list arrays, object cls)
    object run_operator "edb_run_operator" (object handle, object arrays, object keys,
                                            object vals, object cls, bint as_list)
    bint can_run_operator "edb_can_run_operator" (object handle, object arrays, object keys,
                                                  object vals)
    bint same_context "edb_same_context" (list arrays) except -1
    int prepare "edb_prepare_running" (object handle, object writable, object where,
                                       object failed, object handle_class,
                                       object sparse) except -1
