"""One option rules when rows and binlog are durable, both at once; sync_binlog has no say."""

from __future__ import annotations

import pytest
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.binlog_server.lab import ROOT, WITH_ROOT, Lab
from tests.storage.crash.history import OPTIONS
from tests.storage.crash.tables import AnyEngine, Rows, look, open_engine

NEVER_S = 2700  # innodb_flush_log_at_timeout


def held(engine: AnyEngine) -> tuple[Rows, str]:
    """All rows, and the end of the binlog."""
    return look(engine)[0], str(engine.binlog_state().position())


@pytest.mark.parametrize("sync_binlog", [0, 1])
@pytest.mark.parametrize(("setting", "is_kept"), [(0, False), (1, True)])
@pytest.mark.parametrize(
    "statements",
    [
        ("INSERT INTO shop.t VALUES (1, 1)",),
        ("BEGIN", "INSERT INTO shop.t VALUES (1, 1)", "UPDATE shop.t SET n = 2", "COMMIT"),
        ("CREATE TABLE shop.u (id INT PRIMARY KEY)",),
    ],
    ids=["alone", "transaction", "ddl"],
)
async def test_a_power_cut_behind_the_answer(
    setting: int, sync_binlog: int, statements: tuple[str, ...], *, is_kept: bool
) -> None:
    disk = MemoryDisk()
    engine = open_engine(disk, OPTIONS)
    users = {**WITH_ROOT, **ROOT}
    async with Lab(
        engine, users=users, local_tables=True, innodb_flush_log_at_timeout=NEVER_S
    ) as lab:
        client = await lab.root()
        for text in ("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY, n INT)"):
            await client.query(text)
        engine.sync()
        before = held(engine)
        await client.query(f"SET GLOBAL innodb_flush_log_at_trx_commit = {setting}")
        await client.query(f"SET GLOBAL sync_binlog = {sync_binlog}")
        for text in statements:
            await client.query(text)
        behind = held(engine)
        assert before[0] != behind[0]
        assert before[1] != behind[1]
        left = held(open_engine(disk.after_crash(), OPTIONS))
        assert left == (behind if is_kept else before)
