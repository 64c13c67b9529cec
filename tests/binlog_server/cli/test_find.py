"""`find` on stores of both formats, and an archive; what the index keeps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from binlog_protocol.gtid import Gtid
from binlog_storage.archive.archiver import StoreArchiver
from binlog_storage.archive.manifest import MANIFEST_NAME, PartFormName
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.classic.options import ClassicOptions
from binlog_storage.classic.store import ClassicEngine
from binlog_storage.disk.disk import OsDisk
from binlog_storage.engine import BinlogEngine
from binlog_storage.log.groups import OfflineBinlog, OfflineGroup

from tests.binlog_server.cli.command import run
from tests.protocol.statement_groups import ddl_group, transaction_group

NOON = 1_780_000_000  # 2026-05-28T20:26:40Z


def fill(engine: BinlogEngine) -> None:
    """Three files: times that go back, a huge group with a DROP behind it, rows of every kind."""
    for n in range(1, 31):
        gtid = Gtid(n % 2, 1, n)
        statement = f"INSERT INTO t{n} VALUES ('DROP TABLE gone')"
        time = NOON + n - 8 * (n == 15)
        engine.append(
            transaction_group(gtid, [statement], xid=n, database="d", timestamp=time), gtid
        )
        if n in (10, 20):
            engine.flush()
    large = Gtid(0, 1, 31)
    pieces = ["INSERT INTO large VALUES ('" + "x" * 9000 + "')"] * 20
    pieces.append("/* at night */ DROP TEMPORARY TABLE IF EXISTS nothing")
    engine.append(
        transaction_group(large, pieces, xid=31, database="d", timestamp=NOON + 40), large
    )
    drop = Gtid(0, 1, 32)
    engine.append(ddl_group(drop, "DROP TABLE d.gone /* by hand */", timestamp=NOON + 41), drop)
    engine.sync()


@pytest.fixture(params=["ibb", "classic", "archive", "archive of .ibb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "store"
    engine: BinlogEngine
    if request.param == "classic":
        engine = ClassicEngine(OsDisk(path), ClassicOptions())
    else:
        engine = IbbEngine(OsDisk(path), StoreOptions(1 << 20))
    fill(engine)
    if request.param.startswith("archive"):
        form: PartFormName = "ibb" if request.param.endswith("ibb") else "parquet"
        archiver = StoreArchiver(engine, tmp_path / "archive", part_bytes=1500, form=form)
        while archiver.step():
            pass
        archiver.close()
        path = tmp_path / "archive"
    engine.close()
    return path


def found(*arguments: str | Path) -> list[dict[str, Any]]:
    ran = run("find", *arguments, "--json")
    assert ran.code == (0 if ran.lines else 1), ran.err
    return [json.loads(line) for line in ran.lines]


def test_times(store: Path) -> None:
    """Of the log's order: the 15th is of the time of the 7th."""
    for time, gtid, before in (
        ("26:40", "1-1-1", ""),
        ("26:47", "1-1-7", "1-1-5,0-1-6"),
        ("26:55", "0-1-16", "1-1-15,0-1-14"),
        ("27:20", "0-1-31", "1-1-29,0-1-30"),
    ):
        (one,) = found(store, "--at", f"2026-05-28T20:{time}Z")
        assert (one["gtid"], set(one["before"].split(","))) == (gtid, set(before.split(",")))
    ran = run("find", store, "--at", "2030-01-01")
    assert ran.code == 1
    assert "there is no group of 20" in ran.err


def test_what_was_done(store: Path) -> None:
    (drop,) = found(store, "--table", "gone", "--op", "drop")
    assert drop["gtid"] == "0-1-32"
    assert drop["before"].split(",")[-1] == "0-1-31" or "0-1-31" in drop["before"]
    assert drop["statement"] == "DROP TABLE d.gone /* by hand */"
    assert drop["tables"] == {"d.gone": ["drop"]}
    assert drop["time"] == "2026-05-28T20:27:21Z"
    assert {one["gtid"] for one in found(store, "--op", "drop")} == {"0-1-31", "0-1-32"}
    assert [one["gtid"] for one in found(store, "--table", "d.t12")] == ["0-1-12"]
    assert [one["gtid"] for one in found(store, "--larger-than", "64K")] == ["0-1-31"]
    assert len(found(store, "--op", "insert", "--limit", "3")) == 3
    assert found(store, "--table", "other.gone") == []


def test_a_gtid(store: Path) -> None:
    (one,) = found(store, "--gtid", "1-1-21")
    assert (one["gtid"], one["time"]) == ("1-1-21", "2026-05-28T20:27:01Z")
    assert set(one["before"].split(",")) == {"1-1-19", "0-1-20"}
    assert set(one["behind"].split(",")) == {"1-1-21", "0-1-20"}
    assert found(store, "--gtid", "1-1-22") == []


def test_index(store: Path, tmp_path: Path) -> None:
    """It says the same with it, reads less, and is made again when it is damaged or of another store."""
    index = tmp_path / "index"
    asked = [
        ("--table", "gone"),
        ("--larger-than", "1K"),
        ("--at", "2026-05-28T20:27:00Z"),
        ("--gtid", "0-1-2"),
    ]
    plain = [found(store, *one) for one in asked]
    for _ in range(2):
        assert [found(store, *one, "--index", index) for one in asked] == plain
    kept = sorted(index.iterdir())
    assert len(kept) >= 2
    kept[0].write_bytes(b"[1, 2")
    kept[1].write_bytes(b"\xff")
    (index / "old.facts.json").write_text("[]")
    assert [found(store, *one, "--index", index) for one in asked] == plain
    assert sorted(index.iterdir()) == kept
    assert kept[0].read_bytes() != b"[1, 2"


def test_an_archive_that_was_put_back(tmp_path: Path) -> None:
    """With an index it is found out, and `compare` knows by the same; without one nobody can."""
    engine = IbbEngine(OsDisk(tmp_path / "store"), StoreOptions(1 << 20))
    fill(engine)
    archiver = StoreArchiver(engine, tmp_path / "archive")
    archiver.step()
    older = (tmp_path / "archive" / MANIFEST_NAME).read_bytes()
    gtid = Gtid(0, 1, 33)
    engine.append(ddl_group(gtid, "DROP TABLE d.other", timestamp=NOON + 42), gtid)
    engine.sync()
    archiver.step()
    archiver.close()
    engine.close()
    asked = ("find", tmp_path / "archive", "--gtid", "0-1-33", "--index")
    assert run(*asked, tmp_path / "index").code == 0
    (tmp_path / "archive" / MANIFEST_NAME).write_bytes(older)
    ran = run(*asked, tmp_path / "index")
    assert "was put back: its manifest is an older one" in ran.err
    assert f"delete {tmp_path / 'index'}" in ran.err
    both = ("compare", tmp_path / "archive", tmp_path / "store", "--index")
    assert "was put back" in run(*both, tmp_path / "index").err
    assert run(*both, tmp_path / "other").code == 0
    assert "no such group" in run(*asked, tmp_path / "other").err


def test_files_that_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = IbbEngine(OsDisk(tmp_path / "store"), StoreOptions(1 << 20))
    fill(engine)
    engine.close()
    asked = (tmp_path / "store", "--table", "d.gone", "--index", tmp_path / "index")
    found(*asked)
    read: list[int] = []
    groups = OfflineBinlog.groups

    def noted(binlog: OfflineBinlog, first: int | None = None) -> Iterator[OfflineGroup]:
        assert first is not None
        read.append(first)
        return groups(binlog, first)

    monkeypatch.setattr(OfflineBinlog, "groups", noted)
    assert len(found(*asked)) == 1
    assert read == [2]


def test_purged(tmp_path: Path) -> None:
    """The first group that is left says nothing of the time of those before."""
    options = StoreOptions(1 << 20, slave_connections_needed_for_purge=0)
    engine = IbbEngine(OsDisk(tmp_path / "store"), options)
    fill(engine)
    engine.purge_to(1)
    engine.close()
    ran = run("find", tmp_path / "store", "--at", "2026-05-28T20:26:45Z")
    assert ran.code == 1
    assert "nobody knows what was purged of 2026-05-28T20:26:45Z" in ran.err
    assert found(tmp_path / "store", "--at", "2026-05-28T20:27:00Z")[0]["gtid"] == "0-1-20"


WRONG = {
    (): "give --at, or --gtid, or some of",
    ("--at", "2026-05-28", "--op", "drop"): "give --at, or --gtid, or some of",
    ("--at", "noon"): "'noon' is no time such as",
    ("--gtid", "1"): "1",
    ("--larger-than", "many"): "no size such as 64K, 16M or 1G",
}


@pytest.mark.parametrize("arguments", WRONG)
def test_wrong_usage(arguments: tuple[str, ...], tmp_path: Path) -> None:
    ran = run("find", tmp_path, *arguments)
    assert ran.code == 2
    assert WRONG[arguments] in ran.err


def test_no_store(tmp_path: Path) -> None:
    assert run("find", tmp_path, "--op", "drop").code == 1
    assert run("find", tmp_path / "no", "--op", "drop").code == 1


@pytest.mark.parametrize(
    "wanted", [("--gtid", "0-1-1"), ("--at", "2026-05-28T20:26:40Z"), ("--op", "drop")]
)
def test_a_store_that_has_lost_its_files(wanted: tuple[str, str], tmp_path: Path) -> None:
    """Nothing but the next file is left, which has not begun."""
    engine = IbbEngine(OsDisk(tmp_path), StoreOptions(1 << 20))
    gtid = Gtid(0, 1, 1)
    engine.append(ddl_group(gtid, "DROP TABLE d.gone", timestamp=NOON), gtid)
    engine.sync()
    engine.close()
    (tmp_path / "binlog-000000.ibb").unlink()
    (tmp_path / "binlog-000001.ibb").write_bytes(bytes(1 << 16))
    ran = run("find", str(tmp_path), *wanted)
    assert ran.code == 1
    assert "Traceback" not in ran.err
