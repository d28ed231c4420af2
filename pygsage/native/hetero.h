// Draws a batch's neighbourhood in a graph with types of nodes and edges: what sampler.h does, relation by relation.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "memory.h"
#include "random.h"
#include "relabel.h"
#include "sampler.h"

namespace pygsage {

// The edges of one type, from nodes of the type `source` to nodes of the type `target`.
struct Relation {
  // Its num_nodes is that of the sources, which its indices are checked against; its indptr has an element more than
  // there are targets.
  std::variant<Graph<std::int32_t>, Graph<std::int64_t>> graph;
  std::size_t source;
  std::size_t target;
  std::vector<std::int64_t> fanouts;  // one a hop
};

struct Seeds {
  const std::int64_t* ids;
  std::int64_t size;
};

struct HeteroSample {
  std::vector<std::vector<std::int64_t>> nodes;      // by node type: as Sample.nodes
  std::vector<std::vector<std::int64_t>> num_nodes;  // by node type: [num_hops + 1]
  std::vector<std::vector<Hop>> hops;                // by relation: targets and neighbours are rows of their types
};

// Scratch memory of one thread, kept from batch to batch.
struct HeteroWorkspace {
  Workspace draws;
  std::vector<DenseTable> dense;  // by node type; of the two tables of a type one is in use
  std::vector<HashTable> hash;
};

namespace detail {

inline void check_relation(const Relation& relation, std::size_t num_types, std::size_t num_hops) {
  if (relation.source >= num_types || relation.target >= num_types)
    throw std::invalid_argument("a relation names a node type that does not exist");
  if (relation.fanouts.size() != num_hops)
    throw std::invalid_argument("the relations have fanouts of different lengths; expected one number a hop");
  for (const std::int64_t fanout : relation.fanouts)
    if (fanout < -1)
      throw std::invalid_argument("a fanout is " + std::to_string(fanout) + "; expected -1 for all, or 0 or more");
}

}  // namespace detail

// In hop h each relation in turn draws `fanouts[h]` in-neighbours (-1: all) of each node of its target type that the
// hop before reached first. `num_nodes` and `seeds` have an element a node type. Types of more than `dense_limit`
// nodes are relabelled by hashing.
// Throws std::invalid_argument for a seed, an indptr or an index out of range, and for a fanout below -1.
inline HeteroSample sample_hetero(const Kernels& kernels, HeteroWorkspace& workspace,
                                  const std::vector<Relation>& relations, const std::vector<std::int64_t>& num_nodes,
                                  const std::vector<Seeds>& seeds, std::uint64_t stream, std::int64_t dense_limit) {
  const std::size_t num_types = num_nodes.size();
  const std::size_t num_hops = relations.empty() ? 0 : relations.front().fanouts.size();
  if (seeds.size() != num_types) throw std::invalid_argument("expected seeds, possibly none, of each node type");
  for (const Relation& relation : relations) detail::check_relation(relation, num_types, num_hops);
  if (workspace.dense.size() < num_types) {
    workspace.dense.resize(num_types);
    workspace.hash.resize(num_types);
  }

  // Calls `use` with the table of a node type.
  const auto with_table = [&](std::size_t type, auto&& use) {
    if (num_nodes[type] <= dense_limit)
      use(workspace.dense[type]);
    else
      use(workspace.hash[type]);
  };

  HeteroSample result;
  result.nodes.resize(num_types);
  result.num_nodes.resize(num_types);
  result.hops.resize(relations.size());
  for (std::size_t type = 0; type < num_types; ++type) {
    auto& nodes = result.nodes[type];
    with_table(type, [&](auto& table) {
      table.start(num_nodes[type], seeds[type].size);
      for (std::int64_t i = 0; i < seeds[type].size; ++i) {
        const std::int64_t seed = seeds[type].ids[i];
        detail::check_id(seed, num_nodes[type], "seeds", i);
        table.find_or_add(seed, detail::next_row(nodes));
        nodes.push_back(seed);
      }
    });
    result.num_nodes[type].push_back(seeds[type].size);
  }

  std::vector<std::int64_t> begins(num_types, 0), ends(num_types);
  for (std::size_t h = 0; h < num_hops; ++h) {
    for (std::size_t type = 0; type < num_types; ++type)
      ends[type] = static_cast<std::int64_t>(result.nodes[type].size());
    for (std::size_t r = 0; r < relations.size(); ++r) {
      const Relation& relation = relations[r];
      const std::int64_t num_targets = ends[relation.target] - begins[relation.target];
      Hop hop;
      hop.first_target = begins[relation.target];
      std::visit(
          [&](const auto& graph) {
            // Used before new nodes are appended, which may move the list that it points into.
            const std::int64_t* targets = result.nodes[relation.target].data() + hop.first_target;
            detail::draw_hop(kernels, graph, targets, num_targets, relation.fanouts[h], relation_stream(stream, r),
                             workspace.draws, hop);
            detail::gather(graph, hop);
          },
          relation.graph);
      with_table(relation.source,
                 [&](auto& table) { detail::relabel(table, result.nodes[relation.source], hop); });
      result.hops[r].push_back(std::move(hop));
    }
    begins = ends;
    for (std::size_t type = 0; type < num_types; ++type)
      result.num_nodes[type].push_back(static_cast<std::int64_t>(result.nodes[type].size()));
  }
  return result;
}

}  // namespace pygsage
