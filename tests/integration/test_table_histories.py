"""What sessions on tables here have committed, in random histories, is what real replicas hold."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

import pytest

from binlog_server.testing.mariadb import MariaDB
from binlog_server.testing.sql_server import Credentials
from tests.binlog_server.lab import PASSWORD, USER, within
from tests.binlog_server.tables.histories import History
from tests.binlog_server.tables.model import DATABASE, Row
from tests.kit.fixtures import MakeMariaDB

pytestmark = pytest.mark.any_version

KINDS = ("10.11", "11.8")


@dataclass(frozen=True, slots=True)
class _Lab:
    host: str
    port: int
    account: Credentials


@pytest.mark.parametrize(
    "number", [0, *(pytest.param(number, marks=pytest.mark.slow) for number in range(1, 11))]
)
async def test_replicas_hold_what_was_committed(
    backend: object, make_replica: MakeMariaDB, number: int, rng: random.Random
) -> None:
    """Each by a seed that is told, so that it can be played again."""
    seed = rng.getrandbits(32)
    print(f"seed {seed}")
    replicas = [await asyncio.to_thread(make_replica, version=version) for version in KINDS]
    async with History(random.Random(seed), resets=False) as history:
        await within(history.play(150), 120)
        source = _Lab("127.0.0.1", history.lab.server.port, Credentials(USER, PASSWORD))
        position = str(history.engine.binlog_state().last(0))

        def held(replica: MariaDB) -> dict[str, dict[int, Row]]:
            replica.follow(source)
            replica.wait_gtid(position, timeout=60)
            names = history.model.content()
            found = {name: replica.q(f"SELECT * FROM {DATABASE}.{name}") for name in names}
            replica.script("STOP SLAVE")
            return {name: {row["id"]: Row(**row) for row in rows} for name, rows in found.items()}

        for replica in replicas:
            assert await asyncio.to_thread(held, replica) == history.model.content()
