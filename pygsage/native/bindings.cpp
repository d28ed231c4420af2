// What Python sees of the native core: arrays in, arrays out, nothing computed here.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "bus_error.h"
#include "bindings.h"
#include "blocks.h"
#include "csc.h"
#include "dispatch.h"
#include "fetch.h"
#include "held.h"
#include "hetero.h"
#include "memory.h"
#include "ragged.h"
#include "sampler.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

template <typename T>
using Input = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using AnyInput = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Output = nb::ndarray<nb::numpy, T, nb::ndim<1>>;

// Hands memory over to NumPy without a copy.
template <typename T>
Output<T> to_numpy(pygsage::Array<T>&& array) {
  const auto size = static_cast<std::size_t>(array.size);
  T* data = array.data.get();
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
  array.data.release();
  return Output<T>(data, {size}, owner);
}

template <typename T>
Output<T> to_numpy(std::vector<T>&& values) {
  auto kept = std::make_unique<std::vector<T>>(std::move(values));
  T* data = kept->data();
  const std::size_t size = kept->size();
  nb::capsule owner(kept.get(), [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  kept.release();
  return Output<T>(data, {size}, owner);
}

template <typename Index>
nb::tuple build_csc_as(const Input<std::int64_t>& src, const Input<std::int64_t>& dst, std::int64_t num_nodes) {
  pygsage::Csc<Index> csc;
  {
    nb::gil_scoped_release release;
    csc = pygsage::build_csc<Index>(src.data(), dst.data(), static_cast<std::int64_t>(src.size()), num_nodes);
  }
  return nb::make_tuple(to_numpy(std::move(csc.indptr)), to_numpy(std::move(csc.indices)),
                        to_numpy(std::move(csc.perm)));
}

nb::tuple build_csc(Input<std::int64_t> src, Input<std::int64_t> dst, std::int64_t num_nodes, nb::object index_dtype) {
  if (src.size() != dst.size())
    throw std::invalid_argument("src has " + std::to_string(src.size()) + " elements and dst " +
                                std::to_string(dst.size()) + "; expected as many");
  bool narrow = num_nodes < (std::int64_t{1} << 31);
  if (!index_dtype.is_none()) {
    const auto name = nb::cast<std::string>(nb::str(nb::module_::import_("numpy").attr("dtype")(index_dtype)));
    if (name != "int32" && name != "int64")
      throw std::invalid_argument("index_dtype is " + name + "; expected int32 or int64");
    narrow = name == "int32";
  }
  return narrow ? build_csc_as<std::int32_t>(src, dst, num_nodes) : build_csc_as<std::int64_t>(src, dst, num_nodes);
}

nb::list to_list(std::vector<pygsage::Hop>& hops) {
  nb::list list;
  for (pygsage::Hop& hop : hops)
    list.append(nb::make_tuple(hop.first_target, to_numpy(std::move(hop.indptr)), to_numpy(std::move(hop.indices)),
                               to_numpy(std::move(hop.positions))));
  return list;
}

template <typename Index>
nb::tuple sample(Input<std::int64_t> indptr, Input<Index> indices, Input<std::int64_t> seeds,
                 std::vector<std::int64_t> fanouts, std::uint64_t stream, bool layered, std::int64_t dense_limit,
                 const std::string& isa, bool is_mapped) {
  if (indptr.size() == 0) throw std::invalid_argument("indptr is empty; expected one element more than nodes");
  const pygsage::Graph<Index> graph{indptr.data(), indices.data(), static_cast<std::int64_t>(indptr.size()) - 1,
                                    static_cast<std::int64_t>(indices.size()), is_mapped};
  const pygsage::Kernels& kernels = pygsage::kernels(isa);
  pygsage::Sample result;
  {
    nb::gil_scoped_release release;
    // One workspace a thread, not a shared pool: a pool's lock may be held at the moment of a fork.
    thread_local pygsage::Workspace workspace;
    result = pygsage::sample(kernels, workspace, graph, seeds.data(), static_cast<std::int64_t>(seeds.size()), fanouts,
                             stream, layered, dense_limit);
  }
  return nb::make_tuple(to_numpy(std::move(result.nodes)), nb::cast(result.num_nodes), to_list(result.hops));
}

template <typename Index>
nb::tuple sample_layers(Input<std::int64_t> indptr, Input<Index> indices, Input<std::int64_t> seeds,
                        std::vector<std::int64_t> fanouts, std::uint64_t stream, std::int64_t dense_limit,
                        const std::string& isa) {
  if (indptr.size() == 0) throw std::invalid_argument("indptr is empty; expected one element more than nodes");
  const pygsage::Graph<Index> graph{indptr.data(), indices.data(), static_cast<std::int64_t>(indptr.size()) - 1,
                                    static_cast<std::int64_t>(indices.size())};
  const pygsage::Kernels& kernels = pygsage::kernels(isa);
  pygsage::Layers<Index> result;
  {
    nb::gil_scoped_release release;
    thread_local pygsage::Workspace workspace;
    result = pygsage::sample_layers(kernels, workspace, graph, seeds.data(), static_cast<std::int64_t>(seeds.size()),
                                    fanouts, stream, dense_limit);
  }
  nb::list blocks;
  for (auto& block : result.blocks)
    blocks.append(nb::make_tuple(to_numpy(std::move(block.indptr)), to_numpy(std::move(block.indices))));
  return nb::make_tuple(to_numpy(std::move(result.nodes)), nb::cast(result.num_nodes), blocks,
                        to_numpy(std::move(result.indptr)), to_numpy(std::move(result.ids)));
}

// Arrays of one relation or node type at the same place of each list.
nb::tuple sample_hetero(std::vector<std::int64_t> num_nodes, std::vector<Input<std::int64_t>> seeds,
                        std::vector<Input<std::int64_t>> indptrs, std::vector<AnyInput> indices,
                        std::vector<std::pair<std::size_t, std::size_t>> types,
                        std::vector<std::vector<std::int64_t>> fanouts, std::uint64_t stream,
                        std::int64_t dense_limit) {
  const std::size_t num_relations = indptrs.size();
  if (indices.size() != num_relations || types.size() != num_relations || fanouts.size() != num_relations)
    throw std::invalid_argument("expected an indptr, indices, two types and fanouts for each relation");
  std::vector<pygsage::Relation> relations;
  for (std::size_t r = 0; r < num_relations; ++r) {
    const auto [source, target] = types[r];
    if (source >= num_nodes.size() || target >= num_nodes.size())
      throw std::invalid_argument("relation " + std::to_string(r) + " names a node type that does not exist");
    if (static_cast<std::int64_t>(indptrs[r].size()) != num_nodes[target] + 1)
      throw std::invalid_argument("the indptr of relation " + std::to_string(r) + " has " +
                                  std::to_string(indptrs[r].size()) + " elements; expected " +
                                  std::to_string(num_nodes[target] + 1));
    const auto num_edges = static_cast<std::int64_t>(indices[r].size());
    const auto graph_of = [&](auto* data) {
      using Index = std::remove_const_t<std::remove_pointer_t<decltype(data)>>;
      return pygsage::Graph<Index>{indptrs[r].data(), data, num_nodes[source], num_edges};
    };
    if (indices[r].dtype() == nb::dtype<std::int32_t>())
      relations.push_back({graph_of(static_cast<const std::int32_t*>(indices[r].data())), source, target, fanouts[r]});
    else if (indices[r].dtype() == nb::dtype<std::int64_t>())
      relations.push_back({graph_of(static_cast<const std::int64_t*>(indices[r].data())), source, target, fanouts[r]});
    else
      throw nb::type_error("the indices of a relation are neither int32 nor int64");
  }
  std::vector<pygsage::Seeds> seeds_of_types;
  for (const auto& ids : seeds) seeds_of_types.push_back({ids.data(), static_cast<std::int64_t>(ids.size())});

  const pygsage::Kernels& kernels = pygsage::kernels();
  pygsage::HeteroSample result;
  {
    nb::gil_scoped_release release;
    thread_local pygsage::HeteroWorkspace workspace;
    result = pygsage::sample_hetero(kernels, workspace, relations, num_nodes, seeds_of_types, stream, dense_limit);
  }
  nb::list nodes, hops;
  for (auto& ids : result.nodes) nodes.append(to_numpy(std::move(ids)));
  for (auto& hops_of_relation : result.hops) hops.append(to_list(hops_of_relation));
  return nb::make_tuple(nodes, nb::cast(result.num_nodes), hops);
}

using Rows = nb::ndarray<nb::ro, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

void at_random(Rows array) { pygsage::at_random(array.data(), array.nbytes()); }
using AnyRows = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
using AnyOutput = nb::ndarray<nb::c_contig, nb::device::cpu>;

pygsage::Pieces pieces_of(const Input<std::int64_t>& begins, const Input<std::int64_t>& lengths) {
  if (begins.size() != lengths.size()) throw std::invalid_argument("begins and lengths differ in number");
  return {begins.data(), lengths.data(), static_cast<std::int64_t>(begins.size())};
}

void gather_rows(AnyRows rows, Input<std::int64_t> begins, Input<std::int64_t> lengths, AnyOutput out) {
  const auto pieces = pieces_of(begins, lengths);
  if (rows.ndim() == 0 || out.ndim() != rows.ndim() || out.dtype() != rows.dtype())
    throw std::invalid_argument("out is not of the kind of rows");
  std::size_t row_bytes = rows.itemsize();
  for (std::size_t d = 1; d < rows.ndim(); ++d) {
    if (out.shape(d) != rows.shape(d)) throw std::invalid_argument("rows of out are not of the shape of rows");
    row_bytes *= rows.shape(d);
  }
  if (pygsage::checked_total(pieces, static_cast<std::int64_t>(rows.shape(0))) !=
      static_cast<std::int64_t>(out.shape(0)))
    throw std::invalid_argument("out has not as many rows as the pieces together");
  nb::gil_scoped_release release;
  pygsage::gather_rows(static_cast<const char*>(rows.data()), row_bytes, pieces, static_cast<char*>(out.data()));
}

bool fetch_rows(AnyRows rows, Input<std::int64_t> begins, Input<std::int64_t> lengths, int threads, bool look) {
  const auto pieces = pieces_of(begins, lengths);
  if (rows.ndim() == 0) throw std::invalid_argument("rows has no dimension");
  std::size_t row_bytes = rows.itemsize();
  for (std::size_t d = 1; d < rows.ndim(); ++d) row_bytes *= rows.shape(d);
  pygsage::checked_total(pieces, static_cast<std::int64_t>(rows.shape(0)));
  nb::gil_scoped_release release;
  return pygsage::fetch_rows(static_cast<const char*>(rows.data()), row_bytes, pieces, threads, look);
}

std::int64_t take_held(Input<std::uint64_t> bits, Input<std::uint32_t> before, Rows held, Input<std::int64_t> ids,
                       AnyOutput out, nb::ndarray<std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu> missed) {
  const std::size_t row_bytes = held.shape(1) * held.itemsize();
  if (out.ndim() != 2 || out.dtype() != held.dtype() || out.shape(1) != held.shape(1) || out.shape(0) != ids.size())
    throw std::invalid_argument("out has not a row of those held for each id");
  if (before.size() != bits.size() || missed.size() < ids.size())
    throw std::invalid_argument("before or missed is too short");
  const auto limit = static_cast<std::int64_t>(bits.size()) * 64;
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (ids.data()[i] < 0 || ids.data()[i] >= limit) throw std::out_of_range("id out of range");
  nb::gil_scoped_release release;
  return pygsage::take_held({bits.data(), before.data(), static_cast<const char*>(held.data()), row_bytes}, ids.data(),
                            static_cast<std::int64_t>(ids.size()), static_cast<char*>(out.data()), missed.data());
}

std::int64_t find_held(Input<std::uint64_t> bits, Input<std::uint32_t> before, Input<std::int64_t> ids,
                       nb::ndarray<std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu> places,
                       nb::ndarray<std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu> missed) {
  if (before.size() != bits.size() || missed.size() < ids.size() || places.size() != ids.size())
    throw std::invalid_argument("before, missed or places is too short");
  const auto limit = static_cast<std::int64_t>(bits.size()) * 64;
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (ids.data()[i] < 0 || ids.data()[i] >= limit) throw std::out_of_range("id out of range");
  nb::gil_scoped_release release;
  return pygsage::find_held({bits.data(), before.data(), nullptr, 0}, ids.data(),
                            static_cast<std::int64_t>(ids.size()), places.data(), missed.data());
}

template <typename T>
void gather_columns(nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu> rows, Input<std::int64_t> begins,
                    Input<std::int64_t> lengths, nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu> out,
                    std::vector<Input<std::int64_t>> shifts) {
  const auto pieces = pieces_of(begins, lengths);
  const auto total = static_cast<std::int64_t>(out.shape(1));
  if (out.shape(0) != rows.shape(1)) throw std::invalid_argument("out has not as many rows as rows has columns");
  if (pygsage::checked_total(pieces, static_cast<std::int64_t>(rows.shape(0))) != total)
    throw std::invalid_argument("out has not as many columns as the pieces have rows");
  if (!shifts.empty() && shifts.size() != rows.shape(1))
    throw std::invalid_argument("expected shifts for each column, or none");
  std::vector<const std::int64_t*> data;
  for (const auto& shift : shifts) {
    if (shift.size() != begins.size()) throw std::invalid_argument("expected a shift for each piece");
    data.push_back(shift.data());
  }
  nb::gil_scoped_release release;
  pygsage::gather_columns<T>(rows.data(), static_cast<std::int64_t>(rows.shape(1)), pieces,
                             data.empty() ? nullptr : data.data(), out.data(), total);
}

constexpr const char* kBuildCscDoc =
    "build_csc(src, dst, num_nodes, index_dtype=None) -> (indptr int64 [N+1], indices [E], perm int64 [E])\n\n"
    "Groups edges by destination, keeping their order within one. src, dst: int64 [E], contiguous.\n"
    "index_dtype: int32 or int64; None takes int32 when the node count allows. Raises ValueError for a bad edge.";

constexpr const char* kSampleDoc =
    "sample(indptr, indices, seeds, fanouts, stream, layered, dense_limit=2**24, isa='', is_mapped=False)\n"
    "-> (nodes, num_nodes, hops)\n\n"
    "Draws neighbourhoods as pygsage.sampling.reference.sample does. indptr, seeds: int64; indices: int32 or int64,\n"
    "all contiguous. hops: a tuple (first_target, indptr, indices, positions) each. Raises ValueError for a seed or\n"
    "a graph out of range. Each calling thread keeps 8 bytes a node of the graph up to dense_limit nodes, and at\n"
    "most 64 bytes a node of its largest batch above. isa: one of isas(), by default the first. is_mapped: the graph\n"
    "lies in a file that may not be in memory; what a hop needs is then read with many reads under way at once.";

constexpr const char* kSampleLayersDoc =
    "sample_layers(indptr, indices, seeds, fanouts, stream, dense_limit=2**24, isa='')\n"
    "-> (nodes, num_nodes, blocks, outer_indptr, outer_ids)\n\n"
    "What sample(…, layered=True) draws, for a trainer: nodes are the targets of the last hop, num_nodes how many are\n"
    "known before each hop. blocks: a tuple (indptr, indices int32) for each hop but the last, or one that all are\n"
    "prefixes of where the fanouts are equal. The neighbours of the last hop are global ids, of the dtype of indices.\n"
    "Arrays, errors and memory as for sample.";

constexpr const char* kSampleHeteroDoc =
    "sample_hetero(num_nodes, seeds, indptrs, indices, types, fanouts, stream, dense_limit=2**24)\n"
    "-> (nodes, num_nodes, hops)\n\n"
    "Draws neighbourhoods as pygsage.sampling.reference.sample_hetero does. num_nodes, seeds: by node type; indptrs,\n"
    "indices, types (of source and target), fanouts: by relation. Arrays and memory as for sample. Returns nodes and\n"
    "num_nodes by node type, hops by relation.";

constexpr const char* kGatherRowsDoc =
    "gather_rows(rows, begins, lengths, out)\n\n"
    "Copies the rows begins[j] to begins[j] + lengths[j] of each piece j, one after the other, to out. Any dtype and\n"
    "shape, contiguous; begins, lengths: int64. Releases the GIL. Raises ValueError for a piece out of range.";

constexpr const char* kFetchRowsDoc =
    "fetch_rows(rows, begins, lengths, threads) -> bool\n\n"
    "Reads pieces of a mapped array into memory, many at once, unless a few of them that are looked at are there;\n"
    "returns whether it did. look=False: without that look. Releases the GIL. Raises ValueError for a piece out of range.";

constexpr const char* kGatherColumnsDoc =
    "gather_columns(rows, begins, lengths, out, shifts)\n\n"
    "The same of rows [N, C], turned over: out is [C, total]. shifts: for each column int64, what is added to the\n"
    "values of each piece; or an empty list. int32 or int64.";

}  // namespace

NB_MODULE(_core, m) {
  m.doc() = "Native core of pygsage: building and sampling graphs held as lists of in-neighbours.";
  m.def("build_csc", &build_csc, "src"_a.noconvert(), "dst"_a.noconvert(), "num_nodes"_a,
        "index_dtype"_a = nb::none(), kBuildCscDoc);
  m.def("sample", &sample<std::int32_t>, "indptr"_a.noconvert(), "indices"_a.noconvert(), "seeds"_a.noconvert(),
        "fanouts"_a, "stream"_a, "layered"_a, "dense_limit"_a = std::int64_t{1} << 24, "isa"_a = "", "is_mapped"_a = false,
        kSampleDoc);
  m.def("sample", &sample<std::int64_t>, "indptr"_a.noconvert(), "indices"_a.noconvert(), "seeds"_a.noconvert(),
        "fanouts"_a, "stream"_a, "layered"_a, "dense_limit"_a = std::int64_t{1} << 24, "isa"_a = "",
        "is_mapped"_a = false);
  m.def("sample_layers", &sample_layers<std::int32_t>, "indptr"_a.noconvert(), "indices"_a.noconvert(),
        "seeds"_a.noconvert(), "fanouts"_a, "stream"_a, "dense_limit"_a = std::int64_t{1} << 24, "isa"_a = "",
        kSampleLayersDoc);
  m.def("sample_layers", &sample_layers<std::int64_t>, "indptr"_a.noconvert(), "indices"_a.noconvert(),
        "seeds"_a.noconvert(), "fanouts"_a, "stream"_a, "dense_limit"_a = std::int64_t{1} << 24, "isa"_a = "");
  bind_layers(m);
  m.def("at_random", &at_random, "array"_a.noconvert(),
        "Tells the kernel that a mapped array [N, F] is touched in no order, so that it reads no more than that.");
  m.def("sample_hetero", &sample_hetero, "num_nodes"_a, "seeds"_a.noconvert(), "indptrs"_a.noconvert(),
        "indices"_a.noconvert(), "types"_a, "fanouts"_a, "stream"_a, "dense_limit"_a = std::int64_t{1} << 24,
        kSampleHeteroDoc);
  m.def("gather_rows", &gather_rows, "rows"_a.noconvert(), "begins"_a.noconvert(), "lengths"_a.noconvert(),
        "out"_a.noconvert(), kGatherRowsDoc);
  m.def("fetch_rows", &fetch_rows, "rows"_a.noconvert(), "begins"_a.noconvert(), "lengths"_a.noconvert(), "threads"_a,
        "look"_a = true, kFetchRowsDoc);
  m.def("take_held", &take_held, "bits"_a.noconvert(), "before"_a.noconvert(), "held"_a.noconvert(), "ids"_a.noconvert(),
        "out"_a.noconvert(), "missed"_a.noconvert(),
        "Copies the rows of ids [n] int64 that are held to their places in out [n, F]; the places of the others go into\n"
        "missed [n] int64, and their number is returned. bits, before: uint64, uint32 [ceil(N / 64)], as held.h says.");
  m.def("tell_bus_error", &pygsage::tell_bus_error, "text"_a,
        "Has the process write this to standard error and end with status 1 at a SIGBUS; \"\" puts back what was before.");
  m.def("find_held", &find_held, "bits"_a.noconvert(), "before"_a.noconvert(), "ids"_a.noconvert(),
        "places"_a.noconvert(), "missed"_a.noconvert(),
        "The place of each of ids [n] int64 among the rows that are held, or -1, in places [n] int32; where the others\n"
        "stand goes into missed [n] int64, and their number is returned. bits, before: as take_held.");
  m.def("gather_columns", &gather_columns<std::int64_t>, "rows"_a.noconvert(), "begins"_a.noconvert(),
        "lengths"_a.noconvert(), "out"_a.noconvert(), "shifts"_a, kGatherColumnsDoc);
  m.def("gather_columns", &gather_columns<std::int32_t>, "rows"_a.noconvert(), "begins"_a.noconvert(),
        "lengths"_a.noconvert(), "out"_a.noconvert(), "shifts"_a);
}
