import os
import signal
import threading

import pytest

from pygsage.training.signals import STOPPING, stop_requests


@pytest.mark.parametrize("number", STOPPING)
def test_a_signal_is_a_request_and_handlers_are_put_back(number: signal.Signals) -> None:
    before = [signal.getsignal(s) for s in STOPPING]
    with stop_requests() as stop:
        assert stop.code == 0
        os.kill(os.getpid(), number)
        assert stop.signal == number
    assert [signal.getsignal(s) for s in STOPPING] == before


def test_ignored_signals_stay_ignored_as_under_nohup() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_requests() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert stop.code == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_other_threads_may_train_too() -> None:
    codes: list[int] = []

    def run() -> None:
        with stop_requests() as stop:
            codes.append(stop.code)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert codes == [0]
