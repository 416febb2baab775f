/* Make, slice, read and write small arrays by MXNet's C API, which ndarray_memory.py finds; and
   compare NumPy's arrays. Cython includes it in what it makes of arrays.py and
   calls.py. */
#pragma once

#include <Python.h>
#include <structmember.h>

enum { EDB_CPU = 1, EDB_DENSE = 0, EDB_AXES = 32, EDB_ENTRY = 24, EDB_MESSAGE = 256 };
/* By MXNet's numbers of dtypes: float32, float64, float16, uint8, int32, int8, int64, bool. */
static const Py_ssize_t edb_sizes[] = {4, 8, 2, 1, 4, 1, 8, 1};

/* In the order of `_FUNCTIONS` in ndarray_memory.py. */
static struct {
  int (*create)(const unsigned *, unsigned, int, int, int, int, void **);
  int (*slice)(void *, unsigned, unsigned, void **);
  int (*stype)(void *, int *);
  int (*context)(void *, int *, int *);
  int (*dtype)(void *, int *);
  int (*wait)(void *);
  int (*shape)(void *, int *, const int **);  /* from here on as `MXNetInC` has them */
  int (*data)(void *, void **);
  void *others[3];
} edb_mxnet;
static Py_ssize_t edb_handle_at = 0, edb_writable_at = 0;
static PyObject *edb_mxnet_error = NULL, *edb_handle_class = NULL;
static PyObject *edb_name_of_handle = NULL, *edb_name_of_value = NULL;
static PyTypeObject *edb_array_class = NULL;

static inline PyObject *edb_mxnet_failed(void) {
  PyObject *error = PyObject_CallFunctionObjArgs(edb_mxnet_error, NULL);
  if (error) PyErr_SetObject((PyObject *)Py_TYPE(error), error);
  Py_XDECREF(error);
  return NULL;
}

static inline int edb_wait_to_read(void *handle) {
  int failed;
  Py_BEGIN_ALLOW_THREADS failed = edb_mxnet.wait(handle);
  Py_END_ALLOW_THREADS return failed;
}

/* Of an NDArrayHandle or None; -1 after an exception. */
static inline int edb_address_in(PyObject *handle, void **found) {
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
static inline void *edb_handle_in(PyObject *array) {
  PyObject *handle = PyObject_GetAttr(array, edb_name_of_handle);
  void *address = NULL;
  if (!handle) return NULL;
  if (!edb_address_in(handle, &address) && !address)
    PyErr_SetString(PyExc_ValueError, "an array without memory");
  Py_DECREF(handle);
  return address;
}

/* As `NDArray(NDArrayHandle(address))`. */
static inline PyObject *edb_made(void *address) {
  PyObject *array,
      *handle = PyObject_CallFunction(edb_handle_class, "K", (unsigned long long)address);
  if (!handle) return NULL;
  array = edb_array_class->tp_alloc(edb_array_class, 0);
  if (!array) {
    Py_DECREF(handle);
    return NULL;
  }
  *(PyObject **)((char *)array + edb_handle_at) = handle;
  Py_INCREF(Py_True);
  *(PyObject **)((char *)array + edb_writable_at) = Py_True;
  return array;
}

static inline PyObject *edb_make_empty(PyObject *shape, int device, int number, int late,
                                       int dtype) {
  unsigned dims[EDB_AXES];
  Py_ssize_t axis, axes = PyTuple_GET_SIZE(shape);
  void *address = NULL;
  int failed;
  if (axes > EDB_AXES) {
    PyErr_SetString(PyExc_ValueError, "an array of too many axes");
    return NULL;
  }
  for (axis = 0; axis < axes; ++axis) {
    Py_ssize_t size = PyNumber_AsSsize_t(PyTuple_GET_ITEM(shape, axis), PyExc_OverflowError);
    if (size == -1 && PyErr_Occurred()) return NULL;
    dims[axis] = (unsigned)size;
  }
  Py_BEGIN_ALLOW_THREADS failed =
      edb_mxnet.create(dims, (unsigned)axes, device, number, late, dtype, &address);
  Py_END_ALLOW_THREADS return failed ? edb_mxnet_failed() : edb_made(address);
}

static inline PyObject *edb_cut(PyObject *array, Py_ssize_t begin, Py_ssize_t end) {
  void *handle = edb_handle_in(array), *address = NULL;
  int failed;
  if (!handle) return NULL;
  Py_BEGIN_ALLOW_THREADS failed = edb_mxnet.slice(handle, (unsigned)begin, (unsigned)end, &address);
  Py_END_ALLOW_THREADS return failed ? edb_mxnet_failed() : edb_made(address);
}

/* Where rows of that shape are in an array of the host of that dtype; NULL for any other. */
static inline char *edb_place_of(void *handle, Py_ssize_t begin, const Py_buffer *rows, int dtype) {
  int device, number, has, axes, axis;
  const int *shape;
  void *data = NULL;
  if (edb_mxnet.context(handle, &device, &number) || device != EDB_CPU ||
      edb_mxnet.dtype(handle, &has) || has != dtype || edb_mxnet.shape(handle, &axes, &shape) ||
      axes != rows->ndim || axes < 1 || begin < 0 || begin + rows->shape[0] > shape[0])
    return NULL;
  for (axis = 1; axis < axes; ++axis)
    if (shape[axis] != rows->shape[axis]) return NULL;
  if (!rows->shape[0] || edb_mxnet.data(handle, &data) || !data) return NULL;
  return (char *)data + begin * (rows->len / rows->shape[0]);
}

/* Whether it was done; -1 after an exception. */
static inline int edb_write(PyObject *array, Py_ssize_t begin, PyObject *rows, int dtype) {
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

static inline PyObject *edb_wait(PyObject *handles) {
  Py_ssize_t place;
  for (place = 0; place < PyList_GET_SIZE(handles); ++place) {
    void *address;
    if (edb_address_in(PyList_GET_ITEM(handles, place), &address) < 0) return NULL;
    if (edb_wait_to_read(address)) return edb_mxnet_failed();
  }
  Py_RETURN_NONE;
}

/* Call a function of execute/native/src/calls_from_python.h; gives what it gives, or its message.
 */
static inline PyObject *edb_run(size_t address, PyObject *words, PyObject *handles) {
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
      ((Run)address)((const void *)&edb_mxnet.shape, (const int64_t *)view.buf, view.len / 8, found,
                     count, message, EDB_MESSAGE);
  Py_END_ALLOW_THREADS PyBuffer_Release(&view);
  PyMem_Free(found);
  return result < 0 ? PyUnicode_DecodeUTF8(message, strlen(message), "replace")
                    : PyBool_FromLong(result);
}

static inline PyObject *edb_read(PyObject *array, Py_ssize_t most, Py_ssize_t node_at) {
  int stype, device, ndim, axis, head[2 + EDB_AXES];  /* device number, dtype, shape */
  const int *shape;
  Py_ssize_t size = 1;
  void *data = NULL, *handle;
  char *entry;
  PyObject *slot = *(PyObject **)((char *)array + edb_handle_at); /* unseen by the mutation guard */
  if (!slot) PyErr_SetString(PyExc_AttributeError, "handle");
  if (!slot || edb_address_in(slot, &handle) < 0) return NULL;
  if (!handle || node_at < 0) Py_RETURN_NONE;
  if (edb_mxnet.stype(handle, &stype) || edb_mxnet.context(handle, &device, &head[0]) ||
      edb_mxnet.dtype(handle, &head[1]) || edb_mxnet.shape(handle, &ndim, &shape))
    return edb_mxnet_failed();
  if (stype != EDB_DENSE || device != EDB_CPU || ndim <= 0 || ndim > EDB_AXES || head[1] < 0 ||
      head[1] >= (int)(sizeof(edb_sizes) / sizeof(*edb_sizes)))
    Py_RETURN_NONE;
  for (axis = 0; axis < ndim && 0 < size && size < most; ++axis)
    size *= head[2 + axis] = shape[axis];
  if (size <= 0 || size >= most) Py_RETURN_NONE;
  if (edb_wait_to_read(handle) || edb_mxnet.data(handle, &data)) return edb_mxnet_failed();
  if (!data) Py_RETURN_NONE;
  entry = (char *)handle + node_at;
  return Py_BuildValue("y#y#y#", (char *)head, (Py_ssize_t)((2 + ndim) * sizeof(int)), (char *)data,
                       size * edb_sizes[head[1]], entry,
                       (Py_ssize_t)(*(void **)entry ? EDB_ENTRY : 0));
}

/* Whether a NumPy array has the shape, dtype and elements of a copy. */
static inline int edb_holds(PyObject *array, PyObject *copy) {
  Py_buffer one, other;
  int same = 0, flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT;
  if (!PyObject_GetBuffer(array, &one, flags)) {
    if (!PyObject_GetBuffer(copy, &other, flags)) {
      same = one.ndim == other.ndim && one.len == other.len &&
             !memcmp(one.shape, other.shape, one.ndim * sizeof(*one.shape)) &&
             !strcmp(one.format, other.format) && !memcmp(one.buf, other.buf, one.len);
      PyBuffer_Release(&other);
    }
    PyBuffer_Release(&one);
  }
  PyErr_Clear();
  return same;
}

/* `given` is `IN_C` of ndarray_memory.py. */
static inline int edb_prepare(PyObject *given) {
  PyObject *array, *handle, *writable, *where;
  void **functions = (void **)&edb_mxnet;
  Py_ssize_t place, count = sizeof(edb_mxnet) / sizeof(*functions);
  if (!PyArg_ParseTuple(given, "OO!O!OOO", &array, &PyMemberDescr_Type, &handle,
                        &PyMemberDescr_Type, &writable, &where, &edb_mxnet_error,
                        &edb_handle_class))
    return -1;
  if (PySequence_Size(where) != count) {
    PyErr_SetString(PyExc_ImportError, "MXNet's arrays are of another kind");
    return -1;
  }
  edb_handle_at = ((PyMemberDescrObject *)handle)->d_member->offset;
  edb_writable_at = ((PyMemberDescrObject *)writable)->d_member->offset;
  for (place = 0; place < count; ++place) {
    PyObject *address = PySequence_GetItem(where, place);
    if (!address) return -1;
    functions[place] = PyLong_AsVoidPtr(address);
    Py_DECREF(address);
  }
  Py_INCREF(given); /* with what is in it */
  edb_array_class = (PyTypeObject *)array;
  edb_name_of_handle = PyUnicode_InternFromString("handle");
  edb_name_of_value = PyUnicode_InternFromString("value");
  return PyErr_Occurred() ? -1 : 0;
}
