"""The launcher: tiny programs without torch stand for the ranks."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

import pygsage
from pygsage.errors import ConfigError, EnvironmentLimitError, PygsageError, TrainingError
from pygsage.training import processes
from pygsage.training.failures import RankFailedError, reporting_failures
from pygsage.training.processes import Ended, run_ranks

HOME = str(Path(pygsage.__file__).parents[1])
PREAMBLE = """
import json, os, pathlib, signal, sys, time
from pygsage.training.failures import reporting_failures
from pygsage.training.processes import hand_back, tie_to_launcher
tie_to_launcher()
rank = int(os.environ["RANK"])
folder = pathlib.Path(os.environ.get("TEST_FOLDER", "."))
def wait_for(name):
    while not (folder / name).exists():
        time.sleep(0.01)
def rest():  # for good: only a signal ends it
    while True:
        time.sleep(0.05)
"""
# A rank that answers SIGTERM as training does, and counts how often it came.
POLITE = """
count = []
signal.signal(signal.SIGTERM, lambda *_: count.append(1))
(folder / f"ready-{rank}").touch()
while not count:
    time.sleep(0.01)
time.sleep(0.3)
(folder / f"stopped-{rank}").write_text(str(len(count)))
sys.exit(143)
"""


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Ended]:
    def start(program: str, num_procs: int = 2, **options: float) -> Ended:
        env = {"PYTHONPATH": HOME, "TEST_FOLDER": str(tmp_path)}
        argv = [sys.executable, "-c", PREAMBLE + program]
        return run_ranks(argv, num_procs, env=env, **options)  # type: ignore[arg-type]

    return start


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No child, no zombie, no temporary folder and no signal handler of ours outlives any test."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    handlers = [signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]
    before = set(psutil.Process().children())
    yield
    assert set(psutil.Process().children()) <= before
    assert list(scratch.iterdir()) == []
    assert [signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)] == handlers


def test_ranks_know_their_place_and_hand_back_a_value(
    run: Callable[..., Ended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    ended = run(
        """
names = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "OMP_NUM_THREADS"]
(folder / f"place-{rank}").write_text(" ".join(os.environ[n] for n in names))
assert sys.stdin.read() == ""
assert int(os.environ["PYGSAGE_MEETING"].split(",")[0]) > 0
with reporting_failures():
    if rank == 0:
        hand_back({"loss": 0.1 + 0.2})
""",
        num_procs=3,
        threads=7,
    )
    assert ended == Ended(0, {"loss": 0.1 + 0.2})
    assert [(tmp_path / f"place-{r}").read_text() for r in range(3)] == [f"{r} 3 {r} 3 0 7" for r in range(3)]


def test_c097_a_rank_is_a_command_and_nothing_is_pickled() -> None:
    source = Path(processes.__file__).read_text(encoding="utf-8")
    assert "import pickle" not in source
    assert "import multiprocessing" not in source
    code = (
        "import sys, pygsage.training.processes; print([m for m in ('torch', 'multiprocessing') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": HOME})
    assert out.stdout.strip() == "[]", out.stderr


def test_c097_two_ranks_start_with_few_descriptors_left(run: Callable[..., Ended]) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
    try:
        assert run("pass").status == 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_c100_a_rank_that_raises_ends_all_and_its_traceback_is_told(run: Callable[..., Ended]) -> None:
    began = time.monotonic()
    with pytest.raises(RankFailedError) as caught:
        run(
            """
with reporting_failures():
    if rank == 1:
        def step_3():
            raise ValueError("boom at step 3")
        step_3()
    rest()
""",
            num_procs=3,
            failure_grace_s=0.2,
        )
    assert time.monotonic() - began < 15
    assert caught.value.rank == 1
    assert caught.value.exit_status == 1
    assert caught.value.found == "rank 1 failed: ValueError: boom at step 3"
    assert "in step_3" in str(caught.value)
    assert "Traceback (most recent call last)" in str(caught.value)


def test_the_cause_is_told_and_not_what_followed_from_it(run: Callable[..., Ended]) -> None:
    """Rank 0 loses its peer and says so first; rank 1's own error is the cause all the same."""
    with pytest.raises(RankFailedError, match="rank 1 failed: KeyError: 'the cause'"):
        run(
            """
from pygsage.errors import TrainingError
class PeerLostError(TrainingError):
    secondary = True
with reporting_failures():
    if rank == 0:
        (folder / "pid").write_text(str(os.getpid()))
        wait_for("seen")
        raise PeerLostError("rank 0 lost a peer")
    wait_for("pid")
    while not (pid := (folder / "pid").read_text()):
        pass
    (folder / "seen").touch()
    try:
        while pathlib.Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z":
            pass
    except OSError:  # the launcher has taken note of its end already
        pass
    raise KeyError("the cause")
"""
        )
    with pytest.raises(RankFailedError, match=r"^rank 0 lost a peer"):
        run(
            """
from pygsage.errors import TrainingError
TrainingError.secondary = True
with reporting_failures():
    if rank == 0:
        raise TrainingError("rank 0 lost a peer")
"""
        )


@pytest.mark.parametrize(("error", "status"), [("ConfigError", 2), ("TrainingError", 1)])
def test_an_error_of_the_user_keeps_class_sentence_advice_and_status(
    run: Callable[..., Ended], error: str, status: int, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(PygsageError) as caught:
        run(
            f"""
from pygsage import errors
with reporting_failures():
    if rank == 0:
        raise errors.{error}("--lr is “x”; expected a number.", "Type --lr 0.01.")
    rest()
""",
            failure_grace_s=0.1,
        )
    assert type(caught.value) is {"ConfigError": ConfigError, "TrainingError": TrainingError}[error]
    assert str(caught.value) == "--lr is “x”; expected a number. Type --lr 0.01."
    assert caught.value.exit_status == status
    assert capfd.readouterr().err == ""  # told once, by the launcher's caller


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGSEGV])
def test_a_rank_killed_by_a_signal_is_the_cause_of_its_peers_errors(
    run: Callable[..., Ended], signum: signal.Signals
) -> None:
    with pytest.raises(RankFailedError) as caught:
        run(
            f"""
if rank == 1:
    (folder / "pid").write_text(str(os.getpid()))
    wait_for("go")
    os.kill(os.getpid(), {int(signum)})
with reporting_failures():
    wait_for("pid")
    pid = int((folder / "pid").read_text() or 0)
    (folder / "go").touch()
    while pathlib.Path(f"/proc/{{pid}}/stat").read_text().split()[2] != "Z":
        pass
    raise RuntimeError("a consequence that does not say so")
"""
        )
    assert caught.value.found == f"rank 1 was killed by signal {int(signum)} ({signum.name})."
    assert ("out-of-memory" in caught.value.advice) == (signum == signal.SIGKILL)


def test_a_failed_rank_whose_threads_keep_it_from_ending(run: Callable[..., Ended]) -> None:
    with pytest.raises(RankFailedError, match="rank 1 failed: ValueError: boom"):
        run(
            """
import threading
with reporting_failures():
    if rank == 1:
        threading.Thread(target=rest).start()
        raise ValueError("boom")
    rest()
""",
            failure_grace_s=0.1,
        )


def test_a_rank_that_ends_without_a_word(run: Callable[..., Ended]) -> None:
    with pytest.raises(RankFailedError, match="rank 1 ended with status 7 and gave no reason"):
        run("if rank == 1: os._exit(7)\nrest()", failure_grace_s=0.1)


def test_a_command_that_does_not_exist() -> None:
    gc.collect()
    before = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
    with pytest.raises(FileNotFoundError):
        run_ranks(["/nonexistent/command"], 2)
    gc.collect()
    assert not before or len(os.listdir("/proc/self/fd")) == before


def test_words_that_no_pipe_holds_come_whole_and_need_no_disk(
    run: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full TMPDIR once lost what a rank had to say."""
    monkeypatch.setattr(tempfile, "tempdir", "/nonexistent")
    assert run("if rank == 1: hand_back('x' * 1_000_000)").value == "x" * 1_000_000
    with pytest.raises(PygsageError) as caught:
        run(
            """
from pygsage import errors
with reporting_failures():
    if rank == 0:
        raise errors.ConfigError("y" * 1_000_000)
    rest()
""",
            failure_grace_s=0.0,
        )
    assert caught.value.found == "y" * 1_000_000


def test_words_cut_off_by_sigkill_are_not_taken_for_whole(run: Callable[..., Ended]) -> None:
    with pytest.raises(RankFailedError, match="rank 0 was killed by signal 9"):
        run(
            """
if rank == 0:
    os.write(int(os.environ["PYGSAGE_PIPE_FD"]), b'{"value": 1')
    os.kill(os.getpid(), 9)
""",
        )


def test_no_program_that_a_rank_starts_speaks_for_it(run: Callable[..., Ended]) -> None:
    program = """
import subprocess
own = [os.environ[name] for name in ("PYGSAGE_PIPE_FD", "PYGSAGE_PLACES_FD") if name in os.environ]
code = "import os, sys; from pygsage.launched import has_launcher; print(has_launcher(), os.listdir('/proc/self/fd'))"
said = subprocess.run([sys.executable, "-c", code], close_fds=False, capture_output=True, text=True).stdout
assert said.startswith("False") and not [fd for fd in own if f"'{fd}'" in said], said
"""
    assert run(program, num_procs=1).status == 0


def test_too_few_descriptors_or_processes_are_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*args: object, **options: object) -> None:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(processes.subprocess, "Popen", none_left)
    with pytest.raises(EnvironmentLimitError, match="could not be started: Resource temporarily") as caught:
        run_ranks(["true"], 2)
    assert "--procs" in caught.value.advice


def test_c081_with_no_descriptors_left_it_is_said_which_limit_to_raise() -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 6, hard))
    try:
        with pytest.raises(EnvironmentLimitError, match="Too many open files") as caught:
            run_ranks(["true"], 8)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert "ulimit -n" in caught.value.advice


def after(ready: Callable[[], bool], *actions: Callable[[], None]) -> threading.Thread:
    """Runs the actions in a thread, each once `ready` holds."""

    def watch() -> None:
        while not ready():
            time.sleep(0.01)
        for action in actions:
            action()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


@pytest.mark.parametrize(("signum", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 143)])
def test_a_request_to_stop_reaches_each_rank_once_and_waits_for_them(
    run: Callable[..., Ended], tmp_path: Path, signum: signal.Signals, status: int
) -> None:
    def signal_us() -> None:
        os.kill(os.getpid(), signum)
        os.kill(os.getpid(), signum)  # as `timeout` does: the same request, not impatience

    watch = after(lambda: all((tmp_path / f"ready-{r}").exists() for r in range(2)), signal_us)
    assert run(POLITE) == Ended(status)
    watch.join()
    assert [(tmp_path / f"stopped-{r}").read_text() for r in range(2)] == ["1", "1"]


def test_a_stop_sent_to_a_rank_itself_ends_the_job_in_good_order(run: Callable[..., Ended]) -> None:
    assert run("sys.exit(143 if rank == 1 else 0)") == Ended(143)


def test_ranks_that_do_not_stop_are_killed(run: Callable[..., Ended], tmp_path: Path) -> None:
    program = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n(folder / f'ready-{rank}').touch()\nrest()"
    watch = after((tmp_path / "ready-0").exists, lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert run(program, num_procs=1, stop_grace_s=0.3) == Ended(143)
    watch.join()


def test_a_second_signal_kills_at_once(run: Callable[..., Ended], tmp_path: Path) -> None:
    program = """
signal.signal(signal.SIGTERM, lambda *_: (folder / "asked").touch())
(folder / "ready").touch()
rest()
"""

    def impatiently() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        while not (tmp_path / "asked").exists():
            time.sleep(0.01)
        time.sleep(2 * processes._SAME_REQUEST_S)
        os.kill(os.getpid(), signal.SIGTERM)

    watch = after((tmp_path / "ready").exists, impatiently)
    assert run(program, num_procs=1) == Ended(143)
    watch.join()


def test_an_error_while_stopping_is_told(run: Callable[..., Ended], tmp_path: Path) -> None:
    program = """
def fail(*_):
    raise OSError("no space left for the checkpoint")
with reporting_failures():
    signal.signal(signal.SIGTERM, fail)
    (folder / "ready").touch()
    rest()
"""
    watch = after((tmp_path / "ready").exists, lambda: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(RankFailedError, match="no space left for the checkpoint"):
        run(program, num_procs=1)
    watch.join()


def test_signals_that_are_ignored_stay_ignored() -> None:
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with processes._stop_requests() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert stop.signum is None
    finally:
        signal.signal(signal.SIGHUP, before)


def test_outside_the_main_thread_no_handler_is_touched(run: Callable[..., Ended]) -> None:
    ended: list[Ended] = []
    thread = threading.Thread(target=lambda: ended.append(run("pass", num_procs=1)))
    thread.start()
    thread.join()
    assert ended == [Ended(0)]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="PR_SET_PDEATHSIG is Linux's")
def test_ranks_and_their_workers_die_with_the_launcher(tmp_path: Path) -> None:
    rank = (
        PREAMBLE + "(folder / f'pid-{rank}').write_text(str(os.getpid()))\n(folder / f'ready-{rank}').touch()\nrest()"
    )
    launcher = (
        f"import sys\nfrom pygsage.training.processes import run_ranks\nrun_ranks([sys.executable, '-c', {rank!r}], 2)"
    )
    env = {**os.environ, "PYTHONPATH": HOME, "TEST_FOLDER": str(tmp_path), "TMPDIR": str(tmp_path / "elsewhere")}
    (tmp_path / "elsewhere").mkdir()
    with subprocess.Popen([sys.executable, "-c", launcher], env=env) as process:
        while not all((tmp_path / f"ready-{r}").exists() for r in range(2)):
            assert process.poll() is None
            time.sleep(0.01)
        pids = [int((tmp_path / f"pid-{r}").read_text()) for r in range(2)]
        ranks = [psutil.Process(pid) for pid in pids]
        process.kill()
    _, alive = psutil.wait_procs(ranks, timeout=10)
    alive = [p for p in alive if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]  # no init may reap them here
    for p in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            p.kill()
    assert alive == []
    assert list((tmp_path / "elsewhere").iterdir()) == []  # nobody is left to tidy up, and there is nothing to


def test_failures_pass_unchanged_where_no_launcher_of_ours_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYGSAGE_LAUNCHER_PID", raising=False)
    with pytest.raises(KeyError), reporting_failures():
        raise KeyError("x")
    processes.hand_back({"nobody": "listens"})
    processes.tie_to_launcher()
