# What interpreter.py says, in C (interpreter.h).
cdef extern from "references.h":  # which interpreter.h includes, as the next
    pass

cdef extern from "../subgraph/versions.h":
    pass

cdef extern from "interpreter.h":
    ctypedef struct EdbFrame:
        pass
    object get "edb_get" (dict known, object key)
    bint any_in "edb_any_in" (object hooks) except -1
    object recording "edb_get_recording" ()
    int record_into "edb_record_into" (object value) except -1
    long long thread "(long long)PyThread_get_thread_ident" ()
    object new_value "edb_new_value" (bint numpy, object store, Py_ssize_t value)
    object new_pair "edb_new_pair" (bint numpy, object first, object second, Py_ssize_t value)
    object new_nested "edb_new_nested" (bint numpy, object nested, list stores, Py_ssize_t base)
    object new_ragged "edb_new_ragged" (bint numpy, object store, list values)
    EdbFrame *user_frame "edb_user_frame" () except NULL
    long long code_of "edb_code_of" (EdbFrame *frame) except -1
    long long instruction_of "edb_instruction_of" (EdbFrame *frame)
    bint frames_pass "edb_frames_pass" (long long serial)
    void let_frames_pass "edb_let_frames_pass" (long long serial)
    int prepare_frames "edb_prepare_frames" (object kind, object through) except -1
    int prepare_scopes "edb_prepare_scopes" () except -1
    int prepare_calls "edb_prepare_calls" (object block) except -1
    int prepare_values "edb_prepare_values" (
        object lazy, object numpy, object ragged, object numpy_ragged) except -1
    void redirect "edb_redirect" (object function, object target)
    ctypedef object (*Call "EdbCall")(object block, tuple args)
    int direct_type "edb_direct_type" (object block, object function, Call call) except -1
    int no_direct_types "edb_no_direct_types" () except -1

ctypedef EdbFrame *Frame
