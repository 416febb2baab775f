// Runs a program for many samples at once: they regroup at every branch
// (branching/program_interpreter.py).
//
// Samples wait at blocks, with their values. The block that comes first in the program runs for all
// that wait there, and says where they go: so those that skip something wait for the others where
// ways meet, and those that are done leave.
#pragma once

#include <array>
#include <initializer_list>

#include "calculate.h"
#include "networks.h"

namespace edb {

class Machine;

struct Block {
  void (*run)(Machine&);
  const char* name;  // the user's line
  const char* line;  // where it chooses, or nothing
};

// What is generated of a program.
struct Program {
  std::vector<Spec> arguments;
  std::vector<Block> blocks;
  std::vector<Network> networks;
  std::vector<std::pair<File, Spec>> constants;
  size_t max_steps;
};
extern const Program kProgram;

// On to a block, with values for what it takes.
struct Way {
  size_t block;
  std::vector<Tensor> values;
};

// Samples that are together, and what they have.
struct Group {
  std::vector<size_t> samples;
  std::vector<Tensor> values;
};

// What samples did: for each block, how many went on by the condition and by its contrary.
struct Report {
  size_t samples = 0, runs = 0;
  std::vector<std::array<size_t, 2>> chosen;
  Near near;
};

class Machine {
 public:
  // `most` samples at once, at most.
  Machine(const std::string& folder, size_t most, size_t max_steps);

  // Their results, as JSON.
  std::vector<std::string> run(std::vector<Tensor> arguments, size_t samples);
  Report report;

  // --- for blocks; values are those of the samples that are in the block ---

  const Tensor& tensor(size_t place) const { return now_.values[place]; }
  Place at(const char* line) { return {line, now_.samples, report.near}; }

  // Of a network.
  std::vector<Tensor> results(size_t network, const std::vector<Tensor>& inputs);
  // The only element of each.
  template <class T>
  Numbers<T> read(const Tensor& tensor) const {
    Numbers<T> made;
    tensor.elements([&](auto* elements, size_t count) { made.assign(elements, elements + count); });
    return made;
  }
  // Notes samples of which the two largest elements are as good as equal.
  void note_rivals(const char* line, const Tensor& tensor);
  // Numbers, or a constant, as a tensor of one element.
  template <class A>
  Tensor give(const Spec& spec, const A& numbers) const {
    Tensor made(spec, now_.samples.size());
    made.elements([&](auto* elements, size_t count) {
      for (size_t i = 0; i < count; ++i) elements[i] = numbers[i];
    });
    return made;
  }
  template <class T>
  Tensor result(const Numbers<T>& numbers) const {
    return give({number_dtype<T>, {}}, numbers);
  }
  const Tensor& result(const Tensor& tensor) const { return tensor; }
  Tensor fill(size_t constant) const {
    return take(constants_[constant], std::vector<size_t>(now_.samples.size(), 0));
  }

  void go(Way way) { waiting_[way.block].push_back({now_.samples, std::move(way.values)}); }
  void choose(const Numbers<bool>& condition, Way then, Way other);
  // Texts of JSON, and between them the results.
  void finish(std::initializer_list<const char*> texts, const std::vector<Tensor>& values);

 private:
  const std::string folder_;
  const size_t most_, max_steps_;
  std::vector<std::unique_ptr<Predictors>> networks_;  // as far as they were needed
  std::vector<Tensor> constants_;
  std::map<size_t, std::vector<Group>> waiting_;  // by block
  Group now_;
  size_t block_ = 0;
  std::vector<size_t> steps_;
  std::vector<std::string> finished_;
};

}  // namespace edb
