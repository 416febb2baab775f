// Where the time of runs goes, by kind of work. Free of cost unless compiled with EDB_STOPWATCH
// (GLUON_EDBATCH_STOPWATCH=1), when it costs some 0.5 us for each instruction and block.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>

namespace edb {

enum Work : int {
  kProducts,
  kInputProducts,
  kWeightProducts,
  kPacking,
  kGathers,
  kElementwise,
  kZeros,
  kAllOfARun,
  kWorks
};

inline int64_t now() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

// Adds what a scope takes to a number, if there is one (see clock.py).
class Lap {
 public:
  explicit Lap(int64_t* sum) : sum_(sum), begin_(sum ? now() : 0) {}
  ~Lap() {
    if (sum_) *sum_ += now() - begin_;
  }

 private:
  int64_t* sum_;
  int64_t begin_;
};

#ifdef EDB_STOPWATCH
inline std::atomic<int64_t> nanoseconds[kWorks];

// Of this thread: what else runs on the machine is not in it.
inline int64_t processor_time() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec * int64_t(1000000000) + time.tv_nsec;
}

class Stopwatch {
 public:
  explicit Stopwatch(Work work) : work_(work), begin_(processor_time()) {}
  ~Stopwatch() {
    nanoseconds[work_].fetch_add(processor_time() - begin_, std::memory_order_relaxed);
  }

 private:
  Work work_;
  int64_t begin_;
};
#else
struct Stopwatch {
  explicit Stopwatch(Work) {}
};
#endif

}  // namespace edb
