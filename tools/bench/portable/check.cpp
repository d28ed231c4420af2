// Draws, relabels and runs the layers' kernels on made-up data, and compares each with plain arithmetic.
// Prints a digest of what has to be the same to the last bit everywhere; status 1 when something differs.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "blocks.h"
#include "buffers.h"
#include "csc.h"
#include "dispatch.h"
#include "fetch.h"
#include "held.h"
#include "hetero.h"
#include "layers.h"
#include "parallel.h"
#include "ragged.h"

using namespace pygsage;

namespace {

int failures = 0;

void expect(bool good, const std::string& what) {
  if (good) return;
  std::printf("WRONG: %s\n", what.c_str());
  ++failures;
}

std::uint64_t random_at(std::uint64_t i) { return mix64(i * kGolden + 12345); }

float to_float(float v) { return v; }
float to_float(Bfloat v) {
  const std::uint32_t bits = static_cast<std::uint32_t>(v.bits) << 16;
  float result;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}

template <typename T>
T value_at(std::uint64_t i) {  // a multiple of 1/16 in -8 .. 8, exact in every type; every third is zero
  const auto sixteenths = random_at(i) % 3 == 0 ? 0 : static_cast<int>(random_at(i) % 257) - 128;
  const float value = static_cast<float>(sixteenths) / 16.0f;
  if constexpr (sizeof(T) == 4) {
    return value;
  } else {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return T{static_cast<std::uint16_t>(bits >> 16)};
  }
}

template <typename T>
std::vector<T> values_of(std::int64_t count, std::uint64_t start) {
  std::vector<T> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(value_at<T>(start + static_cast<std::uint64_t>(i)));
  return values;
}

void check_draws(const Kernels& k) {
  Drawer drawer;
  for (const std::int64_t degree : {2, 9, 11, 17, 64, 65, 200, 256, 257, 1000, 100000})
    for (const std::int64_t fanout : {1, 2, 5, 8, 10, 15, 16, 17, 32, 63, 64}) {
      if (fanout >= degree) continue;
      for (std::uint64_t stream = 0; stream < 20; ++stream) {
        const std::int64_t node = 7;
        const Place place{100, degree};
        std::vector<std::int64_t> found(64), expected(64);
        k.draw({stream, fanout, &node, &place, 1, found.data()});
        drawer.draw(node_key(stream, node), degree, fanout, 100, expected.data());
        expect(found == expected, std::string(k.isa) + ", a draw of " + std::to_string(fanout) + " of " + std::to_string(degree));
      }
    }
}

std::uint64_t check_layers(const Kernels& k) {
  constexpr std::int64_t kNodes = 5000, kEdges = 100000;
  std::vector<std::int64_t> src, dst, seeds;
  for (std::uint64_t e = 0; e < kEdges; ++e) {
    src.push_back(static_cast<std::int64_t>(random_at(2 * e) % kNodes));
    dst.push_back(e % 5 == 0 ? 3 : static_cast<std::int64_t>(random_at(2 * e + 1) % kNodes));
  }
  for (std::uint64_t i = 0; i < 100; ++i) seeds.push_back(static_cast<std::int64_t>(random_at(i + 99) % kNodes));
  const auto csc = build_csc<std::int32_t>(src.data(), dst.data(), kEdges, kNodes);
  const Graph<std::int32_t> graph{csc.indptr.data.get(), csc.indices.data.get(), kNodes, kEdges};
  Workspace workspace;
  std::uint64_t whole = 0;
  for (const std::vector<std::int64_t>& fanouts : {std::vector<std::int64_t>{10, 10, 10}, {15, 10, 5}, {70, -1}}) {
    std::uint64_t digests[2] = {};
    for (const std::int64_t dense_limit : {std::int64_t{0}, std::int64_t{1} << 24}) {
      std::uint64_t& digest = digests[dense_limit != 0];
      const auto add = [&](std::int64_t v) { digest = mix64(digest ^ static_cast<std::uint64_t>(v)); };
      const auto layers = sample_layers(k, workspace, graph, seeds.data(), 100, fanouts, 77, dense_limit);
      for (std::int64_t i = 0; i < layers.nodes.size; ++i) add(layers.nodes[i]);
      for (std::int64_t i = 0; i < layers.ids.size; ++i) add(layers.ids[i]);
      for (const RowBlock& block : layers.blocks)
        for (const std::int32_t row : block.indices) add(row);
      const auto drawn = sample(k, workspace, graph, seeds.data(), 100, fanouts, 77, true, dense_limit);
      for (std::int64_t i = 0; i < layers.nodes.size; ++i)
        expect(layers.nodes[i] == drawn.nodes[static_cast<std::size_t>(i)], "nodes of layers and of a sample");
    }
    expect(digests[0] == digests[1], "the two tables");
    whole = mix64(whole ^ digests[0]);
  }
  return whole;
}

template <typename T>
void check_kernels(const Kernels& k, std::int64_t width) {
  constexpr std::int64_t kTargets = 37, kRows = 90;
  const std::string name = std::string(k.isa) + (sizeof(T) == 4 ? " float32" : " bfloat16") + " of " + std::to_string(width);
  const auto close = [&](double found, double expected, const char* what) {
    const double slack = sizeof(T) == 4 ? 1e-5 : 1e-2;
    expect(std::abs(found - expected) <= slack * (1 + std::abs(expected)), name + ", " + what);
  };
  std::vector<std::int64_t> indptr{0};
  std::vector<std::int32_t> ids;
  for (std::uint64_t t = 0; t < kTargets; ++t) {
    for (std::uint64_t d = 0; d < t % 7; ++d) ids.push_back(static_cast<std::int32_t>(random_at(ids.size()) % kRows));
    indptr.push_back(static_cast<std::int64_t>(ids.size()));
  }
  const auto at = [&](const std::vector<T>& v, std::int64_t i) { return static_cast<double>(to_float(v[static_cast<std::size_t>(i)])); };
  const auto rows = values_of<T>(kRows * width, 1);
  const std::int64_t words = (width + 63) / 64;
  std::vector<std::uint64_t> bits(static_cast<std::size_t>(kRows * words));
  std::vector<std::int64_t> nodes;
  for (std::int64_t i = 0; i < kRows; ++i) nodes.push_back(i * 3);
  const Activation<T> activation{rows.data(), width, nodes.data(), 5, 64, bits.data(), words};
  if constexpr (sizeof(T) == 4) k.activate_f32(activation, 0, kRows);
  else k.activate_bf16(activation, 0, kRows);
  const auto kept = [&](std::int64_t row, std::int64_t c) {
    const std::uint64_t key = mix64(5 ^ static_cast<std::uint64_t>(nodes[static_cast<std::size_t>(row)]));
    const std::uint64_t hash = mix64(key + static_cast<std::uint64_t>(c / 8) * kGolden);
    return at(rows, row * width + c) > 0 && (hash >> (8 * (c % 8)) & 255) >= 64;
  };
  for (std::int64_t i = 0; i < kRows * width; ++i) {
    const bool set = bits[static_cast<std::size_t>(i / width * words + i % width / 64)] >> (i % width % 64) & 1;
    expect(set == kept(i / width, i % width), name + ", mask");
  }
  for (const Aggr aggr : {Aggr::kMean, Aggr::kSum, Aggr::kMax}) {
    std::vector<T> out(static_cast<std::size_t>(kTargets * 2 * width));
    std::vector<std::int32_t> chosen(static_cast<std::size_t>(kTargets * width));
    const Join<T, T, std::int32_t> join{rows.data(), width, width, bits.data(), words, 2.0f, nullptr, true, indptr.data(),
                                        ids.data(), aggr, out.data(), 2 * width, chosen.data()};
    if constexpr (sizeof(T) == 4) k.join_f32_i32(join, 0, kTargets);
    else k.join_bf16_i32(join, 0, kTargets);
    for (std::int64_t t = 0; t < kTargets; ++t)
      for (std::int64_t c = 0; c < width; ++c) {
        double sum = 0, most = 0;
        const std::int64_t lo = indptr[static_cast<std::size_t>(t)], hi = indptr[static_cast<std::size_t>(t) + 1];
        for (std::int64_t e = lo; e < hi; ++e) {
          const std::int64_t row = ids[static_cast<std::size_t>(e)];
          const double v = kept(row, c) ? 2 * at(rows, row * width + c) : 0;
          sum += v;
          most = e == lo ? v : std::max(most, v);
        }
        if (aggr == Aggr::kMean && hi > lo) sum /= static_cast<double>(hi - lo);
        close(at(out, t * 2 * width + c), aggr == Aggr::kMax ? most : sum, "neighbours");
        close(at(out, t * 2 * width + width + c), kept(t, c) ? 2 * at(rows, t * width + c) : 0, "own");
      }
    const Reverse r = reverse(indptr.data(), ids.data(), kTargets, kRows, aggr == Aggr::kMax);
    std::vector<float> shares;
    for (std::size_t t = 0; t < kTargets; ++t) shares.push_back(1.0f / static_cast<float>(std::max<std::int64_t>(indptr[t + 1] - indptr[t], 1)));
    const auto grad = values_of<T>(kTargets * 2 * width, 7777);
    std::vector<T> back(static_cast<std::size_t>(kRows * width));
    const Spread<T> spread{grad.data(), width, kTargets, r.indptr.data(), r.targets.data(),
                           aggr == Aggr::kMax ? r.edges.data() : nullptr, aggr == Aggr::kMean ? shares.data() : nullptr,
                           aggr == Aggr::kMax ? chosen.data() : nullptr, bits.data(), words, 2.0f, back.data()};
    if constexpr (sizeof(T) == 4) k.spread_f32(spread, 0, kRows);
    else k.spread_bf16(spread, 0, kRows);
    for (std::int64_t c = 0; c < width; ++c) {
      std::vector<double> expected(kRows, 0.0);
      for (std::int64_t t = 0; t < kTargets; ++t) {
        expected[static_cast<std::size_t>(t)] += at(grad, (2 * t + 1) * width + c);
        for (std::int64_t e = indptr[static_cast<std::size_t>(t)]; e < indptr[static_cast<std::size_t>(t) + 1]; ++e) {
          const double share = aggr == Aggr::kMean  ? static_cast<double>(shares[static_cast<std::size_t>(t)])
                               : aggr == Aggr::kSum ? 1.0
                                                    : chosen[static_cast<std::size_t>(t * width + c)] == e;
          expected[static_cast<std::size_t>(ids[static_cast<std::size_t>(e)])] += share * at(grad, 2 * t * width + c);
        }
      }
      for (std::int64_t u = 0; u < kRows; ++u)
        close(at(back, u * width + c), kept(u, c) ? 2 * expected[static_cast<std::size_t>(u)] : 0, "gradient");
    }
  }
  constexpr std::int64_t kOut = 70;
  const auto grad = values_of<T>(kRows * kOut, 333);
  const auto weight = values_of<float>(kOut * width, 44);
  std::vector<float> product(static_cast<std::size_t>(kOut * width)), sums(kOut), again = product, again_sums = sums;
  const auto outer = [&](const OuterSum<T>& s, std::int64_t begin, std::int64_t end) {
    if constexpr (sizeof(T) == 4) k.outer_f32(s, begin, end);
    else k.outer_bf16(s, begin, end);
  };
  outer_sum(outer, grad.data(), rows.data(), kRows, kOut, width, product.data(), sums.data(), 1);
  outer_sum(outer, grad.data(), rows.data(), kRows, kOut, width, again.data(), again_sums.data(), 8);
  expect(product == again && sums == again_sums, name + ", eight threads");
  std::vector<T> times(static_cast<std::size_t>(kRows * width));
  const TimesWeight<T> by{grad.data(), weight.data(), kOut, width, times.data()};
  if constexpr (sizeof(T) == 4) k.times_f32(by, 0, kRows);
  else k.times_bf16(by, 0, kRows);
  for (std::int64_t c = 0; c < width; ++c) {
    for (std::int64_t m = 0; m < kOut; ++m) {
      double sum = 0;
      for (std::int64_t i = 0; i < kRows; ++i) sum += at(grad, i * kOut + m) * at(rows, i * width + c);
      close(static_cast<double>(product[static_cast<std::size_t>(m * width + c)]), sum, "outer sum");
    }
    for (std::int64_t i = 0; i < kRows; ++i) {
      double sum = 0;
      for (std::int64_t m = 0; m < kOut; ++m) sum += at(grad, i * kOut + m) * static_cast<double>(weight[static_cast<std::size_t>(m * width + c)]);
      close(at(times, i * width + c), sum, "times weight");
    }
  }
}

}  // namespace

int main() {
  std::uint64_t digest = 0;
  for (const char* isa : {"avx512", "avx2", "plain"}) {
    const Kernels* k = nullptr;
    try {
      k = &kernels(isa);
    } catch (const std::invalid_argument&) {
      continue;
    }
    check_draws(*k);
    const std::uint64_t drawn = check_layers(*k);
    expect(digest == 0 || digest == drawn, std::string(isa) + " draws something else");
    digest = drawn;
    for (const std::int64_t width : {1, 16, 47, 100, 256}) {
      check_kernels<float>(*k, width);
      check_kernels<Bfloat>(*k, width);
    }
    std::printf("%s checked\n", isa);
  }
  std::vector<std::int64_t> squares(100000);
  in_parallel(100000, 8, 100, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) squares[static_cast<std::size_t>(i)] = i * i;
  });
  for (std::int64_t i = 0; i < 100000; ++i) expect(squares[static_cast<std::size_t>(i)] == i * i, "in_parallel");
  std::printf("digest %016llx\n", static_cast<unsigned long long>(digest));
  return failures ? 1 : 0;
}
