"""Dumps under the limits of their account: as fast as allowed, dropped when too far behind; others go on."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from binlog_protocol.connection.commands import Query
from binlog_protocol.errors import RemoteError
from binlog_protocol.gtid import Gtid
from binlog_protocol.wire.packets import Packet
from binlog_protocol.wire.results import parse_error

from binlog_server.dumps.lag_watch import Lag, LagWatch
from binlog_server.dumps.replica_stream import ReplicaStream, _dropped
from tests.binlog_server.dumps.test_slow_replica import GROUP_BYTES, GROUPS, dumping, large_history
from tests.binlog_server.lab import DEADLINE_S, PASSWORD, ROOT, USER, Lab, transaction, until
from tests.binlog_server.transport import Held

MB = 1 << 20
TOTAL = GROUPS * GROUP_BYTES
LOGIN_BYTES = 1024  # more than what comes before the stream


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    """Replicas log in to an account that SQL can change."""
    async with Lab(users=ROOT) as running:
        running.server.users.add(USER, PASSWORD)
        yield running


@pytest.fixture
def grace(monkeypatch: pytest.MonkeyPatch) -> float:
    """Looks and grace periods that a test can wait for.

    Their clock goes by looks: a machine that does nothing here for a while takes no time from a replica.
    """
    look, look_s, seconds = LagWatch.look, 0.01, 0.2
    clocks: dict[LagWatch, float] = {}

    def sooner(watch: LagWatch, *seen: Any, excused: bool) -> Lag:
        _, sent, end, behind_bytes, _ = seen
        clocks[watch] = now = clocks.get(watch, 0.0) + look_s
        return look(watch, now, sent, end, behind_bytes, seconds, excused=excused)

    monkeypatch.setattr("binlog_server.dumps.replica_stream.LOOK_S", look_s)
    monkeypatch.setattr(LagWatch, "look", sooner)
    return seconds


async def alter(lab: Lab, limits: str) -> None:
    client = await lab.root()
    await client.query(f"ALTER USER {USER} WITH {limits}")
    client.close()


def limits_of(held: Held) -> ReplicaStream:
    dump = held.conversation._dump
    assert dump is not None
    return dump._stream


async def takes(held: Held, done: Callable[[], bool]) -> None:
    """The peer takes whatever comes."""
    async with asyncio.timeout(DEADLINE_S):
        while not done():
            held.transport.take()
            await asyncio.sleep(0)


def error_of(packet: Packet) -> RemoteError:
    assert packet.payload[:1] == b"\xff", packet.payload[:40]
    return parse_error(packet.payload)


# --- throttle ---


async def test_without_limits_nothing_runs(lab: Lab) -> None:
    large_history(lab)
    held = dumping(lab, 1)
    limits = limits_of(held)
    await takes(held, lambda: len(held.transport.written) > TOTAL)
    assert (limits._timer, limits._watch, limits._throttle) == (None, None, None)
    assert lab.server.connections.throttled_ms == 0
    held.end()


async def test_rate_is_kept_and_others_are_not_delayed(lab: Lab) -> None:
    rate = MB // 2
    large_history(lab)
    lab.server.users.add("quick", PASSWORD)
    await alter(lab, f"MAX_BYTES_PER_SECOND {rate}")
    loop = asyncio.get_running_loop()
    started = loop.time()
    slow = dumping(lab, 1)
    quick = Held(lab.server)
    quick.log_in("quick")
    quick.dump(2)
    await takes(quick, lambda: len(quick.transport.written) > TOTAL)
    await takes(slow, lambda: slow.conversation._connection.state.startswith("Throttled"))
    shown = await rows(lab, "SHOW BINLOG REPLICAS")
    assert f"Throttled by MAX_BYTES_PER_SECOND {rate}" in {row[9] for row in shown}
    await takes(slow, lambda: len(slow.transport.written) > MB)
    assert len(slow.transport.written) <= (loop.time() - started + 0.1) * rate + LOGIN_BYTES
    assert 0 < lab.server.connections.throttled_ms <= (loop.time() - started) * 1000
    await alter(lab, "MAX_BYTES_PER_SECOND 0")
    await takes(slow, lambda: len(slow.transport.written) == len(quick.transport.written))
    assert [p.payload for p in slow.packets()] == [p.payload for p in quick.packets()]
    for held in (slow, quick):
        held.end()


async def rows(lab: Lab, sql: str) -> list[list[str | None]]:
    client = await lab.root()
    found = await client.query(sql)
    client.close()
    return found


async def test_goes_in_small_pieces(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    rate = 10 * MB
    large_history(lab)
    await alter(lab, f"MAX_BYTES_PER_SECOND {rate}")
    held = dumping(lab, 1)
    sizes: list[int] = []
    write = held.transport.write

    def noted(data: Any) -> None:
        sizes.append(len(data))
        write(data)

    monkeypatch.setattr(held.transport, "write", noted)
    await takes(held, lambda: len(held.transport.written) > 2 * MB)
    assert max(sizes) <= rate * 0.05
    held.end()


async def test_alter_user_holds_at_once(lab: Lab) -> None:
    large_history(lab)
    await alter(lab, "MAX_BYTES_PER_SECOND 1024")
    held = dumping(lab, 1)
    await takes(held, lambda: held.conversation._connection.state.startswith("Throttled"))
    assert len(held.transport.written) < GROUP_BYTES
    await alter(lab, "MAX_BYTES_PER_SECOND 0")
    await takes(held, lambda: len(held.transport.written) > TOTAL)
    await alter(lab, "MAX_BYTES_PER_SECOND 1024")
    assert limits_of(held)._throttle is not None
    held.end()


async def test_what_ends_it_comes_behind_a_whole_event(lab: Lab) -> None:
    """In the midst of one, a replica would take the error for data."""
    large_history(lab)
    await alter(lab, "MAX_BYTES_PER_SECOND 50000")
    held = dumping(lab, 7)
    await takes(held, lambda: held.conversation._connection.state.startswith("Throttled"))
    again = dumping(lab, 7)
    assert error_of(held.packets()[-1]).errno == 4052
    held.end()
    await takes(again, lambda: again.conversation._connection.state.startswith("Throttled"))
    again.session.shut_down()
    assert again.packets()[-1].payload[:1] == b"\xfe"
    again.end()


async def test_a_throttled_replica_that_goes_away(
    lab: Lab, caplog: pytest.LogCaptureFixture
) -> None:
    large_history(lab)
    await alter(lab, "MAX_BYTES_PER_SECOND 1024 MAX_LAG_SECONDS 5")
    held = dumping(lab, 1)
    await takes(held, lambda: held.conversation._connection.state.startswith("Throttled"))
    limits = limits_of(held)
    written = len(held.transport.written)
    held.transport.closing = True
    held.end()
    dump = held.conversation._dump
    assert dump is not None
    await until(dump._task.done)
    assert limits._timer is None
    assert len(held.transport.written) == written
    assert all(record.levelno < logging.WARNING for record in caplog.records)


async def test_heartbeats_come_while_it_waits_at_the_tail(lab: Lab) -> None:
    await alter(lab, "MAX_BYTES_PER_SECOND 1024")
    replica = await lab.replica(master_heartbeat_period=20_000_000)
    await replica.opening()
    for _ in range(10):
        assert (await replica.event())[4] == 27


# --- lag ---


async def test_who_takes_nothing_is_dropped(
    lab: Lab, grace: float, caplog: pytest.LogCaptureFixture
) -> None:
    large_history(lab)
    await alter(lab, f"MAX_LAG_BYTES {2 * MB}")
    held = dumping(lab, 1)
    connection = held.conversation._connection
    await until(lambda: "beyond MAX_LAG_BYTES 2097152, dropped in" in connection.shown_state)
    await until(lambda: held.transport.closing)
    error = error_of(held.packets()[-1])
    assert error.errno == 1236
    assert "MAX_LAG_BYTES 2097152 of its account" in error.message
    assert "START SLAVE" in error.message
    assert lab.server.connections.replicas_dropped == 1
    told = [r for r in caplog.records if r.getMessage().startswith("dropped connection")]
    assert len(told) == 1
    assert "server_id 1: " in told[0].getMessage()
    assert not held.transport.aborted, "it has net_write_timeout to take the rest"
    held.end()


async def test_who_does_not_even_take_the_error_is_aborted(lab: Lab, grace: float) -> None:
    large_history(lab)
    await alter(lab, f"MAX_LAG_BYTES {2 * MB}")
    held = Held(lab.server)
    held.log_in()
    held.ask(Query("SET net_write_timeout=1").build())
    held.dump(1)
    await until(lambda: held.transport.closing)
    await until(lambda: held.transport.aborted)
    held.end()


async def test_who_lags_in_seconds_is_dropped(lab: Lab, grace: float) -> None:
    await alter(lab, "MAX_LAG_SECONDS 1")
    large_history(lab)
    held = dumping(lab, 1)
    await until(lambda: held.transport.closing)
    error = error_of(held.packets()[-1])
    assert re.search(
        r" [1-9]\d* seconds behind, beyond MAX_LAG_SECONDS 1 of its account", error.message
    )
    held.end()


async def test_who_catches_up_is_not(lab: Lab, grace: float) -> None:
    """Slowly, through one transaction so large that its place stays where it is."""
    large_history(lab)
    gtid = Gtid(0, 1, GROUPS + 1)
    lab.engine.append(transaction(gtid, "x" * 30 * MB), gtid)
    lab.engine.append(transaction(Gtid(0, 1, GROUPS + 2), "x" * 2 * MB), Gtid(0, 1, GROUPS + 2))
    lab.engine.sync()
    await alter(lab, f"MAX_LAG_BYTES {MB}")
    held = dumping(lab, 1)
    connection = held.conversation._connection
    await takes(held, lambda: len(held.transport.written) > TOTAL + 20 * MB)
    place = connection.sent
    loop = asyncio.get_running_loop()
    end = loop.time() + 5 * grace
    while loop.time() < end:
        held.transport.take(20_000)
        assert not held.transport.closing
        await asyncio.sleep(0.005)
    assert connection.sent == place
    assert connection.lag_state
    await until(lambda: held.transport.closing)  # now that it takes nothing
    held.end()


async def test_who_has_caught_up_is_left_alone(lab: Lab, grace: float) -> None:
    large_history(lab)
    await alter(lab, f"MAX_LAG_BYTES {MB} MAX_LAG_SECONDS 1")
    held = dumping(lab, 1)
    await takes(held, lambda: len(held.transport.written) > TOTAL)
    connection = held.conversation._connection
    await until(lambda: connection.state.startswith("Master has sent all"))
    await asyncio.sleep(2 * grace)
    assert connection.lag_state == ""
    assert not held.transport.closing
    held.end()


async def test_alter_user_takes_the_limit_away(lab: Lab, grace: float) -> None:
    large_history(lab)
    await alter(lab, f"MAX_LAG_BYTES {MB}")
    held = dumping(lab, 1)
    connection = held.conversation._connection
    await until(lambda: bool(connection.lag_state))
    await alter(lab, "MAX_LAG_BYTES 0")
    assert connection.lag_state == ""
    assert limits_of(held)._timer is None
    await alter(lab, f"MAX_LAG_BYTES {MB}")
    await until(lambda: held.transport.closing)
    held.end()


async def test_other_accounts_are_not_changed(lab: Lab) -> None:
    lab.server.users.add("quick", PASSWORD)
    held = Held(lab.server)
    held.log_in("quick")
    await alter(lab, "MAX_LAG_BYTES 1048576")
    assert held.conversation._connection.policy.max_lag_bytes == 0
    held.end()


def test_the_text_fits_where_a_replica_shows_it() -> None:
    lag = Lag(10**15, 31_536_000.0, "MAX_LAG_BYTES 1125899906842624")
    text = _dropped(lag, 3600).message
    shown = f"Got fatal error 1236 from master when reading data from binary log: '{text}'"
    assert len(shown) <= 320, len(shown)
