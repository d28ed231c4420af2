"""Connections to other machines that notice when the other side is gone. Standard library only."""

from __future__ import annotations

import os
import re
import socket
from contextlib import suppress

_SILENT = ("Connection timed out", "No route to host", "Network is unreachable", "Host is down")
SILENT_S = 20  # after which a machine that answers nothing counts as gone


def notice_silence(silent_s: int | None = None) -> int:
    """Has the kernel close this process's TCP connections to other machines that have been silent for so long.

    A cable that is pulled closes nothing: without this a rank waits for hours. The kernel of the other machine answers
    for a process that is busy or paused, so that only a paused one that is sent more than its buffers hold counts as
    gone too. Connections within the machine are left alone, since they end with their process.

    Returns:
        How many connections there are; 0 where the system has no /proc.
    """
    silent_s = SILENT_S if silent_s is None else silent_s
    found = 0
    for number in _sockets():
        # The settings are the connection's, and stay when this second descriptor of it is closed.
        with suppress(OSError), socket.socket(fileno=os.dup(number)) as connection:
            if _leads_elsewhere(connection):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, silent_s // 3))
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, silent_s // 6))
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * silent_s)
                found += 1
    return found


def silence_in(text: str) -> str:
    """What an error of gloo's says of a machine that has gone silent, in a few words; empty if it is about another."""
    told = re.search(r"error \[?([^\s\]]+)\]?(?::\d+)?: (" + "|".join(_SILENT) + r")", text)
    return f"the machine at {told[1]} has gone silent ({told[2]})" if told else ""


def _sockets() -> list[int]:
    """The descriptors of this process that are sockets."""
    found = []
    with suppress(OSError):
        for name in os.listdir("/proc/self/fd"):
            with suppress(OSError):  # that of the listing itself
                if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                    found.append(int(name))
    return found


def _leads_elsewhere(connection: socket.socket) -> bool:
    if connection.family not in (socket.AF_INET, socket.AF_INET6) or connection.type != socket.SOCK_STREAM:
        return False
    here, there = connection.getsockname()[0], connection.getpeername()[0]  # OSError where it only listens
    return bool(here != there and not there.removeprefix("::ffff:").startswith("127.") and there != "::1")
