"""An archive whose files were changed: what is read of it is what was archived, or an error of ours."""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import shutil
import tempfile
from pathlib import Path
from typing import Final

from binlog_pipeline.sources.directory import DirectorySource
from binlog_protocol.gtid import Gtid
from binlog_storage.archive.archive import Archive
from binlog_storage.archive.part_reader import PartReader
from binlog_storage.errors import StorageError

from tests.binlog_server.lab import transaction
from tests.fuzz import frames
from tests.fuzz.mutation import mutated
from tests.fuzz.target import Wrong
from tests.pipeline.archives import grow, run
from tests.storage.groups import Group

_PARTS: Final = 3


class Archives:
    """The first part: which file; the second: its bytes, or nothing for a file that has gone."""

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
        return frames.joined([name.encode(), changed, bytes([rng.random() < 0.6])])

    def run(self, data: bytes) -> None:
        name, changed, right = [*frames.split(data), b"", b"", b""][:3]
        shown = name.decode("utf-8", "replace")
        if shown not in self._files:
            return
        path = self._archive / shown
        try:
            path.write_bytes(_summed(changed) if right == b"\1" else changed)
            if not changed:
                path.unlink()
            self._read()
        finally:
            path.write_bytes(self._sound[shown])
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
        run(DirectorySource(str(store)), archive)
    return {payload for payload, _ in made}


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
