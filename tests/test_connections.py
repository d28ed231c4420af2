"""Connections that notice when the other machine is gone."""

from __future__ import annotations

import os
import socket

import pytest

from pygsage.connections import notice_silence, silence_in


def test_connections_within_the_machine_are_left_alone_and_no_descriptor_is_lost() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        before = sorted(os.listdir("/proc/self/fd"))
        assert notice_silence() == 0
        assert sorted(os.listdir("/proc/self/fd")) == before
        assert client.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0


def test_connections_that_leave_the_machine_are_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pygsage.connections._leads_elsewhere", lambda s: s.type == socket.SOCK_STREAM)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        assert notice_silence(30) >= 2
        told = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_USER_TIMEOUT)
        assert [client.getsockopt(socket.IPPROTO_TCP, name) for name in told] == [10, 5, 30_000]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "[/gloo/pair.cc:537] Read error [10.77.0.2]:40614: No route to host. This is",
            "10.77.0.2 has gone silent (No",
        ),
        (
            "[/gloo/pair.cc:537] Read error [fd00::2]:1: Connection timed out. This",
            "fd00::2 has gone silent (Connection",
        ),
        ("[/gloo/pair.cc:553] Connection closed by peer [127.0.0.1]:17", ""),
    ],
)
def test_what_gloo_says_of_silence(text: str, found: str) -> None:
    told = silence_in(text)
    assert found in told
    assert bool(told) == bool(found)
