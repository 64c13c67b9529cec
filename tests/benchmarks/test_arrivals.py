"""Open loop: what a stall costs is seen by all the commits that were due in it."""

from __future__ import annotations

import os
import socket
import threading

import pytest

from benchmarks.arrivals import Ledger, OpenLoop, percentile, window
from benchmarks.registry import BenchmarkError
from benchmarks.sql_client import StatementFailed, query_packet
from tests.benchmarks.fake_server import OK, error, fake_servers, plain

PACKET = query_packet(b"INSERT")


# --- the ledger ---


def test_latency_counts_from_the_due_time_however_late_it_is_sent() -> None:
    ledger = Ledger(start=100.0, rate=10)
    ledger.arrive(100.0)
    ledger.send(1)
    ledger.arrive(100.35)  # the server stalls: three more are due, the only connection is busy
    assert ledger.next_due == 100.4
    ledger.answered(1, 100.35)
    for _ in range(3):
        assert ledger.has_waiting
        ledger.send(1)
        ledger.answered(1, 100.36)
    assert not ledger.has_waiting
    assert [due for due, _ in ledger.done] == pytest.approx([100.0, 100.1, 100.2, 100.3])
    assert window(ledger.done, 100.0, 1.0) == pytest.approx([0.35, 0.26, 0.16, 0.06])


def test_due_times_do_not_drift() -> None:
    ledger = Ledger(start=0.0, rate=200)
    for now in (0.0, 0.0049, 0.0051, 1.0, 5.0):
        ledger.arrive(now)
    for connection in range(1001):
        ledger.send(connection)
    assert not ledger.has_waiting
    assert ledger.next_due == 1001 / 200


def test_settled() -> None:
    ledger = Ledger(start=0.0, rate=1)
    assert ledger.is_settled
    ledger.arrive(0.0)
    assert not ledger.is_settled
    ledger.send(7)
    assert not ledger.is_settled
    ledger.answered(7, 0.5)
    assert ledger.is_settled
    with pytest.raises(StatementFailed, match="without a statement"):
        ledger.answered(7, 0.6)


# --- windows ---


def test_a_window_holds_what_was_due_in_it() -> None:
    times = [(1.0, 9.0), (2.0, 2.5), (3.0, 3.1)]
    assert window(times, 1.0, 2.0) == [8.0, 0.5]
    assert window(times, 1.5, 0.1) == []


def test_percentile() -> None:
    values = [float(n) for n in range(100, 0, -1)]
    assert (percentile(values, 50), percentile(values, 99), percentile(values, 100)) == (
        50,
        99,
        100,
    )
    assert percentile([3.0], 99) == 3.0
    with pytest.raises(BenchmarkError, match="nothing was due"):
        percentile([], 50)


# --- over sockets ---


def test_a_stalled_server() -> None:
    """Both connections are held until more are due than there are connections; then all get through."""
    due = 20
    go = threading.Event()

    def after_the_stall(sock: socket.socket, number: int) -> None:
        go.wait(20)
        sock.sendall(OK)

    stop, stopped = os.pipe()
    with fake_servers(after_the_stall, after_the_stall) as (socks, servers):
        times = iter([0.0, 0.0, *[due / 1000] * 10_000])
        loop = OpenLoop(socks, PACKET, rate=1000, clock=lambda: next(times))
        for _ in range(2):
            loop._turn(arriving=True, stop=stop)
        assert loop.ledger.done == []
        go.set()
        os.close(stopped)
        loop.settle()
        assert sum(len(server.statements) for server in servers) == due + 1
        assert all(server.early == 0 for server in servers), "one in flight on each"
    os.close(stop)
    assert sorted(at for at, _ in loop.ledger.done) == [n / 1000 for n in range(due + 1)]
    assert {done for _, done in loop.ledger.done} == {due / 1000}


def test_it_ends_when_its_input_does() -> None:
    stop, stopped = os.pipe()

    def then_stop(sock: socket.socket, number: int) -> None:
        sock.sendall(OK)
        if number == 5:
            os.close(stopped)

    with fake_servers(then_stop) as (socks, (server,)):
        loop = OpenLoop(socks, PACKET, rate=1000)
        loop.run_until_readable(stop)
        loop.settle()
        assert loop.ledger.is_settled
        assert len(loop.ledger.done) == len(server.statements) >= 6
    os.close(stop)
    assert all(done >= due for due, done in loop.ledger.done)


def test_an_error_ends_it() -> None:
    def at_last(sock: socket.socket, number: int) -> None:
        sock.sendall(error(1290, "read only") if number == 3 else OK)

    stop, stopped = os.pipe()
    with fake_servers(plain, at_last) as (socks, _), pytest.raises(StatementFailed, match="1290"):
        OpenLoop(socks, PACKET, rate=1000).run_until_readable(stop)
    os.close(stop)
    os.close(stopped)
