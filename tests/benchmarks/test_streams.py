"""What the benchmarks see of a stream."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from binlog_protocol.events.header import build_event
from binlog_protocol.wire.packets import frame_packet

from benchmarks import drain
from benchmarks.child import Child
from benchmarks.event_scanner import EventScanner
from benchmarks.raw_replica import DrainError
from benchmarks.suite import latency


def test_events_are_found_however_the_stream_is_cut() -> None:
    stream = b"".join(
        frame_packet(b"\0" + build_event(type_, bytes(type_), server_id=1), 0)[0]
        for type_ in (15, 162, 19, 16)
    )
    for cut in range(len(stream)):
        scanner = EventScanner()
        found = [*scanner.types(stream[:cut]), *scanner.types(stream[cut:])]
        assert found == [15, 162, 19, 16]


def test_an_error_packet_ends_it() -> None:
    error = frame_packet(b"\xff\xd4\x04#HY000" + b"purged", 3)[0]
    with pytest.raises(DrainError, match="purged"):
        list(EventScanner().types(error))


def test_an_event_of_many_packets_is_refused() -> None:
    with pytest.raises(DrainError, match="small"):
        list(EventScanner().types(b"\xff\xff\xff\0" + bytes(60)))


@pytest.mark.parametrize("size", [9, 10, 265_009, 1_000_000])
def test_the_bare_server_sends_what_it_is_told(size: int) -> None:
    with Child("benchmarks.loopback", f"--bytes={size}") as child:
        port = int(child.line()["port"])
        for clients in (1, 3):
            drained = drain.run_bare(port, clients)
            assert drained.bytes == clients * size
            assert drained.seconds > 0


def test_the_least_that_a_server_in_the_middle_does(tmp_path: Path) -> None:
    """Logins are carried to and fro; all get the stream that the first one has asked for, which is in the file."""
    dump = b"\x0b\0\0\0\x12" + bytes(10)
    with (
        socket.create_server(("127.0.0.1", 0)) as upstream,
        Child(
            "benchmarks.durable_tail",
            *(f"--directory={tmp_path}", "--replicas=3"),
            f"127.0.0.1:{upstream.getsockname()[1]}",
        ) as child,
    ):
        port = int(child.line()["port"])
        servers, clients = [], []
        for number in range(3):
            clients.append(socket.create_connection(("127.0.0.1", port), timeout=30))
            servers.append(upstream.accept()[0])
            servers[-1].sendall(b"greeting")
            assert clients[-1].recv(100) == b"greeting"
            clients[-1].sendall(b"\1\0\0\1\x12")  # the answer to it, though it has that byte
            assert servers[-1].recv(100) == b"\1\0\0\1\x12"
            clients[-1].sendall(dump)
            assert servers[-1].recv(100) == (b"" if number else dump)
        for piece in (b"first", bytes(range(256)) * 200):
            servers[0].sendall(piece)
            for client in clients:
                assert client.recv(len(piece), socket.MSG_WAITALL) == piece
        servers[0].close()
        for client in clients:
            assert client.recv(1) == b""
        with (tmp_path / "durable-tail").open("rb") as file:
            assert file.read(5 + 100) == b"first" + bytes(range(100))
        for sock in (*servers, *clients):
            sock.close()


def test_percentiles() -> None:
    seconds = [n / 1000 for n in range(1, 101)]
    assert latency.percentile_ms(seconds, 50) == 50
    assert latency.percentile_ms(seconds, 99) == 99
    assert latency.percentile_ms(seconds, 100) == 100
    assert latency.percentile_ms([0.25], 1) == 250


def test_latency_is_compared_by_transaction() -> None:
    result = latency.summary([0, 1, 2], [0.001, 1.005, 2.001], [0.002, 1.006, 2.003])
    assert result["extra_ms_median"] == pytest.approx(1)
    assert result["extra_ms_p99"] == pytest.approx(2)
    assert result["direct_ms"] == {"median": 1, "p99": 5}
    assert result["relay_ms"] == {"median": 3, "p99": 6}
