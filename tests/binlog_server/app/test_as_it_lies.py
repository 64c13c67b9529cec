"""innodb_read_only: a directory is served as it lies, and nothing in it changes."""

from __future__ import annotations

import asyncio
import shutil
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any

import pymysql
import pytest
from binlog_protocol.gtid import Gtid
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.classic.options import ClassicOptions
from binlog_storage.classic.store import ClassicEngine
from binlog_storage.disk.disk import OsDisk
from binlog_storage.disk.state import StateStore
from binlog_storage.errors import NotAStore, StoreInUse

from binlog_server.accounts.users import Account
from binlog_server.app.in_process import running_server
from binlog_server.settings.config import Config, ConfigError
from binlog_server.store.store_directory import StoreDirectory
from tests.binlog_server.lab import Client, Replica, fill
from tests.storage.disks import copy_of_running

ROOT = {"root": Account("pw", frozenset({"ALL PRIVILEGES", "BINLOG REPLAY"}))}
SAMPLES = Path(__file__).parent.parent.parent / "storage" / "data" / "classic"
SMALL: dict[str, Any] = {"innodb_log_file_size": 4 << 20, "max_binlog_size": 1 << 20}
HISTORY = [Gtid(0, 1, number) for number in range(1, 8)]


def engine_in(path: Path, kind: str) -> IbbEngine | ClassicEngine:
    disk = OsDisk(path)
    if kind == "ibb":
        options = StoreOptions(**SMALL)
        return IbbEngine(disk, options, facts=StateStore(disk))
    return ClassicEngine(disk, ClassicOptions(**SMALL), facts=StateStore(disk))


def made(path: Path, kind: str) -> Path:
    """A directory with `HISTORY` in two files; "killed": with the last of it as a kill has left it."""
    store, how = kind.split()
    with closing(engine_in(path, store)) as engine:
        fill(engine, HISTORY[:4])
        engine.flush()
        fill(engine, HISTORY[4:])
        if how == "killed":
            return copy_of_running(path, path.with_name("killed"))
    return path


def snapshot(path: Path) -> dict[str, tuple[int, int, bytes]]:
    """Of a directory: each name, its time of change, its mode, its bytes."""
    found = {}
    for one in (path, *sorted(path.rglob("*"))):
        stat = one.lstat()
        content = one.read_bytes() if one.is_file() else b""
        found[str(one.relative_to(path))] = (stat.st_mtime_ns, stat.st_mode, content)
    return found


async def dumped(port: int, count: int) -> str:
    client = await Client.connect(port)
    await client.log_in("root", "pw")
    replica = Replica(client)
    await replica.start()
    await replica.opening()
    found: list[Gtid] = []
    while len(found) < count:
        event = await replica.event()
        if event[4] == 162:
            number = int.from_bytes(event[19:27], "little")
            domain = int.from_bytes(event[27:31], "little")
            found.append(Gtid(domain, int.from_bytes(event[5:9], "little"), number))
    client.close()
    return ",".join(map(str, found))


REFUSED = [
    "PURGE BINARY LOGS BEFORE NOW()",
    "RESET MASTER",
    "FLUSH BINARY LOGS",
    "CREATE USER bob IDENTIFIED BY 'x'",
    "CHANGE MASTER TO MASTER_HOST='127.0.0.1'",
    "START ALL SLAVES",
    "RESET SLAVE ALL",
    "CREATE BINLOG LEASE 'x' FROM GTID ''",
    "DROP BINLOG LEASE 'x'",
    "ALTER BINLOG CONVERT TO '/nowhere'",
    "CREATE DATABASE d",
    "INSERT INTO d.t VALUES (1)",
    "SET GLOBAL read_only = 0",
]


@pytest.mark.parametrize(
    "kind", ["ibb closed", "ibb killed", "traditional closed", "traditional killed"]
)
def test_a_store_of_ours(tmp_path: Path, kind: str) -> None:
    path = made(tmp_path / "store", kind)
    before = snapshot(path)
    options = {
        "users": ROOT,
        "local_tables": False,
        "metrics_listen": "127.0.0.1:0",
        "binlog_expire_logs_seconds": 1,
    }
    with running_server(path, innodb_read_only=True, **SMALL, **options) as server:
        login = {"host": "127.0.0.1", "port": server.port, "user": "root", "password": "pw"}
        with closing(pymysql.connect(**login)) as client, client.cursor() as cursor:
            for text in REFUSED:
                with pytest.raises(pymysql.MySQLError, match="--innodb-read-only") as error:
                    cursor.execute(text)
                assert error.value.args[0] == 1290, text
            cursor.execute("SELECT @@innodb_read_only, @@read_only, @@gtid_binlog_pos")
            assert cursor.fetchall() == ((1, 1, str(HISTORY[-1])),)
            cursor.execute("SHOW BINARY LOGS")
            files = cursor.fetchall()
            there = [(name, len(before[name][2])) for name, _ in files if name in before]
            assert list(files[:2]) == there  # .ibb: a third one is made ahead, in memory
        assert asyncio.run(dumped(server.port, len(HISTORY))) == ",".join(map(str, HISTORY))
        url = f"http://127.0.0.1:{server.metrics_port}/metrics"
        with urllib.request.urlopen(url) as answer:
            assert b"binlog_server_" in answer.read()
        assert snapshot(path) == before
    assert snapshot(path) == before
    with closing(engine_in(path, kind.split()[0])) as engine:
        assert str(engine.binlog_state()) == str(HISTORY[-1])


ROWS_REFUSED = [
    "INSERT INTO d.t VALUES (3)",
    "UPDATE d.t SET a = 4",
    "ALTER TABLE d.t ADD b INT",
    "TRUNCATE TABLE d.t",
    "DROP DATABASE d",
    "XA COMMIT 'q'",
    "XA ROLLBACK 'q'",
]


@pytest.mark.parametrize("engine", ["innodb", ""])
def test_rows_are_read_and_stay(tmp_path: Path, engine: str) -> None:
    path = tmp_path / "store"
    options = {"users": ROOT, **SMALL}

    def client(port: int) -> Any:
        login = {"user": "root", "password": "pw", "autocommit": True}
        return pymysql.connect(host="127.0.0.1", port=port, **login)

    with (
        running_server(path, binlog_storage_engine=engine, **options) as server,
        closing(client(server.port)) as writer,
        writer.cursor() as cursor,
    ):
        cursor.execute("CREATE DATABASE d")
        cursor.execute("CREATE TABLE d.t (a INT PRIMARY KEY)")
        cursor.execute("INSERT INTO d.t VALUES (1)")
        cursor.execute("XA START 'q'")
        cursor.execute("INSERT INTO d.t VALUES (2)")
        cursor.execute("XA END 'q'")
        cursor.execute("XA PREPARE 'q'")
    before = snapshot(path)
    with (
        running_server(path, innodb_read_only=True, **options) as server,
        closing(client(server.port)) as reader,
        reader.cursor() as cursor,
    ):
        cursor.execute("SELECT a FROM d.t")
        assert cursor.fetchall() == ((1,),)
        cursor.execute("XA RECOVER")
        assert len(cursor.fetchall()) == 1
        for text in ROWS_REFUSED:
            with pytest.raises(pymysql.MySQLError, match="--innodb-read-only") as error:
                cursor.execute(text)
            assert error.value.args[0] == 1290, text
    assert snapshot(path) == before


@pytest.mark.parametrize("name", sorted(path.name for path in SAMPLES.iterdir()))
def test_the_binlog_of_a_mariadb(tmp_path: Path, name: str) -> None:
    """In its data directory; of a server that was stopped, or killed."""
    path = Path(shutil.copytree(SAMPLES / name, tmp_path / "data"))
    (path / "mysql").mkdir()
    (path / "ibdata1").write_bytes(b"not ours")
    before = snapshot(path)
    index = next(path.glob("*.index"))
    named = [Path(line).name for line in index.read_text().split()]
    with running_server(path, innodb_read_only=True, users=ROOT, **SMALL) as server:
        assert [server.engine.file_name(file.number) for file in server.engine.files()] == named
        assert server.engine.files()[-1].size == (path / named[-1]).stat().st_size
    assert snapshot(path) == before


def test_what_it_is_not_for(tmp_path: Path) -> None:
    path = tmp_path / "store"

    def opened(**options: Any) -> StoreDirectory:
        config = Config(binlog_directory=path, innodb_read_only=True, **SMALL)
        return StoreDirectory.of(config, to_serve=True, **options)

    path.mkdir()
    with pytest.raises(NotAStore, match="makes none"):
        opened()
    assert list(path.iterdir()) == []
    with closing(engine_in(path, "traditional")), pytest.raises(StoreInUse):
        opened()
    directory = opened()
    with closing(directory), pytest.raises(StoreInUse):
        engine_in(path, "traditional")
    with pytest.raises(ConfigError, match="innodb_read_only"):
        StoreDirectory.of(Config(binlog_directory=path, innodb_read_only=True))
    (path / "binlog-server.sqlite").touch()
    with pytest.raises(NotAStore, match="ENGINE=SQLITE"):
        opened()
