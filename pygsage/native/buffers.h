// Large arrays that are made anew in every step: in huge pages where the system has them, and used again by the next step.
//
// A step touches some hundred MiB for the first time. In pages of 4 KiB each costs a fault, and its rows, read in random
// order, miss the processor's table of pages almost every time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace pygsage {

#if defined(__linux__)
constexpr bool kHasBuffers = true;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Asks for huge pages where memory is first written to, and with `now` under what is there already, where Linux can (6.1).
// Never fails.
inline void prefer_huge_pages(void* data, std::size_t size, bool now) noexcept {
  constexpr int kCollapse = 25;  // MADV_COLLAPSE
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const std::uintptr_t begin = (address + kHugePage - 1) / kHugePage * kHugePage;
  const std::uintptr_t end = (address + size) / kHugePage * kHugePage;
  if (begin >= end) return;
  if (madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE) == 0 && now)
    madvise(reinterpret_cast<void*>(begin), end - begin, kCollapse);
}

// Whoever calls holds the interpreter's lock, which is the only one there is: a lock of its own might be held at a fork.
class Buffers {
 public:
  struct Buffer {
    void* data;
    std::size_t size;
  };

  // At least `size` bytes, aligned to a huge page.
  Buffer take(std::size_t size) {
    const std::size_t wanted = rounded(size);
    auto best = free_.end();
    for (auto it = free_.begin(); it != free_.end(); ++it)
      if (it->size >= wanted && it->size <= wanted + wanted / 4 && (best == free_.end() || it->size < best->size)) best = it;
    if (best != free_.end()) {
      const Buffer found = *best;
      free_.erase(best);
      count(found.size);
      return found;
    }
    // What was kept for other sizes goes before memory grows far beyond what was ever in use.
    const std::size_t most = std::max(most_used_, used_ + wanted);
    while (!free_.empty() && used_ + free_bytes() + wanted > most + most / 4) drop_oldest();
    // More than is needed, so that the beginning can be moved to where a huge page begins.
    void* raw = map(wanted + kHugePage);
    if (raw == MAP_FAILED) {
      release();
      raw = map(wanted + kHugePage);
    }
    if (raw == MAP_FAILED) throw std::bad_alloc();
    count(wanted);
    const auto address = reinterpret_cast<std::uintptr_t>(raw);
    const std::uintptr_t begin = (address + kHugePage - 1) / kHugePage * kHugePage;
    if (begin > address) munmap(raw, begin - address);
    const std::uintptr_t end = begin + wanted, raw_end = address + wanted + kHugePage;
    if (raw_end > end) munmap(reinterpret_cast<void*>(end), raw_end - end);
    madvise(reinterpret_cast<void*>(begin), wanted, MADV_HUGEPAGE);
    return {reinterpret_cast<void*>(begin), wanted};
  }

  void give(Buffer buffer) noexcept {
    used_ -= buffer.size;
    free_.push_front(buffer);
    while (free_.size() > kMostFree) drop_oldest();
  }

  void release() noexcept {
    while (!free_.empty()) drop_oldest();
    most_used_ = used_;
  }

  std::size_t free_bytes() const noexcept {
    std::size_t bytes = 0;
    for (const Buffer& buffer : free_) bytes += buffer.size;
    return bytes;
  }

 private:
  static constexpr std::size_t kMostFree = 8;

  // Up to an eighth more, so that batches of about the same size have buffers of the same.
  static std::size_t rounded(std::size_t size) {
    std::size_t step = kHugePage;
    while (step * 16 < size) step *= 2;
    return (size + step - 1) / step * step;
  }

  static void* map(std::size_t size) noexcept {
    return mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }

  void count(std::size_t taken) noexcept {
    used_ += taken;
    most_used_ = std::max(most_used_, used_);
  }

  void drop_oldest() noexcept {
    munmap(free_.back().data, free_.back().size);
    free_.pop_back();
  }

  std::list<Buffer> free_;  // the last used first
  std::size_t used_ = 0, most_used_ = 0;  // bytes, since the last release
};
#else
constexpr bool kHasBuffers = false;
inline void prefer_huge_pages(void*, std::size_t, bool) noexcept {}
#endif

}  // namespace pygsage
