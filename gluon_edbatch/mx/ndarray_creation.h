/* Make, slice and write arrays by MXNet's C API, which ndarray_creation.py finds. Cython includes
   it in what it makes of ndarray_api.py. */
#pragma once

#include <Python.h>
#include <structmember.h>

enum { EDB_HOST = 1, EDB_MOST_AXES = 32 };

/* In the order of `_FUNCTIONS` in ndarray_creation.py. */
static struct {
  int (*create)(const unsigned *, unsigned, int, int, int, int, void **);
  int (*slice)(void *, unsigned, unsigned, void **);
  int (*context)(void *, int *, int *);
  int (*dtype)(void *, int *);
  int (*wait)(void *);
  int (*shape)(void *, int *, const int **);  /* from here on as `MXNetInC` has them */
  int (*data)(void *, void **);
  void *others[3];
} edb_makes;
static Py_ssize_t edb_made_handle_at = 0, edb_made_writable_at = 0;
static PyObject *edb_creation_error = NULL, *edb_made_handle = NULL, *edb_name_of_handle = NULL;
static PyObject *edb_name_of_value = NULL;
static PyTypeObject *edb_made_type = NULL;

static PyObject *edb_creation_failed(void) {
  PyObject *error = PyObject_CallFunctionObjArgs(edb_creation_error, NULL);
  if (error) PyErr_SetObject((PyObject *)Py_TYPE(error), error);
  Py_XDECREF(error);
  return NULL;
}

/* Of an NDArrayHandle or None; -1 after an exception. */
static int edb_address_in(PyObject *handle, void **found) {
  PyObject *value;
  *found = NULL;
  if (handle == Py_None) return 0;
  value = PyObject_GetAttr(handle, edb_name_of_value);
  if (!value) return -1;
  *found = value == Py_None ? NULL : PyLong_AsVoidPtr(value);
  Py_DECREF(value);
  return *found || !PyErr_Occurred() ? 0 : -1;
}

/* What `array.handle.value` is; NULL after an exception. */
static void *edb_handle_in(PyObject *array) {
  PyObject *handle = PyObject_GetAttr(array, edb_name_of_handle);
  void *address = NULL;
  if (!handle) return NULL;
  if (!edb_address_in(handle, &address) && !address)
    PyErr_SetString(PyExc_ValueError, "an array without memory");
  Py_DECREF(handle);
  return address;
}

/* As `NDArray(NDArrayHandle(address))`. */
static PyObject *edb_made(void *address) {
  PyObject *array,
      *handle = PyObject_CallFunction(edb_made_handle, "K", (unsigned long long)address);
  if (!handle) return NULL;
  array = edb_made_type->tp_alloc(edb_made_type, 0);
  if (!array) {
    Py_DECREF(handle);
    return NULL;
  }
  *(PyObject **)((char *)array + edb_made_handle_at) = handle;
  Py_INCREF(Py_True);
  *(PyObject **)((char *)array + edb_made_writable_at) = Py_True;
  return array;
}

static PyObject *edb_make_empty(PyObject *shape, int device, int number, int late, int dtype) {
  unsigned dims[EDB_MOST_AXES];
  Py_ssize_t axis, axes = PyTuple_GET_SIZE(shape);
  void *address = NULL;
  int failed;
  if (axes > EDB_MOST_AXES) {
    PyErr_SetString(PyExc_ValueError, "an array of too many axes");
    return NULL;
  }
  for (axis = 0; axis < axes; ++axis) {
    Py_ssize_t size = PyNumber_AsSsize_t(PyTuple_GET_ITEM(shape, axis), PyExc_OverflowError);
    if (size == -1 && PyErr_Occurred()) return NULL;
    dims[axis] = (unsigned)size;
  }
  Py_BEGIN_ALLOW_THREADS failed =
      edb_makes.create(dims, (unsigned)axes, device, number, late, dtype, &address);
  Py_END_ALLOW_THREADS return failed ? edb_creation_failed() : edb_made(address);
}

static PyObject *edb_cut(PyObject *array, Py_ssize_t begin, Py_ssize_t end) {
  void *handle = edb_handle_in(array), *address = NULL;
  int failed;
  if (!handle) return NULL;
  Py_BEGIN_ALLOW_THREADS failed = edb_makes.slice(handle, (unsigned)begin, (unsigned)end, &address);
  Py_END_ALLOW_THREADS return failed ? edb_creation_failed() : edb_made(address);
}

/* Where rows of that shape are in an array of the host of that dtype; NULL for any other. */
static char *edb_place_of(void *handle, Py_ssize_t begin, const Py_buffer *rows, int dtype) {
  int device, number, has, axes, axis;
  const int *shape;
  void *data = NULL;
  if (edb_makes.context(handle, &device, &number) || device != EDB_HOST ||
      edb_makes.dtype(handle, &has) || has != dtype || edb_makes.shape(handle, &axes, &shape) ||
      axes != rows->ndim || axes < 1 || begin < 0 || begin + rows->shape[0] > shape[0])
    return NULL;
  for (axis = 1; axis < axes; ++axis)
    if (shape[axis] != rows->shape[axis]) return NULL;
  if (!rows->shape[0] || edb_makes.data(handle, &data) || !data) return NULL;
  return (char *)data + begin * (rows->len / rows->shape[0]);
}

/* Whether it was done; -1 after an exception. */
static int edb_write(PyObject *array, Py_ssize_t begin, PyObject *rows, int dtype) {
  Py_buffer view;
  char *to;
  void *handle = edb_handle_in(array);
  if (!handle) return -1;
  if (PyObject_GetBuffer(rows, &view, PyBUF_C_CONTIGUOUS)) {
    PyErr_Clear();
    return 0;
  }
  to = edb_place_of(handle, begin, &view, dtype);
  if (to) memcpy(to, view.buf, view.len);
  PyBuffer_Release(&view);
  return to != NULL;
}

static PyObject *edb_wait(PyObject *handles) {
  Py_ssize_t place;
  for (place = 0; place < PyList_GET_SIZE(handles); ++place) {
    void *address;
    int failed;
    if (edb_address_in(PyList_GET_ITEM(handles, place), &address) < 0) return NULL;
    Py_BEGIN_ALLOW_THREADS failed = edb_makes.wait(address);
    Py_END_ALLOW_THREADS if (failed) return edb_creation_failed();
  }
  Py_RETURN_NONE;
}

enum { EDB_MESSAGE = 256 };

/* Call a function of execute/native/src/calls_from_python.h; gives what it gives, or its message.
 */
static PyObject *edb_run(size_t address, PyObject *words, PyObject *handles) {
  typedef int (*Run)(const void *, const int64_t *, int64_t, void *const *, int64_t, char *,
                     int64_t);
  char message[EDB_MESSAGE] = "";
  int result = 0;
  Py_buffer view;
  Py_ssize_t place, count = PyList_GET_SIZE(handles);
  void **found = PyMem_New(void *, count);
  if (!found) return PyErr_NoMemory();
  for (place = 0; place < count && !result; ++place)
    result = edb_address_in(PyList_GET_ITEM(handles, place), &found[place]);
  if (result || PyObject_GetBuffer(words, &view, PyBUF_C_CONTIGUOUS)) {
    PyMem_Free(found);
    return NULL;
  }
  Py_BEGIN_ALLOW_THREADS result =
      ((Run)address)((const void *)&edb_makes.shape, (const int64_t *)view.buf, view.len / 8, found,
                     count, message, EDB_MESSAGE);
  Py_END_ALLOW_THREADS PyBuffer_Release(&view);
  PyMem_Free(found);
  return result < 0 ? PyUnicode_DecodeUTF8(message, strlen(message), "replace")
                    : PyBool_FromLong(result);
}

static int edb_prepare_creation(PyObject *array, PyObject *handle, PyObject *writable,
                                PyObject *where, PyObject *failed, PyObject *handle_class) {
  void **functions = (void **)&edb_makes;
  Py_ssize_t place, count = sizeof(edb_makes) / sizeof(*functions);
  if (Py_TYPE(handle) != &PyMemberDescr_Type || Py_TYPE(writable) != &PyMemberDescr_Type ||
      PySequence_Size(where) != count) {
    PyErr_SetString(PyExc_ImportError, "MXNet's arrays are of another kind");
    return -1;
  }
  edb_made_handle_at = ((PyMemberDescrObject *)handle)->d_member->offset;
  edb_made_writable_at = ((PyMemberDescrObject *)writable)->d_member->offset;
  for (place = 0; place < count; ++place) {
    PyObject *address = PySequence_GetItem(where, place);
    if (!address) return -1;
    functions[place] = PyLong_AsVoidPtr(address);
    Py_DECREF(address);
  }
  Py_INCREF(array);
  Py_INCREF(failed);
  Py_INCREF(handle_class);
  edb_made_type = (PyTypeObject *)array;
  edb_creation_error = failed;
  edb_made_handle = handle_class;
  edb_name_of_handle = PyUnicode_InternFromString("handle");
  edb_name_of_value = PyUnicode_InternFromString("value");
  return PyErr_Occurred() ? -1 : 0;
}
