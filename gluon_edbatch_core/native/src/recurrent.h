// Recurrent layers: the values of each row of the batch are the steps of a sequence. The longest
// sequences come first, so that those with a step left are always the first ones: a step is one
// product for all of them.
#pragma once

#include <algorithm>
#include <vector>

#include "gemm.h"
#include "kernels.h"
#include "math_functions.h"
#include "opcodes.h"

namespace edb {

struct Sequence {  // its first value, and how many it has
  int64_t begin, length;
};

inline std::vector<Sequence> longest_first(int64_t count, const int32_t* parents) {
  std::vector<Sequence> found;
  segments(count, parents,
           [&](int64_t begin, int64_t end) { found.push_back({begin, end - begin}); });
  std::stable_sort(found.begin(), found.end(),
                   [](const Sequence& a, const Sequence& b) { return a.length > b.length; });
  return found;
}

// --- one step of one sequence: `n` columns -----------------------------------------------------

// Of gates x, to which the products s of the state are added: what they let through stays in x.
template <typename T>
void lstm_step(int64_t n, T* __restrict x, const T* __restrict s, const T* __restrict before,
               T* __restrict cell, T* __restrict state) {
  T *in = x, *forget = x + n, *change = x + 2 * n, *out = x + 3 * n;
  for (int64_t i = 0; i < n; ++i) in[i] = sigmoid(in[i] + s[i]);
  for (int64_t i = 0; i < n; ++i) forget[i] = sigmoid(forget[i] + s[n + i]);
  for (int64_t i = 0; i < n; ++i) change[i] = hyperbolic_tangent(change[i] + s[2 * n + i]);
  for (int64_t i = 0; i < n; ++i) out[i] = sigmoid(out[i] + s[3 * n + i]);
  for (int64_t i = 0; i < n; ++i) cell[i] = forget[i] * before[i] + in[i] * change[i];
  for (int64_t i = 0; i < n; ++i) state[i] = out[i] * hyperbolic_tangent(cell[i]);
}

// d has the slopes of the gates afterwards, dcell that of the cell before.
template <typename T>
void lstm_step_back(int64_t n, const T* __restrict x, const T* __restrict before,
                    const T* __restrict cell, const T* __restrict dstate, T* __restrict dcell,
                    T* __restrict d) {
  const T *in = x, *forget = x + n, *change = x + 2 * n, *out = x + 3 * n;
  for (int64_t i = 0; i < n; ++i) {
    const T shown = hyperbolic_tangent(cell[i]);
    const T total = dcell[i] + dstate[i] * out[i] * (T(1) - shown * shown);
    d[i] = total * change[i] * in[i] * (T(1) - in[i]);
    d[n + i] = total * before[i] * forget[i] * (T(1) - forget[i]);
    d[2 * n + i] = total * in[i] * (T(1) - change[i] * change[i]);
    d[3 * n + i] = dstate[i] * shown * out[i] * (T(1) - out[i]);
    dcell[i] = total * forget[i];
  }
}

template <typename T>
void gru_step(int64_t n, T* __restrict x, const T* __restrict s, const T* __restrict before,
              T* __restrict state) {
  T *reset = x, *update = x + n, *change = x + 2 * n;
  for (int64_t i = 0; i < n; ++i) reset[i] = sigmoid(reset[i] + s[i]);
  for (int64_t i = 0; i < n; ++i) update[i] = sigmoid(update[i] + s[n + i]);
  for (int64_t i = 0; i < n; ++i)
    change[i] = hyperbolic_tangent(change[i] + reset[i] * s[2 * n + i]);
  for (int64_t i = 0; i < n; ++i) state[i] = (T(1) - update[i]) * change[i] + update[i] * before[i];
}

// d has the slopes of the gates, and ds those of the products of the state; dstate has what goes to
// the state before, but for what goes through the products.
template <typename T>
void gru_step_back(int64_t n, const T* __restrict x, const T* __restrict s,
                   const T* __restrict before, T* __restrict dstate, T* __restrict d,
                   T* __restrict ds) {
  const T *reset = x, *update = x + n, *change = x + 2 * n;
  for (int64_t i = 0; i < n; ++i) {
    const T to_change = dstate[i] * (T(1) - update[i]) * (T(1) - change[i] * change[i]);
    d[i] = ds[i] = to_change * s[2 * n + i] * reset[i] * (T(1) - reset[i]);
    d[n + i] = ds[n + i] = dstate[i] * (before[i] - change[i]) * update[i] * (T(1) - update[i]);
    d[2 * n + i] = to_change;
    ds[2 * n + i] = to_change * reset[i];
    dstate[i] *= update[i];
  }
}

template <typename T>
void plain_step(int64_t n, T* __restrict x, const T* __restrict s, T* __restrict state, bool relu) {
  for (int64_t i = 0; i < n; ++i) x[i] += s[i];
  if (relu)
    for (int64_t i = 0; i < n; ++i) x[i] = Relu<T>().value(x[i]);
  else
    for (int64_t i = 0; i < n; ++i) x[i] = hyperbolic_tangent(x[i]);
  for (int64_t i = 0; i < n; ++i) state[i] = x[i];
}

template <typename T>
void plain_step_back(int64_t n, const T* __restrict x, const T* __restrict dstate, T* __restrict d,
                     bool relu) {
  for (int64_t i = 0; i < n; ++i)
    d[i] = dstate[i] * (relu ? Relu<T>().slope(x[i]) : Tanh<T>().slope(x[i]));
}

// --- all steps ---------------------------------------------------------------------------------

template <typename T> struct Layer {  // what a layer reads and writes, a row for each value
  Rows<T> states, gates, products, before, cells;
  Rows<T> first_cells;  // before the first step; none if they are zeros
};

template <typename T> class Recurrent {
 public:
  // Of layers that are given states, `before` has these at the first step.
  Recurrent(int64_t kind, bool backwards, bool given, const T* panels, const T* bias,
            const int32_t* parents, Scratch* scratch)
      : kind_(kind),
        backwards_(backwards),
        given_(given),
        panels_(panels),
        bias_(bias),
        parents_(parents),
        scratch_(scratch) {}

  void forward(const Layer<T>& to) {
    begin(to);
    std::fill(state_, state_ + sequences_.size() * n_, T(0));
    for (size_t i = 0; given_ && i < sequences_.size(); ++i)
      std::memcpy(state_ + i * n_, to.before[row_at(i, 0)], n_ * sizeof(T));
    for (int64_t step = 0, left; (left = left_at(step)); ++step) {
      multiply<T>(left, width_, n_, state_, n_, panels_, product_, width_, bias_, false);
      for (int64_t i = 0; i < left; ++i) {
        const int64_t row = row_at(i, step);
        T *x = to.gates[row], *s = product_ + i * width_, *state = state_ + i * n_;
        std::memcpy(to.before[row], state, n_ * sizeof(T));
        if (kind_ == kLstm) {
          lstm_step(n_, x, s, cell_before(to, i, step), to.cells[row], state);
        } else if (kind_ == kGru) {
          std::memcpy(to.products[row], s, width_ * sizeof(T));
          gru_step(n_, x, s, to.before[row], state);
        } else {
          plain_step(n_, x, s, state, kind_ == kRnnRelu);
        }
        std::memcpy(to.states[row], state, n_ * sizeof(T));
      }
    }
  }

  // `d` has the gradients: those of states and cells are read, to the others is added.
  void backward(const Layer<T>& of, const Layer<T>& d) {
    begin(of);
    std::fill(state_, state_ + sequences_.size() * n_, T(0));  // the gradient of the state here
    std::vector<T> cells(kind_ == kLstm ? sequences_.size() * n_ : 0);
    std::vector<T> slopes(width_);
    for (int64_t step = sequences_.empty() ? 0 : sequences_[0].length; step-- > 0;) {
      const int64_t left = left_at(step);
      for (int64_t i = 0; i < left; ++i) {
        const int64_t row = row_at(i, step);
        const T *x = of.gates[row], *given = d.states[row];
        T *state = state_ + i * n_, *own = product_ + i * width_, *to_gates = own;
        for (int64_t c = 0; c < n_; ++c) state[c] += given[c];
        if (kind_ == kLstm) {
          for (int64_t c = 0; c < n_ && d.cells; ++c) cells[i * n_ + c] += d.cells[row][c];
          lstm_step_back(n_, x, cell_before(of, i, step), of.cells[row], state,
                         cells.data() + i * n_, own);
        } else if (kind_ == kGru) {
          to_gates = slopes.data();
          gru_step_back(n_, x, of.products[row], of.before[row], state, to_gates, own);
        } else {
          plain_step_back(n_, x, state, own, kind_ == kRnnRelu);
        }
        T *gates = d.gates[row], *products = d.products[row];
        for (int64_t c = 0; c < width_; ++c) gates[c] += to_gates[c];
        for (int64_t c = 0; c < width_; ++c) products[c] += own[c];
      }
      multiply<T>(left, n_, width_, product_, width_, panels_, state_, n_, nullptr, kind_ == kGru);
    }
    for (size_t i = 0; i < sequences_.size(); ++i) {
      const int64_t row = row_at(i, 0);
      for (int64_t c = 0; c < n_ && d.before; ++c) d.before[row][c] += state_[i * n_ + c];
      for (int64_t c = 0; c < n_ && d.first_cells; ++c) d.first_cells[row][c] += cells[i * n_ + c];
    }
  }

 private:
  void begin(const Layer<T>& of) {
    n_ = of.before.width, width_ = of.gates.width;
    sequences_ = longest_first(of.gates.count, parents_);
    state_ = scratch_->take<T>(sequences_.size() * n_);
    product_ = scratch_->take<T>(sequences_.size() * width_);
    zeros_.assign(n_, T(0));
  }

  // How many sequences have a step.
  int64_t left_at(int64_t step) const {
    return std::partition_point(sequences_.begin(), sequences_.end(),
                                [=](const Sequence& s) { return s.length > step; }) -
           sequences_.begin();
  }

  int64_t row_at(int64_t i, int64_t step) const {
    const Sequence& s = sequences_[i];
    return s.begin + (backwards_ ? s.length - 1 - step : step);
  }

  const T* cell_before(const Layer<T>& of, int64_t i, int64_t step) const {
    if (step) return of.cells[row_at(i, step - 1)];
    return of.first_cells ? of.first_cells[row_at(i, 0)] : zeros_.data();
  }

  int64_t kind_, n_ = 0, width_ = 0;
  bool backwards_, given_;
  const T *panels_, *bias_;
  const int32_t* parents_;
  Scratch* scratch_;
  std::vector<Sequence> sequences_;
  std::vector<T> zeros_;
  T *state_ = nullptr, *product_ = nullptr;  // of all sequences, one below the other
};

}  // namespace edb
