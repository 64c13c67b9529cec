"""ALTER BINLOG CONVERT: a server with clients and replicas goes on in a store of the other format, and back."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pymysql
import pytest
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import EventHeader
from binlog_protocol.gtid import SlavePosition
from binlog_storage.errors import DiskError, NotAStore
from pymysql.constants.COMMAND import COM_BINLOG_DUMP

from binlog_server.accounts.users import Account
from binlog_server.app import conversion
from binlog_server.app.app import Server
from binlog_server.app.in_process import running_server
from binlog_server.settings.config import Config
from binlog_server.store.leases import Seen, slot_name
from binlog_server.store.store_directory import CONVERTING_NAME, MOVED_NAME, StoreDirectory
from binlog_server.testing.waiting import until
from tests.storage.disks import copy_of_running

FORMATS = ["innodb", ""]
SMALL: dict[str, Any] = {"innodb_log_file_size": 4 << 20, "max_binlog_size": 1 << 20}
ROOT = {"root": Account("p", frozenset({"ALL PRIVILEGES", "BINLOG REPLAY"}))}


@dataclass
class Place:
    """A folder for stores, and a server in the first of them."""

    folder: Path
    server: Server
    clients: list[Any] = field(default_factory=list)

    def client(self) -> pymysql.cursors.Cursor:
        made = pymysql.connect(
            host="127.0.0.1", port=self.server.port, user="root", password="p", autocommit=True
        )
        self.clients.append(made)
        return made.cursor()

    def q(self, text: str) -> list[tuple[Any, ...]]:
        cursor = self.client()
        cursor.execute(text)
        return list(cursor.fetchall())

    def convert(self, name: str) -> None:
        self.q(f"ALTER BINLOG CONVERT TO '{self.folder / name}'")

    def fails(self, name: str, text: str) -> None:
        with pytest.raises(pymysql.MySQLError, match=text):
            self.convert(name)

    @property
    def position(self) -> str:
        return str(self.q("SELECT @@gtid_binlog_pos")[0][0])


@contextlib.contextmanager
def serving(folder: Path, engine: str | None = None, **options: Any) -> Iterator[Place]:
    fixed = {"users": ROOT, "binlog_storage_engine": engine, "server_id": 1, "local_tables": False}
    options = {**fixed, **SMALL, **options}
    with running_server(folder / "a", **options) as server:
        place = Place(folder, server)
        try:
            yield place
        finally:
            for client in place.clients:
                client.close()


def state_in(path: Path) -> tuple[str, Path, list[str]]:
    """As a server with this directory finds it: its position, where it is, its databases of tables."""
    config = Config(binlog_directory=path, **{"server_id": 1, **SMALL})
    directory = StoreDirectory.of(config)
    try:
        position = str(directory.engine.binlog_state().position())
        return position, directory.path, sorted(key for key, _ in directory.state.items("lease/"))
    finally:
        directory.close()


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("engine", FORMATS)
def test_there_and_back_under_load(tmp_path: Path, engine: str) -> None:
    """Commits wait and none is lost or twice; all that the store knows goes along, tables and XA with rows too."""
    with serving(tmp_path, engine, local_tables=True) as place:
        place.q("CREATE DATABASE d")
        place.q("CREATE TABLE d.t (a INT PRIMARY KEY AUTO_INCREMENT, b INT, UNIQUE (b))")
        place.q("INSERT INTO d.t (b) VALUES (1000), (10), (20)")
        place.q(f"CREATE BINLOG LEASE 'x' FROM GTID '{place.position}'")
        place.q("CREATE USER bob IDENTIFIED BY 'x'")
        waits = place.client()
        for text in ("START 'q'", "END 'q'", "PREPARE 'q'"):
            waits.execute(f"XA {text}")
            if text.startswith("START"):
                waits.execute("INSERT INTO d.t (b) VALUES (77)")
        stop, errors, done = threading.Event(), [], [0]

        def work() -> None:
            cursor = place.client()
            try:
                while not stop.is_set():
                    cursor.execute("UPDATE d.t SET b = b + 1 WHERE a = 1")
                    done[0] += 1
            except pymysql.MySQLError as error:
                errors.append(error)

        worker = threading.Thread(target=work)
        worker.start()
        try:
            for name in ("b", "c"):
                place.convert(name)
                assert place.q("SELECT @@binlog_directory") == [(str(tmp_path / name),)]
                more = done[0] + 3
                while done[0] < more and worker.is_alive():
                    stop.wait(0.005)
        finally:
            stop.set()
            worker.join()
        assert not errors
        waits.execute("XA COMMIT 'q'")
        place.q("INSERT INTO d.t (b) VALUES (99)")
        rows = place.q("SELECT a, b FROM d.t")
        assert [b for _, b in rows] == [1000 + done[0], 10, 20, 77, 99]
        assert len({a for a, _ in rows}) == len(rows)
        assert [row[:2] for row in place.q("SHOW BINLOG LEASES") if row[0] == "x"]
        assert place.q("SELECT user FROM mysql.user WHERE user = 'bob'") == [("bob",)]
        groups = done[0] + 5  # database, table, two inserts, the prepared one
        assert place.position == f"0-1-{groups}"
        # One start marker: replicas must not drop their temporary tables at a border.
        engine_now = place.server.engine
        start = engine_now.find_start(SlavePosition()).position
        read: list[bytes] = []
        while (batch := engine_now.read(start)).end != start:
            read, start = [*read, *batch.groups], batch.end
        assert len(read) == groups + 1
    assert state_in(tmp_path / "a")[:2] == (f"0-1-{groups}", tmp_path / "c")
    assert state_in(tmp_path / "b")[:2] == (f"0-1-{groups}", tmp_path / "c")
    shutil.rmtree(tmp_path / "c")
    with pytest.raises(NotAStore, match=r"has gone on in .*, which is not there"):
        state_in(tmp_path / "a")


@pytest.mark.parametrize("engine", FORMATS)
def test_killed_at_each_step(tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a kill leaves is the old store or the new one, each with all that was committed; never both, nor half."""
    left: dict[str, Path] = {}

    def kill(step: str) -> None:
        """The directories as they are: what was written lives on, locks do not."""
        copy = tmp_path / step
        copy_of_running(place.folder, copy)
        note = copy / "a" / MOVED_NAME
        if note.exists():
            note.write_text(f"{copy / 'b'}\n")
        left[step] = copy / "a"

    def around(owner: Any, name: str) -> None:
        call: Callable[..., Any] = getattr(owner, name)

        def killed(*args: Any, **kwargs: Any) -> Any:
            kill(f"before {name}")
            try:
                return call(*args, **kwargs)
            finally:
                kill(f"behind {name}")

        monkeypatch.setattr(owner, name, killed)

    stores = tmp_path / "stores"
    stores.mkdir()
    with serving(stores, engine) as place:
        place.q("INSERT INTO other.text VALUES (1)")
        place.q("CREATE BINLOG LEASE 'x'")
        position = place.position
        idle = place.client()
        idle.execute("BEGIN")
        idle.execute("INSERT INTO other.text VALUES (2)")
        for name in ("take_rest", "take_facts", "go_on_in"):
            around(conversion, name)
        around(StoreDirectory, "converted")
        place.convert("b")
        monkeypatch.undo()
        idle.execute("COMMIT")  # what is in memory is nobody's
        assert place.position == "0-1-2"
    assert list(left) == [
        f"{when} {name}"
        for name in ("take_rest", "take_facts", "go_on_in", "converted")
        for when in ("before", "behind")
    ]
    for step, path in left.items():
        served = "b" if step in ("behind go_on_in", "before converted", "behind converted") else "a"
        found, where, leases = state_in(path)
        assert (step, found, where.name, leases) == (step, position, served, ["lease/x"])
        assert not (where / CONVERTING_NAME).exists()


def test_what_fails_leaves_the_server_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the border, at it, and where the note cannot be written; then it works."""
    with serving(tmp_path, local_tables=True) as place:
        place.q("CREATE DATABASE d")
        place.q("CREATE TABLE d.t (a INT PRIMARY KEY)")
        place.q("INSERT INTO d.t VALUES (1)")
        place.fails("a", "is not empty")
        with pytest.raises(pymysql.MySQLError, match="no absolute path"):
            place.q("ALTER BINLOG CONVERT TO 'b'")
        monkeypatch.setattr(conversion, "BORDER_S", 0.05)
        for text in ("INSERT INTO d.t VALUES (2)", "SELECT * FROM d.t"):  # a change; a view
            busy = place.client()
            busy.execute("BEGIN")
            busy.execute(text)
            place.fails("b", "1205")
            busy.execute("INSERT INTO d.t VALUES (3)")
            busy.execute("ROLLBACK")
        monkeypatch.setattr(conversion, "BORDER_S", 30.0)

        def full(*_: object) -> None:
            raise DiskError("no note")

        with monkeypatch.context() as patched:
            patched.setattr(conversion, "go_on_in", full)
            place.fails("b", "no note")
        place.q("INSERT INTO d.t VALUES (2)")
        position = place.position
        assert place.q("SELECT @@binlog_directory") == [(str(tmp_path / "a"),)]
        place.convert("b")  # which goes on with what is there
        assert place.position == position
        assert place.q("SELECT a FROM d.t") == [(1,), (2,)]
    assert state_in(tmp_path / "a")[:2] == (position, tmp_path / "b")


def test_files_that_were_encrypted(tmp_path: Path) -> None:
    """They are read; with the option on there would be new events in clear, which it does not allow."""
    keys = tmp_path / "keys"
    keys.write_text(f"1;{bytes(range(32)).hex()}")
    options: dict[str, Any] = {
        "file_key_management_filename": str(keys),
        "engine": "",
        "local_tables": True,
    }
    with serving(tmp_path, encrypt_binlog=True, **options) as place:
        place.q("CREATE DATABASE d")
        place.q("CREATE TABLE d.t (a INT PRIMARY KEY)")
        place.fails("b", "1290.*--encrypt-binlog")
    with serving(tmp_path, **options) as place:
        place.q("INSERT INTO d.t VALUES (1)")
        position = place.position
        place.convert("b")
        assert place.q("SELECT a FROM d.t") == [(1,)]
    assert state_in(tmp_path / "b")[0] == position


def test_a_slot_is_kept(tmp_path: Path) -> None:
    """Of a replica that is away: in the files of the new store."""
    with serving(tmp_path, replica_slot_seconds=1000, replica_slot_bytes=1 << 30) as place:
        place.q("INSERT INTO other.text VALUES (1)")
        loop_engine, leases = place.server.engine, place.server.leases
        seen = Seen(7, "root@%", loop_engine.durable_end, acknowledged=True)
        leases.renew_slots([], [seen], loop_engine.age)
        leases.expire()
        place.convert("b")
        (slot,) = place.server.leases.all()
        assert slot.name == slot_name(7, "root@%")
        assert slot.from_file == place.server.engine.files()[0].number


def test_the_server_stops_at_the_border(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is crossed first."""
    entered = threading.Event()
    take: Callable[..., None] = vars(conversion)["take_facts"]

    def slowly(*args: Any) -> None:
        entered.set()
        stopping.wait(30)
        take(*args)

    stopping = threading.Event()
    monkeypatch.setattr(conversion, "take_facts", slowly)
    close = conversion.FormatChange.close

    async def closing(self: conversion.FormatChange) -> None:
        asyncio.get_running_loop().call_later(0, stopping.set)
        await close(self)

    monkeypatch.setattr(conversion.FormatChange, "close", closing)
    with serving(tmp_path) as place:
        place.q("INSERT INTO other.text VALUES (1)")
        cursor = place.client()
        del place.clients[-1]  # the server ends it

        def convert() -> None:
            with contextlib.suppress(pymysql.MySQLError):
                cursor.execute(f"ALTER BINLOG CONVERT TO '{tmp_path / 'b'}'")

        worker = threading.Thread(target=convert)
        worker.start()
        assert entered.wait(30)
    worker.join()
    assert state_in(tmp_path / "a")[:2] == ("0-1-1", tmp_path / "b")


def states(client: pymysql.cursors.Cursor) -> list[str]:
    client.execute("SHOW PROCESSLIST")
    return [str(row[6]) for row in client.fetchall()]


@contextlib.contextmanager
def at_border(place: Place, patch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Inside of the block the server changes its format, and stands at the border until the event is set."""
    entered, crossed = threading.Event(), threading.Event()
    rest: Callable[..., None] = vars(conversion)["take_rest"]

    def slowly(*args: Any) -> None:
        entered.set()
        crossed.wait(30)
        rest(*args)

    patch.setattr(conversion, "take_rest", slowly)
    worker = threading.Thread(target=lambda: place.convert("b"))
    worker.start()
    try:
        assert entered.wait(30)
        yield crossed
    finally:
        crossed.set()
        worker.join()
    assert place.q("SELECT @@binlog_directory") == [(str(place.folder / "b"),)]


def test_who_comes_at_the_border_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the greeting: it would ask what the stream looks like, and get another one."""
    with serving(tmp_path) as place:
        place.q("INSERT INTO other.text VALUES (1)")
        with (
            at_border(place, monkeypatch) as crossed,
            socket.create_connection(("127.0.0.1", place.server.port), 30) as comes,
        ):
            comes.settimeout(0.2)
            with pytest.raises(TimeoutError):
                comes.recv(1)
            crossed.set()
            comes.settimeout(30)
            assert comes.recv(5)


@pytest.mark.parametrize("engine", FORMATS)
def test_who_asks_for_a_dump_at_the_border_gets_it_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    """One that has come before. Ended without an event it would stay away for MASTER_CONNECT_RETRY, a minute."""
    with serving(tmp_path, engine) as place:
        place.q("INSERT INTO other.text VALUES (1)")
        watcher, replicas = place.client(), []
        for _ in range(3):
            place.client().execute("SET @mariadb_slave_capability = 4, @slave_connect_state = ''")
            replicas.append(place.clients[-1])
        with at_border(place, monkeypatch) as crossed:
            for number, replica in enumerate(replicas, 7):
                replica._execute_command(COM_BINLOG_DUMP, struct.pack("<IHI", 4, 0, number))
            killed, gone, stays = replicas
            waits = "Waiting for the binlog to go on in another store"
            until(lambda: states(watcher).count(waits) == len(replicas), "three that wait")
            watcher.execute(f"KILL QUERY {killed.thread_id()}")
            with pytest.raises(pymysql.MySQLError, match="1317"):
                killed._read_packet()
            gone.close()
            place.clients.remove(gone)
            crossed.set()
            packets = [stays._read_packet().get_all_data() for _ in range(2)]
        assert [packet[0] for packet in packets] == [0, 0]
        rotate, description = (EventHeader.parse(packet[1:]) for packet in packets)
        assert (rotate.type, description.type) == (EventType.ROTATE, EventType.FORMAT_DESCRIPTION)
        assert (description.end_position == 0) is (engine == "")  # the style of the new store
        (dump,) = place.q("SHOW BINLOG REPLICAS")
        assert dump[0] == stays.thread_id()
