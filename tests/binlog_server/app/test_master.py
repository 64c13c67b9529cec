"""Tables from Python, without SQL: what calls do, their errors, threads, coroutines; and the examples of the page."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import re
import threading
import uuid
from collections.abc import AsyncIterator, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from binlog_protocol.errors import BadValue, ServerError
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import split_events

from binlog_server.app.app import Server
from binlog_server.app.in_process import running_server
from binlog_server.app.master import Master
from binlog_server.settings.config import ConfigError
from tests.binlog_server.lab import ROOT, Lab, until
from tests.storage.groups import read_all

PAGE = Path(__file__).parents[3] / "docs" / "python-master.md"
T = "shop.t"


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with Lab(users=ROOT, local_tables=True) as lab:
        aio = lab.server.master.aio
        await aio.create_database("shop")
        await aio.create_table(
            T, {"id": "INT AUTO_INCREMENT PRIMARY KEY", "a": "VARCHAR(20)", "n": "INT NOT NULL"}
        )
        yield lab


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with running_server(tmp_path / "store", server_id=5) as server:
        server.master.create_database("shop")
        server.master.create_table(T, {"id": "INT PRIMARY KEY", "n": "INT"})
        yield server


def last_group(lab: Lab) -> list[int]:
    lab.engine.sync()
    payload = [payload for payload in read_all(lab.engine) if payload[4] == EventType.GTID][-1]
    return [event[4] for event in split_events(payload)]


async def failing(call: Any) -> int:
    with pytest.raises(ServerError) as caught:
        await call
    return caught.value.errno


# --- coroutines ---


async def test_a_transaction_is_one_group_of_row_events(lab: Lab) -> None:
    async with lab.server.master.aio.transaction() as t:
        assert await t.insert(T, {"a": "x", "n": 1}) == 1
        assert await t.insert(T, [{"a": "it's \\ ?", "n": 2}, {"n": 3}]) == 2
        assert await t.insert(T, []) == 0
        assert await t.update(T, {"n": 10, "a": None}, {"id": 1}) == 1
        assert await t.update(T, {"n": 10}, {"id": 1}) == 0
        assert await t.delete(T, {"a": None, "id": 3}) == 1
        assert await t.get(T, {"ID": 2}) == {"id": 2, "a": "it's \\ ?", "n": 2}
        assert await t.get(T, {"id": 3}) is None
    assert last_group(lab) == [
        *(EventType.GTID, EventType.ANNOTATE_ROWS, EventType.TABLE_MAP, EventType.WRITE_ROWS_V1),
        *(EventType.ANNOTATE_ROWS, EventType.TABLE_MAP, EventType.WRITE_ROWS_V1),
        *(EventType.ANNOTATE_ROWS, EventType.TABLE_MAP, EventType.UPDATE_ROWS_V1),
        *(EventType.ANNOTATE_ROWS, EventType.TABLE_MAP, EventType.DELETE_ROWS_V1, EventType.XID),
    ]
    client = await lab.root()
    assert await client.query("SELECT * FROM shop.t") == [
        ["1", None, "10"],
        ["2", "it's \\ ?", "2"],
    ]
    client.close()


async def test_replace(lab: Lab) -> None:
    async with lab.server.master.aio.transaction() as t:
        await t.insert(T, {"id": 1, "a": "old", "n": 1})
        assert await t.replace(T, [{"id": 1, "n": 2}, {"id": 2, "n": 3}]) == 3
        assert await t.scan(T) == [{"id": 1, "a": None, "n": 2}, {"id": 2, "a": None, "n": 3}]


async def test_what_raises_is_rolled_back(lab: Lab) -> None:
    async def half() -> None:
        async with lab.server.master.aio.transaction() as t:
            await t.insert(T, {"n": 1})
            raise KeyError

    with pytest.raises(KeyError):
        await half()
    async with lab.server.master.aio.transaction() as t:
        assert await t.scan(T) == []
        await t.insert(T, {"n": 1})
        await t.savepoint("s`p")
        assert await failing(t.insert(T, [{"n": 2}, {"n": None}])) == 1048
        await t.insert(T, {"n": 3})
        await t.rollback_to("s`p")
        assert [row["n"] for row in await t.scan(T)] == [1]
    with pytest.raises(RuntimeError, match="has ended"):
        await t.insert(T, {"n": 1})


ERRORS: list[tuple[str, int]] = [
    ('t.insert("shop.none", {"n": 1})', 1146),
    ('t.insert("t", {"n": 1})', 1146),
    ('t.insert(T, {"none": 1})', 1054),
    ('t.insert(T, {"n": 1 << 40})', 1264),
    ('t.insert(T, {"a": "x" * 21, "n": 1})', 1406),
    ('t.insert(T, {"a": "x"})', 1364),
    ('t.insert(T, {"id": 1, "n": 1})', 1062),
    ('t.update(T, {"n": "x"}, {"id": 1})', 1366),
    ('t.delete("shop.none", {})', 1146),
    ('t.get(T, {"n": 1})', 1054),
    ('t.rollback_to("none")', 1305),
]


@pytest.mark.parametrize(("call", "errno"), ERRORS, ids=[call for call, _ in ERRORS])
async def test_errors_are_mariadbs_and_the_transaction_goes_on(
    lab: Lab, call: str, errno: int
) -> None:
    async with lab.server.master.aio.transaction() as t:
        await t.insert(T, {"id": 1, "n": 1})
        assert await failing(eval(call, {"t": t, "T": T})) == errno
        await t.insert(T, {"n": 2})
    async with lab.server.master.aio.transaction() as t:
        assert [row["n"] for row in await t.scan(T)] == [1, 2]


async def test_values_that_are_none(lab: Lab) -> None:
    async with lab.server.master.aio.transaction() as t:
        for value in (float("nan"), Decimal("Infinity")):
            with pytest.raises(BadValue):
                await t.insert(T, {"n": value})
        with pytest.raises(TypeError, match="a complex"):
            await t.insert(T, {"n": 1j})
        with pytest.raises(BadValue):
            await t.get(T, {})
        await t.insert(T, {"n": 2})


VALUES: list[tuple[str, Any]] = [
    ("BIGINT UNSIGNED", (1 << 64) - 1),
    ("DOUBLE", 1.5e-300),
    ("DECIMAL(20,6)", Decimal("-12345678901234.500001")),
    ("VARCHAR(20)", "Größe\n\0'\"😀"),
    ("VARBINARY(20)", bytes(range(250, 256)) + b"\\'\0"),
    ("DATE", datetime.date(1000, 1, 2)),
    ("DATETIME(6)", datetime.datetime(9999, 12, 31, 23, 59, 59, 999999)),
    ("TIMESTAMP(6) NULL", datetime.datetime(2024, 3, 31, 2, 30, 0, 1, tzinfo=datetime.UTC)),
    ("TIME(6)", -datetime.timedelta(hours=838, microseconds=5)),
    ("UUID", uuid.UUID("123e4567-e89b-12d3-a456-426655440000")),
    ("INET6", ipaddress.IPv6Address("fe80::1")),
    ("ENUM('a','b')", "b"),
]


async def test_values_come_back_as_they_went(lab: Lab) -> None:
    columns = {f"c{i}": kind for i, (kind, _) in enumerate(VALUES)}
    row = {f"c{i}": value for i, (_, value) in enumerate(VALUES)}
    aio = lab.server.master.aio
    await aio.create_table(
        "shop.all", {"id": "INT", **columns, "s": "SET('x','y','z')"}, "PRIMARY KEY (id)"
    )
    async with aio.transaction() as t:
        await t.insert("shop.all", {"id": 1, **row, "s": {"z", "x"}})
        await t.insert("shop.all", {"id": 2, **dict.fromkeys(row)})
        assert await t.get("shop.all", {"id": 1}) == {"id": 1, **row, "s": "x,z"}
        assert await t.get("shop.all", {"id": 2}) == {"id": 2, **dict.fromkeys(row), "s": None}
        # A value finds the row that has it, but for those that are no exact ones.
        for name, value in row.items():
            assert await t.update("shop.all", {"id": 1}, {name: value}) == 0
        assert await t.delete("shop.all", row) == 1


async def test_a_deadlock_is_all_of_the_transaction(lab: Lab) -> None:
    aio = lab.server.master.aio
    async with aio.transaction() as t:
        await t.insert(T, [{"id": 1, "n": 0}, {"id": 2, "n": 0}])
    one, other = await aio.begin(), await aio.begin()
    await one.insert(T, [{"id": 10, "n": 1}, {"id": 11, "n": 1}])
    await one.update(T, {"n": 1}, {"id": 1})
    await other.update(T, {"n": 2}, {"id": 2})
    waiting = asyncio.ensure_future(one.update(T, {"n": 1}, {"id": 2}))
    await asyncio.sleep(0)
    assert await failing(other.update(T, {"n": 2}, {"id": 1})) == 1213
    assert await waiting == 1
    assert await failing(other.insert(T, {"n": 3})) == 1213
    assert await failing(other.commit()) == 1213
    other.close()
    await one.commit()
    async with aio.transaction() as t:
        assert [(row["id"], row["n"]) for row in await t.scan(T)] == [
            (1, 1),
            (2, 1),
            (10, 1),
            (11, 1),
        ]


async def test_a_wait_for_a_lock_ends(lab: Lab) -> None:
    aio = lab.server.master.aio
    async with aio.transaction() as t:
        await t.insert(T, {"id": 1, "n": 0})
        async with aio.transaction(innodb_lock_wait_timeout=0) as u:
            assert await failing(u.insert(T, {"id": 1, "n": 1})) == 1205
            await u.insert(T, {"id": 2, "n": 2})
    async with aio.transaction() as t:
        assert len(await t.scan(T)) == 2


async def test_a_cancelled_call_rolls_back(lab: Lab) -> None:
    aio = lab.server.master.aio

    async def second() -> None:
        async with aio.transaction() as u:
            await u.insert(T, {"id": 5, "n": 5})
            await u.insert(T, {"id": 1, "n": 6})

    async with aio.transaction() as t:
        await t.insert(T, {"id": 1, "n": 0})
        task = asyncio.ensure_future(second())
        await until(lambda: lab.engine.counters()["Innodb_row_lock_current_waits"] == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    async with aio.transaction() as t:
        await t.insert(T, {"id": 5, "n": 7})  # nobody holds its lock


async def test_nothing_is_committed_where_a_client_could_not(lab: Lab) -> None:
    lab.server.publisher.read_only = True
    assert await failing(lab.server.master.aio.create_database("other")) == 1290
    with pytest.raises(ServerError, match="read-only"):
        async with lab.server.master.aio.transaction() as t:
            await t.insert(T, {"n": 1})
    lab.server.publisher.read_only = False
    async with lab.server.master.aio.transaction() as t:
        assert await t.scan(T) == []


async def test_without_tables() -> None:
    async with Lab(users=ROOT) as lab:
        assert await failing(lab.server.master.aio.create_database("shop")) == 1235
        async with lab.server.master.aio.transaction() as t:
            assert await failing(t.insert(T, {"n": 1})) == 1146


async def test_the_loop_never_waits_for_itself(lab: Lab) -> None:
    with pytest.raises(RuntimeError, match=r"master\.aio"):
        lab.server.master.create_database("other")


async def test_a_stop_ends_what_is_open(lab: Lab) -> None:
    aio = lab.server.master.aio
    one, other = await aio.begin(), await aio.begin()
    await one.insert(T, {"id": 1, "n": 1})
    waiting = asyncio.ensure_future(other.insert(T, {"id": 1, "n": 2}))
    await asyncio.sleep(0)
    await lab.stop()
    assert await failing(waiting) == 1053
    assert await failing(aio.begin()) == 1053


# --- threads ---


def test_threads(server: Server) -> None:
    master = server.master

    def add(number: int) -> None:
        for _ in range(10):
            with master.transaction() as t:
                t.update(T, {"n": number}, {"id": 0})
                t.insert(T, {"id": 1 + len(t.scan(T)) + 1000 * number, "n": number})

    with master.transaction() as t:
        t.insert(T, {"id": 0, "n": 0})
    threads = [threading.Thread(target=add, args=(n,)) for n in range(1, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with master.transaction() as t:
        t.savepoint("s")
        assert t.delete(T, {"id": 0}) == 1
        t.rollback_to("s")
        assert len(t.scan(T)) == 31
    master.drop_table(T)
    master.drop_database("shop")


def test_behind_the_end_of_the_server(tmp_path: Path) -> None:
    with running_server(tmp_path / "store", server_id=5) as server:
        master: Master = server.master
    with pytest.raises(ServerError) as caught:
        master.create_database("late")
    assert caught.value.errno == 1053


def test_a_server_that_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError), running_server(tmp_path / "store", server_id=0):
        pass
    with (
        running_server(tmp_path / "store", server_id=5) as server,
        pytest.raises(OSError, match="in use"),
        running_server(tmp_path / "other", server_id=5, listen_port=server.port),
    ):
        pass


def test_the_examples_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(examples) == 3
    monkeypatch.chdir(tmp_path)
    for example in examples:
        exec(compile(example, str(PAGE), "exec"), {})
    with running_server("store", server_id=1) as server, server.master.transaction() as t:
        assert [row["item"] for row in t.scan("shop.orders")] == ["a", "c", "d"]
