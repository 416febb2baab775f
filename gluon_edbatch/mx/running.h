/* Operators and CachedOps run by MXNet's functions for C, which running.py finds; Cython includes
   it in what it makes of modules that run some. */
#pragma once

#include <Python.h>
#include <structmember.h>

enum { EDB_FEW = 64 };

/* In the order of `_FUNCTIONS` in running.py. */
static struct {
  int (*cached)(void *, int, void **, int *, void ***, const int **);
  int (*invoke)(void *, int, void **, int *, void ***, int, const char **, const char **,
                const int **);
  int (*context)(void *, int *, int *);
} edb_runs;
static Py_ssize_t edb_array_handle_at = 0, edb_array_writable_at = 0;
static PyObject *edb_run_error = NULL, *edb_handle_class = NULL, *edb_sparse = NULL;
static PyObject *edb_name_handle = NULL, *edb_name_value = NULL;

static PyObject *edb_run_failed(void) {
  PyObject *error = PyObject_CallFunctionObjArgs(edb_run_error, NULL);
  if (error) PyErr_SetObject((PyObject *)Py_TYPE(error), error);
  Py_XDECREF(error);
  return NULL;
}

/* What `owner.handle.value` is; -1 after an exception. */
static int edb_address(PyObject *owner, void **found) {
  PyObject *handle = PyObject_GetAttr(owner, edb_name_handle), *value;
  if (!handle) return -1;
  value = PyObject_GetAttr(handle, edb_name_value);
  Py_DECREF(handle);
  if (!value) return -1;
  *found = value == Py_None ? NULL : PyLong_AsVoidPtr(value);
  Py_DECREF(value);
  return *found || !PyErr_Occurred() ? 0 : -1;
}

/* As `cls(NDArrayHandle(address))` for a dense array. */
static PyObject *edb_new_dense(PyObject *cls, PyObject *handle) {
  PyTypeObject *type = (PyTypeObject *)cls;
  PyObject *array = type->tp_alloc(type, 0);
  if (!array) return NULL;
  Py_INCREF(handle);
  *(PyObject **)((char *)array + edb_array_handle_at) = handle;
  Py_INCREF(Py_True);
  *(PyObject **)((char *)array + edb_array_writable_at) = Py_True;
  return array;
}

static PyObject *edb_new_result(PyObject *cls, void *address, int stype) {
  PyObject *handle = PyObject_CallFunction(edb_handle_class, "K", (unsigned long long)address);
  PyObject *array = NULL;
  if (handle)
    array = stype ? PyObject_CallFunction(edb_sparse, "OOi", handle, Py_True, stype)
                  : edb_new_dense(cls, handle);
  Py_XDECREF(handle);
  return array;
}

/* A list of what MXNet gave, whose own memory for that the next operator takes. */
static PyObject *edb_results(PyObject *cls, int count, void **outputs, const int *stypes) {
  void **given = PyMem_Malloc((count + 1) * (sizeof(void *) + sizeof(int)));
  int *kinds = (int *)(given + count + 1), i;
  PyObject *results = given ? PyList_New(count) : PyErr_NoMemory();
  for (i = 0; results && i < count; ++i) {
    given[i] = outputs[i];
    kinds[i] = stypes[i];
  }
  for (i = 0; results && i < count; ++i) {
    PyObject *array = edb_new_result(cls, given[i], kinds[i]);
    if (array) PyList_SET_ITEM(results, i, array);
    else Py_CLEAR(results);
  }
  PyMem_Free(given);
  return results;
}

/* Handles of arrays, in `few` if they fit; NULL after an exception. */
static void **edb_handles(PyObject *arrays, void **few) {
  Py_ssize_t i, count = PySequence_Fast_GET_SIZE(arrays);
  void **handles = count <= EDB_FEW ? few : PyMem_Malloc(count * sizeof(void *));
  if (!handles) PyErr_NoMemory();
  for (i = 0; handles && i < count; ++i)
    if (edb_address(PySequence_Fast_GET_ITEM(arrays, i), &handles[i]) < 0) {
      if (handles != few) PyMem_Free(handles);
      return NULL;
    }
  return handles;
}

static PyObject *edb_run_cached(PyObject *cached_op, PyObject *arrays, PyObject *cls) {
  void *few[EDB_FEW], **handles, *op, **outputs = NULL;
  const int *stypes = NULL;
  int count = 0, failed;
  if (edb_address(cached_op, &op) < 0 || !(handles = edb_handles(arrays, few))) return NULL;
  Py_BEGIN_ALLOW_THREADS failed =
      edb_runs.cached(op, (int)PyList_GET_SIZE(arrays), handles, &count, &outputs, &stypes);
  Py_END_ALLOW_THREADS if (handles != few) PyMem_Free(handles);
  return failed ? edb_run_failed() : edb_results(cls, count, outputs, stypes);
}

/* Texts of a sequence, kept alive by the list `kept`; -1 after an exception. */
static int edb_texts(PyObject *items, const char **texts, PyObject *kept) {
  Py_ssize_t i, count = PySequence_Fast_GET_SIZE(items);
  for (i = 0; i < count; ++i) {
    PyObject *text = PyObject_Str(PySequence_Fast_GET_ITEM(items, i));
    int failed = !text || PyList_Append(kept, text) < 0 || !(texts[i] = PyUnicode_AsUTF8(text));
    Py_XDECREF(text);
    if (failed) return -1;
  }
  return 0;
}

/* With sequences that are lists or tuples; None if there are too many attributes. */
static PyObject *edb_run_operator(PyObject *handle, PyObject *arrays, PyObject *keys,
                                  PyObject *vals, PyObject *cls, int as_list) {
  void *few[EDB_FEW], **handles = NULL, *op = PyLong_AsVoidPtr(handle), **outputs = NULL;
  const char *names[EDB_FEW], *texts[EDB_FEW];
  const int *stypes = NULL;
  int count = 0, failed, attributes = (int)PySequence_Fast_GET_SIZE(keys);
  PyObject *kept, *results = NULL, *only;
  if (!op && PyErr_Occurred()) return NULL;
  if (!(kept = PyList_New(0))) return NULL;
  if (edb_texts(keys, names, kept) < 0 || edb_texts(vals, texts, kept) < 0 ||
      !(handles = edb_handles(arrays, few)))
    goto end;
  Py_BEGIN_ALLOW_THREADS failed =
      edb_runs.invoke(op, (int)PySequence_Fast_GET_SIZE(arrays), handles, &count, &outputs,
                      attributes, names, texts, &stypes);
  Py_END_ALLOW_THREADS if (handles != few) PyMem_Free(handles);
  results = failed ? edb_run_failed() : edb_results(cls, count, outputs, stypes);
end:
  Py_DECREF(kept);
  if (!results || as_list || PyList_GET_SIZE(results) != 1) return results;
  only = PyList_GET_ITEM(results, 0);
  Py_INCREF(only);
  Py_DECREF(results);
  return only;
}

static int edb_can_run_operator(PyObject *handle, PyObject *arrays, PyObject *keys,
                                PyObject *vals) {
  return PyLong_CheckExact(handle) && (PyList_CheckExact(arrays) || PyTuple_CheckExact(arrays)) &&
         PyList_CheckExact(keys) && PyList_CheckExact(vals) &&
         PyList_GET_SIZE(keys) == PyList_GET_SIZE(vals) && PyList_GET_SIZE(keys) <= EDB_FEW;
}

/* Whether arrays are on one device; -1 after an exception. */
static int edb_same_context(PyObject *arrays) {
  Py_ssize_t i;
  int device = 0, number = 0, first_device = 0, first = 0;
  for (i = 0; i < PyList_GET_SIZE(arrays); ++i) {
    void *handle;
    if (edb_address(PyList_GET_ITEM(arrays, i), &handle) < 0) return -1;
    if (edb_runs.context(handle, &device, &number)) {
      edb_run_failed();
      return -1;
    }
    if (!i) {
      first_device = device;
      first = number;
    } else if (device != first_device || number != first) return 0;
  }
  return 1;
}

static int edb_prepare_running(PyObject *handle, PyObject *writable, PyObject *where,
                               PyObject *failed, PyObject *handle_class, PyObject *sparse) {
  void **functions = (void **)&edb_runs;
  Py_ssize_t place, count = sizeof(edb_runs) / sizeof(*functions);
  if (Py_TYPE(handle) != &PyMemberDescr_Type || Py_TYPE(writable) != &PyMemberDescr_Type ||
      PySequence_Size(where) != count) {
    PyErr_SetString(PyExc_ImportError, "MXNet's arrays are of another kind");
    return -1;
  }
  edb_array_handle_at = ((PyMemberDescrObject *)handle)->d_member->offset;
  edb_array_writable_at = ((PyMemberDescrObject *)writable)->d_member->offset;
  for (place = 0; place < count; ++place) {
    PyObject *address = PySequence_GetItem(where, place);
    if (!address) return -1;
    functions[place] = PyLong_AsVoidPtr(address);
    Py_DECREF(address);
  }
  Py_INCREF(failed);
  Py_INCREF(handle_class);
  Py_INCREF(sparse);
  edb_run_error = failed;
  edb_handle_class = handle_class;
  edb_sparse = sparse;
  edb_name_handle = PyUnicode_InternFromString("handle");
  edb_name_value = PyUnicode_InternFromString("value");
  return PyErr_Occurred() ? -1 : 0;
}
