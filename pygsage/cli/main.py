"""`pygsage COMMAND …`: finds the command, runs it, and turns errors into sentences and exit statuses."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from types import FrameType

from pygsage import __version__
from pygsage.errors import PygsageError
from pygsage.native import core
from pygsage.native.waiting import sleep_between_passes

COMMANDS = {
    "train": "train GraphSAGE on a dataset",
    "predict": "write scores or embeddings of a finished run",
    "estimate-memory": "say what a dataset takes in memory, and whether it fits, before it is read",
    "convert": "write a dataset of many graphs to disk, in a form that is read from there",
    "partition": "split the features of one graph over several machines",
    "info": "describe a dataset or a run",
    "doctor": "say what is installed and which limits are in force",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit status: 0 done, 2 the user's input, 1 ours, 143 SIGTERM, 130 Ctrl-C."""
    try:
        status = _dispatch(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader of our output, such as head, has seen enough
        _leave_output()
        return 141
    except OSError as error:
        from pygsage.memory.disk import full_disk

        told = full_disk(error)
        if told is None:
            raise
        _leave_output()
        print(f"pygsage: {told}", file=sys.stderr, flush=True)
        return told.exit_status


def _leave_output() -> None:
    """What could not be written to standard output is dropped; the flush at exit must not complain again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help"):
        print(usage())
        return 0 if words else 2
    if words[0] == "--version":
        print(f"pygsage {__version__}")
        return 0
    command = words[0]
    if command not in COMMANDS:
        near = get_close_matches(command, COMMANDS, n=1)
        if near:
            print(f"pygsage: there is no command '{command}'; did you mean {near[0]}?", file=sys.stderr)
        else:
            print(f"pygsage: there is no command '{command}'.\n\n{usage()}", file=sys.stderr)
        return 2
    if "torch" not in sys.modules:  # it reads these when it is loaded
        sleep_between_passes(os.environ)
    try:
        with _stopped_in_order(), _told_of_bus_errors(command):
            module = import_module(f"pygsage.cli.{command.replace('-', '_')}")
            status: int = module.run(words[1:])
        return status
    except PygsageError as error:
        print(f"pygsage {command}: {error}", file=sys.stderr, flush=True)
        return error.exit_status
    except KeyboardInterrupt:
        print(f"pygsage {command}: Stopped by Ctrl-C (SIGINT).", file=sys.stderr, flush=True)
        return 130
    except _Terminated as stopped:
        print(f"pygsage {command}: Stopped by {stopped.name}.", file=sys.stderr, flush=True)
        return stopped.exit_status


class _Terminated(BaseException):
    """A signal asked the process to end, where nothing else waits for it; no Exception, which imports swallow."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.name = signal.Signals(number).name
        self.exit_status = 128 + number


@contextmanager
def _stopped_in_order() -> Iterator[None]:
    """SIGTERM and SIGHUP end the command as Ctrl-C does: with a sentence, and what was begun cleared away.

    While it trains, `training.signals` takes their place.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    here, before = os.getpid(), {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}

    def stop(number: int, frame: FrameType | None) -> None:
        if os.getpid() != here:  # a process that was forked, such as a worker of a loader, ends as it would
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        raise _Terminated(number)

    for number, handler in before.items():
        if handler is signal.SIG_DFL:
            signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is signal.SIG_DFL:
                signal.signal(number, signal.SIG_DFL)


@contextmanager
def _told_of_bus_errors(command: str) -> Iterator[None]:
    """A file that is cut short while this process has it mapped ends it at once: no Python runs to say why."""
    if core is None:
        yield
        return
    core.tell_bus_error(
        f"pygsage {command}: A mapped file was cut short while it was read, or a disk or /dev/shm is full (SIGBUS). "
        "Look at `df` and at `pygsage info STORE --verify`; a training goes on with --resume.\n"
    )
    try:
        yield
    finally:
        core.tell_bus_error("")


def usage() -> str:
    """The text of `pygsage --help`."""
    lines = ["usage: pygsage COMMAND [OPTIONS]", "", "GraphSAGE on any PyG dataset, on every device.", "", "commands:"]
    lines += [f"  {name:<15} {purpose}" for name, purpose in COMMANDS.items()]
    return "\n".join([*lines, "", "pygsage COMMAND --help lists a command's options."])
