"""A directory of traditional binlog files that goes to and fro between a real MariaDB and our store of such files."""

from __future__ import annotations

import itertools
import re
import shutil
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.events.gtid import GtidEvent, GtidFlags
from binlog_protocol.events.header import FLAG_IN_USE, split_events
from binlog_protocol.events.query import QueryEvent
from binlog_protocol.events.xid import XidEvent
from binlog_protocol.groups.event_group import StartMarker
from binlog_protocol.gtid import BinlogState, Gtid
from binlog_storage.classic.options import ClassicOptions
from binlog_storage.classic.store import ClassicEngine
from binlog_storage.classic.writing import FLAG_AT
from binlog_storage.disk.state import StateStore

from binlog_server.testing.local import LocalMariaDB
from tests.integration.load import insert
from tests.kit.backends import VERSIONS, VERSIONS_BY_TURNS, Backend
from tests.kit.fixtures import MakeMariaDB
from tests.storage.disks import MortalDisk
from tests.storage.groups import read_from

TIME = 1_700_000_000
SERVER_ID = 77
DOMAIN = 7
ROWS = 1  # a table of the store


@pytest.fixture(params=VERSIONS_BY_TURNS)
def version(request: pytest.FixtureRequest) -> str:
    """Of the server whose directory it is; it runs on this machine."""
    chosen: str = request.param
    return chosen


def ddl(gtid: Gtid, text: str) -> bytes:
    flags = GtidFlags.STANDALONE | GtidFlags.DDL
    begin = GtidEvent(gtid, flags, timestamp=TIME).build()
    return begin + QueryEvent(text.encode(), gtid.server_id, timestamp=TIME).build()


def transaction(gtid: Gtid, *texts: str) -> bytes:
    events = [GtidEvent(gtid, GtidFlags.TRANSACTIONAL, timestamp=TIME).build()]
    events += [QueryEvent(text.encode(), gtid.server_id, timestamp=TIME).build() for text in texts]
    return b"".join((*events, XidEvent(1 << 60, gtid.server_id, timestamp=TIME).build()))


class Ours:
    """Our store in the directory of a server that does not run; writes rows of a table of its own.

    Each group has a row in a table of the store, too.
    """

    def __init__(self, server: LocalMariaDB, **options: int) -> None:
        self.server = server
        self.seq_no = 0
        self.options = ClassicOptions(
            "upstream-bin",
            server_id=SERVER_ID,
            slave_connections_needed_for_purge=0,
            **options,  # type: ignore[arg-type]
        )

    def open(self) -> ClassicEngine:
        self.disk = MortalDisk(self.server.datadir)
        engine = ClassicEngine(self.disk, self.options, facts=StateStore(self.disk))
        if not engine.tables.tables():
            t = engine.tables.begin()
            t.create_table(ROWS, b"")
            t.commit()
        while engine.step():
            pass
        assert dict(engine.tables.scan(ROWS)) == {b"%d" % n: b"" for n in range(1, self.seq_no + 1)}
        return engine

    def append(self, engine: ClassicEngine, payload: bytes, gtid: Gtid) -> None:
        """A group with its row, in memory."""
        t = engine.tables.begin()
        t.put(ROWS, b"%d" % gtid.seq_no, b"")
        engine.append_with(payload, gtid, t)

    def lose_one(self, engine: ClassicEngine) -> None:
        """One that comes into the redo log, and never into the binlog."""
        gtid = Gtid(DOMAIN, SERVER_ID, self.seq_no + 1)
        self.append(engine, transaction(gtid, "lost"), gtid)
        assert engine._row_log is not None
        engine._row_log.write()

    def write(self, engine: ClassicEngine, count: int, size: int = 100) -> None:
        """So many groups more, durable."""
        for _ in range(count):
            self.seq_no += 1
            gtid = Gtid(DOMAIN, SERVER_ID, self.seq_no)
            if self.seq_no == 1:
                text = "CREATE TABLE d.ours (a INT PRIMARY KEY, b LONGTEXT) ENGINE=InnoDB"
                self.append(engine, ddl(gtid, text), gtid)
            else:
                text = f"INSERT INTO d.ours VALUES ({self.seq_no}, REPEAT('x', {size}))"
                self.append(engine, transaction(gtid, text), gtid)
            engine.sync()

    def write_large(self, engine: ClassicEngine) -> None:
        """A group of many events, whose cache file becomes a binlog file."""
        self.seq_no += 1
        gtid = Gtid(DOMAIN, SERVER_ID, self.seq_no)
        texts = [f"INSERT INTO d.ours VALUES ({self.seq_no}, '')"]
        texts += [
            f"UPDATE d.ours SET b = CONCAT(b, '{number}{'x' * 5000}') WHERE a = {self.seq_no}"
            for number in range(100)
        ]
        payload = transaction(gtid, *texts)
        begin = next(split_events(payload))
        files = len(engine.files())
        writer = engine.begin()
        writer.spill(payload[len(begin) :])
        writer.commit(begin, gtid)
        assert len(engine.files()) == files + 2, (
            "the next one as well: it is beyond max_binlog_size"
        )


def events_of(server: LocalMariaDB) -> int:
    """SHOW BINLOG EVENTS of all files, which reads each event and its checksum. How many there are.

    Each event ends where it says, each file that is followed by another says so, and checkpoints name files.
    """
    count = 0
    files = server.q("SHOW BINARY LOGS")
    names = [row["Log_name"] for row in files]
    for row, following in zip(files, [*names[1:], None], strict=True):
        events = server.q(f"SHOW BINLOG EVENTS IN '{row['Log_name']}'")
        count += len(events)
        for event, after in itertools.pairwise(events):
            # 11.8 writes no ends inside of groups, nor does a group of ours that was spilled.
            assert event["End_log_pos"] in (0, after["Pos"]), event
        assert {e["Info"] for e in events if e["Event_type"] == "Binlog_checkpoint"} <= set(names)
        path = server.datadir / row["Log_name"]
        is_in_use = path.read_bytes()[FLAG_AT] & FLAG_IN_USE
        last = events[-1]
        if following and (last["Event_type"] == "Rotate" or not is_in_use):
            assert last["Event_type"] == "Stop" or last["Info"] == f"{following};pos=4"
        assert row["File_size"] == path.stat().st_size
        said = server.run("mariadb-binlog", "--no-defaults", "--verify-binlog-checksum", str(path))
        assert "ERROR" not in said
    return count


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_to_and_fro(
    version: str, end: str, make_upstream: MakeMariaDB, make_replica: MakeMariaDB
) -> None:
    """Each goes on behind the other, over files of both; and replicas of both versions follow what they wrote."""
    server = make_upstream(backend=Backend("local", version))
    assert isinstance(server, LocalMariaDB)
    server.make_table()
    insert(server, 5)
    if version == "11.8":
        server.make_table("d.big", "LONGTEXT")
        server.q("SET GLOBAL binlog_large_commit_threshold = 10485760")
        server.q("INSERT INTO d.big (a) VALUES (REPEAT('x', 11000000))")
        assert "Renamed binlog cache" in server.log()
    store = Ours(server, max_binlog_size=4096, binlog_large_commit_threshold=200_000)
    turns: list[Callable[[ClassicEngine], object]] = [
        lambda engine: store.write(engine, 30),
        lambda engine: engine.append(
            StartMarker(
                FormatDescription("11.8.0-MariaDB-log", SERVER_ID, created=TIME, timestamp=TIME)
            ).payload,
            None,
        ),
        lambda engine: engine.flush(),
        store.write_large,
    ]
    for turn in turns:
        state = BinlogState.parse(server.gtid_binlog_state)
        if end == "stopped":
            server.stop()
        else:
            server.kill()
        engine = store.open()
        assert engine.binlog_state() == state
        before = len(read_from(engine, engine.first_start().position))
        turn(engine)
        store.write(engine, 3, size=2000)
        store.write(engine, 1)
        state = engine.binlog_state()
        groups = len(read_from(engine, engine.first_start().position))
        assert groups > before
        if end == "stopped":
            engine.close()
        else:
            store.lose_one(engine)
            store.disk.die()
        server.start()
        assert BinlogState.parse(server.gtid_binlog_state) == state
        assert events_of(server) > 3 * groups - 10
        insert(server, 3)
    log = server.log()
    assert "Error in Log_event" not in log
    assert not re.search(r"\[ERROR\].*binlog", log)
    for other in VERSIONS:
        replica = make_replica(version=other).follow(server)
        replica.wait_gtid(server.gtid_binlog_pos)
        assert replica.value("SELECT COUNT(*) FROM d.ours") == store.seq_no - 1
        tables = [name for name in server.tables() if name != "d.ours"]
        assert replica.checksum(tables) == server.checksum(tables)
        replica.stop()


def test_purge_and_reset_by_both(version: str, make_upstream: MakeMariaDB) -> None:
    server = make_upstream(backend=Backend("local", version))
    assert isinstance(server, LocalMariaDB)
    server.make_table()
    insert(server, 5)
    server.kill()
    store = Ours(server, max_binlog_size=4096)
    with closing(store.open()) as engine:
        store.write(engine, 30, size=600)
        last = engine.files()[-1].number
        assert engine.purge_to(last).delete
        kept = [engine.file_name(file.number) for file in engine.files()]
        state = engine.binlog_state()
    server.start()
    assert BinlogState.parse(server.gtid_binlog_state) == state
    assert [row["Log_name"] for row in server.q("SHOW BINARY LOGS")][: len(kept)] == kept
    server.q(f"PURGE BINARY LOGS TO '{kept[-1]}'")
    server.kill()
    with closing(store.open()) as engine:
        assert engine.file_name(engine.files()[0].number) == kept[-1]
        engine.reset(BinlogState([Gtid(0, 1, 500), Gtid(4, 2, 9)]))
    server.start()
    assert BinlogState.parse(server.gtid_binlog_state) == BinlogState(
        [Gtid(0, 1, 500), Gtid(4, 2, 9)]
    )
    server.q("RESET MASTER")
    insert(server, 2)
    server.stop()
    with closing(store.open()) as engine:
        assert [file.number for file in engine.files()] == [1, 2]
        assert len(engine.binlog_state()) == 1


@pytest.mark.parametrize("files", ["the same file", "more files"])
def test_what_a_killed_server_had_prepared(
    version: str, files: str, make_upstream: MakeMariaDB
) -> None:
    """Its last commit is in its binlog, and prepared in its tables: it is there again behind us, whom it finds stopped
    in order twice.
    """
    server = make_upstream(
        "--innodb-flush-log-at-trx-commit=1",
        "--innodb-flush-log-at-timeout=2700",  # or a second later the commit is there
        "--sync-binlog=1",
        start=False,
        backend=Backend("local", version),
    )
    assert isinstance(server, LocalMariaDB)
    shutil.rmtree(server.dir)
    # A redo log in /dev/shm, where tmp_path is, is mapped into memory, and has the commit as well.
    with tempfile.TemporaryDirectory(prefix="prepared-") as folder:
        server.dir = Path(folder) / "data"
        server.dir.mkdir()
        server.start().create_account()
        server.make_table()
        insert(server, 3)
        server.kill()
        store = Ours(server, max_binlog_size=4096)
        for _ in range(2):
            with closing(store.open()) as engine:
                store.write(engine, 40 if files == "more files" else 1)
        server.start()
        assert server.value("SELECT COUNT(*) FROM d.t") == 3
        assert "Found 1 prepared transaction(s) in InnoDB" in server.log()
        server.kill()
