#define PY_SSIZE_T_CLEAN
#include "edb_model.h"

#include <Python.h>

#include <cmath>
#include <cstdlib>
#include <mutex>
#include <sstream>

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

// --- JSON ----------------------------------------------------------------------------------------

void write(std::ostream& out, double number) {
  if (std::isfinite(number)) out << number;
  else out << "null";
}

void write(std::ostream& out, const std::string& text) {
  out << '"';
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') out << '\\' << letter;
    else if (static_cast<unsigned char>(letter) >= ' ') out << letter;
    else out << "\\u00" << "01"[letter / 16] << "0123456789abcdef"[letter % 16];
  }
  out << '"';
}

template <typename Items, typename Body>
void join(std::ostream& out, const char* around, const Items& items, Body body) {
  out << around[0];
  bool is_first = true;
  for (const auto& item : items) {
    if (!is_first) out << ", ";
    is_first = false;
    body(item);
  }
  out << around[1];
}

template <typename T>
void write_numbers(std::ostream& out, const Array& array, size_t axis, const T** next) {
  if (axis == array.shape.size()) {
    write(out, static_cast<double>(*(*next)++));
    return;
  }
  const std::vector<char> places(array.shape[axis]);
  join(out, "[]", places, [&](char) { write_numbers(out, array, axis + 1, next); });
}

template <typename T> bool write_if(std::ostream& out, const Array& array, const char* dtype) {
  const T* next = array.data<T>();
  if (array.dtype == dtype) write_numbers(out, array, 0, &next);
  return array.dtype == dtype;
}

void write(std::ostream& out, const Array& array) {
  if (!(write_if<float>(out, array, "float32") || write_if<double>(out, array, "float64") ||
        write_if<int64_t>(out, array, "int64") || write_if<int32_t>(out, array, "int32") ||
        write_if<int8_t>(out, array, "int8") || write_if<uint8_t>(out, array, "uint8") ||
        write_if<bool>(out, array, "bool")))
    throw Error("an array of " + array.dtype + " is not written as JSON");
}

struct Writer {
  std::ostream& out;
  void operator()(std::monostate) { out << "null"; }
  void operator()(bool truth) { out << (truth ? "true" : "false"); }
  void operator()(int64_t number) { out << number; }
  void operator()(double number) { write(out, number); }
  void operator()(const std::string& text) { write(out, text); }
  void operator()(const Array& array) { write(out, array); }
  void operator()(const List& list) {
    join(out, "[]", list, [this](const Value& item) { visit(item); });
  }
  void operator()(const Fields& fields) {
    join(out, "{}", fields, [this](const auto& field) {
      write(out, field.first);
      out << ": ";
      visit(field.second);
    });
  }
  void visit(const Value& value) { std::visit(*this, static_cast<const AnyValue&>(value)); }
};

}  // namespace

int64_t Array::size() const {
  int64_t size = 1;
  for (const int64_t each : shape) size *= each;
  return size;
}

std::string json(const Value& value) {
  std::ostringstream out;
  out.precision(17);
  Writer{out}.visit(value);
  return out.str();
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
  const Object json = made(PyImport_ImportModule("json"));
  const Object given = made(PyObject_CallMethod(json.get(), "loads", "s#", samples.data(),
                                                static_cast<Py_ssize_t>(samples.size())));
  const Object results = made(
      PyObject_CallFunctionObjArgs(static_cast<PyObject*>(model_.get()), given.get(), nullptr));
  return std::get<List>(value_of(results.get()));
}

}  // namespace edb
