"""Runs the ranks of a job on this machine as child processes, and ends them all when one fails.

They meet through a socket that the launcher has opened, and hand failures and results back through pipes: no file is
made, so that neither a full disk nor a launcher that is killed has anything to spoil or to leave behind.

The children are started as commands, not forked and not through `multiprocessing`: nothing is pickled, and a
caller needs no `if __name__ == "__main__"`. Each is the leader of a session of its own, so the terminal's Ctrl-C
and hang-up reach the launcher alone, which passes each rank exactly one SIGTERM. The kernel kills the ranks when
the launcher is killed. No torch is loaded here.

For the launcher: `run_ranks`. For the ranks: `tie_to_launcher`, `hand_back`, and `reporting_failures` of `failures.py`.
"""

from __future__ import annotations

import ctypes
import errno
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from pygsage.awaited import Awaited
from pygsage.errors import EnvironmentLimitError, PygsageError, TrainingError
from pygsage.launched import LAUNCHER, PIPE, PLACES, Inbox, Places, has_launcher, tell_launcher
from pygsage.native.waiting import sleep_between_passes
from pygsage.training.failures import error_of, silent_end

STOPPED = 128 + signal.SIGTERM  # a rank that was asked to stop, and stopped in good order
INTERRUPTED = 128 + signal.SIGINT

_POLL_S = 0.05
# One Ctrl-C or one `timeout` may come as two signals; only a later one means that somebody has lost patience.
_SAME_REQUEST_S = 0.5
_START_HINTS = {
    errno.EMFILE: "Raise the limit of open files: `ulimit -n 1024`.",
    errno.ENFILE: "The machine has no more open files to give: end other programs.",
    errno.EAGAIN: "Raise the limit of processes (`ulimit -u`), or use fewer with --procs.",
    errno.ENOMEM: "There is too little memory for so many processes: use fewer with --procs.",
}


@dataclass(frozen=True)
class Ended:
    """How a job ended that did not fail: status 0, 143 (stopped) or 130 (by Ctrl-C), and what was handed back."""

    status: int
    value: Any = None


def run_ranks(
    argv: Sequence[str],
    num_procs: int,
    env: Mapping[str, str] | None = None,
    threads: int = 1,
    failure_grace_s: float = 2.0,
    stop_grace_s: float = 60.0,
) -> Ended:
    """Runs the command `num_procs` times, as ranks 0 to `num_procs - 1`, until all have ended.

    Args:
        argv: The command of every rank, such as `[sys.executable, "-m", "module"]`.
        num_procs: Number of ranks.
        env: Variables to add to the environment.
        threads: OMP_NUM_THREADS of each rank, where it is not set.
        failure_grace_s: How long the others may go on after one has failed, before they are killed.
        stop_grace_s: The same after SIGTERM, SIGINT or SIGHUP, in which they finish their step and save. A second
            signal kills at once.

    Raises:
        PygsageError: the first error of a rank that the user caused, of the same class, sentence and status.
        RankFailedError: the first failure of another kind: an exception, a signal, a status without a word.
    """
    ranks: list[_Rank] = []
    with _stop_requests() as stop:
        try:
            places = _start(ranks, argv, num_procs, env or {}, threads)
            _supervise(ranks, places, stop, failure_grace_s, stop_grace_s)
        finally:
            _kill(ranks)
    try:
        _raise_first_failure(ranks, stopped=stop.signum is not None)
    except PygsageError as error:
        # The ranks were told by SIGTERM, whatever came to us.
        if error.exit_status == STOPPED and stop.signum == signal.SIGINT:
            error.exit_status = INTERRUPTED
        raise
    if all(rank.status == 0 for rank in ranks):
        values = [message["value"] for rank in ranks for message in rank.inbox.messages if "value" in message]
        return Ended(0, values[0] if values else None)
    return Ended(INTERRUPTED if stop.signum == signal.SIGINT else STOPPED)


def tie_to_launcher() -> None:
    """Makes the kernel kill this rank when its launcher dies (Linux). Call it first in a rank's program."""
    launcher = os.environ.get(LAUNCHER)
    if launcher is None or not sys.platform.startswith("linux"):
        return
    pr_set_pdeathsig = 1
    ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(launcher):  # it died before the line above
        os._exit(1)
    for name in (PIPE, PLACES):
        if name in os.environ:
            os.set_inheritable(int(os.environ[name]), False)  # not for programs that the rank starts


def tell_what_to_do_after(advice: str) -> None:
    """Gives the launcher, where there is one, what it advises when a rank is killed from now on."""
    tell_launcher({"after": advice})


def hand_back(value: Any) -> None:
    """Gives the launcher what `run_ranks` returns as its value: what JSON can hold, from one rank."""
    if has_launcher() and not tell_launcher({"value": value}):
        raise TrainingError("the result could not be handed to the launcher: it has closed its pipe.")


@dataclass
class _Rank:
    """A child process as its launcher sees it."""

    number: int
    child: subprocess.Popen[bytes]
    inbox: Inbox
    alive_at: float  # when it was last seen running, which is before whatever its end has caused
    status: int | None = None
    killed_by_us: bool = False

    def ended(self) -> bool:
        """Looks whether the process has ended, and notes how."""
        if self.status is None:
            now = time.time()
            self.status = self.child.poll()
            if self.status is None:
                self.alive_at = now
        return self.status is not None

    def failed(self) -> bool:
        return self.status not in (None, 0, STOPPED)

    def failure(self) -> dict[str, Any] | None:
        """What it has told of its failure."""
        return next((message["failure"] for message in self.inbox.messages if "failure" in message), None)


@dataclass
class _Stop:
    """Requests to stop, as signal handlers note them."""

    signum: int | None = None
    asked_at: float = 0.0
    impatient: bool = False
    previous: dict[int, Any] = field(default_factory=dict)

    def note(self, signum: int, _frame: FrameType | None) -> None:
        """The signal handler."""
        now = time.monotonic()
        if self.signum is None:
            self.signum, self.asked_at = signum, now
        elif now - self.asked_at > _SAME_REQUEST_S:
            self.impatient = True


@contextmanager
def _stop_requests() -> Iterator[_Stop]:
    """Notes SIGTERM, SIGINT and SIGHUP while it lasts; where they are ignored (nohup) they stay ignored."""
    stop = _Stop()
    if threading.current_thread() is threading.main_thread():
        for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(signum) not in (signal.SIG_IGN, None):
                stop.previous[signum] = signal.signal(signum, stop.note)
    try:
        yield stop
    finally:
        for number, handler in stop.previous.items():
            signal.signal(number, handler)


def _start(ranks: list[_Rank], argv: Sequence[str], num_procs: int, env: Mapping[str, str], threads: int) -> Places:
    """Starts the ranks, adding each to the list."""
    inboxes: list[Inbox] = []
    try:
        with ExitStack() as stack:
            # The ranks meet here. It is open before they are, so no other job can take the port in between.
            meeting = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=max(128, num_procs)))
            places = Places(num_procs)
            stack.callback(places.close)
            for number in range(num_procs):
                inboxes.append(Inbox())
                variables = _environment(number, num_procs, meeting, inboxes[-1], places, env, threads)
                fds = [inboxes[-1].fd, *([places.fd] if places.fd >= 0 else [])]
                child = subprocess.Popen(
                    list(argv),
                    env=variables,
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                    pass_fds=[*fds, meeting.fileno()] if number == 0 else fds,
                )
                ranks.append(_Rank(number, child, inboxes[-1], time.time()))
                inboxes[-1].close_senders_end()
            return places
    except OSError as error:
        for inbox in inboxes[len(ranks) :]:
            inbox.close()
        if error.errno == errno.ENOENT:
            raise
        raise EnvironmentLimitError(
            f"The processes of the job could not be started: {error.strerror}.", _START_HINTS.get(error.errno or 0, "")
        ) from None


def _supervise(ranks: list[_Rank], places: Places, stop: _Stop, failure_grace_s: float, stop_grace_s: float) -> None:
    """Returns when all ranks have ended, or when those that have not must be killed."""
    deadline = math.inf
    forwarded = stopping = failing = False
    awaited = Awaited(places)
    while sum(rank.ended() for rank in ranks) < len(ranks):  # every rank is looked at
        now = time.monotonic()
        for rank in ranks:
            rank.inbox.receive()
        if stop.signum is not None and not forwarded:
            forwarded = True
            for rank in ranks:
                if not rank.ended():
                    rank.child.terminate()
        # A rank that stops though nobody asked here got the signal directly; its peers follow within their step.
        if not stopping and (forwarded or any(rank.status == STOPPED for rank in ranks)):
            stopping = True
            deadline = min(deadline, now + stop_grace_s)
        # Its words are enough: threads of its own may keep a rank that has failed from ending.
        if not failing and any(rank.failed() or rank.failure() for rank in ranks):
            failing = True
            deadline = min(deadline, now + failure_grace_s)
        if stop.impatient or now >= deadline:
            return
        awaited.look({rank.number: rank.child.pid for rank in ranks if rank.status is None}, now)
        time.sleep(_POLL_S)


def _kill(ranks: list[_Rank]) -> None:
    """Kills what still runs, with its own children, and waits for its end."""
    for rank in ranks:
        if not rank.ended():
            rank.killed_by_us = True
            os.killpg(rank.child.pid, signal.SIGKILL)  # not reaped yet, so the number is still its own
    for rank in ranks:
        rank.status = rank.child.wait()
        rank.inbox.receive()
        rank.inbox.close()


def _environment(
    number: int,
    size: int,
    meeting: socket.socket,
    inbox: Inbox,
    places: Places,
    added: Mapping[str, str],
    threads: int,
) -> dict[str, str]:
    variables = {
        **os.environ,
        **added,
        "RANK": str(number),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(number),
        "LOCAL_WORLD_SIZE": str(size),
        "GROUP_RANK": "0",
        "PYGSAGE_MEETING": f"{meeting.getsockname()[1]},{meeting.fileno()}",
        PIPE: str(inbox.fd),
        LAUNCHER: str(os.getpid()),
    }
    if places.fd >= 0:
        variables[PLACES] = str(places.fd)
    variables.setdefault("OMP_NUM_THREADS", str(threads))
    sleep_between_passes(variables)
    # torch notes the last 2,000 collectives for a look after a hang, 1.5 KB each: a rank would grow by 3 MiB in its
    # first hundred epochs. The launcher says who is awaited.
    variables.setdefault("TORCH_FR_BUFFER_SIZE", "0")
    # Of a peer that is lost each rank says so itself; torch's warnings show its C++ stack before that.
    variables.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    # All ranks are on this machine: gloo need not look up the host's name, which containers often cannot resolve.
    names = {name for _, name in socket.if_nameindex()}
    for loopback in ("lo", "lo0"):
        if loopback in names:
            variables.setdefault("GLOO_SOCKET_IFNAME", loopback)
    return variables


def _raise_first_failure(ranks: list[_Rank], stopped: bool) -> None:
    """Raises the cause: the earliest failure that is not the loss of a peer, else the earliest of those."""
    told = [message["after"] for rank in ranks for message in rank.inbox.messages if "after" in message]
    after = told[-1] if told else ""
    causes: list[tuple[float, int, PygsageError]] = []
    losses: list[tuple[float, int, PygsageError]] = []
    for rank in ranks:
        record = rank.failure()
        if record is not None:
            among = losses if record["kind"] == "peer" else causes
            among.append((record["time"], rank.number, error_of(record)))
        elif rank.failed() and not rank.killed_by_us and not (stopped and rank.status == -signal.SIGTERM):
            causes.append((rank.alive_at, rank.number, silent_end(rank.number, rank.status or 0, after)))
    if stopped:
        losses = []  # a rank that was stopped while it was still starting leaves its peers without one
    for among in (causes, losses):
        if among:
            raise min(among, key=lambda cause: cause[:2])[2]
