"""Repeats the tests of `tests/faults`, where each fault is injected into real processes, and counts.

    ./tools/soak --faults --repetitions 20 [--only WORDS]

Every test has to pass every time, each within a minute (they fail by themselves when something hangs). One line a
test that was not always passed, and a summary; exit status 1 when there is any.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).parents[2]


def main() -> int:
    """Prints the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--only", default="", help="as pytest -k")
    options = parser.parse_args()
    outcomes: dict[str, Counter[str]] = {}
    longest: dict[str, float] = {}
    for number in range(options.repetitions):
        began = time.monotonic()
        for name, outcome, seconds in _once(options.only):
            outcomes.setdefault(name, Counter())[outcome] += 1
            longest[name] = max(longest.get(name, 0.0), seconds)
        bad = sum(counts["failed"] for counts in outcomes.values())
        print(f"repetition {number + 1}: {time.monotonic() - began:.0f} s, {bad} failures so far", flush=True)
    for name, counts in outcomes.items():
        if counts["passed"] < options.repetitions:
            print(f"{name}: {dict(counts)}")
    passed = sum(counts["passed"] for counts in outcomes.values())
    failed = sum(counts["failed"] for counts in outcomes.values())
    skipped = sum(counts["skipped"] for counts in outcomes.values())
    slowest = max(longest.items(), key=lambda item: item[1], default=("none", 0.0))
    print(
        f"{len(outcomes)} faults, {options.repetitions} times: {passed} passed, {failed} failed, {skipped} skipped; "
        f"the longest took {slowest[1]:.1f} s ({slowest[0]})"
    )
    return int(failed > 0 or not passed)


def _once(only: str) -> list[tuple[str, str, float]]:
    with tempfile.TemporaryDirectory(prefix="pygsage-faults-") as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "tests/faults", f"--junit-xml={report}", "-k", only]
        command += ["--basetemp", f"{folder}/tmp", "-p", "no:cacheprovider"]
        said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
        if not report.exists():
            raise SystemExit(said)
        results = []
        for case in ET.parse(report).iter("testcase"):
            kinds = {child.tag for child in case}
            outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
            results.append((str(case.get("name")), outcome, float(case.get("time", 0))))
    if any(outcome == "failed" for _, outcome, _ in results):
        print(said, flush=True)
    return results


if __name__ == "__main__":
    sys.exit(main())
