// Brings rows of a mapped file into memory with many reads under way at once.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "ragged.h"

#if defined(__linux__) || defined(__APPLE__)
#define PYGSAGE_HAS_MAPS 1
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#endif

namespace pygsage {

#ifdef PYGSAGE_HAS_MAPS

// The whole pages that a piece lies on.
struct PageRange {
  char* first;
  std::size_t num_bytes;
};

inline PageRange pages_of(const char* rows, std::size_t row_bytes, const Pieces& pieces, std::int64_t j,
                          std::uintptr_t page) {
  const auto begin = reinterpret_cast<std::uintptr_t>(rows) + static_cast<std::uintptr_t>(pieces.begins[j]) * row_bytes;
  const auto end = begin + static_cast<std::uintptr_t>(pieces.lengths[j]) * row_bytes;
  const auto first = begin & ~(page - 1);
  return {reinterpret_cast<char*>(first), end == begin ? 0 : ((end + page - 1) & ~(page - 1)) - first};
}

// Reads from the disk that the page faults of this thread have waited for.
inline long num_waits() {
#ifdef __linux__
  rusage used{};
  return getrusage(RUSAGE_THREAD, &used) == 0 ? used.ru_majflt : 0;
#else
  return 0;
#endif
}

// Whether `num` pages, at(0) to at(num - 1), are in memory.
template <typename At>
bool look_resident(const At& at, std::int64_t num, std::uintptr_t page) {
#ifdef __linux__
  unsigned char state = 1;
#else
  char state = 1;
#endif
  for (std::int64_t i = 0; i < num; ++i) {
    char* first = at(i);
    if (first != nullptr && (mincore(first, page, &state) != 0 || !(state & 1))) return false;
  }
  // Of a file that is another user's the kernel says no more than that: then touching them tells.
  const long waits = num_waits();
  for (std::int64_t i = 0; i < num; ++i) {
    const char* first = at(i);
    if (first == nullptr) continue;
    (void)*static_cast<const volatile char*>(first);
    if (num_waits() != waits) return false;
  }
  return true;
}

// Whether the first pages of a few of the pieces are in memory.
inline bool look_resident(const char* rows, std::size_t row_bytes, const Pieces& pieces, std::uintptr_t page) {
  const std::int64_t num = std::min<std::int64_t>(8, pieces.size);
  return look_resident(
      [&](std::int64_t i) {
        const PageRange range = pages_of(rows, row_bytes, pieces, i * pieces.size / num, page);
        return range.num_bytes ? range.first : nullptr;
      },
      num, page);
}

// A disk serves many reads in the time of one, and a page fault waits for one at a time, with its neighbours that
// nobody asked for. So each thread asks for some pieces, and only then touches them. Returns whether that was needed.
// `look`: not where a few of the pieces that are looked at are in memory, as all of them or none usually are.
inline bool fetch_rows(const char* rows, std::size_t row_bytes, const Pieces& pieces, int max_threads, bool look) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  if (row_bytes == 0 || pieces.size == 0 || (look && look_resident(rows, row_bytes, pieces, page))) return false;
  constexpr std::int64_t kAtOnce = 16;
  std::atomic<std::int64_t> next{0};
  const auto work = [&]() noexcept {
    for (;;) {
      const std::int64_t begin = next.fetch_add(kAtOnce);
      if (begin >= pieces.size) return;
      const std::int64_t end = std::min(begin + kAtOnce, pieces.size);
      for (std::int64_t j = begin; j < end; ++j) {
        const PageRange range = pages_of(rows, row_bytes, pieces, j, page);
        if (range.num_bytes) madvise(range.first, range.num_bytes, MADV_WILLNEED);
      }
      for (std::int64_t j = begin; j < end; ++j) {
        const PageRange range = pages_of(rows, row_bytes, pieces, j, page);
        for (std::size_t at = 0; at < range.num_bytes; at += page)
          (void)*static_cast<const volatile char*>(range.first + at);
      }
    }
  };
  const auto wanted = std::min<std::int64_t>(max_threads, (pieces.size + kAtOnce - 1) / kAtOnce);
  std::vector<std::thread> threads;
  for (std::int64_t t = 1; t < wanted; ++t) {
    try {
      threads.emplace_back(work);
    } catch (...) {
      break;  // no more threads are to be had: those that there are do it
    }
  }
  work();
  for (std::thread& thread : threads) thread.join();
  return true;
}

// Has the elements of a mapped array read that are about to be used, `length` from each of the places on, unless all of
// some that are looked at are in memory. More of them than of pieces: some of an array may be there and some not.
template <typename T>
void fetch_elements(const T* array, const std::int64_t* places, std::int64_t count, std::int64_t length) {
  constexpr std::int64_t kFew = 64;
  constexpr int kThreads = 16;  // they wait for the disk, not for a core
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto page_of = [&](std::int64_t i) { return reinterpret_cast<std::uintptr_t>(array + places[i]) & ~(page - 1); };
  const std::int64_t num = std::min(kFew, count);
  if (num == 0 || look_resident([&](std::int64_t i) { return reinterpret_cast<char*>(page_of(i * count / num)); }, num, page))
    return;
  std::vector<std::int64_t> begins, lengths;
  for (std::int64_t i = 0; i < count; ++i) {
    if (i > 0 && page_of(i) == page_of(i - 1) && length == 1) continue;  // as those of one node are
    begins.push_back(places[i]);
    lengths.push_back(length);
  }
  const Pieces pieces{begins.data(), lengths.data(), static_cast<std::int64_t>(begins.size())};
  fetch_rows(reinterpret_cast<const char*>(array), sizeof(T), pieces, kThreads, false);
}

// Tells the kernel that the pages of a mapped array are touched in no order: it then reads those alone.
inline void at_random(const void* base, std::size_t num_bytes) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(base) / page * page;
  const auto end = reinterpret_cast<std::uintptr_t>(base) + num_bytes;
  if (end > begin) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_RANDOM);
}

#else

inline bool fetch_rows(const char*, std::size_t, const Pieces&, int, bool) { return false; }
inline void at_random(const void*, std::size_t) {}
template <typename T>
void fetch_elements(const T*, const std::int64_t*, std::int64_t, std::int64_t) {}

#endif

}  // namespace pygsage
