"""The outermost hop drawn and aggregated at once is the hop drawn, its rows gathered, and aggregated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pygsage import native
from pygsage.data.one_graph.graph import Graph
from pygsage.nn.join import join
from pygsage.nn.sage import GraphSAGE
from pygsage.sampling.features import joined_features
from pygsage.sampling.keys import stream_of
from pygsage.sampling.sampler import NeighborSampler

needs_core = pytest.mark.skipif(native.core is None, reason="the native core is not built")
core: Any = native.core
AGGRS = ("mean", "sum", "max")


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """From no edges to many: isolated nodes, self loops, multi-edges, and now and then a hub."""
    num_nodes = draw(st.integers(1, 40))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    num_edges = draw(st.sampled_from([0, 1, 5, 60, 400, 2000]))
    src, dst = random.integers(0, num_nodes, (2, num_edges))
    if draw(st.booleans()):
        dst[random.random(num_edges) < 0.7] = 0
    order = np.argsort(dst, kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(dst, minlength=num_nodes))])
    return Graph(
        name="random",
        indptr=torch.from_numpy(indptr),
        indices=torch.from_numpy(src[order].astype(draw(st.sampled_from([np.int32, np.int64])))),
        edge_id=torch.from_numpy(order),
        x=torch.from_numpy(random.standard_normal((num_nodes, 6), dtype=np.float32)),
        y=torch.zeros(num_nodes, dtype=torch.int64),
        splits={},
        num_classes=1,
    )


fanout_lists = st.one_of(
    st.lists(st.sampled_from([-1, 1, 2, 3, 10, 64, 65, 390]), min_size=1, max_size=4),
    st.builds(lambda k, n: [k] * n, st.sampled_from([-1, 1, 3, 10]), st.integers(1, 4)),
)


def seeds_of(graph: Graph, data: st.DataObject) -> torch.Tensor:
    return torch.tensor(data.draw(st.lists(st.integers(0, graph.num_nodes - 1), max_size=8)), dtype=torch.int64)


@needs_core
@given(graph=graphs(), data=st.data(), fanouts=fanout_lists, dense_limit=st.sampled_from([0, 1 << 24]))
def test_native_layers_are_those_of_the_reference(
    graph: Graph, data: st.DataObject, fanouts: list[int], dense_limit: int
) -> None:
    seeds = seeds_of(graph, data)
    expected = NeighborSampler(graph, fanouts, 3, "reference").sample_layers(seeds, 1, 2)
    found = NeighborSampler(graph, fanouts, 3, "native").sample_layers(seeds, 1, 2)
    assert found.nodes.tolist() == expected.nodes.tolist()
    assert found.outer_indptr.tolist() == expected.outer_indptr.tolist()
    assert found.outer_ids.tolist() == expected.outer_ids.tolist()
    assert len(found.blocks) == len(expected.blocks) == len(fanouts) - 1
    for ours, theirs in zip(found.blocks, expected.blocks, strict=True):
        assert ours.indptr.tolist() == theirs.indptr.tolist()
        assert ours.indices.tolist() == theirs.indices.tolist()
    nodes, _, _, indptr, ids = core.sample_layers(
        graph.indptr.numpy(), graph.indices.numpy(), seeds.numpy(), fanouts, stream_of(3, 1, 2), dense_limit
    )
    assert nodes.tolist() == expected.nodes.tolist()
    assert indptr.tolist() == expected.outer_indptr.tolist()
    assert ids.tolist() == expected.outer_ids.tolist()
    assert found.outer_ids.dtype == graph.indices.dtype


@given(graph=graphs(), data=st.data(), fanouts=fanout_lists, aggr=st.sampled_from(AGGRS), half=st.booleans())
def test_a_model_has_the_same_output_with_and_without_rows_for_the_outermost_hop(
    graph: Graph, data: st.DataObject, fanouts: list[int], aggr: str, half: bool
) -> None:
    seeds = seeds_of(graph, data)
    sampler = NeighborSampler(graph, fanouts, 3)
    layers = sampler.sample_layers(seeds, 1, 2)
    n_id, blocks = sampler.sample_blocks(seeds, 1, 2)
    x = graph.x.half() if half else graph.x
    fused = joined_features(x, layers.nodes, layers.outer_indptr, layers.outer_ids, aggr)
    whole = join(x.float()[n_id], blocks[0], aggr)
    assert fused.dtype == torch.float32
    assert torch.allclose(fused, whole, rtol=1e-5, atol=1e-5)
    torch.manual_seed(0)
    model = GraphSAGE(6, 8, len(fanouts), 3, aggr=aggr)
    stream = stream_of(3, 1, 2)
    found = model.forward_blocks(fused, layers.blocks, layers.nodes, stream)
    expected = model.forward_blocks(x.float()[n_id], blocks, n_id, stream)
    assert torch.allclose(found, expected, rtol=1e-3, atol=1e-3)
    hidden = model.forward_blocks(fused, layers.blocks, layers.nodes, stream, last_hidden=True)
    assert torch.allclose(
        hidden, model.forward_blocks(x.float()[n_id], blocks, n_id, stream, last_hidden=True), rtol=1e-3, atol=1e-3
    )


@pytest.mark.parametrize("aggr", AGGRS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_without_the_core_torch_gives_the_same(aggr: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(20, 7).to(dtype)
    nodes, indptr = torch.tensor([3, 3, 19]), torch.tensor([0, 4, 4, 6])
    ids = torch.tensor([1, 0, 1, 19, 5, 6], dtype=torch.int32)
    for own in (nodes, None):
        for wanted in (None, torch.float64 if dtype == torch.float64 else torch.bfloat16):
            found = [joined_features(x, own, indptr, ids, aggr, wanted)]
            with monkeypatch.context() as patch:
                patch.setattr(native, "core", None)
                found.append(joined_features(x, own, indptr, ids, aggr, wanted))
            assert found[0].dtype == found[1].dtype
            assert torch.allclose(*found, rtol=1e-5 if wanted is None else 1e-2)
            assert not found[0][1, :7].any()


@needs_core
def test_c034_wrong_ids_and_damaged_graphs_raise() -> None:
    indptr, indices = np.array([0, 2, 3, 3]), np.array([1, 2, 0], dtype=np.int32)
    for seeds in ([3], [-1]):
        with pytest.raises(ValueError, match=r"seeds\[0\] is"):
            core.sample_layers(indptr, indices, np.array(seeds), [1, 1], 0)
    for fanouts in ([-1], [-1, -1]):
        with pytest.raises(ValueError, match=r"indices\[1\] is 7; expected a node id from 0 to below 3"):
            core.sample_layers(indptr, np.array([1, 7, 0], dtype=np.int32), np.array([0]), fanouts, 0)
        with pytest.raises(ValueError, match="indptr is damaged: node 0 has the edges from"):
            core.sample_layers(np.array([0, 4, 4, 4]), indices, np.array([0]), fanouts, 0)
    with pytest.raises(ValueError, match="a fanout is -2"):
        core.sample_layers(indptr, indices, np.array([0]), [1, -2], 0)
    with pytest.raises(ValueError, match="no fanouts"):
        core.sample_layers(indptr, indices, np.array([0]), [], 0)
    with pytest.raises(ValueError, match="indptr is empty"):
        core.sample_layers(indptr[:0], indices, np.array([0]), [1], 0)
