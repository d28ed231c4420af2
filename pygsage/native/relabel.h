// From global node ids to rows of a batch. Both tables are reused by the next batch without being cleared:
// an entry counts only when it bears the stamp of the present batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "memory.h"
#include "random.h"

namespace pygsage {

// One entry a node of the graph: 8 bytes each.
class DenseTable {
 public:
  void start(std::int64_t num_nodes, std::int64_t /*num_rows*/) {
    if (static_cast<std::int64_t>(entries_.size()) < num_nodes) entries_.resize(static_cast<std::size_t>(num_nodes));
    if (++stamp_ == 0) {
      entries_.assign(entries_.size(), Entry{});
      stamp_ = 1;
    }
  }

  void prefetch_node(std::int64_t node) const { prefetch(&entries_[static_cast<std::size_t>(node)]); }

  // The row of a node; `row` when it has none so far, which is then its own.
  std::uint32_t find_or_add(std::int64_t node, std::uint32_t row) {
    Entry& entry = entries_[static_cast<std::size_t>(node)];
    if (entry.stamp != stamp_) entry = {stamp_, row};
    return entry.row;
  }

 private:
  struct Entry {
    std::uint32_t stamp = 0;
    std::uint32_t row = 0;
  };
  std::vector<Entry> entries_;
  std::uint32_t stamp_ = 0;
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
