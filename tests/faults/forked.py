"""Commands of pygsage in processes of their own that begin at once: forked from one that has loaded everything.

Run as a program it reads one JSON object a line, each a command to start, and starts it. A command that starts ranks
has those forked too; apart from that nothing is different: real processes, signals, pipes, sockets and files.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

_CHANGED: list[tuple[Any, str, Any]] = []
STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main() -> None:
    """Loads all that a training loads, then starts what is asked for."""
    import torch

    import pygsage.cli.convert
    import pygsage.cli.main
    import pygsage.cli.train
    import pygsage.training.child
    import pygsage.training.launch

    torch.set_num_threads(1)
    with open(os.devnull, "w") as null:
        sys.stdout = null
        pygsage.cli.main.main(["train", sys.argv[1], "--gpus", "0", "--dry-run", "--quiet"])
        sys.stdout = sys.__stdout__
    gc.collect()
    gc.freeze()
    print("ready", flush=True)
    for line in sys.stdin:
        if os.fork() == 0:
            _watch(json.loads(line))
        while True:
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    break
            except ChildProcessError:
                break


def _watch(job: Mapping[str, Any]) -> NoReturn:
    """Starts the command in a process below this one, and notes how it ends."""
    folder = Path(job["folder"])
    pid = os.fork()
    if pid == 0:
        _run(job, folder)
    _note(folder / "pid", pid)
    _note(folder / "status", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    os._exit(0)


def _note(path: Path, number: int) -> None:
    path.with_suffix(".new").write_text(str(number))
    path.with_suffix(".new").rename(path)


def _run(job: Mapping[str, Any], folder: Path) -> NoReturn:
    os.setsid()
    for number in STOPPING:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    for name, stream in (("out", 1), ("err", 2)):
        os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.closerange(3, 1 << 16)
    os.chdir(job["cwd"])
    os.environ.update(job["env"])
    for name, most in job["limits"].items():
        kind = getattr(resource, f"RLIMIT_{name}")
        resource.setrlimit(kind, (most, resource.getrlimit(kind)[1]))

    from pygsage.cli import main as cli
    from pygsage.training import processes

    class Forked(_Forked):
        inject = job["inject"]

    processes.subprocess.Popen = Forked  # type: ignore[misc,assignment]
    _end(lambda: cli.main(job["words"]), job["inject"], None)


class _Forked:
    """In the place of `subprocess.Popen`, for the ranks of a job."""

    inject = ""

    def __init__(
        self, argv: Sequence[str], *, env: Mapping[str, str], stdin: int, start_new_session: bool, pass_fds: Any
    ) -> None:
        assert argv[1:3] == ["-m", "pygsage.training.child"]
        assert start_new_session
        self.returncode: int | None = None
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            for number in STOPPING:
                signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
            signal.signal(signal.SIGBUS, signal.SIG_DFL)  # the launcher's own handler is gone in a rank that was exec'd
            for descriptor in map(int, os.listdir("/proc/self/fd")):
                if descriptor > 2 and descriptor not in pass_fds:
                    with suppress(OSError):  # that of the listing
                        os.close(descriptor)
            for descriptor in pass_fds:
                os.set_inheritable(descriptor, True)
            os.environ.clear()
            os.environ.update(env)
            for owner, name, real in reversed(_CHANGED):  # of the launcher that this is a fork of
                setattr(owner, name, real)
            sys.argv[:] = ["child", *argv[3:]]
            _end(lambda: import_module("pygsage.training.child").main(), self.inject, int(env["RANK"]))
        while os.getpgid(self.pid) != self.pid:  # a real Popen, too, returns when the session is there
            os.sched_yield()

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self) -> int:
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode

    def terminate(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGTERM)


def _end(program: Callable[[], Any], inject: str, rank: int | None) -> NoReturn:
    """Runs a program as an interpreter does, and ends the process with its status."""
    status: Any = 1
    try:
        exec(inject, {"RANK": rank, "before": before, "ctypes": ctypes, "os": os, "Path": Path, "signal": signal})
        status = program()
    except SystemExit as error:
        status = error.code
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status or 0)


def before(name: str, number: int, action: Callable[..., Any]) -> None:
    """Has `action` called with the arguments of the call number `number` (from 1) of `module:Class.function`, first."""
    module_name, _, path = name.partition(":")
    *owners, last = path.split(".")
    owner: Any = import_module(module_name)
    for part in owners:
        owner = getattr(owner, part)
    real, calls = getattr(owner, last), []

    def wrapped(*args: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == number:
            action(*args)
        return real(*args, **options)

    _CHANGED.append((owner, last, real))
    setattr(owner, last, wrapped)


if __name__ == "__main__":
    main()
