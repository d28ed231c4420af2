// As many numbers as fit one register, for the kernels that are compiled once for each set of instructions.
//
// Only intrinsics and the compiler's own vector types, no inline function of the standard library: one that was compiled
// for AVX-512 might be the copy that the linker keeps for everybody.
#pragma once

#include <stdint.h>
#include <string.h>

#if defined(__AVX2__) || defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "kernels.h"

namespace pygsage {
namespace {  // of each file that includes this a copy of its own

#if defined(__GNUC__) || defined(__clang__)
#if defined(__AVX512F__)
constexpr int kBytes = 64;
#elif defined(__AVX2__)
constexpr int kBytes = 32;
#else
constexpr int kBytes = 16;
#endif
constexpr int kLanes = kBytes / 4;
typedef float Floats __attribute__((vector_size(kBytes)));
typedef int32_t Ints __attribute__((vector_size(kBytes)));
typedef uint32_t Words __attribute__((vector_size(kBytes)));
typedef uint16_t Shorts __attribute__((vector_size(kBytes / 2)));
inline Floats spread(float value) { return value - Floats{}; }
inline void fetch(const void* address) { __builtin_prefetch(address); }
inline int lowest_bit(uint64_t word) { return __builtin_ctzll(word); }
inline Shorts narrow(Words w) { return __builtin_convertvector(w, Shorts); }
inline Words widen(Shorts s) { return __builtin_convertvector(s, Words); }
inline Floats choose(Ints where, Floats yes, Floats no) {
  return reinterpret_cast<Floats>((where & reinterpret_cast<Ints>(yes)) | (~where & reinterpret_cast<Ints>(no)));
}
#else  // one number at a time
constexpr int kLanes = 1;
typedef float Floats;
typedef int32_t Ints;
typedef uint32_t Words;
typedef uint16_t Shorts;
inline Floats spread(float value) { return value; }
inline void fetch(const void*) {}
inline int lowest_bit(uint64_t word) {
  int bit = 0;
  for (; !(word & 1); word >>= 1) ++bit;
  return bit;
}
inline Shorts narrow(Words w) { return static_cast<Shorts>(w); }
inline Words widen(Shorts s) { return s; }
inline Floats choose(Ints where, Floats yes, Floats no) { return where ? yes : no; }
#endif

template <typename To, typename From>
inline To same_bits(From value) {
  static_assert(sizeof(To) == sizeof(From), "a number of another size");
  To result;
  memcpy(&result, &value, sizeof(To));
  return result;
}

inline float to_float(uint16_t half) {  // IEEE binary16
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16, magnitude = half & 0x7fffu;
  if (magnitude >= 0x7c00u) return same_bits<float>(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
  if (magnitude >= 0x400u) return same_bits<float>(sign | ((magnitude << 13) + 0x38000000u));
  const float small = static_cast<float>(magnitude) * 5.9604644775390625e-8f;  // subnormal: a multiple of 2**-24
  return sign ? -small : small;
}

// Loads kLanes numbers, widened to float.
inline Floats load(const float* p) {
  Floats v;
  memcpy(&v, p, sizeof v);
  return v;
}
inline Floats load(const Bfloat* p) {
  Shorts s;
  memcpy(&s, p, sizeof s);
  return same_bits<Floats>(widen(s) << 16);
}
inline Floats load(const Half* p) {
#if defined(__AVX512F__)
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#elif defined(__AVX2__) && defined(__F16C__)
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#else
  float v[kLanes];
  for (int i = 0; i < kLanes; ++i) v[i] = to_float(p[i].bits);
  return load(v);
#endif
}

inline void store(float* p, Floats v) { memcpy(p, &v, sizeof v); }
inline void store(Bfloat* p, Floats v) {
  const Words w = same_bits<Words>(v);
  const Words rounded = (w + 0x7fffu + ((w >> 16) & 1u)) >> 16;  // to the nearest, ties to even
  const Words quiet = (w >> 16) | 0x40u;
#if defined(__GNUC__) || defined(__clang__)
  const Ints nan = v != v;
  const Words chosen = (reinterpret_cast<Words>(nan) & quiet) | (~reinterpret_cast<Words>(nan) & rounded);
#else
  const Words chosen = v != v ? quiet : rounded;
#endif
  const Shorts s = narrow(chosen);
  memcpy(p, &s, sizeof s);
}

// The same for the last vector of a row, of which only the first `count` lanes exist.
template <typename T>
inline Floats load_some(const T* p, int count) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), p);
#endif
  T some[kLanes] = {};
  memcpy(some, p, static_cast<size_t>(count) * sizeof(T));
  return load(some);
}
template <typename T>
inline void store_some(T* p, Floats v, int count) {
  T some[kLanes];
  store(some, v);
  memcpy(p, some, static_cast<size_t>(count) * sizeof(T));
}

// Lane i of `v` where bit i is set, else zero.
inline Floats keep(Floats v, uint32_t bits) {
#if defined(__AVX512F__)
  return _mm512_maskz_mov_ps(static_cast<__mmask16>(bits), v);
#elif defined(__GNUC__) || defined(__clang__)
  Ints lane;
  for (int i = 0; i < kLanes; ++i) lane[i] = 1 << i;
  const Ints set = (lane & static_cast<int32_t>(bits)) != 0;
  return reinterpret_cast<Floats>(reinterpret_cast<Ints>(v) & set);
#else
  return bits & 1 ? v : 0.0f;
#endif
}

// One bit a lane.
inline uint32_t bits_of(Ints where) {
#if defined(__AVX512F__)
  return _mm512_movepi32_mask(reinterpret_cast<__m512i>(where));
#elif defined(__AVX2__)
  return static_cast<uint32_t>(_mm256_movemask_ps(reinterpret_cast<__m256>(where)));
#elif defined(__GNUC__) || defined(__clang__)
  uint32_t bits = 0;
  for (int i = 0; i < kLanes; ++i) bits |= static_cast<uint32_t>(where[i] & 1) << i;
  return bits;
#else
  return where ? 1u : 0u;
#endif
}
inline uint32_t positive_or_nan(Floats v) { return bits_of(~(v <= Floats{})) & (kLanes == 32 ? ~0u : (1u << kLanes) - 1); }
inline uint32_t not_zero(Floats v) { return bits_of(v != Floats{}); }

inline uint32_t lane_bits(const uint64_t* words, int64_t column) {
  return static_cast<uint32_t>(words[column / 64] >> (column % 64)) & ((1u << kLanes) - 1);
}

}  // namespace
}  // namespace pygsage
