"""`binlog-server demo`: a demonstration of about 20 seconds.

It runs a server on a temporary directory, a publisher that commits small transactions into its store, a protocol client
that follows it, and, if one is installed, a real mariadbd as a replica.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import secrets
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import uvloop
from binlog_protocol.connection.replica import ReplicaHandshake
from binlog_protocol.groups.event_group import EventGroup
from binlog_protocol.groups.group_runs import GroupRun
from binlog_protocol.groups.group_stream import GroupStream, StreamEnded
from binlog_protocol.gtid import Gtid, SlavePosition
from binlog_storage.console.arguments import add_json, seconds_argument
from binlog_storage.console.output import show_json
from binlog_storage.console.running import EXIT_FAILED
from binlog_storage.ibb.file_names import file_name

from binlog_server.app.app import Server
from binlog_server.cli import demo_replica
from binlog_server.cli.demo_replica import DemoReplica, running_replica
from binlog_server.process.logs import set_up_logging
from binlog_server.relay.client_link import ClientLink
from binlog_server.settings.config import Config
from binlog_server.store.store_directory import StoreDirectory

PUBLISH_S = 15.0
CATCH_UP_S = 10.0
_PERIOD_S = 0.05
_REPORT_S = 1.0
_CLIENT_SERVER_ID = 4243
_FILE_BYTES = 16 << 20  # small, because a temporary directory may be in memory
_USER = "demo"
_TABLE = "demo.orders"


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser("demo", help="see it work: about 20 s, ends by itself")
    parser.add_argument(
        "--seconds", type=seconds_argument, default=PUBLISH_S, help="how long to publish"
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command. Returns the exit code: 0 if every group arrived everywhere."""
    set_up_logging("WARNING")
    with tempfile.TemporaryDirectory(prefix="binlog-server-demo-") as directory:
        (Path(directory) / "replica").mkdir()
        # With --json standard output has nothing else.
        with contextlib.redirect_stdout(sys.stderr if arguments.json else sys.stdout):
            shown = uvloop.run(_demo(Path(directory), arguments.seconds))
    if arguments.json:
        show_json(shown)
    return 0 if shown["complete"] else EXIT_FAILED


async def _demo(directory: Path, seconds: float) -> dict[str, Any]:
    password = secrets.token_hex(12)
    config = Config(
        directory / "store", listen_port=0, max_binlog_size=_FILE_BYTES, users={_USER: password}
    )
    server = Server(config, StoreDirectory.of(config))
    await server.start()
    print(f"server    listening on 127.0.0.1:{server.port}, store in {config.binlog_directory}")
    try:
        async with running_replica(directory / "replica") as replica:
            if replica is None:
                print(f"replica   {demo_replica.HOW_TO_GET_ONE}")
            else:
                print(f"replica   a real MariaDB {replica.version} on a temporary directory")
                await replica.follow("127.0.0.1", server.port, _USER, password)
            return await _show(server, password, replica, seconds)
    finally:
        await server.stop()


async def _show(
    server: Server, password: str, replica: DemoReplica | None, seconds: float
) -> dict[str, Any]:
    follower = _Client(server.port, password)
    following = asyncio.create_task(follower.run())
    published = await _publish(server, follower, replica, seconds)
    last = server.engine.binlog_state().last(server.config.gtid_domain_id)
    assert last is not None
    applied = await _catch_up(last, follower, replica)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    end = server.engine.written_end
    print(f"store     {file_name(end.file_no)}, next write at {end.offset}, gtid_binlog_pos {last}")
    print(f"published {published} groups")
    print(f"received  {follower.groups} groups by a protocol client")
    rows = None
    if replica is not None:
        rows = await replica.count(_TABLE)
        print(f"applied   {applied} groups by the MariaDB replica: {rows} rows in {_TABLE}")
    complete = follower.groups == published and (replica is None or applied == published)
    print("all groups arrived" if complete else "NOT all groups arrived")
    return {
        "published": published,
        "received": follower.groups,
        "applied": None if replica is None else applied,
        "rows": rows,
        "position": str(last),
        "complete": complete,
    }


async def _publish(
    server: Server, follower: _Client, replica: DemoReplica | None, seconds: float
) -> int:
    """Commit small transactions for a while, and print once a second how far each follower is.

    Returns the number of groups.
    """
    publisher = server.publisher
    publisher.ddl("CREATE DATABASE IF NOT EXISTS demo")
    publisher.ddl(
        f"CREATE TABLE IF NOT EXISTS {_TABLE} (id BIGINT PRIMARY KEY, item VARCHAR(40), "
        "pieces INT) ENGINE=InnoDB"
    )
    groups = 2
    end = time.monotonic() + seconds
    report_at = time.monotonic() + _REPORT_S
    while time.monotonic() < end:
        for _ in range(5):
            groups += 1
            publisher.transaction(
                [f"INSERT INTO {_TABLE} VALUES ({groups}, 'item {groups % 97}', {groups % 7})"]
            )
        await server.syncer.synced()
        if time.monotonic() >= report_at:
            report_at += _REPORT_S
            rows = f", replica shows {await replica.count(_TABLE)} rows" if replica else ""
            print(
                f"          {follower.last or 'nothing'} went by: {groups} published, {follower.groups} received{rows}"
            )
        await asyncio.sleep(_PERIOD_S)
    await server.syncer.synced()
    return groups


async def _catch_up(last: Gtid, follower: _Client, replica: DemoReplica | None) -> int:
    """Wait until both followers have the last group, or time is up. Returns the groups that the replica applied."""
    deadline = time.monotonic() + CATCH_UP_S
    applied = 0
    while time.monotonic() < deadline:
        if replica is not None:
            reached = SlavePosition.parse(await replica.position()).get(last.domain_id)
            applied = reached.seq_no if reached is not None else 0
        if follower.last == last and (replica is None or applied == last.seq_no):
            break
        await asyncio.sleep(_PERIOD_S)
    return applied


class _Client:
    """A client that follows the server as a replica does, and counts its groups."""

    def __init__(self, port: int, password: str) -> None:
        self._port = port
        self._password = password
        self.groups = 0
        self.last: Gtid | None = None

    async def run(self) -> None:
        """Follow the server until cancelled."""
        link = await ClientLink.connect("127.0.0.1", self._port, _USER, self._password, 60)
        try:
            await link.log_in()
            handshake = ReplicaHandshake(
                link.machine,
                server_id=_CLIENT_SERVER_ID,
                position=SlavePosition(),
                heartbeat_period_ns=10**9,
            )
            await link.start_dump(handshake)
            stream = GroupStream(link.machine, handshake.checksum_algorithm)
            while True:
                match stream.next():
                    case None:
                        await link.receive()
                    case GroupRun() as run:
                        self.groups += len(run)
                        self.last = run.last
                    case EventGroup(gtid):
                        self.groups += 1
                        self.last = gtid
                    case StreamEnded():
                        return
        finally:
            link.close()
