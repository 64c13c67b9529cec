"""What the benchmarks see of a stream."""

from __future__ import annotations

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
