// Made by `python -m gluon_edbatch.ops --header` from the declarations in gluon_edbatch/ops.
// clang-format off
#pragma once

#include <cstdint>
#include <stdexcept>

#include "math_functions.h"

namespace edb {

enum Opcode : int64_t {
  kLoad = 0,
  kProduct = 1,
  kUnary = 2,
  kBinary = 3,
  kExpand = 4,
  kSegmentSum = 5,
  kLookup = 6,
  kSoftmax = 7,
  kPick = 8,
  kReduce = 9,
  kBatchProduct = 10,
  kConstant = 11,
  kStrided = 12,
  kTranspose = 13,
  kParameterRow = 14,
  kSegmentSoftmax = 15,
  kSegmentExtreme = 16,
  kSegmentMask = 17,
  kSegmentPick = 18,
  kPositions = 19,
  kLayerNorm = 20,
  kAttention = 21,
  kWindow = 22,
  kRecurrent = 23,
  kDropout = 24,
  kSegmentOrder = 25
};

enum Product : int64_t {
  kWritten = 0,
  kAdded = 1,
  kSteps = 2
};

enum Recurrence : int64_t {
  kLstm = 0,
  kGru = 1,
  kRnnTanh = 2,
  kRnnRelu = 3
};

enum Place : int64_t {
  kNowhere = 0,
  kScratch = 1,
  kKept = 2,
  kOutput = 3,
  kInput = 4
};

enum Spread : int64_t {
  kSame = 0,
  kRepeat = 1,
  kTile = 2
};

enum Read { kFromNothing, kFromArgument, kFromResult };

struct Slope {  // a function's name for messages, and what its gradient reads
  const char* name;
  Read reads;
};

// Calls body(function, slope) with the function that `which` stands for.
template <typename T, typename Body>
void with_unary(int64_t which, T first, T second, Body body) {
  switch (which) {
    case 0: body(Affine<T>{first, second}, Slope{"Affine", kFromNothing}); break;
    case 1: body(Held<T>{}, Slope{"Held", kFromNothing}); break;
    case 2: body(Relu<T>{}, Slope{"Relu", kFromResult}); break;
    case 3: body(Sigmoid<T>{}, Slope{"Sigmoid", kFromResult}); break;
    case 4: body(Tanh<T>{}, Slope{"Tanh", kFromResult}); break;
    case 5: body(SoftRelu<T>{}, Slope{"SoftRelu", kFromResult}); break;
    case 6: body(SoftSign<T>{}, Slope{"SoftSign", kFromArgument}); break;
    case 7: body(Square<T>{}, Slope{"Square", kFromArgument}); break;
    case 8: body(Sqrt<T>{}, Slope{"Sqrt", kFromResult}); break;
    case 9: body(Leaky<T>{first}, Slope{"Leaky", kFromArgument}); break;
    case 10: body(Elu<T>{first}, Slope{"Elu", kFromResult}); break;
    case 11: body(Clip<T>{first, second}, Slope{"Clip", kFromArgument}); break;
    case 12: body(Abs<T>{}, Slope{"Abs", kFromArgument}); break;
    case 13: body(Exp<T>{}, Slope{"Exp", kFromResult}); break;
    case 14: body(Log<T>{}, Slope{"Log", kFromArgument}); break;
    case 15: body(Gamma<T>{}, Slope{"Gamma", kFromArgument}); break;
    case 16: body(LogGamma<T>{}, Slope{"LogGamma", kFromArgument}); break;
    case 17: body(Erf<T>{}, Slope{"Erf", kFromArgument}); break;
    case 18: body(ErfInv<T>{}, Slope{"ErfInv", kFromArgument}); break;
    case 19: body(Reciprocal<T>{first}, Slope{"Reciprocal", kFromArgument}); break;
    case 20: body(Maximum<T>{first}, Slope{"Maximum", kFromArgument}); break;
    case 21: body(Minimum<T>{first}, Slope{"Minimum", kFromArgument}); break;
    default: throw std::runtime_error("unknown elementwise function");
  }
}

// Calls body(function, slope) with the function that `which` stands for.
template <typename T, typename Body>
void with_binary(int64_t which, Body body) {
  switch (which) {
    case 0: body(Add<T>{}, Slope{"Add", kFromNothing}); break;
    case 1: body(Divide<T>{}, Slope{"Divide", kFromArgument}); break;
    case 2: body(Equal<T>{}, Slope{"Equal", kFromNothing}); break;
    case 3: body(NotEqual<T>{}, Slope{"NotEqual", kFromNothing}); break;
    case 4: body(Greater<T>{}, Slope{"Greater", kFromNothing}); break;
    case 5: body(GreaterEqual<T>{}, Slope{"GreaterEqual", kFromNothing}); break;
    case 6: body(Lesser<T>{}, Slope{"Lesser", kFromNothing}); break;
    case 7: body(LesserEqual<T>{}, Slope{"LesserEqual", kFromNothing}); break;
    case 8: body(Subtract<T>{}, Slope{"Subtract", kFromNothing}); break;
    case 9: body(Multiply<T>{}, Slope{"Multiply", kFromArgument}); break;
    case 10: body(Larger<T>{}, Slope{"Larger", kFromArgument}); break;
    case 11: body(Smaller<T>{}, Slope{"Smaller", kFromArgument}); break;
    default: throw std::runtime_error("unknown elementwise function");
  }
}

}  // namespace edb
