/* Whether what a walk through a block's attributes read is still there, by versions of dicts and
   types: what versions.py says of Python that has none. */
#pragma once

#include <Python.h>

enum { EDB_OBJECT, EDB_DICT, EDB_TYPE, EDB_FUNCTION };

static PyObject *edb_dict_of(PyObject *object) {
#if PY_VERSION_HEX >= 0x030D0000 /* makes it: attributes may lie in the object until then */
  PyObject *dict = PyObject_GenericGetDict(object, NULL);
  if (!dict) PyErr_Clear();
  Py_XDECREF(dict);
  return dict;
#else
  PyObject **dict = _PyObject_GetDictPtr(object);
  return dict ? *dict : NULL;
#endif
}

#if PY_VERSION_HEX >= 0x030C0000
/* CPython's own versions of dicts are going away. A dict gets one here when it is asked for it, and
   none any more once a watcher is told of a change: the next is another. Each has two places, and
   one that is pushed out of both counts as changed. */
enum { EDB_WATCHED = 1 << 14 };
static struct {
  PyObject *dict;
  unsigned long long version;
} edb_watched[EDB_WATCHED];

static size_t edb_place_of_dict(PyObject *dict, int second) {
  size_t bits = (size_t)dict >> 4;
  return (second ? bits * 0x9E3779B97F4A7C15ULL >> 40 : bits) % EDB_WATCHED;
}

static int edb_dict_changes(PyDict_WatchEvent event, PyObject *dict, PyObject *key,
                            PyObject *value) {
  for (int second = 0; second < 2; second++) {
    size_t place = edb_place_of_dict(dict, second);
    if (edb_watched[place].dict == dict) edb_watched[place].dict = NULL;
  }
  return 0;
}

/* Python 3.13 may keep attributes in the object itself, and then watchers of its dict are not told
   of all changes. A key that is no name makes it move them to the dict. */
static int edb_hold_itself(PyObject *dict) {
#if PY_VERSION_HEX >= 0x030D0000
  if (((PyDictObject *)dict)->ma_values) {
    PyObject *key = PyLong_FromLong(0);
    int failed = !key || PyDict_SetItem(dict, key, Py_None) < 0 || PyDict_DelItem(dict, key) < 0;
    Py_XDECREF(key);
    if (failed) return -1;
    return ((PyDictObject *)dict)->ma_values ? -1 : 0;
  }
#endif
  return 0;
}

static unsigned long long edb_dict_version(PyObject *dict) {
  static int watcher = -2;
  static unsigned long long last = 0;
  size_t first, place;
  if (!dict || !PyDict_Check(dict)) return 0;
  first = edb_place_of_dict(dict, 0);
  place = edb_place_of_dict(dict, 1);
  if (edb_watched[first].dict == dict) return edb_watched[first].version;
  if (edb_watched[place].dict == dict) return edb_watched[place].version;
  if (watcher == -2) watcher = PyDict_AddWatcher(edb_dict_changes);
  if (watcher < 0 || edb_hold_itself(dict) < 0 || PyDict_Watch(watcher, dict) < 0) {
    PyErr_Clear(); /* other libraries may have taken all watchers */
    return 0;
  }
  if (!edb_watched[first].dict) place = first;
  edb_watched[place].dict = dict;
  return edb_watched[place].version = ++last;
}
#else
static unsigned long long edb_dict_version(PyObject *dict) {
  return dict && PyDict_Check(dict) ? ((PyDictObject *)dict)->ma_version_tag : 0;
}
#endif

static unsigned long long edb_type_version(PyTypeObject *type) {
#if PY_VERSION_HEX >= 0x030C0000
  return type->tp_version_tag; /* 0 if none */
#else
  return PyType_HasFeature(type, Py_TPFLAGS_VALID_VERSION_TAG) ? type->tp_version_tag : 0;
#endif
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
