// Elementwise functions and their derivatives, written so that the compiler vectorises them.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <limits>

namespace edb {

// exp for float: 2^n times a polynomial (Cephes, Moshier 1989); relative error below 2e-7.
inline float exponential(float x) {
  x = x > 88.0f ? 88.0f : x;
  const float low = -87.0f;
  const float clipped = x < low ? low : x;
  const float rounded = __builtin_floorf(clipped * 1.44269504088896341f + 0.5f);
  float r = clipped - rounded * 0.693359375f;
  r = r - rounded * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const uint32_t bits = static_cast<uint32_t>(static_cast<int32_t>(rounded) + 127) << 23;
  float scale;
  std::memcpy(&scale, &bits, sizeof(scale));
  return p * scale;
}
inline double exponential(double x) { return std::exp(x); }

// 1 / (1 + exp(-x)) for float: of the exponential of -|x|, so that neither end overflows, which is
// 2^n (A + B) / (A - B), Padé's approximation of order three; so there is one division only.
// Relative error below 2e-7, also where the result is small.
inline float sigmoid(float x) {
  float size = __builtin_fabsf(x);
  size = size > 87.0f ? 87.0f : size;
  const float magic = 12582912.0f;  // 1.5 * 2^23: what is added to it is rounded, in its last bits
  const float shifted = magic - size * 1.44269504088896341f;
  const float rounded = shifted - magic;
  float r = -size - rounded * 0.693359375f;
  r = r + rounded * 2.12194440e-4f;
  const float a = r * r * 12.0f + 120.0f, b = r * (r * r + 60.0f);
  const float below = a - b;
  float above = a + b;
  uint32_t bits, power;
  std::memcpy(&bits, &above, sizeof(bits));
  std::memcpy(&power, &shifted, sizeof(power));
  bits += power << 23;
  std::memcpy(&above, &bits, sizeof(above));
  return (x < 0.0f ? above : below) / (below + above);
}
inline double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// tanh for float: x P(x^2) / Q(x^2), the least relative error up to where it rounds to one (by
// Lawson's weighted least squares, of degree four each: 2.1e-8, evaluated 3.6e-7), never above one.
inline float hyperbolic_tangent(float x) {
  float size = __builtin_fabsf(x);
  size = size > 9.02f ? 9.02f : size;
  const float z = size * size;
  float p = 1.3318965944e-8f;
  p = p * z + 2.0583402640e-5f;
  p = p * z + 3.4940297514e-3f;
  p = p * z + 0.13379713906f;
  p = (p * z + 1.0f) * size;
  float q = 7.7619753393e-7f;
  q = q * z + 3.2830849832e-4f;
  q = q * z + 2.5871054935e-2f;
  q = q * z + 0.46713029150f;
  q = q * z + 1.0f;
  p = p > q ? q : p;
  return __builtin_copysignf(p / q, x);
}
inline double hyperbolic_tangent(double x) { return std::tanh(x); }

// The slope of the logarithm of the gamma function: recurrence, then its asymptotic series. At the
// poles, and in the logarithm's precision, as MXNet.
inline double digamma(double x) {
  const double pi = 3.14159265358979323846, euler = 0.57721566490153286061;
  const bool integer = x == std::floor(x);
  if (x <= 0) {
    if (integer) return std::numeric_limits<double>::max();
    return digamma(1 - x) - pi / std::tan(pi * (x - std::nearbyint(x)));
  }
  double sum = 0;
  if (integer && x <= 10) {
    for (; x > 1; x -= 1) sum += 1 / (x - 1);
    return sum - euler;
  }
  for (; x < 10; x += 1) sum -= 1 / x;
  const double z = 1 / (x * x);
  double series = 691.0 / 32760 - z / 12;
  for (const double divisor : {132, 240, 252, 120, 12}) series = 1 / divisor - z * series;
  return sum + std::log(static_cast<float>(x)) - 0.5 / x - z * series;
}

// Rational approximations and Newton's steps, as MXNet; the tail by erfc, which cancels nothing.
inline double inverse_error_function(double y) {
  const double rest = 1 - std::fabs(y);
  if (rest == 0) return std::copysign(std::numeric_limits<double>::infinity(), y);
  double x;
  if (rest >= 0.3) {
    const double z = y * y;
    x = y * (((-0.140543331 * z + 0.914624893) * z - 1.645349621) * z + 0.886226899) /
        ((((0.012229801 * z - 0.329097515) * z + 1.442710462) * z - 2.118377725) * z + 1);
  } else {
    const double z = std::sqrt(-std::log(rest / 2));
    x = (((1.641345311 * z + 3.429567803) * z - 1.624906493) * z - 1.970840454) /
        ((1.637067800 * z + 3.543889200) * z + 1);
  }
  for (int step = 0; step < 3; ++step)
    x -=
        (rest >= 0.3 ? std::erf(x) - y : rest - std::erfc(x)) * 0.886226925452758 * std::exp(x * x);
  return rest >= 0.3 ? x : std::copysign(x, y);
}

// Each has `value(x)`, and its `slope`, which gets the one value that it reads: the argument x or
// the result y, as the operator's declaration in gluon_edbatch/ops says.
template <typename T> struct Affine {
  T factor, term;
  T value(T x) const { return factor * x + term; }
  T slope(T) const { return factor; }
};
template <typename T> struct Held {  // from autograd
  T value(T x) const { return x; }
  T slope(T) const { return T(0); }
};
template <typename T> struct Sigmoid {
  T value(T x) const { return sigmoid(x); }
  T slope(T y) const { return y * (T(1) - y); }
};
template <typename T> struct Tanh {
  T value(T x) const { return hyperbolic_tangent(x); }
  T slope(T y) const { return T(1) - y * y; }
};
template <typename T> struct Relu {
  T value(T x) const { return x > T(0) ? x : (x == x ? T(0) : x); }
  T slope(T y) const { return y > T(0) ? T(1) : T(0); }
};
template <typename T> struct Exp {
  T value(T x) const { return std::exp(x); }  // infinities and denormals as expected
  T slope(T y) const { return y; }
};
template <typename T> struct Log {
  T value(T x) const { return std::log(x); }
  T slope(T x) const { return T(1) / x; }
};
// In double precision, also for float: the slopes of some multiply the error of what they read.
template <typename T> struct Gamma {
  T value(T x) const { return static_cast<T>(std::tgamma(static_cast<double>(x))); }
  T slope(T x) const { return static_cast<T>(std::tgamma(static_cast<double>(x)) * digamma(x)); }
};
template <typename T> struct LogGamma {
  T value(T x) const { return static_cast<T>(std::lgamma(static_cast<double>(x))); }
  T slope(T x) const { return static_cast<T>(digamma(x)); }
};
constexpr double kRootOfPi = 1.7724539f;  // of MXNet: in single precision, also for double
template <typename T> struct Erf {
  T value(T x) const { return std::erf(x); }
  T slope(T x) const {
    return static_cast<T>(2 / kRootOfPi * std::exp(-static_cast<double>(x) * x));
  }
};
template <typename T> struct ErfInv {
  T value(T x) const { return static_cast<T>(inverse_error_function(x)); }
  T slope(T x) const {
    const double y = inverse_error_function(x);
    return static_cast<T>(kRootOfPi / 2 * std::exp(y * y));
  }
};
template <typename T> struct Square {
  T value(T x) const { return x * x; }
  T slope(T x) const { return T(2) * x; }
};
template <typename T> struct Sqrt {
  T value(T x) const { return std::sqrt(x); }
  T slope(T y) const { return T(0.5) / y; }
};
template <typename T> struct Abs {
  T value(T x) const { return std::fabs(x); }
  T slope(T x) const { return T(x > T(0)) - T(x < T(0)); }
};
template <typename T> struct Reciprocal {
  T factor;
  T value(T x) const { return factor / x; }
  T slope(T x) const { return -factor / (x * x); }
};
template <typename T> struct SoftRelu {
  T value(T x) const { return x > T(20) ? x : std::log1p(std::exp(x)); }
  T slope(T y) const { return T(1) - std::exp(-y); }
};
template <typename T> struct SoftSign {
  T value(T x) const { return x / (T(1) + std::fabs(x)); }
  T slope(T x) const {
    const T d = T(1) + std::fabs(x);
    return T(1) / (d * d);
  }
};
template <typename T> struct Leaky {
  T below;
  T value(T x) const { return x > T(0) ? x : below * x; }
  T slope(T x) const { return x > T(0) ? T(1) : below; }
};
// exp(x) - 1 below zero, without cancellation: 2t / (1 - t) for t = tanh(x / 2).
inline float exponential_less_one(float x) {
  const float t = hyperbolic_tangent(0.5f * x);
  return 2.0f * t / (1.0f - t);
}
inline double exponential_less_one(double x) { return std::expm1(x); }
template <typename T> struct Elu {
  T below;
  T value(T x) const { return x > T(0) ? x : below * exponential_less_one(x); }
  T slope(T y) const { return y > T(0) ? T(1) : y + below; }
};
template <typename T> struct Clip {
  T least, greatest;
  T value(T x) const { return x > greatest ? greatest : x < least ? least : x; }
  T slope(T x) const { return x > greatest || x < least ? T(0) : T(1); }
};

// Of two arguments: the value, and the slopes towards each, which read both or none.
template <typename T> struct Add {
  T value(T a, T b) const { return a + b; }
  T first(T, T) const { return T(1); }
  T second(T, T) const { return T(1); }
};
template <typename T> struct Subtract {
  T value(T a, T b) const { return a - b; }
  T first(T, T) const { return T(1); }
  T second(T, T) const { return T(-1); }
};
template <typename T> struct Multiply {
  T value(T a, T b) const { return a * b; }
  T first(T, T b) const { return b; }
  T second(T a, T) const { return a; }
};
template <typename T> struct Divide {
  T value(T a, T b) const { return a / b; }
  T first(T, T b) const { return T(1) / b; }
  T second(T a, T b) const { return -a / (b * b); }
};
// The larger or the lesser of two; NaN of NaN and a number. At a tie MXNet gives the gradient to
// the first, or to both if the second is a number.
template <typename T, typename Beyond, typename BeyondOrEqual> struct Extreme {
  T value(T a, T b) const { return Beyond()(a, b) || a != a ? a : b; }
  T first(T a, T b) const { return T(BeyondOrEqual()(a, b)); }
  T second(T a, T b) const { return T(!BeyondOrEqual()(a, b)); }
};
template <typename T> using Larger = Extreme<T, std::greater<T>, std::greater_equal<T>>;
template <typename T> using Smaller = Extreme<T, std::less<T>, std::less_equal<T>>;
template <typename T, typename Of> struct Bounded {
  T bound;
  T value(T x) const { return Of().value(x, bound); }
  T slope(T x) const { return Of().first(x, bound); }
};
template <typename T> using Maximum = Bounded<T, Larger<T>>;
template <typename T> using Minimum = Bounded<T, Smaller<T>>;

// What compares has no slope.
template <typename T, typename Comparison> struct Compared {
  T value(T a, T b) const { return T(Comparison()(a, b)); }
  T first(T, T) const { return T(0); }
  T second(T, T) const { return T(0); }
};
template <typename T> using Equal = Compared<T, std::equal_to<T>>;
template <typename T> using NotEqual = Compared<T, std::not_equal_to<T>>;
template <typename T> using Greater = Compared<T, std::greater<T>>;
template <typename T> using GreaterEqual = Compared<T, std::greater_equal<T>>;
template <typename T> using Lesser = Compared<T, std::less<T>>;
template <typename T> using LesserEqual = Compared<T, std::less_equal<T>>;

}  // namespace edb
