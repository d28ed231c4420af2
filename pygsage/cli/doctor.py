"""`pygsage doctor`: what is installed and really loads, which limits are in force, and what to type for the rest."""

from __future__ import annotations

import json
import os
import platform
import sys
import warnings
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from importlib import import_module, metadata
from typing import Any

from pygsage import __version__
from pygsage.cli.parser import parse
from pygsage.config import DoctorConfig
from pygsage.errors import EnvironmentLimitError
from pygsage.memory.machine import Machine, read_machine

# Name on the package index, and what to import; importing ogb would ask the network for its newest version.
REQUIRED = {
    "torch": "torch",
    "torch_geometric": "torch_geometric",
    "numpy": "numpy",
    "torchmetrics": "torchmetrics",
    "scikit-learn": "sklearn",
    "PyYAML": "yaml",
    "safetensors": "safetensors.torch",
    "tqdm": "tqdm",
    "tyro": "tyro",
    "ogb": None,
}
OPTIONAL = {
    "pyg-lib": "pyg_lib",
    "torch-sparse": "torch_sparse",
    "tensorboard": "tensorboard",
    "pymetis": "pymetis",
}


@dataclass(frozen=True)
class Package:
    """What was found of one package: the version that is installed, and the error of its import, None if it loads."""

    version: str | None
    error: str | None

    @property
    def installed(self) -> bool:
        """Whether there is anything of it, working or not."""
        return self.version is not None or (self.error is not None and not self.error.startswith("ModuleNotFound"))


def run(argv: Sequence[str]) -> int:
    """Prints the report; 0 unless something that is required is missing or does not load."""
    config = DoctorConfig(**parse(DoctorConfig, argv, "doctor", {}))
    report = examine()
    print(json.dumps(report) if config.json else "\n".join(lines_of(report)), flush=True)
    return 0 if report["ok"] else EnvironmentLimitError.exit_status


def examine() -> dict[str, Any]:
    """The whole report as plain values; takes seconds, since every package is really imported."""
    required = {name: probe(name, module) for name, module in REQUIRED.items()}
    optional = {name: probe(name, module) for name, module in OPTIONAL.items()}
    broken = [name for name, package in required.items() if package.error is not None]
    devices = {"names": [], "note": "torch does not load"} if "torch" in broken else _devices()
    machine = read_machine()
    sampler = _sampler()
    return {
        "ok": not broken,
        "pygsage": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "sampler": sampler,
        "required": {name: asdict(package) for name, package in required.items()},
        "optional": {name: asdict(package) for name, package in optional.items()},
        "cuda": devices,
        "limits": asdict(machine),
        "advice": [
            *(f"{name} is required: type pip install --upgrade --force-reinstall {name}" for name in broken),
            *_sampler_advice(sampler),
            *_optional_advice(optional, required["torch"].version),
            *_machine_advice(machine),
        ],
    }


def probe(name: str, module: str | None) -> Package:
    """Looks a package up and imports it; with no module to import, its presence is all that is asked."""
    try:
        version: str | None = metadata.version(name)
    except metadata.PackageNotFoundError:
        version = None
    if module is None:
        return Package(version, None if version else f"PackageNotFoundError: {name} is not installed")
    try:
        with warnings.catch_warnings(), redirect_stdout(sys.stderr):
            warnings.simplefilter("ignore")
            loaded = import_module(module)
    except Exception as error:  # a wheel for another torch raises OSError, an old one about anything
        return Package(version, f"{type(error).__name__}: {' '.join(str(error).split())}")
    return Package(version or getattr(loaded, "__version__", None), None)


def _sampler() -> dict[str, str]:
    from pygsage import native

    if native.core is not None:
        return {"name": "native", "reason": "the C++ core was built and loads"}
    return {"name": "reference", "reason": f"the C++ core is not in use: {native.load_error}"}


def _devices() -> dict[str, Any]:
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an old driver warns, and is reported below
        names = [
            f"cuda:{i} {torch.cuda.get_device_name(i)}, {_size(torch.cuda.get_device_properties(i).total_memory)}"
            for i in range(torch.cuda.device_count())
        ]
    if names:
        return {"names": names, "note": f"CUDA {torch.version.cuda}"}
    if torch.version.cuda is None:
        note = "none: this torch was built without CUDA"
        if os.path.exists("/dev/nvidia0"):
            note += ", though there is an NVIDIA GPU; see https://pytorch.org/get-started for the build that uses it"
        return {"names": [], "note": note}
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    reason = f"CUDA_VISIBLE_DEVICES is {hidden!r}" if hidden is not None else "no NVIDIA driver, or one too old"
    return {"names": [], "note": f"none visible to torch for CUDA {torch.version.cuda}: {reason}"}


def _sampler_advice(sampler: dict[str, str]) -> list[str]:
    if sampler["name"] == "native":
        return []
    cure = (
        "install a C++17 compiler (apt install g++) and type, in the clone: pip install --force-reinstall --no-deps ."
    )
    return [f"the reference sampler gives the same batches, slowly; for the native one {cure}"]


def _optional_advice(optional: dict[str, Package], torch_version: str | None) -> list[str]:
    advice = []
    for name, package in optional.items():
        if package.error is None or not package.installed:
            continue
        if name in ("tensorboard", "pymetis"):
            advice.append(f"{name} does not load: type pip install --upgrade --force-reinstall {name}")
            continue
        advice.append(
            f"{name} {package.version or '(version unknown)'} does not load with torch {torch_version}. pygsage does "
            f"without it, but torch_geometric tries it: type pip uninstall {name}, or install the wheel made for this "
            f"torch: pip install --force-reinstall --no-deps {name} -f {_wheels(torch_version)}"
        )
    return advice


def _wheels(torch_version: str | None) -> str:
    """Where PyG keeps the wheels for a torch such as 2.13.0+cpu."""
    number, _, build = (torch_version or "").partition("+")
    if not build and "torch" in sys.modules:
        cuda = sys.modules["torch"].version.cuda
        build = f"cu{cuda.replace('.', '')}" if cuda else "cpu"
    release = ".".join(number.split(".")[:2])
    return f"https://data.pyg.org/whl/torch-{release}.0+{build}.html"


def _machine_advice(machine: Machine) -> list[str]:
    advice = []
    if machine.open_files_soft is not None and machine.open_files_soft < 1024:
        advice.append(f"only {machine.open_files_soft} files may be open at a time: type ulimit -n 4096")
    if machine.shm_total_bytes is not None and machine.shm_total_bytes < 1 << 30:
        advice.append(
            f"/dev/shm has {_size(machine.shm_total_bytes)}: pygsage train does not need it, but PyG's loaders with "
            "num_workers do; in Docker add --shm-size=8g"
        )
    return advice


def lines_of(report: dict[str, Any]) -> list[str]:
    """The report for people."""
    limits = Machine(**report["limits"])
    lines = [
        f"pygsage {report['pygsage']}, Python {report['python']}, {report['system']}",
        f"sampler: {report['sampler']['name']} ({report['sampler']['reason']})",
        "",
        "required packages",
    ]
    lines += [_package_line(name, **package) for name, package in report["required"].items()]
    lines += ["", "optional packages"]
    lines += [_package_line(name, **package, optional=True) for name, package in report["optional"].items()]
    lines += ["", f"GPUs: {report['cuda']['note']}"]
    lines += [f"  {name}" for name in report["cuda"]["names"]]
    soft, hard = (n if n is not None else "no limit" for n in (limits.open_files_soft, limits.open_files_hard))
    lines += [
        "",
        "limits in force",
        f"  cores       {limits.num_cores} of {limits.num_cores_of_host} ({limits.cores_source})",
        f"  memory      {_size(limits.memory_limit_bytes)} ({limits.memory_limit_source})",
        f"  available   {_size(limits.memory_available_bytes)} ({limits.memory_available_source})",
        f"  /dev/shm    {_size(limits.shm_free_bytes)} free of {_size(limits.shm_total_bytes)}",
        f"  open files  {soft} (can be raised to {hard})",
        f"  disk        {_size(limits.disk_free_bytes)} free in {limits.disk_folder}",
    ]
    if report["advice"]:
        lines += ["", "to do", *(f"  - {advice}" for advice in report["advice"])]
    lines += ["", "ready." if report["ok"] else "not ready: a required package is missing or does not load."]
    return lines


def _package_line(name: str, version: str | None, error: str | None, optional: bool = False) -> str:
    package = Package(version, error)
    if optional and not package.installed:
        return f"  {name:<16} not installed, not needed"
    state = "" if error is None else f"  DOES NOT LOAD: {error}"
    return f"  {name:<16} {version or 'version unknown'}{state}"


def _size(num_bytes: int | None) -> str:
    if num_bytes is None:
        return "unknown"
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if num_bytes >= factor:
            return f"{num_bytes / factor:.1f} {unit}"
    return f"{num_bytes / 1024:.1f} KiB"
