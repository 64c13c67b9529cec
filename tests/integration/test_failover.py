"""When the master is lost: candidates, and the proof that the next one has our history; all servers are real."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from binlog_server.testing.mariadb import MariaDB
from binlog_server.testing.sql_server import Followed, Row
from binlog_server.testing.waiting import until
from tests.integration.load import assert_equal, insert
from tests.integration.raw_client import all_events
from tests.integration.test_crash import STRICT
from tests.integration.test_relay_sql import ADMIN, to, wait_status
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB
from tests.kit.server import BinlogServer

pytestmark = pytest.mark.any_version

CANDIDATE = ("--log-slave-updates=1", "--read-only=1")
WAIT_S = 30.0


def address(server: Followed) -> str:
    return f"{server.host}:{server.port}"


def pair(
    make_upstream: MakeMariaDB, flags: Sequence[str] = (), **options: Any
) -> tuple[MariaDB, MariaDB]:
    """A primary with the table d.t, and a replica of it that may be promoted."""
    primary = make_upstream("--log-slave-updates=1")
    candidate = make_upstream(*CANDIDATE, *flags, **options).follow(primary)
    primary.make_table()
    insert(primary)
    candidate.wait_gtid(primary.gtid_binlog_pos)
    return primary, candidate


def follow(server: BinlogServer, primary: MariaDB, *candidates: MariaDB, options: str = "") -> None:
    """Returns when the server has everything of the primary."""
    names = ", ".join(map(address, candidates))
    server.q(f"CHANGE MASTER TO {to(primary)}, MASTER_CANDIDATES='{names}'{options}")
    server.q("START SLAVE")
    wait_status(server, Slave_IO_Running="Yes", Gtid_IO_Pos=primary.gtid_binlog_pos)


def promote(candidate: MariaDB) -> None:
    candidate.script("STOP SLAVE", "RESET SLAVE ALL", "SET GLOBAL read_only=0")


def wait_follows(server: BinlogServer, upstream: MariaDB) -> Row:
    until(lambda: status_of(server)["Master_Port"] == upstream.port, "another master", WAIT_S)
    return wait_status(server, Slave_IO_Running="Yes", Master_Port=upstream.port)


def status_of(server: BinlogServer) -> Row:
    return server.q("SHOW SLAVE STATUS")[0]


def test_promotion_and_rejoin(
    backend: object,
    make_upstream: MakeMariaDB,
    make_replica: MakeMariaDB,
    binlog_server: MakeBinlogServer,
) -> None:
    """We go on with the promoted replica by ourselves, and back when the old primary has come again as its replica."""
    primary, candidate = pair(make_upstream, version="11.8")
    server = binlog_server(users=ADMIN)
    follow(server, primary, candidate)
    replica = make_replica(*STRICT).follow(server)
    last = primary.gtid_binlog_pos
    candidate.wait_gtid(last)
    primary.kill()
    promote(candidate)
    insert(candidate)
    row = wait_follows(server, candidate)
    assert (row["Master_Server_Id"], row["Last_IO_Errno"]) == (candidate.server_id, 0)
    assert_equal(candidate, replica)
    assert replica.gtid_binlog_state == candidate.gtid_binlog_state
    assert f"has our last groups: {last}" in server.log()

    # Over a restart too, without asking the dead one first.
    server.restart()
    wait_follows(server, candidate)
    insert(candidate)
    assert_equal(candidate, replica)

    primary.start()
    primary.follow(candidate, gtid="current_pos")
    insert(candidate)
    assert_equal(candidate, primary, replica)
    assert status_of(server)["Master_Port"] == candidate.port
    candidate.kill()
    promote(primary)
    insert(primary)
    wait_follows(server, primary)
    assert_equal(primary, replica)
    assert replica.gtid_binlog_state == primary.gtid_binlog_state


def ahead_of_its_replica(
    make_upstream: MakeMariaDB, server: BinlogServer, options: str = ""
) -> tuple[MariaDB, MariaDB]:
    """A dead primary with one group more than its replica has; we have it, too."""
    primary, candidate = pair(make_upstream)
    follow(server, primary, candidate, options=options)
    candidate.q("STOP SLAVE")
    wait_status(server, Gtid_IO_Pos=insert(primary, 1))
    primary.kill()
    return primary, candidate


def test_a_promoted_one_that_lacks_our_last_group(
    backend: object,
    make_upstream: MakeMariaDB,
    make_replica: MakeMariaDB,
    binlog_server: MakeBinlogServer,
) -> None:
    """As long as it writes nothing it may get it; then it has another history, and both are shown. The one that was
    followed is waited for."""
    server = binlog_server(users=ADMIN)
    primary, candidate = ahead_of_its_replica(make_upstream, server)
    stored = all_events(server)
    ours, behind = status_of(server)["Gtid_IO_Pos"], candidate.gtid_binlog_pos

    def is_told() -> bool:
        row = status_of(server)
        return row["Last_IO_Errno"] == 1236 and f"has not got {ours} yet" in row["Last_IO_Error"]

    until(is_told, "the candidate is behind", WAIT_S)
    assert behind in server.log()
    wait_status(server, Slave_IO_Running="Connecting")  # "Preparing" while it is looked at

    promote(candidate)
    candidate.q("INSERT INTO d.t (a) VALUES ('of the other history')")
    until(
        lambda: "not in the master's binlog" in status_of(server)["Last_IO_Error"], "1236", WAIT_S
    )
    row = wait_status(server, Slave_IO_Running="Connecting", Last_IO_Errno=1236)
    theirs = candidate.gtid_binlog_pos
    assert theirs != ours
    for part in (
        f"requested to start from GTID {ours}",
        f"Here: {ours} of 20",
        "INSERT INTO d.t (a) VALUES ('00000 xxx",
        f"There: {theirs} of 20",
        "INSERT INTO d.t (a) VALUES ('of the other history')",
    ):
        assert part in row["Last_IO_Error"], row["Last_IO_Error"]
    assert status_of(server)["Gtid_IO_Pos"] == ours
    assert all_events(server) == stored
    late = make_replica().follow(server)
    late.wait_gtid(ours)

    # The old primary comes back: what it has goes on.
    primary.start()
    wait_follows(server, primary)
    insert(primary)
    assert_equal(primary, late)


def test_a_candidate_that_catches_up(
    backend: object,
    make_upstream: MakeMariaDB,
    make_replica: MakeMariaDB,
    binlog_server: MakeBinlogServer,
) -> None:
    server = binlog_server(users=ADMIN)
    _, candidate = ahead_of_its_replica(make_upstream, server)
    until(lambda: "yet; its last one there is" in server.log(), "it is behind", WAIT_S)
    # From us it gets what only we have.
    candidate.follow(server)
    wait_follows(server, candidate)
    promote(candidate)
    insert(candidate)
    replica = make_replica().follow(server)
    assert_equal(candidate, replica)
    assert "stopped following" not in server.log()


def test_an_old_primary_with_a_group_of_its_own(
    backend: object, make_upstream: MakeMariaDB, binlog_server: MakeBinlogServer
) -> None:
    """As a candidate it is passed over: the new primary is only restarted."""
    primary, candidate = pair(make_upstream)
    server = binlog_server(users=ADMIN)
    follow(server, primary, candidate, options=", MASTER_CONNECT_RETRY=1")
    server.q("STOP SLAVE")
    candidate.q("STOP SLAVE")
    primary.q("INSERT INTO d.t (a) VALUES ('seen by nobody')")
    errant = primary.gtid_binlog_pos
    primary.kill()
    promote(candidate)
    insert(candidate)
    server.q("START SLAVE")
    wait_follows(server, candidate)
    last = candidate.gtid_binlog_pos
    wait_status(server, Gtid_IO_Pos=last)
    primary.start()
    candidate.kill()
    until(lambda: f"is {errant}, which is not in the store here" in server.log(), "a look", WAIT_S)
    row = wait_status(server, Slave_IO_Running="Connecting", Last_IO_Errno=1236)
    assert "('seen by nobody')" in row["Last_IO_Error"]
    assert "seen by nobody" not in server.log()
    candidate.start()
    wait_follows(server, candidate)
    insert(candidate)
    wait_status(server, Gtid_IO_Pos=candidate.gtid_binlog_pos)
    assert "stopped following" not in server.log()


def test_relays_as_candidates(
    make_upstream: MakeMariaDB, make_replica: MakeMariaDB, binlog_server: MakeBinlogServer
) -> None:
    """What a relay has is its master's bytes, so that one is as good as the other; and as the master."""
    primary = make_upstream()
    primary.make_table()
    relays = [binlog_server(upstream=primary, server_id=101 + n) for n in range(2)]
    server = binlog_server(users=ADMIN, server_id=103)
    names = f"{address(relays[1])}, {address(primary)}"
    server.q(f"CHANGE MASTER TO {to(relays[0])}, MASTER_CANDIDATES='{names}'")
    server.q("START SLAVE")
    replica = make_replica().follow(server)
    insert(primary)
    assert_equal(primary, replica)
    for gone in relays:
        last = primary.gtid_binlog_pos
        gone.stop()
        insert(primary)
        assert_equal(primary, replica)
        assert f"has our last groups: {last}" in server.log()
    assert "only its GTID" not in server.log()


def test_the_same_gtid_on_another_group(
    backend: object, make_upstream: MakeMariaDB, binlog_server: MakeBinlogServer
) -> None:
    """A master that has lost its last group in a crash and has used the number again: only the group tells."""
    upstream = make_upstream()
    upstream.make_table()
    insert(upstream, 3)
    server = binlog_server(users=ADMIN)
    follow(server, upstream)
    stored = all_events(server)
    gtid = upstream.gtid_binlog_pos
    state = upstream.gtid_binlog_state
    server.q("STOP SLAVE")
    number = int(gtid.rpartition("-")[2])
    upstream.script(
        "RESET MASTER",
        f"SET GLOBAL gtid_binlog_state='{state.removesuffix(str(number))}{number - 1}'",
        "INSERT INTO d.t (a) VALUES ('another one')",
        "INSERT INTO d.t (a) VALUES ('and more')",
    )
    server.q("START SLAVE")
    row = wait_status(server, Slave_IO_Running="No", Last_IO_Errno=1593)
    text = row["Last_IO_Error"]
    assert f"{gtid} is not the same group there" in text
    assert "'00002 xxx" in text
    assert "('another one')" in text
    assert "MASTER_CHECK_LAST_GROUP=0" in text
    assert all_events(server) == stored

    server.q("CHANGE MASTER TO MASTER_CHECK_LAST_GROUP=0")
    server.q("START SLAVE")
    wait_status(server, Slave_IO_Running="Yes", Gtid_IO_Pos=upstream.gtid_binlog_pos)
    assert "only its GTID says that it is the same group: MASTER_CHECK_LAST_GROUP=0" in server.log()


FORMATS = {
    "a row": ("ROW", "INSERT INTO d.t (a) VALUES ('r'), ('s')"),
    "a statement": ("STATEMENT", "INSERT INTO d.t (a) VALUES (CONCAT('s', @variable))"),
    "ddl": ("ROW", "CREATE TABLE d.other (a INT)"),
    "a drop": ("ROW", "DROP TABLE d.gone"),
    "rows of 2 MiB": ("ROW", "INSERT INTO d.t (a) SELECT REPEAT('x', 200) FROM d.seq_1_to_10000"),
}


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("binlog_format", ["ROW", "MIXED"])
def test_groups_that_a_candidate_has_logged_anew(
    binlog_format: str, make_upstream: MakeMariaDB, binlog_server: MakeBinlogServer
) -> None:
    """They are never the same bytes, and yet the same groups: the guard says so, one way and the other."""
    primary = make_upstream(version="10.11")
    primary.make_table()
    primary.q("CREATE TABLE d.gone (a INT)")
    candidate = make_upstream(
        *CANDIDATE,
        f"--binlog-format={binlog_format}",
        "--log-bin-compress=1",
        "--log-bin-compress-min-len=10",
        "--binlog-row-event-max-size=1024",
        version="11.8",
    ).follow(primary)
    server = binlog_server(users=ADMIN)
    follow(server, primary)
    for name, (format_, sql) in FORMATS.items():
        primary.script(f"SET SESSION binlog_format={format_}", "SET @variable='v'", sql)
        last = primary.gtid_binlog_pos
        candidate.wait_gtid(last)
        wait_status(server, Gtid_IO_Pos=last)
        for source in (candidate, primary):
            server.q("STOP SLAVE")
            server.q(f"CHANGE MASTER TO {to(source)}")
            server.q("START SLAVE")
            wait_status(server, Slave_IO_Running="Yes", Master_Port=source.port)
            said = f"{address(source)} has our "
            line = next(x for x in reversed(server.log().splitlines()) if said in x and last in x)
            as_rows = source is candidate and binlog_format == "ROW" and name == "a statement"
            how = "only its GTID says" if as_rows else "has our last groups"
            assert how in line, (name, line)


def test_what_the_upstream_has_purged_is_proved_by_its_gtid(
    make_upstream: MakeMariaDB, binlog_server: MakeBinlogServer
) -> None:
    upstream = make_upstream()
    upstream.make_table()
    last = insert(upstream)
    server = binlog_server(users=ADMIN)
    follow(server, upstream)
    server.q("STOP SLAVE")
    upstream.q("FLUSH BINARY LOGS")

    def purged() -> bool:  # not while a crash would need the file
        upstream.q("PURGE BINARY LOGS TO 'upstream-bin.000002'")
        return len(upstream.q("SHOW BINARY LOGS")) == 1

    until(purged, "the file with our last group is purged")
    end = insert(upstream)
    server.q("START SLAVE")
    wait_status(server, Slave_IO_Running="Yes", Gtid_IO_Pos=end)
    (line,) = [line for line in server.log().splitlines() if "only its GTID says" in line]
    assert f"has our {last}" in line
    assert "purged" in line


def test_an_account_with_one_connection(
    make_upstream: MakeMariaDB, binlog_server: MakeBinlogServer
) -> None:
    """The proof needs another one; without it the GTID has to do."""
    upstream = make_upstream()
    upstream.make_table()
    # The upstream notices that we went away when it sends the next heartbeat: a third of that.
    server = binlog_server(users=ADMIN, slave_net_timeout=3)
    follow(server, upstream)
    server.q("STOP SLAVE")
    upstream.q(f"ALTER USER {upstream.account.user}@'%' WITH MAX_USER_CONNECTIONS 1")
    upstream.wait("SHOW PROCESSLIST", lambda rows: len(rows) == 1)
    server.q("START SLAVE")
    wait_status(server, Slave_IO_Running="Yes", Gtid_IO_Pos=upstream.gtid_binlog_pos)
    assert "'max_user_connections' resource" in server.log()


def test_a_primary_that_hangs(make_upstream: MakeMariaDB, binlog_server: MakeBinlogServer) -> None:
    """It still accepts connections, and says nothing."""
    primary, candidate = pair(make_upstream)
    server = binlog_server(users=ADMIN, slave_net_timeout=1)
    follow(server, primary, candidate)
    primary.pause()
    promote(candidate)
    insert(candidate)
    wait_follows(server, candidate)
    wait_status(server, Gtid_IO_Pos=candidate.gtid_binlog_pos)
    assert (
        f"upstream {address(primary)}: the candidate {address(candidate)} is tried" in server.log()
    )
