// Dropout: whether an element is dropped depends on its place and the run's seed alone. So threads
// find the same elements as one of them, and the backward pass the same as the forward pass.
#pragma once

#include <cstdint>

#include "kernels.h"

namespace edb {

// (The finisher of SplitMix64: Steele, Lea and Flood, "Fast splittable pseudorandom number
// generators", 2014.)
inline uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;

template <typename T> class Noise {
 public:
  Noise(uint64_t seed, double dropped)
      : seed_(seed),
        limit_(static_cast<uint32_t>(dropped * 4294967296.0)),
        kept_(1 / (1 - dropped)) {}

  // What multiplies the `n` elements of a line: body(i, 0 or 1 / (1 - p)).
  template <typename Body> void each(int64_t line, int64_t n, Body body) const {
    const uint32_t first = static_cast<uint32_t>(mixed(seed_ + line * kGolden)), limit = limit_;
    const T kept = kept_;
    for (int i = 0; i < static_cast<int>(n); ++i) {  // of 32 bits, as vectors multiply
      uint32_t x = first + static_cast<uint32_t>(i) * 0x9e3779b9u;
      x = (x ^ (x >> 16)) * 0x7feb352du;
      x = (x ^ (x >> 15)) * 0x846ca68bu;
      body(i, (x ^ (x >> 16)) < limit ? T(0) : kept);
    }
  }

  void multiply(int64_t line, int64_t n, T* x) const {
    each(line, n, [x](int i, T factor) { x[i] *= factor; });
  }

 private:
  uint64_t seed_;
  uint32_t limit_;
  T kept_;
};

// Of rows, the first of which is the batch's row `line`.
template <typename T>
void dropout(const Rows<T>& out, const Rows<T>& a, const Noise<T>& noise, int64_t line,
             bool accumulate) {
  for (int64_t row = 0; row < out.count; ++row) {
    T* __restrict y = out[row];
    const T* __restrict x = a[row];
    if (accumulate)
      noise.each(line + row, out.width, [=](int i, T factor) { y[i] += x[i] * factor; });
    else noise.each(line + row, out.width, [=](int i, T factor) { y[i] = x[i] * factor; });
  }
}

}  // namespace edb
