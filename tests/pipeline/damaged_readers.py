"""Everything that reads a store, each as: the groups that came, and what was said if they are not all there are."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from binlog_pipeline.errors import PipelineError
from binlog_pipeline.jobs.archive import ArchiveSettings, archive
from binlog_pipeline.jobs.workers import Engine
from binlog_pipeline.sources.directory import DirectorySource
from binlog_pipeline.wanted import Wanted
from binlog_protocol.connection.commands import BinlogDump
from binlog_protocol.groups.group_runs import GroupRun
from binlog_storage.archive.files import ArchiveFiles
from binlog_storage.errors import StorageError
from binlog_storage.ibb.file_names import file_name
from binlog_storage.intake.source import SourceGroup

from binlog_server.accounts.users import Account
from binlog_server.app.app import Server
from binlog_server.dumps.coordinates import classic_name
from binlog_server.settings.config import Config
from binlog_server.store.store_directory import StoreDirectory
from tests.binlog_server import classic_client
from tests.binlog_server.cli.command import run
from tests.binlog_server.lab import PASSWORD, USER, Client, Replica, within
from tests.storage.damaged_stores import OPTIONS

NON_BLOCK, LIVE = 1, 2
_HEARTBEATS: Final = 3  # of a server that says that it waits: then nothing comes any more
_HEARTBEAT_NS: Final = 10_000_000


class Seen(NamedTuple):
    """GTIDs, and what was said; nothing was if they are all there are."""

    groups: list[str]
    said: str


def events(store: Path) -> Seen:
    ran = run("events", store, "--json")
    found = [json.loads(line) for line in ran.lines]
    return Seen(
        [item["gtid"] for item in found if item["type"] == "GTID"], ran.err * bool(ran.code)
    )


def spark(store: Path) -> Seen:
    """What a worker of the Spark source does."""
    found: list[str] = []
    try:
        for part in DirectorySource(str(store)).slices(Wanted(), 1 << 17):
            for groups in part.read():
                found += [str(groups.gtid(number)) for number in range(len(groups))]
    except (PipelineError, StorageError) as error:
        return Seen(found, str(error))
    return Seen(found, "")


def archived(store: Path) -> Seen:
    target, said = store.parent / "archive", ""
    try:
        archive(
            DirectorySource(str(store)),
            target,
            ArchiveSettings(tail=True, engine=Engine("local", 1)),
        )
    except (PipelineError, StorageError) as error:
        said = str(error)
    found: list[str] = []
    try:
        for item in ArchiveFiles(target).items(0):
            if isinstance(item, GroupRun):
                found += [f"{item.domain_id}-{item.server_id}-{n}" for n in item.seq_nos]
            elif isinstance(item, SourceGroup) and item.gtid is not None:
                found.append(str(item.gtid))
    except StorageError as error:
        said = said or str(error)
    return Seen(found, said)


def imported(store: Path) -> Seen:
    """Into a store of its own, which is then read."""
    config, target = store.parent / "server.toml", store.parent / "imported"
    config.write_text("max_binlog_size = 1048576\ninnodb_log_file_size = 4194304\n")
    ran = run("import", "--directory", target, "--config", config, store)
    found = events(target).groups if (target / file_name(0)).exists() else []
    return Seen(found, ran.err * bool(ran.code))


def dumped(
    store: Path,
    flags: int,
    then: Callable[[], None] | None = None,
    *,
    classic: bool = False,
    meanwhile: bool = False,
) -> Seen:
    """What a replica hears that has nothing yet.

    Args:
        then: is done while the server runs: before the replica comes, or `meanwhile`, behind its first event.
        classic: it asks for a file and a position, without GTIDs.
    """
    try:
        directory = StoreDirectory(store, OPTIONS)
    except StorageError as error:
        return Seen([], str(error))
    return asyncio.run(_dumped(directory, store, flags, then, classic, meanwhile))


async def _dumped(
    directory: StoreDirectory,
    store: Path,
    flags: int,
    then: Callable[[], None] | None,
    classic: bool,
    meanwhile: bool,
) -> Seen:
    users: dict[str, str | Account] = {
        USER: PASSWORD,
        classic_client.USER: classic_client.CLASSIC,
    }
    server = Server(Config(binlog_directory=store, listen_port=0, users=users), directory)
    await server.start()
    try:
        if then is not None and not meanwhile:
            then()
        client = await Client.connect(server.port)
        assert (await client.log_in(classic_client.USER if classic else USER))[:1] == b"\0"
        if classic:
            for text in ("mariadb_slave_capability=4", f"master_heartbeat_period={_HEARTBEAT_NS}"):
                await client.query(f"SET @{text}")
            client.command(BinlogDump(100, flags, classic_name(0), 4).build())
        else:
            await Replica(client).start(flags=flags, master_heartbeat_period=_HEARTBEAT_NS)
        if then is not None and meanwhile:
            await client.answer()
            then()
        seen = await within(_until_the_end(client, server))
        client.close()
        return seen
    finally:
        with contextlib.suppress(StorageError):  # of a file that went while it was open
            await within(server.stop())


async def _until_the_end(client: Client, server: Server) -> Seen:
    found: list[str] = []
    quiet = 0
    while True:
        packet = await client.answer()
        if packet[:1] == b"\xff":
            return Seen(found, packet[9:].decode())
        if packet[:1] == b"\xfe":
            return Seen(found, "")
        event = packet[1:]
        waits = event[4] == 27 and any("has sent all" in each.state for each in server.connections)
        quiet = quiet + 1 if waits else 0
        if quiet >= _HEARTBEATS:
            return Seen(found, "")
        if event[4] == 162:
            seq_no = int.from_bytes(event[19:27], "little")
            domain = int.from_bytes(event[27:31], "little")
            found.append(f"{domain}-{int.from_bytes(event[5:9], 'little')}-{seq_no}")


READERS: Final[dict[str, Callable[[Path], Seen]]] = {
    "events": events,
    "spark": spark,
    "archive": archived,
    "import": imported,
    "dump": lambda store: dumped(store, NON_BLOCK),
    "dump in the classic style": lambda store: dumped(store, NON_BLOCK, classic=True),
}
