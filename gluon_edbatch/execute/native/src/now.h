// Small runs forward, and what they gather, in the thread that asks for it: MXNet's engine hears
// nothing of it.
#pragma once

#include <cstdio>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <utility>
#include <vector>

#include "mxnet_in_c.h"
#include "whole_run.h"

namespace edb {

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

// Handles are of the weights, and then of the arenas. Gives whether it takes no longer than that.
template <typename T>
bool run_now(const ArraysInC& mxnet, const Run& run, void* const* handles, double nanoseconds) {
  if (WholeRun<T>::nanoseconds(run) > nanoseconds) return false;
  thread_local Scratch scratch;
  scratch.release();
  Arrays<T> arrays;
  arrays.indices = run.indices;
  for (const Weight& weight : run.weights) {
    if (size_of(mxnet, *handles) != weight.size)
      throw std::runtime_error("a weight does not have the size that its type was made for");
    arrays.weights.push_back(data_of<T>(mxnet, *handles++));
  }
  for (int64_t arena = 0; arena < run.arenas; ++arena)
    arrays.arenas.push_back(data_of<T>(mxnet, *handles++));
  arrays.workspace = scratch.take<T>(run.workspace);
  Team team(run.threads);
  WholeRun<T>(run, std::move(arrays), &team).forward();
  return true;
}

}  // namespace edb

// Gives 0, or -1 and what is wrong in `message`.
extern "C" int edb_gather_now(const edb::ArraysInC* mxnet, const int64_t* words, int64_t count,
                              void* const* handles, int64_t arrays, char* message, int64_t room) {
  try {
    std::vector<char*> data;
    for (int64_t i = 0; i < arrays; ++i) data.push_back(edb::data_of<char>(*mxnet, handles[i]));
    edb::gather(words, count, data);
    return 0;
  } catch (const std::exception& error) {
    std::snprintf(message, room, "%s", error.what());
    return -1;
  }
}

// Gives 1 if it was run; 0 if that would take longer; -1, and what is wrong in `message`.
extern "C" int edb_run_now(const edb::ArraysInC* mxnet, const int64_t* words, int64_t count,
                           void* const* handles, double nanoseconds, char* message, int64_t room) {
  const edb::Stopwatch all(edb::kAllOfARun);
  try {
    const edb::Run run = edb::read_run(words, count);
    const auto run_now = run.element_size == 4 ? edb::run_now<float> : edb::run_now<double>;
    return run_now(*mxnet, run, handles, nanoseconds);
  } catch (const std::exception& error) {
    std::snprintf(message, room, "%s", error.what());
    return -1;
  }
}
