"""python-mysql-replication: a stream reader in pure Python, with rows decoded."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pymysql
import pytest
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import MariadbAnnotateRowsEvent, MariadbGtidEvent, QueryEvent
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from tests.integration.clients.programs import Relay
from tests.kit.server import BinlogServer

# It calls pymysql by names of arguments that pymysql has renamed.
pytestmark = [
    pytest.mark.filterwarnings("ignore:'(db|passwd)' is deprecated:DeprecationWarning"),
    # It is the same whichever version wrote what it reads.
    pytest.mark.parametrize("version", ["11.8"], indirect=True),
]

ROWS = (WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent)


@contextlib.contextmanager
def stream(server: BinlogServer, **options: Any) -> Iterator[BinLogStreamReader]:
    """Until everything is read, unless told to block."""
    account = server.account
    login = {"host": server.host, "port": server.port, "ssl_disabled": True}
    login |= {"user": account.user, "passwd": account.password}
    reader = BinLogStreamReader(connection_settings=login, server_id=4711, **options)
    try:
        yield reader
    finally:
        reader.close()


def changes(events: Any) -> list[tuple[str, Any, Any]]:
    """Kind, row before, row after."""
    found: list[tuple[str, Any, Any]] = []
    for event in events:
        for row in event.rows if isinstance(event, ROWS) else ():
            before = row.get("before_values", row.get("values"))
            after = row.get("after_values", row.get("values"))
            match event:
                case WriteRowsEvent():
                    found.append(("insert", None, after))
                case UpdateRowsEvent():
                    found.append(("update", before, after))
                case DeleteRowsEvent():
                    found.append(("delete", before, None))
    return found


@pytest.mark.proves("GTID stream with rows", client="python-mysql-replication")
def test_rows_by_gtid(relay: Relay) -> None:
    """All rows with the names of their columns, behind the position where it was told to begin."""
    upstream = relay.upstream
    upstream.script(
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id INT PRIMARY KEY, price DECIMAL(10, 2), name VARCHAR(20) CHARACTER SET utf8mb4)",
    )
    start = upstream.gtid_binlog_pos
    upstream.script(
        "INSERT INTO d.t VALUES (1, 1.50, 'ünï'), (2, NULL, '')",
        "UPDATE d.t SET price = 3 WHERE id = 1",
        "DELETE FROM d.t WHERE id = 2",
        "CREATE TABLE d.u (a INT)",
    )
    relay.wait()
    options = {"auto_position": start, "is_mariadb": True, "annotate_rows_event": True}
    with stream(relay.server, **options) as reader:
        events = list(reader)
    one = {"id": 1, "price": Decimal("1.50"), "name": "ünï"}
    two = {"id": 2, "price": None, "name": ""}
    assert changes(events) == [
        ("insert", None, one),
        ("insert", None, two),
        ("update", one, one | {"price": Decimal(3)}),
        ("delete", two, None),
    ]
    domain, server, number = start.split("-")
    assert [event.gtid for event in events if isinstance(event, MariadbGtidEvent)] == [
        f"{domain}-{server}-{int(number) + more}" for more in (1, 2, 3, 4)
    ]
    asked = [e.sql_statement for e in events if isinstance(e, MariadbAnnotateRowsEvent)]
    assert asked[1:] == [b"UPDATE d.t SET price = 3 WHERE id = 1", b"DELETE FROM d.t WHERE id = 2"]
    queries = [event.query for event in events if isinstance(event, QueryEvent)]
    assert queries == ["CREATE TABLE d.u (a INT)"]


@pytest.mark.proves("GTID stream that waits", client="python-mysql-replication")
def test_waits_for_more(relay: Relay) -> None:
    """With heartbeats and an id of its own, as a service would; and comes back where it was."""
    gtids = relay.write()
    options = {
        "is_mariadb": True,
        "blocking": True,
        "slave_heartbeat": 0.1,
        "slave_uuid": "a-service",
        "only_events": [MariadbGtidEvent],
    }
    with stream(relay.server, auto_position=gtids[-2], **options) as reader:
        assert reader.fetchone().gtid == gtids[-1]
        relay.upstream.q("INSERT INTO d.t (a) VALUES ('more')")
        seen = reader.fetchone().gtid
    assert seen == relay.upstream.gtid_binlog_pos
    relay.upstream.q("INSERT INTO d.t (a) VALUES ('and more')")
    with stream(relay.server, auto_position=seen, **options) as reader:
        assert reader.fetchone().gtid == relay.upstream.gtid_binlog_pos


@pytest.mark.proves("refused without GTID", client="python-mysql-replication")
def test_offsets_are_refused(relay: Relay) -> None:
    relay.write()
    for options in ({}, {"log_file": "binlog.000001", "log_pos": 4, "resume_stream": True}):
        with (
            stream(relay.server, **options) as reader,
            pytest.raises(pymysql.OperationalError, match="Slave must enable GTID mode"),
        ):
            reader.fetchone()
