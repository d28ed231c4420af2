// Some rows of a large table that are held in memory, found by their number in the table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "memory.h"

namespace pygsage {

inline int count_bits(std::uint64_t word) noexcept {
#if defined(__GNUC__) || defined(__clang__)
  return __builtin_popcountll(word);
#else
  int count = 0;
  for (; word; word &= word - 1) ++count;
  return count;
#endif
}

// A bit for each row of the table, and how many are set before each word: the place of a row among those held, which
// lie in ascending order. 1.5 bits a row of the table.
struct HeldRows {
  const std::uint64_t* bits;
  const std::uint32_t* before;
  const char* rows;
  std::size_t row_bytes;

  bool has(std::int64_t id) const noexcept { return bits[id >> 6] >> (id & 63) & 1; }

  // Rows held below this one: its own place among them, if it is held.
  std::size_t place(std::int64_t id) const noexcept {
    const std::uint64_t below = bits[id >> 6] & ((std::uint64_t{1} << (id & 63)) - 1);
    return before[id >> 6] + static_cast<std::size_t>(count_bits(below));
  }

  const char* row(std::int64_t id) const noexcept { return rows + place(id) * row_bytes; }
};

// Copies each row that is held to its place in `out`, and notes the places of the others; returns their number.
inline std::int64_t take_held(const HeldRows& held, const std::int64_t* ids, std::int64_t count, char* out,
                              std::int64_t* missed) {
  constexpr std::int64_t kRow = 8, kWord = 24;
  std::int64_t num_missed = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    if (i + kWord < count) {
      prefetch(held.bits + (ids[i + kWord] >> 6));
      prefetch(held.before + (ids[i + kWord] >> 6));
    }
    if (i + kRow < count && held.has(ids[i + kRow])) {
      const char* ahead = held.row(ids[i + kRow]);
      for (std::size_t at = 0; at < held.row_bytes && at < 1024; at += 64) prefetch(ahead + at);
    }
    if (held.has(ids[i]))
      std::memcpy(out + static_cast<std::size_t>(i) * held.row_bytes, held.row(ids[i]), held.row_bytes);
    else
      missed[num_missed++] = i;
  }
  return num_missed;
}

// The place of each row among those that are held, or -1; notes where the others stand, and returns their number.
inline std::int64_t find_held(const HeldRows& held, const std::int64_t* ids, std::int64_t count, std::int32_t* places,
                              std::int64_t* missed) {
  constexpr std::int64_t kAhead = 24;
  std::int64_t num_missed = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    if (i + kAhead < count) {
      prefetch(held.bits + (ids[i + kAhead] >> 6));
      prefetch(held.before + (ids[i + kAhead] >> 6));
    }
    if (held.has(ids[i])) {
      places[i] = static_cast<std::int32_t>(held.place(ids[i]));
    } else {
      places[i] = -1;
      missed[num_missed++] = i;
    }
  }
  return num_missed;
}

}  // namespace pygsage
