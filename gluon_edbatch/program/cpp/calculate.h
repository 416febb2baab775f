// Numbers of samples, computed as Python computes them: branching/host_arithmetic.py in C++.
//
// Operands are Numbers, or a constant that is the same for all samples.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <type_traits>

#include "values.h"

namespace edb {

template <class T>
struct Same {
  T value;
  T operator[](size_t) const { return value; }
};
template <class T>
Same<T> same(T value) {
  return {value};
}

// Comparisons where rounding may have decided: the line, and the sample.
using Near = std::vector<std::pair<const char*, size_t>>;

// Where something is computed: the user's line, and for which samples.
struct Place {
  const char* line;
  const std::vector<size_t>& samples;
  Near& near;

  void check(bool holds, const char* otherwise) const {
    if (!holds) throw Error(std::string(line) + "\n  " + otherwise);
  }
};

template <class A>
using Element = std::decay_t<decltype(std::declval<const A&>()[0])>;
template <class T>
constexpr bool is_float = std::is_same_v<T, double>;
// What numbers of two kinds are together; in arithmetic, bools are integers.
template <class X, class Y>
using Common = std::conditional_t<is_float<X> || is_float<Y>, double,
                                  std::conditional_t<std::is_same_v<X, Y>, X, int64_t>>;
template <class X, class Y = int64_t>
using Arithmetic = Common<int64_t, Common<X, Y>>;

// f of the numbers of each sample.
template <class F, class... Operands>
auto each(const Place& at, F f, const Operands&... operands) {
  Numbers<decltype(f(operands[0]...))> made;
  made.reserve(at.samples.size());
  for (size_t i = 0; i < at.samples.size(); ++i) made.push_back(f(operands[i]...));
  return made;
}

// --- arithmetic ----------------------------------------------------------------------------------

constexpr const char* kTooLarge = "an integer has more than 64 bits";
constexpr const char* kByZero = "a number is divided by zero";

// Integers in 128 bits, so that what is too large is seen.
__extension__ typedef __int128 Wide;

template <class F>
struct Checked {
  double operator()(const Place&, double x, double y) const { return F()(x, y); }
  int64_t operator()(const Place& at, int64_t x, int64_t y) const {
    const Wide made = F()(static_cast<Wide>(x), static_cast<Wide>(y));
    at.check(made == static_cast<int64_t>(made), kTooLarge);
    return static_cast<int64_t>(made);
  }
};
using Add = Checked<std::plus<>>;
using Subtract = Checked<std::minus<>>;
using Multiply = Checked<std::multiplies<>>;

struct Divide {
  double operator()(const Place& at, double x, double y) const {
    at.check(y != 0, kByZero);
    return x / y;
  }
};

// The remainder has the sign of the divisor.
struct Remainder {
  double operator()(const Place& at, double x, double y) const {
    at.check(y != 0, kByZero);
    const double rest = std::fmod(x, y);
    if (rest == 0) return std::copysign(0.0, y);
    return (rest < 0) != (y < 0) ? rest + y : rest;
  }
  int64_t operator()(const Place& at, int64_t x, int64_t y) const {
    at.check(y != 0, kByZero);
    if (y == -1) return 0;  // the smallest integer's quotient is too large for the processor
    const int64_t rest = x % y;
    return rest && (rest < 0) != (y < 0) ? rest + y : rest;
  }
};

struct FloorDivide {
  double operator()(const Place& at, double x, double y) const {
    at.check(y != 0, kByZero);
    const double rest = std::fmod(x, y);
    const double quotient = (x - rest) / y - (rest != 0 && (rest < 0) != (y < 0));
    if (quotient == 0) return std::copysign(0.0, x / y);
    const double floor = std::floor(quotient);  // a quotient of whole steps, but for rounding
    return quotient - floor > 0.5 ? floor + 1 : floor;
  }
  int64_t operator()(const Place& at, int64_t x, int64_t y) const {
    at.check(y != 0, kByZero);
    if (y == -1) return Subtract()(at, 0, x);
    return (x - Remainder()(at, x, y)) / y;
  }
};

struct Power {
  double operator()(const Place& at, double x, double y) const {
    at.check(x != 0 || !(y < 0), "zero to the power of a negative number");
    at.check(!(x < 0) || y == std::trunc(y),
             "a negative number to the power of one that is no integer");
    return std::pow(x, y);
  }
  int64_t operator()(const Place& at, int64_t x, int64_t y) const {
    at.check(y >= 0,
             "an integer to the power of a negative one is no integer: write float(n) ** m");
    int64_t made = 1;
    for (int64_t bit = int64_t(1) << 62; bit; bit >>= 1) {
      if (made != 1) made = Multiply()(at, made, made);
      if (y & bit) made = Multiply()(at, made, x);
    }
    return made;
  }
};

// A place in a list of so many elements; a negative one counts from the end.
struct Index {
  int64_t operator()(const Place& at, int64_t place, int64_t count) const {
    at.check(place >= -count && place < count, "list index out of range");
    return place < 0 ? place + count : place;
  }
};

struct Negative {
  double operator()(const Place&, double x) const { return -x; }
  int64_t operator()(const Place& at, int64_t x) const { return Subtract()(at, 0, x); }
};

struct Positive {
  double operator()(const Place&, double x) const { return x; }
  int64_t operator()(const Place&, int64_t x) const { return x; }
};

struct Absolute {
  double operator()(const Place&, double x) const { return std::fabs(x); }
  int64_t operator()(const Place& at, int64_t x) const { return x < 0 ? Negative()(at, x) : x; }
};

template <class F, class A>
auto arithmetic(const Place& at, F f, const A& a) {
  using T = Arithmetic<Element<A>>;
  return each(at, [&](T x) { return f(at, x); }, a);
}

template <class F, class A, class B>
auto arithmetic(const Place& at, F f, const A& a, const B& b) {
  using T =
      std::conditional_t<std::is_same_v<F, Divide>, double, Arithmetic<Element<A>, Element<B>>>;
  return each(at, [&](T x, T y) { return f(at, x, y); }, a, b);
}

// --- comparisons and bits ------------------------------------------------------------------------

// Whether two numbers are as good as equal; integers have no rounding in them.
template <class T>
bool are_near(T x, T y) {
  if constexpr (!is_float<T>) return false;
  const double first = x, second = y;
  return std::fabs(first - second) <= 1e-5 * std::max({std::fabs(first), std::fabs(second), 1.0});
}

// f is one of std::less and the like; what is near is noted where there is an order.
template <bool kOrdered, class F, class A, class B>
Numbers<bool> compare(const Place& at, F f, const A& a, const B& b) {
  using T = Common<Element<A>, Element<B>>;
  Numbers<bool> made;
  for (size_t i = 0; i < at.samples.size(); ++i) {
    const T x = a[i], y = b[i];
    at.check(x == x && y == y, "what is compared is not a number (NaN)");
    if (kOrdered && are_near(x, y)) at.near.emplace_back(at.line, at.samples[i]);
    made.push_back(f(x, y));
  }
  return made;
}

// f of two numbers of one kind, which the result has, too.
template <class F, class A, class B>
auto alike(const Place& at, F f, const A& a, const B& b) {
  using T = Common<Element<A>, Element<B>>;
  return each(at, [&](T x, T y) { return static_cast<T>(f(x, y)); }, a, b);
}

// --- functions -----------------------------------------------------------------------------------

// For `each`: a number as a T, and a function (std::exp or the like) of a float.
template <class T>
constexpr auto as = [](auto x) { return static_cast<T>(x); };
template <double (*kFunction)(double)>
double real(double x) {
  return kFunction(x);
}

// An integer, by f (truncation, or the like) of a float.
template <class A>
Numbers<int64_t> as_int(const Place& at, double (*f)(double), const A& a) {
  return each(
      at,
      [&](auto x) {
        if constexpr (!is_float<decltype(x)>) return static_cast<int64_t>(x);
        const double made = f(static_cast<double>(x));
        at.check(std::isfinite(made), "no integer can be made of NaN or infinity");
        at.check(std::fabs(made) < 9223372036854775808.0, kTooLarge);
        return static_cast<int64_t>(made);
      },
      a);
}

// f of a float; is_outside(x, 0) (std::less or the like) where f has no value.
template <class F, class A>
Numbers<double> partial_function(const Place& at, double (*f)(double), F is_outside,
                                 const char* otherwise, const A& a) {
  return each(
      at,
      [&](double x) {
        at.check(!is_outside(x, 0), otherwise);
        return f(x);
      },
      a);
}

}  // namespace edb
