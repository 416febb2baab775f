/* Activations of rows of single precision, for _activations.pyx: loops that compilers vectorise.

The exponential and the tangent are those of Cephes, within 2 units in the last place. */
#include <stddef.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__gnu_linux__)
/* The processor chooses when the module is loaded. */
#define EDB_CLONES __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define EDB_CLONES
#endif

static inline __attribute__((always_inline)) float edb_exp(float x) {
  const float magic = 12582912.f; /* 1.5 * 2^23: adding it rounds to a whole number */
  float whole, rest, y, scale;
  int bits;
  x = x < -87.f ? -87.f : x;
  x = x > 88.f ? 88.f : x;
  whole = (x * 1.44269504088896341f + magic) - magic;
  rest = x - whole * 0.693359375f;
  rest = rest + whole * 2.12194440e-4f;
  y = 1.9875691500e-4f;
  y = y * rest + 1.3981999507e-3f;
  y = y * rest + 8.3334519073e-3f;
  y = y * rest + 4.1665795894e-2f;
  y = y * rest + 1.6666665459e-1f;
  y = y * rest + 5.0000001201e-1f;
  y = y * rest * rest + rest + 1.f;
  bits = ((int)whole + 127) << 23;
  memcpy(&scale, &bits, sizeof scale);
  return y * scale;
}

static inline __attribute__((always_inline)) float edb_one_sigmoid(float x) {
  return 1.f / (1.f + edb_exp(-x));
}

static inline __attribute__((always_inline)) float edb_one_tanh(float x) {
  float size = x < 0 ? -x : x, square = x * x, small, large;
  small = -5.70498872745e-3f;
  small = small * square + 2.06390887954e-2f;
  small = small * square - 5.37397155531e-2f;
  small = small * square + 1.33314422036e-1f;
  small = small * square - 3.33332819422e-1f;
  small = small * square * x + x;
  large = 1.f - 2.f / (edb_exp(2.f * size) + 1.f);
  large = x < 0 ? -large : large;
  return size < 0.625f ? small : large;
}

/* `x` and `y` are the same rows or none that overlap. */
#define EDB_OF_ROWS(name, one)                                                                   \
  EDB_CLONES                                                                                     \
  static void name(const float *x, ptrdiff_t x_step, float *y, ptrdiff_t y_step, ptrdiff_t rows, \
                   ptrdiff_t columns) {                                                          \
    for (ptrdiff_t row = 0; row < rows; ++row) {                                                 \
      const float *from = x + row * x_step;                                                      \
      float *to = y + row * y_step;                                                              \
      _Pragma("GCC ivdep") for (ptrdiff_t i = 0; i < columns; ++i) to[i] = one(from[i]);         \
    }                                                                                            \
  }

EDB_OF_ROWS(edb_sigmoid, edb_one_sigmoid)
EDB_OF_ROWS(edb_tanh, edb_one_tanh)
