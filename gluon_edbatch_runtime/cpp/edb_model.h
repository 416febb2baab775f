// Run exported models from C++: samples as JSON, results as values, arrays among them.
//
//   edb::Model model("exported");
//   const edb::List results = model(R"([{"word": 1, "children": []}])");
//
// The program has Python inside, with gluon_edbatch_runtime and NumPy, and without MXNet. Models
// may be called by several threads, which take turns in Python; the native executor runs beside
// them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

namespace edb {

// What Python raised: the kind of the error, and its message.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Array {  // in row-major order
  std::vector<int64_t> shape;
  std::string dtype;  // NumPy's name, such as "float32"
  std::vector<char> bytes;

  int64_t size() const;  // elements
  template <typename T> const T* data() const { return reinterpret_cast<const T*>(bytes.data()); }
};

struct Value;
using List = std::vector<Value>;             // of lists and tuples
using Fields = std::map<std::string, Value>;  // of dicts, and of objects
using AnyValue =
    std::variant<std::monostate, bool, int64_t, double, std::string, Array, List, Fields>;
struct Value : AnyValue {
  using AnyValue::AnyValue;
};

class Model {
 public:
  // Loads the folder that `edb.export(net, samples, folder)` wrote, and checks it. Throws Error.
  explicit Model(const std::string& folder);

  // Runs a JSON list of samples, in batches, and returns what the model returns for each. Throws
  // Error, which names the field, for a sample that is not like those of the export.
  List operator()(const std::string& samples) const;

  // The same, with each result as JSON. Numbers that are not finite are texts, such as "nan".
  std::vector<std::string> json(const std::string& samples) const;

 private:
  std::shared_ptr<void> model_;
};

}  // namespace edb
