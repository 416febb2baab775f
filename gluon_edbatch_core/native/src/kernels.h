// What instructions do to rows, forward and backward. Gradients are added to what is there.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <numeric>
#include <utility>
#include <vector>

#include "gemm.h"
#include "opcodes.h"

namespace edb {

constexpr int64_t kColumns = 64;  // so many at once, where each has sums of its own

template <typename T> struct Rows {  // some columns of a block of rows
  T* data;
  int64_t stride, width, count;
  T* operator[](int64_t row) const { return data + row * stride; }
  explicit operator bool() const { return data != nullptr; }
  bool whole() const { return stride == width; }
};

// Memory that is handed out piece by piece and taken back all at once; it never moves.
class Scratch {
 public:
  template <typename T> T* take(int64_t count) {
    const size_t bytes = (count * sizeof(T) + 63) / 64 * 64;
    while (chunk_ < chunks_.size() && used_ + bytes > chunks_[chunk_].second) next();
    if (chunk_ == chunks_.size()) grow(bytes);
    char* piece = chunks_[chunk_].first.get() + used_;
    used_ += bytes;
    return reinterpret_cast<T*>(piece);
  }
  void release() { chunk_ = used_ = 0; }

 private:
  struct Free {
    void operator()(char* memory) const { std::free(memory); }
  };
  void next() {
    ++chunk_;
    used_ = 0;
  }
  void grow(size_t bytes) {
    const size_t size = std::max<size_t>(bytes, size_t(1) << 20);
    char* memory = static_cast<char*>(std::aligned_alloc(64, size));
    if (!memory) throw std::bad_alloc();
    chunks_.emplace_back(std::unique_ptr<char, Free>(memory), size);
    used_ = 0;
  }
  std::vector<std::pair<std::unique_ptr<char, Free>, size_t>> chunks_;
  size_t chunk_ = 0, used_ = 0;
};

// Calls body(length, offsets...) once if all are contiguous, and once for each row if not.
template <typename Body, typename T, typename... Others>
inline __attribute__((always_inline)) void sweep(Body body, const Rows<T>& first,
                                                 const Others&... others) {
  if (first.whole() && (others.whole() && ...)) {
    body(first.width * first.count, first.data, others.data...);
  } else {
    for (int64_t row = 0; row < first.count; ++row) body(first.width, first[row], others[row]...);
  }
}

template <typename T> void copy(const Rows<T>& out, const Rows<T>& a) {
  sweep([](int64_t n, T* y, const T* x) { std::memcpy(y, x, n * sizeof(T)); }, out, a);
}

template <typename T> void add_line(T* y, const T* x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] += x[i];
}

template <typename T> void add(const Rows<T>& out, const Rows<T>& a) {
  sweep([](int64_t n, T* y, const T* x) { add_line(y, x, n); }, out, a);
}

template <typename T> void clear(const Rows<T>& out) {
  sweep([](int64_t n, T* y) { std::memset(y, 0, n * sizeof(T)); }, out);
}

// --- elementwise -------------------------------------------------------------------------------

template <typename T, typename F>
void unary_forward(F f, const Rows<T>& out, const Rows<T>& a) {
  sweep(
      [f](int64_t n, T* __restrict y, const T* __restrict x) {
        for (int64_t i = 0; i < n; ++i) y[i] = f.value(x[i]);
      },
      out, a);
}

// `read` is what the slope reads; if that is nothing, any rows.
template <typename T, typename F>
void unary_backward(F f, const Rows<T>& dy, const Rows<T>& dx, const Rows<T>& read) {
  sweep(
      [f](int64_t n, const T* g, T* d, const T* u) {
#pragma GCC ivdep
        for (int64_t i = 0; i < n; ++i) d[i] += g[i] * f.slope(u[i]);
      },
      dy, dx, read);
}

// Columns in which an operand goes on by one from column to column, or stays where it is.
inline int64_t run(int64_t how, int64_t width, int64_t own) {
  return how == kSame ? width : how == kRepeat ? width / own : own;
}

inline int64_t spread(int64_t how, int64_t column, int64_t width, int64_t own) {
  return how == kSame ? column : how == kRepeat ? column / (width / own) : column % own;
}

// Calls body(i, a, b) for each i below n, where a and b are elements of two operands.
template <typename T, typename Body>
void pairs(int64_t n, const T* a, bool fixed_a, const T* b, bool fixed_b, Body body) {
  const T u = *a, v = *b;
  if (fixed_a && fixed_b) {
    for (int64_t i = 0; i < n; ++i) body(i, u, v);
  } else if (fixed_a) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) body(i, u, b[i]);
  } else if (fixed_b) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) body(i, a[i], v);
  } else {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) body(i, a[i], b[i]);
  }
}

template <typename T, typename F>
void binary_forward(F f, const Rows<T>& out, const Rows<T>& a, const Rows<T>& b, int64_t how_a,
                    int64_t how_b) {
  if (how_a == kSame && how_b == kSame) {
    sweep(
        [f](int64_t n, T* __restrict y, const T* __restrict u, const T* __restrict v) {
          for (int64_t i = 0; i < n; ++i) y[i] = f.value(u[i], v[i]);
        },
        out, a, b);
    return;
  }
  const int64_t width = out.width;
  const int64_t step = std::gcd(run(how_a, width, a.width), run(how_b, width, b.width));
  for (int64_t row = 0; row < out.count; ++row)
    for (int64_t begin = 0; begin < width; begin += step) {
      T* __restrict y = out[row] + begin;
      pairs(step, a[row] + spread(how_a, begin, width, a.width), how_a == kRepeat,
            b[row] + spread(how_b, begin, width, b.width), how_b == kRepeat,
            [=](int64_t i, T u, T v) { y[i] = f.value(u, v); });
    }
}

// d += slope(i, a, b) for each i below n; of an operand that stays where it is, all to one place.
template <typename T, typename Slope>
void slopes(T* d, bool fixed, int64_t n, const T* a, bool fixed_a, const T* b, bool fixed_b,
            Slope slope) {
  if (fixed) {
    T total = 0;
    pairs(n, a, fixed_a, b, fixed_b, [&](int64_t i, T u, T v) { total += slope(i, u, v); });
    *d += total;
  } else {
    pairs(n, a, fixed_a, b, fixed_b, [=](int64_t i, T u, T v) { d[i] += slope(i, u, v); });
  }
}

template <typename T, typename Slope>
void slopes_of_pairs(Slope slope, const Rows<T>& dy, const Rows<T>& d, const Rows<T>& a,
                     const Rows<T>& b) {
  sweep(
      [slope](int64_t n, const T* g, T* to, const T* u, const T* v) {
#pragma GCC ivdep
        for (int64_t i = 0; i < n; ++i) to[i] += g[i] * slope(u[i], v[i]);
      },
      dy, d, a, b);
}

// Values may be missing where slopes read none; any stand in for them.
template <typename T, typename F>
void binary_backward(F f, const Rows<T>& dy, const Rows<T>& da, const Rows<T>& db, Rows<T> a,
                     Rows<T> b, int64_t how_a, int64_t how_b) {
  const auto first = [f](T u, T v) { return f.first(u, v); };
  const auto second = [f](T u, T v) { return f.second(u, v); };
  if (how_a == kSame && how_b == kSame) {
    if (!a) a = dy;
    if (!b) b = dy;
    if (da) slopes_of_pairs(first, dy, da, a, b);
    if (db) slopes_of_pairs(second, dy, db, a, b);
    return;
  }
  const T zero = 0;  // of values that are missing
  const int64_t width = dy.width;
  const int64_t own_a = a ? a.width : da ? da.width : width;
  const int64_t own_b = b ? b.width : db ? db.width : width;
  const int64_t step = std::gcd(run(how_a, width, own_a), run(how_b, width, own_b));
  for (int64_t row = 0; row < dy.count; ++row)
    for (int64_t begin = 0; begin < width; begin += step) {
      const T* g = dy[row] + begin;
      const int64_t at_a = spread(how_a, begin, width, own_a);
      const int64_t at_b = spread(how_b, begin, width, own_b);
      const T* u = a ? a[row] + at_a : &zero;
      const T* v = b ? b[row] + at_b : &zero;
      const bool fixed_a = !a || how_a == kRepeat, fixed_b = !b || how_b == kRepeat;
      if (da)
        slopes(da[row] + at_a, how_a == kRepeat, step, u, fixed_a, v, fixed_b,
               [=](int64_t i, T x, T y) { return g[i] * first(x, y); });
      if (db)
        slopes(db[row] + at_b, how_b == kRepeat, step, u, fixed_a, v, fixed_b,
               [=](int64_t i, T x, T y) { return g[i] * second(x, y); });
    }
}

// A position as far as there are any.
template <typename T> int64_t clipped(T index, int64_t count) {
  if (!(index > T(0))) return 0;
  return index < T(count) ? std::min(static_cast<int64_t>(index), count - 1) : count - 1;
}

// --- ragged values: each belongs to a row of the batch -----------------------------------------

// out[m] = a[parents[m] - first], or is added to
template <bool adds, typename T>
void expand(const Rows<T>& out, const Rows<T>& a, const int32_t* parents, int64_t first) {
  for (int64_t m = 0; m < out.count; ++m)
    if constexpr (adds) add_line(out[m], a[parents[m] - first], out.width);
    else std::memcpy(out[m], a[parents[m] - first], out.width * sizeof(T));
}

// out[parents[m] - first] += a[m]
template <typename T>
void segment_add(const Rows<T>& out, const Rows<T>& a, const int32_t* parents, int64_t first) {
  for (int64_t m = 0; m < a.count; ++m) add_line(out[parents[m] - first], a[m], a.width);
}

// Calls body(begin, end) for the values of each row of the batch that has some.
template <typename Body> void segments(int64_t count, const int32_t* parents, Body body) {
  for (int64_t begin = 0, end; begin < count; begin = end) {
    for (end = begin + 1; end < count && parents[end] == parents[begin];) ++end;
    body(begin, end);
  }
}

// Lays for each value `size` others side by side, `step` apart and the first `before` values ahead,
// a group of columns for each column of `x`; zeros beyond the row's values. Or adds the gradient.
template <typename T>
void window(const Rows<T>& out, const Rows<T>& x, const int32_t* parents, int64_t size,
            int64_t step, int64_t before, bool back) {
  segments(x.count, parents, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      for (int64_t j = 0; j < size; ++j) {
        const int64_t from = row + j * step - before;
        const bool inside = begin <= from && from < end;
        T* __restrict y = out[row] + j;
        T* __restrict z = inside ? x[from] : nullptr;
        if (back) {
          for (int64_t c = 0; inside && c < x.width; ++c) z[c] += y[c * size];
        } else {
          for (int64_t c = 0; c < x.width; ++c) y[c * size] = inside ? z[c] : T(0);
        }
      }
  });
}

// Rows of `a` divided by the number of values of each.
template <typename T>
void per_value(const Rows<T>& a, int64_t values, const int32_t* parents, int64_t first) {
  segments(values, parents, [&](int64_t begin, int64_t end) {
    T* y = a[parents[begin] - first];
    for (int64_t i = 0; i < a.width; ++i) y[i] /= T(end - begin);
  });
}

template <typename T>
void segment_mean_backward(const Rows<T>& dy, const Rows<T>& da, const int32_t* parents,
                           int64_t first) {
  segments(da.count, parents, [&](int64_t begin, int64_t end) {
    const T* g = dy[parents[begin] - first];
    for (int64_t m = begin; m < end; ++m)
      for (int64_t i = 0; i < dy.width; ++i) da[m][i] += g[i] / T(end - begin);
  });
}

// Column by column, the largest or the least; NaN is passed over, as MXNet does.
template <typename T>
void segment_extreme(const Rows<T>& out, const Rows<T>& a, const int32_t* parents, int64_t first,
                     bool least) {
  segments(a.count, parents, [&](int64_t begin, int64_t end) {
    T* y = out[parents[begin] - first];
    std::memcpy(y, a[begin], a.width * sizeof(T));
    for (int64_t m = begin + 1; m < end; ++m) {
      const T* x = a[m];
      if (least)
        for (int64_t i = 0; i < a.width; ++i) y[i] = x[i] < y[i] ? x[i] : y[i];
      else
        for (int64_t i = 0; i < a.width; ++i) y[i] = x[i] > y[i] ? x[i] : y[i];
    }
  });
}

// To all that are as large.
template <typename T>
void segment_extreme_backward(const Rows<T>& dy, const Rows<T>& da, const Rows<T>& a,
                              const Rows<T>& y, const int32_t* parents, int64_t first) {
  for (int64_t m = 0; m < a.count; ++m) {
    const int64_t row = parents[m] - first;
    for (int64_t i = 0; i < a.width; ++i) da[m][i] += a[m][i] == y[row][i] ? dy[row][i] : T(0);
  }
}

// The values from `lengths` on, of each row of the batch, give way to a number; or their gradients
// get nothing. Without lengths it is the last `count` values.
template <typename T>
void segment_mask(const Rows<T>& out, const Rows<T>& a, const Rows<T>& lengths, int64_t count,
                  const int32_t* parents, int64_t first, T number, bool accumulate) {
  segments(a.count, parents, [&](int64_t begin, int64_t end) {
    const int64_t kept =
        lengths ? begin + static_cast<int64_t>(*lengths[parents[begin] - first]) : end - count;
    for (int64_t m = begin; m < end; ++m)
      if (m < kept && accumulate) add_line(out[m], a[m], a.width);
      else if (m < kept) std::memcpy(out[m], a[m], a.width * sizeof(T));
      else if (!accumulate) std::fill(out[m], out[m] + a.width, number);
  });
}

// Column by column, the value at a position among those of each row of the batch, or the last; or,
// if `each`, at as many positions. Or its gradient is added.
template <typename T>
void segment_pick(const Rows<T>& out, const Rows<T>& a, const Rows<T>& index,
                  const int32_t* parents, int64_t first, bool each, bool back) {
  segments(a.count, parents, [&](int64_t begin, int64_t end) {
    const int64_t from = each ? begin : parents[begin] - first, to = each ? end : from + 1;
    for (int64_t row = from; row < to; ++row)
      for (int64_t i = 0; i < a.width; ++i) {
        T& x = a[begin + clipped(index[row][i], end - begin)][i];
        if (back) x += out[row][i];
        else out[row][i] = x;
      }
  });
}

// Column by column, the positions of the first `count` values of each row of the batch, or of all;
// or marks at these. MXNet has the same algorithms, which decide about equal values.
template <typename T>
void segment_order(const Rows<T>& out, const Rows<T>& a, const int32_t* parents, int64_t first,
                   int64_t count, bool ascends, bool marks) {
  std::vector<int64_t> order;
  segments(a.count, parents, [&](int64_t begin, int64_t end) {
    const int64_t size = end - begin, some = count ? std::min(count, size) : size;
    const bool beside = count && !marks;  // in one row
    order.resize(size);
    for (int64_t i = 0; i < a.width; ++i) {
      const auto before = [&](int64_t one, int64_t other) {
        const T x = a[begin + one][i], y = a[begin + other][i];
        return ascends ? x < y : x > y;
      };
      std::iota(order.begin(), order.end(), 0);
      if (some * 8 > size) std::sort(order.begin(), order.end(), before);
      else std::partial_sort(order.begin(), order.begin() + some, order.end(), before);
      T* y = out[beside ? parents[begin] - first : begin] + i;
      for (int64_t m = 0; m < some; ++m)
        if (marks) y[order[m] * out.stride] = T(1);
        else y[m * (beside ? a.width : out.stride)] = T(order[m]);
    }
  });
}

// Which of the values of its row each is.
template <typename T> void positions(const Rows<T>& out, const int32_t* parents) {
  segments(out.count, parents, [&](int64_t begin, int64_t end) {
    for (int64_t m = begin; m < end; ++m) *out[m] = T(m - begin);
  });
}

// For some columns of the values of a row of the batch, which are the lanes of vectors.
template <typename T>
void columns_softmax(const Rows<T>& out, const Rows<T>& a, int64_t begin, int64_t end,
                     int64_t column, int64_t columns, bool log) {
  T largest[kColumns];
  double total[kColumns] = {};
  std::memcpy(largest, a[begin] + column, columns * sizeof(T));
  for (int64_t m = begin + 1; m < end; ++m) {
    const T* x = a[m] + column;
    for (int64_t i = 0; i < columns; ++i) largest[i] = largest[i] < x[i] ? x[i] : largest[i];
  }
  for (int64_t m = begin; m < end; ++m) {
    const T* x = a[m] + column;
    T* y = out[m] + column;
    for (int64_t i = 0; i < columns; ++i) total[i] += y[i] = exponential(x[i] - largest[i]);
  }
  if (log)
    for (int64_t i = 0; i < columns; ++i) largest[i] += std::log(static_cast<T>(total[i]));
  for (int64_t m = begin; m < end; ++m) {
    const T* x = a[m] + column;
    T* y = out[m] + column;
    for (int64_t i = 0; i < columns; ++i)
      y[i] = log ? x[i] - largest[i] : y[i] / static_cast<T>(total[i]);
  }
}

// Column by column, the softmax over the values of each row of the batch, or its logarithm.
template <typename T>
void segment_softmax(const Rows<T>& out, const Rows<T>& a, const int32_t* parents, bool log) {
  segments(a.count, parents, [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < a.width; i += kColumns)
      columns_softmax(out, a, begin, end, i, std::min(kColumns, a.width - i), log);
  });
}

template <typename T>
void segment_softmax_backward(const Rows<T>& dy, const Rows<T>& dx, const Rows<T>& y,
                              const int32_t* parents, bool log) {
  segments(dy.count, parents, [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < dy.width; ++i) {
      double sum = 0;
      for (int64_t m = begin; m < end; ++m) sum += log ? dy[m][i] : dy[m][i] * y[m][i];
      const T total = static_cast<T>(sum);
      for (int64_t m = begin; m < end; ++m) {
        const T g = dy[m][i], v = y[m][i];
        dx[m][i] += log ? g - exponential(v) * total : v * (g - total);
      }
    }
  });
}

// --- along the last axis of a row --------------------------------------------------------------

// In double precision: MXNet compensates for rounding here, too.
template <typename T> double sum_of(const T* x, int64_t n) {
  double total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < n; ++i) total += x[i];
  return total;
}

// Groups of `length` columns; log or not.
template <typename T>
void softmax(const Rows<T>& out, const Rows<T>& a, int64_t length, bool log) {
  for (int64_t row = 0; row < a.count; ++row)
    for (int64_t begin = 0; begin < a.width; begin += length) {
      const T* x = a[row] + begin;
      T* y = out[row] + begin;
      T largest = x[0];
      for (int64_t i = 1; i < length; ++i) largest = x[i] > largest ? x[i] : largest;
      for (int64_t i = 0; i < length; ++i) y[i] = exponential(x[i] - largest);
      const T total = static_cast<T>(sum_of(y, length));
      if (log) {
        const T shift = largest + std::log(total);
        for (int64_t i = 0; i < length; ++i) y[i] = x[i] - shift;
      } else {
        for (int64_t i = 0; i < length; ++i) y[i] /= total;
      }
    }
}

template <typename T>
void softmax_backward(const Rows<T>& dy, const Rows<T>& dx, const Rows<T>& y, int64_t length,
                      bool log) {
  for (int64_t row = 0; row < dy.count; ++row)
    for (int64_t begin = 0; begin < dy.width; begin += length) {
      const T *g = dy[row] + begin, *v = y[row] + begin;
      T* d = dx[row] + begin;
      double sum = 0;
      for (int64_t i = 0; i < length; ++i) sum += log ? g[i] : g[i] * v[i];
      const T total = static_cast<T>(sum);
      for (int64_t i = 0; i < length; ++i)
        d[i] += log ? g[i] - exponential(v[i]) * total : v[i] * (g[i] - total);
    }
}

// What a layer norm reads of a row.
template <typename T> struct Moments {
  T mean, scale;
  Moments(const T* x, int64_t n, T epsilon) {
    T total = 0, squares = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < n; ++i) total += x[i];
    mean = total / T(n);
    const T middle = mean;
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < n; ++i) squares += (x[i] - middle) * (x[i] - middle);
    scale = T(1) / std::sqrt(squares / T(n) + epsilon);
  }
};

// Each n numbers of a row are normalized on their own.
template <typename T>
void layer_norm(const Rows<T>& out, const Rows<T>& a, const T* gamma, const T* beta, int64_t n,
                T epsilon) {
  for (int64_t row = 0; row < a.count; ++row)
    for (int64_t begin = 0; begin < a.width; begin += n) {
      const T* x = a[row] + begin;
      T* y = out[row] + begin;
      const Moments<T> of(x, n, epsilon);
      for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - of.mean) * of.scale * gamma[i] + beta[i];
    }
}

// Of gamma and beta no gradients are wanted where there are none.
template <typename T>
void layer_norm_backward(const Rows<T>& dy, const Rows<T>& da, const Rows<T>& a, const T* gamma,
                         T* dgamma, T* dbeta, int64_t n, T epsilon) {
  for (int64_t row = 0; row < dy.count; ++row)
    for (int64_t begin = 0; begin < a.width; begin += n) {
      const T *g = dy[row] + begin, *x = a[row] + begin;
      const Moments<T> of(x, n, epsilon);
      if (dgamma)
        for (int64_t i = 0; i < n; ++i) dgamma[i] += g[i] * (x[i] - of.mean) * of.scale;
      if (dbeta)
        for (int64_t i = 0; i < n; ++i) dbeta[i] += g[i];
      if (!da || n == 1) continue;  // one number is its own mean, but for rounding
      T sum = 0, products = 0;
#pragma omp simd reduction(+ : sum, products)
      for (int64_t i = 0; i < n; ++i) {
        sum += g[i] * gamma[i];
        products += g[i] * gamma[i] * (x[i] - of.mean) * of.scale;
      }
      sum /= T(n), products /= T(n);
      T* d = da[row] + begin;
      for (int64_t i = 0; i < n; ++i)
        d[i] += of.scale * (g[i] * gamma[i] - sum - (x[i] - of.mean) * of.scale * products);
    }
}

// The element at a position of each group of columns; or its gradient is added.
template <typename T>
void pick(const Rows<T>& out, const Rows<T>& a, const Rows<T>& index, bool back) {
  const int64_t length = a.width / out.width;
  for (int64_t row = 0; row < out.count; ++row)
    for (int64_t g = 0; g < out.width; ++g) {
      T& x = a[row][g * length + clipped(index[row][g], length)];
      if (back) x += out[row][g];
      else out[row][g] = x;
    }
}

// (outer, length, inner) summed over length, times factor.
template <typename T>
void reduce(const Rows<T>& out, const Rows<T>& a, int64_t length, int64_t inner, T factor) {
  const int64_t outer = out.width / inner;
  for (int64_t row = 0; row < out.count; ++row)
    for (int64_t o = 0; o < outer; ++o) {
      const T* x = a[row] + o * length * inner;
      T* y = out[row] + o * inner;
      if (inner == 1) {
        *y = static_cast<T>(factor * sum_of(x, length));
        continue;
      }
      for (int64_t i = 0; i < inner; ++i) y[i] = 0;
      for (int64_t k = 0; k < length; ++k)
        for (int64_t i = 0; i < inner; ++i) y[i] += factor * x[k * inner + i];
    }
}

template <typename T>
void reduce_backward(const Rows<T>& dy, const Rows<T>& dx, int64_t length, int64_t inner,
                     T factor) {
  const int64_t outer = dy.width / inner;
  for (int64_t row = 0; row < dy.count; ++row)
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t k = 0; k < length; ++k) {
        T* d = dx[row] + (o * length + k) * inner;
        const T* g = dy[row] + o * inner;
        for (int64_t i = 0; i < inner; ++i) d[i] += factor * g[i];
      }
}

// --- matrices in rows --------------------------------------------------------------------------

// Some vectors of columns of `rows` lines of c, whose sums stay in registers; element (i, p) of a
// at i * step + p * next.
template <int rows, int vectors, typename T>
inline void product_tile(T* c, const T* a, int64_t step, int64_t next, const T* b, int64_t n,
                         int64_t k, bool accumulate) {
  using V = typename Vector<T>::type;
  using L = typename Vector<T>::loose;
  constexpr int lanes = Vector<T>::lanes;
  V sums[rows][vectors];
  for (int i = 0; i < rows; ++i)
    for (int v = 0; v < vectors; ++v)
      sums[i][v] = accumulate ? *reinterpret_cast<const L*>(c + i * n + v * lanes) : V{};
  for (int64_t p = 0; p < k; ++p)
    for (int i = 0; i < rows; ++i)
      for (int v = 0; v < vectors; ++v)
        sums[i][v] += a[i * step + p * next] * *reinterpret_cast<const L*>(b + p * n + v * lanes);
  for (int i = 0; i < rows; ++i)
    for (int v = 0; v < vectors; ++v) *reinterpret_cast<L*>(c + i * n + v * lanes) = sums[i][v];
}

// All columns of `rows` lines.
template <int rows, typename T>
void product_lines(T* c, const T* a, int64_t step, int64_t next, const T* b, int64_t n, int64_t k,
                   bool accumulate) {
  constexpr int64_t lanes = Vector<T>::lanes;
  constexpr int most = 8 / rows;  // so many sums hide each other's latency
  int64_t j = 0;
  for (; j + most * lanes <= n; j += most * lanes)
    product_tile<rows, most>(c + j, a, step, next, b + j, n, k, accumulate);
  for (; j + lanes <= n; j += lanes)
    product_tile<rows, 1>(c + j, a, step, next, b + j, n, k, accumulate);
  for (int i = 0; i < rows && j < n; ++i) {
    T* __restrict line = c + i * n;
    if (!accumulate) std::fill(line + j, line + n, T(0));
    for (int64_t p = 0; p < k; ++p)
      for (int64_t q = j; q < n; ++q) line[q] += a[i * step + p * next] * b[p * n + q];
  }
}

// c (m, n) = a (m, k) b (k, n), plus c itself, either given transposed.
template <typename T>
void small_product(T* c, const T* a, const T* b, int64_t m, int64_t n, int64_t k, bool a_columns,
                   bool b_columns, bool accumulate) {
  const int64_t step = a_columns ? 1 : k, next = a_columns ? m : 1;
  int64_t i = 0;
  if (!b_columns) {
    for (; i + 4 <= m; i += 4)
      product_lines<4>(c + i * n, a + i * step, step, next, b, n, k, accumulate);
    for (; i < m; ++i) product_lines<1>(c + i * n, a + i * step, step, next, b, n, k, accumulate);
  }
  for (; i < m; ++i)  // rows of b as they lie: dot products
    for (int64_t j = 0; j < n; ++j) {
      T total = 0;
      const T *x = a + i * step, *y = b + j * k;
      if (a_columns) {
        for (int64_t p = 0; p < k; ++p) total += x[p * next] * y[p];
      } else {
#pragma omp simd reduction(+ : total)
        for (int64_t p = 0; p < k; ++p) total += x[p] * y[p];
      }
      c[i * n + j] = accumulate ? c[i * n + j] + total : total;
    }
}

// For a row: c (m, n) = op(a) op(b).
struct ProductShape {
  int64_t m, n, k;
  bool transposed_a, transposed_b;  // given as (k, m), as (n, k)
};

template <typename T>
void batch_product(const Rows<T>& out, const Rows<T>& a, const Rows<T>& b, ProductShape s) {
  const int64_t count = out.width / (s.m * s.n);
  for (int64_t row = 0; row < out.count; ++row)
    for (int64_t i = 0; i < count; ++i)
      small_product(out[row] + i * s.m * s.n, a[row] + i * s.m * s.k, b[row] + i * s.k * s.n, s.m,
                    s.n, s.k, s.transposed_a, s.transposed_b, false);
}

template <typename T>
void batch_product_backward(const Rows<T>& dy, const Rows<T>& da, const Rows<T>& db,
                            const Rows<T>& a, const Rows<T>& b, ProductShape s) {
  const int64_t count = dy.width / (s.m * s.n);
  for (int64_t row = 0; row < dy.count; ++row)
    for (int64_t i = 0; i < count; ++i) {
      const T* g = dy[row] + i * s.m * s.n;
      if (da) {
        T* d = da[row] + i * s.m * s.k;
        const T* v = b[row] + i * s.k * s.n;
        if (s.transposed_a)  // (k, m) = op(b) (k, n) times g transposed
          small_product(d, v, g, s.k, s.m, s.n, s.transposed_b, true, true);
        else                 // (m, k) = g (m, n) times op(b) transposed
          small_product(d, g, v, s.m, s.k, s.n, false, !s.transposed_b, true);
      }
      if (db) {
        T* d = db[row] + i * s.k * s.n;
        const T* v = a[row] + i * s.m * s.k;
        if (s.transposed_b)  // (n, k) = g transposed times op(a)
          small_product(d, g, v, s.n, s.k, s.m, true, s.transposed_a, true);
        else                 // (k, n) = op(a) transposed times g
          small_product(d, v, g, s.k, s.n, s.m, !s.transposed_a, false, true);
      }
    }
}

// `outer` runs of `inner` columns; `step_out` and `step_a` columns from one to the next.
template <typename T>
void strided(const Rows<T>& out, const Rows<T>& a, int64_t outer, int64_t inner, int64_t step_out,
             int64_t step_a, bool accumulate) {
  for (int64_t row = 0; row < out.count; ++row)
    for (int64_t o = 0; o < outer; ++o) {
      T* y = out[row] + o * step_out;
      const T* x = a[row] + o * step_a;
      for (int64_t i = 0; i < inner; ++i) y[i] = accumulate ? y[i] + x[i] : x[i];
    }
}

// (outer, m, n, inner) to (outer, n, m, inner)
template <typename T>
void transpose(const Rows<T>& out, const Rows<T>& a, int64_t m, int64_t n, int64_t inner,
               bool accumulate) {
  const int64_t outer = out.width / (m * n * inner);
  for (int64_t row = 0; row < out.count; ++row)
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
          T* y = out[row] + ((o * n + j) * m + i) * inner;
          const T* x = a[row] + ((o * m + i) * n + j) * inner;
          for (int64_t p = 0; p < inner; ++p) y[p] = accumulate ? y[p] + x[p] : x[p];
        }
}

// --- rows of arenas and parameters -------------------------------------------------------------

// Each row of `out` is made of `times` rows of the arena.
template <typename T>
void gather(const Rows<T>& out, int64_t times, const T* arena, const int32_t* rows) {
  const int64_t width = out.width / times;
  for (int64_t row = 0; row < out.count; ++row)
    for (int64_t i = 0; i < times; ++i)
      std::memcpy(out[row] + i * width, arena + *rows++ * width, width * sizeof(T));
}

template <typename T>
void scatter_add(const Rows<T>& gradient, int64_t times, T* arena, const int32_t* rows) {
  const int64_t width = gradient.width / times;
  for (int64_t row = 0; row < gradient.count; ++row)
    for (int64_t i = 0; i < times; ++i)
      add_line(arena + *rows++ * width, gradient[row] + i * width, width);
}

template <typename T>
void lookup(const Rows<T>& out, const T* table, int64_t count, int64_t width,
            const Rows<T>& index) {
  for (int64_t row = 0; row < out.count; ++row)
    for (int64_t i = 0; i < index.width; ++i)
      std::memcpy(out[row] + i * width, table + clipped(index[row][i], count) * width,
                  width * sizeof(T));
}

template <typename T>
void lookup_backward(const Rows<T>& dy, T* table, int64_t count, int64_t width,
                     const Rows<T>& index) {
  for (int64_t row = 0; row < dy.count; ++row)
    for (int64_t i = 0; i < index.width; ++i)
      add_line(table + clipped(index[row][i], count) * width, dy[row] + i * width, width);
}

template <typename T> bool all_finite(const T* x, int64_t n) {
  T sum = 0;  // of zeros, or NaN
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += x[i] * T(0);
  return sum == T(0);
}

template <typename T> void add_column_sums(T* sums, const Rows<T>& a) {
  for (int64_t row = 0; row < a.count; ++row) add_line(sums, a[row], a.width);
}

}  // namespace edb
