"""The hot path of a commit against the long way: the same packets in, the same groups and answers out."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import FLAG_SKIP_REPLICATION, EventHeader
from binlog_protocol.groups.statement_group import Origin, QuickGroup
from binlog_protocol.gtid import Gtid
from binlog_protocol.wire.packets import frame_packet
from binlog_storage.testing.memory_engine import MemoryEngine
from hypothesis import given, settings
from hypothesis import strategies as st

from binlog_server.accounts.privileges import ALL_PRIVILEGES
from binlog_server.accounts.users import Account
from binlog_server.sql_commit.quick_way import QuickWay
from tests.binlog_server.lab import PASSWORD, USER, Lab, until
from tests.binlog_server.transport import Held
from tests.protocol.statement_groups import transaction_group

U32 = st.integers(0, 2**32 - 1)


@given(
    origin=st.builds(
        Origin,
        U32,
        st.binary(max_size=255),
        st.binary(max_size=100),
        U32,
        st.sampled_from((0, FLAG_SKIP_REPLICATION)),
    ),
    domain_id=U32,
    seq_no=st.integers(0, 2**64 - 1),
    timestamp=U32,
    text=st.binary(max_size=300),
)
def test_quick_group_is_the_plain_one(
    origin: Origin, domain_id: int, seq_no: int, timestamp: int, text: bytes
) -> None:
    gtid = Gtid(domain_id, origin.server_id, seq_no)
    plain = (
        origin.begin(gtid, timestamp)
        + origin.statement(text, timestamp)
        + origin.commit(seq_no, timestamp)
    )
    assert QuickGroup(domain_id, origin).build(text, seq_no, timestamp) == plain


def test_plain_group_is_that_of_programs() -> None:
    gtid, origin = Gtid(1, 2, 3), Origin(2, b"d")
    quick = QuickGroup(1, origin).build(b"INSERT INTO t VALUES (1)", 3, 4)
    assert quick == transaction_group(
        gtid, ["INSERT INTO t VALUES (1)"], xid=3, database="d", timestamp=4
    )


class Clock:
    def __call__(self) -> float:
        return 1_700_000_000.0


def packet(text: bytes) -> bytes:
    return frame_packet(b"\3" + text, 0)[0]


async def outcome(
    texts: list[bytes], cuts: list[int], *, quick: bool, together: bool
) -> tuple[list[Any], list[Any], int]:
    """Groups, answers, and how many commits were quick, of packets that come in pieces."""
    engine = MemoryEngine()
    lab = Lab(engine, users={USER: Account(PASSWORD, frozenset({"BINLOG REPLAY"}))})
    await lab.server.start()
    lab.server.publisher._clock = Clock()
    held = Held(lab.server)
    held.log_in()
    taken = 0
    way: Any = held.conversation.transaction.quick_way
    original = QuickWay.take

    def counted(data: bytes) -> bool:
        nonlocal taken
        done = quick and original(way, data)
        taken += done
        return done

    way.take = counted
    answers: list[Any] = []
    stream = b"".join(map(packet, texts))
    wholes = [stream] if together else [packet(text) for text in texts]
    for whole in wholes:
        sizes = sorted(cut % (len(whole) + 1) for cut in cuts)
        wanted = len(texts) if together else len(answers) + 1
        for start, end in zip([0, *sizes], [*sizes, len(whole)], strict=True):
            if start < end:
                held.session.data_received(whole[start:end])

        def complete(wanted: int = wanted) -> bool:
            answers.extend(packet.payload for packet in held.packets())
            return len(answers) >= wanted

        await until(complete)
    held.end()
    await lab.stop()
    return engine._groups, answers, taken


STATEMENTS = [
    b"INSERT INTO t VALUES (1)",
    b"insert into t values (2) ",
    b"UPDATE t SET a='\xff\x00'",
    b"DELETE FROM t;",
    b"INSERT ",
    b"INSERT INTO t VALUES (@a)",
    b"INSERT INTO t VALUES (';')",
    b"INSERT INTO t VALUES (1); DELETE FROM t",
    b"REPLACE INTO t VALUES (1)",
    b"BEGIN",
    b"COMMIT",
    b"ROLLBACK",
    b"SAVEPOINT a",
    b"ROLLBACK TO a",
    b"SET autocommit=0",
    b"SET autocommit=1",
    b"SET NAMES latin1",
    b"SET NAMES utf8mb4",
    b"SET timestamp=5",
    b"SET timestamp=0",
    b"SET gtid_seq_no=100",
    b"SET gtid_domain_id=2",
    b"SET insert_id=9",
    b"SET @a=1",
    b"USE d",
    b"CREATE TABLE t (a INT)",
    b"DO 1",
    b"nonsense",
    b"",
]


@settings(max_examples=60)
@given(
    texts=st.lists(st.sampled_from(STATEMENTS), min_size=1, max_size=14),
    cuts=st.lists(st.integers(0, 10_000), max_size=4),
    together=st.booleans(),
)
def test_the_quick_way_is_the_long_way(texts: list[bytes], cuts: list[int], together: bool) -> None:
    async def both() -> None:
        groups, answers, _ = await outcome(texts, cuts, quick=True, together=together)
        plain_groups, plain_answers, taken = await outcome(
            texts, cuts, quick=False, together=together
        )
        assert not taken
        # The start marker has the time of the machine in it, and thread ids are the same: one connection each.
        assert groups == plain_groups
        assert answers == plain_answers

    asyncio.run(both())


@pytest.mark.parametrize("word", [b"INSERT", b"update", b"DELETE"])
async def test_the_quick_way_is_taken(word: bytes) -> None:
    texts = [word + b" t %d" % n for n in range(10)]
    assert (await outcome(texts, [], quick=True, together=False))[2] == 9
    # In one piece they wait for each other's answers, and go the long way.
    assert (await outcome(texts, [], quick=True, together=True))[2] == 0


async def test_behind_a_reset_the_quick_way_begins_with_a_start_marker_too() -> None:
    """Replicas forget their temporary tables there: those that the removed binlog made are nobody's."""
    engine = MemoryEngine()
    async with Lab(engine, users={USER: Account(PASSWORD, frozenset({ALL_PRIVILEGES}))}) as lab:
        writer = Held(lab.server)
        writer.log_in()
        admin = await lab.client()
        for number in range(3):
            writer.receive(packet(b"INSERT INTO t VALUES (%d)" % number))
            await until(lambda: bool(writer.packets()))
        assert (await admin.query("RESET MASTER")) == []
        assert engine._groups == []
        way: Any = writer.conversation.transaction.quick_way
        assert way.take(packet(b"INSERT INTO t VALUES (3)"))
        stored = [gtid for _, gtid in engine._groups]
        assert stored == [None, Gtid(0, 1, 1)]
        assert EventHeader.parse(engine._groups[0][0]).type == EventType.FORMAT_DESCRIPTION
        writer.end()
