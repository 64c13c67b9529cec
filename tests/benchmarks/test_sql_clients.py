"""The clients that load a server count what was committed, and nothing else."""

from __future__ import annotations

import socket
import time

import pytest

from benchmarks import big_writer
from benchmarks.committers import ClosedLoop, Load, commit
from benchmarks.sql_client import Answers, StatementFailed, execute, query_packet
from tests.benchmarks.fake_server import OK, error, fake_servers, plain

SQL = "INSERT INTO t VALUES (1)"
LOAD = Load(SQL)


# --- answers ---


def test_answers_together() -> None:
    answers = Answers()
    assert answers.feed(OK + OK + OK[:5]) == 2
    assert not answers.is_between
    assert answers.feed(OK[5:]) == 1
    assert answers.is_between


def test_answers_byte_by_byte() -> None:
    answers = Answers()
    assert [answers.feed(OK[i : i + 1]) for i in range(len(OK))] == [0] * (len(OK) - 1) + [1]


def test_an_error_is_told_with_its_text() -> None:
    packet = error(1290, "the server is running with the --read-only option")
    with pytest.raises(StatementFailed, match=r"error 1290: #42000the server is running"):
        Answers().feed(OK + packet)
    answers = Answers()
    assert answers.feed(packet[:10]) == 0
    with pytest.raises(StatementFailed, match="--read-only option"):
        answers.feed(packet[10:])


def test_a_result_set_is_no_answer() -> None:
    with pytest.raises(StatementFailed, match="neither OK nor an error"):
        Answers().feed(b"\x01\x00\x00\x01\x02")


def test_a_closed_connection() -> None:
    with pytest.raises(StatementFailed, match="closed"):
        Answers().feed(b"")


def test_a_statement_is_one_packet() -> None:
    assert query_packet(b"COMMIT") == b"\x07\x00\x00\x00\x03COMMIT"
    with pytest.raises(ValueError, match="16777215 bytes"):
        query_packet(bytes((1 << 24) - 1))


def test_execute() -> None:
    def slowly(sock: socket.socket, number: int) -> None:
        sock.sendall(OK[:3])
        sock.sendall(OK[3:])

    with fake_servers(slowly) as ((sock,), (server,)):
        execute(sock, query_packet(b"BEGIN"))
        execute(sock, query_packet(b"COMMIT"))
        assert server.statements == [b"\x03BEGIN", b"\x03COMMIT"]


# --- closed loop ---


def test_each_statement_is_counted_once() -> None:
    def in_two(sock: socket.socket, number: int) -> None:
        sock.sendall(OK[:7])
        sock.sendall(OK[7:])

    def various(sock: socket.socket, number: int) -> None:
        sock.sendall(b"\x08\x00\x00" + OK[3:] + b"!" if number % 3 else OK)

    with fake_servers(plain, in_two, various) as (socks, servers):
        committed = commit(socks, LOAD, seconds=0.1, warm_up=0.05)
        assert committed.total == sum(len(server.statements) for server in servers)
        assert 0 < committed.commits <= committed.total
        assert all(server.early == 0 for server in servers), "one in flight on each"
        assert {s for server in servers for s in server.statements} == {b"\x03" + SQL.encode()}


@pytest.mark.parametrize(
    ("last", "why"),
    [
        (error(1205, "lock wait timeout"), "error 1205: #42000lock wait timeout"),
        (OK + OK, "more than one answer"),
        (OK + OK[:2], "more than one answer"),
        (b"\x01\x00\x00\x01\xfe", "neither OK nor an error"),
    ],
)
def test_anything_but_one_ok_ends_it(last: bytes, why: str) -> None:
    def at_last(sock: socket.socket, number: int) -> None:
        sock.sendall(last if number == 20 else OK)

    with fake_servers(plain, at_last) as (socks, _):
        loop = ClosedLoop(socks, LOAD.packets(socks))
        loop.start()
        with pytest.raises(StatementFailed, match=why):
            loop.commit_until(time.perf_counter() + 20)


def test_a_server_that_goes_away() -> None:
    def once(sock: socket.socket, number: int) -> None:
        sock.shutdown(socket.SHUT_RDWR)

    with fake_servers(once) as (socks, _), pytest.raises(StatementFailed, match="closed"):
        commit(socks, LOAD, seconds=20, warm_up=0)


# --- the large transaction ---


@pytest.mark.parametrize(("size", "pieces"), [(10, [4, 4, 2]), (8, [4, 4]), (3, [3])])
def test_pieces_of_a_large_transaction(size: int, pieces: list[int]) -> None:
    assert big_writer.statements(size, 4) == pieces
    assert big_writer.insert("d.t", 3).endswith(b"\x03INSERT INTO d.t VALUES (1,'xxx')")
