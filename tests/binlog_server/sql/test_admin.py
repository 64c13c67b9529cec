"""What a DBA says: its effect on the server, its errors, its warnings; over a socket and without one."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime

import pytest
from binlog_protocol.errors import RemoteError, ServerError
from binlog_protocol.groups.event_group import EventGroup
from binlog_protocol.gtid import Gtid
from binlog_protocol.wire.results import Value
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.engine import Position
from binlog_storage.errors import CorruptBinlog
from hypothesis import given, settings
from hypothesis import strategies as st

from binlog_server.accounts.users import Account
from binlog_server.app.app import Server
from binlog_server.connections.connections import Connection
from binlog_server.semi_sync.replica_acks import ReplicaAcks
from binlog_server.sql.moments import Moment, seconds_of
from binlog_server.sql.sql_session import SqlSession
from binlog_server.sql.time_zones import Clock
from binlog_server.sql.variables import VARIABLES
from binlog_server.upstreams.master_info import MasterInfo
from tests.binlog_server.lab import Lab, fill, transaction, until
from tests.binlog_server.sql.test_answers import errno, rows, run, value
from tests.binlog_server.upstream import OPENING, FakeUpstream, Visit

SMALL = StoreOptions(max_binlog_size=1 << 16, slave_connections_needed_for_purge=0)
EVERYTHING = frozenset({"BINLOG REPLAY"})
FIRST, SECOND, THIRD = (f"binlog-{n:06d}.ibb" for n in range(3))


@pytest.fixture
def lab() -> Iterator[Lab]:
    """0-1-1, then 0-1-2 in a second file."""
    lab = Lab(store=SMALL)
    lab.publish("0-1-1")
    lab.engine.flush()
    lab.publish("0-1-2")
    yield lab
    lab.directory.close()


@pytest.fixture
def sql(lab: Lab) -> SqlSession:
    return SqlSession(lab.server, 1, "root@localhost", grants=EVERYTHING)


def files(sql: SqlSession) -> list[Value]:
    return [row[0] for row in rows(sql, "SHOW BINARY LOGS")]


def warnings(sql: SqlSession) -> list[tuple[Value, ...]]:
    return rows(sql, "SHOW WARNINGS")


# PURGE, FLUSH, RESET


def test_purge(sql: SqlSession) -> None:
    assert errno(sql, "PURGE BINARY LOGS TO 'nonsense'") == 1373
    assert errno(sql, "PURGE BINARY LOGS TO 'binlog-000007.ibb'") == 1373
    assert run(sql, f"PURGE BINARY LOGS TO '{SECOND}'") is None
    assert files(sql)[0] == SECOND
    assert run(sql, f"PURGE MASTER LOGS TO '{FIRST}'") is None, "one that is gone already"


def test_purge_says_why_not(sql: SqlSession, lab: Lab) -> None:
    hold = lab.engine.hold("a backup")
    assert errno(sql, f"PURGE BINARY LOGS TO '{SECOND}'") == 1378
    assert warnings(sql) == [
        ("Note", 1375, f"Binary log '{FIRST}' is not purged because it is held by a backup"),
        ("Error", 1378, "A purgeable log is in use, will not purge"),
    ]
    hold.release()


@pytest.mark.parametrize("number", ["99999999999", "9223372036854775807"])
@pytest.mark.parametrize("sign", "+-")
@pytest.mark.parametrize("unit", ["HOUR", "DAY", "YEAR"])
def test_purge_by_a_time_that_cannot_be(number: str, sign: str, unit: str, sql: SqlSession) -> None:
    assert run(sql, f"PURGE BINARY LOGS BEFORE NOW() {sign} INTERVAL {number} {unit}") is None
    assert warnings(sql) == [("Warning", 1441, "Datetime function: datetime field overflow")]
    assert files(sql)[0] == FIRST


def test_purge_by_time(sql: SqlSession) -> None:
    assert run(sql, "PURGE BINARY LOGS BEFORE '1970-01-01'") is None
    assert run(sql, "PURGE BINARY LOGS BEFORE 'garbage'") is None
    assert warnings(sql) == [("Warning", 1292, "Incorrect datetime value: 'garbage'")]
    assert files(sql)[0] == FIRST
    for _ in range(
        2
    ):  # as by MariaDB: a job that says it each night is not to fail on a server that is idle
        assert run(sql, "PURGE BINARY LOGS BEFORE NOW() + INTERVAL 1 DAY") is None
        reason = f"Binary log '{SECOND}' is not purged because the binlog file is in active use"
        assert warnings(sql) == [("Note", 1375, reason)]
        assert files(sql)[0] == SECOND, "all but the one in use"


def test_purge_by_time_of_what_somebody_holds(sql: SqlSession, lab: Lab) -> None:
    hold = lab.engine.hold("a backup")
    assert errno(sql, "PURGE BINARY LOGS BEFORE NOW() + INTERVAL 1 DAY") == 1378
    assert files(sql)[0] == FIRST
    hold.release()


def seconds(text: str) -> float:
    return datetime.strptime(text + "+0000", "%Y-%m-%d %H:%M:%S%z").timestamp()


MOMENTS = {
    Moment("1970-01-02 00:00:01"): 86401,
    Moment("1970-01-02"): 86400,
    Moment("1970-01-01T01:02:03.5"): 3723,
    Moment(19700101010203): 3723,
    Moment("19700102"): 86400,
    Moment(77, unix=True): 77,
    Moment(plus_seconds=-5): 995,
    Moment(today=True, plus_seconds=7): 7,
    Moment("2024-03-31 01:02:03", plus_months=-1): seconds("2024-02-29 01:02:03"),
    Moment("2023-12-31", plus_months=2, plus_seconds=60): seconds("2024-02-29 00:01:00"),
    Moment("2024-03-31", plus_months=-12 * 55): seconds("1969-03-31 00:00:00"),
    Moment("2024-03-31", plus_months=-12 * 2024): None,
    Moment("2024-03-31", plus_seconds=-86400 * 366 * 2024): None,
    Moment("2024-03-31", plus_months=12 * 10000): None,
    Moment(10**20, unix=True): None,
    Moment(plus_seconds=10**20): None,
    Moment("2026-02-29"): None,
    Moment("2026-13-01"): None,
    Moment("2026-01-01 25:00:00"): None,
    Moment("0000-00-00"): None,
    Moment("\u0662026-01-01"): None,
    Moment(""): None,
    Moment(5): None,
}


@pytest.mark.parametrize("moment", MOMENTS, ids=str)
def test_moments(moment: Moment) -> None:
    assert seconds_of(moment, Clock(1000.0, UTC)) == MOMENTS[moment]


@pytest.mark.parametrize(
    ("zone", "moment", "in_utc"),
    [
        ("+05:00", Moment("2026-11-20 10:00:00"), "2026-11-20 05:00:00"),
        ("-3:30", Moment(20261120100000), "2026-11-20 13:30:00"),
        ("europe/BERLIN", Moment("2026-07-01"), "2026-06-30 22:00:00"),
        ("Europe/Berlin", Moment("2026-01-01"), "2025-12-31 23:00:00"),
        # Days are those of the wall clock; FROM_UNIXTIME and NOW() are the same in each zone.
        ("Europe/Berlin", Moment("2026-03-30", plus_seconds=-86400), "2026-03-28 23:00:00"),
        ("Europe/Berlin", Moment(86400, unix=True), "1970-01-02 00:00:00"),
        ("Asia/Tokyo", Moment(), "1970-01-01 15:16:40"),
        ("Asia/Tokyo", Moment(today=True), "1970-01-01 15:00:00"),
        # The hour that there is twice, and the one that there is not: the earlier.
        ("Europe/Berlin", Moment("2026-10-25 02:30:00"), "2026-10-25 00:30:00"),
        ("Europe/Berlin", Moment("2026-03-29 02:30:00"), "2026-03-29 00:30:00"),
    ],
)
def test_moments_are_of_the_sessions_zone(zone: str, moment: Moment, in_utc: str) -> None:
    clock = Clock.of("55000.000000", zone, 1.0)
    assert seconds_of(moment, clock) == seconds(in_utc)


def test_purge_and_a_lease_go_by_the_session(sql: SqlSession) -> None:
    run(sql, "FLUSH BINARY LOGS")
    before = files(sql)
    run(
        sql, "SET time_zone='+05:00'"
    )  # the files of these tests were written in the first second of 1970, UTC
    run(sql, "PURGE BINARY LOGS BEFORE '1970-01-01 04:00:00'")
    assert {row[3] for row in rows(sql, "EXPLAIN PURGE BEFORE '1970-01-01 04:00:00'")} == {"NO"}
    run(sql, "CREATE BINLOG LEASE x UNTIL '2099-01-01 05:00:00'")
    assert rows(sql, "SHOW BINLOG LEASES")[0][4] == "2099-01-01 00:00:00"
    run(sql, "DROP BINLOG LEASE x")
    run(sql, "SET STATEMENT timestamp=1 FOR PURGE BINARY LOGS BEFORE NOW() - INTERVAL 2 SECOND")
    run(sql, "SET timestamp=1")
    run(sql, "PURGE BINARY LOGS BEFORE NOW() - INTERVAL 2 SECOND")
    assert files(sql) == before


def test_the_time_of_a_session(sql: SqlSession) -> None:
    sql.execute("SET timestamp=1000000000.25, time_zone='+05:00'")
    assert rows(sql, "SELECT NOW(), CURRENT_TIMESTAMP, UTC_TIMESTAMP(), UNIX_TIMESTAMP()") == [
        ("2001-09-09 06:46:40", "2001-09-09 06:46:40", "2001-09-09 01:46:40", 1000000000)
    ]
    assert value(sql, "SELECT SYSDATE()") != "2001-09-09 06:46:40"
    for back in ("DEFAULT", "0"):
        sql.execute(f"SET timestamp=5, timestamp={back}")
        shown = float(str(value(sql, "SELECT @@timestamp")))
        assert abs(shown - time.time()) < 3600
        assert abs(int(str(value(sql, "SELECT UNIX_TIMESTAMP()"))) - time.time()) < 3600


def test_flush(sql: SqlSession) -> None:
    before = value(sql, "SELECT @@gtid_binlog_pos")
    run(sql, "FLUSH BINARY LOGS")
    run(sql, "FLUSH LOCAL LOGS")
    assert rows(sql, "SHOW MASTER STATUS")[0][0] == "binlog-000003.ibb"
    assert value(sql, "SELECT @@gtid_binlog_pos") == before
    run(sql, "FLUSH STATUS")


def test_flush_forgets_a_domain(sql: SqlSession, lab: Lab) -> None:
    fill(lab.engine, [Gtid(7, 1, 1)])
    assert errno(sql, "FLUSH BINARY LOGS DELETE_DOMAIN_ID=(7)") == 1076
    assert "'7'" in str(warnings(sql)[0][2])
    assert errno(sql, "FLUSH BINARY LOGS DELETE_DOMAIN_ID=(99999999999)") == 1076
    run(sql, "FLUSH BINARY LOGS")
    run(sql, f"PURGE BINARY LOGS TO '{THIRD}'")
    run(sql, "FLUSH BINARY LOGS DELETE_DOMAIN_ID=(7,8)")
    assert warnings(sql) == [
        (
            "Warning",
            1076,
            "The gtid domain being deleted ('8') is not in the current binlog state",
        )
    ]
    assert value(sql, "SELECT @@gtid_binlog_state") == "0-1-2"
    # The first file tells of it still; MariaDB 10.11 warns so, too.
    run(sql, "FLUSH BINARY LOGS DELETE_DOMAIN_ID=(7)")
    assert [row[2] for row in warnings(sql)] == [
        "The gtid domain being deleted ('7') is not in the current binlog state"
    ]


def test_a_state_that_cannot_be_read(
    sql: SqlSession, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flush(*_: object) -> None:
        raise CorruptBinlog(0, 16384, "a record that is none")

    monkeypatch.setattr(lab.engine, "flush", flush)
    assert errno(sql, "FLUSH BINARY LOGS DELETE_DOMAIN_ID=(0)") == 4250
    ((level, _, text), (_, number, _)) = warnings(sql)
    assert level == "Warning"
    assert "a record that is none" in str(text)
    assert number == 4250


def test_reset_master(sql: SqlSession, lab: Lab) -> None:
    assert errno(sql, "RESET MASTER TO 5") == 4247
    hold = lab.engine.hold("a dump", dump=True)
    assert errno(sql, "RESET MASTER") == 4243
    hold.release()
    run(sql, "RESET MASTER")
    assert value(sql, "SELECT @@gtid_binlog_state") == ""
    assert rows(sql, "SHOW MASTER STATUS")[0][0] == FIRST
    hold = lab.engine.hold("a dump", dump=True)
    for name in ("gtid_slave_pos", "gtid_binlog_state"):
        with pytest.raises(ServerError, match=f"Cannot execute SET GLOBAL {name} as") as refused:
            run(sql, f"SET GLOBAL {name} = '0-1-7'")
        assert refused.value.errno == 4243
    hold.release()


def test_how_long_a_lease_is_for_counts_from_the_clock_of_all(sql: SqlSession) -> None:
    run(sql, "SET timestamp = 1000000000")
    run(sql, "CREATE BINLOG LEASE 'etl' FOR 1 HOUR")
    ((_, _, _, _, until, _, _),) = rows(sql, "SHOW BINLOG LEASES")
    assert str(until) > "2025"


def test_a_lease_refuses_reset(sql: SqlSession) -> None:
    run(sql, "CREATE BINLOG LEASE etl")
    with pytest.raises(ServerError) as refused:
        run(sql, "RESET MASTER")
    assert refused.value.errno == 4243
    assert str(refused.value).endswith("held by the lease 'etl': DROP BINLOG LEASE 'etl'")
    run(sql, "DROP BINLOG LEASE etl")
    run(sql, "RESET MASTER")


def test_open_group_refuses_reset(sql: SqlSession, lab: Lab) -> None:
    group = lab.engine.begin()
    group.spill(b"x" * 100)
    assert errno(sql, "RESET MASTER") == 4244
    group.rollback()


def test_numbers_begin_anew_after_reset(sql: SqlSession, lab: Lab) -> None:
    publisher = lab.server.publisher
    publisher.transaction(["INSERT INTO t VALUES (1)"])
    run(sql, "RESET MASTER")
    assert publisher.transaction(["INSERT INTO t VALUES (1)"]) == Gtid(0, 1, 1)
    run(sql, "RESET MASTER")
    run(sql, "SET GLOBAL gtid_binlog_state='0-1-41,5-2-7'")
    assert publisher.transaction(["INSERT INTO t VALUES (1)"]) == Gtid(0, 1, 42)
    assert value(sql, "SELECT @@gtid_binlog_state") == "0-1-42,5-2-7"


def test_states_are_shown_of_the_new_binlog(sql: SqlSession, lab: Lab) -> None:
    """Also by who asks before the loop hears of the reset, and where both binlogs end at the same place."""
    run(sql, "RESET MASTER")
    ends = []
    for history in ("0-1-1", "7-1-1"):
        lab.engine.reset()
        lab.publish(history)
        ends.append(lab.engine.written_end)
        assert value(sql, "SELECT @@gtid_binlog_pos") == history
    assert ends[0] == ends[1]


def test_numbers_of_an_upstream_are_forgotten_by_reset(sql: SqlSession, lab: Lab) -> None:
    domains = lab.server.relay.domains
    group = EventGroup(Gtid(0, 1, 5), b"", 1)
    assert domains.is_new(group)
    assert not domains.is_new(group)
    run(sql, "RESET MASTER")
    assert domains.is_new(group)


def test_semi_sync_counts_from_the_new_beginning() -> None:
    lab = Lab(
        store=SMALL, rpl_semi_sync_master_enabled=True, rpl_semi_sync_master_wait_no_slave=False
    )
    semi_sync, done = lab.server.semi_sync, []
    semi_sync.when_acknowledged(Position(7, 90000), lambda: done.append(1))
    assert done
    assert not semi_sync.is_on, "there is no replica"
    run(SqlSession(lab.server, 1, "root@localhost", grants=EVERYTHING), "RESET MASTER")
    semi_sync.add(ReplicaAcks(Position(0, 16389), checksum=False, moved=semi_sync.moved))
    assert semi_sync.is_on, "the replica has all that there is"
    lab.directory.close()


def test_binlog_state_only_of_an_empty_binlog(sql: SqlSession) -> None:
    assert errno(sql, "SET GLOBAL gtid_binlog_state='0-1-5'") == 1956
    assert errno(sql, "SET GLOBAL gtid_binlog_state=5") == 1232
    assert errno(sql, "SET gtid_binlog_state='0-1-5'") == 1229
    run(sql, "RESET MASTER")
    assert errno(sql, "SET GLOBAL gtid_binlog_state='nonsense'") == 1941
    sql.in_transaction = lambda: True
    assert errno(sql, "SET GLOBAL gtid_binlog_state='0-1-5'") == 1179


async def test_the_history_stays_while_groups_come_from_an_upstream() -> None:
    async with Lab(store=SMALL, upstream={"": MasterInfo("127.0.0.1", 1, "u")}) as lab:
        sql = SqlSession(lab.server, 1, "root@localhost", grants=EVERYTHING)
        assert errno(sql, "RESET MASTER") == 1198
        assert errno(sql, "SET GLOBAL gtid_binlog_state='0-1-5'") == 1198
        assert errno(sql, "SET GLOBAL gtid_slave_pos='0-1-5'") == 1198
        assert errno(sql, "SET GLOBAL gtid_ignore_duplicates=1") == 1198


def test_a_syntax_error_is_all_there_is_to_tell(sql: SqlSession) -> None:
    assert errno(sql, "SELECT @@no_such") == 1193
    assert errno(sql, "NONSENSE") == 1064
    assert [row[1] for row in warnings(sql)] == [1064]


# KILL


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("999999.5", 1000000),  # rounded, as MariaDB does: 1.5 is not connection 1
        ("'999999abc'", 999999),
        ("'9_0'", 9),
        ("' 999999.9'", 999999),
        ("-1", 2**64 - 1),
        ("'-1'", 0),
        ("TRUE", 1),
        ("NULL", 0),
    ],
)
def test_who_is_meant(sql: SqlSession, said: str, meant: int) -> None:
    sql.execute(f"SET @v={said}")
    with pytest.raises(ServerError, match=rf"Unknown thread id: {meant}$"):
        sql.execute("KILL @v")


class Ended(list[ServerError | None]):
    """Of one connection."""

    def end(self, error: ServerError | None) -> None:
        self.append(error)

    def interrupt(self) -> None:
        pass

    def shut_down(self) -> None:
        raise AssertionError


def connected(lab: Lab, user: str, address: str) -> Ended:
    ended = Ended()
    connections = lab.server.connections
    connection = Connection(connections.next_id(), f"{address}:5", ended, user=user)
    connections.add(connection)
    return ended


def test_kill_of_a_user(sql: SqlSession, lab: Lab) -> None:
    near, far = connected(lab, "repl", "10.0.0.1"), connected(lab, "repl", "10.0.0.2")
    other = connected(lab, "other", "10.0.0.1")
    run(sql, "KILL QUERY USER repl")
    run(sql, "KILL USER nobody")
    run(sql, "KILL USER Repl")
    assert near == far == other == []
    run(sql, "KILL USER repl@'10.0.0.2'")
    assert (near, far) == ([], [None])
    run(sql, "KILL SOFT CONNECTION USER repl@'%'")
    assert (near, other) == ([None], [])


def test_kill_of_others_needs_a_privilege(lab: Lab) -> None:
    mine, other = connected(lab, "me", "10.0.0.1"), connected(lab, "other", "10.0.0.1")
    me = SqlSession(lab.server, 1, "me@10.0.0.1", grants=frozenset())
    assert errno(me, "KILL 2") == 1095
    assert errno(me, "KILL USER other") == 1095
    assert errno(me, "KILL QUERY CONNECTION_ID()") == 1317
    assert mine == []
    run(me, "KILL CONNECTION_ID()")
    assert (mine, other) == ([None], [])


# SHOW BINLOG EVENTS


def test_events(sql: SqlSession) -> None:
    assert rows(sql, "SHOW BINLOG EVENTS") == [
        (FIRST, 0, "Gtid", 1, 0, "BEGIN GTID 0-1-1"),
        (FIRST, 0, "Query", 1, 0, "use `test`; INSERT INTO t VALUES (1)"),
        (FIRST, 0, "Xid", 1, 0, "COMMIT /* xid=1 */"),
    ]
    assert [r[5] for r in rows(sql, f"SHOW BINLOG EVENTS IN '{SECOND}' LIMIT 1,1")] == [
        "use `test`; INSERT INTO t VALUES (1)"
    ]
    assert rows(sql, "SHOW BINLOG EVENTS LIMIT 0") == []
    assert len(rows(sql, "SHOW BINLOG EVENTS FROM 4")) == 3
    for start in (99999999, 2**64 - 1):
        with pytest.raises(ServerError, match=f"from pos:{start} is greater than actual file"):
            run(sql, f"SHOW BINLOG EVENTS FROM {start}")
    assert errno(sql, "SHOW BINLOG EVENTS IN 'binlog-000009.ibb'") == 1220


def test_events_of_an_incomplete_read_release_the_file(sql: SqlSession, lab: Lab) -> None:
    rows(sql, "SHOW BINLOG EVENTS LIMIT 1")
    assert lab.engine.files()[0].number == 0
    run(sql, f"PURGE BINARY LOGS TO '{SECOND}'")


# EXPLAIN


def test_explain_purge(sql: SqlSession, lab: Lab) -> None:
    run(sql, "CREATE BINLOG LEASE 'etl' FROM GTID '0-1-1' FOR 1 HOUR")
    found = rows(sql, "EXPLAIN PURGE BEFORE NOW() + INTERVAL 1 DAY")
    assert [(row[0], row[3], row[4]) for row in found] == [
        (FIRST, "YES", "YES"),
        (SECOND, "YES", "NO"),
    ]
    assert [row[0] for row in warnings(sql)] == ["Note"]
    assert "needs a lease" in str(warnings(sql)[0][2]), "replicas that are away hold nothing"
    assert found[0][5] is None
    assert "the lease 'etl'" in str(found[1][5])
    assert [row[3] for row in rows(sql, "EXPLAIN PURGE")] == ["NO", "NO"]
    assert warnings(sql) == []
    assert errno(sql, "EXPLAIN PURGE TO 'nonsense'") == 1373
    assert files(sql)[0] == FIRST, "nothing is done"


def test_explain_purge_tells_of_replicas_for_which_there_is_no_slot(
    sql: SqlSession, lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"slot/{n}/repl@%" for n in range(1, 6)]
    monkeypatch.setattr(lab.server.leases, "without_slot", lambda: names)
    rows(sql, "EXPLAIN PURGE")
    ((level, _, text),) = warnings(sql)
    assert level == "Note"
    assert str(text).startswith(
        "5 replicas that are connected have no slot (slot/1/repl@%, slot/2/repl@%, slot/3/repl@%, ...): there are "
    )


def test_leases(sql: SqlSession) -> None:
    run(sql, "CREATE BINLOG LEASE 'etl' FROM GTID '0-1-1' FOR 1 HOUR MAX_BYTES 1000000000")
    ((name, gtid, first, _, until_, bytes_, held),) = rows(sql, "SHOW BINLOG LEASES")
    assert (name, gtid, first, bytes_) == ("etl", "0-1-1", SECOND, 1000000000)
    assert isinstance(held, int)
    assert held > 0
    assert until_ is not None
    assert errno(sql, "CREATE BINLOG LEASE 'etl'") == 1105
    run(sql, "CREATE OR REPLACE BINLOG LEASE etl")
    assert rows(sql, "SHOW BINLOG LEASES")[0][2] == FIRST
    run(sql, "ALTER BINLOG LEASE etl FOR 1 DAY MAX_BYTES 1000000000")
    assert rows(sql, "SHOW BINLOG LEASES")[0][5] == 1000000000
    assert errno(sql, "ALTER BINLOG LEASE other FOR 1 DAY") == 1105
    assert errno(sql, "ALTER BINLOG LEASE etl UNTIL 'nonsense'") == 1105
    run(sql, "DROP BINLOG LEASE etl")
    assert errno(sql, "DROP BINLOG LEASE etl") == 1105
    run(sql, "DROP BINLOG LEASE IF EXISTS etl")
    assert errno(sql, "CREATE BINLOG LEASE etl UNTIL 'nonsense'") == 1105
    assert errno(sql, "CREATE BINLOG LEASE etl UNTIL '2001-01-01'") == 1105
    assert errno(sql, "CREATE BINLOG LEASE etl FROM GTID 'x'") == 1941


def test_explain_gtid(sql: SqlSession, lab: Lab) -> None:
    fill(lab.engine, [Gtid(0, 1, n) for n in range(5, 9)])
    fill(lab.engine, [Gtid(0, 2, 20)])

    def status(text: str) -> Value:
        return rows(sql, f"EXPLAIN GTID '{text}'")[0][1]

    for have in ("0-1-1", "0-1-2", "0-1-5", "0-1-8", "0-2-20"):
        assert status(have) == "have", have
    assert status("0-1-4") == "other history", "a hole"
    assert status("0-2-19") == "other history"
    assert status("0-1-9") == "other history", "the domain has gone on to 20"
    assert status("0-3-20") == "other history"
    assert status("0-1-21") == "never seen"
    assert status("4-1-1") == "never seen"
    run(sql, f"PURGE BINARY LOGS TO '{SECOND}'")
    assert status("0-1-1") in ("have", "purged")
    assert errno(sql, "EXPLAIN GTID 'nonsense'") == 1941
    assert errno(sql, "EXPLAIN GTID '0-1-0'") == 1941
    run(sql, "FLUSH BINARY LOGS")
    run(sql, f"PURGE BINARY LOGS TO '{THIRD}'")
    assert status("0-1-2") == "purged"


# SET GLOBAL


def test_every_global_can_be_set_to_what_it_is(sql: SqlSession) -> None:
    for name, variable in VARIABLES.items():
        if (
            variable.set_global is None
            or variable.is_kept
            or name
            in (
                "gtid_binlog_state",
                "gtid_slave_pos",
                "innodb_flush_log_at_trx_commit",
            )
        ):
            continue  # two not in a binlog with groups, the other not before the server has started
        before = rows(sql, f"SHOW GLOBAL VARIABLES LIKE '{name}'")
        shown = str(before[0][1])
        is_number = shown.removeprefix("-").replace(".", "").isdecimal()
        given_ = shown if is_number else f"'{shown}'"
        if name == "max_binlog_size":
            continue  # the lab's is smaller than its configuration says
        assert run(sql, f"SET GLOBAL {name} = {given_}") is None
        assert rows(sql, f"SHOW GLOBAL VARIABLES LIKE '{name}'") == before
        assert run(sql, f"SET GLOBAL {name} = DEFAULT") is None


def test_size_and_limits(sql: SqlSession) -> None:
    run(sql, "SET GLOBAL max_binlog_size=131072")
    run(sql, "FLUSH BINARY LOGS")
    assert (THIRD, 131072) in rows(sql, "SHOW BINARY LOGS")
    run(sql, "SET GLOBAL max_binlog_size=1")
    assert warnings(sql) == [("Warning", 1292, "Truncated incorrect max_binlog_size value: '1'")]
    assert value(sql, "SELECT @@max_binlog_size") == 65536
    # In blocks, as in MariaDB.
    run(sql, "SET GLOBAL max_binlog_size=1100000, GLOBAL max_allowed_packet=1500")
    assert [str(told[2]).rsplit(maxsplit=1)[1] for told in warnings(sql)] == ["'1100000'", "'1500'"]
    assert rows(sql, "SELECT @@max_binlog_size, @@GLOBAL.max_allowed_packet") == [(1097728, 1024)]
    run(sql, "SET GLOBAL expire_logs_days=1.5")
    assert rows(sql, "SELECT @@binlog_expire_logs_seconds, @@expire_logs_days") == [
        (129600, "1.500000")
    ]
    run(sql, "SET GLOBAL binlog_expire_logs_seconds=100")
    assert rows(sql, "SHOW VARIABLES LIKE 'expire_logs_days'") == [("expire_logs_days", "0.001157")]


def test_lower_total_size_purges_at_once(sql: SqlSession, lab: Lab) -> None:
    run(sql, "SET GLOBAL max_binlog_total_size=70000")
    lab.directory.memory_engine.step()  # type: ignore[attr-defined]
    assert files(sql)[0] == SECOND


def test_effect_on_others(sql: SqlSession, lab: Lab) -> None:
    run(
        sql, "SET GLOBAL max_connections=50, GLOBAL net_write_timeout=7, GLOBAL gtid_strict_mode=ON"
    )
    assert lab.server.config.max_connections == 50
    assert lab.server.config.net_write_timeout == 7
    run(sql, "SET GLOBAL connect_timeout=3, GLOBAL max_user_connections=2")
    assert lab.server.config.connect_timeout == 3
    assert lab.server.config.max_user_connections == 2
    assert lab.server.publisher.strict
    run(sql, "SET GLOBAL gtid_strict_mode=DEFAULT")
    assert not lab.server.publisher.strict


def test_default_is_what_there_is_without_a_file(lab: Lab, sql: SqlSession) -> None:
    """As in MariaDB: not what the server was started with."""
    lab.server.config = dataclasses.replace(lab.server.config, max_connections=77)
    run(sql, "SET GLOBAL max_connections = DEFAULT, GLOBAL sync_binlog = 5")
    assert lab.server.config.max_connections == 2000
    assert value(sql, "SELECT @@sync_binlog") == 5
    run(sql, "SET GLOBAL sync_binlog = DEFAULT")
    assert value(sql, "SELECT @@GLOBAL.sync_binlog") == 1  # safe, other than there
    for name in ("gtid_binlog_state", "gtid_slave_pos"):
        assert errno(sql, f"SET GLOBAL {name} = DEFAULT") == 1230
    for name in ("last_insert_id", "rand_seed1", "rand_seed2"):
        assert errno(sql, f"SET {name} = DEFAULT") == 1230
    run(sql, "SET insert_id = DEFAULT")


def test_two_histories_in_one_statement(sql: SqlSession, lab: Lab) -> None:
    """The first would be dropped without a word."""
    text = "SET GLOBAL gtid_slave_pos='0-1-5', GLOBAL gtid_binlog_state='3-1-9'"
    before = str(lab.engine.binlog_state())
    assert errno(sql, text) == 1210
    assert str(lab.engine.binlog_state()) == before


def test_what_only_sessions_have(sql: SqlSession) -> None:
    """Numbers as a real 11.8 answers."""
    for name in ("insert_id", "warning_count", "default_master_connection"):
        assert rows(sql, f"SHOW GLOBAL VARIABLES LIKE '{name}'") == []
        assert len(rows(sql, f"SHOW VARIABLES LIKE '{name}'")) == 1
        assert errno(sql, f"SELECT @@GLOBAL.{name}") == 1238
    assert errno(sql, "SET GLOBAL insert_id = 1") == 1228
    for text in ("SET warning_count = 1", "SET GLOBAL warning_count = 1"):
        assert errno(sql, text) == 1238


def test_semi_sync_is_switched_on_and_off(sql: SqlSession, lab: Lab) -> None:
    run(sql, "SET GLOBAL rpl_semi_sync_master_wait_point=AFTER_COMMIT, @a=1")
    run(sql, "SET GLOBAL rpl_semi_sync_master_enabled=1, GLOBAL rpl_semi_sync_master_timeout=500")
    assert lab.server.semi_sync.is_on
    assert lab.server.config.rpl_semi_sync_master_timeout == 500
    text = "SHOW VARIABLES LIKE 'rpl_semi_sync_master_enabled'"
    assert rows(sql, text) == [("rpl_semi_sync_master_enabled", "ON")]
    run(sql, "SET GLOBAL rpl_semi_sync_master_enabled=DEFAULT")
    assert not lab.server.semi_sync.is_on
    found = {str(name): shown for name, shown in rows(sql, "SHOW STATUS LIKE 'rpl_semi_sync%'")}
    assert len(found) == 18
    assert found["Rpl_semi_sync_master_status"] == "OFF"


REFUSED = {
    "SET GLOBAL log_bin='x'": 1238,
    "SET GLOBAL encrypt_binlog=1": 1238,
    "SET GLOBAL binlog_storage_engine=''": 1238,
    "SET GLOBAL tc_heuristic_recover=1": 1193,
    "SET GLOBAL rpl_semi_sync_master_enabled='x'": 1231,
    "SET rpl_semi_sync_master_enabled=0": 1229,
    "SET GLOBAL rpl_semi_sync_master_wait_point=AFTER_SYNC": 4247,
    "SET GLOBAL rpl_semi_sync_master_wait_point=0": 4247,
    "SET GLOBAL rpl_semi_sync_master_wait_point='x'": 1231,
    "SET GLOBAL init_rpl_role=1": 1193,
    "SET GLOBAL max_binlog_size='x'": 1232,
    "SET GLOBAL max_binlog_size=NULL": 1232,
    "SET GLOBAL max_binlog_size=1.5": 1232,
    "SET max_binlog_size=65536": 1229,
    "SET SESSION gtid_strict_mode=1": 1229,
    "SET GLOBAL gtid_strict_mode=2": 1231,
    "SELECT BINLOG_GTID_POS('f', 4)": 4247,
    "SELECT BINLOG_GTID_POS('f')": 1582,
    "SELECT MASTER_POS_WAIT('f', 4, 1)": 4247,
    "SELECT MASTER_GTID_WAIT('nonsense', 1)": 1941,
    "SHOW VARIABLES WHERE nope='x'": 1054,
    "SHOW REPLICAS": 1064,
}


@pytest.mark.parametrize("text", REFUSED)
def test_refused(sql: SqlSession, text: str) -> None:
    assert errno(sql, text) == REFUSED[text]
    assert warnings(sql)[-1][:2] == ("Error", REFUSED[text])


# Diagnostics, filters


def test_diagnostics_are_those_of_the_last_statement(sql: SqlSession) -> None:
    assert errno(sql, "SELECT @@nope") == 1193
    assert value(sql, "SHOW COUNT(*) ERRORS") == 1
    assert rows(sql, "SELECT @@warning_count, @@error_count") == [(1, 1)]
    assert len(rows(sql, "SHOW ERRORS")) == 1
    assert rows(sql, "SHOW WARNINGS LIMIT 1,1") == []
    rows(sql, "SELECT 1")
    assert len(warnings(sql)) == 1, "as in MariaDB: it uses no tables"
    rows(sql, "SHOW DATABASES")
    assert warnings(sql) == []


def test_where(sql: SqlSession) -> None:
    def names(condition: str) -> list[Value]:
        return [row[0] for row in rows(sql, f"SHOW VARIABLES WHERE {condition}")]

    assert names("Variable_name='port' OR `Variable_name`='hostname'") == ["hostname", "port"]
    assert names("Variable_name LIKE 'gtid_s%' AND Value='OFF'") == ["gtid_strict_mode"]
    assert "port" not in names("Variable_name <> 'port'")
    assert names("Variable_name LIKE 'max_conn%' AND Value > 1999 AND Value < 2001") == [
        "max_connections"
    ]
    wanted = [name for name, v in VARIABLES.items() if name.startswith("max") and v.is_shown]
    assert names("Variable_name LIKE 'max%' AND Variable_name NOT LIKE 'max\\_b%'") == [
        name for name in wanted if not name.startswith("max_b")
    ]


def test_databases_and_engines(sql: SqlSession) -> None:
    assert rows(sql, "SHOW DATABASES") == [("information_schema",), ("performance_schema",)]
    assert rows(sql, "SHOW SCHEMAS LIKE 'my%'") == []
    assert rows(sql, "SHOW ENGINES")[0][:2] == ("InnoDB", "DEFAULT")


# Rights


NEEDS = {
    f"PURGE BINARY LOGS TO '{SECOND}'": "BINLOG ADMIN",
    "FLUSH BINARY LOGS": "RELOAD",
    "RESET MASTER": "RELOAD",
    "CREATE OR REPLACE BINLOG LEASE x": "BINLOG ADMIN",
    "DROP BINLOG LEASE IF EXISTS x": "SUPER",
    "SET GLOBAL max_binlog_total_size=0": "BINLOG ADMIN",
    "SET GLOBAL max_connections=100": "CONNECTION ADMIN",
    "SET GLOBAL read_only=1": "READ_ONLY ADMIN",
}


@pytest.mark.parametrize("text", NEEDS)
def test_rights(lab: Lab, text: str) -> None:
    assert errno(SqlSession(lab.server, 1, "u@h"), text) == 1227
    assert errno(SqlSession(lab.server, 1, "u@h", grants=frozenset({"PROCESS"})), text) == 1227
    for grant in (NEEDS[text], "ALL PRIVILEGES"):
        run(SqlSession(lab.server, 1, "u@h", grants=frozenset({grant})), text)


def test_right_to_renew_a_lease(lab: Lab, sql: SqlSession) -> None:
    run(sql, "CREATE BINLOG LEASE etl")
    renew = "ALTER BINLOG LEASE etl FOR 1 HOUR"
    assert errno(SqlSession(lab.server, 1, "u@h", grants=frozenset({"PROCESS"})), renew) == 1227
    run(SqlSession(lab.server, 1, "u@h", grants=frozenset({"BINLOG ADMIN"})), renew)


# Over a socket


@pytest.fixture
async def started() -> AsyncIterator[Lab]:
    users = {"root": Account("pw", EVERYTHING), "repl": "secret", "plain": "pw"}
    async with Lab(store=SMALL, users=users) as lab:
        yield lab


async def test_long_statements_leave_the_loop_free(started: Lab) -> None:
    client = await started.root()
    started.publish("0-1-1")
    for _ in range(3):
        assert await client.query("FLUSH BINARY LOGS") == []
    with pytest.raises(RemoteError, match="1373"):
        await client.query("PURGE BINARY LOGS TO 'x'")
    assert await client.query("PURGE BINARY LOGS TO 'binlog-000002.ibb'") == []
    assert (await client.query("SHOW BINARY LOGS"))[0][0] == "binlog-000002.ibb"


async def test_commands_sent_together_are_answered_in_order(started: Lab) -> None:
    client = await started.root()
    texts = ["FLUSH BINARY LOGS", "SELECT 1", "SHOW BINLOG EVENTS", "FLUSH BINARY LOGS", "SELECT 2"]
    found = []
    for text in texts:
        client.command(b"\3" + text.encode())
    for _ in texts:
        payload = await client.answer()
        if payload[:1] == b"\0":
            found.append("ok")
            continue
        count = payload[0]
        for _ in range(count + 1):
            await client.answer()
        lines = 0
        while (await client.answer())[:1] != b"\xfe":
            lines += 1
        found.append(f"{lines} rows")
    assert found == ["ok", "1 rows", "0 rows", "ok", "1 rows"]


async def test_events_are_streamed(started: Lab) -> None:
    """A client that does not read costs no memory, and releases the file when it goes."""
    history = [Gtid(0, 1, n) for n in range(1, 40)]
    for gtid in history:
        started.engine.append(transaction(gtid, f"INSERT INTO t VALUES ('{'x' * 800}')"), gtid)
    started.engine.sync()
    client = await started.root()
    found = await client.query("SHOW BINLOG EVENTS")
    assert len(found) == 3 * len(history)
    client.command(b"\3SHOW BINLOG EVENTS")
    client.close()
    engine = started.directory.memory_engine
    await until(lambda: not engine.references.holds())  # type: ignore[attr-defined]
    await until(lambda: len(started.server.connections) == 0)


async def test_gtid_wait(started: Lab) -> None:
    client, other = await started.root(), await started.root()
    assert await client.query("SELECT MASTER_GTID_WAIT('')") == [["0"]]
    assert await client.query("SELECT MASTER_GTID_WAIT(NULL)") == [[None]]
    assert await client.query("SELECT MASTER_GTID_WAIT('0-1-1', 0)") == [["-1"]]
    assert await client.query("SELECT MASTER_GTID_WAIT('0-1-1', 0.05)") == [["-1"]]
    waiting = asyncio.create_task(client.query("SELECT MASTER_GTID_WAIT('0-1-2', 5)"))
    await asyncio.sleep(0)
    await other.query("INSERT INTO t VALUES (1)")
    assert not waiting.done()
    await other.query("INSERT INTO t VALUES (2)")
    assert await waiting == [["0"]]
    for_ever = await started.root()
    for_ever.command(b"\3SELECT MASTER_GTID_WAIT('0-1-99')")
    await other.query("SELECT 1")
    for_ever.close()
    await until(lambda: len(started.server.connections) == 2)


async def test_replicas(started: Lab) -> None:
    started.publish("0-1-1,0-1-2,5-1-1")
    client = await started.root()
    assert await client.query("SHOW BINLOG REPLICAS") == []
    replica = await started.replica("0-1-1", server_id=77)
    await replica.opening()
    await until(lambda: any("has sent all" in c.state for c in started.server.connections))
    (
        (_, server_id, _, user, sent, durable, acknowledged, gap, gap_ms, state),
    ) = await client.query("SHOW BINLOG REPLICAS")
    assert (server_id, user, acknowledged, gap, gap_ms) == ("77", "repl", None, "0", "0")
    assert sent == durable == "0-1-2,5-1-1"
    assert str(state).startswith("Master has sent all binlog")


def test_replica_that_is_behind(lab: Lab, sql: SqlSession) -> None:
    from binlog_storage.engine import Position

    from binlog_server.connections.connections import Connection

    class Nobody:
        def end(self, error: ServerError | None) -> None:
            pass

        def interrupt(self) -> None:
            pass

        def shut_down(self) -> None:
            pass

    connection = Connection(5, "h:1", Nobody(), "u", dump_server_id=9)
    lab.server.connections.add(connection)
    ((*_, sent, durable, _, gap, gap_ms, _),) = rows(sql, "SHOW BINLOG REPLICAS")
    assert (sent, durable, gap, gap_ms) == (None, "0-1-2", None, None)
    connection.sent = Position(1, 16384)
    ((*_, sent, durable, _, gap, gap_ms, _),) = rows(sql, "SHOW BINLOG REPLICAS")
    assert (sent, durable) == ("0-1-1", "0-1-2")
    assert isinstance(gap, int)
    assert 0 < gap < 16384
    assert isinstance(gap_ms, int)
    assert gap_ms > 1000, "the group is from 2023"
    later = Gtid(0, 1, 3)
    lab.engine.append(transaction(later), later)
    ((*_, durable, _, _, _, _),) = rows(sql, "SHOW BINLOG REPLICAS")
    assert durable == "0-1-2", "not synced yet"
    lab.engine.sync()
    ((*_, durable, _, _, _, _),) = rows(sql, "SHOW BINLOG REPLICAS")
    assert durable == "0-1-3"
    lab.server.connections.remove(connection)


async def test_kill_and_processlist_of_others(started: Lab) -> None:
    root, plain = await started.root(), await started.client("plain", "pw")
    ids = {row[1]: row[0] for row in await root.query("SHOW PROCESSLIST")}
    assert set(ids) == {"root", "plain"}
    assert [row[1] for row in await plain.query("SHOW PROCESSLIST")] == ["plain"]
    with pytest.raises(RemoteError, match=f"You are not owner of thread {ids['root']}"):
        await plain.query(f"KILL {ids['root']}")
    assert await root.query(f"KILL QUERY {ids['plain']}") == []
    await root.query(f"KILL {ids['plain']}")
    assert await plain.closed()


async def test_upstreams_in_the_processlist(started: Lab) -> None:
    """As MariaDB's I/O threads; STOP SLAVE ends them, not KILL."""
    root, plain = await started.root(), await started.client("plain", "pw")
    relay = started.server.relay
    async with FakeUpstream([Visit(OPENING, server_id=7)] * 9) as upstream:
        where = {"host": "127.0.0.1", "port": upstream.port, "user": "u", "ssl": False}
        await relay.change("east", where, lambda *_: None)
        assert len(await root.query("SHOW PROCESSLIST")) == 2
        await relay.start("east")
        await until(lambda: upstream.streaming == 1)
        first, *others = await root.query("SHOW PROCESSLIST")
        state = "Waiting for master to send event"
        assert first[1:5] == ["system user", "", None, "Slave_IO"]
        assert first[6:] == [state, None, "0.000"]
        assert first[0] not in [row[0] for row in others]
        assert len(await plain.query("SHOW PROCESSLIST")) == 1
        with pytest.raises(RemoteError, match=f"You are not owner of thread {first[0]}"):
            await root.query(f"KILL {first[0]}")
        await root.query("KILL USER 'system user'")
        assert upstream.visits == 1
        upstream.cut()
        await until(lambda: upstream.visits == 2)
        (again, *_) = await root.query("SHOW PROCESSLIST")
        assert again[0] == first[0]
        await relay.stop("east")
        assert len(await root.query("SHOW PROCESSLIST")) == 2


def test_where_the_binlog_begins(sql: SqlSession, lab: Lab) -> None:
    """What a relay behind this one, which is to have all of it, is given as its gtid_slave_pos."""
    asked = "SHOW STATUS LIKE 'Binlog_gtid_begin'"
    assert rows(sql, asked) == [("Binlog_gtid_begin", "")]
    run(sql, f"PURGE BINARY LOGS TO '{SECOND}'")
    assert rows(sql, asked) == [("Binlog_gtid_begin", "0-1-1")]
    run(sql, "RESET MASTER")
    assert rows(sql, asked) == [("Binlog_gtid_begin", "")]
    run(sql, "SET GLOBAL gtid_slave_pos = '0-1-7,3-2-1'")
    assert rows(sql, asked) == [("Binlog_gtid_begin", "0-1-7,3-2-1")]
    lab.publish("0-1-8")
    assert rows(sql, asked) == [("Binlog_gtid_begin", "0-1-7,3-2-1")]


# Nothing but errors and answers, in little time


@given(
    st.sampled_from(
        [
            "PURGE BINARY LOGS TO '{}'",
            "PURGE BINARY LOGS BEFORE '{}'",
            "EXPLAIN PURGE TO '{}'",
            "EXPLAIN PURGE BEFORE '{}'",
            "EXPLAIN GTID '{}'",
            "SHOW BINLOG EVENTS IN '{}'",
            "CREATE OR REPLACE BINLOG LEASE '{}' FOR 1 SECOND",
            "CREATE OR REPLACE BINLOG LEASE x FROM GTID '{}' MAX_BYTES 1",
            "DROP BINLOG LEASE '{}'",
            "SET GLOBAL max_binlog_total_size='{}'",
            "SET GLOBAL gtid_binlog_state='{}'",
            "SHOW VARIABLES WHERE Value > '{}'",
            "SHOW DATABASES LIKE '{}'",
            "SELECT MASTER_GTID_WAIT('{}', '{}')",
            "FLUSH BINARY LOGS DELETE_DOMAIN_ID=({})",
            "SHOW BINLOG EVENTS FROM {} LIMIT {}",
        ]
    ),
    st.one_of(
        st.text(max_size=30),
        st.integers(0, 10**25).map(str),
        st.sampled_from(
            [FIRST, "0-1-1", "0-1-99999999999999999999", "2026-01-01", "9" * 400, "\udcff"]
        ),
    ),
)
@settings(max_examples=300)
def test_arguments(statement: str, argument: str) -> None:
    sql = _LAB_SQL()
    text = statement.replace("{}", argument.replace("\\", "\\\\").replace("'", "''"))
    began = time.thread_time()
    try:
        if "MASTER_GTID_WAIT" in text:
            sql.execute(text)
        else:
            run(sql, text)
    except ServerError:
        pass
    assert time.thread_time() - began < 2.0


_labs: list[tuple[Lab, Server]] = []


def _LAB_SQL() -> SqlSession:
    if not _labs:
        lab = Lab(store=SMALL)
        lab.publish("0-1-1")
        _labs.append((lab, lab.server))
    return SqlSession(_labs[0][1], 1, "root@localhost", grants=EVERYTHING)
