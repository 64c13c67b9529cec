"""A network that cuts connections anywhere and passes single bytes: nothing is lost, nothing comes twice."""

from __future__ import annotations

import random

import pytest

from binlog_server.testing.sql_server import Credentials
from binlog_server.testing.waiting import until
from tests.integration.load import assert_equal, insert, load
from tests.integration.test_crash import STRICT
from tests.kit import forks
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB, MakeProxiedRelay, MakeProxy

pytestmark = pytest.mark.any_version


CUTS = [10, pytest.param(300, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])]


@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.proves("reconnect")
def test_cuts(
    backend: object,
    cuts: int,
    make_proxied_relay: MakeProxiedRelay,
    make_replica: MakeMariaDB,
    chaos_proxy: MakeProxy,
    rng: random.Random,
) -> None:
    """On both sides of our server, at random bytes: inside the login, an event, a packet header."""
    upstream, to_upstream, server = make_proxied_relay(max_binlog_size=262144)
    to_server = chaos_proxy(server)
    cut_off = make_replica(*STRICT).follow(server, port=to_server.port)
    straight = make_replica(*STRICT).follow(server)
    with load(upstream):
        for _ in range(cuts):
            for proxy in (to_upstream, to_server):
                # Rarely inside the login: it takes a second until we and replicas come again then.
                low = 0 if rng.random() < 0.1 else 2000
                proxy.down.cut_after = rng.randrange(low, 40_000)
            until(
                lambda: to_upstream.down.cut_after is None and to_server.down.cut_after is None,
                "both are cut",
                timeout=40,
            )
    to_upstream.clear()
    to_server.clear()
    assert_equal(upstream, cut_off, straight, timeout=40)
    for replica in (cut_off, straight):
        assert replica.gtid_binlog_state == upstream.gtid_binlog_state
    assert to_upstream.accepted > cuts
    assert to_server.accepted > cuts


def test_single_bytes(
    backend: object,
    make_upstream: MakeMariaDB,
    make_replica: MakeMariaDB,
    binlog_server: MakeBinlogServer,
    chaos_proxy: MakeProxy,
) -> None:
    """One byte per segment, both ways, on both sides."""
    upstream = make_upstream()
    upstream.make_table()
    to_upstream = chaos_proxy(upstream)
    to_upstream.down.chunk = to_upstream.up.chunk = 1
    server = binlog_server(upstream=to_upstream)
    to_server = chaos_proxy(server)
    to_server.down.chunk = to_server.up.chunk = 1
    replica = make_replica().follow(server, port=to_server.port)
    insert(upstream, 40)
    assert_equal(upstream, replica)
    assert (to_upstream.accepted, to_server.accepted) == (1, 1)


def test_changed_bytes(
    make_proxied_relay: MakeProxiedRelay, make_replica: MakeMariaDB, rng: random.Random
) -> None:
    """A bit flipped on the way from the upstream: the event fails its checksum, and comes again."""
    upstream, to_upstream, server = make_proxied_relay("--binlog-checksum=CRC32")
    upstream.q("CREATE TABLE d.big (a MEDIUMTEXT)")
    replica = make_replica().follow(server)
    assert_equal(upstream, replica)
    for _ in range(3):
        to_upstream.cut()
        # Inside the row: a length that became larger would be waited for.
        to_upstream.down.flip_at = rng.randrange(10_000, 90_000)
        upstream.q("INSERT INTO d.big VALUES (REPEAT('x', 100000))")
        until(lambda: to_upstream.down.flip_at is None, "a flipped bit")
        assert_equal(upstream, replica)
    assert server.log().count("lost upstream") == 6
    assert server.log().count("CRC-32") == 3


def test_changed_bytes_between_two_of_ours_without_tls(
    binlog_server: MakeBinlogServer, chaos_proxy: MakeProxy, rng: random.Random
) -> None:
    """A store has no checksums of events: the relay asks for some, as nothing else looks at the bytes."""
    repl, writer = Credentials(), {"password": "w", "grants": ["BINLOG REPLAY"]}
    first = binlog_server(ssl=False, users={repl.user: repl.password, "w": writer})
    to_first = chaos_proxy(first)
    second = binlog_server(upstream=to_first, server_id=102)
    with first.connect(user="w", password="w") as connection, connection.cursor() as cursor:
        for number in range(3):
            second.wait_position(f"0-1-{number}" if number else "")
            to_first.cut()
            to_first.down.flip_at = rng.randrange(10_000, 90_000)  # in the value
            cursor.execute(f"INSERT INTO d.big VALUES ('{'x' * 100_000}')")
            until(lambda: to_first.down.flip_at is None, "a flipped bit")
            until(lambda: second.log().count("CRC-32") > number, "it is found")  # noqa: B023
    second.wait_position("0-1-3")
    compared = forks.run("compare", first.directory, second.directory)
    assert compared.returncode == 0, compared
