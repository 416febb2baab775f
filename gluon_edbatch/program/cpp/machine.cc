#include "machine.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace edb {
namespace {

// --- results as JSON; as in Python's, there are NaN and Infinity ---

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

// What a sample has in a tensor.
void append_json(std::string& text, const Tensor& tensor, size_t sample) {
  const Spec& spec = tensor.spec();
  tensor.elements([&](const auto* elements, size_t) {
    append_axes(text, elements + sample * spec.elements(), spec.shape, 0);
  });
}

// --- samples that wait ---

// All that wait at a block.
Group together(std::vector<Group> groups) {
  if (groups.size() == 1) return std::move(groups[0]);
  Group made;
  for (const Group& group : groups)
    made.samples.insert(made.samples.end(), group.samples.begin(), group.samples.end());
  for (size_t place = 0; place < groups[0].values.size(); ++place) {
    const Tensor all(groups[0].values[place].spec(), made.samples.size());
    size_t first = 0;
    for (const Group& group : groups) {
      all.copy(first, group.values[place].data(), group.samples.size());
      first += group.samples.size();
    }
    made.values.push_back(all);
  }
  return made;
}

}  // namespace

Machine::Machine(const std::string& folder, size_t most, size_t max_steps)
    : folder_(folder), most_(most), max_steps_(max_steps), networks_(kProgram.networks.size()) {
  report.chosen.resize(kProgram.blocks.size());
  for (const auto& [file, spec] : kProgram.constants) {
    const std::string data = read_file(folder, file);
    constants_.emplace_back(spec, 1);
    constants_.back().copy(0, array_of({file.name, data.data(), data.size()}).elements.data, 1);
  }
}

std::vector<std::string> Machine::run(std::vector<Tensor> arguments, size_t samples) {
  finished_.assign(samples, "");
  steps_.assign(samples, 0);
  waiting_.clear();
  Group all{{}, std::move(arguments)};
  for (size_t sample = 0; sample < samples; ++sample) all.samples.push_back(sample);
  waiting_[0].push_back(std::move(all));
  while (!waiting_.empty()) {
    const auto next = waiting_.begin();
    block_ = next->first;
    now_ = together(std::move(next->second));
    waiting_.erase(next);
    const Block& block = kProgram.blocks[block_];
    ++report.runs;
    for (const size_t sample : now_.samples)
      if (++steps_[sample] > max_steps_)
        throw Error("a sample ran more than " + std::to_string(max_steps_) +
                    " blocks, the last at " + block.name +
                    ": a loop that does not end, or --max-steps is to be larger");
    block.run(*this);
  }
  report.samples += samples;
  return std::move(finished_);
}

std::vector<Tensor> Machine::results(size_t network, const std::vector<Tensor>& inputs) {
  std::unique_ptr<Predictors>& found = networks_[network];
  if (!found) found = std::make_unique<Predictors>(kProgram.networks[network], folder_, most_);
  return found->run(inputs, now_.samples.size());
}

void Machine::note_rivals(const char* line, const Tensor& tensor) {
  tensor.elements([&](auto* elements, size_t count) {
    const size_t each = count / now_.samples.size();
    if (each < 2) return;
    for (size_t i = 0; i < now_.samples.size(); ++i) {
      double largest = elements[i * each], next = -INFINITY;
      for (size_t j = i * each + 1; j < (i + 1) * each; ++j) {
        next = std::max(next, std::min<double>(largest, elements[j]));
        largest = std::max<double>(largest, elements[j]);
      }
      if (are_near(largest, next)) report.near.emplace_back(line, now_.samples[i]);
    }
  });
}

void Machine::choose(const Numbers<bool>& condition, Way then, Way other) {
  std::array<std::vector<size_t>, 2> places;
  for (size_t i = 0; i < condition.size(); ++i) places[condition[i] ? 0 : 1].push_back(i);
  std::array<Way*, 2> ways{&then, &other};
  for (size_t side = 0; side < 2; ++side) {
    const std::vector<size_t>& chosen = places[side];
    report.chosen[block_][side] += chosen.size();
    if (chosen.empty()) continue;
    if (chosen.size() < condition.size())
      for (Tensor& value : ways[side]->values) value = take(value, chosen);
    Group group{{}, std::move(ways[side]->values)};
    for (const size_t place : chosen) group.samples.push_back(now_.samples[place]);
    waiting_[ways[side]->block].push_back(std::move(group));
  }
}

void Machine::finish(std::initializer_list<const char*> texts, const std::vector<Tensor>& values) {
  for (size_t i = 0; i < now_.samples.size(); ++i) {
    std::string& result = finished_[now_.samples[i]];
    auto text = texts.begin();
    for (const Tensor& value : values) {
      result += *text++;
      append_json(result, value, i);
    }
    result += *text;
  }
}

}  // namespace edb
