// Two small things about memory: a hint to the cache, and an array that is not filled before it is written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#if defined(_MSC_VER) && defined(_M_X64)
#include <xmmintrin.h>
#endif

namespace pygsage {

inline void prefetch(const void* address) noexcept {
#if defined(__GNUC__) || defined(__clang__)
  __builtin_prefetch(address);
#elif defined(_MSC_VER) && defined(_M_X64)
  _mm_prefetch(static_cast<const char*>(address), _MM_HINT_T0);
#else
  (void)address;
#endif
}

// An array of fixed length whose elements start without a value.
template <typename T>
struct Array {
  std::unique_ptr<T[]> data;
  std::int64_t size = 0;

  Array() = default;
  explicit Array(std::int64_t n) : data(new T[static_cast<std::size_t>(n)]), size(n) {}

  T& operator[](std::int64_t i) noexcept { return data[static_cast<std::size_t>(i)]; }
  const T& operator[](std::int64_t i) const noexcept { return data[static_cast<std::size_t>(i)]; }
};

}  // namespace pygsage
