// What Python sees of the layers' kernels. Every function writes to arrays that it is given; bfloat16 comes as int16.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "bindings.h"
#include "buffers.h"
#include "dispatch.h"
#include "kernels.h"
#include "layers.h"
#include "parallel.h"

namespace nb = nanobind;
using namespace nb::literals;
using namespace pygsage;

namespace {

template <typename T>
using Vector = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Matrix = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Rows = nb::ndarray<nb::ro, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using AnyIds = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using AnyOut = nb::ndarray<nb::ndim<2>, nb::c_contig, nb::device::cpu>;

enum class Kind { kFloat, kHalf, kBfloat, kDouble };

Kind kind_of(const nb::dlpack::dtype& dtype) {
  if (dtype == nb::dtype<float>()) return Kind::kFloat;
  if (dtype == nb::dtype<double>()) return Kind::kDouble;
  if (dtype == nb::dtype<std::int16_t>()) return Kind::kBfloat;
  if (dtype.code == static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float) && dtype.bits == 16 && dtype.lanes == 1)
    return Kind::kHalf;
  throw nb::type_error("an array is neither float32, float64, float16 nor bfloat16 seen as int16");
}

Aggr aggr_of(const std::string& name) {
  if (name == "mean") return Aggr::kMean;
  if (name == "sum") return Aggr::kSum;
  if (name == "max") return Aggr::kMax;
  throw std::invalid_argument("aggr is " + name + "; expected mean, sum or max");
}

void expect(bool good, const char* what) {
  if (!good) throw std::invalid_argument(std::string("the shapes do not fit together: ") + what);
}

template <typename A>
std::int64_t size(const A& array, std::size_t axis = 0) {
  return static_cast<std::int64_t>(array.shape(axis));
}

// float64 has no kernels of its own: it is there to check the others by.
template <typename Id>
void join_doubles(const Join<double, double, Id>& j, std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i) {
    const std::int64_t lo = j.indptr[i], hi = j.indptr[i + 1];
    double* out = j.out + i * j.out_stride;
    const double* own = j.rows + (j.own ? j.own[i] : i) * j.stride;
    for (std::int64_t c = 0; c < j.width; ++c) {
      if (j.with_own) out[j.width + c] = own[c];
      double sum = 0.0;
      for (std::int64_t e = lo; e < hi; ++e) {
        const double v = j.rows[static_cast<std::int64_t>(j.ids[e]) * j.stride + c];
        if (j.aggr != Aggr::kMax) sum += v;
        else if (e == lo || !(v <= sum || sum != sum)) sum = v;
      }
      out[c] = j.aggr == Aggr::kMean && hi > lo ? sum / static_cast<double>(hi - lo) : sum;
    }
  }
}

template <typename In, typename Out, typename Id, typename Kernel>
void run_join(Join<In, Out, Id> j, std::int64_t count, int num_threads, Kernel kernel) {
  check_indptr(j.indptr, count, j.indptr[count]);
  const std::int64_t drawn = count ? j.indptr[count] / count + 2 : 1;
  in_parallel(count, num_threads, grain_of(drawn * j.width),
              [&](std::int64_t begin, std::int64_t end) { kernel(j, begin, end); });
}

template <typename Id>
void join_features_as(const Rows& x, const std::optional<Vector<const std::int64_t>>& nodes,
                      const Vector<const std::int64_t>& indptr, const AnyIds& ids, Aggr aggr, const AnyOut& out,
                      std::int64_t width, int num_threads, const std::string& isa) {
  const std::int64_t count = size(indptr) - 1, stride = size(x, 1), num_edges = size(ids);
  const Id* edges = static_cast<const Id*>(ids.data());
  const Kind in = kind_of(x.dtype()), to = kind_of(out.dtype());
  const Kernels& k = kernels(isa);
  nb::gil_scoped_release release;
  check_indptr(indptr.data(), count, num_edges);
  check_ids(edges + indptr.data()[0], indptr.data()[count] - indptr.data()[0], size(x), "ids");
  if (nodes) check_ids(nodes->data(), count, size(x), "nodes");
  const auto with = [&](auto* rows, auto* result, auto kernel) {
    using In = std::remove_const_t<std::remove_pointer_t<decltype(rows)>>;
    using Out = std::remove_pointer_t<decltype(result)>;
    run_join(Join<In, Out, Id>{rows, width, stride, nullptr, 0, 1.0f, nodes ? nodes->data() : nullptr, nodes.has_value(),
                               indptr.data(), edges, aggr, result, nodes ? 2 * width : width, nullptr},
             count, num_threads, kernel);
  };
  constexpr bool narrow = sizeof(Id) == 4;
  const auto pick = [](auto a, auto b) {
    if constexpr (narrow) return a;
    else return b;
  };
  const void* rows = x.data();
  void* result = out.data();
  if (in == Kind::kFloat && to == Kind::kFloat)
    with(static_cast<const float*>(rows), static_cast<float*>(result), pick(k.join_f32_i32, k.join_f32_i64));
  else if (in == Kind::kFloat && to == Kind::kBfloat)
    with(static_cast<const float*>(rows), static_cast<Bfloat*>(result), pick(k.join_f32_bf16_i32, k.join_f32_bf16_i64));
  else if (in == Kind::kHalf && to == Kind::kFloat)
    with(static_cast<const Half*>(rows), static_cast<float*>(result), pick(k.join_f16_i32, k.join_f16_i64));
  else if (in == Kind::kHalf && to == Kind::kBfloat)
    with(static_cast<const Half*>(rows), static_cast<Bfloat*>(result), pick(k.join_f16_bf16_i32, k.join_f16_bf16_i64));
  else if (in == Kind::kDouble && to == Kind::kDouble)
    with(static_cast<const double*>(rows), static_cast<double*>(result), &join_doubles<Id>);
  else
    throw std::invalid_argument("no kernel takes rows of that dtype to that of out");
}

void join_features(Rows x, std::optional<Vector<const std::int64_t>> nodes, Vector<const std::int64_t> indptr,
                   AnyIds ids, const std::string& aggr, AnyOut out, int num_threads, const std::string& isa,
                   std::optional<std::int64_t> columns) {
  const std::int64_t width = columns.value_or(size(x, 1));
  expect(width >= 0 && width <= size(x, 1), "x has fewer columns");
  expect(size(indptr) >= 1, "indptr is empty");
  expect(size(out) == size(indptr) - 1, "out needs a row a target");
  expect(size(out, 1) == width * (nodes ? 2 : 1), "out needs the width of x, twice with nodes");
  expect(!nodes || size(*nodes) == size(indptr) - 1, "nodes needs an id a target");
  if (ids.dtype() == nb::dtype<std::int32_t>())
    join_features_as<std::int32_t>(x, nodes, indptr, ids, aggr_of(aggr), out, width, num_threads, isa);
  else if (ids.dtype() == nb::dtype<std::int64_t>())
    join_features_as<std::int64_t>(x, nodes, indptr, ids, aggr_of(aggr), out, width, num_threads, isa);
  else
    throw nb::type_error("ids are neither int32 nor int64");
}

template <typename T, typename Seen>
void activation_bits(Matrix<const Seen> values, Vector<const std::int64_t> nodes, std::uint64_t start, int dropped,
                     Matrix<std::uint64_t> bits, int num_threads, const std::string& isa) {
  const std::int64_t n = size(values), width = size(values, 1), words = (width + 63) / 64;
  expect(size(bits) == n && size(bits, 1) == words, "bits needs a bit for each value");
  expect(dropped == 0 || size(nodes) == n, "nodes needs an id a row");
  if (dropped < 0 || dropped > 255) throw std::invalid_argument("dropped is not in 0 .. 255");
  const Kernels& k = kernels(isa);
  const Activation<T> a{reinterpret_cast<const T*>(values.data()), width, nodes.data(), start, dropped, bits.data(), words};
  nb::gil_scoped_release release;
  in_parallel(n, num_threads, grain_of(width / 4), [&](std::int64_t begin, std::int64_t end) {
    if constexpr (std::is_same_v<T, float>) k.activate_f32(a, begin, end);
    else k.activate_bf16(a, begin, end);
  });
}

template <typename T, typename Seen>
void join_hidden(Matrix<const Seen> values, Matrix<const std::uint64_t> bits, float scale,
                 Vector<const std::int64_t> indptr, Vector<const std::int32_t> ids, const std::string& aggr,
                 Matrix<Seen> out, std::optional<Matrix<std::int32_t>> chosen, int num_threads, const std::string& isa) {
  const std::int64_t n = size(values), width = size(values, 1), words = (width + 63) / 64, count = size(indptr) - 1;
  expect(count >= 0 && count <= n, "there are more targets than rows");
  expect(size(bits) == n && size(bits, 1) == words, "bits needs a bit for each value");
  expect(size(out) == count && size(out, 1) == 2 * width, "out needs a row a target, of twice the width");
  expect(!chosen || (size(*chosen) == count && size(*chosen, 1) == width), "chosen needs a row a target");
  const Kernels& k = kernels(isa);
  const Join<T, T, std::int32_t> j{reinterpret_cast<const T*>(values.data()), width, width, bits.data(), words, scale, nullptr,
                                   true, indptr.data(), ids.data(), aggr_of(aggr), reinterpret_cast<T*>(out.data()),
                                   2 * width, chosen ? chosen->data() : nullptr};
  nb::gil_scoped_release release;
  check_indptr(indptr.data(), count, size(ids));
  check_ids(ids.data() + indptr.data()[0], indptr.data()[count] - indptr.data()[0], n, "ids");
  if constexpr (std::is_same_v<T, float>) run_join(j, count, num_threads, k.join_f32_i32);
  else run_join(j, count, num_threads, k.join_bf16_i32);
}

template <typename T, typename Seen>
void spread_hidden(Matrix<const Seen> grad, Matrix<const std::uint64_t> bits, float scale,
                   Vector<const std::int64_t> indptr, Vector<const std::int32_t> ids, const std::string& aggr,
                   Matrix<Seen> out, std::optional<Matrix<const std::int32_t>> chosen, int num_threads,
                   const std::string& isa) {
  const std::int64_t n = size(out), width = size(out, 1), words = (width + 63) / 64, count = size(indptr) - 1;
  const Aggr kind = aggr_of(aggr);
  expect(count >= 0 && count <= n, "there are more targets than rows");
  expect(size(bits) == n && size(bits, 1) == words, "bits needs a bit for each value");
  expect(size(grad) == count && size(grad, 1) == 2 * width, "grad needs a row a target, of twice the width");
  expect((kind == Aggr::kMax) == chosen.has_value(), "chosen goes with max");
  expect(!chosen || (size(*chosen) == count && size(*chosen, 1) == width), "chosen needs a row a target");
  const Kernels& k = kernels(isa);
  nb::gil_scoped_release release;
  check_indptr(indptr.data(), count, size(ids));
  check_ids(ids.data() + indptr.data()[0], indptr.data()[count] - indptr.data()[0], n, "ids");
  const Reverse back = reverse(indptr.data(), ids.data(), count, n, chosen.has_value());
  std::vector<float> shares;
  if (kind == Aggr::kMean) {
    shares.resize(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t degree = indptr.data()[i + 1] - indptr.data()[i];
      shares[static_cast<std::size_t>(i)] = degree ? 1.0f / static_cast<float>(degree) : 0.0f;
    }
  }
  const Spread<T> s{reinterpret_cast<const T*>(grad.data()), width, count, back.indptr.data(), back.targets.data(),
                    back.edges.data(), kind == Aggr::kMean ? shares.data() : nullptr,
                    chosen ? chosen->data() : nullptr, bits.data(), words, scale, reinterpret_cast<T*>(out.data())};
  in_parallel(n, num_threads, grain_of(4 * width), [&](std::int64_t begin, std::int64_t end) {
    if constexpr (std::is_same_v<T, float>) k.spread_f32(s, begin, end);
    else k.spread_bf16(s, begin, end);
  });
}

template <typename T, typename Seen>
void sparse_outer_sum(Matrix<const Seen> grad, Matrix<const Seen> values, Matrix<float> out, Vector<float> sums,
                      int num_threads, const std::string& isa) {
  const std::int64_t n = size(grad), m = size(grad, 1), width = size(values, 1);
  expect(size(values) == n, "values needs a row for each of grad");
  expect(size(out) == m && size(out, 1) == width, "out needs a row a column of grad");
  expect(size(sums) == m, "sums needs an element a column of grad");
  const Kernels& k = kernels(isa);
  nb::gil_scoped_release release;
  const auto outer = [&] {
    if constexpr (std::is_same_v<T, float>) return k.outer_f32;
    else return k.outer_bf16;
  }();
  outer_sum<T>(outer, reinterpret_cast<const T*>(grad.data()), reinterpret_cast<const T*>(values.data()), n, m, width,
               out.data(), sums.data(), num_threads);
}

template <typename T, typename Seen>
void sparse_times_weight(Matrix<const Seen> grad, Matrix<const float> weight, Matrix<Seen> out, int num_threads,
                         const std::string& isa) {
  const std::int64_t n = size(grad), m = size(grad, 1), width = size(weight, 1);
  expect(size(weight) == m, "weight needs a row a column of grad");
  expect(size(out) == n && size(out, 1) == width, "out needs a row for each of grad, as wide as weight");
  expect(m <= kWidestTimes, "grad is wider than 4096");
  const Kernels& k = kernels(isa);
  const TimesWeight<T> t{reinterpret_cast<const T*>(grad.data()), weight.data(), m, width, reinterpret_cast<T*>(out.data())};
  nb::gil_scoped_release release;
  in_parallel(n, num_threads, grain_of(m * width / 16), [&](std::int64_t begin, std::int64_t end) {
    if constexpr (std::is_same_v<T, float>) k.times_f32(t, begin, end);
    else k.times_bf16(t, begin, end);
  });
}

template <typename T, typename Seen>
void column_sums(Matrix<const Seen> values, Vector<float> sums, const std::string& isa) {
  const std::int64_t n = size(values), width = size(values, 1);
  expect(size(sums) == width, "sums needs an element a column");
  const Kernels& k = kernels(isa);
  nb::gil_scoped_release release;
  std::vector<double> total(static_cast<std::size_t>(width), 0.0);
  std::vector<float> part(static_cast<std::size_t>(width));
  const ColumnSums<T> s{reinterpret_cast<const T*>(values.data()), width, part.data()};
  for (std::int64_t begin = 0; begin < n; begin += kRowsOfSum) {
    const std::int64_t end = std::min(n, begin + kRowsOfSum);
    if constexpr (std::is_same_v<T, float>) k.sums_f32(s, begin, end);
    else k.sums_bf16(s, begin, end);
    for (std::size_t c = 0; c < part.size(); ++c) total[c] += static_cast<double>(part[c]);
  }
  for (std::size_t c = 0; c < part.size(); ++c) sums.data()[c] = static_cast<float>(total[c]);
}

// The share of elements that are not zero, of at most 256 rows spread evenly.
template <typename Seen>
double density(Matrix<const Seen> values) {
  const std::int64_t n = size(values), width = size(values, 1), rows = std::min<std::int64_t>(n, 256);
  std::int64_t found = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    const Seen* row = values.data() + n * r / rows * width;
    for (std::int64_t c = 0; c < width; ++c) found += row[c] != Seen{0};
  }
  return rows * width > 0 ? static_cast<double>(found) / static_cast<double>(rows * width) : 0.0;
}

#if defined(__linux__)
// Never destroyed: arrays may outlive the module.
Buffers& buffers() {
  static Buffers* const all = new Buffers();
  return *all;
}

nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>> buffer(std::size_t num_bytes) {
  auto* kept = new Buffers::Buffer(buffers().take(num_bytes));
  nb::capsule owner(kept, [](void* p) noexcept {
    auto* buffer = static_cast<Buffers::Buffer*>(p);
    buffers().give(*buffer);
    delete buffer;
  });
  return nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>(kept->data, {num_bytes}, owner);
}
#endif

template <typename T, typename Seen>
void define_as(nb::module_& m) {
  m.def("activation_bits", &activation_bits<T, Seen>, "values"_a.noconvert(), "nodes"_a.noconvert(), "start"_a,
        "dropped"_a, "bits"_a.noconvert(), "num_threads"_a = 1, "isa"_a = "",
        "Sets a bit where a value is positive (or NaN) and kept by the mask of nn/dropout.py.");
  m.def("join_hidden", &join_hidden<T, Seen>, "values"_a.noconvert(), "bits"_a.noconvert(), "scale"_a,
        "indptr"_a.noconvert(), "ids"_a.noconvert(), "aggr"_a, "out"_a.noconvert(), "chosen"_a.noconvert().none(),
        "num_threads"_a = 1, "isa"_a = "",
        "out[i] = [aggregate of the neighbours' rows | row i] of what the bits keep of values, times scale.");
  m.def("spread_hidden", &spread_hidden<T, Seen>, "grad"_a.noconvert(), "bits"_a.noconvert(), "scale"_a,
        "indptr"_a.noconvert(), "ids"_a.noconvert(), "aggr"_a, "out"_a.noconvert(), "chosen"_a.noconvert().none(),
        "num_threads"_a = 1, "isa"_a = "",
        "The gradient of join_hidden with respect to values; the same bits for any number of threads.");
  m.def("sparse_outer_sum", &sparse_outer_sum<T, Seen>, "grad"_a.noconvert(), "values"_a.noconvert(),
        "out"_a.noconvert(), "sums"_a.noconvert(), "num_threads"_a = 1, "isa"_a = "",
        "out = grad^T values and sums = grad's column sums, for grad mostly of zeros; the same bits for any number of "
        "threads.");
  m.def("sparse_times_weight", &sparse_times_weight<T, Seen>, "grad"_a.noconvert(), "weight"_a.noconvert(),
        "out"_a.noconvert(), "num_threads"_a = 1, "isa"_a = "", "out = grad weight, for grad mostly of zeros.");
  m.def("column_sums", &column_sums<T, Seen>, "values"_a.noconvert(), "sums"_a.noconvert(), "isa"_a = "",
        "The sums of the columns: of 128 rows in float32, of those in float64.");
  m.def("density", &density<Seen>, "values"_a.noconvert(), "The share of non-zeros, of at most 256 rows.");
}

}  // namespace

void bind_layers(nb::module_& m) {
  m.def("join_features", &join_features, "x"_a.noconvert(), "nodes"_a.noconvert().none(), "indptr"_a.noconvert(),
        "ids"_a.noconvert(), "aggr"_a, "out"_a.noconvert(), "num_threads"_a = 1, "isa"_a = "", "columns"_a = nb::none(),
        "out[i] = [aggregate of x's rows ids[indptr[i]:indptr[i + 1]] | x[nodes[i]]], without the second half for\n"
        "nodes=None. x: float32, float16 or float64; out float32 or bfloat16 (as int16), float64 for float64.\n"
        "columns: how many of x's are taken, from the first; None: all.");
  define_as<float, float>(m);
  define_as<Bfloat, std::int16_t>(m);
#if defined(__linux__)
  m.def("buffer", &buffer, "num_bytes"_a,
        "uint8 [num_bytes], not filled, in huge pages where the system has them; once freed it is used again.");
  m.def("release_buffers", [] { buffers().release(); }, "Gives what is not in use back to the system.");
  m.def("free_buffer_bytes", [] { return buffers().free_bytes(); }, "Bytes kept for the next buffers.");
#endif
  m.def(
      "prefer_huge_pages",
      [](nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu> array, bool now) {
        void* data = const_cast<void*>(array.data());
        const std::size_t size = array.nbytes();
        nb::gil_scoped_release release;
        prefer_huge_pages(data, size, now);
      },
      "array"_a.noconvert(), "now"_a,
      "Asks the system for huge pages under an array in RAM, with now also under what was written to already.");
  m.def(
      "isas",
      [] {
        nb::list found;
        for (const char* isa : {"avx512", "avx2", "plain"}) {
          try {
            kernels(isa);
          } catch (const std::invalid_argument&) {
            continue;
          }
          found.append(isa);
        }
        return found;
      },
      "The sets of instructions that there are kernels for and that this processor has; the first is used.");
}
