// What the layers ask of their kernels besides: edges turned round, and sums over rows that stay exact.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "dispatch.h"
#include "kernels.h"

namespace pygsage {

constexpr std::int64_t kRowsOfSum = 256;  // rows that are summed in float32 before float64 takes over

// Throws std::invalid_argument unless `indptr` ascends from 0 to num_edges.
inline void check_indptr(const std::int64_t* indptr, std::int64_t num_targets, std::int64_t num_edges) {
  bool good = indptr[0] >= 0;
  for (std::int64_t i = 0; i < num_targets; ++i) good &= indptr[i] <= indptr[i + 1];
  if (!good || indptr[num_targets] > num_edges)
    throw std::invalid_argument("indptr does not ascend from 0 to " + std::to_string(num_edges) + ", the edges");
}

template <typename Id>
void check_ids(const Id* ids, std::int64_t count, std::int64_t num_rows, const char* what) {
  bool bad = false;
  for (std::int64_t e = 0; e < count; ++e)
    bad |= static_cast<std::uint64_t>(static_cast<std::int64_t>(ids[e])) >= static_cast<std::uint64_t>(num_rows);
  if (bad)
    throw std::invalid_argument(std::string(what) + " has an id outside of 0 to below " + std::to_string(num_rows));
}

// Edges listed by the row that they come from, in their order.
struct Reverse {
  std::vector<std::int64_t> indptr;   // [num_rows + 1]
  std::vector<std::int32_t> targets;  // [edges]
  std::vector<std::int32_t> edges;    // [edges], only when asked for
};

template <typename Id>
Reverse reverse(const std::int64_t* indptr, const Id* ids, std::int64_t num_targets, std::int64_t num_rows,
                bool with_edges) {
  const std::int64_t num_edges = indptr[num_targets] - indptr[0];
  Reverse r;
  r.indptr.assign(static_cast<std::size_t>(num_rows) + 2, 0);
  r.targets.resize(static_cast<std::size_t>(num_edges));
  if (with_edges) r.edges.resize(static_cast<std::size_t>(num_edges));
  // Counted two places on, so that after the second pass each entry is where its row begins.
  for (std::int64_t e = indptr[0]; e < indptr[num_targets]; ++e) ++r.indptr[static_cast<std::size_t>(ids[e]) + 2];
  for (std::size_t u = 2; u < r.indptr.size(); ++u) r.indptr[u] += r.indptr[u - 1];
  for (std::int64_t i = 0; i < num_targets; ++i)
    for (std::int64_t e = indptr[i]; e < indptr[i + 1]; ++e) {
      const auto place = static_cast<std::size_t>(r.indptr[static_cast<std::size_t>(ids[e]) + 1]++);
      r.targets[place] = static_cast<std::int32_t>(i);
      if (with_edges) r.edges[place] = static_cast<std::int32_t>(e);
    }
  r.indptr.pop_back();
  return r;
}

// out[m, k] = sum over n rows of grad[row, m] * values[row, k], and sums[m] = those of grad. The sums of kRowsOfSum rows
// are added up in float64, so that where a batch is cut matters little. Threads share the columns of grad: their number
// does not change a bit.
template <typename T, typename Outer>
void outer_sum(Outer outer, const T* grad, const T* values, std::int64_t n, std::int64_t m, std::int64_t k, float* out,
               float* sums, int num_threads) {
  in_parallel((m + 63) / 64, num_threads, 1, [&](std::int64_t first_word, std::int64_t last_word) {
    const std::int64_t first = 64 * first_word, last = std::min(m, 64 * last_word);
    const auto size = static_cast<std::size_t>((last - first) * k);
    const auto count = static_cast<std::size_t>(last - first);
    if (n <= kRowsOfSum) {  // one part: it is the sum
      std::memset(out + first * k, 0, size * sizeof(float));
      std::memset(sums + first, 0, count * sizeof(float));
      outer(OuterSum<T>{grad, values, m, k, out, sums}, 0, n, first_word, last_word);
      return;
    }
    std::vector<double> total(size, 0.0), total_sums(count, 0.0);
    for (std::int64_t begin = 0; begin < n; begin += kRowsOfSum) {
      std::memset(out + first * k, 0, size * sizeof(float));
      std::memset(sums + first, 0, count * sizeof(float));
      outer(OuterSum<T>{grad, values, m, k, out, sums}, begin, std::min(n, begin + kRowsOfSum), first_word, last_word);
      for (std::size_t i = 0; i < size; ++i) total[i] += static_cast<double>(out[first * k + static_cast<std::int64_t>(i)]);
      for (std::size_t i = 0; i < count; ++i)
        total_sums[i] += static_cast<double>(sums[first + static_cast<std::int64_t>(i)]);
    }
    for (std::size_t i = 0; i < size; ++i) out[first * k + static_cast<std::int64_t>(i)] = static_cast<float>(total[i]);
    for (std::size_t i = 0; i < count; ++i)
      sums[first + static_cast<std::int64_t>(i)] = static_cast<float>(total_sums[i]);
  });
}

}  // namespace pygsage
