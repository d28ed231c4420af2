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
  Array<std::int64_t> nodes;            // global ids of the outermost hop's targets: the seeds, then by first reach
  std::vector<std::int64_t> num_nodes;  // [num_hops] how many are known before each hop
  std::vector<RowBlock> blocks;         // of the hops but the last, seeds first; one for all where fanouts are equal
  Array<std::int64_t> indptr;           // [nodes + 1] where each one's neighbours of the last hop begin
  Array<Index> ids;                     // their global ids
};

namespace detail {

constexpr std::int64_t kChunkEdges = 48;  // edges that are on their way from memory at once

// Draws `fanout` neighbours of each target and writes their global ids, a chunk of targets at a time: the ids of a
// chunk are asked of memory, read while the next one draws, and passed on to use(first edge, end) while the one after
// that does. reach(id) may ask for what `use` will want.
template <typename Index, typename Reach, typename Use>
void draw_ids(const Kernels& kernels, const Graph<Index>& graph, const std::int64_t* targets, const std::int64_t* ends,
              std::int64_t num_targets, std::int64_t fanout, std::int64_t most, std::uint64_t stream,
              Workspace& workspace, Index* ids, const Reach& reach, const Use& use) {
  struct Chunk {
    std::int64_t begin = 0, end = 0;  // edges
  };
  Chunk drawn, read;  // the chunk before, and the one before that
  const auto num_nodes = static_cast<std::uint64_t>(graph.num_nodes);
  int turn = 0;
  for (std::int64_t i = 0; i < num_targets || drawn.begin < drawn.end || read.begin < read.end; turn ^= 1) {
    const std::int64_t first = i;
    while (i < num_targets && (i == first || ends[i + 1] - ends[first] <= kChunkEdges)) ++i;
    const Chunk chunk{ends[first] - ends[0], ends[i] - ends[0]};
    std::vector<std::int64_t>& positions = workspace.positions[turn];
    const auto count = static_cast<std::size_t>(chunk.end - chunk.begin);
    if (positions.size() < count) positions.resize(count);
    draw_edges(kernels, workspace.drawer, targets + first, workspace.places.data() + first, i - first, fanout, most,
               stream, positions.data());
    for (std::size_t e = 0; e < count; ++e) prefetch(&graph.indices[positions[e]]);

    const std::int64_t* places = workspace.positions[turn ^ 1].data();
    bool bad = false;
    for (std::int64_t e = drawn.begin; e < drawn.end; ++e) {
      const Index id = graph.indices[places[e - drawn.begin]];
      bad |= static_cast<std::uint64_t>(static_cast<std::int64_t>(id)) >= num_nodes;
      ids[e] = id;
    }
    if (bad)
      for (std::int64_t e = drawn.begin; e < drawn.end; ++e)
        check_id(static_cast<std::int64_t>(ids[e]), graph.num_nodes, "indices", places[e - drawn.begin]);
    for (std::int64_t e = drawn.begin; e < drawn.end; ++e) reach(ids[e]);

    if (read.begin < read.end) use(read.begin, read.end);
    read = drawn;
    drawn = chunk;
  }
}

template <typename Index, typename Table>
Layers<Index> layers_with(const Kernels& kernels, Table& table, Workspace& workspace, const Graph<Index>& graph,
                          const std::int64_t* seeds, std::int64_t num_seeds, const std::vector<std::int64_t>& fanouts,
                          std::uint64_t stream) {
  Layers<Index> result;
  bool equal = true;
  for (const std::int64_t fanout : fanouts) equal &= fanout == fanouts[0];
  std::vector<std::int64_t>& nodes = workspace.nodes;
  std::vector<Index>& inner_ids = workspace.ids_of(Index{});
  const auto make_room = [](auto& values, std::int64_t count) {
    if (static_cast<std::int64_t>(values.size()) < count) values.resize(static_cast<std::size_t>(count));
  };
  table.start(graph.num_nodes, num_seeds);
  make_room(nodes, num_seeds);
  std::int64_t num_nodes = 0;
  for (; num_nodes < num_seeds; ++num_nodes) {
    check_id(seeds[num_nodes], graph.num_nodes, "seeds", num_nodes);
    check_rows(num_nodes);
    table.find_or_add(seeds[num_nodes], static_cast<std::uint32_t>(num_nodes));
    nodes[static_cast<std::size_t>(num_nodes)] = seeds[num_nodes];
  }
  std::int64_t reached = 0;
  for (std::size_t hop = 0; hop + 1 < fanouts.size(); ++hop) {
    result.num_nodes.push_back(num_nodes);
    // With equal fanouts a target's draw is the same at every hop: only the new ones draw.
    const std::int64_t first = equal ? reached : 0, num_targets = num_nodes - first;
    reached = num_nodes;
    if (!equal || result.blocks.empty()) result.blocks.emplace_back().indptr.push_back(0);
    RowBlock& block = result.blocks.back();
    block.indptr.resize(static_cast<std::size_t>(first + num_targets) + 1);
    std::int64_t* ends = block.indptr.data() + first;
    const std::int64_t most =
        locate(graph, nodes.data() + first, num_targets, fanouts[hop], workspace.places, ends);
    block.indices.resize(static_cast<std::size_t>(ends[num_targets]));
    // Room for every neighbour to be new, so that `nodes` stays where it is while it is drawn from; and for one more.
    make_room(nodes, num_nodes + ends[num_targets] - ends[0] + 1);
    make_room(inner_ids, ends[num_targets]);
    Index* ids = inner_ids.data() + ends[0];
    std::int32_t* rows = block.indices.data() + ends[0];
    draw_ids(
        kernels, graph, nodes.data() + first, ends, num_targets, fanouts[hop], most, stream, workspace, ids,
        [&](Index id) { table.prefetch_node(static_cast<std::int64_t>(id)); },
        [&](std::int64_t begin, std::int64_t end) {
          check_rows(num_nodes + end - begin);
          num_nodes = table.add(ids + begin, end - begin, nodes.data(), num_nodes, rows + begin);
        });
    if (num_nodes > std::numeric_limits<std::int32_t>::max())
      throw std::length_error("the batch has more than 2**31 - 1 rows; use fewer seeds or smaller fanouts");
  }
  result.num_nodes.push_back(num_nodes);
  result.nodes = Array<std::int64_t>(num_nodes);
  std::copy_n(nodes.data(), num_nodes, result.nodes.data.get());
  const std::int64_t fanout = fanouts.back(), known = equal ? reached : 0, num_targets = num_nodes - known;
  result.indptr = Array<std::int64_t>(num_nodes + 1);
  std::int64_t* ends = result.indptr.data.get();
  ends[0] = 0;
  if (known > 0) std::copy_n(result.blocks[0].indptr.data(), known + 1, ends);
  const std::int64_t most = locate(graph, nodes.data() + known, num_targets, fanout, workspace.places, ends + known);
  result.ids = Array<Index>(ends[num_nodes]);
  std::copy_n(inner_ids.data(), ends[known], result.ids.data.get());
  draw_ids(
      kernels, graph, nodes.data() + known, ends + known, num_targets, fanout, most, stream, workspace,
      result.ids.data.get() + ends[known], [](Index) {}, [](std::int64_t, std::int64_t) {});
  return result;
}

}  // namespace detail

// Hop h draws `fanouts[h]` in-neighbours (-1: all) of every node known so far; those of the last hop get no rows.
// Throws as `sample` does.
template <typename Index>
Layers<Index> sample_layers(const Kernels& kernels, Workspace& workspace, const Graph<Index>& graph,
                            const std::int64_t* seeds, std::int64_t num_seeds, const std::vector<std::int64_t>& fanouts,
                            std::uint64_t stream, std::int64_t dense_limit) {
  if (fanouts.empty()) throw std::invalid_argument("there are no fanouts; expected one a layer");
  for (const std::int64_t fanout : fanouts)
    if (fanout < -1)
      throw std::invalid_argument("a fanout is " + std::to_string(fanout) + "; expected -1 for all, or 0 or more");
  if (graph.num_nodes <= dense_limit)
    return detail::layers_with(kernels, workspace.dense, workspace, graph, seeds, num_seeds, fanouts, stream);
  return detail::layers_with(kernels, workspace.hash, workspace, graph, seeds, num_seeds, fanouts, stream);
}

}  // namespace pygsage
