/* Whether what a walk through a block's attributes read is still there, by the versions that
   CPython counts of dicts and types: what versions.py says of Python that has none. */
#pragma once

#include <Python.h>

enum { EDB_OBJECT, EDB_DICT, EDB_TYPE, EDB_FUNCTION };

static PyObject *edb_dict_of(PyObject *object) {
  PyObject **dict = _PyObject_GetDictPtr(object);
  return dict ? *dict : NULL;
}

static unsigned long long edb_dict_version(PyObject *dict) {
  return dict && PyDict_Check(dict) ? ((PyDictObject *)dict)->ma_version_tag : 0;
}

static unsigned long long edb_type_version(PyTypeObject *type) {
  return PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG) ? type->tp_version_tag : 0;
}

/* Of the keys as they follow each other, which `move_to_end` changes and no version tells. */
static unsigned long long edb_order(PyObject *dict) {
  unsigned long long order = 1;
  PyObject *keys = PyODict_Check(dict) ? PyObject_GetIter(dict) : NULL, *key;
  while (keys && (key = PyIter_Next(keys))) {
    order = order * 1000003ULL + (unsigned long long)(size_t)key;
    Py_DECREF(key);
  }
  Py_XDECREF(keys);
  PyErr_Clear();
  return order | 1;
}

/* Versions of an object, in up to three numbers; none is 0 if all are known. */
static void edb_versions(int kind, PyObject *object, unsigned long long *found) {
  found[0] = found[1] = found[2] = 1;
  if (kind == EDB_OBJECT) {
    found[0] = edb_dict_version(edb_dict_of(object));
    found[1] = (unsigned long long)(size_t)Py_TYPE(object);
    found[2] = edb_type_version(Py_TYPE(object));
  } else if (kind == EDB_DICT) {
    found[0] = edb_dict_version(object);
    if (found[0]) found[1] = edb_order(object);
  } else if (kind == EDB_TYPE) {
    found[0] = edb_type_version((PyTypeObject *)object);
  } else { /* of a function that closes over nothing: what may be replaced */
    PyFunctionObject *function = (PyFunctionObject *)object;
    found[0] = edb_dict_version(function->func_globals);
    found[1] = (unsigned long long)(size_t)function->func_code;
    found[2] =
        function->func_kwdefaults || (function->func_dict && PyDict_GET_SIZE(function->func_dict))
            ? 0
            : (unsigned long long)(size_t)function->func_defaults + 1;
  }
}

/* (kind, address, three versions), or None if these are not known. */
static PyObject *edb_entry(int kind, PyObject *object) {
  unsigned long long found[3];
  edb_versions(kind, object, found);
  if (!found[0] || !found[1] || !found[2]) Py_RETURN_NONE;
  return Py_BuildValue("iKKKK", kind, (unsigned long long)(size_t)object, found[0], found[1],
                       found[2]);
}

/* Whether all entries are as they were. Each object is kept alive by what is looked at before it,
   so that addresses are good until one differs. */
static int edb_unchanged(PyObject *entries) {
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(entries); i++) {
    PyObject *entry = PyList_GET_ITEM(entries, i);
    unsigned long long number[5], found[3];
    for (int j = 0; j < 5; j++) number[j] = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(entry, j));
    edb_versions((int)number[0], (PyObject *)(size_t)number[1], found);
    for (int j = 0; j < 3; j++)
      if (found[j] != number[2 + j]) return 0;
  }
  return 1;
}
