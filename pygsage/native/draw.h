// One node's ordered draw without replacement: a partial Fisher-Yates shuffle that stores only what it moved.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "random.h"

namespace pygsage {

// Draws `fanout` of the numbers [0, degree), in order. The ways below, and draw_lanes.h, give the same draw at different cost.
class Drawer {
 public:
  // Writes base + draw to out[0 .. fanout). Requires 0 <= fanout < degree.
  void draw(std::uint64_t key, std::int64_t degree, std::int64_t fanout, std::int64_t base, std::int64_t* out) {
    if (degree / 8 <= fanout)
      draw_dense(key, degree, fanout, base, out);
    else
      draw_sparse(key, degree, fanout, base, out);
  }

 private:
  // O(degree): the array of the textbook.
  void draw_dense(std::uint64_t key, std::int64_t degree, std::int64_t fanout, std::int64_t base, std::int64_t* out) {
    if (static_cast<std::int64_t>(array_.size()) < degree) array_.resize(static_cast<std::size_t>(degree));
    std::int64_t* a = array_.data();
    for (std::int64_t i = 0; i < degree; ++i) a[i] = i;
    for (std::int64_t j = 0; j < fanout; ++j) {
      const std::int64_t t = choice(key, j, degree);
      out[j] = base + a[t];
      a[t] = a[j];
    }
  }

  // O(fanout): the same array, of which a hash table holds the places that were moved.
  void draw_sparse(std::uint64_t key, std::int64_t degree, std::int64_t fanout, std::int64_t base,
                   std::int64_t* out) {
    int bits = 4;
    while ((std::int64_t{1} << bits) < 2 * fanout) ++bits;
    moved_.assign(std::size_t{1} << bits, {-1, 0});
    for (std::int64_t j = 0; j < fanout; ++j) {
      const std::int64_t t = choice(key, j, degree);
      auto& here = slot(t, bits);
      out[j] = base + (here.first == t ? here.second : t);
      const auto& front = slot(j, bits);
      const std::int64_t replacement = front.first == j ? front.second : j;
      here = {t, replacement};
    }
  }

  std::pair<std::int64_t, std::int64_t>& slot(std::int64_t position, int bits) {
    const std::size_t mask = moved_.size() - 1;
    auto s = static_cast<std::size_t>((static_cast<std::uint64_t>(position) * kGolden) >> (64 - bits));
    while (moved_[s].first != -1 && moved_[s].first != position) s = (s + 1) & mask;
    return moved_[s];
  }

  std::vector<std::int64_t> array_;
  std::vector<std::pair<std::int64_t, std::int64_t>> moved_;  // position, value; position -1: free
};

}  // namespace pygsage
