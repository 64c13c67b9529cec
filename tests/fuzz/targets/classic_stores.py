"""Files of a store of traditional binlogs, damaged: opened, read, written on.

What must be true is said in `stores.py`. Where the last file is cut, or damaged while it was in use, groups at the end
may be missing: nothing beside such files says how much of them was durable.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import logging
import random
import tempfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from binlog_protocol.events.header import split_events
from binlog_protocol.gtid import Gtid, SlavePosition
from binlog_storage.classic.gtid_index import BadIndex, IndexReader, IndexTree
from binlog_storage.classic.options import ClassicOptions
from binlog_storage.classic.store import ClassicEngine
from binlog_storage.engine import Xid
from binlog_storage.errors import StorageError
from binlog_storage.testing.memory_disk import MemoryDisk

from tests.binlog_server.lab import transaction
from tests.fuzz import frames
from tests.fuzz.mutation import mutated
from tests.fuzz.target import Wrong
from tests.storage.groups import read_from

_OPTIONS: Final = ClassicOptions(
    max_binlog_size=4096,
    slave_connections_needed_for_purge=0,
    binlog_gtid_index_page_size=64,
    binlog_gtid_index_span_min=1,
)
_NEXT: Final = Gtid(0, 1, 1000)
_PLACES: Final = (Gtid(0, 1, 2), Gtid(1, 1, 21), _NEXT)
_XID: Final = Xid(1, b"waiting")


def _written(
    *, closed: bool, options: ClassicOptions = _OPTIONS
) -> tuple[dict[str, bytes], list[bytes]]:
    disk = MemoryDisk()
    engine = ClassicEngine(disk, options, clock=lambda: 1e9)
    made = []
    for number in range(1, 31):
        gtid = Gtid(number % 2, 1, number)
        payload = transaction(gtid, f"INSERT INTO t VALUES ('{'x' * (number * 37 % 600)}')")
        engine.append(payload, gtid)
        engine.sync()
        made.append(payload)
    writer = engine.begin()
    _, *rest = split_events(transaction(_NEXT, "INSERT INTO t VALUES (2)"))
    writer.spill(b"".join(rest))
    writer.prepare(_XID)
    contents = disk.contents()
    engine.close()
    return (disk.contents() if closed else contents), made


class ClassicStores:
    """The first part: which store; then, for each damage, the number of a file and what is in it instead."""

    name = "classic_stores"
    time_s = 3.0
    per_life = 1000

    def __init__(self) -> None:
        self._bases: list[tuple[dict[str, bytes], list[bytes]]] = []

    def open(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        keys = Path(self._folder.name, "keys")
        keys.write_text("1;" + "0f" * 16)
        self._keyed = dataclasses.replace(
            _OPTIONS, encrypt_binlog=True, file_key_management_filename=str(keys)
        )
        if not self._bases:
            kinds = itertools.product((_OPTIONS, self._keyed), (True, False))
            self._bases = [_written(closed=closed, options=kind) for kind, closed in kinds]
        logging.getLogger("binlog_storage.classic").setLevel(logging.CRITICAL)

    def close(self) -> None:
        logging.getLogger("binlog_storage.classic").setLevel(logging.NOTSET)
        self._folder.cleanup()

    def make(self, rng: random.Random) -> bytes:
        which = rng.randrange(4)
        contents = self._bases[which][0]
        parts = [bytes([which])]
        for _ in range(rng.choice((1, 1, 2))):
            at = rng.randrange(len(contents))
            parts.append(bytes([at]) + mutated(contents[sorted(contents)[at]], rng, most=2))
        return frames.joined(parts)

    def run(self, data: bytes) -> None:
        how, *damages = frames.split(data) or [b""]
        which = how[0] % 4 if how else 0
        original, groups = self._bases[which]
        contents = dict(original)
        names = sorted(contents)
        for damage in damages:
            if damage:
                contents[names[damage[0] % len(names)]] = damage[1:]
        options = self._keyed if which > 1 else _OPTIONS
        _check(contents, groups, options, last_whole=_last_is(contents, original))


def _last_is(contents: Mapping[str, bytes], original: Mapping[str, bytes]) -> bool:
    """Whether the index and the file that it names last are as they were."""
    last = max(name for name in original if name.removeprefix("binlog.").isdecimal())
    return all(contents[name] == original[name] for name in (last, "binlog.index"))


def _check(
    contents: Mapping[str, bytes],
    groups: list[bytes],
    options: ClassicOptions,
    *,
    last_whole: bool,
) -> None:
    disk = MemoryDisk(contents)
    try:
        engine = ClassicEngine(disk, options)
    except StorageError:
        return
    with contextlib.closing(engine):
        found = None
        with contextlib.suppress(StorageError):
            found = read_from(engine, engine.first_start().position)
            _require_part(groups, found, whole=last_whole)
        for place in _PLACES:
            with contextlib.suppress(StorageError):
                start = engine.find_start(SlavePosition([place])).position
                _require_part(groups, read_from(engine, start), whole=last_whole)
        for file in engine.files():
            with contextlib.suppress(StorageError):
                for pieces in engine.groups_of_file(file.number):
                    b"".join(pieces)
        more = transaction(_NEXT, "INSERT INTO t VALUES (1)")
        begin = engine.durable_end
        engine.append(more, _NEXT)
        engine.sync()
        if read_from(engine, begin) != [more]:
            raise Wrong("what was written behind damage is not read back")
    disk = MemoryDisk(disk.contents())
    with contextlib.closing(ClassicEngine(disk, options)) as engine:
        if found is not None:
            again = read_from(engine, engine.first_start().position)
            if again != [*found, more]:
                raise Wrong("what was written behind damage is not there after a start")


def _require_part(groups: list[bytes], found: list[bytes], *, whole: bool) -> None:
    if not found:
        return
    if found[0] not in groups:
        raise Wrong("a group was served that nobody has written")
    begin = groups.index(found[0])
    if groups[begin : begin + len(found)] != found:
        raise Wrong("the groups that were served are not those that were written, in order")
    if whole and begin + len(found) < len(groups):
        raise Wrong("groups at the end are left out without a word")


class GtidIndexes:
    """A GTID index, with the CRC-32 of each page made right again: it is refused, or it tells places that grow."""

    name = "gtid_indexes"
    time_s = 1.0
    per_life = 10_000

    def __init__(self) -> None:
        self._bases: list[bytes] = []

    def open(self) -> None:
        rng = random.Random(1)
        for page_bytes in (64, 100, 512):
            tree = IndexTree(285, [Gtid(n, 1, 1) for n in range(20)], page_bytes)
            for number in range(1, 200):
                tree.add(285 + number * 90, [Gtid(rng.randrange(30), 1, number)])
            self._bases.append(tree.finish())

    def close(self) -> None:
        self._bases.clear()

    def make(self, rng: random.Random) -> bytes:
        data = bytearray(mutated(rng.choice(self._bases), rng, most=4))
        size = int.from_bytes(data[8:12], "little")
        if 8 < size <= len(data):
            for end in range(size, len(data) + 1, size):
                data[end - 4 : end] = zlib.crc32(data[end - size : end - 4]).to_bytes(4, "little")
        return bytes(data)

    def run(self, data: bytes) -> None:
        for limit in (300, 5000, 1 << 40):
            with contextlib.suppress(BadIndex):
                index = IndexReader(_Held(data))
                index.first()
                found = index.find(lambda at, _, limit=limit: at <= limit)  # type: ignore[misc]
                if found is not None and found.offset > limit:
                    raise Wrong("a place was found that is not wanted")


class _Held:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def pread(self, size: int, offset: int) -> bytes:
        return self._data[offset : offset + size]

    def size(self) -> int:
        return len(self._data)
