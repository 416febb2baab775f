// The executor for hosts without MXNet: arrays are addresses and numbers of elements.
#include "given_arrays.h"

namespace {

class Addresses {
 public:
  Addresses(void* const* data, const int64_t* sizes) : data_(data), sizes_(sizes) {}
  int64_t size() const { return *sizes_; }
  template <typename T> T* next() {
    ++sizes_;
    return static_cast<T*>(*data_++);
  }

 private:
  void* const* data_;
  const int64_t* sizes_;
};

}  // namespace

// Runs a table's batches forward: weights, then arenas. Gives 0, or -1 and what is wrong in
// `message`.
extern "C" int edb_run_arrays(const int64_t* words, int64_t count, void* const* data,
                              const int64_t* sizes, int64_t arrays, char* message, int64_t room) {
  return edb::or_message(message, room, [=] {
    const edb::Run run = edb::read_run(words, count);
    if (run.training || static_cast<int64_t>(run.weights.size()) + run.arenas != arrays)
      throw std::runtime_error("a run has other weights or arenas than it is given");
    const Addresses given(data, sizes);
    (run.element_size == 4 ? edb::run_once<float, Addresses>
                           : edb::run_once<double, Addresses>)(run, given);
    return 0;
  });
}
