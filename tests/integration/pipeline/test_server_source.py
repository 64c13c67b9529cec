"""A running server as a source: ours, and every MariaDB."""

from __future__ import annotations

import contextlib
import pickle
import random
import socket
from itertools import pairwise
from typing import Any

import pymysql
import pytest
from binlog_pipeline.errors import DataLost, SourceError
from binlog_pipeline.sources.directory import DirectorySource
from binlog_pipeline.sources.dump.reader import DumpReader
from binlog_pipeline.sources.server import ServerSource
from binlog_pipeline.wanted import Wanted
from binlog_protocol.gtid import Gtid, SlavePosition

from binlog_server.testing.mariadb import MariaDB
from binlog_server.testing.sql_server import Credentials
from binlog_server.testing.waiting import until
from tests.kit.backends import Backend
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB, MakeRelay
from tests.kit.server import BinlogServer

from .sources import address_of, between, numbers, read, read_all, read_new, source_of

CLASSIC = {"password": "pw", "stream_style": "classic", "grants": ["ALL PRIVILEGES"]}
ENGINE = {"password": "pw", "grants": ["ALL PRIVILEGES"]}
USERS = {"engine": ENGINE, "classic": CLASSIC}
AS_CLASSIC = Credentials("classic", "pw")


def wait_for(server: BinlogServer, upstream: MariaDB) -> None:
    """Until it has all, and has published that beside its files."""
    stored, wanted = DirectorySource(str(server.directory)), upstream.gtid_binlog_pos
    until(lambda: stored.latest() == SlavePosition.parse(wanted), f"{wanted} is published", 30)


def some_history(upstream: MariaDB) -> None:
    """Several files, domains and kinds of groups."""
    upstream.script(
        "CREATE DATABASE d",
        "CREATE TABLE d.t (a INT, b LONGBLOB)",
        "INSERT INTO d.t SELECT seq, '' FROM d.seq_1_to_1000",
        "FLUSH BINARY LOGS",
        *(f"INSERT INTO d.t VALUES ({n}, 'x')" for n in range(50)),
        "XA START 'x'",
        "INSERT INTO d.t VALUES (1, 'prepared')",
        "XA END 'x'",
        "XA PREPARE 'x'",
        "XA COMMIT 'x'",
        "SET SESSION gtid_domain_id = 7",
        "INSERT INTO d.t VALUES (2, REPEAT('y', 17000000))",  # one event, more than a packet
        "UPDATE d.t SET b = 'z' WHERE a = 1",
        "FLUSH BINARY LOGS",
        "SET SESSION gtid_seq_no = 500",
        "SET SESSION binlog_format = STATEMENT",
        "INSERT INTO d.t VALUES (3, 'statement')",
        "SET SESSION gtid_domain_id = 0",
        "SET SESSION binlog_format = ROW",
        "INSERT INTO d.t SELECT seq, REPEAT('w', 20000) FROM d.seq_1_to_1100",  # 22 MB in many events
        "ALTER TABLE d.t ADD c INT",
        "INSERT INTO d.t VALUES (4, 'end', 1)",
    )


@pytest.mark.any_version
def test_the_same_from_servers_and_directory(backend: Backend, make_relay: MakeRelay) -> None:
    upstream, relay = make_relay(table="", users=USERS)
    some_history(upstream)
    wait_for(relay, upstream)
    stored = DirectorySource(str(relay.directory))
    wanted = [
        (group.gtid, group.payload)
        for part in stored.slices(Wanted(), 1 << 20)
        for group in read(part.read())
    ]
    assert max(len(payload) for _, payload in wanted) > 20 << 20
    places = []
    for source in (
        source_of(upstream),
        source_of(relay, Credentials("engine", "pw")),
        source_of(relay, AS_CLASSIC),
    ):
        assert source.latest() == stored.latest()
        assert source.earliest() == SlavePosition()
        found = read_all(source)
        assert [group[:2] for group in found] == wanted, source.name
        assert len({group.place for group in found}) == len(found)
        places.append([group.place for group in found])
    feed = source_of(upstream).feed()
    assert [group[:2] for group in read(feed.after(SlavePosition(), 0))] == wanted
    feed.close()
    assert places[0] == sorted(places[0])
    assert places[2] == sorted(places[2])
    assert len({file for file, _ in places[0]}) == 3
    # Without files: domain and number.
    assert places[1] == [(gtid.domain_id, gtid.seq_no) for gtid, _ in wanted]


@pytest.fixture
def cut_in_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short ranges, too."""
    monkeypatch.setattr("binlog_pipeline.sources.dump.history._CUT_FROM", 5)


@pytest.mark.each_version
@pytest.mark.by_turns(2)
@pytest.mark.usefixtures("cut_in_two")
def test_any_cuts_give_each_group_once(
    backend: Backend, make_upstream: MakeMariaDB, rng: random.Random
) -> None:
    """Cuts at numbers that exist and that do not."""
    upstream = make_upstream()
    gaps_and_domains(upstream, rng)
    check_random_cuts(source_of(upstream), rng)


@pytest.mark.usefixtures("cut_in_two")
def test_any_cuts_of_ours(make_relay: MakeRelay, rng: random.Random) -> None:
    upstream, relay = make_relay(table="", users=USERS)
    gaps_and_domains(upstream, rng)
    wait_for(relay, upstream)
    for style in USERS:
        check_random_cuts(source_of(relay, Credentials(style, "pw")), rng)


def gaps_and_domains(upstream: MariaDB, rng: random.Random) -> None:
    """Numbers that are left out, two domains, several files."""
    upstream.script("CREATE DATABASE d", "CREATE TABLE d.t (a INT)")
    with upstream.connect() as connection, connection.cursor() as cursor:
        for _ in range(60):
            domain = rng.choice([0, 0, 0, 4])
            cursor.execute(f"SET SESSION gtid_domain_id = {domain}")
            if rng.random() < 0.2:  # a gap
                pos = SlavePosition.parse(upstream.gtid_binlog_pos).get(domain)
                next_no = (pos.seq_no if pos else 0) + rng.randint(2, 20)
                cursor.execute(f"SET SESSION gtid_seq_no = {next_no}")
            if rng.random() < 0.05:
                cursor.execute("FLUSH BINARY LOGS")
            cursor.execute("INSERT INTO d.t VALUES (1)")


def check_random_cuts(source: ServerSource, rng: random.Random) -> None:
    last = {gtid.domain_id: gtid for gtid in source.latest()}
    whole = read_all(source)
    assert numbers(g for g in whole if g.gtid.domain_id == 4)
    for _ in range(2):
        steps = 4
        cuts = {
            domain: [0, *sorted(rng.randint(0, gtid.seq_no) for _ in range(steps - 1)), gtid.seq_no]
            for domain, gtid in last.items()
        }
        positions = [
            SlavePosition(
                last[domain]._replace(seq_no=of_domain[step])
                for domain, of_domain in cuts.items()
                if of_domain[step]
            )
            for step in range(steps + 1)
        ]
        for domains in (None, frozenset([0]), frozenset([4])):
            found = []
            for start, stop in pairwise(positions):
                wanted = Wanted(between(str(start), str(stop)).gtids, domains=domains)
                parts = pickle.loads(pickle.dumps(source.slices(wanted, 1)))
                again = [group for part in parts for group in read(part.read())]
                found += [group for part in parts for group in read(part.read())]
                assert found[len(found) - len(again) :] == again
            expected = [g for g in whole if domains is None or g.gtid.domain_id in domains]
            by_domain = [
                [group for group in found if group.gtid.domain_id == domain] for domain in last
            ]
            assert by_domain == [
                [group for group in expected if group.gtid.domain_id == domain] for domain in last
            ]


@pytest.mark.each_version
@pytest.mark.by_turns(2)
def test_numbers_of_another_server(backend: Backend, make_upstream: MakeMariaDB) -> None:
    """Where several servers have written to a domain, a position need not be of a group that is there."""
    upstream = make_upstream()
    upstream.script(
        "CREATE DATABASE d",
        "CREATE TABLE d.t (a INT)",
        *("INSERT INTO d.t VALUES (1)",) * 8,
        "SET SESSION server_id = 77",
        *("INSERT INTO d.t VALUES (1)",) * 10,
        f"SET SESSION server_id = {upstream.server_id}",
        *("INSERT INTO d.t VALUES (1)",) * 10,
    )
    own = upstream.server_id
    source = source_of(upstream)
    assert numbers(read_all(source)) == list(range(1, 31))
    for start, stop in (
        (f"0-{own}-5", f"0-{own}-15"),  # the end is none of that server's
        ("0-77-5", f"0-{own}-25"),  # the beginning is none of that server's
        ("0-77-15", "0-77-20"),
        ("0-77-3", f"0-{own}-7"),  # and the end comes before anything of that server
        (f"0-{own}-14", "0-77-22"),  # of neither
    ):
        low, high = int(start.split("-")[2]), int(stop.split("-")[2])
        assert numbers(read_all(source, between(start, stop))) == list(range(low + 1, high + 1))
    with pytest.raises(
        DataLost, match="0-99-5 was read before, or is named, but the binlog has never had that"
    ):
        read_all(source, between("0-99-5", None))


@pytest.mark.any_version
def test_what_was_purged(backend: Backend, make_upstream: MakeMariaDB) -> None:
    upstream = make_upstream()
    upstream.script(
        "CREATE DATABASE d",
        "CREATE TABLE d.t (a INT)",
        "SET SESSION gtid_domain_id = 3",
        "INSERT INTO d.t VALUES (1)",
        "FLUSH BINARY LOGS",
        "INSERT INTO d.t VALUES (2)",
        "SET SESSION gtid_domain_id = 0",
        "INSERT INTO d.t VALUES (3)",
    )
    own = upstream.server_id
    if upstream.q("SHOW VARIABLES LIKE 'slave_connections_needed_for_purge'"):
        upstream.q("SET GLOBAL slave_connections_needed_for_purge = 0")
    with upstream.connect() as connection, connection.cursor() as cursor:

        def is_purged() -> bool:
            cursor.execute("PURGE BINARY LOGS TO 'upstream-bin.000002'")
            return bool(cursor.execute("SHOW BINARY LOGS") == 1)

        until(is_purged, "the first file is purged: it is in use until InnoDB has synced")
    _check_purged(source_of(upstream), f"0-{own}-2,3-{own}-1", f"3-{own}-2,0-{own}-3")
    # What is not wanted may have been purged.
    source = source_of(upstream)
    wanted = Wanted(between(f"0-{own}-2", None).gtids, domains=frozenset([0]))
    assert [str(group.gtid) for group in read_all(source, wanted)] == [f"0-{own}-3"]


@pytest.mark.parametrize("style", USERS)
def test_what_was_purged_from_ours(
    style: str, make_upstream: MakeMariaDB, binlog_server: MakeBinlogServer
) -> None:
    upstream = make_upstream()
    # Files of the smallest size.
    relay = binlog_server(
        upstream=upstream,
        users=USERS,
        max_binlog_size=65536,
        slave_connections_needed_for_purge=0,
        replica_slot_seconds=0,
    )
    upstream.script(
        "CREATE DATABASE d",
        "CREATE TABLE d.t (a INT, b BLOB)",
        "SET SESSION gtid_domain_id = 9",
        "INSERT INTO d.t VALUES (0, '')",
        "SET SESSION gtid_domain_id = 0",
        *(f"INSERT INTO d.t VALUES ({n}, REPEAT('x', 20000))" for n in range(30)),
        "SET SESSION gtid_domain_id = 5",
        "INSERT INTO d.t VALUES (0, '')",
    )
    wait_for(relay, upstream)
    names = [row["Log_name"] for row in relay.q("SHOW BINARY LOGS")]
    until(lambda: is_purged(relay, names[4]), "a checkpoint behind what is purged")
    left = DirectorySource(str(relay.directory))
    assert len(left.earliest()) == 2  # nothing of domain 5 was purged
    source = source_of(relay, Credentials(style, "pw"))
    expected = [str(group.gtid) for part in left.slices(Wanted(), 1) for group in read(part.read())]
    _check_purged(source, str(left.earliest()), ",".join(expected))


def is_purged(relay: BinlogServer, to: str) -> bool:
    with contextlib.suppress(pymysql.OperationalError):  # 1378, as long as one of them is held
        relay.q(f"PURGE BINARY LOGS TO '{to}'")
    return bool(relay.q("SHOW BINARY LOGS")[0]["Log_name"] == to)


def _check_purged(source: Any, beginning: str, left: str) -> None:
    assert source.earliest() == SlavePosition.parse(beginning)
    assert [str(group.gtid) for group in read_all(source)] == left.split(",")
    assert read_all(source, between(beginning, None)) == read_all(source)
    first = next(iter(SlavePosition.parse(beginning)))
    early = first._replace(seq_no=1) if first.seq_no > 1 else None
    starts = ["" if early is None else str(early), ""]
    for start in starts:
        with pytest.raises(DataLost, match=r"1236.*failOnDataLoss"):
            read_all(source, between(start, None))
        with pytest.raises(DataLost, match=r"1236.*failOnDataLoss"):
            read_new(source, SlavePosition.parse(start))
    lenient = type(source)(source.address, fail_on_data_loss=False)
    with pytest.warns(UserWarning, match="were purged: behind"):
        assert read_all(lenient, between("", None)) == read_all(source)
    with pytest.warns(UserWarning, match="were purged: behind"):
        found = read_new(lenient, SlavePosition())
    assert [group[:2] for group in found] == [group[:2] for group in read_all(source)]


@pytest.mark.each_version
@pytest.mark.by_turns(2)
def test_another_history_that_the_old_server_has_gone_on_with(
    backend: Backend, make_upstream: MakeMariaDB
) -> None:
    """Its last number is a later one then, so that the binlog state does not tell."""
    upstream = make_upstream("--server-id=1")
    upstream.script(
        *(f"CREATE DATABASE d{number}" for number in range(8)),
        *("SET GLOBAL server_id = 2", "SET SESSION server_id = 2"),
        *(f"DROP DATABASE d{number}" for number in range(4)),
        *("SET GLOBAL server_id = 1", "SET SESSION server_id = 1"),
        *(f"DROP DATABASE d{number}" for number in range(4, 8)),
    )
    source = source_of(upstream)
    for position in ("0-1-8", "0-2-9", "0-2-12", "0-1-13", "0-1-15", "0-1-16"):
        assert source.has_passed(SlavePosition.parse(position))
    with pytest.raises(DataLost, match=r"0-1-10 was read before, .* another history"):
        source.has_passed(SlavePosition.parse("0-1-10"))


@pytest.mark.each_version
@pytest.mark.by_turns(2)
def test_another_history(backend: Backend, make_upstream: MakeMariaDB) -> None:
    upstream = make_upstream()
    upstream.script("CREATE DATABASE d", "CREATE DATABASE e", "CREATE DATABASE f")
    source = source_of(upstream)
    position = source.latest()
    own = upstream.server_id
    with pytest.raises(SourceError, match=rf"up to 0-{own}-4 are wanted, but the binlog ends at"):
        source.slices(between(None, f"0-{own}-4"), 1)
    with pytest.raises(SourceError, match="up to 8-1-1 are wanted"):
        source.slices(between(None, f"0-{own}-3,8-1-1"), 1)
    assert source.has_passed(SlavePosition.parse(f"0-{own}-2"))
    assert not source.has_passed(SlavePosition.parse(f"0-{own}-4"))
    with pytest.raises(DataLost, match=f"0-{own + 1}-2 was read before, or is named"):
        source.has_passed(
            SlavePosition.parse(f"0-{own + 1}-2")
        )  # its number is there, not its server
    upstream.q("RESET MASTER")
    for name in "gh":
        with pytest.raises(DataLost, match="RESET MASTER"):
            source.slices(between(str(position), None), 1)
        with pytest.raises(DataLost, match="RESET MASTER"):
            read_new(source, position)
        upstream.q(f"CREATE DATABASE {name}")
    assert numbers(read_all(source)) == [1, 2]


@pytest.mark.each_version
@pytest.mark.by_turns(2)
def test_no_more_than_replication_slave_is_needed(
    backend: Backend, make_upstream: MakeMariaDB
) -> None:
    upstream = make_upstream()
    upstream.script(
        "SET SESSION sql_log_bin = 0",
        "CREATE USER bare IDENTIFIED BY 'x'",
        "CREATE USER nothing IDENTIFIED BY 'x'",
        "GRANT REPLICATION SLAVE ON *.* TO bare",
        "SET SESSION sql_log_bin = 1",
        "CREATE DATABASE d",
    )
    source = source_of(upstream, Credentials("bare", "x"))
    assert source.earliest() == SlavePosition()
    assert numbers(read_all(source)) == [1]
    assert numbers(read_new(source, SlavePosition())) == [1]
    with pytest.raises(SourceError, match=r"1227 \(42000\): .*GRANT REPLICATION SLAVE"):
        read_all(source_of(upstream, Credentials("nothing", "x")))


def test_without_a_binlog(make_replica: MakeMariaDB) -> None:
    server = make_replica()
    server.create_account()
    with pytest.raises(SourceError, match="has no binlog; start it with log_bin"):
        source_of(server).slices(Wanted(), 1)


@pytest.fixture
def small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system takes tens of MiB ahead of who reads otherwise."""
    connect = socket.create_connection

    def create_connection(*arguments: Any) -> socket.socket:
        made = connect(*arguments)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        return made

    monkeypatch.setattr(
        "binlog_pipeline.sources.dump.link.socket.create_connection", create_connection
    )


@pytest.mark.any_version
@pytest.mark.usefixtures("small_buffers")
def test_a_slow_reader_is_not_cut_off(backend: Backend, make_upstream: MakeMariaDB) -> None:
    upstream = make_upstream("--net-write-timeout=1")
    upstream.script(
        "CREATE DATABASE d",
        "CREATE TABLE d.t (a INT, b BLOB)",
        *("INSERT INTO d.t SELECT seq, REPEAT('x', 30000) FROM d.seq_1_to_100",) * 15,
    )
    source = source_of(upstream)
    reader = DumpReader(address_of(upstream), SlavePosition(), source.latest())
    groups = reader.groups()
    found = numbers(read([next(groups)]))
    dumps = "SELECT ID FROM information_schema.PROCESSLIST WHERE COMMAND = 'Binlog Dump'"
    before = upstream.wait(dumps, lambda rows: len(rows) == 1)  # the one that asked has ended
    # Long enough for the server to give up, had it not been told to wait.
    with pytest.raises(TimeoutError):
        upstream.wait(dumps, lambda rows: rows != before, timeout=2.5)
    found += numbers(read(groups))
    assert found == list(range(1, 18))


@pytest.mark.any_version
@pytest.mark.usefixtures("small_buffers")
def test_a_lost_connection_is_made_anew(backend: Backend, make_upstream: MakeMariaDB) -> None:
    """A slice goes on behind the last whole group."""
    upstream = make_upstream()
    upstream.script(
        "CREATE DATABASE d",
        "CREATE TABLE d.t (a INT, b BLOB)",
        *("INSERT INTO d.t SELECT seq, REPEAT('x', 30000) FROM d.seq_1_to_100",) * 15,
    )
    source = source_of(upstream)
    groups = DumpReader(address_of(upstream), SlavePosition(), source.latest()).groups()
    found = read([next(groups)])
    dumps = "SELECT ID FROM information_schema.PROCESSLIST WHERE COMMAND = 'Binlog Dump'"
    upstream.q(f"KILL {upstream.value(dumps)}")
    found += read(groups)
    assert numbers(found) == list(range(1, 18))
    assert found == read_all(source)


def test_a_server_id_is_used(make_upstream: MakeMariaDB) -> None:
    upstream = make_upstream()
    upstream.q("CREATE DATABASE d")
    feed = source_of(upstream, serverId="4711").feed()
    assert numbers(read(feed.after(SlavePosition(), 0))) == [1]
    assert [row["Server_id"] for row in upstream.q("SHOW SLAVE HOSTS")] == [4711]
    feed.close()
    other = source_of(upstream, serverId=str(upstream.server_id)).feed()
    with pytest.raises(SourceError, match="equal MariaDB server ids"):
        read(other.after(SlavePosition(), 0))
    other.close()


def test_gtid(make_upstream: MakeMariaDB) -> None:
    """A GTID that is given out is that of the group."""
    upstream = make_upstream()
    upstream.q("CREATE DATABASE d")
    (group,) = read_all(source_of(upstream))
    assert group.gtid == Gtid(0, upstream.server_id, 1)
    assert str(group.gtid) == upstream.gtid_binlog_pos
