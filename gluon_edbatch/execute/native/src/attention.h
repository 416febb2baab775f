// Attention among the values of a row: each head's weights live for one row of the batch only, and
// are computed again by the backward pass. (The idea is that of Dao et al., "FlashAttention", 2022;
// rows are short here, so that there is nothing to tile.)
#pragma once

#include <cmath>
#include <vector>

#include "gemm.h"
#include "kernels.h"

namespace edb {

// A matrix (lines, width) whose lines begin at whole vectors.
template <typename T> class Lines {
 public:
  void resize(int64_t lines, int64_t width) {
    constexpr int64_t lanes = Vector<T>::lanes;
    step_ = (width + lanes - 1) / lanes * lanes;
    memory_.assign(lines * step_, T(0));
  }
  T* operator[](int64_t line) { return memory_.data() + line * step_; }
  int64_t step() const { return step_; }

 private:
  std::vector<T> memory_;
  int64_t step_ = 0;
};

// The columns of one head in the values of one row.
template <typename T> struct Head {
  T* data;
  int64_t stride, width, length;
  T* operator[](int64_t m) const { return data + m * stride; }
};

template <typename T> class Attention {
 public:
  Attention(int64_t heads, T scale, const int32_t* parents)
      : heads_(heads), scale_(scale), parents_(parents) {}

  // out = softmax(scale q k') v
  void forward(const Rows<T>& out, const Rows<T>& q, const Rows<T>& k, const Rows<T>& v) {
    each_head(q.count, [&](const auto& head) {
      weigh(head(q), head(k));
      multiply(weights_, head(v), head(out), false);
    });
  }

  void backward(const Rows<T>& dy, const Rows<T>& q, const Rows<T>& k, const Rows<T>& v,
                const Rows<T>& dq, const Rows<T>& dk, const Rows<T>& dv) {
    each_head(q.count, [&](const auto& head) {
      weigh(head(q), head(k));
      if (dv) multiply_turned(weights_, head(dy), head(dv));
      if (!dq && !dk) return;
      products(head(dy), head(v), slopes_);
      slopes_of_scores(head(q).length);
      if (dq) multiply(slopes_, head(k), head(dq), true);
      if (dk) multiply_turned(slopes_, head(q), head(dk));
    });
  }

 private:
  template <typename Body> void each_head(int64_t count, Body body) {
    segments(count, parents_, [&](int64_t begin, int64_t end) {
      for (int64_t h = 0; h < heads_; ++h)
        body([&](const Rows<T>& rows) {
          const int64_t width = rows.width / heads_;
          return Head<T>{rows[begin] + h * width, rows.stride, width, end - begin};
        });
    });
  }

  // Of each line of a with each of b.
  void products(const Head<T>& a, const Head<T>& b, Lines<T>& out) {
    turned_.resize(b.width, b.length);
    for (int64_t m = 0; m < b.length; ++m)
      for (int64_t d = 0; d < b.width; ++d) turned_[d][m] = b[m][d];
    out.resize(a.length, b.length);
    const int64_t step = out.step();
    for (int64_t i = 0; i < a.length; ++i) {
      T* __restrict line = out[i];
      for (int64_t d = 0; d < a.width; ++d) {
        const T left = a[i][d];
        const T* __restrict right = turned_[d];
        for (int64_t j = 0; j < step; ++j) line[j] += left * right[j];
      }
    }
  }

  void weigh(const Head<T>& q, const Head<T>& k) {
    products(q, k, weights_);
    const int64_t n = k.length;
    for (int64_t i = 0; i < q.length; ++i) {
      T* line = weights_[i];
      T largest = scale_ * line[0];
      for (int64_t j = 0; j < n; ++j) line[j] *= scale_;
      for (int64_t j = 1; j < n; ++j) largest = line[j] > largest ? line[j] : largest;
      for (int64_t j = 0; j < n; ++j) line[j] = exponential(line[j] - largest);
      const T total = static_cast<T>(sum_of(line, n));
      for (int64_t j = 0; j < n; ++j) line[j] /= total;
    }
  }

  // From the slopes of the weights to those of the products of queries and keys.
  void slopes_of_scores(int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      T *g = slopes_[i], *w = weights_[i];
      double sum = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t j = 0; j < n; ++j) sum += g[j] * w[j];
      const T total = static_cast<T>(sum);
      for (int64_t j = 0; j < n; ++j) g[j] = scale_ * w[j] * (g[j] - total);
    }
  }

  // out (n, width) = a (n, n) b (n, width)
  static void multiply(Lines<T>& a, const Head<T>& b, const Head<T>& out, bool accumulate) {
    for (int64_t i = 0; i < out.length; ++i) {
      T* __restrict line = out[i];
      if (!accumulate) std::fill(line, line + out.width, T(0));
      for (int64_t j = 0; j < b.length; ++j) add_scaled(line, a[i][j], b[j], b.width);
    }
  }

  // out += the transpose of a times b
  static void multiply_turned(Lines<T>& a, const Head<T>& b, const Head<T>& out) {
    for (int64_t i = 0; i < b.length; ++i)
      for (int64_t j = 0; j < out.length; ++j) add_scaled(out[j], a[i][j], b[i], b.width);
  }

  static void add_scaled(T* __restrict y, T scale, const T* __restrict x, int64_t n) {
    for (int64_t d = 0; d < n; ++d) y[d] += scale * x[d];
  }

  const int64_t heads_;
  const T scale_;
  const int32_t* const parents_;
  Lines<T> turned_, weights_, slopes_;
};

}  // namespace edb
