from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pygsage.memory.machine import Machine, read_machine

MIB = 1 << 20
GIB = 1 << 30
NO_LIMIT_V1 = "9223372036854771712"
V2 = "31 23 0:28 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate"
V1_MEMORY = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory"
V1_CPU = "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct"

Tree = Callable[..., Path]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Writes files of a machine with 64 GiB of memory, 60 of them available."""

    def write(cgroup: str = "0::/", mountinfo: str = V2, **files: str | int) -> Path:
        texts = {
            "proc/meminfo": f"MemTotal: {64 * MIB} kB\nMemFree: {MIB} kB\nMemAvailable:   {60 * MIB} kB\n",
            "proc/self/cgroup": cgroup + "\n",
            "proc/self/mountinfo": mountinfo + "\n",
            **{name.replace("__", "."): str(text) + "\n" for name, text in files.items()},
        }
        for name, text in texts.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write


def v2(folder: str, **files: str | int) -> dict[str, str | int]:
    return {f"sys/fs/cgroup{folder}/{name.replace('_', '.')}": text for name, text in files.items()}


def memory(root: Path) -> tuple[int | None, int | None]:
    machine = read_machine(root)
    return machine.memory_limit_bytes, machine.memory_available_bytes


def test_without_limits_the_host_counts(tree: Tree) -> None:
    machine = read_machine(tree())
    assert (machine.memory_limit_bytes, machine.memory_available_bytes) == (64 * GIB, 60 * GIB)
    assert "meminfo" in machine.memory_limit_source
    assert "meminfo" in machine.memory_available_source
    assert machine.memory_of_host_bytes == 64 * GIB


def test_c004_version_2_group_in_a_large_host(tree: Tree) -> None:
    root = tree(**v2("", memory_max=512 * MIB, memory_current=400 * MIB))
    machine = read_machine(root)
    assert (machine.memory_limit_bytes, machine.memory_available_bytes) == (512 * MIB, 112 * MIB)
    assert machine.memory_limit_source.startswith("cgroup v2")
    assert machine.memory_limit_source.endswith("sys/fs/cgroup/memory.max")


def test_c004_the_tightest_of_all_parents_counts(tree: Tree) -> None:
    root = tree(
        "0::/kubepods/pod7/job",
        **v2("/kubepods/pod7/job", memory_max="max", memory_current=MIB),
        **v2("/kubepods/pod7", memory_max=8 * GIB, memory_current=GIB),
        **v2("/kubepods", memory_max=32 * GIB, memory_current=31 * GIB),
    )
    machine = read_machine(root)
    assert machine.memory_limit_bytes == 8 * GIB
    assert machine.memory_limit_source.endswith("pod7/memory.max")
    assert machine.memory_available_bytes == GIB  # its siblings hold the rest of the parent's
    assert machine.memory_available_source.endswith("kubepods/memory.max")


def test_c004_version_1_group_and_its_parent(tree: Tree) -> None:
    folder = "sys/fs/cgroup/memory"
    root = tree(
        "4:memory:/docker/job\n0::/",
        V1_MEMORY,
        **{
            f"{folder}/docker/job/memory.limit_in_bytes": NO_LIMIT_V1,
            f"{folder}/docker/job/memory.usage_in_bytes": GIB,
            f"{folder}/docker/memory.limit_in_bytes": 4 * GIB,
            f"{folder}/docker/memory.usage_in_bytes": 3 * GIB,
            f"{folder}/memory.limit_in_bytes": NO_LIMIT_V1,
        },
    )
    assert memory(root) == (4 * GIB, GIB)
    assert read_machine(root).memory_limit_source.startswith("cgroup v1")


def test_version_1_tells_of_parents_that_a_container_cannot_see(tree: Tree) -> None:
    folder = "sys/fs/cgroup/memory"
    root = tree(
        "4:memory:/docker/job",
        V1_MEMORY.replace(" / /sys", " /docker/job /sys"),
        **{
            f"{folder}/memory.limit_in_bytes": NO_LIMIT_V1,
            f"{folder}/memory.usage_in_bytes": GIB,
            f"{folder}/memory.stat": f"hierarchical_memory_limit {6 * GIB}\ntotal_inactive_file {GIB // 2}",
        },
    )
    assert memory(root) == (6 * GIB, 5 * GIB + GIB // 2)


def test_page_cache_is_available(tree: Tree) -> None:
    stat = f"anon {GIB}\ninactive_file {2 * GIB}\nactive_file {GIB}\nfile {4 * GIB}"
    root = tree(**v2("", memory_max=5 * GIB, memory_current=5 * GIB, memory_stat=stat))
    assert memory(root) == (5 * GIB, 3 * GIB)


def test_the_throttle_of_version_2_is_a_limit(tree: Tree) -> None:
    root = tree(**v2("", memory_max="max", memory_high=2 * GIB, memory_current=GIB))
    assert memory(root) == (2 * GIB, GIB)


@pytest.mark.parametrize("text", ["max", NO_LIMIT_V1, "9223372036854710272", "", "not a number"])
def test_c005_no_limit_in_every_spelling(tree: Tree, text: str) -> None:
    assert memory(tree(**v2("", memory_max=text))) == (64 * GIB, 60 * GIB)
    files = {"sys/fs/cgroup/memory/memory.limit_in_bytes": text}
    assert memory(tree("4:memory:/", V1_MEMORY, **files)) == (64 * GIB, 60 * GIB)


def test_c005_missing_and_unreadable_files(tree: Tree) -> None:
    root = tree("0::/gone/away", **v2("", memory_max=GIB))  # the own group's folder is not visible
    assert memory(root) == (GIB, GIB)
    (root / "sys/fs/cgroup/memory.max").unlink()
    (root / "sys/fs/cgroup/memory.max").mkdir()  # reading it fails, even for root
    assert memory(root) == (64 * GIB, 60 * GIB)
    (root / "proc/meminfo").unlink()
    machine = read_machine(root)
    assert machine.memory_limit_bytes is None
    assert machine.memory_limit_source == "unknown"
    machine = read_machine(root / "nothing")
    assert machine.memory_available_bytes is None
    assert machine.shm_free_bytes is None
    assert machine.num_cores >= 1


def test_no_mountinfo_means_the_usual_places(tree: Tree) -> None:
    root = tree("0::/job", "", **v2("/job", memory_max=GIB))
    assert memory(root) == (GIB, GIB)
    root = tree("4:memory:/job", "", **{"sys/fs/cgroup/memory/job/memory.limit_in_bytes": GIB // 2})
    assert memory(root) == (GIB // 2, GIB // 2)


def test_a_group_outside_of_the_namespace_and_a_mount_with_a_space(tree: Tree) -> None:
    root = tree("0::/../../other", **v2("", memory_max=GIB))
    assert memory(root) == (GIB, GIB)
    files = {"mnt/my groups/job/memory.max": 2 * GIB}
    root = tree("0::/job", r"31 23 0:28 / /mnt/my\040groups rw - cgroup2 none rw", **files)
    assert memory(root) == (2 * GIB, 2 * GIB)


def test_a_kernel_without_available_memory(tree: Tree) -> None:
    root = tree()
    (root / "proc/meminfo").write_text("MemTotal: 4096 kB\nMemFree: 1024 kB\nBuffers: 512 kB\nCached: 256 kB\n")
    assert memory(root) == (4 * MIB, 1792 * 1024)


@pytest.fixture
def _cores_64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)


def cores(root: Path) -> tuple[int, str]:
    machine = read_machine(root)
    return machine.num_cores, machine.cores_source


@pytest.mark.usefixtures("_cores_64")
def test_c115_affinity_not_the_number_of_cores(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cores(tree()) == (64, "cores of the machine")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 9})
    assert cores(tree()) == (2, "CPU affinity")
    assert read_machine(tree()).num_cores_of_host == 64


@pytest.mark.usefixtures("_cores_64")
@pytest.mark.parametrize(
    ("quota", "expected"), [("max 100000", 64), ("250000 100000", 2), ("50000 100000", 1), ("", 64), ("max", 64)]
)
def test_c115_quota_of_version_2(tree: Tree, quota: str, expected: int) -> None:
    root = tree("0::/a/b", **v2("/a/b", cpu_max="max 100000"), **v2("/a", cpu_max=quota))
    found, source = cores(root)
    assert found == expected
    assert ("cpu.max" in source) == (expected < 64)


@pytest.mark.usefixtures("_cores_64")
@pytest.mark.parametrize(("quota", "expected"), [(-1, 64), (400_000, 4)])
def test_c115_quota_of_version_1(tree: Tree, quota: int, expected: int) -> None:
    folder = "sys/fs/cgroup/cpu,cpuacct/job"
    files = {f"{folder}/cpu.cfs_quota_us": quota, f"{folder}/cpu.cfs_period_us": 100_000}
    found, source = cores(tree("3:cpu,cpuacct:/job/child", V1_CPU, **files))
    assert found == expected
    assert ("cgroup v1" in source) == (expected < 64)


def test_limits_of_the_process(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {resource.RLIMIT_AS: 2 * GIB, resource.RLIMIT_NOFILE: 256}
    infinite = resource.RLIM_INFINITY
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limits.get(which, infinite), infinite))
    machine = read_machine(tree(**{"proc/self/statm": "1024 10 5 1 0 100 0"}))
    assert machine.memory_limit_bytes == 2 * GIB
    assert machine.memory_limit_source.startswith("ulimit -v")
    assert machine.memory_available_bytes == 2 * GIB - 1024 * resource.getpagesize()
    assert (machine.open_files_soft, machine.open_files_hard) == (256, None)


def test_disk_of_a_folder_that_is_not_there_yet(tree: Tree, tmp_path: Path) -> None:
    machine = read_machine(tree(), tmp_path / "not" / "there")
    assert machine.disk_folder == str(tmp_path)
    assert machine.disk_free_bytes is not None
    assert machine.disk_free_bytes > 0


def test_this_machine_and_no_import_but_the_standard_library() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pygsage.memory.machine import read_machine\n"
        "print(repr(read_machine()))\n"
        "outside = {m.partition('.')[0] for m in sys.modules} - sys.stdlib_module_names\n"
        "assert outside <= {'pygsage', '__main__', 'sitecustomize', 'usercustomize'} , outside"
    )
    import pygsage

    root = str(Path(pygsage.__file__).parent.parent)
    done = subprocess.run([sys.executable, "-S", "-c", code, root], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Machine(num_cores=")
    machine = read_machine()
    assert isinstance(machine, Machine)
    assert 1 <= machine.num_cores <= machine.num_cores_of_host
