// Draws a batch's neighbourhood hop by hop: a pure function of the graph, the seeds and the stream.
#pragma once

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "draw.h"
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
  struct Row {
    std::int64_t begin;
    std::int64_t degree;
  };
  Drawer drawer;
  DenseTable dense;
  HashTable hash;
  std::vector<Row> rows;
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

inline std::uint32_t next_row(const std::vector<std::int64_t>& nodes) {
  if (nodes.size() >= std::numeric_limits<std::uint32_t>::max())
    throw std::length_error("the batch has more than 2**32 - 2 rows; use fewer seeds or smaller fanouts");
  return static_cast<std::uint32_t>(nodes.size());
}

// Reads where each target's neighbours lie; fills rows and hop.indptr.
template <typename Index>
void locate(const Graph<Index>& graph, const std::int64_t* targets, std::int64_t num_targets, std::int64_t fanout,
            std::vector<Workspace::Row>& rows, Hop& hop) {
  rows.resize(static_cast<std::size_t>(num_targets));
  hop.indptr = Array<std::int64_t>(num_targets + 1);
  std::int64_t total = 0;
  hop.indptr[0] = 0;
  for (std::int64_t i = 0; i < num_targets; ++i) {
    if (i + kAhead < num_targets) prefetch(&graph.indptr[targets[i + kAhead]]);
    const std::int64_t v = targets[i];
    const std::int64_t begin = graph.indptr[v], end = graph.indptr[v + 1];
    if (begin < 0 || end < begin || end > graph.num_edges)
      throw std::invalid_argument("indptr is damaged: node " + std::to_string(v) + " has the edges from " +
                                  std::to_string(begin) + " to " + std::to_string(end) + " of " +
                                  std::to_string(graph.num_edges));
    rows[static_cast<std::size_t>(i)] = {begin, end - begin};
    total += num_drawn(end - begin, fanout);
    hop.indptr[i + 1] = total;
  }
}

// Draws each target's edges; fills hop.positions.
inline void draw_hop(const std::int64_t* targets, std::int64_t num_targets, std::int64_t fanout,
                     std::uint64_t stream, Workspace& workspace, Hop& hop) {
  hop.positions = Array<std::int64_t>(hop.indptr[num_targets]);
  for (std::int64_t i = 0; i < num_targets; ++i) {
    const auto [begin, degree] = workspace.rows[static_cast<std::size_t>(i)];
    std::int64_t* out = hop.positions.data.get() + hop.indptr[i];
    if (fanout < 0 || degree <= fanout)
      for (std::int64_t j = 0; j < degree; ++j) out[j] = begin + j;
    else
      workspace.drawer.draw(node_key(stream, targets[i]), degree, fanout, begin, out);
  }
}

// Reads the neighbours' global ids; fills hop.indices.
template <typename Index>
void gather(const Graph<Index>& graph, Hop& hop) {
  const std::int64_t n = hop.positions.size;
  hop.indices = Array<std::int64_t>(n);
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
Sample sample_with(Table& table, Workspace& workspace, const Graph<Index>& graph, const std::int64_t* seeds,
                   std::int64_t num_seeds, const std::vector<std::int64_t>& fanouts, std::uint64_t stream,
                   bool layered) {
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
    locate(graph, targets, num_targets, fanout, workspace.rows, hop);
    draw_hop(targets, num_targets, fanout, stream, workspace, hop);
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
Sample sample(Workspace& workspace, const Graph<Index>& graph, const std::int64_t* seeds, std::int64_t num_seeds,
              const std::vector<std::int64_t>& fanouts, std::uint64_t stream, bool layered,
              std::int64_t dense_limit) {
  for (const std::int64_t fanout : fanouts)
    if (fanout < -1)
      throw std::invalid_argument("a fanout is " + std::to_string(fanout) + "; expected -1 for all, or 0 or more");
  if (graph.num_nodes <= dense_limit)
    return detail::sample_with(workspace.dense, workspace, graph, seeds, num_seeds, fanouts, stream, layered);
  return detail::sample_with(workspace.hash, workspace, graph, seeds, num_seeds, fanouts, stream, layered);
}

}  // namespace pygsage
