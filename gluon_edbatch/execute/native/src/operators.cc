// The operators that MXNet sees: a run of batches forward, and a gather.
#include <string>
#include <unordered_map>
#include <vector>

#include "mxnet/lib_api.h"

#include "calls_from_python.h"

using namespace mxnet::ext;

namespace {

using Attributes = std::unordered_map<std::string, std::string>;
using Tensors = std::vector<MXTensor>;

int64_t number(const Attributes& attributes, const char* name) {
  return std::stoll(attributes.at(name));
}

MXReturnValue parse(const Attributes& attributes, int* inputs, int* outputs) {
  *inputs = static_cast<int>(number(attributes, "inputs"));
  *outputs = 1;
  return MX_SUCCESS;
}

MXReturnValue infer_type(const Attributes&, std::vector<int>*, std::vector<int>* outputs) {
  outputs->at(0) = kFloat32;
  return MX_SUCCESS;
}

MXReturnValue infer_shape(const Attributes&, std::vector<std::vector<unsigned int>>*,
                          std::vector<std::vector<unsigned int>>* outputs) {
  outputs->at(0) = {1};
  return MX_SUCCESS;
}

// The inputs from `written` on: arenas or gradients, which no operator of MXNet's returns. And the
// table, so that who waits for it waits for the run.
MXReturnValue mutated(const Attributes& attributes, std::vector<int>* indices) {
  const int64_t end = number(attributes, "inputs");
  indices->push_back(0);
  for (int64_t i = number(attributes, "written"); i < end; ++i)
    indices->push_back(static_cast<int>(i));
  return MX_SUCCESS;
}

// The arrays of an operator from the second on, one after the other.
class Given {
 public:
  explicit Given(Tensors* tensors) : tensors_(*tensors) {}
  bool empty() const { return next_ == tensors_.size(); }
  int64_t size() const { return tensors_.at(next_).size(); }
  template <typename T> T* next() { return tensors_.at(next_++).data<T>(); }

 private:
  Tensors& tensors_;
  size_t next_ = 1;
};

// Forward: table, weights, arenas, workspace, and laps if these are asked for (the last three are
// written).
template <typename T> void run_forward(const edb::Run& run, Given given) {
  edb::Arrays<T> arrays = edb::take_arrays<T>(run, &given);
  arrays.workspace = edb::take_workspace<T>(run, &given);
  if (!given.empty()) arrays.laps = given.next<int64_t>();
  edb::WholeRun<T>(run, std::move(arrays)).forward();
}

MXReturnValue forward(const Attributes&, Tensors* inputs, Tensors*, const OpResource&) {
  try {
    MXTensor& table = inputs->at(0);
    const edb::Run run = edb::read_run(table.data<int64_t>(), table.size());
    (run.element_size == 4 ? run_forward<float> : run_forward<double>)(run, Given(inputs));
    return MX_SUCCESS;
  } catch (const std::exception& error) {
    MX_ERROR_MSG << "gluon_edbatch's native operators: " << error.what();
    return MX_FAIL;
  }
}

// See `edb::gather`: the table, the sources, the target.
MXReturnValue gather(const Attributes&, Tensors* inputs, Tensors*, const OpResource&) {
  MXTensor& table = inputs->at(0);
  std::vector<char*> arrays;
  for (Given given(inputs); !given.empty();) arrays.push_back(given.next<char>());
  edb::gather(table.data<int64_t>(), table.size(), arrays);
  return MX_SUCCESS;
}

}  // namespace

REGISTER_OP(edb_gather)
    .setForward(gather, "cpu")
    .setParseAttrs(parse)
    .setInferType(infer_type)
    .setInferShape(infer_shape)
    .setMutateInputs(mutated);

REGISTER_OP(edb_run_forward)
    .setForward(forward, "cpu")
    .setParseAttrs(parse)
    .setInferType(infer_type)
    .setInferShape(infer_shape)
    .setMutateInputs(mutated);

MXReturnValue initialize(int) { return MX_SUCCESS; }  // `mx.require` has looked at the version
