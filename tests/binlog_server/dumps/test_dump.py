"""A replica's stream, from its position to the tail."""

from __future__ import annotations

import asyncio
import errno
import logging
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from binlog_protocol.errors import OutOfResources, ProtocolError
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.events.gtid import GtidEvent
from binlog_protocol.events.gtid_list import GtidList, GtidListFlags
from binlog_protocol.events.header import TYPE_OFFSET
from binlog_protocol.events.heartbeat import HeartbeatEvent
from binlog_protocol.events.rotate import RotateEvent
from binlog_protocol.gtid import Gtid, SlavePosition
from binlog_storage.engine import StartPoint
from binlog_storage.errors import TooManyOpenFiles

from binlog_server.connections.channel import WRITE_BUFFER_BYTES
from binlog_server.sessions.conversation import Conversation
from binlog_server.sessions.session import ClientSession
from tests.binlog_server.engines import SlowEngine
from tests.binlog_server.lab import Lab, Replica, gtids, transaction, until
from tests.binlog_server.transport import Held


async def test_fresh_replica_gets_everything(lab: Lab) -> None:
    lab.publish("0-1-1,0-1-2,0-1-3")
    replica = await lab.replica()
    rotate, description = await replica.opening()
    assert RotateEvent.parse(rotate).position == 4
    parsed = FormatDescription.parse(description)
    assert (parsed.created, parsed.checksum_algorithm, parsed.end_position) == (0, 0, 0)
    assert parsed.server_version == lab.server.config.server_version
    assert await replica.groups(3) == "0-1-1,0-1-2,0-1-3"


POSITIONS = {
    "from a position": ("0-1-1,0-1-2,0-1-3", "0-1-2", "0-1-3"),
    "domains in any order": (
        "0-1-1,5-1-1,0-1-2,7-77-1,5-1-2",
        "5-1-1,0-1-1",
        "0-1-2,7-77-1,5-1-2",
    ),
    "a domain that is not asked for comes whole": ("0-1-1,5-1-1,0-1-2", "0-1-2", "5-1-1"),
    "unknown domain": ("0-1-1", "9-1-4", "0-1-1"),
    "two servers in a domain": ("0-1-1,0-2-2,0-1-3", "0-2-2", "0-1-3"),
    "hole, not strict": ("0-1-1,0-1-5", "0-1-3", "0-1-5"),
}


@pytest.mark.parametrize("name", POSITIONS)
async def test_start(lab: Lab, name: str) -> None:
    history, position, expected = POSITIONS[name]
    lab.publish(history)
    replica = await lab.replica(position, slave_gtid_strict_mode=0)
    await replica.opening()
    received: list[Gtid] = []
    while len(received) < len(gtids(expected)):
        event = await replica.event()
        if event[4] == EventType.GTID:
            seq_no = int.from_bytes(event[19:27], "little")
            received.append(Gtid(int.from_bytes(event[27:31], "little"), event[5], seq_no))
    assert ",".join(map(str, received)) == expected


REFUSED = {
    "unknown": (
        "0-1-1,0-1-2",
        "0-1-9999",
        "Error: connecting slave requested to start from GTID 0-1-9999, which is not in the master's binlog",
    ),
    "diverged": (
        "0-1-1,0-1-2,0-1-9",
        "0-33-5",
        "Error: connecting slave requested to start from GTID 0-33-5, which is not in the master's binlog. Since the "
        "master's binlog contains GTIDs with higher sequence numbers, it probably means that the slave has diverged "
        "due to executing extra erroneous transactions",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_refused_before_the_first_event(lab: Lab, name: str) -> None:
    history, position, text = REFUSED[name]
    lab.publish(history)
    replica = await lab.replica(position)
    assert await replica.refused() == (1236, text)


async def test_no_descriptor_left(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """1236 would stop the replica for good; with anything else it comes again, when there may be one."""

    def no_file(position: SlavePosition) -> StartPoint:
        raise TooManyOpenFiles("cannot open binlog-000000.ibb: Too many open files")

    monkeypatch.setattr(lab.engine, "find_start", no_file)
    replica = await lab.replica("0-1-1")
    assert await replica.refused() == (
        1016,
        "cannot open binlog-000000.ibb: Too many open files",
    )


async def test_hole_in_strict_mode(lab: Lab) -> None:
    lab.publish("0-1-1,0-1-5")
    replica = await lab.replica("0-1-3", slave_gtid_strict_mode=1)
    await replica.opening()
    assert await replica.refused() == (
        1236,
        "The binlog on the master is missing the GTID 0-1-3 requested by the slave (even though both a prior and a "
        "subsequent sequence number does exist), and GTID strict mode is enabled",
    )


async def test_what_lies_before_a_hole_is_sent(lab: Lab) -> None:
    lab.publish("0-1-1,5-1-1,5-1-2,0-1-5,5-1-3")
    replica = await lab.replica("0-1-3", slave_gtid_strict_mode=1)
    await replica.opening()
    assert await replica.groups(2) == "5-1-1,5-1-2"
    assert (await replica.refused())[0] == 1236


async def test_lists_stand_between_the_groups_that_are_sent_together(lab: Lab) -> None:
    lab.publish("5-1-1,0-1-1,5-1-2,7-1-1,5-1-3,5-1-4")
    replica = await lab.replica("0-1-1,7-1-1")
    await replica.opening()
    received: list[str | list[str]] = []
    while len(received) < 6:
        event = await replica.event()
        if event[4] == EventType.GTID:
            received.append(f"{event[27]}-1-{event[19]}")
        elif event[4] == EventType.GTID_LIST:
            received.append(sorted(map(str, GtidList.parse(event).gtids)))
    both = ["0-1-1", "5-1-2", "7-1-1"]
    assert received == ["5-1-1", ["0-1-1", "5-1-1"], "5-1-2", both, "5-1-3", "5-1-4"]


async def test_list_after_the_position_is_reached(lab: Lab) -> None:
    lab.publish("0-1-1,5-1-1,0-1-2")
    replica = await lab.replica("0-1-1,5-1-1")
    await replica.opening()
    lists = []
    while (event := await replica.event())[4] == EventType.GTID_LIST:
        lists.append(GtidList.parse(event))
    assert event[4] == EventType.GTID
    assert lists, "none was sent"
    assert all(found.end_position == 0 and found.header_flags & 0x20 for found in lists)
    assert set(lists[-1].gtids) == {Gtid(0, 1, 1), Gtid(5, 1, 1)}


UNTIL: dict[str, tuple[str, dict[str, Any], str]] = {
    "at": ("0-1-1,0-1-2,0-1-3", {"slave_until_gtid": "0-1-2"}, "0-1-1,0-1-2"),
    "before": (
        "0-1-1,0-1-2,0-1-3",
        {"slave_until_gtid": "0-1-2", "slave_gtid_until_before_gtids": 1},
        "0-1-1",
    ),
    "missing": ("0-1-1,0-1-3", {"slave_until_gtid": "0-1-2"}, "0-1-1"),
    "other domains are left out": (
        "0-1-1,5-1-1,0-1-2",
        {"slave_until_gtid": "0-1-2"},
        "0-1-1,0-1-2",
    ),
    "none": ("0-1-1", {"slave_until_gtid": ""}, ""),
}


@pytest.mark.parametrize("name", UNTIL)
async def test_until(lab: Lab, name: str) -> None:
    history, variables, expected = UNTIL[name]
    lab.publish(history)
    replica = await lab.replica("", **variables)
    await replica.opening()
    assert await replica.groups(len(gtids(expected))) == expected
    last = GtidList.parse(await replica.event())
    assert last.flags == GtidListFlags.UNTIL_REACHED
    assert await replica.ended()


async def test_until_waits_for_what_is_to_come(lab: Lab) -> None:
    lab.publish("0-1-1")
    replica = await lab.replica("0-1-1", slave_until_gtid="0-1-3")
    await replica.opening()
    lab.publish("0-1-2,0-1-3,0-1-4")
    assert (await replica.event())[4] == EventType.GTID_LIST
    assert await replica.groups(2) == "0-1-2,0-1-3"
    assert GtidList.parse(await replica.event()).flags == GtidListFlags.UNTIL_REACHED
    assert await replica.ended()


def start_marker(created: int) -> bytes:
    return FormatDescription("11.8.6-MariaDB", 1, created=created).for_store().build()


async def test_start_marker_is_withheld_until_the_position_is_reached(lab: Lab) -> None:
    """It drops temporary tables: what happened before the position did so once already."""
    for gtid, payload in (
        (None, start_marker(1)),
        (Gtid(0, 1, 1), transaction(Gtid(0, 1, 1))),
        (None, start_marker(2)),
        (Gtid(0, 1, 2), transaction(Gtid(0, 1, 2))),
        (None, start_marker(3)),
        (Gtid(0, 1, 3), transaction(Gtid(0, 1, 3))),
    ):
        lab.engine.append(payload, gtid)
    lab.engine.sync()
    replica = await lab.replica("0-1-2")
    await replica.opening()
    events = [await replica.event() for _ in range(3)]
    created = [FormatDescription.parse(e).created for e in events if e[4] == 15]
    assert created == [3]
    fresh = await lab.replica("", server_id=101)
    await fresh.opening()
    assert FormatDescription.parse(await fresh.event()).created == 1


async def test_start_markers_are_for_replicas(lab: Lab) -> None:
    """Who has not registered gets one format description: `mariadb-binlog --raw` begins its file anew with each."""
    lab.engine.append(start_marker(1), None)
    lab.engine.append(transaction(Gtid(0, 1, 1)), Gtid(0, 1, 1))
    lab.engine.append(start_marker(2), None)
    lab.engine.append(transaction(Gtid(0, 1, 2)), Gtid(0, 1, 2))
    lab.engine.sync()
    reader = await lab.replica("", registered=False)
    await reader.opening()
    assert await reader.groups(2) == "0-1-1,0-1-2"


def annotated(gtid: Gtid) -> bytes:
    """A group with an ANNOTATE_ROWS event behind its GTID event."""
    group = transaction(gtid)
    head = int.from_bytes(group[9:13], "little")
    text = b"INSERT INTO t VALUES (1)"
    header = bytes(4) + bytes((160,)) + gtid.server_id.to_bytes(4, "little")
    note = header + (19 + len(text)).to_bytes(4, "little") + bytes(6) + text
    return group[:head] + note + group[head:]


@pytest.mark.parametrize(("flags", "types"), [(2, [162, 160, 2, 16]), (0, [162, 2, 16])])
@pytest.mark.parametrize("position", ["", "0-1-1"])
async def test_annotate_only_for_who_wants_it(
    lab: Lab, flags: int, types: list[int], position: str
) -> None:
    lab.publish("0-1-1")
    lab.engine.append(annotated(Gtid(0, 1, 2)), Gtid(0, 1, 2))
    lab.engine.sync()
    replica = await lab.replica(position, flags=flags)
    await replica.opening()
    if position:
        assert (await replica.event())[4] == EventType.GTID_LIST
    else:
        await replica.group()
    assert [(await replica.event())[4] for _ in types] == types


def marked(gtid: Gtid) -> bytes:
    """All its events were logged with @@skip_replication=1."""
    group = bytearray(transaction(gtid))
    at = 0
    while at < len(group):
        group[at + 18] |= 0x80
        at += int.from_bytes(group[at + 9 : at + 13], "little")
    return bytes(group)


@pytest.mark.parametrize("filtered", [True, False])
async def test_skip_replication(lab: Lab, filtered: bool) -> None:
    lab.engine.append(marked(Gtid(0, 1, 1)), Gtid(0, 1, 1))
    lab.publish("0-1-2")
    client = await lab.client()
    if filtered:
        await client.query("SET skip_replication=1")
    replica = Replica(client)
    await replica.start()
    await replica.opening()
    assert str(await replica.group()) == ("0-1-2" if filtered else "0-1-1")


@pytest.mark.parametrize(("flags", "server_id"), [(1, 100), (0, 0)])
async def test_non_block_ends_at_the_end(lab: Lab, flags: int, server_id: int) -> None:
    lab.publish("0-1-1")
    replica = await lab.replica(flags=flags, server_id=server_id)
    await replica.opening()
    assert await replica.groups(1) == "0-1-1"
    assert await replica.ended()


async def test_heartbeats_lie_beyond_what_the_replica_counts(lab: Lab) -> None:
    lab.publish("0-1-1")
    replica = await lab.replica(master_heartbeat_period=20_000_000)
    rotate, _ = await replica.opening()
    await replica.group()
    sent = sum(len(packet.payload) - 1 for packet in replica.client.seen)
    began = asyncio.get_running_loop().time()
    for _ in range(2):
        heartbeat = HeartbeatEvent.parse(await replica.event())
        assert heartbeat.name == RotateEvent.parse(rotate).name
        assert heartbeat.position >= sent - len(rotate) + 4
    assert asyncio.get_running_loop().time() - began >= 0.03


@pytest.mark.parametrize("filtered", [False, True])
async def test_heartbeats_while_the_next_group_is_looked_for(filtered: bool) -> None:
    """It may lie behind gigabytes of what other groups have out of band."""
    engine = SlowEngine()
    async with Lab(engine) as lab:
        lab.publish("0-1-1,0-1-2")
        engine.read_gate.clear()
        position = "0-1-1" if filtered else ""
        replica = await lab.replica(position, master_heartbeat_period=10_000_000)
        await replica.opening()
        for _ in range(3):
            HeartbeatEvent.parse(await replica.event())
        engine.read_gate.set()
        await until_group(replica, "0-1-2" if filtered else "0-1-1")


async def until_group(replica: Replica, gtid: str) -> None:
    """Heartbeats come before it."""
    while (event := await replica.event())[TYPE_OFFSET] == EventType.HEARTBEAT:
        pass
    assert str(GtidEvent.parse(event).gtid) == gtid


async def test_no_heartbeat_when_none_is_asked_for(lab: Lab) -> None:
    replica = await lab.replica()
    await replica.opening()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await replica.event()


async def test_heartbeats_are_no_flood(lab: Lab) -> None:
    """A period of one nanosecond would keep the loop from everything else."""
    replica = await lab.replica(master_heartbeat_period=1)
    await replica.opening()
    loop = asyncio.get_running_loop()
    began = loop.time()
    for _ in range(20):
        await replica.event()
    assert loop.time() - began >= 0.015


@pytest.mark.parametrize("period", ["9" * 400, "-1", "nonsense", "0"])
async def test_absurd_heartbeat_periods(lab: Lab, period: str) -> None:
    lab.publish("0-1-1")
    replica = await lab.replica(master_heartbeat_period=period)
    await replica.opening()
    assert await replica.groups(1) == "0-1-1"


async def test_live_tail(lab: Lab) -> None:
    replicas = [await lab.replica(server_id=200 + n) for n in range(5)]
    for replica in replicas:
        await replica.opening()
    for seq_no in range(1, 30):
        lab.publish([Gtid(0, 1, seq_no)])
        for replica in replicas:
            assert await replica.group() == Gtid(0, 1, seq_no)


async def test_nothing_before_it_is_synced(lab: Lab) -> None:
    replica = await lab.replica()
    await replica.opening()
    lab.engine.append(transaction(Gtid(0, 1, 1)), Gtid(0, 1, 1))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await replica.event()
    fresh = await lab.replica(server_id=101, flags=1)
    await fresh.opening()
    assert await fresh.ended(), "a replica that connects does not see it, either"
    lab.engine.sync()
    assert await replica.group() == Gtid(0, 1, 1)


async def test_same_server_id_ends_the_older_dump(lab: Lab) -> None:
    lab.publish("0-1-1")
    older = await lab.replica(server_id=7)
    other = await lab.replica(server_id=8)
    await older.opening()
    await older.group()
    newer = await lab.replica("0-1-1", server_id=7)
    assert await older.refused() == (4052, "A slave with the same server_id is already connected")
    await newer.opening()
    lab.publish("0-1-2")
    assert (await newer.event())[4] == EventType.GTID_LIST
    assert await newer.groups(1) == "0-1-2"
    await other.opening()
    assert await other.groups(2) == "0-1-1,0-1-2"


async def test_server_id_0_is_nobodys(lab: Lab) -> None:
    lab.publish("0-1-1")
    for replica in [await lab.replica(server_id=0) for _ in range(2)]:
        await replica.opening()
        assert await replica.groups(1) == "0-1-1"
        assert await replica.ended()


async def test_sequence_numbers_wrap(lab: Lab) -> None:
    lab.publish([Gtid(0, 1, n) for n in range(1, 301)])
    replica = await lab.replica("0-1-50")
    await replica.opening()
    assert (await replica.event())[4] == EventType.GTID_LIST
    await replica.groups(250)
    for first in range(301, 601, 100):  # each of them more packets than there are numbers
        lab.publish([Gtid(0, 1, n) for n in range(first, first + 100)])
        await replica.groups(100)
    numbers = [packet.seq for packet in replica.client.seen]
    assert len(numbers) > 1000
    assert numbers == [n % 256 for n in range(1, len(numbers) + 1)]


async def test_events_beyond_one_packet(lab: Lab) -> None:
    gtid = Gtid(0, 1, 1)
    payload = transaction(gtid, "x" * (17 << 20))
    lab.engine.append(payload, gtid)
    lab.publish("0-1-2")
    replica = await lab.replica()
    await replica.opening()
    received = b"".join([await replica.event() for _ in range(3)])
    assert received == payload
    assert await replica.groups(1) == "0-1-2"
    seen = replica.client.seen
    assert all(a.next_seq == b.seq for a, b in pairwise(seen))


async def test_shutdown_is_eof(lab: Lab) -> None:
    lab.publish("0-1-1")
    replica = await lab.replica()
    await replica.opening()
    await replica.group()
    stopping = asyncio.ensure_future(lab.server.stop())
    assert await replica.ended()
    lab._stopped = True
    await stopping


async def test_what_clients_write_into_the_dump_is_dropped(lab: Lab) -> None:
    replica = await lab.replica()
    await replica.opening()
    replica.client.send(b"\1\0\0\0\x0e" * 1000 + b"\xff" * 100_000)
    lab.publish("0-1-1")
    assert await replica.groups(1) == "0-1-1"


async def test_kill_closes_without_a_word(lab: Lab) -> None:
    replica = await lab.replica()
    await replica.opening()
    admin = await lab.client()
    (row,) = [row for row in await admin.query("SHOW PROCESSLIST") if row[4] == "Binlog Dump"]
    assert row[6] == "Master has sent all binlog to slave; waiting for more updates"
    assert await admin.query(f"KILL {row[0]}") == []
    assert await replica.client.closed()
    await until(lambda: len(lab.server.connections) == 1)


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("goes", "the replica has gone"),
        ("killed", "it was killed"),
        ("twice", r"4052 \(HY000\): A slave with the same server_id"),
        ("until", "it has all that it asked for"),
        ("refused", "it was refused"),
        ("stop", "the server stops"),
    ],
)
async def test_the_log_says_whose_dump_ends_where_and_why(
    how: str, reason: str, lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    lab.publish("0-1-1,0-1-2")
    variables = {"until": {"slave_until_gtid": "0-1-2"}}.get(how, {})
    replica = await lab.replica("0-1-5" if how == "refused" else "", **variables)
    if how != "refused":
        await replica.opening()
        assert await replica.groups(2) == "0-1-1,0-1-2"
    if how == "goes":
        replica.client.close()
    elif how == "killed":
        admin = await lab.client()
        (row,) = [r for r in await admin.query("SHOW PROCESSLIST") if r[4] == "Binlog Dump"]
        await admin.query(f"KILL {row[0]}")
    elif how == "twice":
        await lab.replica("0-1-2")
    elif how == "stop":
        await lab.stop(clients_stay=True)
    await until(lambda: bool(_ends(caplog)))
    sent = "nothing" if how == "refused" else "'0-1-2'"
    assert re.search(
        r"dump ends: connection \d+ from 127\.0\.0\.1:\d+ \(repl\), server_id 100, sent up to "
        rf"{sent}: {reason}",
        _ends(caplog)[0],
    )


async def test_where_a_dump_ended_that_was_behind(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    async with Lab() as lab:
        for number in range(1, 200):
            gtid = Gtid(0, 1, number)
            lab.engine.append(transaction(gtid, f"INSERT INTO t VALUES ('{'x' * 200_000}')"), gtid)
        lab.engine.sync()
        replica = await lab.replica()
        await replica.opening()
        await replica.group()
        replica.client.close()
        await until(lambda: bool(_ends(caplog)))
    (ended,) = _ends(caplog)
    found = re.search(r"sent up to '0-1-(\d+)': the replica has gone$", ended)
    assert found is not None, ended
    assert 1 <= int(found[1]) < 199


GONE = "the replica has gone"


@pytest.mark.parametrize("fails_first", [False, True], ids=["told by the loop", "seen by a write"])
@pytest.mark.parametrize(
    ("told", "reason"),
    [
        (None, GONE),
        (ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"), GONE),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), GONE),
        (TimeoutError(errno.ETIMEDOUT, "timed out"), "lost: [Errno 110] timed out"),
        (OSError(errno.EHOSTUNREACH, "No route"), "lost: [Errno 113] No route"),
    ],
)
async def test_the_end_of_a_connection_is_told_in_one_way(
    lab: Lab,
    told: Exception | None,
    reason: str,
    fails_first: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whether the loop tells of it first, or the dump meets a socket that has failed."""
    caplog.set_level("INFO")
    held = Held(lab.server)
    held.log_in()
    held.dump(100)
    await until(lambda: held.session._connection.state.startswith("Master has sent all"))
    if fails_first:
        met: list[ConnectionError] = []
        channel = held.session._channel
        drain = channel.drain

        async def meets() -> None:
            try:
                await drain()
            except ConnectionError as error:
                met.append(error)
                raise

        monkeypatch.setattr(channel, "drain", meets)
        held.transport.closing = True
        lab.publish("0-1-1")
        await until(lambda: bool(met))
        assert not _ends(caplog)
    held.session.connection_lost(told)
    await until(lambda: bool(_ends(caplog)))
    (ended,) = _ends(caplog)
    assert ended.endswith(f": {reason}"), ended


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (lambda _: None, "it took nothing for net_write_timeout"),
        (lambda session: session._give_up(ProtocolError("odd")), "odd"),
        (lambda session: session.drop(OutOfResources(1)), str(OutOfResources(1))),
        (lambda session: session.tls_failed("bad record"), "TLS: bad record"),
    ],
)
async def test_who_is_sent_away_has_not_gone(
    lab: Lab,
    end: Callable[[ClientSession], None],
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(Conversation, "_net_write_timeout", lambda _: 0.02)
    for number in range(1, 30):
        gtid = Gtid(0, 1, number)
        lab.engine.append(transaction(gtid, "x" * 100_000), gtid)
    lab.engine.sync()
    held = Held(lab.server)
    held.log_in()
    held.dump(100)
    await until(lambda: held.transport.held > WRITE_BUFFER_BYTES)
    end(held.session)
    await until(lambda: bool(_ends(caplog)))
    assert _ends(caplog)[0].endswith(f": {reason}")
    held.end()


def _ends(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        m for m in map(logging.LogRecord.getMessage, caplog.records) if m.startswith("dump end")
    ]
