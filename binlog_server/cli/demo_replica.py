"""A real `mariadbd` on a temporary directory, as a replica for the demonstration."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path

from binlog_protocol.errors import ProtocolError, RemoteError

from binlog_server.relay.client_link import ClientLink

HOW_TO_GET_ONE = (
    "no mariadbd is installed, so no real replica is shown; to get one on Debian or Ubuntu: "
    "apt install mariadb-server-core"
)
_START_S = 30.0
_POLL_S = 0.05
_ADMIN_PLACES = "/usr/sbin:/usr/local/sbin:/sbin"  # not on the PATH of an ordinary user

_SMALL = (
    "--skip-networking=0",
    "--bind-address=127.0.0.1",
    "--skip-name-resolve",
    "--performance-schema=OFF",
    "--innodb-buffer-pool-size=16M",
    "--innodb-log-file-size=4M",
    "--innodb-flush-log-at-trx-commit=0",
    "--skip-slave-start",
)


def find(program: str) -> str | None:
    """The path of a program on the PATH or in the folders of administrators' programs; None if it is not there."""
    path = os.environ.get("PATH", os.defpath)
    return shutil.which(program, path=f"{path}:{_ADMIN_PLACES}")


class DemoReplica:
    """A running replica, made by `running_replica`."""

    def __init__(self, link: ClientLink, version: str) -> None:
        self._link = link
        self.version = version.removeprefix("5.5.5-")

    async def follow(self, host: str, port: int, user: str, password: str) -> None:
        """Replicate from a server, by GTID and from the beginning."""
        await self._link.query(
            f"CHANGE MASTER TO MASTER_HOST='{host}', MASTER_PORT={port}, MASTER_USER='{user}', "
            f"MASTER_PASSWORD='{password}', MASTER_USE_GTID=slave_pos, MASTER_SSL=0, "
            "MASTER_CONNECT_RETRY=1"
        )
        await self._link.query("START SLAVE")

    async def position(self) -> str:
        """The GTID position that it has applied."""
        return (await self._link.query("SELECT @@gtid_slave_pos"))[0][0] or ""

    async def count(self, table: str) -> int:
        """Rows in a table; 0 as long as there is no such table."""
        try:
            return int((await self._link.query(f"SELECT COUNT(*) FROM {table}"))[0][0] or 0)
        except RemoteError:
            return 0


@contextlib.asynccontextmanager
async def running_replica(directory: Path) -> AsyncIterator[DemoReplica | None]:
    """Start a replica in an empty directory, and end it on leaving; None if no mariadbd is installed.

    Raises `RuntimeError` if it does not come up.
    """
    mariadbd, install = find("mariadbd"), find("mariadb-install-db")
    if mariadbd is None or install is None:
        yield None
        return
    data, log_path = directory / "data", directory / "mariadbd.log"
    as_root = ["--user=root"] if os.getuid() == 0 else []
    with log_path.open("wb") as log:
        made = await asyncio.create_subprocess_exec(
            install, "--no-defaults", *as_root, f"--datadir={data}", "--skip-test-db",
            "--auth-root-authentication-method=normal", "--innodb-log-file-size=4M",
            stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        try:
            code = await made.wait()
        except BaseException:
            os.killpg(made.pid, signal.SIGKILL)  # with what it has begun, which would write on
            await made.wait()
            raise
        if code:
            raise RuntimeError(f"mariadb-install-db failed:\n{_end_of(log_path)}")
        port = _free_port()
        process = await asyncio.create_subprocess_exec(
            mariadbd, "--no-defaults", *as_root, *_SMALL, f"--datadir={data}", f"--port={port}",
            f"--socket={directory}/s", f"--pid-file={directory}/pid", "--server-id=4242",
            stdout=log, stderr=log,
        )  # fmt: skip
    try:
        link, version = await _log_in(port, process, log_path)
        try:
            yield DemoReplica(link, version)
        finally:
            link.close()
    finally:
        if process.returncode is None:
            process.kill()  # its data are thrown away, so it needs no orderly end
        await process.wait()


async def _log_in(
    port: int, process: asyncio.subprocess.Process, log: Path
) -> tuple[ClientLink, str]:
    """Log in by TCP as root without a password, once the server is up. Returns the link and the server's version."""
    deadline = asyncio.get_running_loop().time() + _START_S
    while process.returncode is None and asyncio.get_running_loop().time() < deadline:
        try:
            link = await ClientLink.connect("127.0.0.1", port, "root", "", _START_S)
            return link, await link.log_in()
        except (OSError, ProtocolError):
            await asyncio.sleep(_POLL_S)
    raise RuntimeError(f"mariadbd did not come up:\n{_end_of(log)}")


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
