"""The plan of the house: imports go one way, names that promise nothing do not exist, files stay readable."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import pygsage

ROOT = Path(pygsage.__file__).parent
# From left to right: a room imports from itself and from rooms to its left.
ORDER = (
    ("errors",),
    ("spelling",),
    ("config",),
    ("launched", "connections", "attempts"),
    ("awaited",),
    ("memory", "devices", "distributed", "native"),
    ("data",),
    ("sampling",),
    ("nn",),
    ("training",),
    ("cli",),
)
RANK = {room: number for number, rooms in enumerate(ORDER) for room in rooms}
# The same inside the largest room.
DATA_ORDER = (
    ("names", "foreign", "recipe", "ogb_package"),
    ("files",),
    ("one_graph",),
    ("store",),
    ("many_graphs",),
    ("sources",),
    ("sampled",),
    ("storage",),
    ("open",),
    ("open_many",),
    ("memory",),
)
DATA_RANK = {room: number for number, rooms in enumerate(DATA_ORDER) for room in rooms}
STANDARD_LIBRARY_ONLY = ("errors", "spelling", "config", "launched", "connections", "attempts", "awaited", "memory")
MODULES = sorted(path for path in ROOT.rglob("*.py") if path.parent != ROOT or path.stem in RANK)


def _room(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").parts[0]


def _imports(path: Path) -> list[tuple[str, bool]]:
    """Every module that a file imports, and whether it does so when it is loaded."""
    found = []
    tree = ast.parse(path.read_text())
    top = {id(node) for node in tree.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, id(node) in top) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            found.append((node.module or "", id(node) in top))
            if node.module == "pygsage":
                found += [(f"pygsage.{alias.name}", id(node) in top) for alias in node.names]
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_one_way(path: Path) -> None:
    here = _room(path)
    assert here in RANK, f"{here} is no room of the plan"
    for module, _ in _imports(path):
        parts = module.split(".")
        if parts[0] == "pygsage" and len(parts) > 1 and parts[1] in RANK:
            there = parts[1]
            assert RANK[there] < RANK[here] or there == here, f"{path.name} ({here}) imports {module}"


@pytest.mark.parametrize(
    "path",
    [p for p in MODULES if _room(p) == "data" and p != ROOT / "data" / "__init__.py"],
    ids=lambda path: path.stem,
)
def test_imports_go_one_way_in_data(path: Path) -> None:
    here = path.relative_to(ROOT).with_suffix("").parts[1]
    for module, _ in _imports(path):
        parts = module.split(".")
        if parts[:2] == ["pygsage", "data"] and len(parts) > 2:
            there = parts[2]
            assert DATA_RANK[there] < DATA_RANK[here] or there == here, f"{path.name} ({here}) imports {module}"


@pytest.mark.parametrize("path", [p for p in MODULES if _room(p) in STANDARD_LIBRARY_ONLY], ids=lambda path: path.stem)
def test_the_left_rooms_need_the_standard_library_only(path: Path) -> None:
    for module, at_load in _imports(path):
        top = module.split(".")[0]
        allowed = top == "pygsage" or top in sys.stdlib_module_names or (top == "yaml" and not at_load)
        assert allowed, f"{path.name} imports {module}"


def test_no_drawers() -> None:
    for path in ROOT.rglob("*"):
        assert path.stem not in {"util", "utils", "helper", "helpers", "common", "misc"}, path


def test_files_are_short_enough_to_read() -> None:
    long = {str(p.relative_to(ROOT)): n for p in ROOT.rglob("*.py") if (n := len(p.read_text().splitlines())) > 400}
    assert not long


def test_public_names_are_these_and_resolve() -> None:
    assert pygsage.__all__ == [
        "__version__",
        "ConfigError",
        "DatasetError",
        "DistributedSeedSampler",
        "EnvironmentLimitError",
        "GraphSAGE",
        "InMemoryGraphs",
        "NeighborLoader",
        "NeighborSampler",
        "OnDiskGraphs",
        "PygsageError",
        "Recipe",
        "RunError",
        "Stopped",
        "TrainConfig",
        "TrainResult",
        "TrainingError",
        "estimate_memory",
        "layerwise_inference",
        "open_dataset",
        "predict",
        "to_on_disk_dataset",
        "train",
    ]
    for name in pygsage.__all__:
        assert getattr(pygsage, name) is not None
    assert set(pygsage.__all__) <= set(dir(pygsage))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        pygsage.nonsense  # noqa: B018


@pytest.mark.parametrize("name", [n for n in pygsage.__all__ if n != "__version__"])
def test_public_names_are_documented(name: str) -> None:
    public = getattr(pygsage, name)
    assert (public.__doc__ or "").strip()
    members = [m for m in vars(public).values() if callable(m)] if isinstance(public, type) else []
    for member in members:
        if getattr(member, "__module__", "").startswith("pygsage") and not member.__name__.startswith("_"):
            assert (member.__doc__ or "").strip(), f"{name}.{member.__name__} has no docstring"


def test_importing_the_package_loads_no_torch_and_changes_no_setting() -> None:
    code = "import sys, pygsage; assert not {'torch', 'numpy', 'yaml'} & set(sys.modules), sorted(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_top_level_is_as_planned() -> None:
    top = ROOT.parent
    listed = subprocess.run(["git", "ls-files"], cwd=top, capture_output=True, text=True)
    if listed.returncode != 0 or not listed.stdout:
        pytest.skip("not a git checkout")
    names = {line.split("/")[0] for line in listed.stdout.splitlines()}
    assert {n for n in names if not n.startswith(".")} == {
        "LICENSE", "README.md", "datasets", "pygsage", "pyproject.toml", "tests", "tools"
    }  # fmt: skip
    assert not list((top / "datasets").rglob("__init__.py"))
