// A run as a whole: what comes before its batches and after them, and which thread does what.
//
// Blocks of rows are cut in the same way whoever is there to take them, and what several of them
// add to is added in their order: results depend on the number of threads that is wanted, at most.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "executor.h"
#include "thread_pool.h"

namespace edb {

constexpr int64_t kBlockBytes = 1024 * 1024;  // of scratch: half of the second cache
constexpr int64_t kBlockTiles = 8;
// Less of a batch is not worth another thread.
#ifdef EDB_SHARE_ALL  // to test
constexpr double kShareNanoseconds = 1e-3;
constexpr int64_t kShareRows = 1;
#else
constexpr double kShareNanoseconds = 10000;
constexpr int64_t kShareRows = kTileRows;
#endif
constexpr int64_t kShares = 2;  // for each thread: one may be late
constexpr double kShareWork = kShareNanoseconds * 80;  // multiplications

// Adds the nanoseconds that a scope takes to a number, if there is one (see clock.py).
class Lap {
 public:
  explicit Lap(int64_t* sum) : sum_(sum), begin_(sum ? now() : 0) {}
  ~Lap() {
    if (sum_) *sum_ += now() - begin_;
  }

 private:
  static int64_t now() {
    return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  }
  int64_t* sum_;
  int64_t begin_;
};

template <typename T> class WholeRun {
 public:
  WholeRun(const Run& run, Arrays<T> arrays)
      : run_(run),
        shared_{run, std::move(arrays), {}, nullptr},
        team_(run.threads),
        executors_(run.threads, Executor<T>(&shared_)) {}

  // What going forward takes one thread, roughly.
  static double nanoseconds(const Run& run) {
    double sum = 0;
    for (const Batch& batch : run.batches) sum += nanoseconds(run, batch);
    return sum;
  }

  void forward() {
    keep_weights();
    pack_weights(true);
    for (const auto& [first, last] : groups()) {
      const Lap taken(arrays_.laps ? arrays_.laps + first : nullptr);
      std::vector<Piece> pieces;
      for (size_t i = first; i < last; ++i) cut(run_.batches[i], last - first, &pieces);
      each(pieces, [&](int thread, int64_t number) {
        const Piece& piece = pieces[number];
        executors_[thread].forward(*piece.batch, block(piece));
      });
    }
  }

  // Adds to the gradients, and zeroes some arrays of so many elements before.
  void backward(const std::vector<std::pair<T*, int64_t>>& zeros) {
    team_.each(zeros.size(), [&](int, int64_t number) {
      std::memset(zeros[number].first, 0, zeros[number].second * sizeof(T));
    });
    find_kept_weights();
    pack_weights(false);
    bind_weight_gradients();
    shared_.kept_gradients = whole_scratch().template take<T>(run_.kept_gradients);
    const std::vector<Group> all = groups();
    for (size_t i = all.size(); i-- > 0;) backward(all[i]);
    weight_gradients();
    hand_out_gradients();
  }

 private:
  static Scratch& whole_scratch() {
    thread_local Scratch scratch;
    return scratch;
  }

  // --- batches and their blocks ----------------------------------------------------------------

  using Group = std::pair<size_t, size_t>;  // batches that do not read of each other, first to last

  struct Piece {  // a block of a batch, as one of so many
    const Batch* batch;
    int64_t number, of;
  };

  Block block(const Piece& piece) const {
    const Batch& batch = *piece.batch;
    const int64_t row = batch.rows * piece.number / piece.of;
    const int64_t end = batch.rows * (piece.number + 1) / piece.of;
    if (batch.parents < 0) return Block{row, end - row, 0, 0};
    const int32_t* parents = arrays_.indices + batch.parents;
    const auto first = [&](int64_t of) {
      return std::lower_bound(parents, parents + batch.values, of) - parents;
    };
    const int64_t value = first(row);
    return Block{row, end - row, value, first(end) - value};
  }

  // As few as fit into the cache; more if there is something in it for other threads.
  void cut(const Batch& batch, int64_t together, std::vector<Piece>* pieces) const {
    const int64_t most = block_rows(batch), least = (batch.rows + most - 1) / most;
    const int64_t threads = team_.threads();
    int64_t blocks = least;
    if (threads > 1) {
      const double worth = nanoseconds(batch) / kShareNanoseconds;
      const int64_t shares = (kShares * threads + together - 1) / together;
      const int64_t wanted = std::min(shares, batch.rows / kShareRows);
      blocks = std::max(least, worth < wanted ? static_cast<int64_t>(worth) : wanted);
      if (blocks > 1 && together == 1)
        blocks = std::min((blocks + threads - 1) / threads * threads, batch.rows);
    }
    for (int64_t number = 0; number < blocks; ++number) pieces->push_back({&batch, number, blocks});
  }

  // Threads share the pieces if it is worth it.
  template <typename Body> void each(const std::vector<Piece>& pieces, Body body) {
    double worth = 0;
    for (const Piece& piece : pieces) worth += nanoseconds(*piece.batch) / piece.of;
    if (worth >= 2 * kShareNanoseconds) return team_.each(pieces.size(), body);
    for (size_t number = 0; number < pieces.size(); ++number) body(0, number);
  }

  // Neighbouring batches as long as none reads what another of them writes. One by one, where
  // there is nobody to share them or too little to share, or each is clocked.
  std::vector<Group> groups() const {
    std::vector<Group> found;
    const bool alone = team_.threads() < 2 || arrays_.laps;
    std::vector<std::vector<int32_t>> written(run_.arenas);  // by which group a row is, from 1 on
    double before = 0, worth = 0;
    for (size_t i = 0; i < run_.batches.size(); ++i, before = worth) {
      const Batch& batch = run_.batches[i];
      worth = alone ? 0 : nanoseconds(batch);
      const int32_t group = static_cast<int32_t>(found.size());
      if (before + worth >= 2 * kShareNanoseconds && !reads_of(batch, written, group)) {
        found.back().second = i + 1;
      } else {
        found.push_back({i, i + 1});
      }
      if (!alone) write(batch, static_cast<int32_t>(found.size()), &written);
    }
    return found;
  }

  bool reads_of(const Batch& batch, const std::vector<std::vector<int32_t>>& written,
                int32_t group) const {
    if (!group) return true;
    for (const Read& read : reads(batch, false)) {
      const std::vector<int32_t>& rows = written[read.source.arena];
      const int32_t* indices = arrays_.indices + read.source.begin;
      for (int64_t i = 0; i < read.count && !rows.empty(); ++i) {
        const size_t row = read.source.gather ? indices[i] : read.source.begin + i;
        if (row < rows.size() && rows[row] == group) return true;
      }
    }
    return false;
  }

  void write(const Batch& batch, int32_t group, std::vector<std::vector<int32_t>>* written) const {
    for (const Register& r : run_.programs[batch.program].registers) {
      if (r.value != kOutput) continue;
      const Target& target = batch.targets[r.value_at];
      std::vector<int32_t>& rows = (*written)[target.arena];
      const size_t end = target.begin + static_cast<int64_t>(count(batch, r)) * r.times;
      if (rows.size() < end) rows.resize(end);
      std::fill(rows.begin() + target.begin, rows.begin() + end, group);
    }
  }

  static double count(const Batch& batch, const Register& r) {
    return static_cast<double>(r.ragged ? batch.values : batch.rows);
  }

  int64_t block_rows(const Batch& batch) const {
    double width = 1;  // elements of all registers for each row
    for (const Register& r : run_.programs[batch.program].registers)
      width += r.width * count(batch, r) / batch.rows;
    const int64_t tiles = static_cast<int64_t>(kBlockBytes / (width * sizeof(T) * kTileRows));
    return kTileRows * std::max<int64_t>(1, std::min(kBlockTiles, tiles));
  }

  // About.
  double nanoseconds(const Batch& batch) const { return nanoseconds(run_, batch); }
  static double nanoseconds(const Run& run, const Batch& batch) {
    const Program& program = run.programs[batch.program];
    double sum = 0;
    for (const Instruction& i : program.instructions) {
      const double each = i.op == kProduct ? i.a.width / i.i1 / 80. : 0.3;  // element of the result
      sum += count(batch, program.registers[i.out.reg]) * i.out.width * each;
    }
    return sum;
  }

  // What rows belong to blocks alone is done at once, what they add to others' in their order.
  void backward(const Group& group) {
    std::vector<const Batch*> batches;
    for (size_t i = group.second; i-- > group.first;) batches.push_back(&run_.batches[i]);
    if (batches.size() > 1 && !are_apart(batches)) {
      for (size_t i = group.second; i-- > group.first;) backward(Group{i, i + 1});
      return;
    }
    std::vector<Piece> pieces;
    for (const Batch* batch : batches) cut(*batch, batches.size(), &pieces);
    Turns turns;
    const auto run = [&](int thread, int64_t number) {
      Turns::Turn turn(&turns, number);
      Executor<T>& executor = executors_[thread];
      executor.backward(*pieces[number].batch, block(pieces[number]));
      turn.await();
      executor.add_to_shared();
    };
    const bool share = team_.threads() > 1 && pieces.size() > 1 && are_apart(batches);
    if (share) return each(pieces, run);
    for (size_t number = 0; number < pieces.size(); ++number) run(0, number);
  }

  struct Read {  // what a batch reads for an argument
    const Batch* batch;
    Source source;
    int64_t ragged, times, count;  // rows of the arena for each of the register, and of them all
  };

  std::vector<Read> reads(const Batch& batch, bool differentiated) const {
    const Program& program = run_.programs[batch.program];
    std::vector<Read> found;
    const auto add = [&](int64_t source, const Register& r, int64_t times) {
      const int64_t rows = r.ragged ? batch.values : batch.rows;
      found.push_back({&batch, batch.sources[source], r.ragged, times, rows * times});
    };
    for (const Register& r : program.registers)
      if ((differentiated ? r.gradient : r.value) == kInput)
        add(differentiated ? r.gradient_at : r.value_at, r, r.times);
    for (const Instruction& i : program.instructions)
      if (i.op == kLoad && (i.i1 || !differentiated)) add(i.i0, program.registers[i.out.reg], i.i2);
    return found;
  }

  // Whether each block alone adds to the rows of slices that it reads: no other argument reads
  // them, or by the same rows of the batch.
  bool are_apart(const std::vector<const Batch*>& batches) const {
    std::vector<Read> all;
    for (const Batch* batch : batches)
      for (const Read& read : reads(*batch, true)) all.push_back(read);
    for (const Read& slice : all)
      for (const Read& other : all)
        if (!slice.source.gather && other.source.arena == slice.source.arena && meet(slice, other))
          return false;
    return true;
  }

  bool meet(const Read& slice, const Read& other) const {
    const int64_t begin = slice.source.begin, end = begin + slice.count, from = other.source.begin;
    if (!other.source.gather) {
      const bool same = other.batch == slice.batch && from == begin &&
                        other.ragged == slice.ragged && other.times == slice.times &&
                        other.count == slice.count;
      return !same && from < end && begin < from + other.count;
    }
    const int32_t* rows = arrays_.indices + from;
    return std::any_of(rows, rows + other.count,
                       [=](int64_t row) { return begin <= row && row < end; });
  }

  // --- weights ---------------------------------------------------------------------------------

  void keep_weights() {
    for (size_t i = 0; i < run_.weights.size(); ++i) {
      const Weight& weight = run_.weights[i];
      if (weight.kept_at < 0) continue;
      T* kept = arrays_.workspace + weight.kept_at;
      std::memcpy(kept, arrays_.weights[i], weight.size * sizeof(T));
      arrays_.weights[i] = kept;
    }
  }

  void find_kept_weights() {
    for (const Weight& weight : run_.weights)
      arrays_.weights.push_back(weight.kept_at < 0 ? nullptr : arrays_.workspace + weight.kept_at);
  }

  // Gradients of packs are one array for their members', which `hand_out_gradients` adds to.
  void bind_weight_gradients() {
    wanted_gradients_ = arrays_.weight_gradients;
    each_pack([&](size_t first, size_t last, int64_t size) {
      T*& whole = arrays_.weight_gradients[first] = nullptr;
      for (size_t i = first; i < last && !whole; ++i)
        if (wanted_gradients_[i]) whole = whole_scratch().template take<T>(size);
      if (whole) std::memset(whole, 0, size * sizeof(T));
    });
  }

  void hand_out_gradients() {
    each_pack([&](size_t first, size_t last, int64_t) {
      const T* part = arrays_.weight_gradients[first];
      for (size_t i = first; part && i < last; part += run_.weights[i++].size)
        for (int64_t k = 0; wanted_gradients_[i] && k < run_.weights[i].size; ++k)
          wanted_gradients_[i][k] += part[k];
    });
  }

  template <typename Body> void each_pack(Body body) const {
    for (size_t first = 0; first < run_.weights.size(); ++first) {
      const size_t last = first + run_.weights[first].members;
      int64_t size = 0;
      for (size_t i = first; i < last; ++i) size += run_.weights[i].size;
      if (last > first + 1) body(first, last, size);
    }
  }

  // Once for all batches of the run.
  void pack_weights(bool forward) {
    whole_scratch().release();
    std::vector<std::pair<Factor<T>, Packed<T>*>> packings;
    for (const Program& program : run_.programs)
      for (const Instruction& i : program.instructions) {
        if (i.op != kProduct) continue;
        const Factor<T> factor(i, at(arrays_.weights, program.parameters[i.parameter]));
        Packed<T>& packed = shared_.packed[factor];  // which does not move
        packed.finite |= forward && i.i0 == kAdded && i.bias < 0;  // nothing else asks for that
        if (packed.panels) continue;
        packed.panels =
            whole_scratch().template take<T>(forward ? packed_size<T>(factor.in, factor.out)
                                                     : packed_size<T>(factor.out, factor.in));
        packings.push_back({factor, &packed});
      }
    team_.each(packings.size(), [&](int, int64_t number) {
      const auto& [f, packed] = packings[number];
      const int64_t lines = f.turned ? f.in : f.out, last = f.turned ? f.out : f.in;
      packed->finite = packed->finite && all_finite(f.weight, (lines - 1) * f.stride + last);
      if (forward) pack<T>(f.weight, f.stride, f.in, f.out, !f.turned, packed->panels);
      else pack<T>(f.weight, f.stride, f.out, f.in, f.turned, packed->panels);
    });
  }

  struct Lines {  // of the gradient of the weight of a product
    int64_t program;
    const Instruction* product;
    double work;  // multiplications
    int64_t first, last;
  };

  // Some lines of a gradient are one thread's, for all rows. Products that add to the same weights
  // come one after the other.
  void weight_gradients() {
    const std::vector<Lines> products = trained_products();
    double work = 0;
    for (const Lines& all : products) work += all.work;
    const double share = std::max(work / (kShares * team_.threads()), kShareWork);
    std::vector<Lines> together;
    std::set<int64_t> weights;
    for (const Lines& all : products) {
      const std::set<int64_t> own = trained(all);
      if (std::any_of(own.begin(), own.end(), [&](int64_t w) { return weights.count(w); })) {
        weight_gradients(&together);
        weights.clear();
      }
      weights.insert(own.begin(), own.end());
      const int64_t tiles = (all.last + kTileRows - 1) / kTileRows;
      const int64_t wanted = team_.threads() < 2 ? 1 : static_cast<int64_t>(all.work / share) + 1;
      const int64_t parts = std::min(tiles, wanted);
      for (int64_t part = 0; part < parts; ++part)
        together.push_back({all.program, all.product, all.work / parts,
                            tiles * part / parts * kTileRows,
                            std::min(all.last, tiles * (part + 1) / parts * kTileRows)});
    }
    weight_gradients(&together);
  }

  // The longest first: all end at about the same time.
  void weight_gradients(std::vector<Lines>* together) {
    std::stable_sort(together->begin(), together->end(),
                     [](const Lines& a, const Lines& b) { return a.work > b.work; });
    team_.each(together->size(), [&](int thread, int64_t number) {
      const Lines& lines = (*together)[number];
      executors_[thread].weight_gradient(lines.program, *lines.product, lines.first, lines.last);
    });
    together->clear();
  }

  std::vector<Lines> trained_products() const {
    std::vector<Lines> found;
    for (size_t p = 0; p < run_.programs.size(); ++p)
      for (const Instruction& i : run_.programs[p].instructions) {
        const int64_t program = static_cast<int64_t>(p);
        if (i.op != kProduct || trained({program, &i, 0, 0, 0}).empty()) continue;
        double rows = 0;
        for (const Batch& batch : run_.batches)
          if (batch.program == program) rows += count(batch, run_.programs[p].registers[i.out.reg]);
        found.push_back({program, &i, rows * i.a.width * i.out.width / i.i1, 0,
                         (i.i2 ? i.a : i.out).width / i.i1});
      }
    return found;
  }

  // The weights to whose gradients a product adds.
  std::set<int64_t> trained(const Lines& lines) const {
    const Program& program = run_.programs[lines.program];
    std::set<int64_t> weights;
    for (const int64_t position : {lines.product->parameter, lines.product->bias})
      if (position >= 0 && program.parameters[position].trained)
        weights.insert(program.parameters[position].weight);
    return weights;
  }

  const Run& run_;
  Shared<T> shared_;
  Arrays<T>& arrays_ = shared_.arrays;
  Team team_;
  std::vector<Executor<T>> executors_;
  std::vector<T*> wanted_gradients_;  // those of weights where they belong
};

}  // namespace edb
