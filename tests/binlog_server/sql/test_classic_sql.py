"""What statements show to sessions with classic coordinates, and take from them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from random import Random

import pytest
from binlog_protocol.errors import RemoteError
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.errors import UnknownBinlog

from binlog_server.accounts.privileges import ALL_PRIVILEGES
from binlog_server.accounts.users import Account
from binlog_server.dumps.coordinates import AS_CLASSIC, AS_STORED, classic_name, classic_number
from tests.binlog_server.classic_client import CLASSIC, USER, ClassicClient
from tests.binlog_server.dumps.test_classic_style import SMALL, random_history
from tests.binlog_server.lab import PASSWORD, Client, Lab

ADMIN = Account(PASSWORD, frozenset({ALL_PRIVILEGES}), CLASSIC.replica)
USERS = {USER: ADMIN, "repl": Account(PASSWORD, frozenset({ALL_PRIVILEGES}))}


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with Lab(store=SMALL, users=USERS) as running:
        yield running


async def client(lab: Lab, user: str = USER) -> Client:
    connected = await lab.connect()
    assert (await connected.log_in(user))[:1] == b"\0"
    return connected


async def test_variables(lab: Lab) -> None:
    sql = await client(lab)
    assert await sql.query("SELECT @@global.binlog_checksum") == [["CRC32"]]
    assert await sql.query("SHOW VARIABLES LIKE 'binlog_checksum'") == [
        ["binlog_checksum", "CRC32"]
    ]
    assert await sql.query("SHOW VARIABLES LIKE 'binlog_storage_engine'") == []
    with pytest.raises(RemoteError, match="1193"):
        await sql.query("SELECT @@GLOBAL.binlog_storage_engine")
    other = await client(lab, "repl")
    assert await other.query("SELECT @@global.binlog_checksum") == [["NONE"]]
    assert await other.query("SELECT @@GLOBAL.binlog_storage_engine") == [["innodb"]]


async def test_the_option(lab: Lab) -> None:
    async with Lab(users=USERS, binlog_checksum="NONE") as plain:
        sql = await client(plain)
        assert await sql.query("SELECT @@global.binlog_checksum") == [["NONE"]]


async def test_master_status_is_where_a_replica_is(lab: Lab) -> None:
    random_history(lab, Random(2), 40)
    lab.publish("7-1-1")
    last = (await ClassicClient(lab).dump()).events[-1]
    sql = await client(lab)
    ((file, position, *_),) = await sql.query("SHOW MASTER STATUS")
    assert (file, position) == (last.file, str(last.position))
    status = await sql.query("SHOW STATUS LIKE 'binlog_snapshot_%'")
    assert status == [["Binlog_snapshot_file", file], ["Binlog_snapshot_position", position]]
    more = await ClassicClient(lab).dump(last.file, last.position)
    assert more.of_groups == []
    assert more.error is None


async def test_binary_logs(lab: Lab) -> None:
    random_history(lab, Random(2), 40)
    assert isinstance(lab.engine, IbbEngine)
    lab.engine.step()  # makes a file ahead
    sizes = dict(lab.engine.files())
    session = await client(lab)
    *older, last = await session.query("SHOW BINARY LOGS")
    assert len(older) == len(sizes) - 2
    assert all(sizes[AS_CLASSIC.number(str(name))] * 2 == int(size or 0) for name, size in older)
    assert older[0][0] == "binlog.000001"
    assert last == (await session.query("SHOW MASTER STATUS"))[0][:2], (
        "programs take it for the end"
    )


async def test_positions_of_events_can_be_started_from(lab: Lab) -> None:
    random_history(lab, Random(4), 25)
    stream = await ClassicClient(lab).dump()
    sql = await client(lab)
    told = []
    for file in dict.fromkeys(got.file for got in stream.of_groups):
        rows = await sql.query(f"SHOW BINLOG EVENTS IN '{file}'")
        told += [(name, int(str(end))) for name, _, _, _, end, _ in rows]
        for _, at, *_ in rows[1::4]:
            if 0 < int(str(at)) < 1 << 31:
                later = await sql.query(f"SHOW BINLOG EVENTS IN '{file}' FROM {at} LIMIT 1")
                assert later[0][1] == at
    sent = [(got.file, got.header.end_position) for got in stream.of_groups]
    # A start marker has no position on the wire.
    assert [place for place, wire in zip(told, sent, strict=True) if wire[1]] == [
        wire for wire in sent if wire[1]
    ]


async def test_show_binlog_events_of_what_is_not_there(lab: Lab) -> None:
    lab.publish("0-1-1")
    sql = await client(lab)
    for name in ("binlog.000009", "binlog-000000.ibb", "x"):
        with pytest.raises(RemoteError, match="1220"):
            await sql.query(f"SHOW BINLOG EVENTS IN '{name}'")
    assert len(await sql.query("SHOW BINLOG EVENTS")) == 3
    assert len(await sql.query("SHOW BINLOG EVENTS IN 'binlog.000001' LIMIT 1,1")) == 1


@pytest.mark.long
async def test_binlog_gtid_pos(lab: Lab) -> None:
    random_history(lab, Random(6), 30)
    stream = await ClassicClient(lab).dump()
    sql = await client(lab)
    seen: dict[int, str] = {}
    for got in stream.of_groups:
        if got.type == 162:
            seq_no = int.from_bytes(got.event[19:27], "little")
            domain = int.from_bytes(got.event[27:31], "little")
            seen[domain] = f"{domain}-{got.header.server_id}-{seq_no}"
        if got.position > 1 << 31 or got.type == 15:
            continue
        ((text,),) = await sql.query(f"SELECT BINLOG_GTID_POS('{got.file}', {got.position})")
        assert sorted(str(text).split(",")) == sorted(seen.values()), (got.file, got.position)
    begin = await sql.query("SELECT binlog_gtid_pos('binlog.000001','4')")
    assert begin == [[""]]
    for place in (
        "'binlog.000099', 4",
        "'binlog.000001', 5",
        "'x', 4",
        "'binlog.000001', 40001",
        f"'binlog.000001', {2**64 - 1}",
    ):
        assert await sql.query(f"SELECT BINLOG_GTID_POS({place})") == [[None]]
    with pytest.raises(RemoteError, match="4247"):
        await (await client(lab, "repl")).query("SELECT BINLOG_GTID_POS('binlog.000001', 4)")


async def test_purge(lab: Lab) -> None:
    random_history(lab, Random(2), 60)
    lab.engine.set_option("slave_connections_needed_for_purge", 0)
    sql = await client(lab)
    files = [str(name) for name, _ in await sql.query("SHOW BINARY LOGS")]
    with pytest.raises(RemoteError, match="1373"):
        await sql.query("PURGE BINARY LOGS TO 'binlog-000002.ibb'")
    rows = await sql.query(f"EXPLAIN PURGE BINARY LOGS TO '{files[2]}'")
    assert [row[0] for row in rows] == files
    await sql.query(f"PURGE BINARY LOGS TO '{files[2]}'")
    left = [str(name) for name, _ in await sql.query("SHOW BINARY LOGS")]
    assert left == files[2:]


@pytest.mark.parametrize("number", [0, 1, 999_998, 999_999, 12_345_678])
def test_names(number: int) -> None:
    assert classic_number(classic_name(number)) == number
    assert AS_CLASSIC.name(number) == classic_name(number)
    assert AS_CLASSIC.number(classic_name(number)) == number
    assert AS_STORED.name(number) == f"binlog-{number:06d}.ibb"
    assert AS_STORED.number(AS_STORED.name(number)) == number


@pytest.mark.parametrize(
    "name", ["", "binlog.000000", "binlog.1", "binlog.0000001", "binlog.000001x", "a.000001"]
)
def test_names_that_are_none(name: str) -> None:
    assert classic_number(name) is None
    for coordinates in (AS_CLASSIC, AS_STORED):
        with pytest.raises(UnknownBinlog, match=re.escape(repr(name))):
            coordinates.number(name)
