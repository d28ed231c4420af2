// Pages of a mapped file asked for before they are touched, so that the disk works on many of them at once.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

namespace pygsage {

// Asks for the pages of some rows of an array that lies at `base`; rows on the page of the row before cost nothing.
// Rows out of [0, num_rows) are passed over. Of memory that is no file's, the kernel takes no notice.
inline void will_need(const void* base, std::size_t row_bytes, std::int64_t num_rows, const std::int64_t* rows,
                      std::size_t count) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(base);
  std::uintptr_t from = 0, to = 0;  // asked for together
  for (std::size_t i = 0; i <= count; ++i) {
    std::uintptr_t first = 0, last = 0;
    if (i < count) {
      if (rows[i] < 0 || rows[i] >= num_rows) continue;
      first = (begin + static_cast<std::uintptr_t>(rows[i]) * row_bytes) / page * page;
      last = (begin + static_cast<std::uintptr_t>(rows[i] + 1) * row_bytes + page - 1) / page * page;
      if (first >= from && first <= to && to != 0) {
        if (last > to) to = last;
        continue;
      }
    }
    if (to > from) madvise(reinterpret_cast<void*>(from), to - from, MADV_WILLNEED);
    from = first;
    to = last;
  }
}

// Tells the kernel that the pages of a mapped array are touched in no order: it then reads those alone.
inline void at_random(const void* base, std::size_t num_bytes) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(base) / page * page;
  const auto end = reinterpret_cast<std::uintptr_t>(base) + num_bytes;
  if (end > begin) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_RANDOM);
}

}  // namespace pygsage
