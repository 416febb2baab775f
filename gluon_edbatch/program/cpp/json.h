// Results as JSON. As in Python's, there are NaN and Infinity.
#pragma once

#include <cmath>
#include <cstdio>

#include "values.h"

namespace edb {

template <class T>
void append_number(std::string& text, T number) {
  if constexpr (std::is_same_v<T, bool>) {
    text += number ? "true" : "false";
  } else if constexpr (std::is_integral_v<T>) {
    text += std::to_string(number);
  } else if (!std::isfinite(number)) {
    text += number != number ? "NaN" : number < 0 ? "-Infinity" : "Infinity";
  } else {
    char digits[32];  // as many as tell a number from all others
    std::snprintf(digits, sizeof digits, sizeof number == 4 ? "%.9g" : "%.17g", double(number));
    text += digits;
    if (!std::strpbrk(digits, ".e")) text += ".0";  // a float is no integer
  }
}

// Lists in lists, by axes.
template <class T>
const T* append_axes(std::string& text, const T* elements, const std::vector<uint32_t>& shape,
                     size_t axis) {
  if (axis == shape.size()) {
    append_number(text, *elements);
    return elements + 1;
  }
  text += '[';
  for (uint32_t i = 0; i < shape[axis]; ++i) {
    if (i) text += ", ";
    elements = append_axes(text, elements, shape, axis + 1);
  }
  text += ']';
  return elements;
}

// What a sample has in a value.
inline void append_json(std::string& text, const Value& value, size_t sample) {
  if (const Tensor* tensor = std::get_if<Tensor>(&value)) {
    const Spec& spec = tensor->spec();
    tensor->elements([&](const auto* elements, size_t) {
      append_axes(text, elements + sample * spec.elements(), spec.shape, 0);
    });
  } else {
    std::visit(
        [&](const auto& numbers) {
          using T = std::decay_t<decltype(numbers)>;
          if constexpr (!std::is_same_v<T, Tensor>)
            append_number<typename T::value_type>(text, numbers[sample]);
        },
        value);
  }
}

}  // namespace edb
