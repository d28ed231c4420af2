// Compiled once for each set of instructions, see CMakeLists.txt; PYGSAGE_KERNELS is the function that hands it out,
// PYGSAGE_ISA its name.
#include "kernels.h"

#include "draw_lanes.h"
#include "lanes.h"
#include "random.h"

namespace pygsage {
namespace {

constexpr int kTile = 8;         // vectors of a row that are summed in registers at once
constexpr int64_t kAhead = 24;   // edges ahead of use that the cache is told of
constexpr int64_t kOwnAhead = 4;  // and targets

// Calls f<vectors, whether the last is partial>(first column) for tiles that cover `width` columns.
template <int N, bool Part>
struct Tile {
  static constexpr int kVectors = N;
  static constexpr bool kPart = Part;
};
template <typename F>
inline void tiles(int64_t width, F f) {
  constexpr int64_t kWide = kTile * kLanes;
  int64_t column = 0;
  for (; column + kWide <= width; column += kWide) f(Tile<kTile, false>{}, column, 0);
  // The rest in halves, so that few sizes are compiled.
  const auto one_tile = [&](auto tile) {
    constexpr int64_t kColumns = decltype(tile)::kVectors * kLanes;
    if (column + kColumns > width) return;
    f(tile, column, 0);
    column += kColumns;
  };
  one_tile(Tile<4, false>{});
  one_tile(Tile<2, false>{});
  one_tile(Tile<1, false>{});
  if (column < width) f(Tile<1, true>{}, column, static_cast<int>(width - column));
}

template <typename Part, int I, typename T>
inline Floats get(const T* p, int some) {
  if constexpr (Part::kPart && I == Part::kVectors - 1) return load_some(p + I * kLanes, some);
  else return load(p + I * kLanes);
}
template <typename Part, int I, typename T>
inline void put(T* p, Floats v, int some) {
  if constexpr (Part::kPart && I == Part::kVectors - 1) store_some(p + I * kLanes, v, some);
  else store(p + I * kLanes, v);
}
// f(integral constant I) for I of 0 .. N - 1, unrolled.
template <int I>
struct Number {
  static constexpr int value = I;
};
template <int N, int I = 0, typename F>
inline void unrolled(F f) {
  if constexpr (I < N) {
    f(Number<I>{});
    unrolled<N, I + 1>(f);
  }
}

template <typename T>
inline void fetch_row(const T* row, int64_t width) {
  const char* p = reinterpret_cast<const char*>(row);
  const int64_t bytes = width * static_cast<int64_t>(sizeof(T));
  for (int64_t b = 0; b < bytes; b += 64) fetch(p + b);
  fetch(p + bytes - 1);
}

template <bool Masked, typename In, typename Out, typename Id>
void join_as(const Join<In, Out, Id>& j, int64_t begin, int64_t end) {
  const int64_t width = j.width, last_edge = j.indptr[end];
  for (int64_t i = begin; i < end; ++i) {
    const int64_t lo = j.indptr[i], hi = j.indptr[i + 1];
    Out* out = j.out + i * j.out_stride;
    const int64_t own = j.own ? j.own[i] : i;
    if (j.with_own && i + kOwnAhead < end)
      fetch_row(j.rows + (j.own ? j.own[i + kOwnAhead] : i + kOwnAhead) * j.stride, width);
    for (int64_t e = lo + kAhead; e < hi + kAhead && e < last_edge; ++e)
      fetch_row(j.rows + static_cast<int64_t>(j.ids[e]) * j.stride, width);
    const float factor = j.aggr != Aggr::kMean ? j.scale : hi > lo ? j.scale / static_cast<float>(hi - lo) : 0.0f;
    tiles(width, [&](auto tile, int64_t column, int some) {
      using P = decltype(tile);
      constexpr int N = P::kVectors;
      const auto row = [&](int64_t id, auto n) {
        constexpr int I = decltype(n)::value;
        Floats v = get<P, I>(j.rows + id * j.stride + column, some);
        if constexpr (Masked) v = keep(v, lane_bits(j.bits + id * j.words, column + I * kLanes));
        return v;
      };
      if (j.with_own)
        unrolled<N>([&](auto n) {
          put<P, decltype(n)::value>(out + width + column, row(own, n) * spread(j.scale), some);
        });
      Floats sum[N] = {};
      if (j.aggr != Aggr::kMax) {
        for (int64_t e = lo; e < hi; ++e) {
          const int64_t id = static_cast<int64_t>(j.ids[e]);
          unrolled<N>([&](auto n) { sum[decltype(n)::value] += row(id, n); });
        }
      } else {
        Ints best[N];
        unrolled<N>([&](auto n) { best[decltype(n)::value] = Ints{} - 1; });
        for (int64_t e = lo; e < hi; ++e) {
          const int64_t id = static_cast<int64_t>(j.ids[e]);
          unrolled<N>([&](auto n) {
            constexpr int I = decltype(n)::value;
            const Floats v = row(id, n);
            // The first of equals stays; a NaN is taken and kept.
            const Ints more = e == lo ? Ints{} - 1 : (~(v <= sum[I])) & (sum[I] == sum[I]);
            sum[I] = choose(more, v, sum[I]);
            best[I] = (best[I] & ~more) | ((Ints{} + static_cast<int32_t>(e)) & more);
          });
        }
        if (j.chosen)
          unrolled<N>([&](auto n) {
            constexpr int I = decltype(n)::value;
            int32_t* to = j.chosen + i * width + column;
            put<P, I>(reinterpret_cast<float*>(to), same_bits<Floats>(best[I]), some);
          });
      }
      unrolled<N>([&](auto n) {
        constexpr int I = decltype(n)::value;
        put<P, I>(out + column, sum[I] * spread(factor), some);
      });
    });
  }
}

template <typename In, typename Out, typename Id>
void join(const Join<In, Out, Id>& j, int64_t begin, int64_t end) {
  if (begin >= end) return;
  for (int64_t e = j.indptr[begin]; e < j.indptr[begin] + kAhead && e < j.indptr[end]; ++e)
    fetch_row(j.rows + static_cast<int64_t>(j.ids[e]) * j.stride, j.width);
  if (j.bits) join_as<true>(j, begin, end);
  else join_as<false>(j, begin, end);
}

template <typename T>
void spread_rows(const Spread<T>& s, int64_t begin, int64_t end) {
  const int64_t width = s.width;
  for (int64_t u = begin; u < end; ++u) {
    const int64_t lo = s.indptr[u], hi = s.indptr[u + 1];
    for (int64_t e = hi; e < hi + 8 && e < s.indptr[end]; ++e) fetch(s.grad + static_cast<int64_t>(s.targets[e]) * 2 * width);
    tiles(width, [&](auto tile, int64_t column, int some) {
      using P = decltype(tile);
      constexpr int N = P::kVectors;
      Floats sum[N] = {};
      if (u < s.num_targets)
        unrolled<N>([&](auto n) {
          constexpr int I = decltype(n)::value;
          sum[I] = get<P, I>(s.grad + (2 * u + 1) * width + column, some);
        });
      for (int64_t e = lo; e < hi; ++e) {
        const int64_t target = s.targets[e];
        const T* row = s.grad + 2 * target * width + column;
        if (s.chosen) {
          const int32_t* best = s.chosen + target * width + column;
          unrolled<N>([&](auto n) {
            constexpr int I = decltype(n)::value;
            const Ints here = same_bits<Ints>(get<P, I>(reinterpret_cast<const float*>(best), some)) ==
                              Ints{} + s.edges[e];
            sum[I] += choose(here, get<P, I>(row, some), Floats{});
          });
        } else {
          const Floats share = spread(s.shares ? s.shares[target] : 1.0f);
          unrolled<N>([&](auto n) {
            constexpr int I = decltype(n)::value;
            sum[I] += share * get<P, I>(row, some);
          });
        }
      }
      unrolled<N>([&](auto n) {
        constexpr int I = decltype(n)::value;
        const Floats kept = keep(sum[I], lane_bits(s.bits + u * s.words, column + I * kLanes));
        put<P, I>(s.out + u * width + column, kept * spread(s.scale), some);
      });
    });
  }
}

// The mask of nn/dropout.py: 64 columns of a row, one bit each.
inline uint64_t kept_columns(uint64_t row_key, int64_t word, int dropped) {
  if (dropped == 0) return ~uint64_t{0};
  if (dropped == 128) return mix64(row_key + static_cast<uint64_t>(word) * kGolden);
  // Whether each byte of a hash is at least `dropped`, eight at once (Hacker's Delight, 2-18 and 7-1).
  constexpr uint64_t kHigh = 0x8080808080808080ull, kEach = 0x0101010101010101ull;
  const uint64_t y = kEach * static_cast<uint64_t>(dropped);
  uint64_t kept = 0;
  for (int64_t b = 0; b < 8; ++b) {
    const uint64_t x = mix64(row_key + static_cast<uint64_t>(8 * word + b) * kGolden);
    const uint64_t difference = (x | kHigh) - (y & ~kHigh);
    const uint64_t at_least = ((x & ~y) | (~(x ^ y) & difference)) & kHigh;
    kept |= (((at_least >> 7) * 0x0102040810204080ull) >> 56) << (8 * b);
  }
  return kept;
}

template <typename T>
void activate(const Activation<T>& a, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const uint64_t key = a.dropped ? mix64(a.start ^ static_cast<uint64_t>(a.nodes[i])) : 0;
    const T* row = a.values + i * a.width;
    for (int64_t w = 0; w < a.words; ++w) {
      uint64_t positive = 0;
      int64_t column = 64 * w;
      const int64_t stop = column + 64 < a.width ? column + 64 : a.width;
      for (; column + kLanes <= stop; column += kLanes)
        positive |= static_cast<uint64_t>(positive_or_nan(load(row + column))) << (column % 64);
      if (column < stop) {
        const int some = static_cast<int>(stop - column);
        const uint32_t bits = positive_or_nan(load_some(row + column, some)) & ((1u << some) - 1);
        positive |= static_cast<uint64_t>(bits) << (column % 64);
      }
      a.bits[i * a.words + w] = positive & kept_columns(key, w, a.dropped);
    }
  }
}

template <typename T>
inline uint64_t not_zero_of_64(const T* row, int64_t count) {
  uint64_t bits = 0;
  int64_t c = 0;
  for (; c + kLanes <= count; c += kLanes) bits |= static_cast<uint64_t>(not_zero(load(row + c))) << c;
  if (c < count) bits |= static_cast<uint64_t>(not_zero(load_some(row + c, static_cast<int>(count - c)))) << c;
  return bits;
}

inline float one(float v) { return v; }
inline float one(Bfloat v) { return same_bits<float>(static_cast<uint32_t>(v.bits) << 16); }

// Bit i of word j becomes bit j of word i (Hacker's Delight, 7-3).
inline void transpose(uint64_t* a) {
  uint64_t mask = 0x00000000FFFFFFFFull;
  for (int j = 32; j != 0; j >>= 1, mask ^= mask << j)
    for (int k = 0; k < 64; k = ((k | j) + 1) & ~j) {
      const uint64_t t = ((a[k] >> j) ^ a[k | j]) & mask;
      a[k] ^= t << j;
      a[k | j] ^= t;
    }
}

template <typename T>
void outer_sum(const OuterSum<T>& s, int64_t begin, int64_t end) {
  uint64_t bits[64];
  for (int64_t b = begin; b < end; b += 64) {
    const int64_t rows = b + 64 < end ? 64 : end - b;
    const T* grad = s.grad + b * s.grad_stride;
    // Which are not zero, and, while they are in registers, their sums.
    for (int64_t c = 0; c < s.m; c += kLanes) {
      const int left = s.m - c < kLanes ? static_cast<int>(s.m - c) : 0;
      Floats sum = left ? load_some(s.sums + c, left) : load(s.sums + c);
      for (int64_t i = 0; i < rows; ++i) {
        const T* p = grad + i * s.grad_stride + c;
        const Floats v = left ? load_some(p, left) : load(p);
        sum += v;
        bits[i] = (c ? bits[i] : 0) | static_cast<uint64_t>(not_zero(v)) << c;
      }
      if (left) store_some(s.sums + c, sum, left);
      else store(s.sums + c, sum);
    }
    for (int64_t i = rows; i < 64; ++i) bits[i] = 0;
    transpose(bits);
    tiles(s.k, [&](auto tile, int64_t column, int some) {
      using P = decltype(tile);
      constexpr int N = P::kVectors;
      const T* values = s.values + b * s.stride + column;
      for (int64_t c = 0; c < s.m; ++c) {
        uint64_t left = bits[c];
        if (!left) continue;
        float* out = s.out + c * s.k + column;
        Floats sum[N];
        unrolled<N>([&](auto n) { sum[decltype(n)::value] = get<P, decltype(n)::value>(out, some); });
        do {
          const int64_t i = lowest_bit(left);
          left &= left - 1;
          const Floats g = spread(one(grad[i * s.grad_stride + c]));
          const T* row = values + i * s.stride;
          unrolled<N>([&](auto n) {
            constexpr int I = decltype(n)::value;
            sum[I] += g * get<P, I>(row, some);
          });
        } while (left);
        unrolled<N>([&](auto n) { put<P, decltype(n)::value>(out, sum[decltype(n)::value], some); });
      }
    });
  }
}

template <typename T>
void times_weight(const TimesWeight<T>& t, int64_t begin, int64_t end) {
  float value[kWidestTimes];
  const float* row[kWidestTimes];
  for (int64_t i = begin; i < end; ++i) {
    int64_t count = 0;
    const T* grad = t.grad + i * t.m;
    for (int64_t c = 0; c < t.m; c += 64)
      for (uint64_t left = not_zero_of_64(grad + c, t.m - c < 64 ? t.m - c : 64); left; left &= left - 1) {
        const int64_t at = c + lowest_bit(left);
        value[count] = one(grad[at]);
        row[count++] = t.weight + at * t.k;
      }
    tiles(t.k, [&](auto tile, int64_t column, int some) {
      using P = decltype(tile);
      constexpr int N = P::kVectors;
      Floats sum[N] = {};
      for (int64_t q = 0; q < count; ++q) {
        const Floats g = spread(value[q]);
        const float* weight = row[q] + column;
        unrolled<N>([&](auto n) {
          constexpr int I = decltype(n)::value;
          sum[I] += g * get<P, I>(weight, some);
        });
      }
      unrolled<N>([&](auto n) {
        put<P, decltype(n)::value>(t.out + i * t.k + column, sum[decltype(n)::value], some);
      });
    });
  }
}

template <typename T>
void column_sums(const ColumnSums<T>& s, int64_t begin, int64_t end) {
  tiles(s.width, [&](auto tile, int64_t column, int some) {
    using P = decltype(tile);
    constexpr int N = P::kVectors;
    Floats sum[N] = {};
    for (int64_t i = begin; i < end; ++i) {
      const T* row = s.values + i * s.width + column;
      unrolled<N>([&](auto n) {
        constexpr int I = decltype(n)::value;
        sum[I] += get<P, I>(row, some);
      });
    }
    unrolled<N>([&](auto n) { put<P, decltype(n)::value>(s.sums + column, sum[decltype(n)::value], some); });
  });
}

constexpr Kernels kKernels = {
    PYGSAGE_ISA,
    &join<float, float, int32_t>,
    &join<float, float, int64_t>,
    &join<float, Bfloat, int32_t>,
    &join<float, Bfloat, int64_t>,
    &join<Half, float, int32_t>,
    &join<Half, float, int64_t>,
    &join<Half, Bfloat, int32_t>,
    &join<Half, Bfloat, int64_t>,
    &join<Bfloat, Bfloat, int32_t>,
    &spread_rows<float>,
    &spread_rows<Bfloat>,
    &activate<float>,
    &activate<Bfloat>,
    &outer_sum<float>,
    &outer_sum<Bfloat>,
    &times_weight<float>,
    &times_weight<Bfloat>,
    &column_sums<float>,
    &column_sums<Bfloat>,
    &draw,
};

}  // namespace

const Kernels* PYGSAGE_KERNELS() { return &kKernels; }

}  // namespace pygsage
