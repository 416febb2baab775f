// What callers in all hosts have in common: the arrays of a run, and messages instead of
// exceptions.
#pragma once

#include <cstdio>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <vector>

#include "whole_run.h"

namespace edb {

// The arrays that a run goes forward on: weights, arenas, and then the caller's.
template <typename T, typename Given> Arrays<T> take_arrays(const Run& run, Given* given) {
  Arrays<T> arrays;
  arrays.indices = run.indices;
  for (const Weight& weight : run.weights) {
    if (given->size() != weight.size)
      throw std::runtime_error("a weight does not have the size that its type was made for");
    arrays.weights.push_back(given->template next<T>());
  }
  for (int64_t arena = 0; arena < run.arenas; ++arena)
    arrays.arenas.push_back(given->template next<T>());
  return arrays;
}

template <typename T, typename Given> T* take_workspace(const Run& run, Given* given) {
  if (given->size() < run.workspace) throw std::runtime_error("the workspace is too small");
  return given->template next<T>();
}

// A run that nothing differentiates, in the calling thread's memory.
template <typename T, typename Given> void run_once(const Run& run, Given given) {
  thread_local Scratch scratch;
  scratch.release();
  Arrays<T> arrays = take_arrays<T>(run, &given);
  arrays.workspace = run.training ? take_workspace<T>(run, &given) : scratch.take<T>(run.workspace);
  WholeRun<T>(run, std::move(arrays)).forward();
}

// Gives what `body` gives, or -1 and what is wrong in `message`.
template <typename Body> int or_message(char* message, int64_t room, Body body) {
  try {
    return body();
  } catch (const std::exception& error) {
    std::snprintf(message, room, "%s", error.what());
    return -1;
  }
}

}  // namespace edb
