"""What the machine has and what this process may use of it: cores, memory, /dev/shm, open files, disk.

In a container the host's figures are far above what a job may use, so the limits of the process's control groups
(cgroup v1 and v2) are read at every level from the process's own group up to the mount.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# cgroup v1 writes LONG_MAX rounded down to a page, such as 9223372036854771712, where there is no limit.
_NO_LIMIT = 1 << 60


@dataclass(frozen=True)
class Machine:
    """What this process may use. A `_source` says where a number came from; None is unknown or, for limits, none.

    Attributes:
        num_cores: Cores that may be used, at least 1: the smaller of affinity and the cgroups' quotas, rounded down.
        cores_source: Which of them it was.
        num_cores_of_host: Cores of the whole machine.
        memory_limit_bytes: The smallest limit: RAM, cgroups, ulimit.
        memory_limit_source: Which of them it was.
        memory_available_bytes: What can still be taken before the first of the limits is met. Page cache counts as
            available, since the kernel drops it when it must.
        memory_available_source: Which limit would be met first.
        memory_of_host_bytes: RAM of the whole machine.
        shm_total_bytes: Size of /dev/shm.
        shm_free_bytes: Free space in /dev/shm.
        open_files_soft: Files that a process may have open.
        open_files_hard: What a process may raise that number to.
        disk_folder: Where the disk was measured: the folder, or the nearest one above it that exists.
        disk_free_bytes: Free space there, for this user.
    """

    num_cores: int
    cores_source: str
    num_cores_of_host: int
    memory_limit_bytes: int | None
    memory_limit_source: str
    memory_available_bytes: int | None
    memory_available_source: str
    memory_of_host_bytes: int | None
    shm_total_bytes: int | None
    shm_free_bytes: int | None
    open_files_soft: int | None
    open_files_hard: int | None
    disk_folder: str
    disk_free_bytes: int | None


@dataclass(frozen=True)
class _Bound:
    limit_bytes: int
    available_bytes: int
    source: str


def read_machine(root: Path = Path("/"), folder: str | Path = ".") -> Machine:
    """Reads the limits in force now; takes about a millisecond.

    Args:
        root: Where /proc, /sys and /dev are looked for.
        folder: A folder, not necessarily there yet, whose disk is asked for free space.

    Files that are missing, unreadable or malformed are passed over: what they would say counts as no limit.
    """
    num_cores, cores_source = _cores(root)
    bounds = list(_memory_bounds(root))
    limit = min(bounds, key=lambda b: b.limit_bytes, default=None)
    available = min(bounds, key=lambda b: b.available_bytes, default=None)
    meminfo = _meminfo(root)
    soft, hard = _open_files()
    disk = _nearest_folder(Path(folder))
    shm = _disk_usage(root / "dev/shm")
    return Machine(
        num_cores=num_cores,
        cores_source=cores_source,
        num_cores_of_host=os.cpu_count() or 1,
        memory_limit_bytes=limit.limit_bytes if limit else None,
        memory_limit_source=limit.source if limit else "unknown",
        memory_available_bytes=available.available_bytes if available else None,
        memory_available_source=available.source if available else "unknown",
        memory_of_host_bytes=meminfo.get("MemTotal"),
        shm_total_bytes=shm[0] if shm else None,
        shm_free_bytes=shm[1] if shm else None,
        open_files_soft=soft,
        open_files_hard=hard,
        disk_folder=str(disk),
        disk_free_bytes=(_disk_usage(disk) or (0, None))[1],
    )


def _cores(root: Path) -> tuple[int, str]:
    host = os.cpu_count() or 1
    # Not every system has affinity, and psutil or os.cpu_count know none.
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else host
    source = "CPU affinity" if usable < host else "cores of the machine"
    for group in _groups(root, "cpu"):
        if group.version == 2:
            words = (_text(group.folder / "cpu.max") or "").split()
            name = "cpu.max"
        else:
            words = [_text(group.folder / f"cpu.cfs_{part}_us") or "" for part in ("quota", "period")]
            name = "cpu.cfs_quota_us"
        quota, period = map(_integer, words) if len(words) == 2 else (None, None)
        if quota and period and quota > 0 and period > 0 and max(1, quota // period) < usable:
            usable = max(1, quota // period)
            source = f"cgroup v{group.version} {group.folder / name}"
    return usable, source


def _memory_bounds(root: Path) -> Iterator[_Bound]:
    meminfo = _meminfo(root)
    if "MemTotal" in meminfo:
        # Kernels before 3.14 have no MemAvailable.
        rest = sum(meminfo.get(name, 0) for name in ("MemFree", "Buffers", "Cached"))
        yield _Bound(meminfo["MemTotal"], meminfo.get("MemAvailable", rest), "RAM of the machine (/proc/meminfo)")
    elif root == Path("/") and "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {}):
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        yield _Bound(total, total, "RAM of the machine (sysconf)")
    for group in _groups(root, "memory"):
        yield from _group_memory_bounds(group)
    yield from _ulimit_bounds(root)


def _group_memory_bounds(group: _Group) -> Iterator[_Bound]:
    folder = group.folder
    stat = _table(folder / "memory.stat")
    names: tuple[str, ...]
    if group.version == 2:
        # Above memory.high a group is throttled until it stands still: a limit in all but name.
        names, usage_name, prefix = ("memory.max", "memory.high"), "memory.current", ""
    else:
        names, usage_name, prefix = ("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_"
    usage = _integer(_text(folder / usage_name) or "") or 0
    cache = stat.get(prefix + "inactive_file", 0) + stat.get(prefix + "active_file", 0)
    held = max(0, usage - cache)
    found = [(name, _integer(_text(folder / name) or "")) for name in names]
    if group.version == 1:  # also tells of levels above what a container can see
        found.append(("memory.stat: hierarchical_memory_limit", stat.get("hierarchical_memory_limit")))
    for name, limit in found:
        if limit is not None and 0 <= limit < _NO_LIMIT:
            yield _Bound(limit, max(0, limit - held), f"cgroup v{group.version} {folder / name}")


def _ulimit_bounds(root: Path) -> Iterator[_Bound]:
    try:
        import resource
    except ImportError:  # not on Windows
        return
    words = (_text(root / "proc/self/statm") or "").split()
    pages = [_integer(word) or 0 for word in words] + [0] * 7
    page_bytes = resource.getpagesize()
    for which, held_pages, source in (
        (resource.RLIMIT_AS, pages[0], "ulimit -v (address space)"),
        (resource.RLIMIT_DATA, pages[5], "ulimit -d (data)"),
    ):
        limit, _ = resource.getrlimit(which)
        if limit != resource.RLIM_INFINITY and limit < _NO_LIMIT:
            yield _Bound(limit, max(0, limit - held_pages * page_bytes), source)


@dataclass(frozen=True)
class _Group:
    version: int
    folder: Path


def _groups(root: Path, controller: str) -> Iterator[_Group]:
    """The process's control groups for a controller, from its own up to the mount, of both versions."""
    own = _own_groups(root, controller)
    for version, mount_root, mount in _mounts(root, controller):
        path = own.get(version, "/")
        # In a container the mount often shows only a part of the tree: the part that begins at mount_root.
        inside = path == mount_root or path.startswith(mount_root.rstrip("/") + "/")
        below = path[len(mount_root.rstrip("/")) :] if inside else path
        parts = [part for part in below.split("/") if part]
        if ".." in parts:  # a group outside of this namespace
            parts = []
        for depth in range(len(parts), -1, -1):
            yield _Group(version, mount.joinpath(*parts[:depth]))


def _own_groups(root: Path, controller: str) -> dict[int, str]:
    """Path of the process's group by version, from lines such as `4:cpu,cpuacct:/job` and `0::/job`."""
    own = {}
    for line in (_text(root / "proc/self/cgroup") or "").splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            if parts[0] == "0" and not parts[1]:
                own[2] = parts[2]
            elif controller in parts[1].split(","):
                own[1] = parts[2]
    return own


def _mounts(root: Path, controller: str) -> list[tuple[int, str, Path]]:
    """Where the controller's hierarchies are mounted: version, which part of the tree is seen, mount point."""
    found = []
    for line in (_text(root / "proc/self/mountinfo") or "").splitlines():
        before, _, after = line.partition(" - ")
        left, right = before.split(), after.split()
        if len(left) < 5 or len(right) < 3:
            continue
        point = root / _unescaped(left[4]).lstrip("/")
        if right[0] == "cgroup2":
            found.append((2, _unescaped(left[3]), point))
        elif right[0] == "cgroup" and controller in right[2].split(","):
            found.append((1, _unescaped(left[3]), point))
    if not found:  # no mountinfo: the usual places
        usual = root / "sys/fs/cgroup"
        found = [(2, "/", usual), (1, "/", usual / controller)]
    return found


def _unescaped(word: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), word)


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _integer(text: str) -> int | None:
    """None for `max`, for nothing, and for what is no number."""
    try:
        return int(text)
    except ValueError:
        return None


def _table(path: Path) -> dict[str, int]:
    """Lines of `name number`."""
    pairs = (line.split() for line in (_text(path) or "").splitlines())
    values = {pair[0]: _integer(pair[1]) for pair in pairs if len(pair) == 2}
    return {name: value for name, value in values.items() if value is not None}


def _meminfo(root: Path) -> dict[str, int]:
    """/proc/meminfo in bytes."""
    found = re.findall(r"^(\w+):\s+(\d+) kB", _text(root / "proc/meminfo") or "", re.MULTILINE)
    return {name: int(kib) * 1024 for name, kib in found}


def _open_files() -> tuple[int | None, int | None]:
    try:
        import resource
    except ImportError:  # not on Windows
        return None, None
    soft, hard = (None if n == resource.RLIM_INFINITY else n for n in resource.getrlimit(resource.RLIMIT_NOFILE))
    return soft, hard


def _nearest_folder(folder: Path) -> Path:
    folder = folder.absolute()
    return next((each for each in (folder, *folder.parents) if os.path.isdir(each)), folder)


def _disk_usage(folder: Path) -> tuple[int, int] | None:
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return None
    return usage.total, usage.free
