"""Ranks that torchrun starts again agree on an attempt of their own, whatever those before have left in the store."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from pygsage.attempts import attempt


class Store:
    """What torch's store can do, in this process."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}
        self._lock = threading.Lock()

    def set(self, key: str, value: str) -> None:
        with self._lock:
            self.kept[key] = value

    def get(self, key: str) -> bytes:
        with self._lock:
            return self.kept[key].encode()

    def check(self, keys: list[str]) -> bool:
        with self._lock:
            return all(key in self.kept for key in keys)


def agree(store: Store, size: int) -> set[str]:
    with ThreadPoolExecutor(size) as threads:
        told = [threads.submit(attempt, store, rank, size) for rank in reversed(range(size))]
        return {each.result(60) for each in told}


def test_all_ranks_agree_and_each_attempt_has_a_name_of_its_own() -> None:
    store, names = Store(), set()
    for _ in range(3):
        found = agree(store, 4)
        assert len(found) == 1
        names |= found
    assert len(names) == 3
    assert len(agree(store, 1) | names) == 4


def test_ranks_that_died_while_they_met_are_not_taken_for_those_that_follow() -> None:
    store = Store()
    store.set("come-1", "dead")  # rank 0 answers it, and again when the one that lives has come
    store.set("come-2", "dead")
    store.set("answer-2", "dead earlier")
    store.set("heard-2", "earlier")
    assert len(agree(store, 3)) == 1
    assert store.kept["heard-1"] == store.kept["heard-2"] != "earlier"
