/* Python 3.12 and 3.13 count a reference up in the lower half of a word, and down in all of it. A
   processor that is to read a word of which it has just written half waits for the memory: some 13
   cycles each time that compiled code holds an object for a moment. Counted up in all of the word,
   as before and after these versions, there is nothing to wait for. */
#pragma once

#include <Python.h>

#if 0x030C0000 <= PY_VERSION_HEX && PY_VERSION_HEX < 0x030E0000 && SIZEOF_VOID_P > 4 && \
    !defined(Py_GIL_DISABLED) && !defined(Py_REF_DEBUG)
static inline void edb_incref(PyObject *object) {
  Py_ssize_t count = object->ob_refcnt;
  if ((int32_t)count >= 0) object->ob_refcnt = count + 1; /* others live for ever */
}

static inline PyObject *edb_new_ref(PyObject *object) {
  edb_incref(object);
  return object;
}

#undef Py_INCREF
#undef Py_XINCREF
#undef Py_NewRef
#define Py_INCREF(object) edb_incref(_PyObject_CAST(object))
#define Py_XINCREF(object) ((object) ? Py_INCREF(object) : (void)0)
#define Py_NewRef(object) edb_new_ref(_PyObject_CAST(object))
#endif
