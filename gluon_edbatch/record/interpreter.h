/* What recording needs of the interpreter, which interpreter.py says in Python: lazy values by
   their place in memory, and the user's frame without making objects of frames. Cython includes it
   in what it makes of modules that need some of it (see interpreter.pxd, lazy.pxd), each of which
   prepares what that is: what is kept here is each module's own. */
#pragma once

#include <Python.h>
#include <structmember.h>

#include "../subgraph/versions.h" /* interpreter.pxd names both, so that setup.py copies them */
#include "references.h"

#if PY_VERSION_HEX >= 0x030B0000  /* frames are made into objects only when somebody asks */
#ifndef Py_BUILD_CORE
#define Py_BUILD_CORE 1
#endif
#include "internal/pycore_frame.h"
typedef _PyInterpreterFrame EdbFrame;
#if PY_VERSION_HEX >= 0x030E0000
#error "frames lie in memory in a way that is not known: the modules run as Python"
#elif PY_VERSION_HEX >= 0x030D0000
#define EDB_TOP() (PyThreadState_Get()->current_frame)
#define EDB_CODE(frame) ((PyCodeObject *)(frame)->f_executable)
#else
#define EDB_TOP() (PyThreadState_Get()->cframe->current_frame)
#define EDB_CODE(frame) ((frame)->f_code)
#endif
/* Since Python 3.12 there is a frame of the interpreter itself wherever C called Python. */
static inline EdbFrame *edb_of_python(EdbFrame *frame) {
#if PY_VERSION_HEX >= 0x030C0000
  while (frame && frame->owner == FRAME_OWNED_BY_CSTACK) frame = frame->previous;
#endif
  return frame;
}
#define EDB_RUNNING() edb_of_python(EDB_TOP())
#define EDB_PREVIOUS(frame) edb_of_python((frame)->previous)
#define EDB_INSTRUCTION(frame) (_PyInterpreterFrame_LASTI(frame) * (int)sizeof(_Py_CODEUNIT))
#else
#include "frameobject.h"
typedef PyFrameObject EdbFrame;
#define EDB_CODE(frame) ((frame)->f_code)
#define EDB_RUNNING() PyEval_GetFrame()
#define EDB_PREVIOUS(frame) ((frame)->f_back)
#define EDB_INSTRUCTION(frame) ((frame)->f_lasti * (PY_VERSION_HEX >= 0x030A0000 ? 2 : 1))
#endif

/* How lazy values lie in memory: Python sorts slots by name. `edb_prepare_values` checks it, and
   makes that of the number one that holds it as it is. */
typedef struct {
  PyObject_HEAD
  PyObject *handle;
  PyObject *writable;
  PyObject *_array;
  Py_ssize_t _id;
  PyObject *_memory;
  PyObject *_store;
} EdbLazyArray;

typedef struct {
  EdbLazyArray __pyx_base;
  PyObject *_ids;
} EdbRaggedArray;

static PyObject *edb_entered = NULL;  /* a context variable */
static PyTypeObject *edb_value_types[2]; /* by whether NumPy mode is on */
static PyTypeObject *edb_ragged_types[2];
static PyObject *edb_kind = NULL, *edb_through = NULL;
/* Codes that were met, by address: sites.py keeps them, so that addresses stay theirs. */
#define EDB_CODES 512
enum { EDB_USER, EDB_PASSED, EDB_LIBRARY };
static struct {
  PyCodeObject *code;
  int kind;
} edb_codes[EDB_CODES];

static inline PyObject *edb_get_recording(void) {
  PyObject *value;
  return PyContextVar_Get(edb_entered, NULL, &value) < 0 ? NULL : value;
}

static inline int edb_record_into(PyObject *value) {
  PyObject *token = PyContextVar_Set(edb_entered, value);
  Py_XDECREF(token);
  return token ? 0 : -1;
}

/* What dicts have for keys, which are known by who they are as long as the dict is the same: a
   change gives it another version, which no other dict has. Borrowed: the dict keeps both. */
#define EDB_FOUND 256
static struct {
  PyObject *dict, *key, *value;
  unsigned long long version; /* see versions.h */
} edb_found[EDB_FOUND];

static inline PyObject *edb_get(PyObject *dict, PyObject *key) {
  size_t place = (((size_t)key >> 4) ^ ((size_t)dict >> 6)) % EDB_FOUND;
  unsigned long long version = edb_dict_version(dict);
  PyObject *value = edb_found[place].value;
  if (!version || edb_found[place].version != version || edb_found[place].dict != dict ||
      edb_found[place].key != key) {
    value = PyDict_GetItemWithError(dict, key);
    if (!value) {
      if (PyErr_Occurred()) return NULL;
      Py_RETURN_NONE;
    }
    edb_found[place].dict = dict;
    edb_found[place].key = key;
    edb_found[place].value = value;
    edb_found[place].version = version; /* of before: the look-up may have changed it */
  }
  Py_INCREF(value);
  return value;
}

/* Gluon's blocks keep hooks in ordered dicts. */
static inline int edb_any_in(PyObject *hooks) {
  if (hooks == Py_None) return 0;
  return PyDict_Check(hooks) ? PyDict_GET_SIZE(hooks) != 0 : PyObject_IsTrue(hooks);
}

/* Memory of lazy values that are gone, for new ones; they are linked by `handle`. */
#define EDB_FREE 4096
static EdbLazyArray *edb_free = NULL;
static int edb_free_count = 0;

static inline EdbLazyArray *edb_memory(PyTypeObject *type) {
  EdbLazyArray *array = edb_free;
  if (!array || type != edb_value_types[0]) return PyObject_GC_New(EdbLazyArray, type);
  edb_free = (EdbLazyArray *)array->handle;
  edb_free_count--;
  _Py_NewReference((PyObject *)array);
  return array;
}

/* The cyclic garbage collector is not told of lazy values, nor of pairs of them: there are
   thousands, which it would walk through whenever a scope ends, and they make no cycles. */
static inline EdbLazyArray *edb_new_array(PyTypeObject *type, PyObject *store, Py_ssize_t id) {
  EdbLazyArray *array = edb_memory(type);
  if (!array) return NULL;
  array->handle = array->writable = array->_array = array->_memory = NULL;
  if (type->tp_basicsize != sizeof(EdbLazyArray)) /* what derived types add */
    memset(array + 1, 0, type->tp_basicsize - sizeof(EdbLazyArray));
  Py_INCREF(store);
  array->_store = store;
  array->_id = id;
  return array;
}

static inline PyObject *edb_new_value(int numpy, PyObject *store, Py_ssize_t value) {
  return (PyObject *)edb_new_array(edb_value_types[numpy], store, value);
}

static inline PyObject *edb_new_ragged(int numpy, PyObject *store, PyObject *values) {
  PyObject *array =
      (PyObject *)edb_new_array(edb_ragged_types[numpy], store, 0); /* no value itself */
  if (!array) return NULL;
  PyObject_GC_UnTrack(values); /* they are numbers */
  Py_INCREF(values);
  ((EdbRaggedArray *)array)->_ids = values;
  return array;
}

static inline PyObject *edb_new_pair(int numpy, PyObject *first, PyObject *second,
                                     Py_ssize_t value) {
  PyObject *pair = PyTuple_New(2), *one = edb_new_value(numpy, first, value);
  PyObject *other = edb_new_value(numpy, second, value + 1);
  if (!pair || !one || !other) {
    Py_XDECREF(pair);
    Py_XDECREF(one);
    Py_XDECREF(other);
    return NULL;
  }
  PyObject_GC_UnTrack(pair);
  PyTuple_SET_ITEM(pair, 0, one);
  PyTuple_SET_ITEM(pair, 1, other);
  return pair;
}

/* Lists and tuples of the values of some stores, as `nested` has them of their numbers. */
static PyObject *edb_new_nested(int numpy, PyObject *nested, PyObject *stores, Py_ssize_t base) {
  if (PyLong_CheckExact(nested)) {
    Py_ssize_t leaf = PyLong_AsSsize_t(nested);
    return edb_new_value(numpy, PyList_GET_ITEM(stores, leaf), base + leaf);
  }
  int is_list = PyList_CheckExact(nested), nothing_but_values = 1;
  Py_ssize_t count = is_list ? PyList_GET_SIZE(nested) : PyTuple_GET_SIZE(nested);
  PyObject *values = is_list ? PyList_New(count) : PyTuple_New(count);
  PyObject **from =
      is_list ? ((PyListObject *)nested)->ob_item : ((PyTupleObject *)nested)->ob_item;
  for (Py_ssize_t place = 0; values && place < count; ++place) {
    PyObject *value, *item = from[place];
    if (PyLong_CheckExact(item)) { /* most are */
      Py_ssize_t leaf = PyLong_AsSsize_t(item);
      value = edb_new_value(numpy, PyList_GET_ITEM(stores, leaf), base + leaf);
    } else {
      value = edb_new_nested(numpy, item, stores, base);
      nothing_but_values = 0;
    }
    if (!value) Py_CLEAR(values);
    else if (is_list) PyList_SET_ITEM(values, place, value);
    else PyTuple_SET_ITEM(values, place, value);
  }
  if (values && !is_list && nothing_but_values) PyObject_GC_UnTrack(values);
  return values;
}

/* Python's own would look for slots, weak references and a finalizer through all bases. */
static void edb_free_value(PyObject *self) {
  EdbLazyArray *array = (EdbLazyArray *)self;
  PyTypeObject *type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  Py_CLEAR(array->handle);
  Py_CLEAR(array->writable);
  Py_CLEAR(array->_array);
  Py_CLEAR(array->_memory);
  Py_CLEAR(array->_store);
  if (type == edb_value_types[0] && edb_free_count < EDB_FREE) {
    array->handle = (PyObject *)edb_free; /* it keeps its reference to the type */
    edb_free = array;
    edb_free_count++;
    return;
  }
  type->tp_free(self);
  Py_DECREF(type);
}

static void edb_free_ragged(PyObject *self) {
  Py_CLEAR(((EdbRaggedArray *)self)->_ids);
  edb_free_value(self);
}

static long long edb_answer(PyObject *answer) {
  long long number = answer ? PyLong_AsLongLong(answer) : -1;
  Py_XDECREF(answer);
  return number;
}

/* EDB_USER, … (see sites.py), or -1 after an exception. */
static inline int edb_kind_of(EdbFrame *frame) {
  PyCodeObject *code = EDB_CODE(frame);
  size_t place = ((size_t)code >> 5) % EDB_CODES;
  if (edb_codes[place].code != code) {
    int kind = (int)edb_answer(
        PyObject_CallFunctionObjArgs(edb_kind, (PyObject *)code, frame->f_globals, NULL));
    if (kind < 0) return -1;
    edb_codes[place].code = code;
    edb_codes[place].kind = kind;
  }
  return edb_codes[place].kind;
}

static inline EdbFrame *edb_user_frame(void) {
  EdbFrame *frame = EDB_RUNNING();
  for (;;) {
    int kind = edb_kind_of(frame);
    if (kind < 0) return NULL;
    if (kind != EDB_PASSED || !EDB_PREVIOUS(frame)) return frame;
    frame = EDB_PREVIOUS(frame);
  }
}

static long long edb_code_of_library(EdbFrame *library) {
  for (EdbFrame *frame = library; frame; frame = EDB_PREVIOUS(frame)) {
    int kind = edb_kind_of(frame);
    if (kind < 0) return -1;
    if (kind == EDB_USER) {
      PyObject *instruction = PyLong_FromLong(EDB_INSTRUCTION(frame));
      long long number = edb_answer(
          instruction ? PyObject_CallFunctionObjArgs(edb_through, (PyObject *)EDB_CODE(library),
                                                     (PyObject *)EDB_CODE(frame), instruction, NULL)
                      : NULL);
      Py_XDECREF(instruction);
      return number;
    }
  }
  return (long long)(size_t)EDB_CODE(library);
}

static inline long long edb_code_of(EdbFrame *frame) {
  return edb_kind_of(frame) == EDB_LIBRARY ? edb_code_of_library(frame)
                                           : (long long)(size_t)EDB_CODE(frame);
}

static inline long long edb_instruction_of(EdbFrame *frame) { return EDB_INSTRUCTION(frame); }

/* Codes that may run below a sample that waits, under the number of its run: whoever asks keeps
   them until the number is not used any more. */
static struct {
  PyCodeObject *code;
  long long serial;
} edb_passing[EDB_CODES];

static inline size_t edb_passing_place(EdbFrame *frame, long long serial) {
  return (((size_t)EDB_CODE(frame) >> 5) ^ (size_t)serial) % EDB_CODES;
}

static inline int edb_frames_pass(long long serial) {
  for (EdbFrame *frame = EDB_RUNNING(); frame; frame = EDB_PREVIOUS(frame)) {
    size_t place = edb_passing_place(frame, serial);
    if (edb_passing[place].code != EDB_CODE(frame) || edb_passing[place].serial != serial) return 0;
  }
  return 1;
}

static inline void edb_let_frames_pass(long long serial) {
  for (EdbFrame *frame = EDB_RUNNING(); frame; frame = EDB_PREVIOUS(frame)) {
    size_t place = edb_passing_place(frame, serial);
    edb_passing[place].code = EDB_CODE(frame);
    edb_passing[place].serial = serial;
  }
}

#if PY_VERSION_HEX < 0x03090000
#define PyObject_Vectorcall _PyObject_Vectorcall
#endif
static PyObject *edb_target = NULL;

static PyObject *edb_call_target(PyObject *function, PyObject *const *args, size_t count,
                                 PyObject *names) {
  return PyObject_Vectorcall(edb_target, args, count, names);
}

/* Calls of the one Python function that this is for go to another one, or with None to itself
   again. Python 3.11 looks at a function's code, which must do the same, where it knows it to be
   one. */
static void edb_redirect(PyObject *function, PyObject *target) {
  static vectorcallfunc own = NULL;
  vectorcallfunc *call = &((PyFunctionObject *)function)->vectorcall;
  if (!own) own = *call;
  if (target != Py_None && !edb_target) {
    Py_INCREF(target);
    edb_target = target;
  }
  *call = target == Py_None ? own : edb_call_target;
}

/* Objects of classes whose `__call__` is that function are called without looking for it, as long
   as it is another's. A class that gets a method of its own meanwhile has Python's slot again. */
typedef PyObject *(*EdbCall)(PyObject *block, PyObject *args);
static EdbCall edb_direct = NULL;
static ternaryfunc edb_slot = NULL;   /* what Python has for `__call__` */
static PyObject *edb_direct_types = NULL; /* a list */

static PyObject *edb_call_directly(PyObject *block, PyObject *args, PyObject *names) {
  return names && PyDict_GET_SIZE(names) ? edb_slot(block, args, names) : edb_direct(block, args);
}

static int edb_direct_type(PyObject *block, PyObject *function, EdbCall call) {
  static PyObject *name = NULL;
  PyTypeObject *type = Py_TYPE(block);
  if (type->tp_call == edb_call_directly) return 0;
  if (!name && !(name = PyUnicode_InternFromString("__call__"))) return -1;
  if (!edb_direct_types && !(edb_direct_types = PyList_New(0))) return -1;
  if (!edb_slot || type->tp_call != edb_slot || _PyType_Lookup(type, name) != function) return 0;
  edb_direct = call;
  if (PyList_Append(edb_direct_types, (PyObject *)type) < 0) return -1;
  type->tp_call = edb_call_directly;
  return 0;
}

static int edb_no_direct_types(void) {
  if (!edb_direct_types) return 0;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(edb_direct_types); i++) {
    PyTypeObject *type = (PyTypeObject *)PyList_GET_ITEM(edb_direct_types, i);
    if (type->tp_call == edb_call_directly) type->tp_call = edb_slot;
  }
  return PyList_SetSlice(edb_direct_types, 0, PyList_GET_SIZE(edb_direct_types), NULL);
}

static int edb_lies_at(PyObject *type, const char *slot, size_t offset) {
  PyObject *member = PyObject_GetAttrString(type, slot);
  int right = member && Py_TYPE(member) == &PyMemberDescr_Type &&
              ((PyMemberDescrObject *)member)->d_member->offset == (Py_ssize_t)offset;
  PyErr_Clear();
  Py_XDECREF(member);
  return right;
}

static int edb_prepare_frames(PyObject *kind, PyObject *through) {
  Py_INCREF(kind);
  Py_INCREF(through);
  edb_kind = kind;
  edb_through = through;
  return 0;
}

static int edb_prepare_scopes(void) {
  edb_entered = PyContextVar_New("gluon_edbatch_scope", Py_None);
  return edb_entered ? 0 : -1;
}

static int edb_prepare_calls(PyObject *block) {
  edb_slot = ((PyTypeObject *)block)->tp_call;
  return 0;
}

/* A slot of Python, through which there is no object any more: Python, too, reads and writes the
   number that lies there, and its garbage collector passes over it. */
static int edb_make_a_number(PyObject *type, const char *slot) {
  PyObject *member = PyObject_GetAttrString(type, slot);
  if (!member) return -1;
  ((PyMemberDescrObject *)member)->d_member->type = T_PYSSIZET;
  Py_DECREF(member);
  return 0;
}

static int edb_prepare_values(PyObject *lazy, PyObject *numpy, PyObject *ragged,
                              PyObject *numpy_ragged) {
  if (!edb_lies_at(lazy, "_id", offsetof(EdbLazyArray, _id)) ||
      !edb_lies_at(lazy, "_memory", offsetof(EdbLazyArray, _memory)) ||
      !edb_lies_at(lazy, "_store", offsetof(EdbLazyArray, _store)) ||
      !edb_lies_at(ragged, "_ids", offsetof(EdbRaggedArray, _ids))) {
    PyErr_SetString(PyExc_ImportError, "lazy values lie otherwise in memory");
    return -1;
  }
  if (edb_make_a_number(lazy, "_id") < 0) return -1;
  /* The base class's finalizer would ask for a handle to free; a lazy value has none. */
  ((PyTypeObject *)lazy)->tp_finalize = NULL;
  ((PyTypeObject *)numpy)->tp_finalize = NULL;
  ((PyTypeObject *)ragged)->tp_finalize = NULL;
  ((PyTypeObject *)numpy_ragged)->tp_finalize = NULL;
  ((PyTypeObject *)lazy)->tp_dealloc = edb_free_value;
  ((PyTypeObject *)ragged)->tp_dealloc = edb_free_ragged;
  edb_value_types[0] = (PyTypeObject *)lazy;
  edb_value_types[1] = (PyTypeObject *)numpy;
  edb_ragged_types[0] = (PyTypeObject *)ragged;
  edb_ragged_types[1] = (PyTypeObject *)numpy_ragged;
  Py_INCREF(lazy);
  Py_INCREF(numpy);
  Py_INCREF(ragged);
  Py_INCREF(numpy_ragged);
  return 0;
}
