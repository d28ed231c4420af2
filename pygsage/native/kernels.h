// The inner loops of a layer, for each set of instructions that the processor may have. Pointers in, pointers out:
// whoever calls has checked shapes and ids.
#pragma once

#include <stdint.h>

namespace pygsage {

struct Half {
  uint16_t bits;
};
struct Bfloat {
  uint16_t bits;
};

enum class Aggr { kMean, kSum, kMax };

// Neighbours' rows reduced for each target, and the target's own row beside them where there is one.
template <typename In, typename Out, typename Id>
struct Join {
  const In* rows;          // [.., stride], of which the first `width` columns
  int64_t width, stride;
  const uint64_t* bits;    // [.., words]: which elements of `rows` count, the others are zero; null: all
  int64_t words;
  float scale;             // of all that counts
  const int64_t* own;      // [targets] each target's own row; null: its number
  bool with_own;           // whether it is written to columns width .. 2 * width
  const int64_t* indptr;   // [targets + 1]
  const Id* ids;           // [edges] rows
  Aggr aggr;
  Out* out;                // [targets, out_stride]
  int64_t out_stride;
  int32_t* chosen;         // [targets, width] the edge that gave the maximum, -1: none; null: not wanted
};

// The gradient of a `Join` whose own rows are the first ones, edges listed by the row that they come from.
template <typename T>
struct Spread {
  const T* grad;           // [targets, 2 * width]
  int64_t width;
  int64_t num_targets;
  const int64_t* indptr;   // [rows + 1]
  const int32_t* targets;  // [edges] that each edge leads to
  const int32_t* edges;    // [edges] the edge's number in the Join; only for kMax
  const float* shares;     // [targets] 1 / number of neighbours for kMean; null: 1
  const int32_t* chosen;   // as in Join, for kMax; null otherwise
  const uint64_t* bits;    // [rows, words]
  int64_t words;
  float scale;
  T* out;                  // [rows, width]
};

template <typename T>
struct Activation {
  const T* values;       // [n, width]
  int64_t width;
  const int64_t* nodes;  // [n] the global ids that key the masks
  uint64_t start;        // what a row's key is made of besides
  int dropped;           // in 256ths; 0: none
  uint64_t* bits;        // [n, words] set where positive and kept
  int64_t words;
};

// out[m, k] += sum over rows of grad[row, m] * values[row, k], and sums[m] += those of grad; for grad mostly of zeros.
template <typename T>
struct OuterSum {
  const T* grad;  // [.., grad_stride]
  int64_t grad_stride, m;  // m: at most 64
  const T* values;  // [.., stride]
  int64_t stride, k;
  float* out;  // [m, k]
  float* sums;
};

// out[row, k] = sum over m of grad[row, m] * weight[m, k]; for grad mostly of zeros.
template <typename T>
struct TimesWeight {
  const T* grad;
  const float* weight;
  int64_t m, k;
  T* out;
};

// sums[c] = those of column c over some rows.
template <typename T>
struct ColumnSums {
  const T* values;
  int64_t width;
  float* sums;
};

// Where a node's neighbours lie.
struct Place {
  int64_t begin, degree;
};

constexpr int64_t kMostFew = 64;  // the largest fanout of a Draws

// The edges that nodes draw: places in the graph's indices, min(degree, fanout) a node, one node after the other.
struct Draws {
  uint64_t stream;
  int64_t fanout;       // 0 .. kMostFew
  const int64_t* nodes;
  const Place* places;  // degrees below 2**32
  int64_t count;
  int64_t* out;
};

struct Kernels {
  const char* isa;
  // Each does the targets or rows from `begin` to `end`.
  void (*join_f32_i32)(const Join<float, float, int32_t>&, int64_t begin, int64_t end);
  void (*join_f32_i64)(const Join<float, float, int64_t>&, int64_t begin, int64_t end);
  void (*join_f32_bf16_i32)(const Join<float, Bfloat, int32_t>&, int64_t begin, int64_t end);
  void (*join_f32_bf16_i64)(const Join<float, Bfloat, int64_t>&, int64_t begin, int64_t end);
  void (*join_f16_i32)(const Join<Half, float, int32_t>&, int64_t begin, int64_t end);
  void (*join_f16_i64)(const Join<Half, float, int64_t>&, int64_t begin, int64_t end);
  void (*join_f16_bf16_i32)(const Join<Half, Bfloat, int32_t>&, int64_t begin, int64_t end);
  void (*join_f16_bf16_i64)(const Join<Half, Bfloat, int64_t>&, int64_t begin, int64_t end);
  void (*join_bf16_i32)(const Join<Bfloat, Bfloat, int32_t>&, int64_t begin, int64_t end);
  void (*spread_f32)(const Spread<float>&, int64_t begin, int64_t end);
  void (*spread_bf16)(const Spread<Bfloat>&, int64_t begin, int64_t end);
  void (*activate_f32)(const Activation<float>&, int64_t begin, int64_t end);
  void (*activate_bf16)(const Activation<Bfloat>&, int64_t begin, int64_t end);
  void (*outer_f32)(const OuterSum<float>&, int64_t begin, int64_t end);
  void (*outer_bf16)(const OuterSum<Bfloat>&, int64_t begin, int64_t end);
  void (*times_f32)(const TimesWeight<float>&, int64_t begin, int64_t end);
  void (*times_bf16)(const TimesWeight<Bfloat>&, int64_t begin, int64_t end);
  void (*sums_f32)(const ColumnSums<float>&, int64_t begin, int64_t end);
  void (*sums_bf16)(const ColumnSums<Bfloat>&, int64_t begin, int64_t end);
  void (*draw)(const Draws&);
};

constexpr int64_t kWidestTimes = 4096;  // the largest m of a TimesWeight

// Null where it was not compiled.
const Kernels* plain_kernels();
const Kernels* avx2_kernels();
const Kernels* avx512_kernels();

}  // namespace pygsage
