"""Stores that somebody or something has damaged: one table, for whoever opens or reads a store.

Each damage is done to a store in a real directory. The store has six files in use and one that was made ahead; it was
either closed, or killed with groups that are durable and, but for the partial page, in the redo log and the files.
"""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from binlog_protocol.gtid import Gtid
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.disk import OsDisk
from binlog_storage.disk.state import STATE_NAME, StateStore
from binlog_storage.ibb.file_names import LOCK_NAME, file_name, file_numbers
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.log.publication import PUBLICATION_NAME
from binlog_storage.redo.format import CHECKPOINT_AT, REDO_NAME, RING_AT

from tests.protocol.statement_groups import transaction_group
from tests.storage.groups import Group, append_all, settle
from tests.storage.sizes import small

PAGES: Final = 8
OPTIONS: Final = small(PAGES, slave_connections_needed_for_purge=0)
FIRST, MIDDLE, LAST = 0, 3, 5
AHEAD: Final = LAST + 1

GROUPS: Final = [
    Group(
        transaction_group(
            Gtid(0, 1, n),
            [f"INSERT INTO t VALUES ({n}, '{'x' * 1800}')"],
            xid=n,
            database="d",
            timestamp=1_780_000_000 + n,
        ),
        Gtid(0, 1, n),
    )
    for n in range(1, 331)
]
"""About eight a page."""

_FLUSHED: Final = (
    165  # of them; so the file in the middle begins with a record, and nothing seems cut before it
)
_CHECKPOINTED: Final = 315  # of them, in a store that is killed: the rest is in the redo log, too

Damage = Callable[[Path], None]


def make(path: Path, kind: str) -> Path:
    """A store that was "closed" or "killed"."""
    for name, data in _contents(kind).items():
        path.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path


def opened(path: Path, options: StoreOptions = OPTIONS) -> IbbEngine:
    """As a server opens it: with its facts. Closes what it has opened if it is refused."""
    disk = OsDisk(path)
    disk.lock(LOCK_NAME)
    try:
        return IbbEngine(disk, options, facts=StateStore(disk))
    except BaseException:
        disk.close()
        raise


def picture(path: Path) -> dict[str, object]:
    """All that there is: names, kinds, contents. The lock is no part of a store."""
    found: dict[str, object] = {}
    for entry in sorted(path.rglob("*")):
        name = str(entry.relative_to(path))
        if entry.is_symlink():
            found[name] = ("link", str(entry.readlink()))
        elif entry.is_file():
            mode = entry.stat().st_mode
            os.chmod(entry, 0o600)
            found[name] = (mode, entry.read_bytes())
            os.chmod(entry, mode)
        else:
            found[name] = "folder" if entry.is_dir() else "neither file nor folder"
    found.pop(LOCK_NAME, None)
    return found


def repair(path: Path, kind: str) -> None:
    """As it was before the damage, by restoring what is damaged or missing from a copy; nothing else is touched."""
    for name, data in _contents(kind).items():
        there = path / name
        if there.is_symlink() or not there.is_file():
            _remove(there)
        elif there.read_bytes() == data:
            continue
        there.write_bytes(data)
    for entry in list(path.iterdir()):
        if entry.name not in _contents(kind):
            _remove(entry)


@functools.cache
def _contents(kind: str) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        engine = opened(path)
        append_all(engine, GROUPS[:_FLUSHED])
        assert engine.written_end.file_no == MIDDLE - 1
        engine.flush()
        append_all(engine, GROUPS[_FLUSHED:_CHECKPOINTED])
        engine.checkpoint()
        append_all(engine, GROUPS[_CHECKPOINTED:])
        settle(engine)
        killed = _read(path)
        engine.close()
        contents = killed if kind == "killed" else _read(path)
    numbers = file_numbers(list(contents))
    assert numbers == list(range(AHEAD + 1)), numbers
    assert not any(contents[file_name(AHEAD)])
    assert any(contents[file_name(LAST)])
    contents.pop(LOCK_NAME, None)
    return contents


def _read(path: Path) -> dict[str, bytes]:
    return {entry.name: entry.read_bytes() for entry in path.iterdir()}


# --- one file is something else ---


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _edit(path: Path, edit: Callable[[bytearray], object]) -> None:
    data = bytearray(path.read_bytes())
    edit(data)
    path.write_bytes(data)


def _flip(offset: int) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        def flip(data: bytearray) -> None:
            data[offset] ^= 0x10

        _edit(path, flip)

    return damage


def _zeros(begin: int, end: int) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        def zero(data: bytearray) -> None:
            data[begin:end] = bytes(min(end, len(data)) - begin)

        _edit(path, zero)

    return damage


def _cut(size: int) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        os.truncate(path, size)

    return damage


def _longer(more: bytes) -> Callable[[Path], None]:
    return lambda path: _edit(path, lambda data: data.extend(more))


def _fifo(path: Path) -> None:
    _remove(path)
    os.mkfifo(path)


def _folder(path: Path) -> None:
    _remove(path)
    path.mkdir()


def _dangling(path: Path) -> None:
    _remove(path)
    path.symlink_to(path.parent / "nowhere")


def _loop(path: Path) -> None:
    _remove(path)
    path.symlink_to(path.name)


def _copy_of(number: int) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        path.write_bytes((path.parent / file_name(number)).read_bytes())

    return damage


def _link_to(number: int) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        _remove(path)
        path.symlink_to(file_name(number))

    return damage


NO_FILE: Final[dict[str, Callable[[Path], None]]] = {
    "missing": _remove,
    "fifo": _fifo,
    "folder": _folder,
    "dangling link": _dangling,
    "link to itself": _loop,
}
"""What may stand in the place of any file."""

IN_A_FILE: Final[dict[str, Callable[[Path], None]]] = {
    **NO_FILE,
    "empty": _cut(0),
    "shorter, whole pages": _cut(4 * PAGE_SIZE),
    "shorter, header only": _cut(PAGE_SIZE),
    "shorter, in a page": _cut(4 * PAGE_SIZE + 1000),
    "longer, zeros": _longer(bytes(2 * PAGE_SIZE)),
    "longer, part of a page": _longer(b"x" * 1000),
    "longer, garbage": _longer(b"\xaa" * PAGE_SIZE),
    "header of zeros": _zeros(0, PAGE_SIZE),
    "all zeros": _zeros(0, PAGES * PAGE_SIZE),
    "page 1 of zeros": _zeros(PAGE_SIZE, 2 * PAGE_SIZE),
    "middle page of zeros": _zeros(4 * PAGE_SIZE, 5 * PAGE_SIZE),
    "last page of zeros": _zeros((PAGES - 1) * PAGE_SIZE, PAGES * PAGE_SIZE),
    "bad header": _flip(20),
    "bad page 1": _flip(PAGE_SIZE + 100),
    "bad middle page": _flip(4 * PAGE_SIZE + 5000),
    "twin of another": _copy_of(1),
    "twin of the one made ahead": _copy_of(AHEAD),
    "link to another": _link_to(1),
}

_IN_THE_LAST: Final = {
    # There is less in it.
    "middle page of zeros": _zeros(2 * PAGE_SIZE, 3 * PAGE_SIZE),
    "last page of zeros": _zeros(3 * PAGE_SIZE, 4 * PAGE_SIZE),
    "bad middle page": _flip(2 * PAGE_SIZE + 5000),
    "shorter, whole pages": _cut(2 * PAGE_SIZE),
    "shorter, in a page": _cut(2 * PAGE_SIZE + 1000),
}


def _shifted(path: Path) -> None:
    """Nine bytes fewer, from the middle of what is used: the log seems to end there."""

    def shift(data: bytearray) -> None:
        at = RING_AT + (len(data) - RING_AT) // 3
        del data[at : at + 9]
        data.extend(bytes(9))

    _edit(path, shift)


def _emptied_ring(path: Path) -> None:
    """As an older copy: the checkpoint is there, and nothing behind it."""
    _zeros(RING_AT, path.stat().st_size)(path)


def _of_another(path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        opened(Path(folder)).close()
        path.write_bytes((Path(folder) / path.name).read_bytes())


def _both_checkpoints(path: Path) -> None:
    for at in CHECKPOINT_AT:
        _flip(at + 10)(path)


IN_THE_REDO: Final[dict[str, Callable[[Path], None]]] = {
    **NO_FILE,
    "empty": _cut(0),
    "shorter": _cut(3 * PAGE_SIZE),
    "longer": _longer(bytes(1000)),
    "bad header": _flip(20),
    "bad checkpoints": _both_checkpoints,
    "one bad checkpoint": _flip(CHECKPOINT_AT[0] + 10),
    "other bad checkpoint": _flip(CHECKPOINT_AT[1] + 10),
    "shifted": _shifted,
    "nothing in it": _emptied_ring,
    "of another store": _of_another,
}

IN_THE_STATE: Final[dict[str, Callable[[Path], None]]] = {
    **NO_FILE,
    "empty": _cut(0),
    "bad": _flip(60),
    "shorter": _cut(70),
}


def _bad_slots(path: Path) -> None:
    half = path.stat().st_size // 2
    _flip(20)(path)
    _flip(half + 20)(path)


IN_WHAT_IS_PUBLISHED: Final[dict[str, Callable[[Path], None]]] = {
    **NO_FILE,
    "empty": _cut(0),
    "bad": _bad_slots,
}


def _in(name: str, damage: Callable[[Path], None]) -> Damage:
    return lambda store: damage(store / name)


def _numbers_moved(store: Path) -> None:
    """All files one number higher."""
    for number in reversed(range(AHEAD + 1)):
        (store / file_name(number)).rename(store / file_name(number + 1))


def _swapped(store: Path) -> None:
    (store / file_name(1)).rename(store / "x")
    (store / file_name(2)).rename(store / file_name(1))
    (store / "x").rename(store / file_name(2))


FILES: Final[dict[str, tuple[int, Damage]]] = {
    f"{place}: {what}": (number, _in(file_name(number), damage))
    for place, number in (("first", FIRST), ("middle", MIDDLE), ("last", LAST))
    for what, damage in {**IN_A_FILE, **(_IN_THE_LAST if number == LAST else {})}.items()
}
"""Damages to one file in use, and which."""

DAMAGES: Final[dict[str, Damage]] = {
    **{name: damage for name, (_, damage) in FILES.items()},
    **{f"redo: {what}": _in(REDO_NAME, damage) for what, damage in IN_THE_REDO.items()},
    **{f"state: {what}": _in(STATE_NAME, damage) for what, damage in IN_THE_STATE.items()},
    **{
        f"published: {what}": _in(PUBLICATION_NAME, damage)
        for what, damage in IN_WHAT_IS_PUBLISHED.items()
    },
    **{f"made ahead: {what}": _in(file_name(AHEAD), damage) for what, damage in NO_FILE.items()},
    "numbers: moved": _numbers_moved,
    "numbers: swapped": _swapped,
}
