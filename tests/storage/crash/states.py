"""Every disk state that a power cut may leave, at every point of a trace.

Files: see `variants`. Names: a prefix of what the directory still had to note (a journalled file system), or with
`Limits.any_names` any of it. Each state comes once for what is known at its point.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tests.storage.crash.recorder import (
    Create,
    Mark,
    Operation,
    RecordingDisk,
    Rename,
    Resize,
    SyncDirectory,
    SyncFile,
    Unlink,
    Write,
)
from tests.storage.crash.variants import (
    Limits,
    Pending,
    apply_all,
    file_variants,
    some_variants,
)

Images = Mapping[str, bytes]
TELLING = ("told", "seen")  # marks behind which more is expected of the disk than before
Naming = Create | Rename | Unlink


class CrashState(NamedTuple):
    """Files by name as the disk holds them after a cut behind operation number `point` of the trace (0: before all)."""

    point: int
    files: Images

    @property
    def key(self) -> int:
        """Equal for equal files. The bytes objects are shared, and remember their hash."""
        return hash(tuple(sorted((name, hash(data)) for name, data in self.files.items())))


class _Disk:
    """What is durable, and what is not yet, at one point of the trace."""

    def __init__(self, names: Mapping[str, int], contents: Mapping[int, bytes]) -> None:
        self.durable = dict(contents)
        self.pending: dict[int, list[Pending]] = {inode: [] for inode in contents}
        self.names = dict(names)
        self.unsynced_names: list[Naming] = []

    def advance(self, operation: Operation) -> int | None:
        """Returns the file that was written to."""
        match operation:
            case Create(_, inode):
                self.durable[inode] = b""
                self.pending[inode] = []
                self.unsynced_names.append(operation)
            case Rename() | Unlink():
                self.unsynced_names.append(operation)
            case Write(inode, offset, data):
                self.pending[inode].append((offset, data))
                return inode
            case Resize(inode, size):
                self.pending[inode].append(size)
                return inode
            case SyncFile(inode):
                self.durable[inode] = apply_all(self.durable[inode], self.pending[inode])
                self.pending[inode] = []
            case SyncDirectory():
                for naming in self.unsynced_names:
                    _rename(self.names, naming)
                self.unsynced_names = []
            case Mark():
                pass
        return None

    def directories(self, limits: Limits, rng: random.Random) -> list[dict[str, int]]:
        """What names there may be, the one with all changes first."""
        changes = self.unsynced_names
        chosen: Iterable[Sequence[Naming]]
        if not limits.any_names:
            chosen = (changes[:n] for n in range(len(changes), -1, -1))
        elif len(changes) <= limits.all_subsets:
            chosen = itertools.chain.from_iterable(
                itertools.combinations(changes, n) for n in range(len(changes), -1, -1)
            )
        else:
            chosen = [changes, *(changes[:n] for n in range(len(changes)))]
            chosen += [[c for c in changes if rng.random() < 0.5] for _ in range(8)]
        made: dict[tuple[tuple[str, int], ...], dict[str, int]] = {}
        for part in chosen:
            names = dict(self.names)
            for naming in part:
                _rename(names, naming)
            made.setdefault(tuple(sorted(names.items())), names)
        return list(made.values())


def _rename(names: dict[str, int], naming: Naming) -> None:
    match naming:
        case Create(name, inode):
            names[name] = inode
        case Rename(old, new, inode):
            # Whatever else is called so meanwhile, if what made that name is not there.
            if names.get(old) == inode:
                del names[old]
            names[new] = inode
        case Unlink(name):
            names.pop(name, None)


def crash_points(
    disk: RecordingDisk, limits: Limits, rng: random.Random
) -> Iterator[list[CrashState]]:
    """The states of each point, in the order of the trace; first the one that has everything written so far.

    Those of one point differ; other points may have had the same. Some points have none.
    """
    now = _Disk(disk.initial_names, disk.initial)
    yield _states_at(0, now, None, limits, rng)
    for point, operation in enumerate(disk.trace, 1):
        written = now.advance(operation)
        # Behind most marks there are the same disks as before them; behind some, more is expected of these.
        if not isinstance(operation, Mark) or operation.what in TELLING:
            yield _states_at(point, now, written, limits, rng)
        else:
            yield []


def crash_states(disk: RecordingDisk, limits: Limits, rng: random.Random) -> Iterator[CrashState]:
    """All states of all points."""
    return itertools.chain.from_iterable(crash_points(disk, limits, rng))


def _states_at(
    point: int, now: _Disk, written: int | None, limits: Limits, rng: random.Random
) -> list[CrashState]:
    contents: dict[int, list[bytes]] = {}
    made: dict[int, CrashState] = {}
    for names in now.directories(limits, rng):
        files = sorted(names.items())
        for _, inode in files:
            if inode not in contents:
                make = file_variants if inode == written else some_variants
                contents[inode] = make(now.durable[inode], now.pending[inode], limits, rng)
        choices = [contents[inode] for _, inode in files]
        for chosen in _combinations(choices, limits, rng):
            files_held = dict(zip((name for name, _ in files), chosen, strict=True))
            state = CrashState(point, files_held)
            made.setdefault(state.key, state)
    return list(made.values())


def _combinations(
    choices: Sequence[Sequence[bytes]], limits: Limits, rng: random.Random
) -> Iterator[Sequence[bytes]]:
    """One of each: all of them if they are few; else each file through its states alone, and random ones."""
    count = 1
    for choice in choices:
        count *= len(choice)
    if count <= limits.per_point:
        yield from itertools.product(*choices)
        return
    # choice[0] has everything; the last but random ones of others have nothing: see `some_variants`.
    yield [choice[0] for choice in choices]
    yield [choice[min(1, len(choice) - 1)] for choice in choices]
    for _ in range(limits.per_point - 2):
        yield [rng.choice(choice) for choice in choices]
