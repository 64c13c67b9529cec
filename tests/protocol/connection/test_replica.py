from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from binlog_protocol.connection.client import ErrorReceived, EventReceived
from binlog_protocol.connection.commands import BinlogDump, Query, RegisterSlave
from binlog_protocol.connection.replica import ReplicaHandshake, UpstreamRefused
from binlog_protocol.connection.server import ServerConnection
from binlog_protocol.errors import (
    ProtocolError,
    RemoteError,
    ServerError,
    UnknownServerError,
    UnknownSystemVariable,
)
from binlog_protocol.gtid import SlavePosition
from binlog_protocol.wire.results import Column

from tests.protocol.pair import ConnectionPair

Answer = Callable[[ServerConnection], bytes]


def row(*values: str | None) -> Answer:
    columns = [Column.text(f"c{i}") for i in range(len(values))]
    return lambda server: server.send_result_set(columns, [values])


def empty(server: ServerConnection) -> bytes:
    return server.send_result_set([Column.text("a")], [])


def ok(server: ServerConnection) -> bytes:
    return server.send_ok()


def error(error_: ServerError) -> Answer:
    return lambda server: server.send_error(error_)


UNKNOWN = error(UnknownSystemVariable("x"))
FAILURE = error(UnknownServerError("no"))

# What a 10.11 master answers.
ANSWERS: dict[str, Answer] = {
    "SELECT UNIX_TIMESTAMP()": row("1795170055"),
    "SHOW VARIABLES LIKE 'SERVER_ID'": row("server_id", "1"),
    "SET @master_heartbeat_period= 5000000000": ok,
    "SET @master_binlog_checksum= @@global.binlog_checksum": ok,
    "SELECT @master_binlog_checksum": row("CRC32"),
    "SELECT @@GLOBAL.binlog_storage_engine": UNKNOWN,
    "SET @mariadb_slave_capability=4": ok,
    "SELECT @@GLOBAL.gtid_domain_id": row("0"),
    "SET @slave_connect_state='0-1-8,5-1-2'": ok,
    "SET @slave_gtid_strict_mode=1": ok,
    "SET @slave_gtid_ignore_duplicates=0": ok,
}


ONLY_OURS = "SELECT @@GLOBAL.binlog_gtid_begin"
ENGINE_BINLOG: dict[str, Answer] = {
    "SELECT @master_binlog_checksum": row("NONE"),
    "SELECT @@GLOBAL.binlog_storage_engine": row("InnoDB"),
    ONLY_OURS: UNKNOWN,
}


def handshake(
    changes: dict[str, Answer], *, in_tls: bool = False, **options: Any
) -> tuple[ReplicaHandshake, list[str]]:
    """Run one against answers; returns it and what was asked."""
    pair = ConnectionPair()
    pair.log_in()
    pair.client.in_tls = in_tls
    parameters: dict[str, object] = {
        "server_id": 7,
        "position": SlavePosition.parse("0-1-8,5-1-2"),
        "heartbeat_period_ns": 5_000_000_000,
        "report_host": "h",
        "report_port": 3306,
        **options,
    }
    replica = ReplicaHandshake(pair.client, **parameters)  # type: ignore[arg-type]
    asked = []
    answers = {**ANSWERS, **changes}
    while (request := replica.next_request()) is not None:
        command = pair.to_server(request)
        match command:
            case Query(sql):
                asked.append(sql)
                answer = answers.get(sql, ok)
            case RegisterSlave():
                asked.append("REGISTER")
                assert command == RegisterSlave(7, "h", port=3306)
                answer = answers.get("REGISTER", ok)
            case BinlogDump():
                asked.append(f"DUMP {command.flags}")
                assert command.server_id == 7
                assert (command.file, command.position) == ("", 4)
                pair.server.start_dump()
                (event,) = pair.to_client(pair.server.dump_event(b"event"))
                assert event == EventReceived(b"event")
                continue
            case _:
                raise AssertionError(command)
        (event,) = pair.to_client(answer(pair.server))
        replica.answer(event)
    return replica, asked


def test_order_and_results_with_10_11() -> None:
    replica, asked = handshake({})
    assert asked == [*ANSWERS, "REGISTER", "DUMP 2"]
    assert replica.is_streaming
    assert replica.upstream_server_id == 1
    assert replica.checksum == "CRC32"
    assert replica.checksum_algorithm == 1
    assert not replica.engine_binlog


@pytest.mark.parametrize(
    ("options", "present", "absent"),
    [
        ({"heartbeat_period_ns": 0}, "DUMP 2", "SET @master_heartbeat_period= 0"),
        ({"strict_mode": False}, "SET @slave_gtid_strict_mode=0", "SET @slave_gtid_strict_mode=1"),
        ({"non_block": True}, "DUMP 3", "DUMP 2"),
        ({"dump_flags": 0}, "DUMP 0", "DUMP 2"),
        ({"position": SlavePosition()}, "SET @slave_connect_state=''", "x"),
    ],
)
def test_options(options: dict[str, Any], present: str, absent: str) -> None:
    _, asked = handshake({}, **options)
    assert present in asked
    assert absent not in asked


def test_engine_binlog_of_12_3() -> None:
    replica, asked = handshake(ENGINE_BINLOG)
    assert "SET @master_binlog_checksum= 'CRC32'" not in asked
    assert replica.engine_binlog
    assert replica.checksum == "NONE"
    replica, _ = handshake({"SELECT @@GLOBAL.binlog_storage_engine": row(None)})
    assert not replica.engine_binlog


class OfOurs:
    """Its answers to `SELECT @master_binlog_checksum`, one after the other."""

    def __init__(self) -> None:
        self.answers = [row("NONE"), row("CRC32")]

    def __call__(self, server: ServerConnection) -> bytes:
        return self.answers.pop(0)(server)


@pytest.mark.parametrize("in_tls", [False, True])
def test_without_tls_a_server_of_ours_is_asked_for_checksums(in_tls: bool) -> None:
    checksums: dict[str, Answer] = {"SELECT @master_binlog_checksum": OfOurs()}
    changes = {**ENGINE_BINLOG, ONLY_OURS: row(""), **checksums}
    replica, asked = handshake(changes, in_tls=in_tls)
    expected = [
        ONLY_OURS,
        "SET @master_binlog_checksum= 'CRC32'",
        "SELECT @master_binlog_checksum",
    ]
    at = asked.index("SELECT @@GLOBAL.binlog_storage_engine") + 1
    assert (asked[at : at + 3] == expected) is not in_tls
    assert (ONLY_OURS in asked) is not in_tls
    assert replica.checksum == ("NONE" if in_tls else "CRC32")


def test_upstream_without_checksums() -> None:
    replica, _ = handshake(
        {
            "SET @master_binlog_checksum= @@global.binlog_checksum": UNKNOWN,
            "SELECT @master_binlog_checksum": row(None),
        }
    )
    assert replica.checksum == "NONE"


def test_clock_is_not_needed() -> None:
    handshake({"SELECT UNIX_TIMESTAMP()": FAILURE})


@pytest.mark.parametrize(
    ("question", "answer", "problem"),
    [
        ("SHOW VARIABLES LIKE 'SERVER_ID'", row("server_id", "7"), UpstreamRefused),
        ("SHOW VARIABLES LIKE 'SERVER_ID'", row("server_id", "x"), ProtocolError),
        ("SHOW VARIABLES LIKE 'SERVER_ID'", row("server_id"), ProtocolError),
        ("SHOW VARIABLES LIKE 'SERVER_ID'", empty, ProtocolError),
        ("SHOW VARIABLES LIKE 'SERVER_ID'", ok, ProtocolError),
        ("SHOW VARIABLES LIKE 'SERVER_ID'", FAILURE, RemoteError),
        ("SET @master_heartbeat_period= 5000000000", FAILURE, RemoteError),
        ("SET @master_heartbeat_period= 5000000000", row("1"), ProtocolError),
        ("SET @master_binlog_checksum= @@global.binlog_checksum", FAILURE, RemoteError),
        ("SELECT @master_binlog_checksum", row("SHA1"), ProtocolError),
        ("SELECT @master_binlog_checksum", empty, ProtocolError),
        ("SELECT @@GLOBAL.binlog_storage_engine", FAILURE, RemoteError),
        ("SELECT @@GLOBAL.binlog_storage_engine", empty, ProtocolError),
        ("SET @mariadb_slave_capability=4", FAILURE, RemoteError),
        ("SELECT @@GLOBAL.gtid_domain_id", UNKNOWN, UpstreamRefused),
        ("SELECT @@GLOBAL.gtid_domain_id", FAILURE, RemoteError),
        ("SET @slave_connect_state='0-1-8,5-1-2'", FAILURE, RemoteError),
        ("REGISTER", FAILURE, RemoteError),
    ],
)
def test_refused(question: str, answer: Answer, problem: type[Exception]) -> None:
    with pytest.raises(problem):
        handshake({question: answer})


def test_equal_server_ids_have_mariadbs_number() -> None:
    with pytest.raises(UpstreamRefused) as caught:
        handshake({"SHOW VARIABLES LIKE 'SERVER_ID'": row("server_id", "7")})
    assert caught.value.errno == 1593
    assert "equal MariaDB server ids" in caught.value.message


@pytest.mark.parametrize("server_id", [0, -1, 2**32])
def test_server_id_must_be_one(server_id: int) -> None:
    with pytest.raises(ValueError):
        handshake({}, server_id=server_id)


def test_requests_and_answers_alternate() -> None:
    pair = ConnectionPair()
    pair.log_in()
    replica = ReplicaHandshake(
        pair.client, server_id=7, position=SlavePosition(), heartbeat_period_ns=0
    )
    with pytest.raises(RuntimeError):
        replica.answer(ErrorReceived(RemoteError(1, "HY000", "")))
    replica.next_request()
    with pytest.raises(RuntimeError):
        replica.next_request()


def test_until_and_duplicates_are_asked_for() -> None:
    changes: dict[str, Answer] = {
        "SET @slave_gtid_ignore_duplicates=1": ok,
        "SET @slave_until_gtid='0-1-9'": ok,
    }
    _, asked = handshake(
        changes, ignore_duplicates=True, until=SlavePosition.parse("0-1-9"), heartbeat_period_ns=0
    )
    first = asked.index("SET @slave_gtid_ignore_duplicates=1")
    assert asked[first + 1] == "SET @slave_until_gtid='0-1-9'"
    assert "SET @slave_gtid_ignore_duplicates=0" not in asked


@pytest.mark.parametrize("question", [ONLY_OURS, "SET @master_binlog_checksum= 'CRC32'"])
def test_a_server_of_ours_that_fails(question: str) -> None:
    with pytest.raises(RemoteError):
        handshake({**ENGINE_BINLOG, ONLY_OURS: row(""), question: FAILURE})
