// Programs for rows, and the runs of batches that execute them, as Python encodes them.
//
// gluon_edbatch/execute/native/words.py writes what is read here; keep them alike.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "opcodes.h"

namespace edb {

constexpr int64_t kMagic = 0x45444231;  // 'EDB1'

struct View {  // columns [offset, offset + width) of a register; reg < 0 where there is none
  int64_t reg, offset, width;
};

struct Instruction {
  int64_t op;
  View out, a, b;
  int64_t parameter, bias;  // of the program; -1 where there is none
  int64_t i0, i1, i2, i3;
  double f0, f1;
};
static_assert(sizeof(Instruction) == 18 * sizeof(int64_t), "no padding");

struct Register {
  int64_t width, ragged;            // a row each for the batch's rows, or for its ragged values
  int64_t value, value_at;          // Place, and which output or input, or the kept address
  int64_t gradient, gradient_at;
  int64_t gathered_at;              // where rows of an input are kept that were gathered; or -1
  int64_t times;                    // rows of the arena, of an input or output, that make a row
  int64_t piece() const { return width / times; }
};
static_assert(sizeof(Register) == 8 * sizeof(int64_t), "no padding");

struct Parameter {
  int64_t index;       // of the run's parameters
  int64_t trained;     // whether it has a gradient
  int64_t begin;       // its first element that the program uses
};

struct Source {        // what a batch reads for an argument
  int64_t arena, gather, begin;
  int64_t write;       // 1: its gradient is written, not added: nobody else reads these rows
};

struct Target {        // where a batch's output goes
  int64_t arena, begin;
};

struct Program {
  std::vector<Register> registers;
  std::vector<Instruction> instructions;
  std::vector<Parameter> parameters;
  int64_t arguments, outputs;
};

// A batch; its sources and targets are where they lie in the table.
struct Batch {
  int64_t program, rows, row_begin, values, value_begin, parents;
  const Source* sources;
  const Target* targets;
};

struct Run {
  int64_t element_size, training, arenas, parameters, kept_gradients;
  std::vector<Program> programs;
  std::vector<Batch> batches;  // in the order in which they run
};

class Reader {
 public:
  Reader(const int64_t* words, int64_t count) : next_(words), end_(words + count) {}
  int64_t word() { return *take(1); }
  template <typename S> std::vector<S> many(int64_t count) {
    constexpr int64_t size = sizeof(S) / sizeof(int64_t);
    std::vector<S> items(count);
    if (count) std::memcpy(static_cast<void*>(items.data()), take(count * size), count * sizeof(S));
    return items;
  }
  const int64_t* take(int64_t count) {
    if (count < 0 || end_ - next_ < count) throw std::runtime_error("the run's table is too short");
    const int64_t* words = next_;
    next_ += count;
    return words;
  }

 private:
  const int64_t* next_;
  const int64_t* end_;
};

constexpr int64_t kBatchWords = 5;  // before the sources

inline int64_t batch_words(const Program& program) {
  return kBatchWords +
         (program.arguments * sizeof(Source) + program.outputs * sizeof(Target)) / sizeof(int64_t);
}

inline Run read_run(const int64_t* words, int64_t count) {
  Reader reader(words, count);
  if (reader.word() != kMagic) throw std::runtime_error("not a table of a run");
  Run run;
  run.element_size = reader.word();
  run.training = reader.word();
  run.arenas = reader.word();
  run.parameters = reader.word();
  run.kept_gradients = reader.word();
  const int64_t programs = reader.word(), batches = reader.word();
  std::vector<const int64_t*> next, end;  // batches of each program
  for (int64_t i = 0; i < programs; ++i) {
    Program program;
    const int64_t registers = reader.word(), instructions = reader.word();
    const int64_t parameters = reader.word();
    program.arguments = reader.word();
    program.outputs = reader.word();
    const int64_t words = reader.word() * batch_words(program);
    program.parameters = reader.many<Parameter>(parameters);
    program.registers = reader.many<Register>(registers);
    program.instructions = reader.many<Instruction>(instructions);
    next.push_back(reader.take(words));
    end.push_back(next.back() + words);
    run.programs.push_back(std::move(program));
  }
  run.batches.reserve(batches);
  for (int64_t i = 0; i < batches; ++i) {
    const int64_t which = reader.word();
    const Program& program = run.programs.at(which);
    const int64_t* words = next[which];
    if (words == end[which]) throw std::runtime_error("a program has too few batches");
    next[which] += batch_words(program);
    const Source* sources = reinterpret_cast<const Source*>(words + kBatchWords);
    run.batches.push_back(Batch{which, words[0], words[1], words[2], words[3], words[4], sources,
                                reinterpret_cast<const Target*>(sources + program.arguments)});
  }
  return run;
}

}  // namespace edb
