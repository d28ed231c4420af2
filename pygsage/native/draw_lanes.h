// Many nodes' ordered draws without replacement, for each set of instructions: what draw.h's Drawer draws, faster.
#pragma once

#include <stdint.h>
#include <string.h>

#include "kernels.h"
#include "lanes.h"
#include "random.h"

namespace pygsage {
namespace {

// As many 64-bit numbers as a register holds; one where 64-bit products of vectors would be slower than one by one.
#if defined(__AVX512F__)
constexpr int kLongs = 8;
typedef uint64_t Longs __attribute__((vector_size(64)));
typedef uint32_t ShortWords __attribute__((vector_size(32)));
inline Longs low_product(Longs a, Longs b) {  // of the low 32 bits of each
  return reinterpret_cast<Longs>(_mm512_mul_epu32(reinterpret_cast<__m512i>(a), reinterpret_cast<__m512i>(b)));
}
inline Longs product(Longs a, Longs b) { return a * b; }
#elif defined(__AVX2__)
constexpr int kLongs = 4;
typedef uint64_t Longs __attribute__((vector_size(32)));
typedef uint32_t ShortWords __attribute__((vector_size(16)));
inline Longs low_product(Longs a, Longs b) {
  return reinterpret_cast<Longs>(_mm256_mul_epu32(reinterpret_cast<__m256i>(a), reinterpret_cast<__m256i>(b)));
}
inline Longs product(Longs a, Longs b) {
  return low_product(a, b) + ((low_product(a >> 32, b) + low_product(a, b >> 32)) << 32);
}
#else
constexpr int kLongs = 1;
typedef uint64_t Longs;
inline uint64_t low_product(uint64_t a, uint64_t b) { return (a & 0xFFFFFFFFull) * (b & 0xFFFFFFFFull); }
inline uint64_t product(uint64_t a, uint64_t b) { return a * b; }
#endif

constexpr int64_t kSmallDegree = 256;
constexpr uint32_t kNoChoice = ~uint32_t{0};

inline Longs each(uint64_t value) { return value + Longs{}; }

inline void store_words(uint32_t* p, Longs v) {
#if defined(__AVX2__) || defined(__AVX512F__)
  const ShortWords words = __builtin_convertvector(v, ShortWords);
  memcpy(p, &words, sizeof words);
#else
  *p = static_cast<uint32_t>(v);
#endif
}

// What does not depend on the node: j and j * kGolden for every step j.
struct Steps {
  uint64_t number[kMostFew + 8] = {}, golden[kMostFew + 8] = {};
  uint8_t front[kSmallDegree] = {};

  constexpr Steps() {
    for (int64_t j = 0; j < kMostFew + 8; ++j) {
      number[j] = static_cast<uint64_t>(j);
      golden[j] = static_cast<uint64_t>(j) * kGolden;
    }
    for (int64_t i = 0; i < kSmallDegree; ++i) front[i] = static_cast<uint8_t>(i);
  }
};

inline Longs longs_at(const uint64_t* p) {
  Longs v;
  memcpy(&v, p, sizeof v);
  return v;
}

// `choice` of random.h for the steps 0 .. fanout; what lies behind up to a whole register is not to be looked at.
inline void choices(const Steps& steps, uint64_t key, uint32_t degree, int64_t fanout, uint32_t* chosen) {
  for (int64_t j = 0; j < fanout; j += kLongs) {
    const Longs number = longs_at(steps.number + j);
    Longs z = longs_at(steps.golden + j) + each(key + kGolden);
    z = product(z ^ (z >> 30), each(0xBF58476D1CE4E5B9ull));
    z = product(z ^ (z >> 27), each(0x94D049BB133111EBull));
    z ^= z >> 31;
    const Longs range = each(degree) - number;
    store_words(chosen + j, number + ((low_product(z >> 32, range) + (low_product(z, range) >> 32)) >> 32));
  }
}

// Whether two of the first `fanout` are equal. `chosen` has room for a register more.
inline bool any_equal(uint32_t* chosen, int64_t fanout) {
#if defined(__GNUC__) || defined(__clang__)
  for (int i = 0; i < kLanes; ++i) chosen[fanout + i] = kNoChoice;
  Ints more = {};
  for (int64_t i = 0; i < fanout; i += kLanes) {
    Ints mine, equal = {};
    memcpy(&mine, chosen + i, sizeof mine);
    for (int64_t j = 0; j < fanout; ++j) equal += mine == Ints{} + static_cast<int32_t>(chosen[j]);
    more |= equal < -1;
  }
  return bits_of(more) != 0;
#else
  bool found = false;
  for (int64_t j = 1; j < fanout; ++j)
    for (int64_t i = 0; i < j; ++i) found |= chosen[i] == chosen[j];
  return found;
#endif
}

// What stands at position t after the first `step` steps, each of which swapped a[i] with a[chosen[i]] and never looked
// at a[i] again: the latest of them that chose t moved there what stood at its own place.
inline uint32_t value_at(const uint32_t* chosen, int64_t step, uint32_t t) {
  for (int64_t i = step - 1; i >= 0; --i)
    if (chosen[i] == t) t = static_cast<uint32_t>(i);
  return t;
}

void draw(const Draws& d) {
  static constexpr Steps steps;
  const int64_t fanout = d.fanout;
  uint32_t chosen[kMostFew + 16];
  int64_t* out = d.out;
  for (int64_t n = 0; n < d.count; ++n) {
    const int64_t begin = d.places[n].begin, degree = d.places[n].degree;
    if (degree <= fanout) {
      for (int64_t j = 0; j < degree; ++j) out[j] = begin + j;
      out += degree;
      continue;
    }
    choices(steps, node_key(d.stream, d.nodes[n]), static_cast<uint32_t>(degree), fanout, chosen);
    if (degree <= kSmallDegree) {
      // The array of the textbook: chance seldom agrees with itself here, and a branch on that would be missed often.
      uint8_t a[kSmallDegree];
      if (degree <= 64) memcpy(a, steps.front, 64);
      else memcpy(a, steps.front, kSmallDegree);
      for (int64_t j = 0; j < fanout; ++j) {
        const uint32_t t = chosen[j];
        out[j] = begin + a[t];
        a[t] = a[j];
      }
    } else if (!any_equal(chosen, fanout)) {
      for (int64_t j = 0; j < fanout; ++j) out[j] = begin + chosen[j];
    } else {
      for (int64_t j = 0; j < fanout; ++j) out[j] = begin + value_at(chosen, j, chosen[j]);
    }
    out += fanout;
  }
}

}  // namespace
}  // namespace pygsage
