"""What systemd is told, at a socket in its place."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from binlog_server.cli import main
from binlog_server.process.service_manager import ServiceManager
from tests.binlog_server.lab import within


@contextlib.contextmanager
def systemd(address: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as found:
        found.bind("\0" + address[1:] if address.startswith("@") else address)
        found.setblocking(False)
        yield found


def lines(told: socket.socket) -> list[str]:
    return told.recv(4096).decode().split("\n")


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_what_it_is_told(tmp_path: Path, kind: str) -> None:
    address = f"{tmp_path}/notify" if kind == "path" else f"@test{tmp_path}"
    with systemd(address) as told:
        manager = ServiceManager({"NOTIFY_SOCKET": address})
        manager.ready()
        assert lines(told) == ["READY=1"]
        manager.reloading()
        first, second = lines(told)
        assert first == "RELOADING=1"
        assert second.removeprefix("MONOTONIC_USEC=").isdecimal()
        manager.status(
            "opening\nREADY=1"
        )  # a name of a file may have a line's end: it is no message of its own
        assert lines(told) == ["STATUS=opening READY=1"]
        manager.stopping()
        assert lines(told) == ["STOPPING=1"]


def test_one_that_hangs_or_is_gone_holds_up_nobody(tmp_path: Path) -> None:
    address = f"{tmp_path}/notify"
    with systemd(address):
        manager = ServiceManager({"NOTIFY_SOCKET": address})
        for _ in range(1000):  # more than its queue takes
            manager.ready()
    Path(address).unlink()
    manager.ready()
    ServiceManager({}).ready()
    ServiceManager({"NOTIFY_SOCKET": "/" + "x" * 200}).ready()  # no address could be so long


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "7"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "8"}, 0.0),
        ({"WATCHDOG_USEC": "soon"}, 0.0),
        ({}, 0.0),
    ],
)
def test_whom_the_watchdog_is_for(environment: dict[str, str], seconds: float) -> None:
    manager = ServiceManager({"NOTIFY_SOCKET": "/nowhere", **environment}, pid=7)
    assert manager.watchdog_s == seconds


async def test_signs_of_life_come_from_the_loop(tmp_path: Path) -> None:
    address = f"{tmp_path}/notify"
    with systemd(address) as told:
        environment = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "3000"}
        task = asyncio.create_task(ServiceManager(environment).watch())
        for _ in range(3):
            assert await within(asyncio.get_running_loop().sock_recv(told, 99)) == b"WATCHDOG=1"
        task.cancel()
    await within(ServiceManager({}).watch())  # nobody waits for any


def test_the_unit_starts_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Its commands are understood, and it waits to be told."""
    text = (Path(__file__).parents[3] / "docs" / "binlog-server.service").read_text("utf-8")
    lines = [line.partition("=") for line in text.splitlines() if "=" in line and line[0] != "#"]
    said = {name: value for name, _, value in lines}
    assert (said["Type"], said["DynamicUser"], said["StateDirectory"]) == (
        *("notify", "yes", "binlog-server"),
    )
    for name in ("ExecStart", "ExecStartPre"):
        program, command, *options = said[name].split()
        assert program.endswith("/bin/binlog-server")
        with pytest.raises(SystemExit) as ended:
            main([command, *options, "--help"])
        assert ended.value.code == 0
        shown = capsys.readouterr().out
        assert all(option in shown for option in options if option.startswith("--"))
