"""INCIDENT events of real masters: what their own replicas do, the relay does; and how it is told to go on."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pymysql
import pytest
from binlog_protocol.events.event_type import EventType

from binlog_server.testing.local import LocalMariaDB
from binlog_server.testing.mariadb import MariaDB
from binlog_server.testing.waiting import until
from tests.binlog_server.cli.command import run
from tests.integration.test_relay_sql import ADMIN, status
from tests.integration.test_traditional import BASE, copied, dumped
from tests.kit.backends import Backend
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB
from tests.kit.server import BinlogServer

# A statement that changes more than the cache takes: the rows before the one that does not fit stay.
SMALL_CACHE = (
    "--max-binlog-stmt-cache-size=4096",
    "--binlog-stmt-cache-size=4096",
    "--binlog-format=row",
)
SAID = "The incident LOST_EVENTS occurred on the master. Message: error writing to the binary log"


def lose_changes(upstream: MariaDB) -> None:
    values = ",".join(f"(REPEAT('{letter}', 3000))" for letter in "abc")
    with pytest.raises(pymysql.Error) as error:
        upstream.q(f"INSERT INTO d.t (b) VALUES {values}")
    assert error.value.args[0] == 1705


@pytest.mark.any_version
def test_the_relay_stops_where_a_replica_does_and_goes_on_when_told(
    backend: object,
    make_upstream: MakeMariaDB,
    make_replica: MakeMariaDB,
    binlog_server: MakeBinlogServer,
    tmp_path: Path,
) -> None:
    upstream = make_upstream(*SMALL_CACHE)
    upstream.script(
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id INT AUTO_INCREMENT PRIMARY KEY, b VARCHAR(4000)) ENGINE=MyISAM",
    )
    theirs = make_replica().follow(upstream)
    server = binlog_server(upstream=upstream, server_id=99, users=ADMIN)
    behind_us = make_replica().follow(server)
    before = upstream.gtid_binlog_pos
    behind_us.wait_gtid(before)
    lose_changes(upstream)
    upstream.q("INSERT INTO d.t (b) VALUES ('behind it')")

    stopped = theirs.wait("SHOW SLAVE STATUS", lambda rows: rows[0]["Last_SQL_Errno"] == 1590)
    assert stopped[0]["Last_SQL_Error"] == SAID
    until(lambda: status(server)["Last_SQL_Errno"] == 1590, "1590")
    ours = status(server)
    assert ours["Last_SQL_Error"].startswith(f"{SAID}. Behind '{before}' changes are missing")
    assert (ours["Slave_SQL_Running"], ours["Last_IO_Errno"]) == ("No", 0)
    assert behind_us.gtid_slave_pos == before

    for follower in (theirs, server):
        for statement in ("STOP SLAVE", "SET GLOBAL sql_slave_skip_counter = 1"):
            follower.q(statement)
        assert follower.q("SELECT @@GLOBAL.sql_slave_skip_counter AS n") == [{"n": 1}]
        follower.q("START SLAVE")
    for replica in (theirs, behind_us):
        replica.wait_gtid(upstream.gtid_binlog_pos)
    assert theirs.checksum() == behind_us.checksum()
    assert server.q("SELECT @@GLOBAL.sql_slave_skip_counter AS n") == [{"n": 0}]

    # What the files of the master say of it, read without a server.
    upstream.q("FLUSH BINARY LOGS")
    file = upstream.copy_of(upstream.q("SHOW BINARY LOGS")[0]["Log_name"])
    config = tmp_path / "config.toml"  # files of 1 GiB would be read whole by `verify`
    config.write_text("max_binlog_size = 1048576\n")
    imported = run("import", "--directory", tmp_path / "store", "--config", config, file)
    assert (imported.code, imported.err.count(SAID)) == (0, 1)
    assert run("verify", tmp_path / "store").code == 0
    shown = run("events", file)
    assert (shown.code, shown.out.count(SAID.encode())) == (0, 1)


@pytest.mark.any_version
def test_a_server_over_its_files_sends_what_it_sends(
    backend: Backend, make_upstream: MakeMariaDB, make_replica: MakeMariaDB, tmp_path: Path
) -> None:
    backend.require()
    upstream = make_upstream(*SMALL_CACHE)
    if not isinstance(upstream, LocalMariaDB):
        pytest.skip("its files are in a container")
    upstream.script(
        "CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, b TEXT) ENGINE=MyISAM"
    )
    before = upstream.gtid_binlog_pos
    with pytest.raises(pymysql.Error, match="1705"):
        upstream.q(f"INSERT INTO d.t VALUES (1, '{'a' * 3000}'), (2, '{'b' * 3000}')")
    upstream.q("INSERT INTO d.t VALUES (9, 'behind it')")
    ours = BinlogServer(directory=copied(upstream, tmp_path / "copy"), users=ADMIN)
    ours.options = {"server_id": upstream.server_id}
    with contextlib.ExitStack() as stack:
        stack.callback(ours.discard)
        ours.start()
        places: list[tuple[str | None, dict[str, Any]]] = [
            (None, {"file": f"{BASE}.000001", "at": 4}),
            (before, {}),
        ]
        for position, place in places:
            sent = [dumped(source, position, **place) for source in (upstream, ours)]
            incidents = [[e for e in events if e[4] == EventType.INCIDENT] for events in sent]
            assert incidents[0] == incidents[1] != []
        replica = make_replica().follow(ours, start=False)
        replica.q("START SLAVE")
        stopped = replica.wait("SHOW SLAVE STATUS", lambda rows: rows[0]["Last_SQL_Errno"] == 1590)
        assert stopped[0]["Last_SQL_Error"] == SAID
        assert replica.gtid_slave_pos == before
        for statement in ("STOP SLAVE", "SET GLOBAL sql_slave_skip_counter = 1", "START SLAVE"):
            replica.q(statement)
        replica.wait_gtid(upstream.gtid_binlog_pos)
        assert replica.q("SELECT id FROM d.t") == [{"id": 9}]
