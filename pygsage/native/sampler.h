// Draws a batch's neighbourhood hop by hop: a pure function of the graph, the seeds and the stream.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "draw.h"
#include "fetch.h"
#include "kernels.h"
#include "memory.h"
#include "random.h"
#include "relabel.h"

namespace pygsage {

// A graph as lists of in-neighbours; memory of the caller's, neither copied nor trusted.
template <typename Index>
struct Graph {
  const std::int64_t* indptr;  // [num_nodes + 1]
  const Index* indices;        // [num_edges]
  std::int64_t num_nodes;
  std::int64_t num_edges;
  bool is_mapped = false;  // from a file that may not be in memory: what a hop reads is then asked for at once
};

struct Hop {
  std::int64_t first_target = 0;   // the row of the first target
  Array<std::int64_t> indptr;      // [num_targets + 1]
  Array<std::int64_t> indices;     // [num_drawn] rows of the neighbours
  Array<std::int64_t> positions;   // [num_drawn] places of the edges in the graph's indices
};

struct Sample {
  std::vector<std::int64_t> nodes;      // global ids: the seeds as given, then the others by first reach
  std::vector<std::int64_t> num_nodes;  // [num_hops + 1] how many nodes are known before each hop and at the end
  std::vector<Hop> hops;
};

// Scratch memory of one thread, kept from batch to batch.
struct Workspace {
  Drawer drawer;
  DenseTable dense;
  HashTable hash;
  std::vector<Place> places;  // of the targets of a hop
  // For blocks.h alone.
  std::vector<std::int64_t> nodes, positions[2], ids_64;
  std::vector<std::int32_t> ids_32;

  std::vector<std::int64_t>& ids_of(std::int64_t) { return ids_64; }
  std::vector<std::int32_t>& ids_of(std::int32_t) { return ids_32; }
};

namespace detail {

constexpr std::int64_t kAhead = 16;  // how many elements ahead of use the cache is told

inline std::int64_t num_drawn(std::int64_t degree, std::int64_t fanout) {
  return fanout < 0 || degree < fanout ? degree : fanout;
}

inline void check_id(std::int64_t id, std::int64_t num_nodes, const char* what, std::int64_t place) {
  if (static_cast<std::uint64_t>(id) >= static_cast<std::uint64_t>(num_nodes))
    throw std::invalid_argument(std::string(what) + "[" + std::to_string(place) + "] is " + std::to_string(id) +
                                "; expected a node id from 0 to below " + std::to_string(num_nodes));
}

inline void check_rows(std::int64_t count) {
  if (count >= static_cast<std::int64_t>(std::numeric_limits<std::uint32_t>::max()))
    throw std::length_error("the batch has more than 2**32 - 2 rows; use fewer seeds or smaller fanouts");
}

inline std::uint32_t next_row(const std::vector<std::int64_t>& nodes) {
  check_rows(static_cast<std::int64_t>(nodes.size()));
  return static_cast<std::uint32_t>(nodes.size());
}

// Reads where each target's neighbours lie, and where its draws end: `ends` starts with what `ends[0]` holds.
// Returns the largest degree.
template <typename Index>
std::int64_t locate(const Graph<Index>& graph, const std::int64_t* targets, std::int64_t num_targets,
                    std::int64_t fanout, std::vector<Place>& places, std::int64_t* ends) {
  if (static_cast<std::int64_t>(places.size()) < num_targets) places.resize(static_cast<std::size_t>(num_targets));
  std::int64_t most = 0;
  for (std::int64_t i = 0; i < num_targets; ++i) {
    if (i + kAhead < num_targets) prefetch(&graph.indptr[targets[i + kAhead]]);
    const std::int64_t v = targets[i], begin = graph.indptr[v], end = graph.indptr[v + 1];
    if (begin < 0 || end < begin || end > graph.num_edges)
      throw std::invalid_argument("indptr is damaged: node " + std::to_string(v) + " has the edges from " +
                                  std::to_string(begin) + " to " + std::to_string(end) + " of " +
                                  std::to_string(graph.num_edges));
    places[static_cast<std::size_t>(i)] = {begin, end - begin};
    most = std::max(most, end - begin);
    ends[i + 1] = ends[i] + num_drawn(end - begin, fanout);
  }
  return most;
}

// Writes the edges that some targets draw, places in the graph's indices, one target after the other. `most`: the
// largest degree among them, or more.
inline void draw_edges(const Kernels& kernels, Drawer& drawer, const std::int64_t* targets, const Place* places,
                       std::int64_t count, std::int64_t fanout, std::int64_t most, std::uint64_t stream,
                       std::int64_t* out) {
  if (fanout >= 0 && fanout <= kMostFew && most <= std::numeric_limits<std::uint32_t>::max()) {
    kernels.draw({stream, fanout, targets, places, count, out});
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const auto [begin, degree] = places[i];
    if (fanout < 0 || degree <= fanout)
      for (std::int64_t j = 0; j < degree; ++j) out[j] = begin + j;
    else
      drawer.draw(node_key(stream, targets[i]), degree, fanout, begin, out);
    out += num_drawn(degree, fanout);
  }
}

// Draws the edges of one hop; fills hop.indptr and hop.positions.
template <typename Index>
void draw_hop(const Kernels& kernels, const Graph<Index>& graph, const std::int64_t* targets, std::int64_t num_targets,
              std::int64_t fanout, std::uint64_t stream, Workspace& workspace, Hop& hop) {
  hop.indptr = Array<std::int64_t>(num_targets + 1);
  hop.indptr[0] = 0;
  if (graph.is_mapped) fetch_elements(graph.indptr, targets, num_targets, 2);
  const std::int64_t most = locate(graph, targets, num_targets, fanout, workspace.places, hop.indptr.data.get());
  hop.positions = Array<std::int64_t>(hop.indptr[num_targets]);
  draw_edges(kernels, workspace.drawer, targets, workspace.places.data(), num_targets, fanout, most, stream,
             hop.positions.data.get());
}

// Reads the neighbours' global ids; fills hop.indices.
template <typename Index>
void gather(const Graph<Index>& graph, Hop& hop) {
  const std::int64_t n = hop.positions.size;
  hop.indices = Array<std::int64_t>(n);
  if (graph.is_mapped) fetch_elements(graph.indices, hop.positions.data.get(), n, 1);
  for (std::int64_t e = 0; e < n; ++e) {
    if (e + kAhead < n) prefetch(&graph.indices[hop.positions[e + kAhead]]);
    const std::int64_t id = static_cast<std::int64_t>(graph.indices[hop.positions[e]]);
    check_id(id, graph.num_nodes, "indices", hop.positions[e]);
    hop.indices[e] = id;
  }
}

// Turns hop.indices from global ids into rows, and appends the nodes seen for the first time.
template <typename Table>
void relabel(Table& table, std::vector<std::int64_t>& nodes, Hop& hop) {
  const std::int64_t n = hop.indices.size;
  for (std::int64_t e = 0; e < n; ++e) {
    if (e + kAhead < n) table.prefetch_node(hop.indices[e + kAhead]);
    const std::uint32_t next = next_row(nodes);
    const std::uint32_t row = table.find_or_add(hop.indices[e], next);
    if (row == next) nodes.push_back(hop.indices[e]);
    hop.indices[e] = row;
  }
}

template <typename Index, typename Table>
Sample sample_with(const Kernels& kernels, Table& table, Workspace& workspace, const Graph<Index>& graph,
                   const std::int64_t* seeds, std::int64_t num_seeds, const std::vector<std::int64_t>& fanouts,
                   std::uint64_t stream, bool layered) {
  Sample result;
  table.start(graph.num_nodes, num_seeds);
  result.nodes.reserve(static_cast<std::size_t>(num_seeds));
  for (std::int64_t i = 0; i < num_seeds; ++i) {
    const std::int64_t seed = seeds[i];
    check_id(seed, graph.num_nodes, "seeds", i);
    // A seed given twice keeps the row of its first place in the table, and has a row of its own as a target.
    table.find_or_add(seed, next_row(result.nodes));
    result.nodes.push_back(seed);
  }
  result.num_nodes.push_back(num_seeds);

  std::int64_t reached_before = 0;
  for (const std::int64_t fanout : fanouts) {
    Hop hop;
    hop.first_target = layered ? 0 : reached_before;
    reached_before = static_cast<std::int64_t>(result.nodes.size());
    const std::int64_t* targets = result.nodes.data() + hop.first_target;
    const std::int64_t num_targets = reached_before - hop.first_target;
    draw_hop(kernels, graph, targets, num_targets, fanout, stream, workspace, hop);
    gather(graph, hop);
    relabel(table, result.nodes, hop);
    result.num_nodes.push_back(static_cast<std::int64_t>(result.nodes.size()));
    result.hops.push_back(std::move(hop));
  }
  return result;
}

}  // namespace detail

// Hop h draws `fanouts[h]` in-neighbours (-1: all) of each of its targets: every node known so far when `layered`,
// else those that the hop before reached first. Graphs of more than `dense_limit` nodes are relabelled by hashing.
// Throws std::invalid_argument for a seed, an indptr or an index out of range, and for a fanout below -1.
template <typename Index>
Sample sample(const Kernels& kernels, Workspace& workspace, const Graph<Index>& graph, const std::int64_t* seeds,
              std::int64_t num_seeds, const std::vector<std::int64_t>& fanouts, std::uint64_t stream, bool layered,
              std::int64_t dense_limit) {
  for (const std::int64_t fanout : fanouts)
    if (fanout < -1)
      throw std::invalid_argument("a fanout is " + std::to_string(fanout) + "; expected -1 for all, or 0 or more");
  if (graph.num_nodes <= dense_limit)
    return detail::sample_with(kernels, workspace.dense, workspace, graph, seeds, num_seeds, fanouts, stream, layered);
  return detail::sample_with(kernels, workspace.hash, workspace, graph, seeds, num_seeds, fanouts, stream, layered);
}

}  // namespace pygsage
