// Functions that Python calls (see mx/arrays.py). Small forward runs, and what they gather,
// run inline in the calling thread. MXNet's engine runs the gradients of a run later.
//
// They give 0 or 1, or -1 and what is wrong in `message`.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "given_arrays.h"

namespace dmlc {

// As MXNet's own, by its name: the only one that MXNet takes from a function of its engine without
// waiting for ever.
struct Error : std::runtime_error {
  explicit Error(const std::string& message) : std::runtime_error(message) {}
};

}  // namespace dmlc

namespace edb {

struct MXNetInC {  // as in `_FUNCTIONS` of mx/ndarray_memory.py
  int (*shape)(void*, int*, const int**);
  int (*data)(void*, void**);
  int (*share)(void*, void**);  // another handle of an array
  int (*free)(void*);
  int (*push)(void (*)(void*, void*), void*, void (*)(void*), const void*, void**, int, void**, int,
              const void*, int, const char*);
};

inline void check(int failed) {
  if (failed) throw std::runtime_error("MXNet does not tell what an array is");
}

// Arrays by their handles, one after the other.
class Handles {
 public:
  Handles(const MXNetInC& mxnet, void* const* handles) : mxnet_(mxnet), next_(handles) {}

  int64_t size() const {  // of the next one
    int axes = 0;
    const int* shape = nullptr;
    check(mxnet_.shape(*next_, &axes, &shape));
    int64_t size = 1;
    for (int axis = 0; axis < axes; ++axis) size *= shape[axis];
    return size;
  }
  template <typename T> T* next() {  // null where there is none
    void *const handle = *next_++, *data = nullptr;
    if (handle) check(mxnet_.data(handle, &data));
    return static_cast<T*>(data);
  }

 private:
  const MXNetInC& mxnet_;
  void* const* next_;
};

// --- inline runs ---------------------------------------------------------------------------------

constexpr double kMostNanoseconds = 200000;  // longer, Python does better to run ahead

template <typename T> bool run_inline(const Run& run, Handles given) {
  if (WholeRun<T>::nanoseconds(run) > kMostNanoseconds) return false;
  run_once<T>(run, given);
  return true;
}

// Rows of several arrays, one after the other, into the last one, which has rows of the same size.
// The words are the bytes of a row, the target's first row, and of each row its source and its
// place there.
inline void gather(const int64_t* words, int64_t count, const std::vector<char*>& arrays) {
  const int64_t bytes = words[0], rows = (count - 2) / 2;
  char* target = arrays.back() + words[1] * bytes;
  for (int64_t row = 0; row < rows; ++row) {
    const char* source = arrays[words[2 + 2 * row]];
    std::memcpy(target + row * bytes, source + words[3 + 2 * row] * bytes, bytes);
  }
}

// --- later ---------------------------------------------------------------------------------------

// A backward pass. It is no operator of a library: such a one gets from MXNet memory for a while,
// and random numbers, which it has to itself. Two that are handed over by two threads at once, as
// backward passes are by a thread of MXNet's beside the user's, can each be in the row for the one
// before the other, and wait for ever.
//
// Arrays: the table, arenas, the workspace, gradients of the arenas and of the weights, if they are
// wanted; `fresh` are those to be written, all else is added to. The weights themselves are in the
// workspace: an update of them may be queued already, and wait for this very backward pass. Handles
// are its own, as the caller's may be gone when the engine comes to it.
class Backward {
 public:
  Backward(const MXNetInC& mxnet, void* const* handles, int64_t count, int64_t arenas,
           std::vector<bool> fresh)
      : mxnet_(mxnet), arenas_(arenas), fresh_(std::move(fresh)), handles_(count) {
    for (int64_t i = 0; i < count; ++i)
      if (handles[i]) check(mxnet.share(handles[i], &handles_[i]));
  }
  ~Backward() {
    for (void* handle : handles_)
      if (handle) mxnet_.free(handle);
  }
  Backward(const Backward&) = delete;
  Backward& operator=(const Backward&) = delete;

  void run() const {
    Handles given(mxnet_, handles_.data());
    const int64_t words = given.size();
    const Run run = read_run(given.next<int64_t>(), words);
    if (run.arenas != arenas_ || run.arenas + run.weights.size() != fresh_.size())
      throw std::runtime_error("a run has other arenas or weights than it is given");
    run.element_size == 4 ? differentiate<float>(run, given) : differentiate<double>(run, given);
  }

 private:
  template <typename T> void differentiate(const Run& run, Handles given) const {
    Arrays<T> arrays;
    arrays.indices = run.indices;
    for (int64_t arena = 0; arena < arenas_; ++arena) arrays.arenas.push_back(given.next<T>());
    arrays.workspace = take_workspace<T>(run, &given);
    std::vector<std::pair<T*, int64_t>> zeros;
    for (size_t place = 0; place < fresh_.size(); ++place) {
      auto& gradients =
          static_cast<int64_t>(place) < arenas_ ? arrays.gradients : arrays.weight_gradients;
      const int64_t size = fresh_[place] ? given.size() : 0;
      gradients.push_back(given.next<T>());
      if (size) zeros.push_back({gradients.back(), size});
    }
    WholeRun<T>(run, std::move(arrays)).backward(zeros);
  }

  const MXNetInC mxnet_;
  const int64_t arenas_;
  const std::vector<bool> fresh_;
  std::vector<void*> handles_;
};

}  // namespace edb

// Words and arrays: see `edb::gather`.
extern "C" int edb_gather_inline(const edb::MXNetInC* mxnet, const int64_t* words, int64_t count,
                                 void* const* handles, int64_t arrays, char* message,
                                 int64_t room) {
  return edb::or_message(message, room, [=] {
    edb::Handles given(*mxnet, handles);
    std::vector<char*> data;
    for (int64_t i = 0; i < arrays; ++i) data.push_back(given.next<char>());
    edb::gather(words, count, data);
    return 0;
  });
}

// The words are the run's table; arrays are the weights, the arenas, and the workspace if a
// backward pass may follow. Gives whether it was run, as it takes not long.
extern "C" int edb_run_inline(const edb::MXNetInC* mxnet, const int64_t* words, int64_t count,
                              void* const* handles, int64_t, char* message, int64_t room) {
  return edb::or_message(message, room, [=] {
    const edb::Run run = edb::read_run(words, count);
    const edb::Handles given(*mxnet, handles);
    return (run.element_size == 4 ? edb::run_inline<float> : edb::run_inline<double>)(run, given);
  });
}

// See `edb::Backward`; the words are MXNet's two numbers of the device, how many arenas there are,
// and of each gradient whether it is fresh. What fails later fails as operators do, where somebody
// waits for what it writes.
extern "C" int edb_push_backward(const edb::MXNetInC* mxnet, const int64_t* words, int64_t count,
                                 void* const* handles, int64_t arrays, char* message,
                                 int64_t room) {
  return edb::or_message(message, room, [=] {
    const int32_t device[] = {static_cast<int32_t>(words[0]), static_cast<int32_t>(words[1])};
    const int64_t arenas = words[2];
    const std::vector<bool> fresh(words + 3, words + count);
    std::unique_ptr<edb::Backward> backward(
        new edb::Backward(*mxnet, handles, arrays, arenas, fresh));
    std::vector<void*> read(handles + 1, handles + arenas + 2);
    // The table is one, so that who waits for it waits for this, too. An array that is written
    // twice is one to the engine, which would wait for itself.
    std::vector<void*> written{handles[0]};
    for (int64_t i = arenas + 2; i < arrays; ++i)
      if (handles[i] && std::find(written.begin(), written.end(), handles[i]) == written.end())
        written.push_back(handles[i]);
    const auto run = [](void*, void* it) {
      try {
        static_cast<const edb::Backward*>(it)->run();
      } catch (const std::exception& error) {
        throw dmlc::Error(std::string("gluon_edbatch's native operators: ") + error.what());
      }
    };
    const auto forget = [](void* it) { delete static_cast<const edb::Backward*>(it); };
    // MXNet forgets it, even if it does not take it.
    if (mxnet->push(run, backward.release(), forget, device, read.data(),
                    static_cast<int>(read.size()), written.data(), static_cast<int>(written.size()),
                    nullptr, 0, "edb_run_backward"))
      throw std::runtime_error("MXNet's engine does not take a backward pass");
    return 0;
  });
}
