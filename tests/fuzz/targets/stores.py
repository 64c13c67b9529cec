"""Files of a store, damaged: opened by the server, read without one, verified.

What must be true of any damage: whoever meets it says so in an error of ours; what is read before are the groups that
were written, none left out between them; an end that comes too soon is never told as the end; and a store that is not
opened has not been changed. Where checksums are made right again the content is whoever's who made them: then only
errors of ours may come, soon.
"""

from __future__ import annotations

import contextlib
import random
import struct
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Final
from unittest import mock

import google_crc32c
from binlog_protocol.events.header import split_events
from binlog_protocol.gtid import Gtid, SlavePosition
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.state import STATE_NAME, StateStore
from binlog_storage.errors import StorageError
from binlog_storage.ibb.file_names import file_name, file_number
from binlog_storage.ibb.page import PAGE_SIZE, ZERO_PAGE, is_sound, seal
from binlog_storage.ibb.xa import Xid
from binlog_storage.log import pages
from binlog_storage.log.groups import OfflineBinlog
from binlog_storage.log.publication import PUBLICATION_NAME
from binlog_storage.redo.format import (
    BLOCK,
    CHECKPOINT_AT,
    KIND_FLUSHED,
    MTR_MAGIC,
    REDO_NAME,
    RING_AT,
    Checkpoint,
)
from binlog_storage.testing.memory_disk import MemoryDisk
from binlog_storage.verify.verify import Verifier

from tests.binlog_server.lab import transaction
from tests.fuzz import frames
from tests.fuzz.target import Wrong
from tests.storage.groups import read_all, read_from
from tests.storage.sizes import small

OPTIONS: Final = small(4)
_DAMAGE: Final = struct.Struct("<BBIIH")  # what, which file, where, a value, another one
_MTR_HEAD: Final = struct.Struct("<4sIQI")
_NEXT: Final = Gtid(0, 1, 1000)
_PLACES: Final = (Gtid(0, 1, 2), Gtid(1, 1, 21), Gtid(0, 1, 38), _NEXT)  # of replicas
Contents = dict[str, bytearray]


class Base:
    """A store that was written, and what is in it."""

    def __init__(
        self, contents: Mapping[str, bytes], groups: Sequence[bytes], *, whole: bool
    ) -> None:
        self.contents: Final = dict(contents)
        self.groups: Final = list(groups)
        self.whole: Final = whole
        """All groups are in the files: it was closed, not killed."""
        self.next: Final = transaction(_NEXT)
        """That may be written then."""
        self._logged: Final = _mini_transactions(contents[REDO_NAME])

    def may_end_early(self, redo: bytes) -> bool:
        """Whether the redo log looks as if the power had gone within its last write: then nobody can tell otherwise.

        What is written next says how much was durable before (FLUSHED): of that nothing may be missing.
        """
        original = self.contents[REDO_NAME]
        sound = [redo[at:end] == original[at:end] for _, at, end in self._logged]
        if all(sound):
            return False
        first = sound.index(False)
        begin = self._logged[first][0]
        behind = zip(self._logged[first:], sound[first:], strict=True)
        claims = [_claim(redo[at:end]) for (_, at, end), is_sound in behind if is_sound]
        return all(claim <= begin for claim in claims)


def _claim(mini_transaction: bytes) -> int:
    """Up to which LSN it says that everything was durable; 0 if it says nothing of that."""
    at = _MTR_HEAD.size
    is_flushed = mini_transaction[at] & 0xF0 == KIND_FLUSHED
    return int.from_bytes(mini_transaction[at + 1 : at + 9], "little") if is_flushed else 0


def bases() -> list[Base]:
    """Closed and killed, each with files that are full, one that is being written, and one made ahead.

    The last two have all that there is, the others groups of one record alone.
    """
    return [_written(seed, closed=closed) for seed in (1, 2, 3) for closed in (True, False)]


def _written(seed: int, *, closed: bool) -> Base:
    rng = random.Random(seed)
    disk = MemoryDisk()
    facts = StateStore(disk)
    facts.set("store", "binlog-server")
    engine = IbbEngine(disk, OPTIONS, facts=facts)
    made = []
    for number in range(1, 41):
        gtid = Gtid(number % 2, 1, number)
        text = "INSERT INTO t VALUES ('" + "x" * rng.choice((10, 300, 3000, 15000)) + f"{number}')"
        payload = transaction(gtid, text)
        _append(engine, payload, gtid, rng.choice(_WAYS) if seed == 3 else "append")
        engine.sync()
        if rng.random() < 0.5:
            engine.step()
        made.append(payload)
    if closed:
        engine.close()
        contents = disk.contents()
    else:
        contents = disk.contents()
        engine.close()
    return Base(contents, made, whole=closed)


_WAYS: Final = ("append", "append", "spill", "behind one that is lost", "prepare", "behind a flush")


def _append(engine: IbbEngine, payload: bytes, gtid: Gtid, way: str) -> None:
    """In one record, or in pieces, by XA, behind something that is no group."""
    while not engine.has_room_to_spill:
        engine.step()
    head = next(split_events(payload))
    rest = payload[len(head) :]
    xid = Xid(1, b"%d" % gtid.seq_no)
    if way == "spill":
        writer = engine.begin()
        for at in range(0, len(rest), len(rest) // 3 + 1):
            writer.spill(rest[at : at + len(rest) // 3 + 1])
        writer.commit(head, gtid)
        return
    if way == "prepare":
        writer = engine.begin()
        writer.spill(rest)
        writer.prepare(xid)
        engine.commit_prepared(xid, head, gtid)
        other = engine.begin()
        other.spill(rest)
        other.prepare(xid)  # for ever, or until there is another
        for waiting in engine.prepared()[:-1]:
            engine.rollback_prepared(waiting)
        return
    if way == "behind one that is lost":
        writer = engine.begin()
        writer.spill(rest[:3000])
        writer.rollback()
    if way == "behind a flush":
        engine.flush()
    engine.append(payload, gtid)


# --- damage ---


def _names(contents: Contents) -> list[str]:
    return sorted(contents)


def _set(contents: Contents, name: str, at: int, value: int, other: int) -> None:
    data = contents[name]
    if data:
        data[at % len(data)] = value & 0xFF


def _flip(contents: Contents, name: str, at: int, value: int, other: int) -> None:
    data = contents[name]
    if data:
        data[at % len(data)] ^= 1 << (value & 7)


def _zeros(contents: Contents, name: str, at: int, value: int, other: int) -> None:
    """A page, or more of them."""
    data = contents[name]
    begin = at % (len(data) + 1) // PAGE_SIZE * PAGE_SIZE
    end = min(len(data), begin + (1 + other % 4) * PAGE_SIZE)
    data[begin:end] = bytes(end - begin)


def _page_of_another(contents: Contents, name: str, at: int, value: int, other: int) -> None:
    data = contents[name]
    names = _names(contents)
    source = contents[names[other % len(names)]]
    begin = at % (len(data) + 1) // PAGE_SIZE * PAGE_SIZE
    taken = value % (len(source) + 1) // PAGE_SIZE * PAGE_SIZE
    data[begin : begin + PAGE_SIZE] = source[taken : taken + PAGE_SIZE]


def _cut(contents: Contents, name: str, at: int, value: int, other: int) -> None:
    data = contents[name]
    del data[
        (at % (len(data) + 1)) if other & 1 else at % (len(data) + 1) // PAGE_SIZE * PAGE_SIZE :
    ]


def _longer(contents: Contents, name: str, at: int, value: int, other: int) -> None:
    contents[name] += bytes((other % 5) * PAGE_SIZE if value & 1 else other % 5000)


def _gone(contents: Contents, name: str, at: int, value: int, other: int) -> None:
    del contents[name]


def _twin(contents: Contents, name: str, at: int, value: int, other: int) -> None:
    """A copy under another number, which may be that of a file that is there."""
    if file_number(name) is not None:
        contents[file_name(value % 12)] = bytearray(contents[name])


def _swapped(contents: Contents, name: str, at: int, value: int, other: int) -> None:
    names = _names(contents)
    second = names[other % len(names)]
    contents[name], contents[second] = contents[second], contents[name]


def _emptied(contents: Contents, name: str, at: int, value: int, other: int) -> None:
    contents[name].clear()


def _number(contents: Contents, name: str, at: int, value: int, other: int) -> None:
    """Four bytes, anywhere in the head of a page, where lengths and references are."""
    data = contents[name]
    if data:
        begin = at % len(data) // PAGE_SIZE * PAGE_SIZE + other % 80
        data[begin : begin + 4] = value.to_bytes(4, "little")[: max(0, len(data) - begin)]


Damage = Callable[[Contents, str, int, int, int], None]
DAMAGES: Final[Sequence[Damage]] = (
    _set, _flip, _zeros, _page_of_another, _cut, _longer, _gone, _twin, _swapped, _emptied, _number,
)  # fmt: skip


def damaged(base: Base, instructions: Sequence[bytes], names: Sequence[str]) -> Contents:
    """A copy on which these were done; whatever is no instruction is passed over."""
    contents = {name: bytearray(data) for name, data in base.contents.items()}
    for instruction in instructions:
        if len(instruction) != _DAMAGE.size:
            continue
        what, which, at, value, other = _DAMAGE.unpack(instruction)
        name = names[which % len(names)]
        if name in contents:
            DAMAGES[what % len(DAMAGES)](contents, name, at, value, other)
    return contents


def reseal(contents: Contents) -> None:
    """Checksums of pages and of the redo log, made right again."""
    for name, data in contents.items():
        if file_number(name) is not None:
            for at in range(0, len(data) - PAGE_SIZE + 1, PAGE_SIZE):
                page = data[at : at + PAGE_SIZE]
                if any(page):
                    data[at : at + PAGE_SIZE] = seal(page)
    redo = contents.get(REDO_NAME)
    if redo is not None:
        at = RING_AT
        while (at := redo.find(MTR_MAGIC, at)) >= 0 and at + _MTR_HEAD.size <= len(redo):
            size = _MTR_HEAD.unpack_from(redo, at)[3]
            end = at + size - 4
            if _MTR_HEAD.size <= size - 4 and end + 4 <= len(redo):
                redo[end : end + 4] = google_crc32c.value(bytes(redo[at:end])).to_bytes(4, "little")
            at += 4


def _mini_transactions(redo: bytes) -> list[tuple[int, int, int]]:
    """LSN, beginning and end of those that are replayed, in the order in which they were written."""
    checkpoints = [Checkpoint.parse(redo[at : at + BLOCK]) for at in CHECKPOINT_AT]
    begin = max(found.lsn for found in checkpoints if found is not None)
    found = []
    at = RING_AT
    while (at := redo.find(MTR_MAGIC, at)) >= 0 and at + _MTR_HEAD.size <= len(redo):
        end = at + _MTR_HEAD.unpack_from(redo, at)[3] - 4
        if at + _MTR_HEAD.size < end <= len(redo) - 4:
            crc = google_crc32c.value(redo[at:end]).to_bytes(4, "little")
            if redo[end : end + 4] == crc:
                found.append((_MTR_HEAD.unpack_from(redo, at)[2], at, end + 4))
        at += 4
    return sorted(one for one in found if one[0] >= begin)


class Stores:
    """The first part: which store, and whether checksums are made right; the others: what is damaged."""

    name = "stores"
    time_s = 3.0
    per_life = 1000
    files: tuple[str, ...] = ()
    """Of which alone; empty for all."""

    def __init__(self) -> None:
        self._bases: Sequence[Base] = ()
        self._patches = contextlib.ExitStack()

    def bases(self) -> Sequence[Base]:
        """The stores that are damaged."""
        return bases()

    def reseal(self, contents: Contents) -> None:
        """Make checksums right again."""
        reseal(contents)

    def check(self, base: Base, contents: Mapping[str, bytes], *, made_right: bool) -> None:
        """What must be true. Raises `Wrong`, and whatever should not come out of the code."""
        check(base, contents, made_right=made_right)

    def open(self) -> None:
        if not self._bases:
            self._bases = self.bases()
        # Nobody writes meanwhile: what is read again is the same, sooner or later.
        self._patches.enter_context(
            mock.patch.object(pages, "time", SimpleNamespace(sleep=lambda seconds: None))
        )

    def close(self) -> None:
        self._patches.close()

    def make(self, rng: random.Random) -> bytes:
        how = bytes([rng.randrange(256), rng.random() < 0.3])
        return frames.joined([how, *(_instruction(rng) for _ in range(rng.randrange(1, 4)))])

    def run(self, data: bytes) -> None:
        how, *instructions = frames.split(data) or [b""]
        how = how.ljust(2, b"\0")
        base = self._bases[how[0] % len(self._bases)]
        contents = damaged(base, instructions, self.files or _names(_copy(base.contents)))
        made_right = bool(how[1] & 1)
        if made_right:
            self.reseal(contents)
        made_right = made_right or _has_sound_strangers(base, contents)
        content = {name: bytes(data) for name, data in contents.items()}
        self.check(base, content, made_right=made_right)


def _has_sound_strangers(base: Base, contents: Contents) -> bool:
    """Whether a right file has sound pages of another place: nothing in a page says where it belongs."""
    for name, data in contents.items():
        original = base.contents.get(name, b"")
        if file_number(name) is None or data[:PAGE_SIZE] != original[:PAGE_SIZE]:
            continue
        for at in range(PAGE_SIZE, len(data), PAGE_SIZE):
            page = bytes(data[at : at + PAGE_SIZE])
            if page != original[at : at + PAGE_SIZE] and page != ZERO_PAGE and is_sound(page):
                return True
    return False


class Redo(Stores):
    """The same of what is no `.ibb` file alone: they are small among the others, and seldom hit."""

    name = "redo"
    files = (REDO_NAME, PUBLICATION_NAME, STATE_NAME)


def _copy(contents: Mapping[str, bytes]) -> Contents:
    return {name: bytearray(data) for name, data in contents.items()}


def _instruction(rng: random.Random) -> bytes:
    """Mostly small values: where the data are."""
    at = rng.randrange(1 << rng.choice((8, 14, 16, 17, 32)))
    value = rng.randrange(1 << rng.choice((3, 8, 16, 32)))
    return _DAMAGE.pack(rng.randrange(256), rng.randrange(256), at, value, rng.randrange(1 << 16))


# --- what must be true ---


def check(base: Base, contents: Mapping[str, bytes], *, made_right: bool) -> None:
    """Raises `Wrong`, and whatever should not come out of the code."""
    _check_offline(base, contents, made_right=made_right)
    disk = MemoryDisk(contents)
    try:
        engine = IbbEngine(disk, OPTIONS, facts=StateStore(disk))
    except StorageError:
        if disk.contents() != dict(contents):
            raise Wrong(
                f"a start that was refused has changed {_changed(disk, contents)}"
            ) from None
        return
    try:
        may_end_early = base.may_end_early(contents.get(REDO_NAME, b""))
        _check_served(base, engine, made_right=made_right, may_end_early=may_end_early)
        groups = _written_on(base, engine)
    finally:
        engine.close()
    if groups is not None and not made_right:
        _require_there(groups, disk)


def _changed(disk: MemoryDisk, contents: Mapping[str, bytes]) -> list[str]:
    now = disk.contents()
    return [name for name in {*now, *contents} if now.get(name) != contents.get(name)]


def _check_served(base: Base, engine: IbbEngine, *, made_right: bool, may_end_early: bool) -> None:
    try:
        found = read_all(engine)
    except StorageError:
        return
    for place in _PLACES:
        with contextlib.suppress(StorageError):
            start = engine.find_start(SlavePosition([place]))
            behind = read_from(engine, start.position)
            if not made_right:
                _require_part(base, behind, f"served behind {place}")
    with contextlib.suppress(StorageError):
        engine.state_at(engine.durable_end)
    if not made_right:
        begin = _require_part(base, found, "served")
        if begin + len(found) < len(base.groups) and not may_end_early:
            missing = len(base.groups) - begin - len(found)
            raise Wrong(f"{missing} groups at the end, durable, are left out without a word")


def _written_on(base: Base, engine: IbbEngine) -> list[bytes] | None:
    """All groups there are, one more at the end; None if damage was noticed."""
    try:
        before = read_all(engine)
        _append(engine, base.next, _NEXT, "append")
        engine.sync()
    except StorageError:
        return None
    return [*before, base.next]


def _require_there(groups: list[bytes], disk: MemoryDisk) -> None:
    """What is written behind damage that nobody has noticed must be there after the next start."""
    engine = IbbEngine(disk, OPTIONS, facts=StateStore(disk))
    try:
        found = read_all(engine)
    finally:
        engine.close()
    if found != groups:
        raise Wrong(
            f"of {len(groups)} groups, a new one behind them, {len(found)} are there after a start"
        )


def _check_offline(base: Base, contents: Mapping[str, bytes], *, made_right: bool) -> None:
    disk = MemoryDisk(contents)
    if not any(file_number(name) is not None for name in contents):
        return
    errors = 1
    with contextlib.suppress(StorageError):
        errors = Verifier(disk, lambda finding: None).run().errors
    found: list[bytes] = []
    ended = False
    with contextlib.suppress(StorageError), contextlib.closing(OfflineBinlog(disk)) as binlog:
        for group in binlog.groups():
            found.append(b"".join(group.pieces()))
        ended = binlog.torn_tail is None
    if made_right:
        return
    begin = _require_part(base, found, "read")
    if ended and base.whole and begin + len(found) < len(base.groups) and not errors:
        raise Wrong("neither reading nor verifying says that groups are missing at the end")


def _require_part(base: Base, found: list[bytes], how: str) -> int:
    """Where in what was written the groups begin that were found."""
    if not found:
        return 0
    if found[0] not in base.groups:
        raise Wrong(f"a group was {how} that nobody has written")
    begin = base.groups.index(found[0])
    if base.groups[begin : begin + len(found)] != found:
        raise Wrong(
            f"the groups that were {how} are not those that were written, one behind the other"
        )
    return begin
