"""An archive whose files were changed: what is read of it is what was archived, or an error of ours."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import shutil
import tempfile
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from binlog_pipeline.sources.directory import DirectorySource
from binlog_protocol.groups.group_runs import GroupRun
from binlog_protocol.groups.stored_group import group_gtid
from binlog_protocol.gtid import Gtid
from binlog_storage.archive.archive import Archive
from binlog_storage.archive.archiver import StoreArchiver
from binlog_storage.archive.files import ArchiveFiles
from binlog_storage.archive.manifest import MANIFEST_NAME
from binlog_storage.archive.part_reader import PartReader
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.disk import OsDisk
from binlog_storage.errors import StorageError
from binlog_storage.ibb.page import PAGE_SIZE, seal

from tests.binlog_server.lab import transaction
from tests.fuzz import frames
from tests.fuzz.mutation import mutated
from tests.fuzz.target import Wrong
from tests.pipeline.archives import SMALL, grow, run
from tests.storage.archive.ibb_parts import put_together, taken_apart
from tests.storage.groups import Group

_PARTS: Final = 3


class Archives:
    """The first part: which file; the second: its bytes, or nothing for a file that has gone; the third: how.

    1 makes the manifest's sha256 right, 2 also what it says of a part that was changed, 3 puts a FIFO there.
    """

    name = "archives"
    time_s = 3.0
    per_life = 1000

    def open(self) -> None:
        memory = Path("/dev/shm")
        parent = memory if memory.is_dir() else None
        self._folder = Path(tempfile.mkdtemp(prefix="binlog-fuzz-archive-", dir=parent))
        self._archive = self._folder / "archive"
        self._groups = _archive(self._folder / "store", self._archive)
        self._sound = {path.name: path.read_bytes() for path in self._archive.iterdir()}
        self._files = sorted(self._sound)

    def close(self) -> None:
        shutil.rmtree(self._folder)

    def make(self, rng: random.Random) -> bytes:
        # Parts have a checksum over all of their bytes: the manifest is where more can go wrong.
        names = [name for name in self._files if name.endswith(".json")] * 6 + self._files
        name = rng.choice(names)
        changed = b"" if rng.random() < 0.02 else mutated(self._sound[name], rng, _WORDS)
        if name.endswith(".ibb.zst") and rng.random() < 0.8:
            changed = _with_another_frame(self._sound[name], rng)
            return frames.joined([name.encode(), changed, b"\2"])
        if name.endswith(".parquet") and rng.random() < 0.8:
            changed = _with_another_column(self._sound[name], rng)
            return frames.joined([name.encode(), changed, b"\3" if rng.random() < 0.05 else b"\2"])
        return frames.joined([name.encode(), changed, bytes([rng.random() < 0.6])])

    def run(self, data: bytes) -> None:
        name, changed, right = [*frames.split(data), b"", b"", b""][:3]
        shown = name.decode("utf-8", "replace")
        if shown not in self._files:
            return
        path = self._archive / shown
        try:
            path.write_bytes(_summed(changed) if right == b"\1" else changed)
            if right == b"\2" and shown.endswith((".parquet", ".ibb.zst")):
                manifest = _with_part(self._sound[MANIFEST_NAME], shown, changed)
                (self._archive / MANIFEST_NAME).write_bytes(manifest)
            if not changed or right == b"\3":
                path.unlink()
            if right == b"\3":
                os.mkfifo(path)
            self._read()
        finally:
            path.unlink(missing_ok=True)
            path.write_bytes(self._sound[shown])
            (self._archive / MANIFEST_NAME).write_bytes(self._sound[MANIFEST_NAME])
        if {path.name for path in self._archive.iterdir()} != set(self._sound):
            raise Wrong("reading has made or removed files")

    def _read(self) -> None:
        with contextlib.suppress(StorageError):
            found = []
            for placed in Archive.open(self._archive).parts():
                reader = PartReader(self._archive, placed.part)
                reader.check()
                found += [payload for rows in reader.rows() for payload in rows.payloads()]
            if not all(payload in self._groups for payload in found):
                raise Wrong("a group is read that nobody has archived")
            manifest = Archive.open(self._archive).manifest
            if manifest.groups != len(found):
                raise Wrong("the manifest says other groups than there are, and nobody minds")
        with contextlib.suppress(StorageError):
            for item in ArchiveFiles(self._archive).items(0):
                if isinstance(item, GroupRun) and any(
                    item.gtid(i) != group_gtid(item.payload(i)) for i in range(len(item))
                ):
                    raise Wrong("a group is stored under the GTID of another")


_WORDS: Final = (
    b'"parts":[]', b"null", b"-1", b"1e999", b"18446744073709551616", b'"../../etc/passwd"', b'"0-1-1"', b"[[[[[[[[",
    b"{}", b'"\\ud800"', b'"part-00000001.parquet"', b"true", b'"name":"/dev/zero"',
)  # fmt: skip


def _archive(store: Path, archive: Path) -> set[bytes]:
    made = []
    for number in range(1, 31):
        gtid = Gtid(0, 1, number)
        made.append(Group(transaction(gtid, f"INSERT INTO t VALUES ({number})"), gtid))
    for begin in range(0, 30, 30 // _PARTS):
        grow(store, made[begin : begin + 30 // _PARTS])
        if begin:
            run(DirectorySource(str(store)), archive)
        else:
            _archived_by_server(store, archive)
    return {payload for payload, _ in made}


def _archived_by_server(store: Path, archive: Path) -> None:
    """As a part of `.ibb` pages."""
    engine = IbbEngine(OsDisk(store), SMALL)
    archiver = StoreArchiver(engine, archive, form="ibb")
    archiver.step()
    archiver.close()
    engine.close()


def _with_another_frame(data: bytes, rng: random.Random) -> bytes:
    """A part whose pages, places or list of frames are others; as a rule pages have their checksums."""
    parts = taken_apart(data)
    listed, pages, places = parts
    number = rng.randrange(len(listed))
    what = rng.randrange(4)
    if what == 0:
        name = rng.choice(("begin", "pages", "rows", "kind"))
        value = rng.choice((-1 if name == "begin" else 0, 1, 2, 5, 0xFF))
        listed[number] = listed[number]._replace(**{name: value})
    elif what == 1:
        places[number] = mutated(places[number], rng)
    else:
        begin = rng.randrange(0, len(pages[number]), PAGE_SIZE)
        page = mutated(pages[number][begin : begin + PAGE_SIZE], rng)
        page = page[:PAGE_SIZE].ljust(PAGE_SIZE, b"\0")
        made = seal(bytearray(page)) if rng.random() < 0.9 else page
        pages[number] = pages[number][:begin] + made + pages[number][begin + PAGE_SIZE :]
    return put_together(parts)


def _with_another_column(data: bytes, rng: random.Random) -> bytes:
    """A part that was written again: numbers, ends or bytes are others, a column is missing, all is larger."""
    table = pq.read_table(pa.BufferReader(data))
    rows = table.to_pylist()
    names = table.column_names
    row = rng.choice(rows)
    column = rng.choice(names)
    settings: dict[str, Any] = {"use_dictionary": rng.random() < 0.2}
    what = rng.randrange(6)
    if what == 0 and row["gtid"]:
        field = rng.choice(("domain", "server", "seq"))
        row["gtid"][field] = rng.choice((None, 0, -1, 1 << 32, row["gtid"][field] + (1 << 33), 77))
    elif what == 1:
        row[column] = None
    elif what == 2:
        row["is_last"] = False
    elif what == 3:
        rows = rows[:-1] if rng.random() < 0.5 else rows + rows[-1:]
    elif what == 4:
        row["data"] += bytes(rng.choice((1, 1 << 20)))
        rows += [row] * rng.choice((1, 20)) if settings["use_dictionary"] else []
    changed = pa.Table.from_pylist(rows, table.schema)
    if what == 5:
        changed = changed.drop_columns([column])
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, changed.schema, compression="zstd", **settings) as writer:
        if rng.random() < 0.1:
            writer.write_table(changed.slice(0, 0))
        writer.write_table(changed)
    return bytes(sink.getvalue().to_pybytes())


def _with_part(manifest: bytes, name: str, data: bytes) -> bytes:
    """The manifest, with the size and the sha256 of that part."""
    body = json.loads(manifest)
    for part in body["parts"]:
        if part["name"] == name:
            part.update(size=len(data), sha256=hashlib.sha256(data).hexdigest())
    return _summed(json.dumps(body).encode())


def _summed(data: bytes) -> bytes:
    """A manifest that says itself that it is whole, if it is JSON at all."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return data
    if not isinstance(value, dict):
        return data
    value.pop("sha256", None)
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    value["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    return json.dumps(value).encode()
