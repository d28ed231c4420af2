// What one training step needs: blocks of rows for all layers but the first, and for that one the drawn ids alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "memory.h"
#include "random.h"
#include "relabel.h"
#include "sampler.h"

namespace pygsage {

struct RowBlock {
  std::vector<std::int64_t> indptr;   // [num_targets + 1]
  std::vector<std::int32_t> indices;  // [num_drawn] rows of the neighbours
};

template <typename Index>
struct Layers {
  std::vector<std::int64_t> nodes;      // global ids of the outermost hop's targets: the seeds, then by first reach
  std::vector<std::int64_t> num_nodes;  // [num_hops] how many are known before each hop
  std::vector<RowBlock> blocks;         // of the hops but the last, seeds first; one for all where fanouts are equal
  Array<std::int64_t> indptr;           // [nodes + 1] where each one's neighbours of the last hop begin
  Array<Index> ids;                     // their global ids
};

namespace detail {

constexpr std::int64_t kChunkEdges = 512;  // edges that are on their way from memory at once

// Draws `fanout` neighbours of each target, a chunk of targets at a time: choose(positions of a chunk) while the ids of the
// one before are on their way. take(first target, end, ids) gets each chunk's ids in order.
template <typename Index, typename Take>
void draw_ids(const Graph<Index>& graph, const std::int64_t* targets, const std::int64_t* ends,
              std::int64_t num_targets, std::int64_t fanout, std::uint64_t stream, Workspace& workspace,
              const Take& take) {
  struct Chunk {
    std::int64_t begin = 0, end = 0;
    std::vector<std::int64_t> positions;
  };
  Chunk chunks[2];
  const auto take_ids = [&](Chunk& chunk) {
    const auto count = static_cast<std::int64_t>(chunk.positions.size());
    for (std::int64_t& position : chunk.positions) {
      const std::int64_t at = position;
      position = static_cast<std::int64_t>(graph.indices[at]);
      check_id(position, graph.num_nodes, "indices", at);
    }
    if (chunk.begin < chunk.end) take(chunk.begin, chunk.positions.data(), count);
  };
  int turn = 0;
  for (std::int64_t i = 0; i < num_targets; turn ^= 1) {
    Chunk& chunk = chunks[turn];
    chunk.begin = i;
    while (i < num_targets && (i == chunk.begin || ends[i + 1] - ends[chunk.begin] <= kChunkEdges)) ++i;
    chunk.end = i;
    chunk.positions.resize(static_cast<std::size_t>(ends[i] - ends[chunk.begin]));
    for (std::int64_t t = chunk.begin; t < i; ++t) {
      const auto [begin, degree] = workspace.rows[static_cast<std::size_t>(t)];
      std::int64_t* out = chunk.positions.data() + (ends[t] - ends[chunk.begin]);
      if (fanout < 0 || degree <= fanout)
        for (std::int64_t j = 0; j < degree; ++j) out[j] = begin + j;
      else
        workspace.drawer.draw(node_key(stream, targets[t]), degree, fanout, begin, out);
    }
    for (const std::int64_t position : chunk.positions) prefetch(&graph.indices[position]);
    take_ids(chunks[turn ^ 1]);
    chunks[turn ^ 1].begin = chunks[turn ^ 1].end = 0;
    chunks[turn ^ 1].positions.clear();
  }
  take_ids(chunks[turn ^ 1]);
}

// The targets' places in the graph, and where their draws end: `ends` starts with what `ends[0]` holds.
template <typename Index>
void locate_rows(const Graph<Index>& graph, const std::int64_t* targets, std::int64_t num_targets,
                 std::int64_t fanout, std::vector<Workspace::Row>& rows, std::int64_t* ends) {
  rows.resize(static_cast<std::size_t>(num_targets));
  for (std::int64_t i = 0; i < num_targets; ++i) {
    if (i + kAhead < num_targets) prefetch(&graph.indptr[targets[i + kAhead]]);
    const std::int64_t v = targets[i], begin = graph.indptr[v], end = graph.indptr[v + 1];
    if (begin < 0 || end < begin || end > graph.num_edges)
      throw std::invalid_argument("indptr is damaged: node " + std::to_string(v) + " has the edges from " +
                                  std::to_string(begin) + " to " + std::to_string(end) + " of " +
                                  std::to_string(graph.num_edges));
    rows[static_cast<std::size_t>(i)] = {begin, end - begin};
    ends[i + 1] = ends[i] + num_drawn(end - begin, fanout);
  }
}

template <typename Index, typename Table>
Layers<Index> layers_with(Table& table, Workspace& workspace, const Graph<Index>& graph, const std::int64_t* seeds,
                          std::int64_t num_seeds, const std::vector<std::int64_t>& fanouts, std::uint64_t stream) {
  Layers<Index> result;
  bool equal = true;
  for (const std::int64_t fanout : fanouts) equal &= fanout == fanouts[0];
  std::vector<std::int64_t>& nodes = result.nodes;
  table.start(graph.num_nodes, num_seeds);
  for (std::int64_t i = 0; i < num_seeds; ++i) {
    check_id(seeds[i], graph.num_nodes, "seeds", i);
    table.find_or_add(seeds[i], next_row(nodes));
    nodes.push_back(seeds[i]);
  }
  std::int64_t reached = 0;
  for (std::size_t hop = 0; hop + 1 < fanouts.size(); ++hop) {
    result.num_nodes.push_back(static_cast<std::int64_t>(nodes.size()));
    // With equal fanouts a target's draw is the same at every hop: only the new ones draw.
    const std::int64_t first = equal ? reached : 0, num_targets = static_cast<std::int64_t>(nodes.size()) - first;
    reached = first + num_targets;
    if (!equal || result.blocks.empty()) result.blocks.emplace_back().indptr.push_back(0);
    RowBlock& block = result.blocks.back();
    block.indptr.resize(static_cast<std::size_t>(first + num_targets) + 1);
    std::int64_t* ends = block.indptr.data() + first;
    locate_rows(graph, nodes.data() + first, num_targets, fanouts[hop], workspace.rows, ends);
    block.indices.resize(static_cast<std::size_t>(ends[num_targets]));
    // Room for every neighbour to be new, so that `nodes` stays where it is while it is drawn from.
    nodes.reserve(nodes.size() + static_cast<std::size_t>(ends[num_targets] - ends[0]));
    draw_ids(graph, nodes.data() + first, ends, num_targets, fanouts[hop], stream, workspace,
             [&](std::int64_t target, const std::int64_t* ids, std::int64_t count) {
               for (std::int64_t e = 0; e < count; ++e) table.prefetch_node(ids[e]);
               std::int32_t* rows = block.indices.data() + ends[target];
               for (std::int64_t e = 0; e < count; ++e) {
                 const std::uint32_t next = next_row(nodes);
                 const std::uint32_t row = table.find_or_add(ids[e], next);
                 if (row == next) nodes.push_back(ids[e]);
                 rows[e] = static_cast<std::int32_t>(row);
               }
             });
    if (nodes.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()))
      throw std::length_error("the batch has more than 2**31 - 1 rows; use fewer seeds or smaller fanouts");
  }
  const auto num_targets = static_cast<std::int64_t>(nodes.size());
  result.num_nodes.push_back(num_targets);
  const std::int64_t fanout = fanouts.back(), known = equal ? reached : 0;
  result.indptr = Array<std::int64_t>(num_targets + 1);
  std::int64_t* ends = result.indptr.data.get();
  ends[0] = 0;
  if (known > 0) std::copy_n(result.blocks[0].indptr.data(), known + 1, ends);
  locate_rows(graph, nodes.data() + known, num_targets - known, fanout, workspace.rows, ends + known);
  result.ids = Array<Index>(ends[num_targets]);
  for (std::int64_t e = 0; e < ends[known]; ++e)
    result.ids[e] = static_cast<Index>(nodes[static_cast<std::size_t>(result.blocks[0].indices[static_cast<std::size_t>(e)])]);
  draw_ids(graph, nodes.data() + known, ends + known, num_targets - known, fanout, stream, workspace,
           [&](std::int64_t target, const std::int64_t* ids, std::int64_t count) {
             Index* out = result.ids.data.get() + ends[known + target];
             for (std::int64_t e = 0; e < count; ++e) out[e] = static_cast<Index>(ids[e]);
           });
  return result;
}

}  // namespace detail

// Hop h draws `fanouts[h]` in-neighbours (-1: all) of every node known so far; those of the last hop get no rows.
// Throws as `sample` does.
template <typename Index>
Layers<Index> sample_layers(Workspace& workspace, const Graph<Index>& graph, const std::int64_t* seeds,
                            std::int64_t num_seeds, const std::vector<std::int64_t>& fanouts, std::uint64_t stream,
                            std::int64_t dense_limit) {
  if (fanouts.empty()) throw std::invalid_argument("there are no fanouts; expected one a layer");
  for (const std::int64_t fanout : fanouts)
    if (fanout < -1)
      throw std::invalid_argument("a fanout is " + std::to_string(fanout) + "; expected -1 for all, or 0 or more");
  if (graph.num_nodes <= dense_limit)
    return detail::layers_with(workspace.dense, workspace, graph, seeds, num_seeds, fanouts, stream);
  return detail::layers_with(workspace.hash, workspace, graph, seeds, num_seeds, fanouts, stream);
}

}  // namespace pygsage
