"""Sizes of well-known datasets, so that nothing need be downloaded to know what they take.

Edges are those of the dataset as it is loaded. Sources: for PyG's classes the tables in their docstrings (PyG 2.8);
for OGB's the tables of "Open Graph Benchmark: Datasets for Machine Learning on Graphs" (Hu et al., NeurIPS 2020) and
of ogb.stanford.edu, with reverse edges where its loaders add them; digits: this package.
"""

from __future__ import annotations

from dataclasses import dataclass

OGB = "OGB's tables (Hu et al., 2020)"
PYG = "the table in the docstring of PyG's class"


@dataclass(frozen=True)
class Known:
    """One dataset: counts over all its graphs. `num_train` is that of its own split; 0 when there is none.

    `y_columns` is more than one for several labels a node or graph; `x_dtype` is that of the files.
    """

    source: str
    num_nodes: int
    num_edges: int
    num_features: int
    num_classes: int
    num_train: int = 0
    num_graphs: int = 1
    x_dtype: str = "float32"
    edge_features: int = 0
    y_columns: int = 1
    on_disk: str = "pyg"


KNOWN: dict[str, Known] = {
    "digits": Known("pygsage", 1_797, 17_970, 64, 10, 1_078, on_disk="computed"),
    "digits-grid": Known("pygsage", 115_008, 402_528, 3, 10, 1_078, 1_797, on_disk="computed"),
    "ogbn-arxiv": Known(OGB, 169_343, 1_166_243, 128, 40, 90_941, on_disk="csv"),
    "ogbn-products": Known(OGB, 2_449_029, 123_718_280, 100, 47, 196_615, on_disk="csv"),
    "ogbn-proteins": Known(OGB, 132_534, 79_122_504, 8, 112, 86_619, edge_features=8, y_columns=112, on_disk="csv"),
    "ogbn-mag": Known(
        OGB + "; papers and the citations among them", 736_389, 5_416_271, 128, 349, 629_571, on_disk="csv"
    ),
    "ogbn-papers100M": Known(OGB, 111_059_956, 1_615_685_872, 128, 172, 1_207_179),
    "ogbg-molhiv": Known(OGB, 1_049_163, 2_259_376, 9, 2, 32_901, 41_127, "int64", 3, on_disk="csv"),
    "ogbg-molpcba": Known(OGB, 11_386_154, 24_618_372, 9, 128, 350_343, 437_929, "int64", 3, 128, on_disk="csv"),
    "ogbg-molbace": Known("counted", 51_577, 111_536, 9, 2, 1_210, 1_513, "int64", 3, on_disk="csv"),
    "ogbg-molesol": Known("counted", 14_991, 30_856, 9, 1, 902, 1_128, "int64", 3, on_disk="csv"),
    "ogbg-ppa": Known(OGB, 38_466_096, 716_589_176, 0, 37, 78_200, 158_100, "float32", 7, on_disk="csv"),
    "pyg:Planetoid/Cora": Known(PYG, 2_708, 10_556, 1_433, 7, 140),
    "pyg:Planetoid/CiteSeer": Known(PYG, 3_327, 9_104, 3_703, 6, 120),
    "pyg:Planetoid/PubMed": Known(PYG, 19_717, 88_648, 500, 3, 60),
    "pyg:Amazon/Computers": Known(PYG, 13_752, 491_722, 767, 10),
    "pyg:Amazon/Photo": Known(PYG, 7_650, 238_162, 745, 8),
    "pyg:Coauthor/CS": Known(PYG, 18_333, 163_788, 6_805, 15),
    "pyg:Coauthor/Physics": Known(PYG, 34_493, 495_924, 8_415, 5),
    "pyg:Reddit": Known(PYG, 232_965, 114_615_892, 602, 41, 153_431),
    "pyg:Reddit2": Known(PYG, 232_965, 23_213_838, 602, 41, 153_932),
    "pyg:Flickr": Known(PYG, 89_250, 899_756, 500, 7, 44_625),
    "pyg:Yelp": Known(PYG, 716_847, 13_954_819, 300, 100, 537_635, y_columns=100),
    "pyg:AmazonProducts": Known(PYG, 1_569_960, 264_339_468, 200, 107, 1_255_968, y_columns=107),
    "pyg:Actor": Known(PYG, 7_600, 30_019, 932, 5, 3_648),
    "pyg:WikiCS": Known("Mernyei and Cangea, 2020", 11_701, 431_726, 300, 10, 580),
    "pyg:WebKB/Cornell": Known(PYG, 183, 298, 1_703, 5, 87),
    "pyg:WebKB/Texas": Known(PYG, 183, 325, 1_703, 5, 87),
    "pyg:WebKB/Wisconsin": Known(PYG, 251, 515, 1_703, 5, 120),
    "pyg:HeterophilousGraphDataset/Roman-empire": Known(PYG, 22_662, 65_854, 300, 18, 11_331),
    "pyg:HeterophilousGraphDataset/Amazon-ratings": Known(PYG, 24_492, 186_100, 300, 5, 12_246),
    "pyg:HeterophilousGraphDataset/Minesweeper": Known(PYG, 10_000, 78_804, 7, 2, 5_000),
    "pyg:HeterophilousGraphDataset/Tolokers": Known(PYG, 11_758, 1_038_000, 10, 2, 5_879),
    "pyg:HeterophilousGraphDataset/Questions": Known(PYG, 48_921, 307_080, 301, 2, 24_460),
    "pyg:TUDataset/MUTAG": Known("counted", 3_371, 7_442, 7, 2, 0, 188, edge_features=4),
    "pyg:TUDataset/PROTEINS": Known("counted", 43_471, 162_088, 3, 2, 0, 1_113),
    "pyg:TUDataset/ENZYMES": Known("counted", 19_580, 74_564, 3, 6, 0, 600),
    "pyg:TUDataset/IMDB-BINARY": Known("counted", 19_773, 193_062, 0, 2, 0, 1_000),
    "pyg:QM9": Known(PYG, 2_359_210, 4_883_516, 11, 19, 0, 130_831, edge_features=4, y_columns=19),
    "pyg:ZINC": Known(PYG, 5_775_257, 12_438_384, 1, 1, 0, 249_456, "int64", 1),
}


def find_known(name: str) -> tuple[str, Known] | None:
    """The entry of a name as `train` takes it, or of its last part alone, such as `Cora`, whatever its case."""
    lower = {full.lower(): full for full in KNOWN}
    for full in KNOWN:
        if full.startswith("pyg:"):
            lower.setdefault(full.rpartition("/")[2].removeprefix("pyg:").lower(), full)
    full = lower.get(name.lower(), "")
    return (full, KNOWN[full]) if full else None
