// Runs the batches of a run, a block of rows at a time, so that what an instruction leaves is in
// the cache when the next one reads it.
#pragma once

#include <map>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "attention.h"
#include "gemm.h"
#include "kernels.h"
#include "program.h"
#include "recurrent.h"

namespace edb {

template <typename T> struct Arrays {  // what a run works on; null where there is none
  const int32_t* indices = nullptr;
  std::vector<T*> arenas, gradients, weights, weight_gradients;
  T* workspace = nullptr;
  int64_t* laps = nullptr;  // nanoseconds of each batch, if somebody asks
};

template <typename T> T* at(const std::vector<T*>& arrays, const Parameter& parameter) {
  T* array = arrays[parameter.weight];
  return array ? array + parameter.begin : nullptr;
}

struct Block {
  int64_t row, rows, value, values;  // within the batch
};

template <typename T> struct Packed {  // a weight
  T* panels;
  bool finite;  // zeros times it are zeros
};

// A weight (out, in) as a product has it, or turned, (in, out); or some columns of one, whose lines
// lie further apart.
template <typename T> struct Factor {
  Factor(const Instruction& product, const T* weight)
      : weight(weight),
        turned(product.i2 != 0),
        in(product.a.width / product.i1),
        out(product.out.width / product.i1),
        stride(product.i3 ? product.i3
               : turned   ? out
                          : in) {}
  auto key() const { return std::tie(weight, turned, in, out); }
  bool operator<(const Factor& other) const { return key() < other.key(); }
  const T* weight;
  bool turned;
  int64_t in, out, stride;
};

// What all threads of a run read.
template <typename T> struct Shared {
  const Run& run;
  Arrays<T> arrays;
  std::map<Factor<T>, Packed<T>> packed;
  T* kept_gradients = nullptr;

  const Packed<T>& packed_weight(const Instruction& product, const T* weight) const {
    return packed.at(Factor<T>(product, weight));
  }
};

// What one thread does of a run: blocks of batches.
template <typename T> class alignas(64) Executor {
 public:
  explicit Executor(const Shared<T>* shared)
      : shared_(shared), run_(shared->run), arrays_(shared->arrays) {}

  // Each thread keeps its memory from one run to the next.
  static Scratch& block_scratch() {
    thread_local Scratch scratch;
    return scratch;
  }

  void forward(const Batch& batch, const Block& block) {
    begin(batch, block);
    bind_values(false);
    for (const Instruction& instruction : program_->instructions) forward(instruction);
  }

  // What leaves nothing but in rows that belong to the block.
  void backward(const Batch& batch, const Block& block) {
    begin(batch, block);
    bind_values(true);
    bind_gradients();
    const auto& instructions = program_->instructions;
    for (size_t k = instructions.size(); k-- > 0;) backward(instructions[k]);
  }

  // Afterwards, block by block: what other blocks add to as well.
  void add_to_shared() {
    const auto& instructions = program_->instructions;
    for (size_t k = instructions.size(); k-- > 0;) add_to_shared(instructions[k]);
    scatter_gradients();
  }

  // Some lines of the gradient of a weight (out, in), from `first` to before `last`: the sum over
  // rows of d out times in is added, over all batches of a program, as there are always many rows
  // to sum over, however small the batches. Of a turned weight the other way round.
  void weight_gradient(int64_t program, const Instruction& instruction, int64_t first,
                       int64_t last) {
    program_ = &run_.programs[program];
    T* weight = parameter_gradient(instruction.parameter);
    T* bias = parameter_gradient(instruction.bias);
    const int64_t times = instruction.i1;
    const bool turned = instruction.i2 != 0;
    const int64_t in = (turned ? instruction.out : instruction.a).width / times;
    const int64_t lines = last - first;
    block_scratch().release();
    T* panels = block_scratch().template take<T>(packed_size<T>(kDepth, in));
    T* tiles = block_scratch().template take<T>(tiles_size<T>(lines));
    int64_t filled = 0;
    const int64_t stride = instruction.i3 ? instruction.i3 : in;
    if (weight) weight += first * stride;
    for (const Batch& batch : run_.batches) {
      if (batch.program != program) continue;
      batch_ = &batch;
      block_ = Block{0, batch.rows, 0, batch.values};
      const Rows<T> x = split(whole(instruction.a, false), times);
      const Rows<T> dy = split(whole(instruction.out, true), times);
      if (bias && !turned) add_column_sums(bias + first, columns(dy, first, last));
      else if (bias && !first) add_column_sums(bias, dy);
      if (!weight || is_sum_of_nothing(instruction.a)) continue;
      for (int64_t row = 0; row < x.count; ++row) {
        pack_line(turned ? dy[row] : x[row], in, filled, kDepth, panels);
        pack_tiles_line((turned ? x[row] : dy[row]) + first, lines, filled, tiles);
        if (++filled < kDepth) continue;
        multiply_transposed(lines, in, filled, tiles, panels, weight, stride);
        filled = 0;
      }
    }
    if (filled) multiply_transposed(lines, in, filled, tiles, panels, weight, stride);
  }

 private:
  // --- blocks ----------------------------------------------------------------------------------

  void begin(const Batch& batch, const Block& block) {
    program_ = &run_.programs[batch.program];
    batch_ = &batch;
    block_ = block;
    parents_ = batch.parents < 0 ? nullptr : arrays_.indices + batch.parents + block.value;
    block_scratch().release();
  }

  int64_t count(const Register& r) const { return r.ragged ? block_.values : block_.rows; }
  int64_t first(const Register& r) const {  // row of the register, within the batch
    return r.ragged ? block_.value : block_.row;
  }
  int64_t kept(const Register& r, int64_t address) const {
    return address + (first(r) + (r.ragged ? batch_->value_begin : batch_->row_begin)) * r.width;
  }

  // Where a register's rows begin in an arena whose rows are its pieces.
  T* in_arena(T* arena, const Register& r, int64_t begin) const {
    return arena + begin * r.piece() + first(r) * r.width;
  }
  Rows<T> all(T* rows, const Register& r) const {
    return Rows<T>{rows, r.width, r.width, count(r)};
  }
  // Where a source's rows are that make the register's; `times` of them make one.
  const int32_t* indices(const Source& source, const Register& r, int64_t times) const {
    return arrays_.indices + source.begin + first(r) * times;
  }
  void scatter(const Rows<T>& gradient, const Source& source, const Register& r, int64_t times) {
    if (source.gather)
      scatter_add(gradient, times, arrays_.gradients[source.arena], indices(source, r, times));
  }

  // Where the rows of a value or a gradient lie; null where nothing but this block has them.
  T* lying(const Register& r, int64_t place, int64_t at, const std::vector<T*>& arenas,
           T* kept_rows) const {
    switch (place) {
      case kKept: return kept_rows + kept(r, at);
      case kOutput: {
        const Target& target = batch_->targets[at];
        return in_arena(arenas[target.arena], r, target.begin);
      }
      case kInput: {
        const Source& source = batch_->sources[at];
        return source.gather ? nullptr : in_arena(arenas[source.arena], r, source.begin);
      }
      default: return nullptr;
    }
  }
  T* lying_value(const Register& r) const {
    return lying(r, r.value, r.value_at, arrays_.arenas, arrays_.workspace);
  }
  T* lying_gradient(const Register& r) const {
    return lying(r, r.gradient, r.gradient_at, arrays_.gradients, shared_->kept_gradients);
  }
  T* taken(const Register& r) const { return block_scratch().template take<T>(r.width * count(r)); }

  void bind_values(bool again) {
    const auto& registers = program_->registers;
    values_.assign(registers.size(), nullptr);
    for (size_t i = 0; i < registers.size(); ++i) {
      const Register& r = registers[i];
      values_[i] = lying_value(r);
      if (values_[i]) continue;
      if (r.value == kInput) values_[i] = gathered(r, again);
      else if (r.value == kScratch && !again) values_[i] = taken(r);
    }
  }

  T* gathered(const Register& r, bool again) const {
    if (again && r.gathered_at < 0) return nullptr;
    T* rows = r.gathered_at >= 0 ? arrays_.workspace + kept(r, r.gathered_at) : taken(r);
    const Source& source = batch_->sources[r.value_at];
    if (!again)
      gather(all(rows, r), r.times, arrays_.arenas[source.arena], indices(source, r, r.times));
    return rows;
  }

  void bind_gradients() {
    const auto& registers = program_->registers;
    gradients_.assign(registers.size(), nullptr);
    for (size_t i = 0; i < registers.size(); ++i) {
      const Register& r = registers[i];
      if (r.gradient == kNowhere) continue;
      T* lies = lying_gradient(r);
      gradients_[i] = lies ? lies : taken(r);
      const bool adds = r.gradient == kOutput ||
                        (r.gradient == kInput && lies && !batch_->sources[r.gradient_at].write);
      if (!adds) std::memset(gradients_[i], 0, r.width * count(r) * sizeof(T));
    }
  }

  void scatter_gradients() {
    const auto& registers = program_->registers;
    for (size_t i = 0; i < registers.size(); ++i) {
      const Register& r = registers[i];
      if (r.gradient != kInput) continue;
      scatter(all(gradients_[i], r), batch_->sources[r.gradient_at], r, r.times);
    }
  }

  Rows<T> rows(const View& view, const std::vector<T*>& bases) const {
    if (view.reg < 0) return Rows<T>{nullptr, 0, 0, 0};
    const Register& r = program_->registers[view.reg];
    T* base = bases[view.reg];
    return Rows<T>{base ? base + view.offset : nullptr, r.width, view.width, count(r)};
  }
  Rows<T> value(const View& view) const { return rows(view, values_); }
  Rows<T> gradient(const View& view) const { return rows(view, gradients_); }

  // A value that a gradient reads: where it was not kept, no other may take its place.
  Rows<T> kept_value(const View& view, const char* function) const {
    const Rows<T> found = value(view);
    if (!found)
      throw std::runtime_error(std::string("the gradient of ") + function +
                               " reads a value that was not kept");
    return found;
  }

  // A register seen as `times` as many rows, each that much narrower.
  static Rows<T> split(Rows<T> all, int64_t times) {
    return times == 1 ? all
                      : Rows<T>{all.data, all.width / times, all.width / times, all.count * times};
  }

  static Rows<T> columns(const Rows<T>& all, int64_t first, int64_t last) {
    return Rows<T>{all.data + first, all.stride, last - first, all.count};
  }

  // --- parameters ------------------------------------------------------------------------------

  T* parameter(int64_t position) const {
    return position < 0 ? nullptr : at(arrays_.weights, program_->parameters[position]);
  }
  T* parameter_gradient(int64_t position) const {
    return position < 0 || !program_->parameters[position].trained
               ? nullptr
               : at(arrays_.weight_gradients, program_->parameters[position]);
  }
  // The rows of the whole batch, which is bound as one block.
  Rows<T> whole(const View& view, bool of_gradient) const {
    const Register& r = program_->registers[view.reg];
    T* base = of_gradient ? lying_gradient(r) : lying_value(r);
    if (!base && !of_gradient && r.value == kInput)
      base = arrays_.workspace + kept(r, r.gathered_at);
    if (!base) throw std::runtime_error("the gradient of a weight reads a value that was not kept");
    return Rows<T>{base + view.offset, r.width, view.width, count(r)};
  }

  // Whether the block has no ragged values, and these columns are sums of such: zeros, as the
  // states of the children of leaves.
  bool is_sum_of_nothing(const View& view) const {
    bool sums = false;
    for (const Instruction& i : program_->instructions) {
      if (i.out.reg != view.reg) continue;
      sums = i.op == kSegmentSum && !block_.values;
      if (!sums) return false;
    }
    return sums;
  }

  // --- instructions ----------------------------------------------------------------------------

  static ProductShape product_shape(const Instruction& i) {
    return ProductShape{i.i0, i.i1, i.i2, (i.i3 & 1) != 0, (i.i3 & 2) != 0};
  }

  static View third(const Instruction& i) { return View{i.i1, i.i2, i.i3}; }

  void forward(const Instruction& i) {
    const Rows<T> out = value(i.out), a = value(i.a), b = value(i.b);
    switch (i.op) {
      case kLoad: load(i, out); break;
      case kProduct: {
        if (i.i0 == kSteps) break;  // kRecurrent computes it
        const Packed<T>& weight = shared_->packed_weight(i, parameter(i.parameter));
        if (i.i0 == kAdded && i.bias < 0 && weight.finite && is_sum_of_nothing(i.a)) break;
        const Rows<T> y = split(out, i.i1), x = split(a, i.i1);
        multiply<T>(y.count, y.width, x.width, x.data, x.stride, weight.panels, y.data, y.stride,
                    parameter(i.bias), i.i0 == kAdded);
        break;
      }
      case kUnary:
        if (i.i0 == 0 && i.f0 == 1 && i.f1 == 0 && std::signbit(i.f1)) copy(out, a);
        else
          with_unary<T>(i.i0, T(i.f0), T(i.f1), [&](auto f, Slope) { unary_forward(f, out, a); });
        break;
      case kBinary:
        with_binary<T>(i.i0, [&](auto f, Slope) { binary_forward(f, out, a, b, i.i1, i.i2); });
        break;
      case kExpand: expand<false>(out, a, parents_, block_.row); break;
      case kSegmentSum:
        clear(out);
        segment_add(out, a, parents_, block_.row);
        if (i.i0) per_value(out, a.count, parents_, block_.row);
        break;
      case kLookup: lookup(out, parameter(i.parameter), i.i0, i.i1, a); break;
      case kSoftmax: softmax(out, a, i.i0, i.i1 != 0); break;
      case kPick: pick(out, a, b, false); break;
      case kReduce: reduce(out, a, i.i0, i.i1, T(i.f0)); break;
      case kBatchProduct: batch_product(out, a, b, product_shape(i)); break;
      case kConstant:
        for (int64_t row = 0; row < out.count; ++row)
          std::fill(out[row], out[row] + out.width, T(i.f0));
        break;
      case kStrided: strided(out, a, i.i0, i.i1, i.i2, i.i3, false); break;
      case kTranspose: transpose(out, a, i.i0, i.i1, i.i2, false); break;
      case kParameterRow:
        for (int64_t row = 0; row < out.count; ++row)
          std::memcpy(out[row], parameter(i.parameter), out.width * sizeof(T));
        break;
      case kSegmentSoftmax: segment_softmax(out, a, parents_, i.i0 != 0); break;
      case kSegmentExtreme:
        clear(out);
        segment_extreme(out, a, parents_, block_.row, i.i0 != 0);
        break;
      case kSegmentPick:  // the last state of a layer without steps is its first one, zero
        clear(out);
        segment_pick(out, a, b, parents_, block_.row, i.i0 != 0, false);
        break;
      case kSegmentMask: segment_mask(out, a, b, i.i0, parents_, block_.row, T(i.f0), false); break;
      case kSegmentOrder:
        clear(out);
        segment_order(out, a, parents_, block_.row, i.i0, i.i1 != 0, i.i2 != 0);
        break;
      case kPositions: positions(out, parents_); break;
      case kLayerNorm:
        layer_norm(out, a, parameter(i.parameter), parameter(i.bias), i.i0, T(i.f0));
        break;
      case kAttention:
        attention(i, [&](auto&& of) { of.forward(out, a, b, value(third(i))); });
        break;
      case kDropout: dropout(out, a, noise(i, i.f0), first_row(i), false); break;
      case kWindow: window(out, a, parents_, i.i0, i.i1, i.i2, false); break;
      case kRecurrent:
        recurrent(i, parameter(i.bias))
            .forward({out, a, b, value(before(i)), value(cells(i)), value(first_cells(i))});
        break;
      default: throw std::runtime_error("unknown instruction");
    }
  }

  void backward(const Instruction& i) {
    const Rows<T> dy = gradient(i.out);
    if (!dy || !dy.count) return;
    const Rows<T> da = gradient(i.a), db = gradient(i.b);
    const bool only_a =
        i.op != kLoad && i.op != kBinary && i.op != kBatchProduct && i.op != kAttention;
    if (only_a && !da) return;
    switch (i.op) {
      case kLoad: unload(i, dy); break;
      case kProduct:
        if (i.i0 != kSteps && !is_sum_of_nothing(i.a)) {
          const Rows<T> g = split(dy, i.i1), d = split(da, i.i1);
          multiply<T>(g.count, d.width, g.width, g.data, g.stride,
                      shared_->packed_weight(i, parameter(i.parameter)).panels, d.data, d.stride,
                      nullptr, true);
        }
        break;
      case kUnary:
        with_unary<T>(i.i0, T(i.f0), T(i.f1), [&](auto f, Slope slope) {
          const View& read = slope.reads == kFromArgument ? i.a : i.out;
          unary_backward(f, dy, da,
                         slope.reads == kFromNothing ? dy : kept_value(read, slope.name));
        });
        break;
      case kBinary:
        if (!da && !db) break;
        with_binary<T>(i.i0, [&](auto f, Slope slope) {
          const auto read = [&](const View& view) {
            return slope.reads == kFromNothing ? value(view) : kept_value(view, slope.name);
          };
          binary_backward(f, dy, da, db, read(i.a), read(i.b), i.i1, i.i2);
        });
        break;
      case kExpand: segment_add(da, dy, parents_, block_.row); break;
      case kSegmentSum:
        if (i.i0) segment_mean_backward(dy, da, parents_, block_.row);
        else expand<true>(da, dy, parents_, block_.row);
        break;
      case kSoftmax: softmax_backward(dy, da, kept_value(i.out, "softmax"), i.i0, i.i1 != 0); break;
      case kPick: pick(dy, da, kept_value(i.b, "pick"), true); break;
      case kReduce: reduce_backward(dy, da, i.i0, i.i1, T(i.f0)); break;
      case kBatchProduct:
        batch_product_backward(dy, da, db, kept_value(i.a, "batch_dot"),
                               kept_value(i.b, "batch_dot"), product_shape(i));
        break;
      case kStrided: strided(da, dy, i.i0, i.i1, i.i3, i.i2, true); break;
      case kTranspose: transpose(da, dy, i.i1, i.i0, i.i2, true); break;
      case kSegmentSoftmax:
        segment_softmax_backward(dy, da, kept_value(i.out, "ragged softmax"), parents_, i.i0 != 0);
        break;
      case kSegmentExtreme:
        segment_extreme_backward(dy, da, kept_value(i.a, "ragged max"),
                                 kept_value(i.out, "ragged max"), parents_, block_.row);
        break;
      case kSegmentPick:
        segment_pick(dy, da, kept_value(i.b, "pick"), parents_, block_.row, i.i0 != 0, true);
        break;
      case kSegmentMask: {
        const Rows<T> lengths = i.b.reg < 0 ? value(i.b) : kept_value(i.b, "SequenceMask");
        segment_mask(da, dy, lengths, i.i0, parents_, block_.row, T(0), true);
        break;
      }
      case kLayerNorm:
        layer_norm_backward<T>(dy, da, kept_value(i.a, "LayerNorm"), parameter(i.parameter),
                               nullptr, nullptr, i.i0, T(i.f0));
        break;
      case kAttention: {
        const View v = third(i);
        attention(i, [&](auto&& of) {
          of.backward(dy, kept_value(i.a, "attention"), kept_value(i.b, "attention"),
                      kept_value(v, "attention"), da, db, gradient(v));
        });
        break;
      }
      case kDropout: dropout(da, dy, noise(i, i.f0), first_row(i), true); break;
      case kWindow: window(dy, da, parents_, i.i0, i.i1, i.i2, true); break;
      case kRecurrent:
        recurrent(i, nullptr)
            .backward(
                {Rows<T>{}, kept_value(i.a, "RNN"), value(i.b), value(before(i)), value(cells(i)),
                 value(first_cells(i))},
                {dy, da, db, gradient(before(i)), gradient(cells(i)), gradient(first_cells(i))});
        break;
      case kConstant:
      case kLookup:  // see `add_to_shared`
      case kParameterRow:
      case kSegmentOrder:
      case kPositions: break;
      default: throw std::runtime_error("unknown instruction");
    }
  }

  // What the gradient of an instruction adds to rows or parameters that other blocks add to.
  void add_to_shared(const Instruction& i) {
    const Rows<T> dy = gradient(i.out);
    if (!dy || !dy.count) return;
    switch (i.op) {
      case kLoad: unload_gathered(i, dy); break;
      case kLookup:
        if (T* table = parameter_gradient(i.parameter))
          lookup_backward(dy, table, i.i0, i.i1, kept_value(i.a, "lookup"));
        break;
      case kParameterRow:
        if (T* sums = parameter_gradient(i.parameter)) add_column_sums(sums, dy);
        break;
      case kLayerNorm: {
        T *gamma = parameter_gradient(i.parameter), *beta = parameter_gradient(i.bias);
        if (gamma || beta)
          layer_norm_backward(dy, Rows<T>{}, kept_value(i.a, "LayerNorm"), parameter(i.parameter),
                              gamma, beta, i.i0, T(i.f0));
        break;
      }
      default: break;
    }
  }

  template <typename Body> void attention(const Instruction& i, Body body) const {
    const Noise<T> noise = this->noise(i, i.f1);
    body(Attention<T>(i.i0, T(i.f0), parents_, i.f1 > 0 ? &noise : nullptr, block_.value));
  }

  // Of a result, which no other instruction of the run writes.
  Noise<T> noise(const Instruction& i, double dropped) const {
    const uint64_t batch = mixed(run_.seed + (batch_ - run_.batches.data()) * kGolden);
    const uint64_t result = (static_cast<uint64_t>(i.out.reg) << 32) + i.out.offset;
    return Noise<T>(mixed(batch + result * kGolden), dropped);
  }
  int64_t first_row(const Instruction& i) const { return first(program_->registers[i.out.reg]); }

  // What a layer multiplies its states by, as the product that stands for all steps.
  Recurrent<T> recurrent(const Instruction& i, const T* bias) const {
    Instruction product = i;
    product.out = i.b, product.a = before(i), product.i1 = 1, product.i2 = product.i3 = 0;
    const T* panels = shared_->packed_weight(product, parameter(i.parameter)).panels;
    return Recurrent<T>(i.i0, (i.i1 & 1) != 0, (i.i1 & 2) != 0, panels, bias, parents_,
                        &block_scratch());
  }
  static View first_cells(const Instruction& i) {
    const bool given = i.i0 == kLstm && (i.i1 & 2) != 0;
    return given ? View{i.i2, i.out.width, i.out.width} : View{-1, 0, 0};
  }
  static View before(const Instruction& i) { return View{i.i2, 0, i.out.width}; }
  static View cells(const Instruction& i) { return View{i.i3, 0, i.out.width}; }

  // An argument straight into some columns of a register; i2 rows of the arena make one.
  void load(const Instruction& i, const Rows<T>& out) {
    const Source& source = batch_->sources[i.i0];
    const Register& r = program_->registers[i.out.reg];
    T* arena = arrays_.arenas[source.arena];
    if (source.gather) gather(out, i.i2, arena, indices(source, r, i.i2));
    else copy(out, slice(arena, source, r, out.width, i.i2));
  }

  // The rows of an arena that a slice of it gives; `times` of them make one.
  Rows<T> slice(T* arena, const Source& source, const Register& r, int64_t width,
                int64_t times) const {
    T* begin = arena + source.begin * (width / times) + first(r) * width;
    return Rows<T>{begin, width, width, count(r)};
  }

  void unload(const Instruction& i, const Rows<T>& dy) {
    const Source& source = batch_->sources[i.i0];
    if (!i.i1 || source.gather) return;  // not differentiable, or see `unload_gathered`
    const Rows<T> target = slice(arrays_.gradients[source.arena], source,
                                 program_->registers[i.out.reg], dy.width, i.i2);
    if (source.write) copy(target, dy);
    else add(target, dy);
  }

  void unload_gathered(const Instruction& i, const Rows<T>& dy) {
    if (i.i1) scatter(dy, batch_->sources[i.i0], program_->registers[i.out.reg], i.i2);
  }

  const Shared<T>* shared_;
  const Run& run_;
  const Arrays<T>& arrays_;
  const Program* program_ = nullptr;
  const Batch* batch_ = nullptr;
  Block block_{};
  const int32_t* parents_ = nullptr;
  std::vector<T*> values_, gradients_;
};

}  // namespace edb
