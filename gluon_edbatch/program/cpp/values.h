// What samples that are together have: tensors, and Python's numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace edb {

// What a user can mend: its text is all that is shown.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Numbered as MXNet does.
enum class DType {
  kFloat32 = 0,
  kFloat64 = 1,
  kUint8 = 3,
  kInt32 = 4,
  kInt8 = 5,
  kInt64 = 6,
  kBool = 7
};

// f(T()), with T what the elements are.
template <class F>
auto with_type(DType dtype, F f) {
  switch (dtype) {
    case DType::kFloat32: return f(float());
    case DType::kFloat64: return f(double());
    case DType::kUint8: return f(uint8_t());
    case DType::kInt32: return f(int32_t());
    case DType::kInt8: return f(int8_t());
    case DType::kInt64: return f(int64_t());
    default: return f(bool());
  }
}

// A tensor of one sample.
struct Spec {
  DType dtype;
  std::vector<uint32_t> shape;

  size_t elements() const {
    size_t made = 1;
    for (const uint32_t size : shape) made *= size;
    return made;
  }
  size_t bytes() const {
    return elements() * with_type(dtype, [](auto zero) { return sizeof(zero); });
  }
};

// Tensors of some samples, one after the other; copies share them.
class Tensor {
 public:
  Tensor(Spec spec, size_t samples)
      : spec_(std::move(spec)),
        samples_(samples),
        bytes_(spec_.bytes()),
        data_(new char[bytes_ * samples], std::default_delete<char[]>()) {}

  const Spec& spec() const { return spec_; }
  char* data(size_t sample = 0) const { return data_.get() + sample * bytes_; }

  // f(elements, how many), all samples together.
  template <class F>
  void elements(F f) const {
    with_type(spec_.dtype, [&](auto zero) {
      f(reinterpret_cast<decltype(zero)*>(data()), spec_.elements() * samples_);
    });
  }
  // Writes so many samples from one on.
  void copy(size_t sample, const char* from, size_t samples) const {
    std::memcpy(data(sample), from, samples * bytes_);
  }

 private:
  Spec spec_;
  size_t samples_, bytes_;
  std::shared_ptr<char> data_;
};

// A number of each sample: double, int64_t or bool, as Python's float, int and bool. From block to
// block they are tensors without axes.
template <class T>
using Numbers = std::vector<T>;
template <class T>
constexpr DType number_dtype = std::is_same_v<T, double> ? DType::kFloat64
                               : std::is_same_v<T, bool> ? DType::kBool
                                                         : DType::kInt64;

// The tensors of some of the samples.
inline Tensor take(const Tensor& tensor, const std::vector<size_t>& places) {
  Tensor made(tensor.spec(), places.size());
  for (size_t i = 0; i < places.size(); ++i) made.copy(i, tensor.data(places[i]), 1);
  return made;
}

}  // namespace edb
