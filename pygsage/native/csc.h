// From a list of edges to their destinations' lists of in-neighbours, by a stable counting sort.
#pragma once

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "memory.h"

namespace pygsage {

template <typename Index>
struct Csc {
  Array<std::int64_t> indptr;  // [num_nodes + 1]
  Array<Index> indices;        // [num_edges] sources, grouped by destination, in the given order within one
  Array<std::int64_t> perm;    // [num_edges] the edge of the list that each place came from
};

// Costs O(num_nodes + num_edges) time, and 8 bytes a node beside the result.
// Throws std::invalid_argument that names the first edge with an end outside [0, num_nodes).
template <typename Index>
Csc<Index> build_csc(const std::int64_t* src, const std::int64_t* dst, std::int64_t num_edges,
                     std::int64_t num_nodes) {
  if (num_nodes < 0) throw std::invalid_argument("num_nodes is " + std::to_string(num_nodes) + "; expected 0 or more");
  if (num_nodes > 0 && num_nodes - 1 > static_cast<std::int64_t>(std::numeric_limits<Index>::max()))
    throw std::invalid_argument("num_nodes is " + std::to_string(num_nodes) + ", too many for 32-bit indices");

  const auto bound = static_cast<std::uint64_t>(num_nodes);
  // One counter a node: first how many edges it has, then where its next edge goes.
  std::vector<std::int64_t> cursor(static_cast<std::size_t>(num_nodes), 0);
  for (std::int64_t e = 0; e < num_edges; ++e) {
    if (static_cast<std::uint64_t>(src[e]) >= bound || static_cast<std::uint64_t>(dst[e]) >= bound)
      throw std::invalid_argument("edge " + std::to_string(e) + " is " + std::to_string(src[e]) + " -> " +
                                  std::to_string(dst[e]) + "; expected node ids from 0 to below " +
                                  std::to_string(num_nodes));
    ++cursor[static_cast<std::size_t>(dst[e])];
  }

  Csc<Index> csc{Array<std::int64_t>(num_nodes + 1), Array<Index>(num_edges), Array<std::int64_t>(num_edges)};
  std::int64_t total = 0;
  for (std::int64_t v = 0; v < num_nodes; ++v) {
    csc.indptr[v] = total;
    total += cursor[static_cast<std::size_t>(v)];
    cursor[static_cast<std::size_t>(v)] = csc.indptr[v];
  }
  csc.indptr[num_nodes] = total;

  for (std::int64_t e = 0; e < num_edges; ++e) {
    // The input is read a second time, and may be a file that somebody has changed since: check what is used.
    const std::int64_t source = src[e], target = dst[e];
    std::int64_t place = -1;
    if (static_cast<std::uint64_t>(target) < bound) place = cursor[static_cast<std::size_t>(target)]++;
    if (place < 0 || place >= num_edges) throw std::invalid_argument("the edges changed while they were sorted");
    csc.indices[place] = static_cast<Index>(source);
    csc.perm[place] = e;
  }
  return csc;
}

}  // namespace pygsage
