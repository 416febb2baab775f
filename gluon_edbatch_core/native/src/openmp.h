// OpenMP's threads in this process, which run MXNet's own operators, and ours beside them.
#pragma once

#include <dlfcn.h>
#include <pthread.h>

#include <system_error>
#include <thread>

namespace edb {

inline void name_this_thread(const char* name) {
#ifdef __linux__
  pthread_setname_np(pthread_self(), name);
#else
  static_cast<void>(name);
#endif
}

// Tells GNU's OpenMP that there are more threads than processors, as it does not count ours. While
// it knows of no more, its threads spin for milliseconds after each operator, and our helpers and
// Python wait for a processor; else for microseconds, and sleep. What it counts are the teams of
// all threads: the caller gets one, whose other member sleeps for ever.
inline void be_counted_by_openmp() {
#ifdef __linux__
  void* const loaded = dlopen("libgomp.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (!loaded) return;
  using Parallel = void (*)(void (*)(void*), void*, unsigned, unsigned);
  const auto parallel = reinterpret_cast<Parallel>(dlsym(loaded, "GOMP_parallel"));
  if (!parallel) return;
  try {
    std::thread([] {}).join();  // where no thread can be started, OpenMP would end the program
  } catch (const std::system_error&) {
    return;
  }
  parallel([](void*) { name_this_thread("edb-counted"); }, nullptr, 2, 0);
#endif
}

}  // namespace edb
