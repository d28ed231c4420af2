// Counter-based random numbers: the same arithmetic as pygsage/sampling/keys.py, which defines it.
#pragma once

#include <cstdint>

#if defined(_MSC_VER) && defined(_M_X64)
#include <intrin.h>
#endif

// static: of each file that includes this a copy of its own, compiled for the instructions of that file.
namespace pygsage {

constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15ull;

// The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
static inline std::uint64_t mix64(std::uint64_t z) noexcept {
  z += kGolden;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

// The high 64 bits of the 128-bit product: maps a uniform x of [0, 2**64) onto [0, range).
static inline std::uint64_t mulhi64(std::uint64_t x, std::uint64_t range) noexcept {
#if defined(__SIZEOF_INT128__)
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((static_cast<Wide>(x) * range) >> 64);
#elif defined(_MSC_VER) && defined(_M_X64)
  return __umulh(x, range);
#else
  const std::uint64_t x_low = x & 0xFFFFFFFFull, x_high = x >> 32;
  const std::uint64_t r_low = range & 0xFFFFFFFFull, r_high = range >> 32;
  const std::uint64_t middle = x_high * r_low + ((x_low * r_low) >> 32);
  const std::uint64_t carry = (middle & 0xFFFFFFFFull) + x_low * r_high;
  return x_high * r_high + (middle >> 32) + (carry >> 32);
#endif
}

// The key of one node's draw in one stream.
static inline std::uint64_t node_key(std::uint64_t stream, std::int64_t node) noexcept {
  return mix64(stream ^ static_cast<std::uint64_t>(node));
}

// The stream of one of a graph's types of edges.
static inline std::uint64_t relation_stream(std::uint64_t stream, std::uint64_t relation) noexcept {
  return mix64(stream ^ mix64(relation));
}

// The j-th choice of a partial Fisher-Yates shuffle of [0, degree): a position of [j, degree).
static inline std::int64_t choice(std::uint64_t key, std::int64_t j, std::int64_t degree) noexcept {
  const std::uint64_t r = mix64(key + static_cast<std::uint64_t>(j) * kGolden);
  return j + static_cast<std::int64_t>(mulhi64(r, static_cast<std::uint64_t>(degree - j)));
}

}  // namespace pygsage
