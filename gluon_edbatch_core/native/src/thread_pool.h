// A few threads that help the one which runs a run of batches. Work is cut the same way whoever
// does it, so that results do not depend on who was there to help: somebody who is late, as another
// process has its processor, is not waited for.
#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "openmp.h"

namespace edb {

// What is waited for comes soon, or there is something else to do for the processor.
constexpr std::chrono::microseconds kSpin(15);

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Threads that wait until something is true, awake for a moment and then asleep.
class Signal {
 public:
  template <typename Condition> void wait(Condition true_now) {
    const auto end = std::chrono::steady_clock::now() + kSpin;
    do {
      for (int i = 0; i < 16; ++i) {
        if (true_now()) return;
        relax();
      }
    } while (std::chrono::steady_clock::now() < end);
    sleepers_.fetch_add(1);  // before the condition is seen again: who makes it true looks after
    {
      std::unique_lock<std::mutex> lock(mutex_);
      condition_.wait(lock, true_now);
    }
    sleepers_.fetch_sub(1);
  }

  // After what is waited for has become true.
  void notify() {
    if (!sleepers_.load()) return;
    std::lock_guard<std::mutex> lock(mutex_);
    condition_.notify_all();
  }

 private:
  std::atomic<int> sleepers_{0};
  std::mutex mutex_;
  std::condition_variable condition_;
};

// What threads do one after the other, in the order of what they claimed.
class Turns {
 public:
  // One of them: comes to an end, if only by an exception, after all before it.
  class Turn {
   public:
    Turn(Turns* turns, int64_t number) : turns_(turns), number_(number) {}
    ~Turn() {
      await();
      turns_->now_.store(number_ + 1);
      turns_->signal_.notify();
    }
    void await() {
      turns_->signal_.wait([this] { return turns_->now_.load() == number_; });
    }

   private:
    Turns* turns_;
    const int64_t number_;
  };

 private:
  std::atomic<int64_t> now_{0};
  Signal signal_;
};

class Pool {
 public:
  // That of this process: a fork has a copy of the other's memory, but none of its threads. It is
  // never freed, as its threads sleep on while the process ends.
  static Pool& get() {
    static std::atomic<Pool*> instance{nullptr};
    const pid_t process = getpid();
    Pool* known = instance.load();
    while (!known || known->process_ != process) {
      Pool* made = new Pool(process);
      if (instance.compare_exchange_strong(known, made)) return *made;
      delete made;  // it has no threads yet
    }
    return *known;
  }

  // Whether the caller has the helpers to itself, until it gives them back.
  bool take() { return taken_.try_lock(); }
  void give_back() { taken_.unlock(); }

  // Has up to so many helpers call a function that asks for work until there is none, and calls it,
  // too, each with a number of its own. Only who has taken the pool.
  void run(int helpers, void (*work)(void*, int), void* argument) {
    start(helpers);
    work_ = work;
    argument_ = argument;
    wanted_ = helpers;
    const uint64_t job = job_.load() + 1;  // odd while helpers may begin
    job_.store(job);
    begun_.notify();
    work(argument, 0);
    job_.store(job + 1);
    ended_.wait([this] { return !busy_.load(); });
  }

 private:
  explicit Pool(pid_t process) : process_(process) {}

  void start(int helpers) {
    for (; started_ < helpers; ++started_) try {
        std::thread([this, number = started_ + 1] { help(number); }).detach();
      } catch (const std::system_error&) {
        break;  // with those that there are
      }
    ended_.wait([this] { return ready_.load() == started_; });
  }

  void help(int number) {
    if (number == 1) be_counted_by_openmp();
    name_this_thread("edb-helper");
    ready_.fetch_add(1);
    ended_.notify();
    for (uint64_t seen = 0;;) {
      begun_.wait([&] { return job_.load() % 2 && job_.load() != seen; });
      busy_.fetch_add(1);
      seen = job_.load();  // it does not end before this thread is done, if it has not ended yet
      if (seen % 2 && number <= wanted_) {
        work_(argument_, number);
      }
      if (busy_.fetch_sub(1) == 1) ended_.notify();
    }
  }

  const pid_t process_;
  std::mutex taken_;
  int started_ = 0;
  void (*work_)(void*, int) = nullptr;
  void* argument_ = nullptr;
  int wanted_ = 0;
  std::atomic<uint64_t> job_{0};
  std::atomic<int> ready_{0}, busy_{0};
  Signal begun_, ended_;
};

// The threads that run a run: the caller, and others if nobody has them and they are wanted.
class Team {
 public:
  explicit Team(int64_t threads) : threads_(threads) {
    if (threads > 1 && Pool::get().take()) pool_ = &Pool::get();
  }
  ~Team() {
    if (pool_) pool_->give_back();
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  // As many as are wanted, which decides how work is cut, not those that there are.
  int64_t threads() const { return threads_; }

  // Calls body(thread, number) for all numbers below `count`, which are begun in order; threads
  // have numbers below `threads()`.
  template <typename Body> void each(int64_t count, Body body) {
    if (!pool_ || count < 2) {
      for (int64_t number = 0; number < count; ++number) body(0, number);
      return;
    }
    std::atomic<int64_t> next{0};  // each number is for one of the threads
    std::exception_ptr error;
    std::mutex guard;
    auto all = [&](int thread) {
      try {
        for (int64_t number; (number = next.fetch_add(1, std::memory_order_relaxed)) < count;)
          body(thread, number);
      } catch (...) {
        next.store(count, std::memory_order_relaxed);
        std::lock_guard<std::mutex> lock(guard);
        if (!error) error = std::current_exception();
      }
    };
    pool_->run(
        static_cast<int>((threads_ < count ? threads_ : count) - 1),
        [](void* work, int thread) { (*static_cast<decltype(all)*>(work))(thread); }, &all);
    if (error) std::rethrow_exception(error);
  }

 private:
  const int64_t threads_;
  Pool* pool_ = nullptr;
};

}  // namespace edb
