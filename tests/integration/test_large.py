"""Events larger than a wire packet, groups larger than a file."""

from __future__ import annotations

import pytest

from tests.integration.load import assert_equal
from tests.integration.raw_client import all_events
from tests.kit.fixtures import MakeMariaDB, MakeRelay

pytestmark = pytest.mark.any_version

MIB = 1 << 20
WIRE_PACKET = 0xFFFFFF


@pytest.mark.by_turns(2)
@pytest.mark.proves("large events")
def test_row_of_20_mb(backend: object, make_relay: MakeRelay, make_replica: MakeMariaDB) -> None:
    upstream, server = make_relay(table="")
    replica = make_replica().follow(server)
    upstream.script(
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id INT PRIMARY KEY, a LONGBLOB)",
        f"INSERT INTO d.t VALUES (1, REPEAT('0123456789', {2 * MIB}))",
        "INSERT INTO d.t VALUES (2, 'small')",
    )
    assert_equal(upstream, replica)
    # An event whose packet is exactly as long as a wire packet can be is followed by an empty one.
    over = max(len(event) for event in all_events(server)) - 20 * MIB
    exact = WIRE_PACKET - 1 - over
    upstream.script(
        *(
            f"INSERT INTO d.t VALUES ({3 + i}, REPEAT('x', {exact + difference}))"
            for i, difference in enumerate((-1, 0, 1))
        )
    )
    assert_equal(upstream, replica)
    lengths = {len(event) for event in all_events(server)}
    assert {WIRE_PACKET - 2, WIRE_PACKET - 1, WIRE_PACKET} <= lengths


@pytest.mark.any_version
def test_transaction_of_60_mb_over_several_files(
    backend: object, make_relay: MakeRelay, make_replica: MakeMariaDB
) -> None:
    """It goes to the store in pieces beside its commit record; small groups lie between."""
    upstream, server = make_relay("--innodb-log-file-size=256M", table="", max_binlog_size=8 * MIB)
    replica = make_replica("--innodb-log-file-size=256M").follow(server)
    upstream.script("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, a LONGBLOB)")
    upstream.script(
        "BEGIN",
        *(f"INSERT INTO d.t VALUES ({i}, REPEAT('{i:02}', {MIB}))" for i in range(30)),
        "COMMIT",
        "INSERT INTO d.t VALUES (30, 'small')",
        "BEGIN",
        "UPDATE d.t SET a = 'short' WHERE id < 3",
        "ROLLBACK",
    )
    assert_equal(upstream, replica)
    assert len(list(server.directory.glob("binlog-*.ibb"))) > 5
    server.kill()
    server.start()
    late = make_replica(version="11.8").follow(server)
    upstream.q("INSERT INTO d.t VALUES (31, 'live')")
    assert_equal(upstream, replica, late)
