"""What nobody has thought of is answered, whatever work it comes in: 1815, and a line in the log; never silence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from binlog_protocol.connection.commands import Query
from binlog_protocol.gtid import Gtid
from binlog_protocol.wire.results import parse_error
from binlog_storage.errors import DiskError, StorageError

from binlog_server.commits import syncer
from binlog_server.commits.publisher import Publisher
from binlog_server.dumps.dump import Dump
from binlog_server.semi_sync.master import SemiSyncMaster
from binlog_server.sessions import conversation
from binlog_server.sql import events, maintenance
from binlog_server.sql.account_statements import AccountSql
from binlog_server.sql.grammars import LOOP_CHARS_MAX
from binlog_server.sql.replication_sql import StopSlave
from binlog_server.sql.shows import ShowVariables
from binlog_server.sql.sql_session import SqlSession
from binlog_server.sql.view import Deed, RowStream
from binlog_server.sql_commit.session_transaction import SessionTransaction
from tests.binlog_server.lab import WITH_ROOT, Lab, transaction, until

THERE = Gtid.parse("0-1-99")
LONG = " " * (LOOP_CHARS_MAX + 1)  # is parsed in a thread


def broken(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError("planted")


async def broken_later(*_: Any, **__: Any) -> None:
    broken()


def broken_steps(*_: Any, **__: Any) -> Iterator[None]:
    yield
    broken()


def a_deed(*_: Any) -> Deed:
    return Deed(broken_later)


def a_stream(*_: Any) -> RowStream:
    return RowStream(events.COLUMNS, broken_steps())  # type: ignore[arg-type]


Planted = tuple[str, Any, str, Callable[..., Any]]
PLANTED: dict[str, Planted] = {
    "at once": ("SHOW STATUS", ShowVariables, "answer", broken),
    "parsed in a thread": (f"SELECT {LONG} 1", SqlSession, "run", broken),
    "the parser": (f"SELECT {LONG} 1", conversation, "parse", broken),
    "Work": ("PURGE BINARY LOGS BEFORE NOW()", maintenance, "purge", broken),
    "Deed": ("STOP SLAVE", StopSlave, "answer", a_deed),
    "RowStream": ("SHOW BINLOG EVENTS", events, "_rows", broken),
    "Wait": ("SELECT MASTER_GTID_WAIT('0-1-99', 9)", None, "sync", broken),
    "accounts": ("DROP USER a", AccountSql, "run", broken),
    "quick commit": ("INSERT INTO t VALUES (1)", Publisher, "commit_quickly", broken),
    "commit": ("CREATE TABLE d.t (a INT)", Publisher, "commit", broken),
    "statement in a task": (
        "CREATE TABLE d.t (a INT)",
        SessionTransaction,
        "_define",
        broken_steps,
    ),
}


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("planted"), DiskError("planted")], ids=["a defect", "the disk"]
)
async def test_a_commit_that_has_its_answer_gets_no_second_one(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is durable then: what fails behind that is the store's, and the next statement's."""
    monkeypatch.setattr(syncer, "RETRY_S", 0.01)
    async with Lab(users=WITH_ROOT) as lab:
        client, failing, done = await lab.root(), [error], lab.engine.sync
        await client.query("INSERT INTO t VALUES (0)")  # the next one can go the quick way
        lab.server.syncer._sync_s = 0.0

        def sync(durable: Callable[[], object] | None = None) -> None:
            done(durable)
            if failing:
                raise failing.pop()

        monkeypatch.setattr(lab.engine, "sync", sync)
        client.command(Query("INSERT INTO t VALUES (1)").build())
        assert (await client.answer())[:1] == b"\0"
        await until(lambda: not failing)
        assert await client.query("SELECT 7") == [["7"]]
        client.command(Query("INSERT INTO t VALUES (2)").build())
        first = (await client.answer())[:1]
        assert first == (b"\xff" if isinstance(error, StorageError) else b"\0")


@pytest.mark.parametrize("kind", PLANTED)
async def test_is_answered(
    kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sql, where, name, what = PLANTED[kind]
    async with Lab(users=WITH_ROOT) as lab:
        client = await lab.root()
        await client.query("INSERT INTO t VALUES (0)")  # the next one can go the quick way
        with monkeypatch.context() as planted:
            planted.setattr(lab.engine if where is None else where, name, what)
            client.command(Query(sql).build())
            if kind == "Wait":
                lab.engine.append(transaction(THERE), THERE)
            answer = await client.answer()
            assert answer[:1] == b"\xff", answer
            assert int.from_bytes(answer[1:3], "little") == 1815, answer
        assert "internal error" in caplog.text
        assert "ZeroDivisionError" in caplog.text
        assert await client.query("SELECT 1") == [["1"]], "it goes on"


async def test_in_the_midst_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def rows(*_: Any) -> Iterator[tuple[str, ...]]:
        for _row in range(1000):
            yield ("a", "0", "b", "1", "0", "c")
        broken()

    monkeypatch.setattr(events, "_rows", rows)
    async with Lab(users=WITH_ROOT) as lab:
        client = await lab.root()
        client.command(Query("SHOW BINLOG EVENTS").build())
        while (payload := await client.answer())[:1] != b"\xff":
            pass
        assert parse_error(payload).errno == 1815
        assert await client.query("SELECT 1") == [["1"]]


async def test_of_semi_sync(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The commit is durable here: it is answered as one that no replica has acknowledged in time."""
    async with Lab(users=WITH_ROOT, rpl_semi_sync_master_enabled=True) as lab:
        client = await lab.root()
        monkeypatch.setattr(SemiSyncMaster, "when_acknowledged", broken)
        assert (await client.ask(Query("CREATE TABLE d.t (a INT)").build()))[:1] == b"\0"
        assert "internal error, semi-sync of a commit" in caplog.text


async def test_of_a_dump(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A replica that hears 1815 connects again; 1236 would stop it for good."""
    monkeypatch.setattr(Dump, "run", broken_later)
    async with Lab(users=WITH_ROOT) as lab:
        replica = await lab.replica()
        assert (await replica.refused())[0] == 1815
        assert "internal error" in caplog.text
