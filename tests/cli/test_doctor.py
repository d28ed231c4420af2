from __future__ import annotations

import json
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from pygsage import native
from pygsage.cli import doctor
from pygsage.memory.machine import read_machine

UNDEFINED = "undefined symbol: _ZN3c106detail14torchCheckFail"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of fake packages that is searched first."""
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("pyg_lib", "torch_sparse", "tensorboard"):
        monkeypatch.setitem(sys.modules, name, None)  # so that what is loaded meanwhile is taken out again
        del sys.modules[name]
    return tmp_path


def install(site: Path, name: str, module: str, version: str, code: str) -> None:
    info = site / f"{module}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (site / module).mkdir()
    (site / module / "__init__.py").write_text(code)


def report_of(capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    status = doctor.run(["--json"])
    return status, json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.mark.usefixtures("site")
def test_a_sound_machine(capsys: pytest.CaptureFixture[str]) -> None:
    status, report = report_of(capsys)
    assert status == 0
    assert report["ok"]
    assert report["required"]["torch"] == {"version": metadata.version("torch"), "error": None}
    assert report["required"]["ogb"]["version"] == metadata.version("ogb")
    assert report["limits"]["num_cores"] == read_machine().num_cores
    assert doctor.run([]) == 0
    text = capsys.readouterr().out
    for word in ("sampler: ", "torch_geometric", "cores", "memory", "/dev/shm", "open files", "disk", "GPUs: "):
        assert word in text
    assert text.splitlines()[-1] == "ready."


@pytest.mark.usefixtures("site")
def test_c129_without_pyg_lib_nothing_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pyg_lib", "torch_sparse", "tensorboard"):
        monkeypatch.setitem(sys.modules, name, None)  # as if not installed, wherever this runs
    real = metadata.version

    def version(name: str) -> str:
        if name in doctor.OPTIONAL:
            raise metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(metadata, "version", version)
    status, report = report_of(capsys)
    assert status == 0
    assert not any("pyg-lib" in line for line in report["advice"])
    assert "pyg-lib          not installed, not needed" in "\n".join(doctor.lines_of(report))


def test_c131_a_wheel_for_another_torch_is_named_with_its_error(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install(site, "pyg-lib", "pyg_lib", "0.4.0+pt25cu124", f"raise OSError('libpyg.so: {UNDEFINED}')")
    install(site, "torch_sparse", "torch_sparse", "0.6.18", "")
    status, report = report_of(capsys)
    assert status == 0  # nothing that is required
    assert report["optional"]["pyg-lib"] == {
        "version": "0.4.0+pt25cu124",
        "error": f"OSError: libpyg.so: {UNDEFINED}",
    }
    assert report["optional"]["torch-sparse"] == {"version": "0.6.18", "error": None}
    text = "\n".join(doctor.lines_of(report))
    assert UNDEFINED in text
    (advice,) = [line for line in report["advice"] if line.startswith("pyg-lib")]
    assert "0.4.0+pt25cu124 does not load with torch " + metadata.version("torch") in advice
    assert "pip uninstall pyg-lib" in advice
    assert "https://data.pyg.org/whl/torch-" in advice


def test_a_required_package_that_does_not_load(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torchmetrics", None)
    status, report = report_of(capsys)
    assert status == 2
    assert not report["ok"]
    assert any("pip install" in line and "torchmetrics" in line for line in report["advice"])
    assert "not ready" in doctor.lines_of(report)[-1]


def test_the_reference_sampler_and_why(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "core", None)
    monkeypatch.setattr(native, "load_error", "it was not built")
    status, report = report_of(capsys)
    assert status == 0
    assert report["sampler"]["name"] == "reference"
    assert "it was not built" in report["sampler"]["reason"]
    assert any("compiler" in line for line in report["advice"])
    monkeypatch.setattr(native, "core", native)
    assert report_of(capsys)[1]["sampler"]["name"] == "native"


def test_where_the_wheels_are() -> None:
    assert doctor._wheels("2.13.1+cu130") == "https://data.pyg.org/whl/torch-2.13.0+cu130.html"
    assert doctor._wheels("2.6.0+cpu") == "https://data.pyg.org/whl/torch-2.6.0+cpu.html"


def test_small_limits_have_advice() -> None:
    from dataclasses import replace

    small = replace(read_machine(), open_files_soft=256, shm_total_bytes=64 << 20)
    advice = doctor._machine_advice(small)
    assert any("ulimit -n" in line for line in advice)
    assert any("64.0 MiB" in line for line in advice)
