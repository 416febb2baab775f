/* Where a NumPy array lies that has one axis, without Python's protocol for that, which takes
   longer than to read a dozen numbers: columns of small graphs have no more. */
#pragma once

#include <Python.h>

typedef struct {  /* as in all versions of NumPy */
  PyObject_HEAD
  char *data;
  int axes;
  Py_ssize_t *shape, *strides;
} EdbColumn;

static PyTypeObject *edb_column_type = NULL;

static inline void *edb_column(PyObject *array, Py_ssize_t size) {
  EdbColumn *column = (EdbColumn *)array;
  if (Py_TYPE(array) == edb_column_type && column->axes == 1 &&
      (column->strides[0] == size || column->shape[0] < 2))
    return column->data;
  PyErr_SetString(PyExc_ValueError, "a column is an array of one axis in one piece");
  return NULL;
}

static inline long long *edb_words(PyObject *array) {
  return (long long *)edb_column(array, sizeof(long long));
}

static inline int *edb_ints(PyObject *array) { return (int *)edb_column(array, sizeof(int)); }

static inline unsigned char *edb_flags(PyObject *array) {
  return (unsigned char *)edb_column(array, 1);
}

/* Of an array of three 64-bit numbers. */
static inline int edb_prepare_columns(PyObject *array) {
  EdbColumn *column = (EdbColumn *)array;
  Py_buffer memory;
  if (PyObject_GetBuffer(array, &memory, PyBUF_SIMPLE) < 0) return -1;
  PyBuffer_Release(&memory);
  if (Py_TYPE(array)->tp_basicsize < (Py_ssize_t)sizeof(EdbColumn) || column->data != memory.buf ||
      column->axes != 1 || column->shape[0] != 3 || column->strides[0] != sizeof(long long)) {
    PyErr_SetString(PyExc_ImportError, "NumPy's arrays lie otherwise in memory");
    return -1;
  }
  Py_INCREF(Py_TYPE(array));
  edb_column_type = Py_TYPE(array);
  return 0;
}
