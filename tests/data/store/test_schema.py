"""What graphs have, learnt from all of them; each thing that does not go together is named with its graph."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData, TemporalData

from pygsage.data.store.intake import Intake, Missing
from pygsage.data.store.schema import Schema
from pygsage.errors import DatasetError


def schema_of(*graphs: Any, missing: Missing = "refuse") -> Schema:
    intake = Intake(missing)
    for graph in graphs:
        intake.take(graph)
        intake = Intake(missing, json.loads(json.dumps(intake.state())))  # as a writer that is gone on with
    return intake.finish()


def notes_of(*graphs: Any) -> str:
    intake = Intake()
    for graph in graphs:
        intake.take(graph)
    return " ".join(intake.notes)


def graph(n: int = 3, e: int = 4, **more: Any) -> Data:
    return Data(x=torch.ones(n, 2), edge_index=torch.zeros(2, e, dtype=torch.int64), **more)


def test_what_a_column_says() -> None:
    def one(n: int, e: int, y: float) -> Data:
        return graph(
            n, e, edge_attr=torch.ones(e, 1), y=torch.tensor([y]), s="ab", tail=torch.ones(n + 1), t=torch.ones(1, 7)
        )

    schema = schema_of(one(3, 4, 0.0), one(1, 1, 1.0), one(1, 0, 1.0))
    told = {c.key: (c.kind, c.dtype, c.shape, c.cat_dim, c.role, c.rows) for c in schema.columns}
    assert told == {
        "x": ("tensor", "float32", (2,), 0, "node", "nodes.slices"),
        "edge_index": ("tensor", "int64", (2,), 1, "edge", "edge_index.slices"),
        "edge_attr": ("tensor", "float32", (1,), 0, "edge", "edge_index.slices"),
        "y": ("tensor", "float32", (), 0, "graph", 1),
        "s": ("str", "uint8", (), 0, "graph", 2),
        "tail": ("tensor", "float32", (), 0, "graph", "tail.slices"),
        "t": ("tensor", "float32", (7,), 0, "graph", 1),
    }
    assert not schema.hetero
    assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema


def test_graphs_of_one_size_need_no_slices() -> None:
    schema = schema_of(graph(), graph())
    assert [column.rows for column in schema.columns] == [3, 4]
    assert schema.counts[0].rows == 3


ones = torch.ones(3, 1)
REFUSED: dict[str, tuple[Callable[[], tuple[Any, ...]], str]] = {
    "c016 only the second": (lambda: (graph(), graph(z=ones)), "Graph 1 has z, which no .*missing='keep'"),
    "c016 only the first": (lambda: (graph(z=ones), graph()), "Graph 1 has no z, which graphs before have"),
    "c017 None first": (lambda: (graph(z=None), graph(z=ones)), r"Graph 1 has z, .*\(None counts as missing\)"),
    "c019 float64": (
        lambda: (graph(), Data(x=torch.ones(2, 2).double(), edge_index=torch.zeros(2, 1).long())),
        r"Graph 1: x is float64; expected float32, .*x\.to\(torch\.float32\)",
    ),
    "c019 int64": (lambda: (graph(z=ones), graph(z=ones.long())), "Graph 1: z is int64; expected float32"),
    "c020 float ids": (
        lambda: (graph(), Data(x=torch.ones(3, 2), edge_index=torch.ones(2, 1))),
        "Graph 1: edge_index is float32; expected int64",
    ),
    "c021 int then float": (lambda: (graph(y=1), graph(y=2.5)), "Graph 1: y is a float; expected int"),
    "c021 int then bool": (lambda: (graph(y=1), graph(y=True)), "Graph 1: y is a bool; expected int"),
    "c021 int then tensor": (lambda: (graph(y=1), graph(y=torch.tensor(1))), "Graph 1: y is a tensor; expected int"),
    "c021 tensor then int": (lambda: (graph(y=torch.tensor(1)), graph(y=1)), "Graph 1: y is a int; expected tensor"),
    "c021 scalar then vector": (
        lambda: (graph(y=torch.tensor(1)), graph(y=torch.tensor([1]))),
        r"Graph 1: y has shape \[1\]; expected \[\]",
    ),
    "c024": (lambda: (), "There are no graphs left"),
    "c026 empty list": (lambda: (graph(names=[]),), "Graph 0: names is a list of 0; expected a tensor, str, int"),
    "c026 ragged list": (lambda: (graph(names=[1, 2]), graph(names=[3])), "Graph 0: names is a list of 2"),
    "c026 pair": (lambda: (graph(other=graph()),), "Graph 0: other is a Data; expected a tensor"),
    "c026 dict": (lambda: (graph(d={"a": 1}),), "Graph 0: d is a dict of 1"),
    "c026 no graph": (lambda: (TemporalData(),), "Graph 0 is a TemporalData; expected a torch_geometric Data"),
    "c026 tuple": (lambda: ((graph(), graph()),), "Graph 0 is a tuple"),
    "c026 numpy": (lambda: (graph(a=ones.numpy()),), "Graph 0: a is a ndarray; .*torch.as_tensor"),
    "c027 ragged": (
        lambda: (graph(user_index=torch.zeros(3, 2)), graph(user_index=torch.zeros(2, 2))),
        r"Graph 1: user_index has shape \[2, 2\]; expected \[3, \*\].*'index' in their name.*rename it",
    ),
    "c028": (lambda: (graph(adj=torch.eye(3).to_sparse()),), "Graph 0: adj is a sparse tensor; .*edge_index"),
    "c028 csr": (lambda: (graph(adj=torch.eye(3).to_sparse_csr()),), "Graph 0: adj is a sparse tensor"),
    "c029": (
        lambda: (graph(3, y=torch.ones(3)), graph(4, 9, y=torch.ones(3))),
        r"Graph 1: y has shape \[3\], which is neither one label nor one for each of 4 nodes.*y\.unsqueeze\(0\)",
    ),
    "c055 too wide": (
        lambda: (
            Data(x=ones, edge_index=torch.zeros(2, 1).int()),
            Data(x=ones, edge_index=torch.full((2, 1), 2**40)),
        ),
        "Graph 1: edge_index has ids up to 1099511627776, beyond int32",
    ),
    "c060 int": (lambda: (graph(y=2**64),), "Graph 0: y is 18446744073709551616; expected an int of 64 bits"),
    "c060 dtype": (lambda: (graph(z=ones.to(torch.float8_e5m2)),), "Graph 0: z is torch.float8_e5m2; expected one of"),
    "c060 quantized": (
        lambda: (graph(z=torch.quantize_per_tensor(ones, 1.0, 0, torch.qint8)),),
        "Graph 0: z is a nested, quantized or meta tensor",
    ),
    "c061": (lambda: (graph(s="a"), graph(s=None)), "Graph 1 has no s"),
    "other features": (
        lambda: (graph(), Data(x=torch.ones(2, 3), edge_index=torch.zeros(2, 0).long())),
        r"Graph 1: x has shape \[2, 3\]; expected \[\*, 2\]",
    ),
    "other dimensions": (lambda: (graph(z=ones), graph(z=ones[0])), r"Graph 1: z has shape \[1\]; expected \[\*, 1\]"),
    "another kind": (lambda: (graph(), HeteroData()), "Graph 1 is a HeteroData; expected Data"),
    "nothing": (lambda: (Data(),), "Graph 0 has no attributes"),
    "negative": (lambda: (Data(num_nodes=-1),), "Graph 0: num_nodes is -1; expected 0 or more"),
    "tensor count": (lambda: (Data(num_nodes=torch.tensor(3)),), "num_nodes is a tensor; expected an int"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*quantize:UserWarning", "ignore:Sparse:UserWarning")
@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_go_together_is_refused_by_name(name: str) -> None:
    graphs, said = REFUSED[name]
    with pytest.raises(DatasetError, match=said):
        schema_of(*graphs())


def test_a_graph_that_is_refused_changes_nothing() -> None:
    intake = Intake()
    intake.take(graph())
    before = json.dumps(intake.state())
    for bad in (graph(z=ones), graph(y=[1]), Data(x=torch.ones(2, 2))):
        with pytest.raises(DatasetError):
            intake.take(bad)
        assert json.dumps(intake.state()) == before
    intake.take(graph())


@pytest.mark.parametrize("order", [1, -1])
def test_c020_edges_of_a_graph_without_any_take_the_dtype_of_the_others(order: int) -> None:
    graphs = [Data(x=ones, edge_index=torch.empty(2, 0)), graph(3)][::order]
    graphs = [Data(x=torch.ones(3, 2), edge_index=g.edge_index) for g in graphs]
    column = schema_of(*graphs).column("edge_index")
    assert column is not None
    assert column.dtype == "int64"


def test_c055_ids_of_another_width_are_cast() -> None:
    intake = Intake()
    intake.take(Data(x=ones, edge_index=torch.tensor([[0, 1], [1, 0]])))
    taken = intake.take(Data(x=ones, edge_index=torch.tensor([[0, 1], [1, 2]], dtype=torch.int32)))
    (content,) = [content for column, content, _ in taken.values if column.key == "edge_index"]
    assert torch.frombuffer(bytearray(content), dtype=torch.int64).tolist() == [0, 1, 1, 2]


def test_c027_c029_c060_names_and_values_worth_a_note() -> None:
    assert "user_index has a name with 'index'" in notes_of(graph(user_index=torch.zeros(3, 2)))
    assert "my_batch has a name with 'index' or 'batch'" in notes_of(graph(my_batch=torch.zeros(3)))
    assert "face has a name that PyG gives a meaning" in notes_of(graph(face=torch.zeros(3, 2).long()))
    assert "z is kept without its gradient" in notes_of(graph(z=ones.clone().requires_grad_()))
    assert notes_of(graph(), graph(y=None)) == ""
    edge_label_index = torch.zeros(2, 3, dtype=torch.int64)
    assert notes_of(graph(edge_label_index=edge_label_index)) == ""


def test_c029_labels_of_graphs_nodes_and_edges() -> None:
    role: Callable[..., Any] = lambda *graphs: schema_of(*graphs).column("y").role  # type: ignore[union-attr]  # noqa: E731
    assert role(graph(3, y=torch.ones(1)), graph(4, y=torch.ones(1))) == "graph"
    assert role(graph(3, y=torch.ones(1, 4)), graph(4, y=torch.ones(1, 4))) == "graph"
    assert role(graph(3, y=torch.ones(3)), graph(4, y=torch.ones(4))) == "node"
    assert role(graph(3, 7, y=torch.ones(7)), graph(3, 5, y=torch.ones(5))) == "edge"
    assert role(graph(1, y=torch.ones(1)), graph(1, y=torch.ones(1))) == "graph"


def test_c022_c023_the_number_of_nodes_may_be_all_there_is() -> None:
    schema = schema_of(Data(num_nodes=3), Data(num_nodes=5))
    assert [c.key for c in schema.columns] == ["num_nodes"]
    assert schema.counts[0].batched
    first, second = HeteroData(), HeteroData()
    first["a"].num_nodes, second["a"].num_nodes = 2, 3
    assert schema_of(first, second).counts[0].rows == "a.nodes.slices"


def test_c031_a_number_of_nodes_that_nothing_tells_is_refused() -> None:
    data = HeteroData()
    data["paper"].y = torch.ones(3)
    data["paper", "cites", "paper"].edge_index = torch.zeros(2, 3, dtype=torch.int64)
    with pytest.raises(DatasetError, match=r"Graph 0: nothing tells how many 'paper' nodes there are.*num_nodes = "):
        schema_of(data)
    data["paper"].num_nodes = 3
    assert schema_of(data).counts[0].rows == 3


def typed(*types: str, **more: Tensor) -> HeteroData:
    data = HeteroData()
    data["a"].x = torch.ones(2, 1)
    for name in types:
        data["a", name, "a"].edge_index = torch.zeros(2, 3, dtype=torch.int64)
    for key, value in more.items():
        data[key] = value
    return data


def test_c049_types_may_be_missing_in_some_graphs_and_attributes_may_not() -> None:
    schema = schema_of(typed("r"), typed("r", "s"), typed())
    optional = {column.group: column.optional for column in schema.columns}
    assert optional == {"a": False, ("a", "r", "a"): True, ("a", "s", "a"): True}
    lacking, more = typed("r"), typed("r")
    del lacking["a"].x
    lacking["a"].pos = torch.ones(2, 1)
    more["a", "r", "a"].edge_attr = torch.ones(3, 1)
    for bad, said in (
        (lacking, "Graph 1 has 'a'.pos, which no graph before has"),
        (more, r"Graph 1 has \('a', 'r', 'a'\).edge_attr, which no"),
        (typed("r", y=ones), "Graph 1 has y, which no graph before has"),
    ):
        with pytest.raises(DatasetError, match=said):
            schema_of(typed("r"), bad)
    with pytest.raises(DatasetError, match="Graph 1 has no y"):
        schema_of(typed(y=ones), typed())


def test_c016_c061_missing_attributes_can_be_kept() -> None:
    schema = schema_of(graph(s="a"), graph(z=ones), missing="keep")
    assert {c.key for c in schema.columns if c.optional} == {"s", "z"}


def test_names_that_are_no_file_names() -> None:
    odd = {
        "a/b": ones,
        "..": ones,
        "A": ones,
        "a": ones,
        "ü" * 200: ones,
        "nodes": ones,
        "x.slices": ones,
        "con fig": ones,
    }
    data = graph()
    for key, value in odd.items():
        data[key] = value
    names = [column.name for column in schema_of(data).columns]
    assert len({name.lower() for name in names}) == len(names) == len(odd) + 2
    assert all(name.isascii() and "/" not in name and not name.startswith(".") for name in names)


def test_c056_an_attribute_that_only_later_graphs_have_is_never_dropped() -> None:
    intake = Intake()
    intake.take(Data(x=torch.ones(2, 1)))
    for _ in range(2):
        with pytest.raises(DatasetError, match="Graph 1 has y, which no graph before has.*missing='keep'"):
            intake.take(Data(x=torch.ones(2, 1), y=torch.tensor([1])))
    assert [c.key for c in intake.finish().columns] == ["x"]
    kept = schema_of(Data(x=torch.ones(2, 1)), Data(x=torch.ones(2, 1), y=torch.tensor([1])), missing="keep")
    assert [(c.key, c.optional) for c in kept.columns] == [("x", False), ("y", True)]
