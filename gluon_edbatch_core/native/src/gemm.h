// Products of matrices in row-major order, with the right-hand side packed beforehand.
//
// The loops are those of Goto and van de Geijn ("Anatomy of high-performance matrix
// multiplication", 2008), cut down to what a static subgraph needs: one side is a weight, which
// all batches of an evaluation share and which is packed once for it into panels of two vectors'
// width; the other is a block of rows that is in a cache already and is read as it lies.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

namespace edb {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
constexpr int kTileRows = 14;  // 28 accumulators of 32 registers
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
constexpr int kTileRows = 6;   // 12 of 16
#else
constexpr int kVectorBytes = 16;
constexpr int kTileRows = 4;
#endif
constexpr int kDepth = 256;    // rows that a sum over rows takes at once

template <typename T> struct Vector {
  typedef T type __attribute__((vector_size(kVectorBytes)));
  typedef T loose __attribute__((vector_size(kVectorBytes), aligned(alignof(T)), may_alias));
  static constexpr int lanes = kVectorBytes / sizeof(T);
};
template <typename T> constexpr int kPanel = 2 * Vector<T>::lanes;

// How the left-hand side lies in memory: element (row, k) at row * stride + k, or at k * stride +
// row.
enum class Side { kRows, kColumns };

template <typename T> int64_t panels(int64_t columns) {
  return (columns + kPanel<T> - 1) / kPanel<T>;
}

template <typename T> int64_t packed_size(int64_t depth, int64_t columns) {
  return depth * panels<T>(columns) * kPanel<T>;
}

template <typename T> struct Four {
  typedef T type __attribute__((vector_size(4 * sizeof(T))));
  typedef T loose __attribute__((vector_size(4 * sizeof(T)), aligned(alignof(T)), may_alias));
};

#if defined(__clang__) || __GNUC__ >= 12
#define EDB_SHUFFLE(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
#define EDB_SHUFFLE(a, b, i, j, k, l) \
  __builtin_shuffle(a, b, decltype(__builtin_shuffle(a, a < a)){i, j, k, l})
#endif

// Four lines of four elements become columns.
template <typename T>
inline void transpose4(const T* source, int64_t stride, T* target, int64_t target_stride) {
  using V = typename Four<T>::type;
  using L = typename Four<T>::loose;
  const auto line = [&](int i) { return reinterpret_cast<const L*>(source + i * stride); };
  const V a = *line(0), b = *line(1), c = *line(2), d = *line(3);
  const V low = EDB_SHUFFLE(a, b, 0, 4, 1, 5), high = EDB_SHUFFLE(a, b, 2, 6, 3, 7);
  const V low2 = EDB_SHUFFLE(c, d, 0, 4, 1, 5), high2 = EDB_SHUFFLE(c, d, 2, 6, 3, 7);
  const V out[4] = {EDB_SHUFFLE(low, low2, 0, 1, 4, 5), EDB_SHUFFLE(low, low2, 2, 3, 6, 7),
                    EDB_SHUFFLE(high, high2, 0, 1, 4, 5), EDB_SHUFFLE(high, high2, 2, 3, 6, 7)};
  for (int i = 0; i < 4; ++i) *reinterpret_cast<L*>(target + i * target_stride) = out[i];
}

// One panel, from `width` lines of `depth` elements each.
template <typename T>
void pack_panel_transposed(const T* source, int64_t stride, int64_t depth, int width, T* packed) {
  if (width < kPanel<T>) std::memset(packed, 0, depth * kPanel<T> * sizeof(T));
  const int fours = width - width % 4;
  const int64_t whole = depth - depth % 4;
  for (int64_t k0 = 0; k0 < whole; k0 += 16) {  // a block of both stays in the first cache
    const int64_t k1 = std::min<int64_t>(whole, k0 + 16);
    for (int j = 0; j < fours; j += 4)
      for (int64_t k = k0; k < k1; k += 4)
        transpose4(source + j * stride + k, stride, packed + k * kPanel<T> + j, kPanel<T>);
  }
  for (int j = 0; j < width; ++j)
    for (int64_t k = j < fours ? whole : 0; k < depth; ++k)
      packed[k * kPanel<T> + j] = source[j * stride + k];
}

// A line of a panel; zeros are behind the last columns.
template <typename T> void copy_line(const T* line, int64_t width, T* packed) {
  if (width >= kPanel<T>) {
    std::memcpy(packed, line, kPanel<T> * sizeof(T));
  } else {
    for (int64_t j = 0; j < kPanel<T>; ++j) packed[j] = j < width ? line[j] : T(0);
  }
}

// Packs a (depth, columns) matrix; if `transposed` it is given as (columns, depth).
template <typename T>
void pack(const T* source, int64_t stride, int64_t depth, int64_t columns, bool transposed,
          T* packed) {
  for (int64_t begin = 0; begin < columns; begin += kPanel<T>, packed += depth * kPanel<T>) {
    const int width = static_cast<int>(std::min<int64_t>(kPanel<T>, columns - begin));
    if (transposed) {
      pack_panel_transposed(source + begin * stride, stride, depth, width, packed);
      continue;
    }
    for (int64_t k = 0; k < depth; ++k)
      copy_line(source + k * stride + begin, width, packed + k * kPanel<T>);
  }
}

// Fills line `k` of panels that have room for `deep` lines.
template <typename T>
void pack_line(const T* line, int64_t columns, int64_t k, int64_t deep, T* packed) {
  packed += k * kPanel<T>;
  for (; columns > 0; columns -= kPanel<T>, line += kPanel<T>, packed += deep * kPanel<T>)
    copy_line(line, columns, packed);
}

// Keeps the compiler from loading the same vectors again for each row.
template <typename V, int Count>
inline __attribute__((always_inline)) void hold(V (&vectors)[Count]) {
#if defined(__AVX512F__)
  for (V& vector : vectors) asm("" : "+v"(vector));
#elif defined(__x86_64__)
  for (V& vector : vectors) asm("" : "+x"(vector));
#endif
}

// One tile of `Rows` rows and `vectors` vectors of columns: half of a panel, or whole panels.
template <typename T, Side S, int Rows, int vectors>
inline __attribute__((always_inline)) void tile(int64_t depth, const T* __restrict a,
                                                int64_t stride, const T* __restrict packed,
                                                int64_t panel_size, T* __restrict c,
                                                int64_t c_stride, int64_t width, const T* bias,
                                                bool accumulate) {
  using V = typename Vector<T>::type;
  using L = typename Vector<T>::loose;
  constexpr int lanes = Vector<T>::lanes;
  V sums[Rows][vectors];
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) sums[i][v] = V{};
  const T* right[(vectors + 1) / 2];  // panels
  for (int p = 0; p < (vectors + 1) / 2; ++p) right[p] = packed + p * panel_size;
  for (int64_t k = 0; k < depth; ++k) {
    V columns[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v)
      columns[v] = *reinterpret_cast<const L*>(right[v / 2] + k * kPanel<T> + (v % 2) * lanes);
    if (Rows > 1) hold(columns);
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
      const T left = S == Side::kRows ? a[i * stride + k] : a[k * stride + i];
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sums[i][v] += left * columns[v];
    }
  }
  if (width < vectors * lanes) {  // the last columns
    T rest[Rows][vectors * lanes];
    std::memcpy(rest, sums, sizeof(rest));
    for (int i = 0; i < Rows; ++i)
      for (int64_t j = 0; j < width; ++j)
        c[i * c_stride + j] =
            rest[i][j] + (bias ? bias[j] : T(0)) + (accumulate ? c[i * c_stride + j] : T(0));
    return;
  }
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) {
      T* out = c + i * c_stride + v * lanes;
      if (bias) sums[i][v] += *reinterpret_cast<const L*>(bias + v * lanes);
      if (accumulate) sums[i][v] += *reinterpret_cast<const L*>(out);
      *reinterpret_cast<L*>(out) = sums[i][v];
    }
}

// Where row `i` of the left-hand side begins.
template <Side S> int64_t row_at(int64_t i, int64_t stride) {
  return S == Side::kRows ? i * stride : i;
}

// `count` tiles of Rows rows, one below the other.
template <typename T, Side S, int Rows, int vectors>
void column_of_tiles(int64_t count, int64_t width, int64_t depth, const T* a, int64_t stride,
                     const T* packed, T* c, int64_t c_stride, const T* bias, bool accumulate) {
  for (int64_t i = 0; i < count; ++i, a += row_at<S>(Rows, stride), c += Rows * c_stride)
    tile<T, S, Rows, vectors>(depth, a, stride, packed, depth * kPanel<T>, c, c_stride, width, bias,
                              accumulate);
}

// `large` tiles of Rows rows, and then `small` ones of a row less.
template <typename T, Side S, int Rows>
void multiply_tiles(int64_t large, int64_t small, int64_t columns, int64_t depth, const T* a,
                    int64_t stride, const T* packed, T* c, int64_t c_stride, const T* bias,
                    bool accumulate) {
  // Few rows leave registers free, and need more sums under way to hide the latency of each.
  constexpr int vectors = Rows * 4 <= 2 * kTileRows ? 4 : 2;
  constexpr int fewer = Rows > 1 ? Rows - 1 : 1;
  constexpr int step = vectors * Vector<T>::lanes;
  for (int64_t begin = 0; begin < columns; begin += step, packed += depth * step) {
    const int64_t width = columns - begin;  // these panels stay in the first cache
    const auto run = [&](auto narrowed) {
      constexpr int of = decltype(narrowed)::value;
      const T* some = bias ? bias + begin : nullptr;
      column_of_tiles<T, S, Rows, of>(large, width, depth, a, stride, packed, c + begin, c_stride,
                                      some, accumulate);
      if constexpr (vectors == 2)  // otherwise there is one tile alone
        column_of_tiles<T, S, fewer, of>(small, width, depth, a + row_at<S>(large * Rows, stride),
                                         stride, packed, c + large * Rows * c_stride + begin,
                                         c_stride, some, accumulate);
    };
    if (width <= Vector<T>::lanes) run(std::integral_constant<int, 1>());
    else if (width <= kPanel<T>) run(std::integral_constant<int, 2>());
    else run(std::integral_constant<int, vectors>());
  }
}

template <typename T, Side S, int Rows = kTileRows, typename... Arguments>
void multiply_tiles_of(int64_t rows, Arguments... arguments) {
  if constexpr (Rows > 1)
    if (rows < Rows) return multiply_tiles_of<T, S, Rows - 1>(rows, arguments...);
  multiply_tiles<T, S, Rows>(arguments...);
}

// c (rows, columns) = a (rows, depth) times packed (depth, columns), plus bias, plus c itself.
// The rows are shared out evenly: a last tile of few rows would wait for memory.
template <typename T, Side S = Side::kRows>
void multiply(int64_t rows, int64_t columns, int64_t depth, const T* a, int64_t stride,
              const T* packed, T* c, int64_t c_stride, const T* bias, bool accumulate) {
  if (!rows) return;
  const int64_t tiles = (rows + kTileRows - 1) / kTileRows, most = (rows + tiles - 1) / tiles;
  const int64_t small = most * tiles - rows;
  multiply_tiles_of<T, S>(most, tiles - small, small, columns, depth, a, stride, packed, c,
                          c_stride, bias, accumulate);
}

// --- sums over rows: c (out, in) += the transpose of (depth, out) times (depth, in) --------------

template <typename T> int64_t tiles_size(int64_t columns) {
  return (columns + kTileRows - 1) / kTileRows * kTileRows * kDepth;
}

// Fills line `k` of tiles with room for kDepth lines, each kTileRows columns wide.
template <typename T>
void pack_tiles_line(const T* line, int64_t columns, int64_t k, T* tiles) {
  tiles += k * kTileRows;
  for (; columns >= kTileRows; columns -= kTileRows, line += kTileRows, tiles += kDepth * kTileRows)
    std::memcpy(tiles, line, kTileRows * sizeof(T));
  for (int64_t i = 0; columns > 0 && i < kTileRows; ++i) tiles[i] = i < columns ? line[i] : T(0);
}

// From `depth` lines that were packed by pack_tiles_line and, with room for kDepth, by pack_line.
// Lines of c lie `stride` apart.
template <typename T>
void multiply_transposed(int64_t out, int64_t in, int64_t depth, const T* tiles, const T* panels,
                         T* c, int64_t stride) {
  const int64_t panel_size = kDepth * kPanel<T>;
  for (int64_t begin = 0; begin < in; begin += kPanel<T>, panels += panel_size) {
    const int64_t width = std::min<int64_t>(kPanel<T>, in - begin);
    const auto run = [&](auto vectors) {
      constexpr int of = decltype(vectors)::value;
      const T* left = tiles;
      for (int64_t row = 0; row < out; row += kTileRows, left += kDepth * kTileRows) {
        if (row + kTileRows <= out) {
          tile<T, Side::kColumns, kTileRows, of>(depth, left, kTileRows, panels, panel_size,
                                                 c + row * stride + begin, stride, width, nullptr,
                                                 true);
          continue;
        }
        T rest[kTileRows * kPanel<T>];
        tile<T, Side::kColumns, kTileRows, of>(depth, left, kTileRows, panels, panel_size, rest,
                                               kPanel<T>, kPanel<T>, nullptr, false);
        for (int64_t i = row; i < out; ++i)
          for (int64_t j = 0; j < width; ++j)
            c[i * stride + begin + j] += rest[(i - row) * kPanel<T> + j];
      }
    };
    if (width <= Vector<T>::lanes) run(std::integral_constant<int, 1>());
    else run(std::integral_constant<int, 2>());
  }
}

}  // namespace edb
