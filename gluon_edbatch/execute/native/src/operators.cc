// The operators that MXNet sees: a run of batches forward, and its gradients.
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "mxnet/lib_api.h"

#include "executor.h"

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

// The inputs from `written` on: arenas or gradients, which no operator of MXNet's returns.
MXReturnValue mutated(const Attributes& attributes, std::vector<int>* indices) {
  for (int64_t i = number(attributes, "written"); i < number(attributes, "written_end"); ++i)
    indices->push_back(static_cast<int>(i));
  return MX_SUCCESS;
}

template <typename T>
std::vector<T*> take(Tensors* tensors, size_t* next, int64_t count) {
  std::vector<T*> data;
  for (int64_t i = 0; i < count; ++i) data.push_back(tensors->at((*next)++).data<T>());
  return data;
}

template <typename T>
edb::Arrays<T> take_arrays(const edb::Run& run, Tensors* tensors, size_t* next) {
  edb::Arrays<T> arrays;
  arrays.indices = tensors->at((*next)++).data<int32_t>();
  arrays.parameters = take<T>(tensors, next, run.parameters);
  arrays.arenas = take<T>(tensors, next, run.arenas);
  arrays.workspace = tensors->at((*next)++).data<T>();
  return arrays;
}

// Forward: table, indices, parameters, arenas, workspace, and laps if these are asked for (the
// last three are written).
template <typename T> void run_forward(const edb::Run& run, Tensors* tensors) {
  size_t next = 1;
  edb::Arrays<T> arrays = take_arrays<T>(run, tensors, &next);
  if (next < tensors->size()) arrays.laps = tensors->at(next).data<int64_t>();
  edb::Executor<T>(run, std::move(arrays)).forward();
}

// Backward: table, indices, parameters, arenas, workspace, gradients of the arenas and of the
// parameters (both are added to).
template <typename T> void run_backward(const edb::Run& run, Tensors* tensors) {
  size_t next = 1;
  edb::Arrays<T> arrays = take_arrays<T>(run, tensors, &next);
  arrays.gradients = take<T>(tensors, &next, run.arenas);
  arrays.parameter_gradients = take<T>(tensors, &next, run.parameters);
  edb::Executor<T>(run, std::move(arrays)).backward();
}

template <void (*Single)(const edb::Run&, Tensors*), void (*Double)(const edb::Run&, Tensors*)>
MXReturnValue compute(const Attributes&, Tensors* inputs, Tensors*, const OpResource&) {
  try {
    MXTensor& table = inputs->at(0);
    const edb::Run run = edb::read_run(table.data<int64_t>(), table.size());
    (run.element_size == 4 ? Single : Double)(run, inputs);
    return MX_SUCCESS;
  } catch (const std::exception& error) {
    MX_ERROR_MSG << "gluon_edbatch's native operators: " << error.what();
    return MX_FAIL;
  }
}

}  // namespace

REGISTER_OP(edb_run_forward)
    .setForward(compute<run_forward<float>, run_forward<double>>, "cpu")
    .setParseAttrs(parse)
    .setInferType(infer_type)
    .setInferShape(infer_shape)
    .setMutateInputs(mutated);

REGISTER_OP(edb_run_backward)
    .setForward(compute<run_backward<float>, run_backward<double>>, "cpu")
    .setParseAttrs(parse)
    .setInferType(infer_type)
    .setInferShape(infer_shape)
    .setMutateInputs(mutated);

#ifdef EDB_STOPWATCH
// Nanoseconds so far by kind of work, in the order of edb::Work; then anew from 0.
extern "C" void edb_stopwatch(int64_t* nanoseconds) {
  for (int i = 0; i < edb::kWorks; ++i) nanoseconds[i] = edb::nanoseconds[i].exchange(0);
}
#endif

MXReturnValue initialize(int version) {
  if (version >= 10700) return MX_SUCCESS;
  MX_ERROR_MSG << "gluon_edbatch's native operators need MXNet 1.7 or later";
  return MX_FAIL;
}
