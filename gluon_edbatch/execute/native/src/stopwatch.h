// Where the time of runs goes, by kind of work. Free of cost unless compiled with EDB_STOPWATCH
// (GLUON_EDBATCH_STOPWATCH=1), when it costs some 50 ns for each instruction and block.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

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

#ifdef EDB_STOPWATCH
inline std::atomic<int64_t> nanoseconds[kWorks];

class Stopwatch {
 public:
  explicit Stopwatch(Work work) : work_(work), begin_(now()) {}
  ~Stopwatch() { nanoseconds[work_].fetch_add(now() - begin_, std::memory_order_relaxed); }

 private:
  static int64_t now() {
    return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  }
  Work work_;
  int64_t begin_;
};
#else
struct Stopwatch {
  explicit Stopwatch(Work) {}
};
#endif

}  // namespace edb
