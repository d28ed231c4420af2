// Rows of a table that belong together, so many for each graph, joined for the graphs of a batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>

#include "memory.h"

namespace pygsage {

// The rows `begins[j]` to `begins[j] + lengths[j]` of each of `size` pieces.
struct Pieces {
  const std::int64_t* begins;
  const std::int64_t* lengths;
  std::int64_t size;
};

// Whether all pieces lie within so many rows, and how many rows they are together.
inline std::int64_t checked_total(const Pieces& pieces, std::int64_t num_rows) {
  std::int64_t total = 0;
  for (std::int64_t j = 0; j < pieces.size; ++j) {
    const std::int64_t begin = pieces.begins[j], length = pieces.lengths[j];
    if (begin < 0 || length < 0 || begin > num_rows - length)
      throw std::invalid_argument("piece " + std::to_string(j) + " is rows " + std::to_string(begin) + " to " +
                                  std::to_string(begin + length) + " of " + std::to_string(num_rows));
    total += length;
  }
  return total;
}

// A piece to come is asked of memory while one is copied: pieces lie anywhere, and are short.
inline void prefetch_piece(const char* first, std::size_t num_bytes) noexcept {
  constexpr std::size_t kLine = 64, kMost = 16 * kLine;
  for (std::size_t at = 0; at < (num_bytes < kMost ? num_bytes : kMost); at += kLine) prefetch(first + at);
}

inline void gather_rows(const char* rows, std::size_t row_bytes, const Pieces& pieces, char* out) {
  constexpr std::int64_t kAhead = 2;
  for (std::int64_t j = 0; j < pieces.size; ++j) {
    if (j + kAhead < pieces.size)
      prefetch_piece(rows + static_cast<std::size_t>(pieces.begins[j + kAhead]) * row_bytes,
                     static_cast<std::size_t>(pieces.lengths[j + kAhead]) * row_bytes);
    const std::size_t num_bytes = static_cast<std::size_t>(pieces.lengths[j]) * row_bytes;
    if (num_bytes) std::memcpy(out, rows + static_cast<std::size_t>(pieces.begins[j]) * row_bytes, num_bytes);
    out += num_bytes;
  }
}

// The same turned over: column c of the rows becomes row c of `out`, which is `total` long, and `shifts[c][j]` is
// added to what comes from piece j (nothing where `shifts` is null).
template <typename T>
void gather_columns(const T* rows, std::int64_t num_columns, const Pieces& pieces, const std::int64_t* const* shifts,
                    T* out, std::int64_t total) {
  constexpr std::int64_t kAhead = 2;
  for (std::int64_t j = 0; j < pieces.size; ++j) {
    if (j + kAhead < pieces.size)
      prefetch_piece(reinterpret_cast<const char*>(rows + pieces.begins[j + kAhead] * num_columns),
                     static_cast<std::size_t>(pieces.lengths[j + kAhead] * num_columns) * sizeof(T));
    const T* first = rows + pieces.begins[j] * num_columns;
    const std::int64_t length = pieces.lengths[j];
    if (num_columns == 2) {  // edges: both ends are written in one pass over them
      const T source_shift = shifts ? static_cast<T>(shifts[0][j]) : T(0);
      const T target_shift = shifts ? static_cast<T>(shifts[1][j]) : T(0);
      T* sources = out;
      T* targets = out + total;
      for (std::int64_t i = 0; i < length; ++i) {
        sources[i] = static_cast<T>(first[2 * i] + source_shift);
        targets[i] = static_cast<T>(first[2 * i + 1] + target_shift);
      }
    } else {
      for (std::int64_t c = 0; c < num_columns; ++c) {
        const T shift = shifts ? static_cast<T>(shifts[c][j]) : T(0);
        T* column = out + c * total;
        for (std::int64_t i = 0; i < length; ++i) column[i] = static_cast<T>(first[i * num_columns + c] + shift);
      }
    }
    out += length;
  }
}

}  // namespace pygsage
