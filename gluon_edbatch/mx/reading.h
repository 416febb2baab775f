/* What a small array of the host holds, by MXNet's functions for C, which reading.py finds; Cython
   includes it in what it makes of calls.py. */
#pragma once

#include <Python.h>
#include <structmember.h>

enum { EDB_CPU = 1, EDB_DENSE = 0, EDB_AXES = 32, EDB_ENTRY = 24 };
/* By MXNet's numbers of dtypes: float32, float64, float16, uint8, int32, int8, int64, bool. */
static const Py_ssize_t edb_sizes[] = {4, 8, 2, 1, 4, 1, 8, 1};

/* In the order of `_FUNCTIONS` in reading.py. */
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

static int edb_prepare_reading(PyObject *handle, PyObject *where, PyObject *failed) {
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
