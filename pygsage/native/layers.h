// What the layers ask of their kernels besides: edges turned round, and sums over rows that stay exact.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels.h"
#include "parallel.h"

namespace pygsage {

constexpr std::int64_t kRowsOfSum = 128;  // rows that are summed in float32 before float64 takes over

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
// are added up in float64, so that where a batch is cut matters little. Threads share the elements of `out`: their number
// does not change a bit.
template <typename T, typename Outer>
void outer_sum(Outer outer, const T* grad, const T* values, std::int64_t n, std::int64_t m, std::int64_t k, float* out,
               float* sums, int num_threads) {
  const std::int64_t words = (m + 63) / 64, threads = std::max(num_threads, 1);
  // Finding the zeros of 64 columns of grad is done anew for each share, which is worth it only where threads would idle.
  const std::int64_t shares = std::clamp<std::int64_t>((threads + words - 1) / words, 1, std::max<std::int64_t>(k / 128, 1));
  const auto bound = [&](std::int64_t share) { return share == shares ? k : k * share / shares / 16 * 16; };
  // A part each: rows are read by as few threads as may be.
  in_parallel(words * shares, num_threads, (words * shares + threads - 1) / threads, [&](std::int64_t begin, std::int64_t end) {
    struct Part {
      OuterSum<T> sum;
      std::int64_t first_row, first_column;
      std::vector<float> tile, tile_sums;
      std::vector<double> total, total_sums;
    };
    std::vector<Part> parts(static_cast<std::size_t>(end - begin));
    for (std::int64_t number = begin; number < end; ++number) {
      Part& p = parts[static_cast<std::size_t>(number - begin)];
      p.first_row = 64 * (number % words);
      p.first_column = bound(number / words);
      const std::int64_t count = std::min<std::int64_t>(m - p.first_row, 64), width = bound(number / words + 1) - p.first_column;
      p.tile.resize(static_cast<std::size_t>(count * width));
      p.tile_sums.resize(static_cast<std::size_t>(count));
      p.total.resize(p.tile.size());
      p.total_sums.resize(p.tile_sums.size());
      p.sum = {grad + p.first_row, m, count, values + p.first_column, k, width, p.tile.data(), p.tile_sums.data()};
    }
    for (std::int64_t row = 0; row < n; row += kRowsOfSum)
      for (Part& p : parts) {
        std::fill(p.tile.begin(), p.tile.end(), 0.0f);
        std::fill(p.tile_sums.begin(), p.tile_sums.end(), 0.0f);
        outer(p.sum, row, std::min(n, row + kRowsOfSum));
        for (std::size_t i = 0; i < p.tile.size(); ++i) p.total[i] += static_cast<double>(p.tile[i]);
        for (std::size_t i = 0; i < p.tile_sums.size(); ++i) p.total_sums[i] += static_cast<double>(p.tile_sums[i]);
      }
    for (const Part& p : parts) {
      for (std::int64_t c = 0; c < p.sum.m; ++c)
        for (std::int64_t i = 0; i < p.sum.k; ++i)
          out[(p.first_row + c) * k + p.first_column + i] = static_cast<float>(p.total[static_cast<std::size_t>(c * p.sum.k + i)]);
      if (p.first_column == 0)
        for (std::int64_t c = 0; c < p.sum.m; ++c) sums[p.first_row + c] = static_cast<float>(p.total_sums[static_cast<std::size_t>(c)]);
    }
  });
}

}  // namespace pygsage
