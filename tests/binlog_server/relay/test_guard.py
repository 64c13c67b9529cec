"""What an upstream must show before it is followed, and what becomes of candidates that do not."""

from __future__ import annotations

import asyncio
import re
import time
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
from binlog_protocol.connection.server import ServerConnection
from binlog_protocol.errors import GtidPurged, UnknownServerError, UserLimitReached
from binlog_protocol.events.checksum import append_checksum
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.events.header import build_event, split_events
from binlog_protocol.groups.group_comparison import Likeness, compare
from binlog_protocol.groups.group_content import TABLES_MAX, GroupContent, content_of
from binlog_protocol.groups.group_stream import GroupStream, Item
from binlog_protocol.gtid import Gtid
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.engine import BinlogEngine
from binlog_storage.testing.memory_disk import MemoryDisk
from binlog_storage.testing.memory_engine import MemoryEngine, MemoryHistory

from binlog_server.process.logs import TEXT_CHARS_MAX
from binlog_server.relay import upstream_groups
from binlog_server.relay.client_link import ClientLink
from binlog_server.relay.guard import LastGroup, last_group
from binlog_server.relay.status import IoState, UpstreamStatus
from tests.binlog_server.lab import STORE, fill, gtids, transaction, until, within
from tests.binlog_server.relay.test_follower import Delays, delays, durable, following
from tests.binlog_server.upstream import OPENING, FakeUpstream, Visit, groups
from tests.protocol.groups.test_group_runs import stream, streaming
from tests.protocol.groups.test_group_runs import transaction as events_of

__all__ = ["delays"]  # a fixture

STATE = "SELECT @@GLOBAL.gtid_binlog_state"
CHECKSUM = "SELECT @master_binlog_checksum"
SERVER_ID = "SHOW VARIABLES LIKE 'SERVER_ID'"
HEARTBEAT = build_event(EventType.HEARTBEAT, b"m-bin.000001", server_id=1)
UPTIME = "SHOW GLOBAL STATUS LIKE 'Uptime'"


class Master(FakeUpstream):
    """A master whose state is told, with what it shows of single groups, by their UNTIL, and what comes else.

    A list of things to show is gone through, up to its last.
    """

    def __init__(self, state: str, *mains: Visit, **shown: Visit | list[Visit]) -> None:
        super().__init__()
        self.rows = {STATE: (state,), UPTIME: ("Uptime", "5000")}
        self.mains = list(mains)
        self.shown = {name.strip("_").replace("_", "-"): visit for name, visit in shown.items()}
        self.followed = self.proofs = 0
        self._until = ""

    def answer(self, machine: ServerConnection, sql: str, visit: Visit) -> bytes:
        if sql.startswith("SET @slave_until_gtid"):
            self._until = sql.split("'")[1]
        return super().answer(machine, sql, visit)

    def _stream(
        self, machine: ServerConnection, writer: asyncio.StreamWriter, visit: Visit
    ) -> bool:
        until, self._until = self._until, ""
        if not until:
            self.followed += 1
            visit = self.mains.pop(0) if self.mains else Visit(OPENING)
        else:
            self.proofs += 1
            found = self.shown.get(until, Visit(OPENING, "eof"))
            if isinstance(found, list):
                found = found.pop(0) if len(found) > 1 else found[0]
            visit = found
        return super()._stream(machine, writer, visit)


def sends(*texts: str) -> Visit:
    return Visit(OPENING + groups(*texts))


def other(gtid: str) -> Visit:
    """A group that is not the one which everybody else has by that GTID."""
    payload = transaction(Gtid.parse(gtid), "DELETE FROM t")
    return Visit(OPENING + [append_checksum(event) for event in split_events(payload)])


OURS = {"_0_1_3": sends("0-1-3"), "_5_2_2": sends("5-2-2")}


def dead() -> FakeUpstream:
    return FakeUpstream([Visit(deny=True)] * 100_000)


@pytest.fixture
def history() -> MemoryHistory:
    return MemoryHistory()


@pytest.fixture
def engine(history: MemoryHistory) -> MemoryEngine:
    engine = MemoryEngine(history)
    fill(engine, gtids("0-1-1,5-1-1,0-1-2,5-2-2,0-1-3"))
    return engine


# --- the last group in the store ---


@pytest.fixture(params=["memory", "ibb"])
def any_engine(request: pytest.FixtureRequest) -> BinlogEngine:
    return MemoryEngine() if request.param == "memory" else IbbEngine(MemoryDisk(), STORE)


@pytest.mark.parametrize(
    ("stored", "wanted", "before"),
    [
        ("0-1-1", "0-1-1", None),
        ("0-1-1,0-1-2", "0-1-2", "0-1-1"),
        ("0-1-1,7-1-1,0-1-2,7-1-2,7-1-3", "0-1-2", "0-1-1"),
        ("7-1-1,0-1-1,7-1-2,7-1-3", "0-1-1", None),
        ("0-1-9,0-2-10", "0-2-10", "0-1-9"),
        ("0-2-5,0-1-6,0-2-7,0-1-8,0-2-9", "0-2-9", "0-1-8"),
    ],
)
def test_last_group(any_engine: BinlogEngine, stored: str, wanted: str, before: str | None) -> None:
    fill(any_engine, gtids(stored))
    gtid = Gtid.parse(wanted)
    found = last_group(any_engine, gtid)
    assert found == LastGroup(
        Gtid.parse(before) if before else None, content_of([transaction(gtid)])
    )
    any_engine.close()


def test_last_groups_over_files_and_large_ones() -> None:
    engine = IbbEngine(MemoryDisk(), STORE)
    engine.large_group_bytes = 1 << 15
    fill(engine, gtids("0-1-1"))
    large = transaction(Gtid(7, 1, 1), "INSERT " + "x" * 300_000)
    engine.append(large, Gtid(7, 1, 1))
    fill(engine, (Gtid(3, 1, n) for n in range(1, 12_000)))
    assert engine.durable_end.file_no > 0
    state = engine.binlog_state()
    for domain, before in ((0, None), (7, None), (3, Gtid(3, 1, 11_998))):
        last = state.last(domain)
        assert last is not None
        found = last_group(engine, last)
        assert found is not None
        assert found.before == before
    found = last_group(engine, Gtid(7, 1, 1))
    assert found is not None
    assert found.content == content_of([large])
    engine.close()


def test_last_group_that_is_not_there(history: MemoryHistory) -> None:
    engine = MemoryEngine(history)
    engine.reset(type(engine.binlog_state())(gtids("0-1-7")))
    fill(engine, gtids("5-1-1"))
    assert last_group(engine, Gtid(0, 1, 7)) is None
    history.purge(1)
    assert last_group(MemoryEngine(history), Gtid(5, 1, 1)) is None


# --- one upstream ---


async def test_proved_group_by_group(
    engine: MemoryEngine, history: MemoryHistory, delays: Delays, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with (
        Master("0-1-4,5-1-1,5-2-2", sends("0-1-4"), **OURS) as there,
        following(there, engine),
    ):
        await until(lambda: durable(history).endswith("0-1-4"))
    assert "has our last groups: 0-1-3, 5-2-2" in caplog.text
    # Only that group of that domain: the others stand where the upstream itself is.
    assert [set(text.split(",")) for text in there.positions] == [
        {"0-1-2", "5-2-2"},
        {"5-1-1", "0-1-4"},
        {"0-1-3", "5-2-2"},
    ]


async def test_another_group_is_asked_for_twice_and_ends_the_following(
    engine: MemoryEngine, history: MemoryHistory, delays: Delays
) -> None:
    before = durable(history)
    status = UpstreamStatus("")
    async with (
        Master("0-1-3", _0_1_3=other("0-1-3")) as there,
        following(there, engine, status=status) as task,
    ):
        await within(task)
    assert (there.visits, there.followed) == (4, 0)
    assert durable(history) == before
    assert (status.errno, status.stopped, status.state) == (1593, True, IoState.STOPPED)
    for part in (
        "0-1-3 is not the same group there (part 1 is INSERT INTO t VALUES (1) here, DELETE FROM t there)",
        "Here: 0-1-3 of 2023-11-14 22:13:20 UTC, 3 events",
        "There: 0-1-3 of 2023-11-14 22:13:20 UTC, 3 events",
        "nothing of it is stored",
    ):
        assert part in status.error


async def test_a_false_alarm(engine: MemoryEngine, history: MemoryHistory, delays: Delays) -> None:
    async with (
        Master("0-1-3", sends("0-1-4"), _0_1_3=[other("0-1-3"), sends("0-1-3")]) as there,
        following(there, engine),
    ):
        await until(lambda: durable(history).endswith("0-1-4"))


async def test_another_number_shows_where_the_histories_part(
    engine: MemoryEngine, delays: Delays
) -> None:
    status = UpstreamStatus("")
    async with (
        Master("0-1-2,0-9-4", _0_9_4=sends("0-9-3", "0-9-4")) as there,
        following(there, engine, status=status) as task,
    ):
        await within(task)
    assert status.errno == 1236
    assert "requested to start from GTID 0-1-3, which is not in the master's binlog" in status.error
    assert "Its last one there is 0-9-4. Here: 0-1-3 of" in status.error
    assert "There: 0-9-3 of" in status.error


PURGED = Visit(OPENING, GtidPurged())


@pytest.mark.parametrize(
    ("shown", "doubt"),
    [
        (PURGED, "required binlog files have been purged"),
        (Visit(OPENING, UserLimitReached("u", "max_user_connections", 1)), "max_user_connections"),
        (Visit(OPENING, "eof"), "the upstream does not show it"),
        (Visit(OPENING + groups("0-1-2"), "eof"), "the upstream does not show it"),
    ],
)
async def test_what_the_upstream_cannot_show(
    shown: Visit,
    doubt: str,
    engine: MemoryEngine,
    history: MemoryHistory,
    delays: Delays,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        Master("0-1-3", sends("0-1-4"), _0_1_3=shown) as there,
        following(there, engine),
    ):
        await until(lambda: durable(history).endswith("0-1-4"))
    (line,) = [r.getMessage() for r in caplog.records if "only its GTID says" in r.getMessage()]
    assert "our 0-1-3" in line
    assert doubt in line


async def test_an_error_on_the_way_is_tried_again(
    engine: MemoryEngine, history: MemoryHistory, delays: Delays
) -> None:
    shown = [
        Visit(OPENING, UnknownServerError("not now")),
        Visit(OPENING + groups("0-1-3")[:-1], "cut"),
        sends("0-1-3"),
    ]
    async with (
        Master("0-1-3", sends("0-1-4"), _0_1_3=shown) as there,
        following(there, engine),
    ):
        await until(lambda: durable(history).endswith("0-1-4"))
    assert (there.followed, len(shown)) == (1, 1)


@pytest.mark.parametrize("state", ["", "9-1-1", "0-1-2", "0-9-1"])
async def test_one_that_has_not_got_it_is_left_to_answer_itself(
    state: str, engine: MemoryEngine, delays: Delays
) -> None:
    """Without other candidates: domains may come from elsewhere, and 1236 is the upstream's word."""
    async with Master(state) as there, following(there, engine):
        await until(lambda: there.followed == 1)
    assert there.visits == 1


@pytest.mark.parametrize(
    ("sql", "row", "said"),
    [
        (STATE, ("A" * 250_000,), "gtid_binlog_state is 'AAAA"),
        (SERVER_ID, ("server_id", "B" * 250_000), "server_id is 'BBBB"),
        (SERVER_ID, ("server_id", "1" * 5000), "server_id is '1111"),
        (SERVER_ID, ("server_id", "4294967296"), "server_id is 4294967296"),
        (SERVER_ID, ("server_id", "²"), "server_id is '²'"),
        (CHECKSUM, ("C" * 250_000,), "CCCC"),
        (UPTIME, ("Uptime", "9" * 5000), "Uptime is '9999"),
        (UPTIME, ("Uptime", "9" * 400), "Uptime is '9999"),
        (UPTIME, ("Uptime", "-" + "9" * 300), "Uptime is '-999"),
    ],
)
async def test_nonsense_is_quoted_in_short_and_tried_again(
    sql: str,
    row: tuple[str, ...],
    said: str,
    engine: MemoryEngine,
    delays: Delays,
    caplog: pytest.LogCaptureFixture,
) -> None:
    status = UpstreamStatus("")
    async with Master("0-1-3", **OURS) as there:
        there.rows[sql] = row
        async with following(there, engine, status=status):
            await until(lambda: there.visits > 2 and bool(status.error))
            assert status.errno == 2027
            assert said in status.error
            assert not status.stopped
            for text in (status.error, status.last_error):
                assert len(text) <= TEXT_CHARS_MAX
    for record in caplog.records:
        assert len(record.getMessage()) <= TEXT_CHARS_MAX + 100
        assert not record.exc_info, record.exc_text


@pytest.mark.parametrize("flood", ["heartbeats", "other groups", "tables"])
async def test_a_proof_that_does_not_come_ends(
    flood: str, engine: MemoryEngine, delays: Delays, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a lost connection with a name, and tried again with a pause."""
    monkeypatch.setattr(upstream_groups, "OTHER_GROUPS_MAX", 50)
    status = UpstreamStatus("")
    head = events_of(3, 70)[0]
    maps = [
        build_event(
            EventType.TABLE_MAP,
            number.to_bytes(6, "little") + bytes(2) + b"\1d\0\1t\0\1\3\0\0",
            server_id=1,
        )
        for number in range(TABLES_MAX + 1)
    ]
    visit, said = {
        "heartbeats": (Visit(OPENING, "hold"), "asked for its group 0-1-3"),
        "other groups": (
            Visit(OPENING + groups(*(f"9-1-{n}" for n in range(1, 60))), "hold"),
            "51 other groups came where 0-1-3 was asked for",
        ),
        "tables": (
            Visit(
                OPENING
                + [append_checksum(event) for event in [head, *maps]]
                + groups("0-1-9")[-1:],
                "hold",
            ),
            f"more than {TABLES_MAX} tables",
        ),
    }[flood]
    # Only heartbeats come to that; to take the tables may need longer on a busy machine.
    silence_s = 1 if flood == "heartbeats" else 60
    async with (
        Master("0-1-3", _0_1_3=visit) as there,
        following(there, engine, status=status, slave_net_timeout=silence_s),
    ):

        async def beats() -> None:
            while flood == "heartbeats":
                if there.streaming:
                    there.send([append_checksum(HEARTBEAT)])
                await asyncio.sleep(0.05)

        beating = asyncio.create_task(beats())
        await until(lambda: said in status.error)
        beating.cancel()
        assert status.errno in (2013, 2027)
        assert not status.stopped
        assert said in status.last_error
        proofs = there.proofs
        await until(lambda: there.proofs > proofs)
        assert there.followed == 0


async def test_groups_need_not_be_checked(engine: MemoryEngine, delays: Delays) -> None:
    async with (
        Master("0-1-3") as there,
        following(there, engine, info={"check_last_group": False}),
    ):
        await until(lambda: there.followed == 1)
    assert there.visits == 1


async def test_a_reconnect_in_no_time_needs_no_proof(
    engine: MemoryEngine, history: MemoryHistory, delays: Delays, monkeypatch: pytest.MonkeyPatch
) -> None:
    mains = [Visit(OPENING + groups("0-1-4"), "cut"), Visit(OPENING, "cut")]
    async with (
        Master("0-1-4", *mains, _0_1_3=sends("0-1-3"), _0_1_4=sends("0-1-4")) as there,
        following(there, engine),
    ):
        await until(lambda: there.followed == 3)
        assert there.visits == 4
        # Not long ago, but it was restarted.
        there.rows[UPTIME] = "Uptime", "1"
        there.cut()
        await until(lambda: there.followed == 4)
        assert there.visits == 6
        # So it was, a second apart.
        there.rows[UPTIME] = "Uptime", "2"
        there.cut()
        await until(lambda: there.followed == 5)
        assert there.visits == 8
        # In the same second: it counts its connections anew.
        there.first_connection -= 8
        there.cut()
        await until(lambda: there.followed == 6)
        assert there.visits == 10
        # The same one, but away for long.
        monkeypatch.setattr("binlog_server.relay.guard.MOMENT_S", -1.0)
        there.cut()
        await until(lambda: there.followed == 7)
        assert there.visits == 12


async def test_failed_attempts_do_not_make_it_a_moment(
    engine: MemoryEngine, delays: Delays, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("binlog_server.relay.guard.MOMENT_S", 60.0)
    async with Master("0-1-3", **OURS) as there, following(there, engine):
        await until(lambda: there.followed == 1)
        assert there.proofs == 1
        there.cut()
        await until(lambda: there.followed == 2)
        assert there.proofs == 1
        monkeypatch.setattr("binlog_server.relay.guard.MOMENT_S", 0.1)
        there._visits[:] = [Visit(deny=True)] * 100_000
        there.cut()
        over = time.monotonic() + 0.2  # the guard's own clock
        await until(lambda: time.monotonic() > over and there.visits > 5)
        there._visits.clear()
        await until(lambda: there.followed == 3)
        assert there.proofs == 2


async def test_the_first_connection_is_lost_while_the_proof_comes(
    engine: MemoryEngine, history: MemoryHistory, delays: Delays
) -> None:
    async with (
        Master("0-1-3", sends("0-1-4"), _0_1_3=[Visit(OPENING), sends("0-1-3")]) as there,
        following(there, engine),
    ):
        await until(lambda: there.streaming == 1)
        there._writers[0].close()
        there.send(groups("0-1-3"))
        await until(lambda: durable(history).endswith("0-1-4"))
    assert there.visits in (3, 4)


async def test_of_many_groups_some_are_asked_for_at_a_time(
    engine: MemoryEngine,
    delays: Delays,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """And others the next time: one that differs is found."""
    monkeypatch.setattr("binlog_server.relay.guard.PROOFS_MAX", 2)
    fill(engine, gtids("7-1-1,8-1-1,9-1-1"))
    status = UpstreamStatus("")
    shown = {f"_{domain}_1_1": sends(f"{domain}-1-1") for domain in (7, 8)} | OURS
    async with (
        Master("0-1-3,5-2-2,7-1-1,8-1-1,9-1-1", **shown, _9_1_1=other("9-1-1")) as there,
        following(there, engine, status=status) as task,
    ):

        def followed(times: int) -> bool:
            return there.followed == times

        for proofs in (2, 4):
            await until(partial(followed, proofs // 2))
            assert there.proofs == proofs
            there.rows[UPTIME] = "Uptime", str(proofs * 100)  # it was restarted
            there.cut()
        await within(task)
    assert "9-1-1 is not the same group there" in status.error
    doubts = [r.getMessage() for r in caplog.records if "only its GTID says" in r.getMessage()]
    assert [line.split(",")[0].partition(" has ")[2] for line in doubts] == [
        "our 7-1-1",
        "our 0-1-3",
    ]
    assert all("2 groups are asked for at a time" in line for line in doubts)


# --- candidates ---


def candidates(*others: FakeUpstream) -> dict[str, Any]:
    names = tuple(f"127.0.0.1:{other.port}" for other in others)
    return {"candidates": names, "connect_retry": 1}


async def test_the_next_one_goes_on(
    engine: MemoryEngine, history: MemoryHistory, delays: Delays
) -> None:
    status = UpstreamStatus("")
    async with (
        dead() as first,
        Master("0-1-4,5-2-2", sends("0-1-4"), **OURS) as second,
        following(first, engine, status=status, info=candidates(second)),
    ):
        await until(lambda: durable(history).endswith("0-1-4"))
        assert status.name == f"127.0.0.1:{second.port}"
        assert (status.errno, status.connected) == (0, True)
        assert first.visits == 4
    assert delays[:4] == [0, 1, 1, 0]


@pytest.mark.parametrize("state", ["", "0-1-2,5-2-2", "0-1-3,5-1-1", "9-1-1"])
async def test_one_that_is_behind_is_asked_again(
    state: str, engine: MemoryEngine, history: MemoryHistory, delays: Delays
) -> None:
    before = durable(history)
    async with (
        dead() as first,
        Master(state, sends("0-1-4"), **OURS) as second,
        following(first, engine, info=candidates(second)) as task,
    ):
        await until(lambda: second.visits >= 6)
        assert not task.done()
        assert (durable(history), second.followed) == (before, 0)
        second.rows[STATE] = ("0-1-4,5-2-2",)
        await until(lambda: durable(history).endswith("0-1-4"))


async def test_a_lower_number_of_another_history(
    history: MemoryHistory, delays: Delays, caplog: pytest.LogCaptureFixture
) -> None:
    """An old primary has a group that nobody got, and we are far beyond its number: it will never catch up."""
    engine = MemoryEngine(history)
    fill(engine, gtids("0-1-1,0-1-2,0-2-3,0-2-4,0-2-5"))
    async with (
        dead() as first,
        Master("0-1-3", _0_1_3=sends("0-1-3")) as errant,
        Master("0-2-6", sends("0-2-6"), _0_2_5=sends("0-2-5")) as third,
        following(first, engine, info=candidates(errant, third)),
    ):
        await until(lambda: durable(history).endswith("0-2-6"))
    (line,) = [
        r.getMessage()
        for r in caplog.records
        if "diverged" in r.getMessage() or "not in the store" in r.getMessage()
    ]
    assert "Its last one there is 0-1-3, which is not in the store here. Here: 0-2-5 of" in line
    assert "There: 0-1-3 of" in line


async def test_another_history_of_a_candidate_is_passed_over(
    engine: MemoryEngine, history: MemoryHistory, delays: Delays, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        dead() as first,
        Master("0-9-7") as errant,
        Master("0-1-4,5-2-2", sends("0-1-4"), **OURS) as third,
        following(first, engine, info=candidates(errant, third)),
    ):
        await until(lambda: durable(history).endswith("0-1-4"))
    assert "probably means that the slave has diverged" in caplog.text
    assert "stopped following" not in caplog.text
    assert not any(record.exc_info for record in caplog.records), "it is no defect"
    assert errant.followed == 0


async def test_another_history_where_we_were_is_for_people(
    engine: MemoryEngine, delays: Delays
) -> None:
    status = UpstreamStatus("")
    async with (
        Master("0-9-7") as home,
        Master("0-1-3,5-2-2", **OURS) as second,
        following(home, engine, status=status, info=candidates(second)) as task,
    ):
        await within(task)
        assert second.visits == 0
    assert (status.errno, status.stopped) == (1236, True)


async def test_nobody_is_left(
    engine: MemoryEngine, delays: Delays, caplog: pytest.LogCaptureFixture
) -> None:
    """The one cannot be followed, the other has another history; after MASTER_CONNECT_RETRY there is no more hope."""
    status = UpstreamStatus("")
    async with (
        Master("0-1-9,5-2-2", *[PURGED] * 1000, **OURS) as first,
        Master("0-9-7") as errant,
        following(first, engine, status=status, info=candidates(errant)) as task,
    ):
        await until(lambda: errant.visits > 3)
        assert not task.done()
        await within(asyncio.shield(task))
    assert (status.errno, status.stopped) == (1236, True)
    assert status.error.startswith("Got fatal error 1236 from master when reading data from binary")
    assert "Its last one there is 0-9-7" in status.error
    assert status.name == f"127.0.0.1:{errant.port}"
    # Who may ask for the status sees what the groups say; who reads the log or /readyz does not.
    assert "INSERT INTO t VALUES (1)" in status.error
    assert re.search(r"INSERT \(\d+ bytes\), digest [0-9a-f]{16}", status.last_error)
    assert "Its last one there is 0-9-7" in caplog.text
    assert "VALUES" not in caplog.text + status.last_error


async def test_who_is_down_may_come_back(
    engine: MemoryEngine, history: MemoryHistory, delays: Delays
) -> None:
    """Whatever the others say, and for how long: the promoted one boots, the old master has another history."""
    status = UpstreamStatus("")
    async with (
        Master("0-1-4,5-2-2", sends("0-1-4"), **OURS) as home,
        Master("0-9-7") as errant,
        following(home, engine, status=status, info=candidates(errant)) as task,
    ):
        home._visits = [Visit(deny=True)] * 1000
        while len(delays) < 60 or sum(delays) < 30:  # MASTER_CONNECT_RETRY is 1
            await asyncio.sleep(0)
            assert not task.done()
        # Whoever is tried now: what has to be known of the other one is told.
        assert (status.errno, status.state.running) == (1236, "Connecting")
        assert "Its last one there is 0-9-7" in status.error
        assert "Its last one there is 0-9-7" in status.last_error
        assert "VALUES" not in status.last_error
        home._visits = []
        await until(lambda: durable(history).endswith("0-1-4"))


async def test_what_one_has_purged_another_may_have(
    engine: MemoryEngine, history: MemoryHistory, delays: Delays
) -> None:
    async with (
        Master("0-1-9,5-2-2", PURGED, **OURS) as first,
        Master("0-1-4,5-2-2", sends("0-1-4"), **OURS) as second,
        following(first, engine, info=candidates(second)),
    ):
        await until(lambda: durable(history).endswith("0-1-4"))
    assert first.followed == second.followed == 1


async def test_a_group_that_a_start_has_ended_is_no_part_of_the_one_that_is_shown() -> None:
    """The upstream was killed inside a large transaction: its beginning lies in front of what is asked for."""
    begun, shown = events_of(3, 500)[:2], events_of(3, 70)
    start = FormatDescription("11.8.6-MariaDB-log", 1, created=1).build()
    machine = streaming()
    machine.receive_data(stream([*begun, start, *shown], 0))
    expected = GroupContent()
    for event in shown:
        expected.add(event)
    expected.finish()
    groups = GroupStream(machine, 0, large_bytes=1, piece_bytes=1)
    next_item = partial(ClientLink.next_item, cast(ClientLink, SimpleNamespace(machine=machine)))
    link = cast(ClientLink, SimpleNamespace(timeout_s=10, next_item=next_item))
    found = await upstream_groups._read(link, groups, Gtid(0, 1, 3), GroupContent())
    assert found is not None
    assert compare(expected, found.content).likeness is Likeness.SAME


async def test_an_event_may_take_longer_than_slave_net_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As long as it comes on: nobody would be followed again whose last group is a large row, over a slow line."""
    data = stream(events_of(3, 3_000_000), 0)
    machine = streaming()
    look, looks = upstream_groups._Progress._look, asyncio.Queue[None]()

    def told(progress: upstream_groups._Progress) -> None:
        looks.put_nowait(None)
        look(progress)

    monkeypatch.setattr(upstream_groups._Progress, "_look", told)
    looks.put_nowait(None)

    class SlowLink:
        """A piece behind each look."""

        timeout_s = 0.05
        came = 0

        @property
        def unread(self) -> int:
            return machine.unread

        async def next_item(self, groups: GroupStream, *, runs: bool) -> Item | None:
            return groups.next(runs=runs)

        async def receive(self) -> None:
            await looks.get()
            machine.receive_data(data[self.came : self.came + 150_000])
            self.came += 150_000

    link = cast(ClientLink, SlowLink())
    wanted = Gtid(0, 1, 3)
    found = await upstream_groups._read(link, GroupStream(machine, 0), wanted, GroupContent())
    assert found is not None
    assert found.gtid == wanted
