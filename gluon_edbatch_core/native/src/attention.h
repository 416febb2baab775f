// Attention among the values of a row: each head's weights live for one row of the batch only, and
// are computed again by the backward pass. (The idea is that of Dao et al., "FlashAttention", 2022;
// rows are short here, so that there is nothing to tile.) Weights lie as (keys, queries): a softmax
// goes down the columns, which are the lanes of vectors.
#pragma once

#include <cstring>

#include "gemm.h"
#include "kernels.h"
#include "noise.h"

namespace edb {

// The columns of one head in the values of one row.
template <typename T> struct Head {
  T* data;
  int64_t stride, width;
};

template <typename T> class Attention {
 public:
  // `noise` drops weights, or is null; `first` is the batch's value that the block begins with.
  Attention(int64_t heads, T scale, const int32_t* parents, const Noise<T>* noise, int64_t first)
      : heads_(heads), scale_(scale), parents_(parents), noise_(noise), first_(first) {}

  // out = dropout(softmax(scale q k')) v
  void forward(const Rows<T>& out, const Rows<T>& q, const Rows<T>& k, const Rows<T>& v) {
    each_head(q.count, [&](const auto& head) {
      weigh(head(q), head(k));
      drop(weights_);
      of_queries(weights_, head(v), head(out), false);
    });
  }

  void backward(const Rows<T>& dy, const Rows<T>& q, const Rows<T>& k, const Rows<T>& v,
                const Rows<T>& dq, const Rows<T>& dk, const Rows<T>& dv) {
    each_head(q.count, [&](const auto& head) {
      weigh(head(q), head(k));
      if (dv) of_keys(dropped(), head(dy), head(dv));
      if (!dq && !dk) return;
      slopes_ = products(head(v), head(dy));
      drop(slopes_);
      slopes_of_scores();
      if (dq) of_queries(slopes_, head(k), head(dq), true);
      if (dk) of_keys(slopes_, head(q), head(dk));
    });
  }

 private:
  using V = typename Vector<T>::type;
  using L = typename Vector<T>::loose;
  static constexpr int lanes = Vector<T>::lanes;

  static Scratch& memory() {  // of one head after the other
    thread_local Scratch scratch;
    return scratch;
  }

  template <typename Body> void each_head(int64_t count, Body body) {
    segments(count, parents_, [&](int64_t begin, int64_t end) {
      length_ = end - begin;
      step_ = (length_ + lanes - 1) / lanes * lanes;
      for (int64_t h = 0; h < heads_; ++h) {
        line_ = (first_ + begin) * heads_ + h;
        memory().release();
        body([&](const Rows<T>& rows) {
          const int64_t width = rows.width / heads_;
          return Head<T>{rows[begin] + h * width, rows.stride, width};
        });
      }
    });
  }

  // Drops weights, or their slopes: those of each key are a line.
  void drop(T* of) const {
    for (int64_t j = 0; noise_ && j < length_; ++j)
      noise_->multiply(line_ + j * heads_, length_, of + j * step_);
  }

  // The weights without those that were dropped; the softmax needs all of them.
  const T* dropped() {
    if (!noise_) return weights_;
    T* copy = memory().take<T>(length_ * step_);
    std::memcpy(copy, weights_, length_ * step_ * sizeof(T));
    drop(copy);
    return copy;
  }

  // Of each line of `keys` with each of `queries`; columns beyond these are 0.
  T* products(const Head<T>& keys, const Head<T>& queries) {
    T* panels = memory().take<T>(packed_size<T>(keys.width, length_));
    pack<T>(queries.data, queries.stride, keys.width, length_, true, panels);
    T* out = memory().take<T>(length_ * step_);
    multiply<T>(length_, step_, keys.width, keys.data, keys.stride, panels, out, step_, nullptr,
                false);
    return out;
  }

  void weigh(const Head<T>& q, const Head<T>& k) {
    weights_ = products(k, q);
    for (T* column = weights_; column < weights_ + step_; column += lanes) soften(column);
  }

  L& at(T* column, int64_t line) const { return *reinterpret_cast<L*>(column + line * step_); }

  void soften(T* column) {
    V largest = at(column, 0) *= scale_;
    for (int64_t j = 1; j < length_; ++j) {
      const V score = at(column, j) *= scale_;
      largest = score > largest ? score : largest;
    }
    V total{};
    for (int64_t j = 0; j < length_; ++j) {
      L& weights = at(column, j);
      weights -= largest;
      for (int l = 0; l < lanes; ++l) weights[l] = exponential(weights[l]);
      total += weights;
    }
    const V factor = T(1) / total;
    for (int64_t j = 0; j < length_; ++j) at(column, j) *= factor;
  }

  // From the slopes of the weights to those of the products of queries and keys.
  void slopes_of_scores() {
    for (int64_t i = 0; i < step_; i += lanes) {
      V total{};
      for (int64_t j = 0; j < length_; ++j) total += at(slopes_ + i, j) * at(weights_ + i, j);
      for (int64_t j = 0; j < length_; ++j)
        at(slopes_ + i, j) = scale_ * at(weights_ + i, j) * (at(slopes_ + i, j) - total);
    }
  }

  // For each query, the sum of what weights take of the lines of `keys`.
  void of_queries(const T* weights, const Head<T>& keys, const Head<T>& out, bool accumulate) {
    multiply<T, Side::kColumns>(length_, out.width, length_, weights, step_, packed(keys), out.data,
                                out.stride, nullptr, accumulate);
  }

  // Adds for each key the sum of what weights take of the lines of `queries`.
  void of_keys(const T* weights, const Head<T>& queries, const Head<T>& out) {
    multiply<T>(length_, out.width, length_, weights, step_, packed(queries), out.data, out.stride,
                nullptr, true);
  }

  const T* packed(const Head<T>& head) {
    T* panels = memory().take<T>(packed_size<T>(length_, head.width));
    pack<T>(head.data, head.stride, length_, head.width, false, panels);
    return panels;
  }

  const int64_t heads_;
  const T scale_;
  const int32_t* const parents_;
  const Noise<T>* const noise_;
  const int64_t first_;
  int64_t length_ = 0, step_ = 0;  // of the row; and from line to line of the weights
  int64_t line_ = 0;  // of the noise for the first key of a row's head
  T *weights_ = nullptr, *slopes_ = nullptr;
};

}  // namespace edb
