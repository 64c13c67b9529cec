"""What the service manager is told: sd_notify(3) of systemd, datagrams to the socket that NOTIFY_SOCKET names.

    READY=1                      the server takes clients (or does so again, with its configuration read anew)
    RELOADING=1                  the configuration is being read; with the time, as Type=notify-reload wants it
    STOPPING=1                   the server ends
    STATUS=...                   what it is at: `systemctl status` shows it
    MAINPID=...                  another process is the service from now on
    WATCHDOG=1                   the event loop turns; the service is restarted where this stays away (WatchdogSec)

Nothing of it may hold up the server or end it: a datagram that is not taken at once is lost. Without a service manager
nothing happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Mapping
from typing import Final

_BEATS: Final = 3
"""Signs of life in the time that the service manager waits for one."""


class ServiceManager:
    """The service manager that has started this process, if one has.

    Args:
        environment: that of the process.
        pid: its number; the watchdog may be meant for another one.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ, pid: int | None = None) -> None:
        address = environment.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        own = str(os.getpid() if pid is None else pid)
        wanted = environment.get("WATCHDOG_USEC", "") if self._address else ""
        is_ours = environment.get("WATCHDOG_PID", own) == own
        self.watchdog_s: Final = int(wanted) / 1e6 if wanted.isdecimal() and is_ours else 0.0
        """Seconds without a sign of life behind which it ends the process; 0 for no watchdog."""

    def ready(self) -> None:
        """The server takes clients."""
        self._tell("READY=1")

    def reloading(self) -> None:
        """The configuration is being read again; `ready` says when that is over."""
        self._tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """The server ends."""
        self._tell("STOPPING=1")

    def status(self, text: str) -> None:
        """The server is at this: one line."""
        self._tell("STATUS=" + " ".join(text.split()))

    def main_is(self, pid: int) -> None:
        """Another process has taken the place of this one, and serves. What it says was not listened to until now.

        This one is not listened to from now on, and says nothing more.
        """
        self._tell(f"MAINPID={pid}", "STATUS=serving", "READY=1")
        self._address = ""

    async def watch(self) -> None:
        """Give signs of life until cancelled: from the loop, so that they end where it hangs."""
        while self.watchdog_s:
            self._tell("WATCHDOG=1")
            await asyncio.sleep(self.watchdog_s / _BEATS)

    def _tell(self, *lines: str) -> None:
        if not self._address:
            return
        with (
            contextlib.suppress(OSError, ValueError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to,
        ):
            to.setblocking(False)
            to.sendto("\n".join(lines).encode(errors="backslashreplace"), self._address)
