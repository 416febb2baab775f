// Networks of a bundle, run by MXNet's predictors (its C predict API).
#pragma once

#include <cstdint>
// Which takes the types of numbers for known.
#include <mxnet/c_predict_api.h>

#include <map>

#include "npy.h"

namespace edb {

// A file of the bundle, as it was when the sources were generated.
struct File {
  const char* name;
  size_t size;
  uint32_t digest;  // CRC-32
};

inline uint32_t digest_of(const std::string& data) {
  uint32_t digest = ~0u, of_byte[256];
  for (uint32_t byte = 0; byte < 256; ++byte) {
    of_byte[byte] = byte;
    for (int bit = 0; bit < 8; ++bit)
      of_byte[byte] = of_byte[byte] >> 1 ^ (of_byte[byte] & 1 ? 0xEDB88320u : 0);
  }
  for (const char each : data)
    digest = of_byte[(digest ^ static_cast<uint8_t>(each)) & 255] ^ digest >> 8;
  return ~digest;
}

inline std::string read_file(const std::string& folder, const File& file) {
  const std::string path = folder + "/" + file.name, data = contents_of(path);
  if (data.size() != file.size || digest_of(data) != file.digest)
    throw Error(path +
                " is not the file of this program's bundle: it was altered or truncated, "
                "or the bundle was exported again after the program was built");
  return data;
}

// A network with its parameters.
struct Network {
  File symbol, parameters;
  std::vector<const char*> names;  // of inputs; nullptr where it does not look
  std::vector<Spec> inputs, outputs;  // of one sample
  bool batched;  // takes several samples; or one at a time
};

inline void check(int status, const std::string& what) {
  if (status == 0) return;
  const std::string message = MXGetLastError();
  throw Error(what + ": " + message.substr(0, message.find("\nStack trace")));
}

// Predictors of a network, one for each number of samples that occurred. The largest is made first,
// and the others share its memory: MXNet would let a smaller one keep a buffer that a larger one
// has given back.
class Predictors {
 public:
  Predictors(const Network& network, const std::string& folder, size_t most)
      : network_(network), most_(network.batched ? most : 1) {
    const std::string symbol = read_file(folder, network.symbol);
    const std::string parameters = read_file(folder, network.parameters);
    if (parameters.size() > INT32_MAX) throw Error(what() + " has too many parameters for MXNet");
    const Shapes shapes(network, most_);
    std::vector<int> dtypes;
    for (const Spec* spec : shapes.specs) dtypes.push_back(static_cast<int>(spec->dtype));
    const uint32_t count = shapes.names.size();
    const int cpu = 1;
    check(
        MXPredCreateEx(symbol.c_str(), parameters.data(), static_cast<int>(parameters.size()), cpu,
                       0, count, const_cast<const char**>(shapes.names.data()), shapes.ends.data(),
                       shapes.sizes.data(), count, const_cast<const char**>(shapes.names.data()),
                       dtypes.data(), &handles_[most_]),
        what());
    check_outputs();
  }
  Predictors(const Predictors&) = delete;
  ~Predictors() {
    for (const auto& each : handles_) MXPredFree(each.second);
  }

  std::vector<Tensor> run(const std::vector<Tensor>& inputs, size_t samples) {
    std::vector<Tensor> made;
    for (const Spec& spec : network_.outputs) made.emplace_back(spec, samples);
    const size_t step = network_.batched ? samples : 1;
    for (size_t first = 0; first < samples; first += step) forward(inputs, made, first, step);
    return made;
  }

 private:
  // As the C API takes them.
  struct Shapes {
    std::vector<const char*> names;
    std::vector<const Spec*> specs;
    std::vector<uint32_t> ends{0}, sizes;

    Shapes(const Network& network, size_t samples) {
      for (size_t i = 0; i < network.inputs.size(); ++i) {
        if (!network.names[i]) continue;
        const std::vector<uint32_t>& shape = network.inputs[i].shape;
        names.push_back(network.names[i]);
        specs.push_back(&network.inputs[i]);
        sizes.insert(sizes.end(), shape.begin(), shape.end());
        sizes[ends.back()] *= samples;
        ends.push_back(sizes.size());
      }
    }
  };

  std::string what() const { return std::string("MXNet, running ") + network_.symbol.name; }

  PredictorHandle of(size_t samples) {
    const auto found = handles_.find(samples);
    if (found != handles_.end()) return found->second;
    Shapes shapes(network_, samples);
    PredictorHandle made;
    check(MXPredReshape(shapes.names.size(), shapes.names.data(), shapes.ends.data(),
                        shapes.sizes.data(), handles_[most_], &made),
          what());
    return handles_[samples] = made;
  }

  void forward(const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs, size_t first,
               size_t samples) {
    const PredictorHandle handle = of(samples);
    // The C API says float, and takes elements of whatever dtype the array has.
    for (size_t i = 0; i < inputs.size(); ++i)
      if (network_.names[i])
        check(MXPredSetInput(handle, network_.names[i],
                             reinterpret_cast<const float*>(inputs[i].data(first)),
                             inputs[i].spec().elements() * samples),
              what());
    check(MXPredForward(handle), what());
    for (size_t i = 0; i < outputs.size(); ++i)
      check(MXPredGetOutput(handle, i, reinterpret_cast<float*>(outputs[i].data(first)),
                            outputs[i].spec().elements() * samples),
            what());
  }

  // Whether MXNet makes of it what the program was compiled with.
  void check_outputs() {
    for (size_t i = 0; i < network_.outputs.size(); ++i) {
      uint32_t *shape, axes;
      int dtype;
      check(MXPredGetOutputShape(handles_[most_], i, &shape, &axes), what());
      std::vector<uint32_t> wanted = network_.outputs[i].shape, found(shape, shape + axes);
      wanted[0] *= most_;
      check(MXPredGetOutputType(handles_[most_], i, &dtype), what());
      const DType other = network_.outputs[i].dtype;
      if (found != wanted || dtype != static_cast<int>(other))
        throw Error(what() + ": result " + std::to_string(i) + " is " +
                    shown(static_cast<DType>(dtype)) + shown(found) + ", and not " + shown(other) +
                    shown(wanted));
    }
  }

  const Network& network_;
  const size_t most_;
  std::map<size_t, PredictorHandle> handles_;
};

}  // namespace edb
