"""`binlog-server convert`: both ways, again, killed, verified; what goes along; what is refused."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
from binlog_protocol.groups.statement_group import Origin
from binlog_protocol.gtid import BinlogState, Gtid
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.binlog.stored_tables import TableEngine
from binlog_storage.classic.binlog import ClassicBinlog
from binlog_storage.classic.store import ClassicEngine
from binlog_storage.convert.tables import user_tables
from binlog_storage.disk.disk import OsDisk
from binlog_storage.ibb.file_header import FileHeader
from binlog_storage.ibb.file_names import file_name
from binlog_storage.ibb.page import PAGE_SIZE, is_sound
from binlog_storage.ibb.xa import Xid
from binlog_storage.intake import intake
from binlog_storage.tables.rows import ELSEWHERE

from binlog_server.accounts.users import Users
from binlog_server.settings import config as configuration
from binlog_server.store.leases import Leases
from binlog_server.store.store_directory import CONVERTING_NAME, StoreDirectory
from binlog_server.tables.held import FIRST_TABLE
from binlog_server.upstreams.password import KEY_NAME
from tests.binlog_server.cli.command import Ran, run
from tests.storage.classic import binlog_files
from tests.storage.disks import copy_of_running
from tests.storage.groups import settle

KEY_FILE = "file_key_management_filename"
PARTS = [binlog_files.simple(8), binlog_files.simple(9, first=9)]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "server.toml"
    path.write_text("max_binlog_size = 1048576\ninnodb_log_file_size = 4194304\nserver_id = 5\n")
    return path


@pytest.fixture
def mariadb(tmp_path: Path) -> Path:
    """A binlog beside other files of a server."""
    folder = tmp_path / "mysql"
    binlog_files.write_chain(folder, *PARTS)
    (folder / "m-bin.index").write_text("./m-bin.000001\n./m-bin.000002\n")
    (folder / "ibdata1").write_bytes(b"x")
    return folder


def convert(config: Path, *arguments: str | Path) -> Ran:
    return run("convert", "--config", config, *arguments)


def opened(config: Path, path: Path) -> StoreDirectory:
    return StoreDirectory.of(configuration.load(config, {"binlog_directory": path}))


def test_both_ways(config: Path, mariadb: Path, tmp_path: Path) -> None:
    """And again, which does nothing; the source is left as it is."""
    before = {path: path.read_bytes() for path in mariadb.iterdir()}
    ibb, back = tmp_path / "ibb", tmp_path / "back"
    for source, target, more in ((mariadb, ibb, ()), (ibb, back, ("--log-bin", "x"))):
        ran = convert(config, source, target, *more)
        assert (ran.code, ran.err) == (0, "")
        assert ran.lines[0].startswith("17 groups stored")
        assert ran.lines[-1] == "the store ends at '0-1-17'"
        ran = convert(config, source, target, *more)
        assert ran.lines[0] == "nothing to do: the store has all groups of these files"
        ran = convert(config, "--verify-only", source, target)
        assert (ran.code, ran.lines) == (0, ["the same: 17 groups, 0.0 MiB, 1 start marker"])
    assert ClassicBinlog([back / "x.000001"]).base(0) == BinlogState()
    assert {path: path.read_bytes() for path in mariadb.iterdir()} == before
    assert not (back / CONVERTING_NAME).exists()


@pytest.fixture
def encrypted(config: Path, tmp_path: Path) -> Path:
    """The configuration of a server whose traditional files are encrypted."""
    keys, path = tmp_path / "keys", tmp_path / "encrypted.toml"
    keys.write_text(f"1;{bytes(range(32)).hex()}")
    sealed = f'binlog_storage_engine = ""\nencrypt_binlog = true\n{KEY_FILE} = "{keys}"\n'
    path.write_text(config.read_text() + sealed)
    # That of a server which has the key, and is asked to encrypt nothing.
    config.write_text(config.read_text() + f'{KEY_FILE} = "{keys}"\n')
    return path


def test_encrypted_files(config: Path, encrypted: Path, tmp_path: Path) -> None:
    """A store of them is read by each command that is given the keys; by none without them."""
    ours, there, again, third = (tmp_path / name for name in ("ours", "there", "again", "third"))
    store = opened(encrypted, ours)
    for group in (*PARTS[0], *PARTS[1]):
        store.engine.append(*group)
    writer = store.engine.begin()
    writer.spill(PARTS[0][0][0])
    writer.prepare(Xid(1, b"waits"))
    Users(store.state).add("a", "p", [])
    store.close()
    last = ours / "binlog.000001"
    assert b"INSERT" not in last.read_bytes()
    lacking = config.with_name("lacking.toml")
    lacking.write_text("server_id = 5\n")

    listed = ("user", "list", "--directory", ours)
    ran = run(*listed, "--config", encrypted)
    assert (ran.code, ran.lines[1].split()[0]) == (0, "a@%")
    for target, source, made_by in ((there, ours, config), (again, there, encrypted)):
        ran = convert(made_by, source, target)
        assert (ran.code, ran.err) == (0, "")
        assert f"1 prepared XA transactions wait, as in {source}" in ran.lines
        assert convert(made_by, "--verify-only", source, target).code == 0
    moved = opened(encrypted, again)
    assert moved.engine.prepared() == [Xid(1, b"waits")]
    moved.close()
    ran = run("events", "--json", last, "--config", config)
    assert (
        ran.code,
        len({line["gtid"] for line in map(json.loads, ran.lines) if "gtid" in line}),
    ) == (0, 17)
    for paths in (ours, last):
        ran = run("find", paths, "--gtid", "0-1-5", "--config", config)
        assert (ran.code, "0-1-5" in ran.lines[0]) == (0, True)
    assert run("compare", ours, there, "--config", config).code == 0
    ran = run("import", "--directory", third, "--config", config, last)
    assert (ran.code, ran.lines[-1]) == (0, "the store ends at '0-1-17'")
    assert convert(config, "--online", ours, tmp_path / "online").code == 0

    ran = convert(encrypted, ours, tmp_path / "none")
    assert (ran.code, "encrypted.toml is of a server with traditional files" in ran.err) == (
        2,
        True,
    )
    encrypted.write_text(encrypted.read_text() + "nonsense = 1\n")
    ran = convert(encrypted, ours, tmp_path / "none")
    assert (ran.code, "unknown option 'nonsense'" in ran.err) == (2, True)

    for command in (
        listed,
        ("events", last),
        ("find", last, "--gtid", "0-1-5"),
        ("convert", "--config", lacking, ours, tmp_path / "none"),
        ("import", "--directory", tmp_path / "none", "--config", lacking, last),
    ):
        ran = run(*command)
        assert ran.code != 0
        assert "file_key_management_filename" in ran.err


def test_what_goes_along(config: Path, tmp_path: Path) -> None:
    """Accounts, leases in the files of the other store, upstreams, their key; prepared XA transactions."""
    ours, there, again = tmp_path / "ours", tmp_path / "there", tmp_path / "again"
    store = opened(config, ours)
    for group in (*PARTS[0], *PARTS[1]):
        store.engine.append(*group)
        store.engine.flush()
    writer = store.engine.begin()
    writer.spill(b"events")
    writer.prepare(Xid(1, b"waits"))
    Leases(store.engine, store.state).create("backup", "0-1-12", None, None)
    facts = {"account/a@%": {"p": 1}, "relay:": {"host": "db1"}, "server_uuid": "u"}
    store.state.update(facts)
    store.close()
    (ours / KEY_NAME).write_bytes(b"key\n")
    for source, target in ((ours, there), (there, again)):
        ran = convert(config, source, target)
        assert (ran.code, ran.err) == (0, "")
        assert f"1 prepared XA transactions wait, as in {source}" in ran.lines
        assert (target / KEY_NAME).read_bytes() == b"key\n"
        moved = opened(config, target)
        assert moved.engine.prepared() == [Xid(1, b"waits")]
        assert {key: moved.state.get(key) for key in facts} == facts
        (lease,) = Leases(moved.engine, moved.state).all()
        assert lease.position == "0-1-12"
        wanted = BinlogState([Gtid(0, 1, 12)]).position()
        assert lease.from_file == moved.engine.find_start(wanted).position.file_no
        moved.close()
        assert convert(config, "--verify-only", source, target).code == 0


def test_killed(
    config: Path, mariadb: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No server opens what is not whole; the same command goes on."""
    target = tmp_path / "ibb"

    class Killed(BaseException):
        pass

    def dies(self: object, *arguments: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(intake.Intake, "_note_logged", dies)
        with pytest.raises(Killed):
            convert(config, mariadb, target)
    ran = run("seed", "--gtid-slave-pos", "0-1-1", "--directory", target, "--config", config)
    assert (ran.code, "was not made whole by binlog-server convert" in ran.err) == (1, True)
    ran = convert(config, "--verify-only", mariadb, target)
    assert ran.code == 1
    assert convert(config, mariadb, target).code == 0
    assert convert(config, "--verify-only", mariadb, target).code == 0
    opened(config, target).close()


def test_refusals(config: Path, mariadb: Path, tmp_path: Path) -> None:
    store = opened(config, tmp_path / "ours")
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    cases = [
        ((loop, mariadb), 1, "Too many levels of symbolic links"),
        ((mariadb, mariadb), 2, "SOURCE and TARGET are the same"),
        ((mariadb, tmp_path / "t", "--log-bin", "x"), 2, "--log-bin names traditional files"),
        ((tmp_path / "none", tmp_path / "t"), 1, f"there is no {tmp_path}/none"),
        ((tmp_path, tmp_path / "t"), 1, "neither .ibb files nor the index"),
        ((tmp_path / "ours", tmp_path / "t"), 1, "in use by another process"),
        ((mariadb, tmp_path / "ours"), 1, "in use by another process"),
        (("--verify-only", mariadb, tmp_path / "ours"), 1, "in use by another process"),
    ]
    for arguments, code, said in cases:
        ran = convert(config, *arguments)
        assert (ran.code, said in ran.err) == (code, True), ran
    store.close()
    assert not (tmp_path / "t").exists()
    ran = convert(config, tmp_path / "ours", mariadb)
    assert (ran.code, "is not a binlog store: it holds 'ibdata1'" in ran.err) == (1, True)


def test_a_target_of_the_same_format(config: Path, mariadb: Path, tmp_path: Path) -> None:
    """Refused in the words of the user: he has asked for no option."""
    store, other = tmp_path / "store", tmp_path / "other"
    assert convert(config, mariadb, store).code == 0
    for source, target, has in ((store, store, ".ibb files"), (mariadb, mariadb, "traditional")):
        shutil.copytree(target, other)
        for more in ([], ["--dry-run"]):
            ran = convert(config, source, other, *more)
            assert ran.code == 2
            assert f"{other} has {has}" in ran.err
            assert "binlog-server import" in ran.err
        shutil.rmtree(other)


def test_a_source_that_was_killed(config: Path, mariadb: Path, tmp_path: Path) -> None:
    """Of an .ibb store what its files lack is in its redo log: it is refused. A traditional one is read as it lies."""
    ours = tmp_path / "ours"
    convert(config, mariadb, ours)
    store = opened(config, ours)
    store.engine.append(*binlog_files.group(Gtid(0, 1, 18)))
    store.engine.sync()
    copy = copy_of_running(ours, tmp_path / "copy")
    store.close()
    ran = convert(config, copy, tmp_path / "t")
    assert (ran.code, "was not closed in an orderly way: the last" in ran.err) == (1, True)
    opened(config, copy).close()
    assert convert(config, copy, tmp_path / "t").code == 0

    killed = tmp_path / "killed"
    engine = ClassicEngine(OsDisk(tmp_path / "running"))
    for group in PARTS[0]:
        engine.append(*group)
    engine.sync()
    copy_of_running(tmp_path / "running", killed)
    engine.close()
    ran = convert(config, killed, tmp_path / "u")
    assert (ran.code, "was not closed" in ran.err) == (0, True)
    assert ran.lines[-1] == "the store ends at '0-1-8'"


def test_a_traditional_source_that_was_killed(config: Path, mariadb: Path, tmp_path: Path) -> None:
    """Its groups and facts are read as the next start would find them."""
    ibb, ours, copy = tmp_path / "ibb", tmp_path / "ours", tmp_path / "copy"
    for source, target in ((mariadb, ibb), (ibb, ours)):
        convert(config, source, target)
    store = opened(config, ours)
    store.state.set("account/a@%", {"p": 1})
    trx = tables_engine(store).tables.begin()
    trx.create_table(FIRST_TABLE, b"definition")
    trx.put(FIRST_TABLE, b"key", b"row")
    gtid = Gtid(0, 1, 18)
    payload, _ = binlog_files.group(gtid)
    tables_engine(store).writer_of(trx).append(payload, gtid)
    store.engine.sync()
    copy_of_running(ours, copy)
    store.close()
    ran = convert(config, copy, tmp_path / "t")
    assert (ran.code, ran.lines[-1]) == (0, "the store ends at '0-1-18'")
    made = opened(config, tmp_path / "t")
    assert made.state.get("account/a@%") == {"p": 1}
    assert dict(tables_engine(made).tables.scan(FIRST_TABLE)) == {b"key": b"row"}
    made.close()


def test_a_target_that_goes_on(config: Path, mariadb: Path, tmp_path: Path) -> None:
    """It has been served since: its groups and facts are its own."""
    target = tmp_path / "ibb"
    convert(config, mariadb, target)
    store = opened(config, target)
    store.engine.append(*binlog_files.group(Gtid(0, 1, 18)))
    store.close()
    ran = convert(config, mariadb, target)
    assert (ran.code, "has groups behind the end of" in ran.err) == (0, True)
    ran = convert(config, "--verify-only", mariadb, target)
    assert (ran.code, "TARGET goes on with group 0-1-18" in ran.lines[0]) == (0, True)
    ran = convert(config, "--verify-only", target, mariadb)
    assert (ran.code, "lacks what follows from group 0-1-18 on" in ran.lines[0]) == (1, True)


def test_for_mariadb(config: Path, tmp_path: Path) -> None:
    """Files alone, their pages as they were but for the start LSN and what it is summed in; again and later."""
    ours, out = tmp_path / "ours", tmp_path / "out"
    for number, part in enumerate(PARTS):
        store = opened(config, ours)
        for group in part:
            store.engine.append(*group)
            store.engine.flush()
        store.close()
        for copied in (9 + number, 0):
            ran = convert(config, "--for-mariadb", ours, out)
            assert (ran.code, ran.err) == (0, "")
            assert ran.lines[0].endswith(f"; {copied} of them copied now"), ran.lines
        assert convert(config, "--verify-only", ours, out).code == 0
    names = sorted(path.name for path in out.iterdir())
    assert names == [file_name(number) for number in range(18)]
    lsns = set()
    for number, name in enumerate(names):
        there, here = (ours / name).read_bytes(), (out / name).read_bytes()
        assert here[PAGE_SIZE:] == there[PAGE_SIZE:]
        before = FileHeader.parse(there[:PAGE_SIZE], number)
        assert before is not None
        lsns.add(before.start_lsn)
        assert FileHeader.parse(here[:PAGE_SIZE], number) == dataclasses.replace(
            before, start_lsn=0
        )
        assert is_sound(here[:PAGE_SIZE])
        assert (ours / name).stat().st_mtime_ns == (out / name).stat().st_mtime_ns
    assert max(lsns) > 0
    assert run("verify", out).code == 0
    # The way back: they are a store of a MariaDB, which a server of ours opens.
    store = opened(config, out)
    assert store.engine.binlog_state() == binlog_files.state_after([*PARTS[0], *PARTS[1]])
    store.close()


def test_what_no_mariadb_gets(config: Path, mariadb: Path, tmp_path: Path) -> None:
    ours, out = tmp_path / "ours", tmp_path / "out"
    store = opened(config, ours)
    store.engine.append(*binlog_files.group(Gtid(0, 1, 1)))
    for _ in range(3):
        store.engine.flush()
    writer = store.engine.begin()
    writer.prepare(Xid(1, b"waits"))
    store.close()
    ran = convert(config, "--for-mariadb", ours, out)
    assert (ran.code, "1 prepared XA transactions wait ('waits' ...)" in ran.err) == (1, True)
    store = opened(config, ours)
    store.engine.rollback_prepared(Xid(1, b"waits"))
    store.close()
    ran = convert(config, "--for-mariadb", ours, mariadb)
    assert (ran.code, f"{mariadb} holds " in ran.err) == (1, True)
    ran = convert(config, "--for-mariadb", mariadb, out)
    assert (ran.code, "takes them as they are" in ran.err) == (2, True)
    assert not out.exists()
    path = ours / file_name(0)
    data = bytearray(path.read_bytes())
    data[PAGE_SIZE + 100] ^= 1
    path.write_bytes(data)
    ran = convert(config, "--for-mariadb", ours, out)
    assert (ran.code, "is damaged: nothing was copied" in ran.err) == (1, True)
    assert not out.exists()


@pytest.mark.parametrize("engine", ["innodb", ""])
def test_online(config: Path, tmp_path: Path, engine: str) -> None:
    """While a server writes: what is durable. Nothing opens that but the command that takes the rest."""
    ours, target = tmp_path / "ours", tmp_path / "target"
    made = {"binlog_directory": ours, "binlog_storage_engine": engine}
    store = StoreDirectory.of(configuration.load(config, made), background=False)
    for part, end in zip(PARTS, ("0-1-8", "0-1-17"), strict=True):
        for group in part:
            store.engine.append(*group)
        store.engine.sync()
        if isinstance(store.engine, IbbEngine):
            settle(store.engine)  # so it tells how far the files are
        ran = convert(config, "--online", ours, target)
        assert (ran.code, "give this without --online" in ran.err) == (0, True), ran
        assert ran.lines[-1] == f"the store ends at '{end}'"
    assert convert(config, ours, target).code == 1  # in use
    assert (target / CONVERTING_NAME).exists()
    store.state.set("server_uuid", "u")
    store.close()
    assert convert(config, "--online", "--verify-only", ours, target).code == 2
    ran = convert(config, ours, target)
    assert (ran.code, ran.lines[0][:13]) == (0, "nothing to do")
    assert convert(config, "--verify-only", ours, target).code == 0
    moved = opened(config, target)
    assert moved.state.get("server_uuid") == "u"
    moved.close()


def test_tables(config: Path, tmp_path: Path) -> None:
    """With their rows, those of a prepared transaction too; what has changed since goes along the next time."""
    ours, there, back = (tmp_path / name for name in ("ours", "there", "back"))
    other = FIRST_TABLE + 1
    for again in (False, True):
        store = opened(config, ours)
        engine = tables_engine(store)
        trx = engine.tables.begin()
        if not again:
            trx.create_table(1, b"names")
            for number in (FIRST_TABLE, other):
                trx.create_table(number, b"definition %d" % number)
                trx.put(number, b"stays", b"row")
                trx.put(number, b"goes", b"row")
        else:
            trx.drop_table(other)
            trx.delete(FIRST_TABLE, b"goes")
            trx.put(FIRST_TABLE, b"new", b"x" * 70_000)
        trx.commit()
        if not again:
            prepared = engine.tables.begin()
            prepared.put(FIRST_TABLE, b"waits", b"prepared")
            writer = engine.writer_of(prepared).begin()
            writer.spill(b"events")
            writer.prepare(Xid(1, b"waits"))
        store.engine.sync()
        store.close()
        for source, target in ((ours, there), (there, back)):
            ran = convert(config, source, target)
            assert (ran.code, ran.err) == (0, "")
            assert convert(config, "--verify-only", source, target).code == 0
    store = opened(config, back)
    tables = tables_engine(store).tables
    rows = dict(tables.scan(FIRST_TABLE))
    assert rows == {b"stays": b"row", b"new": b"x" * 70_000}
    assert set(user_tables(tables)) == {1, FIRST_TABLE}
    gtid = Gtid(0, 1, 1)
    store.engine.commit_prepared(Xid(1, b"waits"), Origin(1, b"").begin(gtid, 1), gtid)
    assert tables.get(FIRST_TABLE, b"waits") == b"prepared"
    store.close()
    store = opened(config, there)
    other_row = tables_engine(store).tables.begin()
    other_row.put(FIRST_TABLE, b"stays", b"other")
    other_row.commit()
    store.close()
    ran = convert(config, "--verify-only", ours, there)
    assert ran.code == 1
    assert "table 1024 has another row of the key 7374617973" in ran.lines[1]
    assert convert(config, "--without-tables", ours, tmp_path / "bare").code == 0
    bare = opened(config, tmp_path / "bare")
    assert not user_tables(tables_engine(bare).tables)
    bare.close()


def test_tables_that_are_refused(config: Path, tmp_path: Path) -> None:
    """With rows in another engine; and with a transaction that has not ended."""
    for number, text in (
        (FIRST_TABLE | ELSEWHERE, "ENGINE=SQLITE"),
        (FIRST_TABLE, "have not ended"),
    ):
        ours = tmp_path / text
        store = opened(config, ours)
        trx = tables_engine(store).tables.begin()
        trx.create_table(number, b"definition")
        if number & ELSEWHERE:
            assert tables_engine(store).make_row_keeper()
            trx.commit()
        store.engine.sync()
        store.close()
        ran = convert(config, ours, tmp_path / "there")
        assert (ran.code, text in ran.err) == (1, True), ran
        assert not (tmp_path / "there").exists()


def tables_engine(store: StoreDirectory) -> TableEngine:
    assert store.table_engine is not None
    return store.table_engine
