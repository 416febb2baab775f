// Programs for rows, and the runs of batches that execute them, as Python encodes them.
//
// native_program.py, native_run.py and run_table.py write what is read here; keep them alike.
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
  int64_t weight;      // of the run
  int64_t trained;     // whether it has a gradient
  int64_t begin;       // its first element that the program uses
};

// An array of weights. Some are kept in the workspace, as they are when the run goes forward: those
// that backward reads, as the user may have changed them by then, and those of packs, which lie
// there one after the other.
struct Weight {
  int64_t size;
  int64_t kept_at;     // kWanted in the table; or -1
  int64_t members;     // 1; of a pack's first how many it has, of the others 0
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
  std::vector<Source> sources;  // of one batch after the other
  std::vector<Target> targets;
};

struct Batch {
  int64_t program, rows, row_begin, values, value_begin, parents;
  const Source* sources;
  const Target* targets;
};

struct Run {
  int64_t element_size, training, threads, arenas;
  uint64_t seed;  // of noise
  int64_t workspace = 0, kept_gradients = 0;  // elements
  std::vector<Weight> weights;
  std::vector<Program> programs;
  std::vector<Batch> batches;  // in the order in which they run
  const int32_t* indices = nullptr;
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

// --- what has an address of its own --------------------------------------------------------------

constexpr int64_t kWanted = 0;  // in the place of an address

// The next `size` elements, from an address on that vectors like.
inline int64_t reserve(int64_t size, int64_t* end) {
  const int64_t begin = (*end + 15) / 16 * 16;
  *end = begin + size;
  return begin;
}

inline void place_weights(Run* run) {
  for (size_t i = 0; i < run->weights.size(); ++i) {
    Weight& weight = run->weights[i];
    if (weight.kept_at != kWanted) continue;
    if (weight.members) weight.kept_at = reserve(weight.size, &run->workspace);
    else {
      weight.kept_at = run->workspace;
      run->workspace += weight.size;
    }
  }
}

inline void place_registers(Program* program, int64_t rows, int64_t values, Run* run) {
  for (Register& r : program->registers) {
    const int64_t size = r.width * (r.ragged ? values : rows);
    if (r.value == kKept) r.value_at = reserve(size, &run->workspace);
    if (r.gathered_at == kWanted) r.gathered_at = reserve(size, &run->workspace);
    if (r.gradient == kKept) r.gradient_at = reserve(size, &run->kept_gradients);
  }
}

// --- the table -----------------------------------------------------------------------------------

// Batches are columns of numbers: their places in the run, rows, what belongs to ragged arguments,
// then of each argument and each result.
inline void read_batches(Reader* reader, int64_t number, int64_t first, Program* program,
                         Run* run) {
  const int64_t arguments = reader->word(), outputs = reader->word(), ragged = reader->word();
  const int64_t count = reader->word();
  program->sources.resize(count * arguments);
  program->targets.resize(count * outputs);
  const int64_t* places = reader->take(count);
  const int64_t* rows = reader->take(count);
  const int64_t* values = ragged ? reader->take(count) : nullptr;
  const int64_t* parents = ragged ? reader->take(count) : nullptr;
  for (int64_t a = 0; a < arguments; ++a) {
    const int64_t arena = reader->word(), write = reader->word();
    const int64_t *gather = reader->take(count), *begin = reader->take(count);
    for (int64_t i = 0; i < count; ++i)
      program->sources[i * arguments + a] = Source{arena, gather[i], begin[i], write};
  }
  for (int64_t o = 0; o < outputs; ++o) {
    const int64_t arena = reader->word();
    const int64_t* begin = reader->take(count);
    for (int64_t i = 0; i < count; ++i) program->targets[i * outputs + o] = Target{arena, begin[i]};
  }
  int64_t row = 0, value = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t own = ragged ? values[i] : 0;
    run->batches.at(places[i] - first) = Batch{number,
                                               rows[i],
                                               row,
                                               own,
                                               value,
                                               ragged ? parents[i] : -1,
                                               program->sources.data() + i * arguments,
                                               program->targets.data() + i * outputs};
    row += rows[i];
    value += own;
  }
  place_registers(program, row, value, run);
}

inline Run read_run(const int64_t* words, int64_t count) {
  Reader reader(words, count);
  if (reader.word() != kMagic) throw std::runtime_error("not a table of a run");
  Run run;
  run.element_size = reader.word();
  run.training = reader.word();
  run.threads = reader.word();
  run.arenas = reader.word();
  const int64_t weights = reader.word(), programs = reader.word(), first = reader.word();
  run.batches.resize(reader.word());
  run.seed = static_cast<uint64_t>(reader.word());
  run.weights = reader.many<Weight>(weights);
  place_weights(&run);
  run.programs.resize(programs);
  for (int64_t i = 0; i < programs; ++i) {
    Program& program = run.programs[i];
    const int64_t registers = reader.word(), instructions = reader.word();
    program.registers = reader.many<Register>(registers);
    program.instructions = reader.many<Instruction>(instructions);
    program.parameters = reader.many<Parameter>(reader.word());
    read_batches(&reader, i, first, &program, &run);
  }
  run.indices = reinterpret_cast<const int32_t*>(reader.take(0));
  return run;
}

}  // namespace edb
