#define PY_SSIZE_T_CLEAN
#include "edb_model.h"

#include <Python.h>

#include <cstdlib>
#include <mutex>

namespace edb {
namespace {

class Locked {  // Python is this thread's
 public:
  Locked() : state_(PyGILState_Ensure()) {}
  ~Locked() { PyGILState_Release(state_); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  PyGILState_STATE state_;
};

struct Forget {
  void operator()(PyObject* object) const { Py_DECREF(object); }
};
using Object = std::unique_ptr<PyObject, Forget>;

std::string text_of(PyObject* object) {
  const Object text(object ? PyObject_Str(object) : nullptr);
  const char* letters = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  if (!letters) PyErr_Clear();
  return letters ? letters : "";
}

[[noreturn]] void raise() {
  PyObject *kind = nullptr, *error = nullptr, *trace = nullptr;
  PyErr_Fetch(&kind, &error, &trace);
  PyErr_NormalizeException(&kind, &error, &trace);
  const Object owned[] = {Object(kind), Object(error), Object(trace)};
  const Object name(kind ? PyObject_GetAttrString(kind, "__name__") : nullptr);
  throw Error(text_of(name.get()) + ": " + text_of(error));
}

// An object that a call of Python's returned; else what it raised is thrown.
Object made(PyObject* object) {
  if (!object) raise();
  return Object(object);
}

// Begins Python as the interpreter that CMake found, or that EDB_PYTHON names: so packages of its
// environment are found.
void begin_python() {
  if (Py_IsInitialized()) return;
  const char* named = std::getenv("EDB_PYTHON");
  PyConfig config;
  PyConfig_InitPythonConfig(&config);
  config.install_signal_handlers = 0;
  PyStatus status =
      PyConfig_SetBytesString(&config, &config.executable, named ? named : EDB_PYTHON);
  if (!PyStatus_Exception(status)) status = Py_InitializeFromConfig(&config);
  PyConfig_Clear(&config);
  if (PyStatus_Exception(status))
    throw Error(std::string("Python does not begin: ") + (status.err_msg ? status.err_msg : ""));
  PyEval_SaveThread();
}

Value array_of(PyObject* object) {
  const Object dtype = made(PyObject_GetAttrString(object, "dtype"));
  const Object in_order = made(PyObject_CallMethod(object, "copy", nullptr));
  const Object name = made(PyObject_GetAttrString(dtype.get(), "name"));
  Py_buffer view;
  if (PyObject_GetBuffer(in_order.get(), &view, PyBUF_C_CONTIGUOUS)) raise();
  const char* begin = static_cast<const char*>(view.buf);
  Array array{{view.shape, view.shape + view.ndim}, text_of(name.get()), {begin, begin + view.len}};
  PyBuffer_Release(&view);
  return array;
}

Value value_of(PyObject* object);

Fields fields_of(PyObject* mapping) {
  const Object items = made(PyMapping_Items(mapping));
  Fields fields;
  for (Py_ssize_t i = 0; i < PyList_Size(items.get()); ++i) {
    PyObject* pair = PyList_GetItem(items.get(), i);
    fields[text_of(PyTuple_GetItem(pair, 0))] = value_of(PyTuple_GetItem(pair, 1));
  }
  return fields;
}

Value value_of(PyObject* object) {
  if (object == Py_None) return Value();
  if (PyBool_Check(object)) return object == Py_True;
  if (PyFloat_Check(object)) return PyFloat_AsDouble(object);
  if (PyUnicode_Check(object)) return text_of(object);
  if (PyLong_Check(object)) {
    const int64_t number = PyLong_AsLongLong(object);
    if (number == -1 && PyErr_Occurred()) raise();
    return number;
  }
  if (PyList_Check(object) || PyTuple_Check(object)) {
    const Object items = made(PySequence_Fast(object, "a list"));
    List list;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i)
      list.push_back(value_of(PySequence_Fast_GET_ITEM(items.get(), i)));
    return list;
  }
  if (PyDict_Check(object)) return fields_of(object);
  if (PyObject_HasAttrString(object, "ndim") && PyObject_CheckBuffer(object))
    return array_of(object);
  const Object fields = made(PyObject_GetAttrString(object, "__dict__"));
  return fields_of(fields.get());
}

Object run(void* model, const std::string& samples) {
  const Object json = made(PyImport_ImportModule("json"));
  const Object given = made(PyObject_CallMethod(json.get(), "loads", "s#", samples.data(),
                                                static_cast<Py_ssize_t>(samples.size())));
  return made(PyObject_CallFunctionObjArgs(static_cast<PyObject*>(model), given.get(), nullptr));
}

}  // namespace

int64_t Array::size() const {
  int64_t size = 1;
  for (const int64_t each : shape) size *= each;
  return size;
}

Model::Model(const std::string& folder) {
  static std::once_flag begun;
  std::call_once(begun, begin_python);
  const Locked locked;
  const Object runtime = made(PyImport_ImportModule("gluon_edbatch_runtime"));
  Object model = made(PyObject_CallMethod(runtime.get(), "load", "s", folder.c_str()));
  model_ = std::shared_ptr<void>(model.release(), [](void* object) {
    const Locked again;
    Py_DECREF(static_cast<PyObject*>(object));
  });
}

List Model::operator()(const std::string& samples) const {
  const Locked locked;
  return std::get<List>(value_of(run(model_.get(), samples).get()));
}

std::vector<std::string> Model::json(const std::string& samples) const {
  const Locked locked;
  const Object results = run(model_.get(), samples);
  const Object schema = made(PyImport_ImportModule("gluon_edbatch_core.bundle.sample_schema"));
  const Object json = made(PyImport_ImportModule("json"));
  std::vector<std::string> found;
  for (Py_ssize_t i = 0; i < PyList_Size(results.get()); ++i) {
    PyObject* result = PyList_GetItem(results.get(), i);
    const Object plain = made(PyObject_CallMethod(schema.get(), "json_of", "(O)", result));
    const Object text = made(PyObject_CallMethod(json.get(), "dumps", "(O)", plain.get()));
    found.push_back(text_of(text.get()));
  }
  return found;
}

}  // namespace edb
