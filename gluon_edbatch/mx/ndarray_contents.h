/* What small arrays of the host hold: NumPy's, and MXNet's by its functions for C, which
   ndarray_contents.py finds. Cython includes it in what it makes of calls.py. */
#pragma once

#include <Python.h>
#include <structmember.h>

enum { EDB_CPU = 1, EDB_DENSE = 0, EDB_AXES = 32, EDB_ENTRY = 24 };
/* By MXNet's numbers of dtypes: float32, float64, float16, uint8, int32, int8, int64, bool. */
static const Py_ssize_t edb_sizes[] = {4, 8, 2, 1, 4, 1, 8, 1};

/* In the order of `_FUNCTIONS` in ndarray_contents.py. */
static struct {
  int (*stype)(void *, int *);
  int (*context)(void *, int *, int *);
  int (*dtype)(void *, int *);
  int (*shape)(void *, int *, const int **);
  int (*data)(void *, void **);
  int (*wait)(void *);
} edb_mxnet;
static Py_ssize_t edb_handle_at = 0;
static PyObject *edb_mxnet_error = NULL, *edb_value = NULL;

static PyObject *edb_mxnet_failed(void) {
  PyObject *error = PyObject_CallFunctionObjArgs(edb_mxnet_error, NULL);
  if (error) PyErr_SetObject((PyObject *)Py_TYPE(error), error);
  Py_XDECREF(error);
  return NULL;
}

static int edb_wait_to_read(void *handle) {
  int failed;
  Py_BEGIN_ALLOW_THREADS failed = edb_mxnet.wait(handle);
  Py_END_ALLOW_THREADS return failed;
}

static void *edb_handle_of(PyObject *array) {
  PyObject *handle = *(PyObject **)((char *)array + edb_handle_at), *value;
  void *address;
  if (!handle) {
    PyErr_SetString(PyExc_AttributeError, "handle");
    return NULL;
  }
  value = PyObject_GetAttr(handle, edb_value);
  if (!value) return NULL;
  address = value == Py_None ? NULL : PyLong_AsVoidPtr(value);
  Py_DECREF(value);
  return address;
}

static PyObject *edb_read(PyObject *array, Py_ssize_t most, Py_ssize_t node_at) {
  int stype, device, ndim, axis, head[2 + EDB_AXES];  /* device number, dtype, shape */
  const int *shape;
  Py_ssize_t size = 1;
  void *data = NULL, *handle = edb_handle_of(array);
  char *entry = (char *)handle + node_at;
  if (PyErr_Occurred()) return NULL;
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
  return Py_BuildValue("y#y#y#", (char *)head, (Py_ssize_t)((2 + ndim) * sizeof(int)), (char *)data,
                       size * edb_sizes[head[1]], entry,
                       (Py_ssize_t)(*(void **)entry ? EDB_ENTRY : 0));
}

/* Of a NumPy array whose elements lie one behind the other: its shape, dtype and elements. */
static int edb_plain(PyObject *array, Py_buffer *view) {
  if (!PyObject_GetBuffer(array, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)) return 1;
  PyErr_Clear();
  return 0;
}

static Py_ssize_t edb_head_size(const Py_buffer *view) {
  return (Py_ssize_t)((1 + view->ndim) * sizeof(Py_ssize_t) + strlen(view->format) + 1);
}

/* None for any other. */
static PyObject *edb_contents(PyObject *array) {
  Py_buffer view;
  PyObject *contents;
  if (!edb_plain(array, &view)) Py_RETURN_NONE;
  contents = PyBytes_FromStringAndSize(NULL, edb_head_size(&view) + view.len);
  if (contents) {
    char *to = PyBytes_AS_STRING(contents);
    Py_ssize_t axes = view.ndim;
    memcpy(to, &axes, sizeof(axes));
    memcpy(to + sizeof(axes), view.shape, axes * sizeof(axes));
    strcpy(to + (1 + axes) * sizeof(axes), view.format);
    memcpy(to + edb_head_size(&view), view.buf, view.len);
  }
  PyBuffer_Release(&view);
  return contents;
}

/* Whether that is what `edb_contents` would give. */
static int edb_holds(PyObject *array, PyObject *contents) {
  Py_buffer view;
  int same;
  Py_ssize_t axes;
  const char *held = PyBytes_AS_STRING(contents);
  if (!edb_plain(array, &view)) return 0;
  memcpy(&axes, held, sizeof(axes));
  same = axes == view.ndim && PyBytes_GET_SIZE(contents) == edb_head_size(&view) + view.len &&
         !memcmp(held + sizeof(axes), view.shape, axes * sizeof(axes)) &&
         !strcmp(held + (1 + axes) * sizeof(axes), view.format) &&
         !memcmp(held + edb_head_size(&view), view.buf, view.len);
  PyBuffer_Release(&view);
  return same;
}

static int edb_prepare_contents(PyObject *handle, PyObject *where, PyObject *failed) {
  void **functions = (void **)&edb_mxnet;
  Py_ssize_t place, count = sizeof(edb_mxnet) / sizeof(*functions);
  if (Py_TYPE(handle) != &PyMemberDescr_Type || PySequence_Size(where) != count) {
    PyErr_SetString(PyExc_ImportError, "MXNet's arrays are of another kind");
    return -1;
  }
  edb_handle_at = ((PyMemberDescrObject *)handle)->d_member->offset;
  for (place = 0; place < count; ++place) {
    PyObject *address = PySequence_GetItem(where, place);
    if (!address) return -1;
    functions[place] = PyLong_AsVoidPtr(address);
    Py_DECREF(address);
  }
  Py_INCREF(failed);
  edb_mxnet_error = failed;
  edb_value = PyUnicode_InternFromString("value");
  return PyErr_Occurred() ? -1 : 0;
}
