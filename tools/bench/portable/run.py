"""Compiles the native core, without its Python binding, for another processor or by another compiler, and tests it.

`python tools/bench/portable/run.py` uses g++; for 64-bit ARM, with `pip install ziglang` and qemu-user-static:

    python tools/bench/portable/run.py --compiler "python -m ziglang c++ -target aarch64-linux-musl -static" \\
        --machine aarch64 --through qemu-aarch64-static

Every set of instructions is compared with plain arithmetic, and the digest of what was drawn is the same everywhere.
`--flags -fsanitize=thread` and the like are passed on.
"""

from __future__ import annotations

import argparse
import platform
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
NATIVE = HERE.parents[2] / "pygsage/native"
WARNINGS = ["-Wall", "-Wextra"]
# As native/CMakeLists.txt has them.
X86 = {
    "avx2": ["-mavx2", "-mfma", "-mf16c"],
    "avx512": [
        *("-Wno-uninitialized", "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma", "-mf16c"),
    ],
}


def main() -> None:
    """Exits with the status of the check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--machine", default=platform.machine(), help="x86_64 has AVX2 and AVX-512 compiled as well")
    parser.add_argument("--through", default="", help="what runs a program of that machine")
    parser.add_argument("--flags", default="")
    asked = parser.parse_args()
    compiler, flags = [*shlex.split(asked.compiler), "-std=c++17"], shlex.split(asked.flags)
    isas = {"plain": [], **(X86 if asked.machine == "x86_64" else {})}
    with tempfile.TemporaryDirectory() as folder:
        objects = []
        for isa, own in isas.items():
            made = [f"-DPYGSAGE_KERNELS={isa}_kernels", f'-DPYGSAGE_ISA="{isa}"']
            objects.append(f"{folder}/{isa}.o")
            if asked.compiler == "g++" and own:
                own = [*own, "-Wno-maybe-uninitialized"]
            subprocess.run(
                [
                    *compiler,
                    "-O2",
                    *WARNINGS,
                    *flags,
                    *made,
                    *own,
                    "-c",
                    str(NATIVE / "kernels.cpp"),
                    "-o",
                    objects[-1],
                ],
                check=True,
            )
        x86 = ["-DPYGSAGE_X86_KERNELS"] if len(isas) > 1 else []
        program = f"{folder}/check"
        parts = ["-I", str(NATIVE), str(HERE / "check.cpp"), *objects, "-o", program]
        subprocess.run([*compiler, "-O3", *WARNINGS, "-Wconversion", *flags, *x86, "-pthread", *parts], check=True)
        sys.exit(subprocess.run([*shlex.split(asked.through), program]).returncode)


if __name__ == "__main__":
    main()
