// The gradients of a run, handed to MXNet's engine as a function with the arrays that it reads and
// writes, and nothing else.
//
// An operator of a library gets from MXNet memory for a while, and random numbers, which it has to
// itself: two that are handed over by two threads at once, as backward passes are by a thread of
// MXNet's beside the user's, can each be in the row for the one before the other, and wait for
// ever.
#pragma once

#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "mxnet_in_c.h"
#include "whole_run.h"

namespace dmlc {

// As MXNet's own, by its name: the only one that MXNet takes from a function of its engine without
// waiting for ever.
struct Error : std::runtime_error {
  explicit Error(const std::string& message) : std::runtime_error(message) {}
};

}  // namespace dmlc

namespace edb {

// Handles of our own, as the caller's may be gone when the engine comes to it.
class OwnHandles {
 public:
  OwnHandles(const MXNetInC& mxnet, void* const* handles, int64_t count) : mxnet_(mxnet) {
    own_.reserve(count);
    for (int64_t i = 0; i < count; ++i) {
      void* own = nullptr;
      if (handles[i]) check(mxnet.share(handles[i], &own));
      own_.push_back(own);
    }
  }
  ~OwnHandles() {
    for (void* handle : own_)
      if (handle) mxnet_.free(handle);
  }
  OwnHandles(const OwnHandles&) = delete;
  OwnHandles& operator=(const OwnHandles&) = delete;

  void* at(size_t place) const { return own_.at(place); }
  size_t size() const { return own_.size(); }

 private:
  const MXNetInC mxnet_;
  std::vector<void*> own_;
};

// Arrays: the table, arenas, the workspace, gradients of the arenas and of the weights, of which
// each has a letter: w, it is to be written, and has to be zero to begin with; a, to be added to;
// -, it is not wanted, and has no handle. The weights themselves are in the workspace: an update of
// them may be queued already, and wait for this very backward pass.
class Backward {
 public:
  Backward(const MXNetInC& mxnet, void* const* handles, int64_t arenas, const char* modes)
      : mxnet_(mxnet),
        arenas_(arenas),
        modes_(modes),
        handles_(mxnet, handles, arenas + 2 + static_cast<int64_t>(modes_.size())) {}

  void run() const {
    const Stopwatch all(kAllOfARun);
    void* const table = handles_.at(0);
    const Run run = read_run(data_of<int64_t>(mxnet_.arrays, table), size_of(mxnet_.arrays, table));
    if (run.arenas != arenas_ || run.arenas + run.weights.size() != modes_.size())
      throw std::runtime_error("a run has other arenas or weights than it is given");
    Team team(run.threads);
    run.element_size == 4 ? differentiate<float>(run, &team) : differentiate<double>(run, &team);
  }

 private:
  template <typename T> void differentiate(const Run& run, Team* team) const {
    Arrays<T> arrays;
    arrays.indices = run.indices;
    size_t next = 1;
    for (int64_t arena = 0; arena < arenas_; ++arena)
      arrays.arenas.push_back(data_of<T>(mxnet_.arrays, handles_.at(next++)));
    if (size_of(mxnet_.arrays, handles_.at(next)) < run.workspace)
      throw std::runtime_error("the workspace is too small");
    arrays.workspace = data_of<T>(mxnet_.arrays, handles_.at(next++));
    Zeros<T> zeros;
    for (size_t place = 0; place < modes_.size(); ++place) {
      auto& gradients =
          static_cast<int64_t>(place) < arenas_ ? arrays.gradients : arrays.weight_gradients;
      gradients.push_back(gradient<T>(handles_.at(next++), modes_[place], &zeros));
    }
    zeros.write(team);
    WholeRun<T>(run, std::move(arrays), team).backward();
  }

  template <typename T> T* gradient(void* handle, char mode, Zeros<T>* zeros) const {
    if (mode == '-') return nullptr;
    T* const data = data_of<T>(mxnet_.arrays, handle);
    if (mode == 'w') zeros->add(data, size_of(mxnet_.arrays, handle));
    return data;
  }

  const MXNetInC mxnet_;
  const int64_t arenas_;
  const std::string modes_;
  const OwnHandles handles_;
};

// An array that is written twice is one to the engine, which would wait for itself.
inline std::vector<void*> written_by(void* const* handles, int64_t arenas, int64_t gradients) {
  std::vector<void*> written{handles[0]};  // so that who waits for the table waits for this, too
  for (int64_t i = 0; i < gradients; ++i) {
    void* const handle = handles[arenas + 2 + i];
    if (handle && std::find(written.begin(), written.end(), handle) == written.end())
      written.push_back(handle);
  }
  return written;
}

}  // namespace edb

// See `edb::Backward`; `words` are MXNet's two numbers of the device, and how many arenas there
// are. Gives 0, or -1 and what is wrong in `message`. What fails later fails as operators do, where
// somebody waits for what it writes.
extern "C" int edb_push_backward(const edb::MXNetInC* mxnet, const int64_t* words, int64_t count,
                                 void* const* handles, const char* modes, char* message,
                                 int64_t room) {
  try {
    if (count != 3) throw std::runtime_error("the words are a device's two, and a count");
    const int32_t device[] = {static_cast<int32_t>(words[0]), static_cast<int32_t>(words[1])};
    const int64_t arenas = words[2];
    std::unique_ptr<edb::Backward> backward(new edb::Backward(*mxnet, handles, arenas, modes));
    std::vector<void*> read(handles + 1, handles + arenas + 2);
    std::vector<void*> written =
        edb::written_by(handles, arenas, static_cast<int64_t>(std::string(modes).size()));
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
  } catch (const std::exception& error) {
    std::snprintf(message, room, "%s", error.what());
    return -1;
  }
}
