// What we call of MXNet's functions for C.
#pragma once

#include <cstdint>
#include <stdexcept>

namespace edb {

struct ArraysInC {  // as mx/making.py gives them, too
  int (*shape)(void*, int*, const int**);
  int (*data)(void*, void**);
};

struct MXNetInC {  // in the order of `_FUNCTIONS` in mx/direct.py
  ArraysInC arrays;
  int (*share)(void*, void**);  // another handle of an array
  int (*free)(void*);
  int (*push)(void (*)(void*, void*), void*, void (*)(void*), const void*, void**, int, void**, int,
              const void*, int, const char*);
};

inline void check(int failed) {
  if (failed) throw std::runtime_error("MXNet does not tell what an array is");
}

inline int64_t size_of(const ArraysInC& mxnet, void* handle) {
  int axes = 0;
  const int* shape = nullptr;
  check(mxnet.shape(handle, &axes, &shape));
  int64_t size = 1;
  for (int axis = 0; axis < axes; ++axis) size *= shape[axis];
  return size;
}

template <typename T> T* data_of(const ArraysInC& mxnet, void* handle) {
  void* data = nullptr;
  check(mxnet.data(handle, &data));
  return static_cast<T*>(data);
}

}  // namespace edb
