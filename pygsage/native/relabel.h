// From global node ids to rows of a batch. Both tables are reused by the next batch without being cleared:
// an entry counts only when it bears the stamp of the present batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "buffers.h"
#include "memory.h"
#include "random.h"

namespace pygsage {

// One entry a node of the graph: 8 bytes each.
class DenseTable {
 public:
  void start(std::int64_t num_nodes, std::int64_t /*num_rows*/) {
    const auto size = static_cast<std::size_t>(num_nodes);
    if (entries_.size() < size) {
      entries_.reserve(size);
      prefer_huge_pages(entries_.data(), size * sizeof(entries_[0]), false);
      entries_.resize(size);
    }
    stamp_ += kOne;
    if (stamp_ == 0) {
      entries_.assign(entries_.size(), 0);
      stamp_ = kOne;
    }
  }

  void prefetch_node(std::int64_t node) const { prefetch(&entries_[static_cast<std::size_t>(node)]); }

  // The row of a node; `row` when it has none so far, which is then its own.
  std::uint32_t find_or_add(std::int64_t node, std::uint32_t row) {
    std::uint64_t& entry = entries_[static_cast<std::size_t>(node)];
    if (entry < stamp_) entry = stamp_ | row;
    return static_cast<std::uint32_t>(entry);
  }

  // The rows of some nodes; those that have none so far are appended to the `num_nodes` of `nodes`, which has room for
  // all and one more. Returns their new number.
  template <typename Index>
  std::int64_t add(const Index* ids, std::int64_t count, std::int64_t* nodes, std::int64_t num_nodes,
                   std::int32_t* rows) {
    // Whether a node is new is hard to foretell, so there is no branch on it.
    std::uint64_t* const entries = entries_.data();
    for (std::int64_t e = 0; e < count; ++e) {
      const auto id = static_cast<std::int64_t>(ids[e]);
      const std::uint64_t old = entries[id], fresh = stamp_ | static_cast<std::uint64_t>(num_nodes);
      const std::uint64_t entry = old < stamp_ ? fresh : old;
      entries[id] = entry;
      nodes[num_nodes] = id;
      num_nodes += old < stamp_;
      rows[e] = static_cast<std::int32_t>(static_cast<std::uint32_t>(entry));
    }
    return num_nodes;
  }

 private:
  static constexpr std::uint64_t kOne = std::uint64_t{1} << 32;
  std::vector<std::uint64_t> entries_;  // a stamp in the high half, a row in the low one; older ones are less
  std::uint64_t stamp_ = 0;
};

// Open addressing with linear probing, at most half full: 32 to 64 bytes a node of the largest batch.
class HashTable {
 public:
  void start(std::int64_t /*num_nodes*/, std::int64_t num_rows) {
    size_ = 0;
    if (++stamp_ == 0) {
      entries_.assign(entries_.size(), Entry{});
      stamp_ = 1;
    }
    int bits = 6;
    while ((std::int64_t{1} << bits) < 2 * num_rows) ++bits;
    if (bits > bits_) resize(bits);
  }

  void prefetch_node(std::int64_t node) const { prefetch(&entries_[home(node)]); }

  std::uint32_t find_or_add(std::int64_t node, std::uint32_t row) {
    Entry& entry = find(node);
    if (entry.stamp == stamp_) return entry.row;
    entry = {node, stamp_, row};
    if (2 * ++size_ > entries_.size()) grow();
    return row;
  }

  // As the other table's.
  template <typename Index>
  std::int64_t add(const Index* ids, std::int64_t count, std::int64_t* nodes, std::int64_t num_nodes,
                   std::int32_t* rows) {
    for (std::int64_t e = 0; e < count; ++e) {
      const auto id = static_cast<std::int64_t>(ids[e]);
      const auto next = static_cast<std::uint32_t>(num_nodes);
      const std::uint32_t row = find_or_add(id, next);
      if (row == next) nodes[num_nodes++] = id;
      rows[e] = static_cast<std::int32_t>(row);
    }
    return num_nodes;
  }

 private:
  struct Entry {
    std::int64_t node = 0;
    std::uint32_t stamp = 0;
    std::uint32_t row = 0;
  };

  std::size_t home(std::int64_t node) const {
    return static_cast<std::size_t>((static_cast<std::uint64_t>(node) * kGolden) >> (64 - bits_));
  }

  Entry& find(std::int64_t node) {
    const std::size_t mask = entries_.size() - 1;
    std::size_t s = home(node);
    while (entries_[s].stamp == stamp_ && entries_[s].node != node) s = (s + 1) & mask;
    return entries_[s];
  }

  void resize(int bits) {
    entries_.assign(std::size_t{1} << bits, Entry{});
    bits_ = bits;
  }

  void grow() {
    std::vector<Entry> old;
    old.swap(entries_);
    resize(bits_ + 1);
    for (const Entry& entry : old)
      if (entry.stamp == stamp_) find(entry.node) = entry;
  }

  std::vector<Entry> entries_;
  std::size_t size_ = 0;
  std::uint32_t stamp_ = 0;
  int bits_ = 0;
};

}  // namespace pygsage
