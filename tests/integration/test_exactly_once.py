"""Whatever happens between the upstream and us: each group is stored once, whole and in order."""

from __future__ import annotations

import hashlib
import random
import re
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from binlog_protocol.errors import RemoteError
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.gtid import GtidEvent

from binlog_server.testing.mariadb import MariaDB
from binlog_server.testing.waiting import POLL, until
from tests.integration.committers import sleep_some
from tests.integration.load import assert_equal
from tests.integration.mixed_load import MB, MixedLoad, random_size
from tests.integration.raw_client import RawClient
from tests.integration.test_crash import STRICT
from tests.integration.test_normal_form import FLAG_ARTIFICIAL, GTID, OF_FILES, normal
from tests.integration.test_relay_sql import ADMIN
from tests.kit.backends import Backend
from tests.kit.chaosproxy import ChaosProxy
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB, MakeProxy
from tests.kit.server import BinlogServer

SILENCE_S = 1  # after which a connection counts as lost
LOGIN_BYTES = 5000  # and more than that: what the upstream sends before the first event
CHECK_EVERY = (
    25  # disasters: the replicas are to have come along, however little each connection could bring
)


# A MariaDB that was killed while it wrote an event leaves it so, and goes on in the next file.
_TORN = re.compile(r"truncated in the middle of event.* the last byte read from '(.*\.)(\d+)'")


def digests(source: MariaDB | BinlogServer) -> list[bytes]:
    """Of all groups in order, in normal form."""
    found: list[Any] = []
    checksum = isinstance(source, MariaDB)
    file, is_whole, is_standalone = "", True, False
    while True:
        with RawClient(source, timeout=40) as client:
            try:
                for event in client.dump(None if file else "", file=file):
                    if event[4] in OF_FILES or event[17] & FLAG_ARTIFICIAL:
                        continue
                    plain = normal(event, checksum=checksum)
                    if event[4] == GTID:
                        found.append(hashlib.sha256())
                        is_standalone = GtidEvent.parse(plain).is_standalone
                    found[-1].update(plain)
                    is_whole = _ends_group(plain, is_standalone)
                return [digest.digest() for digest in found]
            except RemoteError as error:
                torn = _TORN.search(str(error))
                if torn is None:
                    raise
                if not is_whole:
                    found.pop()
                file = f"{torn[1]}{int(torn[2]) + 1:0{len(torn[2])}d}"


def _ends_group(event: bytes, is_standalone: bool) -> bool:
    if event[4] == EventType.QUERY:
        return is_standalone or event.endswith((b"\0COMMIT", b"\0ROLLBACK"))
    return event[4] in (EventType.XID, EventType.XA_PREPARE_LOG)


class Chaos:
    """What can go wrong, at random moments and bytes. Each method returns once it has happened."""

    def __init__(
        self,
        upstream: MariaDB,
        proxy: ChaosProxy,
        server: BinlogServer,
        load: MixedLoad,
        rng: random.Random,
    ) -> None:
        self._upstream = upstream
        self._proxy = proxy
        self._server = server
        self._load = load
        self._rng = rng

    def cut(self) -> None:
        """At any byte; or now, if not so much comes."""
        # Not often where nothing whole has come yet: it takes a second until we come again then.
        low = self._rng.choice((1, LOGIN_BYTES, *[10 * LOGIN_BYTES] * 6))
        self._proxy.down.cut_after = random_size(self._rng, low, 20 * MB)
        patience = time.monotonic() + self._rng.random() / 2
        while self._proxy.down.cut_after is not None:
            if time.monotonic() > patience:
                self._proxy.down.cut_after = None
                until(self._proxy.cut, "a connection to cut")
            time.sleep(POLL)

    def flip(self) -> None:
        """One bit, on the way to us: in a packet's header or in an event."""
        self._until_lost(self._flip)

    def _flip(self) -> None:
        self._proxy.cut()
        self._proxy.down.flip_at = self._rng.randrange(LOGIN_BYTES, 200_000)
        until(lambda: self._proxy.down.flip_at is None, "a flipped bit", timeout=60)

    def silence(self) -> None:
        """Nothing comes any more, no heartbeats either."""

        def go_silent() -> None:
            self._proxy.down.black_hole = True

        self._until_lost(go_silent)
        self._proxy.clear()
        self._proxy.cut()  # what was swallowed of later connections is missing there

    def half_open(self) -> None:
        """Nothing comes, and nobody tells the upstream that we went away and come again."""

        def hold() -> None:
            self._proxy.down.hold = self._proxy.up.hold = True

        self._until_lost(hold)
        self._proxy.clear()

    def single_bytes(self) -> None:
        """One a segment, for a while."""
        self._proxy.down.chunk = 1
        self._load.wait_more(3)
        self._proxy.clear()

    def kill_us(self) -> None:
        self._server.kill()
        self._server.start()

    def restart_us(self) -> None:
        self._server.restart()

    def kill_upstream(self) -> None:
        with self._load.quiet():
            self._upstream.kill()
            self._upstream.start()

    def restart_upstream(self) -> None:
        with self._load.quiet():
            self._upstream.restart()

    def _until_lost(self, disturb: Callable[[], None]) -> None:
        """Until the server has noticed."""

        def losses() -> int:
            log = self._server.log()
            # The other one of a process that has not reached it before.
            return log.count("lost upstream") + log.count("not reached yet: upstream")

        until(lambda: self._proxy.connections, "a connection")
        seen = losses()
        disturb()
        until(lambda: losses() > seen, "notice of it", timeout=60)


RARE = (
    Chaos.flip,
    Chaos.silence,
    Chaos.half_open,
    Chaos.single_bytes,
    Chaos.kill_us,
    Chaos.restart_us,
    Chaos.kill_upstream,
    Chaos.restart_upstream,
)


@pytest.mark.replica
@pytest.mark.parametrize(
    ("cuts", "rounds", "pause_s"),
    [
        (8, 1, 0.01),
        pytest.param(1000, 20, 0.02, marks=[pytest.mark.slow, pytest.mark.timeout(3600)]),
    ],
)
def test_exactly_once(
    cuts: int,
    rounds: int,
    pause_s: float,
    make_upstream: MakeMariaDB,
    make_replica: MakeMariaDB,
    binlog_server: MakeBinlogServer,
    chaos_proxy: MakeProxy,
    rng: random.Random,
    record_property: Callable[[str, object], None],
) -> None:
    """So many cuts at random bytes, and in each round every other disaster once, in a random order."""
    version = rng.choice(("10.11", "11.8"))
    upstream = make_upstream("--innodb-log-file-size=64M", version=version)
    proxy = chaos_proxy(upstream)
    server = binlog_server(users=ADMIN, slave_net_timeout=SILENCE_S)
    server.q(
        f"CHANGE MASTER TO MASTER_HOST='{proxy.host}', MASTER_PORT={proxy.port}, MASTER_CONNECT_RETRY=1, MASTER_SSL=0, "
        f"MASTER_USER='{upstream.account.user}', MASTER_PASSWORD='{upstream.account.password}'"
    )
    server.q("START SLAVE")
    replicas = [make_replica(*STRICT, version=v).follow(server) for v in ("10.11", "11.8")]
    load = MixedLoad(upstream, rng, pause_s=pause_s, large_every=150)
    chaos = Chaos(upstream, proxy, server, load, rng)
    disasters = [Chaos.cut] * cuts + [*RARE] * rounds
    rng.shuffle(disasters)
    began = time.monotonic()
    with load.running():
        for number, disaster in enumerate(disasters, 1):
            sleep_some(rng, 0.1)
            disaster(chaos)
            if number % CHECK_EVERY == 0:
                position = upstream.gtid_binlog_pos
                for replica in replicas:
                    replica.wait_gtid(position, timeout=60)
    assert_equal(upstream, *replicas, timeout=60)
    for replica in replicas:
        assert replica.gtid_binlog_state == upstream.gtid_binlog_state
    sent = digests(server)
    assert sent == digests(upstream)
    assert "stopped following" not in server.log()
    assert proxy.accepted > cuts
    numbers = {
        "upstream": version,
        "cuts": cuts,
        "other disasters": len(disasters) - cuts,
        "connections": proxy.accepted,
        "groups": len(sent),
        "seconds": round(time.monotonic() - began),
    }
    record_property("numbers", numbers)
    print(numbers)


@pytest.mark.replica
def test_a_file_that_a_kill_has_torn_is_read_on(make_upstream: MakeMariaDB) -> None:
    """The oracle of the above: what a MariaDB has in all its files, whatever is at the end of one."""
    upstream = make_upstream(backend=Backend("local", "10.11"))
    upstream.script("CREATE DATABASE d", "CREATE TABLE d.t (a INT)", "INSERT INTO d.t VALUES (1)")
    whole = digests(upstream)
    name = upstream.value("SHOW MASTER STATUS")
    path = Path(upstream.value("SELECT @@datadir")) / name
    upstream.kill()
    with path.open("ab") as file:  # the beginning of an event of 500 bytes
        file.write(struct.pack("<IBIIIH", 0, EventType.QUERY, 1, 500, 0, 0) + bytes(10))
    upstream.start()
    upstream.script("INSERT INTO d.t VALUES (2)")
    after = digests(upstream)
    assert after[:-1] == whole
    assert after[-1] not in whole
