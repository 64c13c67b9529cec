"""What reading a part needs, and what is not believed of one."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from binlog_pipeline.sources.archive import ArchiveSource
from binlog_pipeline.sources.directory import DirectorySource
from binlog_storage.archive.archive import Archive
from binlog_storage.archive.errors import ArchiveDamaged, PyarrowMissing
from binlog_storage.archive.manifest import MANIFEST_NAME, part_name
from binlog_storage.archive.part_reader import PartReader
from binlog_storage.archive.placed_groups import part_writer

from tests.pipeline.archives import grow, replayed, rows, run, stored
from tests.storage.archive.test_publisher import part
from tests.storage.groups import simple


def test_without_pyarrow_it_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "pyarrow"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(PyarrowMissing, match=r"pip install '\.\[jobs\]'"):
        PartReader(tmp_path, part(1))
    monkeypatch.delitem(sys.modules, "binlog_storage.archive.part_writer", raising=False)
    with pytest.raises(PyarrowMissing, match=r"pip install '\.\[archive\]'"):
        part_writer()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """0-1-1 to 0-1-12 in one part."""
    folder = tmp_path_factory.mktemp("hostile")
    grow(folder / "store", simple(12, size=100))
    run(DirectorySource(str(folder / "store")), folder / "archive")
    return folder / "archive"


@pytest.fixture
def archive(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "archive")
    return tmp_path / "archive"


def change(archive: Path, **values: Any) -> None:
    """Of the first part, in the manifest, which says itself that it is right."""
    body = json.loads((archive / MANIFEST_NAME).read_bytes())
    body["parts"][0].update(values)
    _seal(archive, body)


def _seal(archive: Path, body: dict[str, Any]) -> None:
    body.pop("sha256", None)
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    body["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    (archive / MANIFEST_NAME).write_text(json.dumps(body))


def rewrite(archive: Path, made: Callable[[pa.Table], pa.Table], **settings: Any) -> None:
    """The part, and the manifest with its size and sha256."""
    path = archive / part_name(1)
    table = made(pq.read_table(path))
    encoding: dict[str, Any] = {"use_dictionary": False, "compression": "zstd", **settings}
    with pq.ParquetWriter(path, table.schema, **encoding) as writer:
        writer.write_table(table)
    data = path.read_bytes()
    change(archive, size=len(data), sha256=hashlib.sha256(data).hexdigest())


def with_gtids(**more: int) -> Callable[[pa.Table], pa.Table]:
    def made(table: pa.Table) -> pa.Table:
        gtids = [
            one and {name: value + more.get(name, 0) for name, value in one.items()}
            for one in table["gtid"].to_pylist()
        ]
        return _with(table, "gtid", pa.array(gtids, table.schema.field("gtid").type))

    return made


def _with(table: pa.Table, name: str, column: Any) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, column)


def _no_whole_gtids(table: pa.Table) -> pa.Table:
    gtids = [one and {**one, "seq": None} for one in table["gtid"].to_pylist()]
    return _with(table, "gtid", pa.array(gtids, table.schema.field("gtid").type))


def _data_of(value: bytes | None) -> Callable[[pa.Table], pa.Table]:
    return lambda table: _with(table, "data", pa.array([value] * len(table), pa.binary()))


def _fifo(archive: Path) -> None:
    (archive / part_name(1)).unlink()
    os.mkfifo(archive / part_name(1))
    change(archive, size=0)


def _device(archive: Path) -> None:
    (archive / part_name(1)).unlink()
    (archive / part_name(1)).symlink_to("/dev/zero")
    change(archive, size=0)


def _outside(archive: Path) -> None:
    (archive / part_name(1)).rename(archive.parent / "outside.parquet")
    change(archive, name="../outside.parquet")


def _twice(archive: Path) -> None:
    body = json.loads((archive / MANIFEST_NAME).read_bytes())
    _seal(archive, {**body, "parts": body["parts"] * 2})


def _rows(made: Callable[[pa.Table], pa.Table], **settings: Any) -> Callable[[Path], None]:
    return lambda archive: rewrite(archive, made, **settings)


def _says(**values: Any) -> Callable[[Path], None]:
    return lambda archive: change(archive, **values)


def _small_by_its_footer(archive: Path) -> None:
    """The bomb of below, and a footer that says 2 MiB."""
    rewrite(archive, lambda table: pa.concat_tables([_data_of(bytes(1 << 20))(table)] * 8))
    path = archive / part_name(1)
    data = path.read_bytes()
    at = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    footer, group = data[at:], pq.ParquetFile(path).metadata.row_group(0)
    for size in (
        group.column(group.num_columns - 1).total_uncompressed_size,
        group.total_byte_size,
    ):
        assert _thrift(size) in footer
        footer = footer.replace(_thrift(size), _thrift(2 << 20))
    _put_part(archive, data[:at] + footer)


def _no_nulls_by_its_schema(archive: Path) -> None:
    """And counts of values and nulls all the same: pyarrow 26 ends the process when it is asked for that column."""
    data = (archive / part_name(1)).read_bytes()
    optional, required = (b"\x25" + kind + b"\x18\x04file" for kind in (b"\x02", b"\x00"))
    assert data.count(optional) == 1
    _put_part(archive, data.replace(optional, required))


def _put_part(archive: Path, data: bytes) -> None:
    """Another first part."""
    (archive / part_name(1)).write_bytes(data)
    change(archive, size=len(data), sha256=hashlib.sha256(data).hexdigest())


def _thrift(number: int) -> bytes:
    """Not negative, in the compact protocol."""
    number <<= 1
    made = b""
    while number > 127:
        made += bytes((number & 127 | 128,))
        number >>= 7
    return made + bytes((number,))


HOSTILE: dict[str, tuple[Callable[[Path], None], str]] = {
    "fifo": (_fifo, "it is a FIFO"),
    "device": (_device, "it is a .*device"),
    "outside": (_outside, r"says '\.\./outside\.parquet' where part-00000001"),
    "twice": (_twice, r"says 'part-00000001\.parquet' where part-00000002"),
    "another number": (_rows(with_gtids(seq=100)), "call group 0-1-101 is group 0-1-1 by"),
    "another domain": (_rows(with_gtids(domain=1 << 33)), "call group 8589934592-1-1 is group 0-1-1"),
    "another server": (_rows(with_gtids(server=1)), "call group 0-2-1 is group 0-1-1 by"),
    "no number": (_rows(_no_whole_gtids), "a GTID is not whole"),
    "no groups": (_rows(_data_of(None)), "a row has no data"),
    "short groups": (_rows(_data_of(b"abc")), "a group of less than 32 bytes"),
    "other groups": (_rows(_data_of(b"x" * 40)), "event of type 120"),
    "dictionary": (_rows(_data_of(bytes(1 << 20)), use_dictionary=True), "RLE_DICTIONARY"),
    "bomb": (
        _rows(lambda table: pa.concat_tables([_data_of(bytes(1 << 20))(table)] * 8)),
        r"a row group has \d+ bytes",
    ),
    "small by its footer": (_small_by_its_footer, r"a row group has 1\d{8} bytes"),
    "counts of nulls": (_no_nulls_by_its_schema, "counts of other levels than a column has"),
    "no such column": (_rows(lambda table: table.drop_columns(["offset"])), "its columns are"),
    "another column": (
        _rows(lambda table: _with(table, "data", table["data"].cast(pa.large_binary()))),
        "its columns are",
    ),
    "no end": (
        _rows(lambda table: _with(table, "is_last", pa.array([False] * len(table)))),
        "in the middle of a group",
    ),
    "an end in between": (
        _rows(lambda table: _with(table, "is_last", pa.array([n != 5 for n in range(len(table))]))),
        "a group of several rows is not alone in its row group",
    ),
    "ends in the middle": (
        _rows(lambda table: _with(table, "is_last", pa.array([n == 5 for n in range(len(table))]))),
        "a group of several rows is not alone in its row groups",
    ),
    "nothing": (_rows(lambda table: table.slice(0, 0)), "it has 0 groups, .* says 12"),
    "more groups": (_says(groups=1000), "it has 12 groups, and the manifest says 1000"),
    "more state": (_says(gtids="0-1-1000"), "it ends at '0-1-12', .* says '0-1-1000'"),
    "later times": (_says(ts_min=1), "its groups are of the times 0 to 0, .* says 1 to 0"),
    "more times": (_says(ts_max=9), "its groups are of the times 0 to 0, .* says 0 to 9"),
    "another place": (_says(last_place=[7, 7]), r"its last group ends at \(0, \d+\), .* says \(7, 7\)"),
    "another last": (_says(last="0-1-1000"), "it has the groups 0-1-1 to 0-1-12"),
    **{
        f"{name}={value!r}"[:40]: (_says(**{name: value}), f"damaged: .*{name}")
        for name, value in (
            ("size", "x"), ("size", None), ("size", -1), ("size", True), ("groups", "12"), ("groups", 1e999),
            ("crc32c", None), ("name", 5), ("file_base", "x"), ("file_base", 1 << 70), ("ts_min", "x"),
            ("last_place", ["a", None]), ("last_place", [1]), ("gtids", 7),
        )
    },
    "no place": (_says(last_place=None), "damaged"),
    "bad list": (_says(gtids="0-1-1,,"), "damaged"),
    "bad last": (_says(last="abc"), "damaged"),
    "NUL": (_says(name="a\0b"), r"says 'a\\x00b'"),
    "surrogate": (_says(name="\ud800"), r"says '\\ud800'"),
    "deep": (lambda archive: _put(archive, b"[" * 9_000), "damaged: .*recursion"),
    "many lists": (
        lambda archive: _put(archive, b'{"x":[' + b"[]," * 20_000 + b"[]]}"),
        "made of 40005 values, too many for 60010 bytes",
    ),
    "many texts": (
        lambda archive: _put(archive, b'{"x":[' + b'"",' * 20_000 + b'""]}'),
        "made of 60006 values, too many for 60010 bytes",
    ),
}  # fmt: skip


@pytest.mark.parametrize("value", [float("inf"), float("nan"), -1, "5", None, 1 << 62])
def test_a_number_of_numbers_that_is_none(archive: Path, value: object) -> None:
    body = json.loads((archive / MANIFEST_NAME).read_bytes())
    _seal(archive, body | {"numbers": value})
    with pytest.raises(ArchiveDamaged, match="damaged"):
        Archive.open(archive)


def test_a_manifest_of_any_depth_is_an_error_of_ours(archive: Path) -> None:
    """What can still be read may be too deep to be written again for its checksum."""
    head = b'{"format": "binlog archive", "version": 1, "x": '
    for depth in range(850, 1000):
        _put(archive, head + b"[" * depth + b"]" * depth + b"}")
        with pytest.raises(ArchiveDamaged):
            Archive.open(archive)


def _put(archive: Path, data: bytes) -> None:
    (archive / MANIFEST_NAME).write_bytes(data)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", HOSTILE)
def test_what_a_hostile_archive_says_is_not_believed(
    archive: Path, made: Path, tmp_path: Path, name: str
) -> None:
    """And what was taken of it until then are groups that were archived, in a store that starts again."""
    make, told = HOSTILE[name]
    make(archive)
    with pytest.raises(ArchiveDamaged, match=told):
        replayed(archive, tmp_path / "back")
    with pytest.raises(ArchiveDamaged, match=told):
        rows(ArchiveSource(str(archive)))
    if (tmp_path / "back").exists():
        grow(tmp_path / "back", [])
        found = stored(tmp_path / "back")
        assert found == stored(made.parent / "store")[: len(found)]


def test_groups_that_are_none_behind_a_good_beginning(archive: Path, tmp_path: Path) -> None:
    """A store would have them for good, and each replica would stop there."""
    cut = _rows(
        lambda table: _with(
            table, "data", pa.array([data[:-31] for data in table["data"].to_pylist()], pa.binary())
        )
    )
    cut(archive)
    with pytest.raises(ArchiveDamaged):
        replayed(archive, tmp_path / "back")
    grow(tmp_path / "back", [])
    assert stored(tmp_path / "back") == []


def test_a_part_that_gets_another_file_while_it_is_read(archive: Path) -> None:
    """The one that was looked at is read."""
    path = archive / part_name(1)
    expected = rows(ArchiveSource(str(archive)))
    reader = PartReader(archive, next(Archive.open(archive).parts()).part)
    data = path.read_bytes()
    path.rename(archive / "away")  # its ctime may be another one now, and its bytes are not
    path.write_bytes(b"nothing of a part")
    assert b"".join(p for some in reader.rows() for p in some.payloads()) == b"".join(
        row[-1] for row in expected
    )
    (archive / "away").write_bytes(data)  # as it was
    assert sum(len(some.ends) for some in reader.rows()) == 12
    (archive / "away").write_bytes(bytes((data[0], data[1] ^ 1)) + data[2:])
    with pytest.raises(ArchiveDamaged, match="its bytes were changed while it was read"):
        list(reader.rows())


def test_a_row_group_is_as_large_as_what_was_read_at_one_go(tmp_path: Path) -> None:
    """An archive of an archive does not have larger ones."""
    grow(tmp_path / "store", simple(60, size=400_000))
    run(DirectorySource(str(tmp_path / "store")), tmp_path / "one", partition_bytes=1 << 30)
    run(ArchiveSource(str(tmp_path / "one")), tmp_path / "two", partition_bytes=1 << 30)
    for path in (tmp_path / "one" / part_name(1), tmp_path / "two" / part_name(1)):
        read = pq.ParquetFile(path).metadata
        sizes = [read.row_group(i).total_byte_size for i in range(read.num_row_groups)]
        assert max(sizes) < 9 << 20
