"""The scrub: what lies on the disk and in the archive is read again, at a rate, before somebody needs it.

A pass begins `binlog_scrub_interval` seconds after the one before has begun, a store that knows of none waits as long;
it reads `binlog_scrub_rate` bytes a second, nothing while a backup is made. What the last pass has found is kept with
the store, so that a restart hides nothing; so is how far the pass under way has come, by the file or part that it has
passed: behind a restart it goes on there.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from binlog_storage.archive.archive import Archive
from binlog_storage.archive.manifest import part_number
from binlog_storage.classic.store import ClassicEngine
from binlog_storage.disk.read_only_disk import ReadableDisk
from binlog_storage.disk.state import StoreFacts
from binlog_storage.engine import EngineReader
from binlog_storage.errors import StorageError
from binlog_storage.log.pending_redo import published
from binlog_storage.scrub.scrub import (
    KINDS,
    Damage,
    Look,
    LookedAt,
    Meter,
    MeteredDisk,
    Round,
    archive_look,
    classic_look,
    classic_mark,
    ibb_look,
    ibb_mark,
)

from binlog_server.settings.config import Config

log = logging.getLogger(__name__)

SCRUB_KEY: Final = "scrub"
STEP_S: Final = 1.0
"""Between two steps of a pass, each of what the rate allows in that time."""
_REASON_CHARS: Final = 300
_KEPT_MAX: Final = 50  # damages in the state of the store
_UNDER_WAY: Final = "under way"  # what is noted of a pass that is not over


class Scrub:
    """Of one server. `step` by one thread at a time; the figures, `stop` and `pause_s` from any.

    Args:
        engine: what is open now.
        disk: the directory of it.
        archive: opens that of `binlog_archive_url`; None without.
        is_held_off: whether a backup is being made.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        config: Callable[[], Config],
        engine: Callable[[], EngineReader],
        disk: Callable[[], ReadableDisk],
        facts: StoreFacts,
        archive: Callable[[], Archive] | None,
        is_held_off: Callable[[], bool],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._config: Final = config
        self._engine: Final = engine
        self._disk: Final = disk
        self._facts: Final = facts
        self._archive: Final = archive
        self._is_held_off: Final = is_held_off
        self._clock: Final = clock
        self._stopping: Final = threading.Event()
        self._meter: Final = Meter()
        self._round: Round | None = None
        self._begun = 0.0
        self._known: tuple[EngineReader, int] = self._now()  # of which the kept damages are
        self.passes = 0
        """Passes that came to their end, since the start."""

    # --- figures ---

    @property
    def bytes_read(self) -> int:
        """Bytes that were read since the start; of `.ibb` files those of pages and of records."""
        return self._meter.bytes_read

    @property
    def last_pass(self) -> float | None:
        """The end of the last pass, in seconds since 1970; None if there was none."""
        finished = self._kept().get("finished")
        return None if finished is None else float(finished)

    def damages(self) -> list[Damage]:
        """Those of the last pass, and those that the pass under way has found, none of a binlog that is no more."""
        kept = self._kept()
        found: dict[Damage, None] = {}
        for some in (kept, kept.get(_UNDER_WAY, {})):
            if self._is_of_now(some):
                found |= {Damage(*values): None for values in some.get("damages", ())}
        if (now := self._round) is not None and not now.is_over():
            found |= dict(now.damages)
        return list(found)

    def damages_by_kind(self) -> dict[str, int]:
        """How many of each."""
        count = Counter(damage.kind for damage in self.damages())
        return {kind: count[kind] for kind in KINDS}

    # --- the work ---

    def pause_s(self, idle_s: float) -> float:
        """Seconds until the next `step`; `idle_s` while no pass is under way."""
        return idle_s if self._round is None else STEP_S

    def stop(self) -> None:
        """The server is to end: a step under way ends at once."""
        self._stopping.set()

    def step(self) -> None:
        """Go on by what the rate allows in a second. Raises `StorageError`: it is tried again."""
        rate = self._config().binlog_scrub_rate
        if not rate or self._stopping.is_set() or self._is_held_off():
            return
        if self._round is None:
            self._forget_purged()
            if not self._is_due():
                return
            self._round = self._begin()
            if self._round is None:
                return
        passed = self._round.passed
        if self._round.step(round(rate * STEP_S), self._tell, self._stopping.is_set):
            self._end(self._round)
        elif self._round.passed != passed:
            self._note(self._round)

    def _is_due(self) -> bool:
        if _UNDER_WAY in self._kept():
            return True
        now, begun = self._clock(), self._kept().get("begun")
        if begun is None or begun > now:  # or the clock was put back
            self._keep({**self._kept(), "begun": now})
            return False
        return now >= float(begun) + self._config().binlog_scrub_interval

    def _begin(self) -> Round | None:
        """None while nothing is published yet."""
        config, engine = self._config(), self._engine()
        age = engine.age  # first: what is read of the files is of this age, or the round is over
        if age % 2:
            return None
        disk = MeteredDisk(self._disk(), self._meter)
        earlier = self._earlier(disk)
        behind = LookedAt(*earlier["passed"]) if earlier else None
        looks: list[Callable[[], Look]] = []
        is_in_archive = behind is not None and _is_part(behind)
        if not is_in_archive:
            some = self._looks_at_files(engine, disk, "" if behind is None else behind.name)
            if some is None:
                return None
            looks += some
        if (archive := self._archive) is not None and config.binlog_scrub_archive:
            stopped = self._stopping.is_set
            look = partial(archive_look, archive, self._meter, stopped)
            looks.append(partial(look, behind) if is_in_archive else look)
        self._begun = float(earlier.get("begun", self._clock()))
        if behind is None:
            log.info("the scrub begins: all files are read again, %d bytes a second", self._rate)
        else:
            log.info("the scrub goes on behind %s, %d bytes a second", behind.name, self._rate)
        return Round(
            looks,
            self._meter,
            lambda: self._engine() is not engine or engine.age != age,
            self._there(earlier),
        )

    def _looks_at_files(
        self, engine: EngineReader, disk: MeteredDisk, behind: str
    ) -> list[Callable[[], Look]] | None:
        """None while nothing is published yet."""
        if not isinstance(engine, ClassicEngine):
            told = published(disk)
            return None if told is None else [partial(ibb_look, disk, told.end, behind)]
        keys, end = self._config().binlog_keys(), engine.durable_end
        files = [number for number, _ in engine.files() if number <= end.file_no]
        looks: list[Callable[[], Look]] = []
        for number, following in zip(files, [*files[1:], None], strict=True):
            name = engine.file_name(number)
            look = partial(classic_look, disk, name, partial(_has, engine, number), keys)
            if following is None:
                looks.append(partial(look, size=end.offset))
            else:
                gap = following != number + 1
                looks.append(partial(look, following=engine.file_name(following), gap=gap))
            if name == behind:
                looks.clear()
        return looks

    def _earlier(self, disk: ReadableDisk) -> dict[str, Any]:
        """What is known of a pass that a restart has ended; nothing if the file that it has passed is no more."""
        noted = self._kept().get(_UNDER_WAY)
        if not noted or noted["age"] != self._facts.binlog_age:
            return {}
        behind = LookedAt(*noted["passed"])
        if _is_part(behind):
            return dict(noted)
        if isinstance(self._engine(), ClassicEngine):
            return dict(noted) if classic_mark(disk, behind.name) == behind else {}
        told = published(disk)
        is_there = told is not None and ibb_mark(disk, told.end, behind.name) == behind
        return dict(noted) if is_there else {}

    def _there(self, kept: dict[str, Any]) -> list[Damage]:
        """Damages that are kept, but for those of files that are gone."""
        damages = [Damage(*values) for values in kept.get("damages", ())]
        if not damages:
            return []  # the usual case, asked at each step: the directory need not be listed for it
        names = set(self._disk().names())
        return [
            damage for damage in damages if damage.kind in ("part", "file") or damage.name in names
        ]

    @property
    def _rate(self) -> int:
        return self._config().binlog_scrub_rate

    def _end(self, done: Round) -> None:
        if done.given_up:
            self._round = None
            self._keep(_without_note(self._kept()))
            log.info("the scrub is given up: the binlog has begun anew meanwhile")
            return
        self.passes += 1
        self._known = self._now()
        finished = {"begun": self._begun, "finished": self._clock()}
        self._keep({**finished, "age": self._facts.binlog_age, "damages": _as_kept(done.damages)})
        self._round = None
        log.info("the scrub is over: %d damages", len(done.damages))

    def _note(self, round_: Round) -> None:
        """Note how far a pass has come."""
        under_way = {
            "begun": self._begun,
            "age": self._facts.binlog_age,
            "passed": round_.passed,
            "damages": _as_kept(round_.damages),
        }
        self._keep({**self._kept(), _UNDER_WAY: under_way})

    def _tell(self, damage: Damage) -> None:
        log.error(
            'the scrub has found damage: %(damage)s. See docs/troubleshooting.md, "the scrub has found damage"',
            {"damage": damage},
        )

    def _now(self) -> tuple[EngineReader, int]:
        engine = self._engine()
        return engine, engine.age

    def _is_of_now(self, kept: dict[str, Any]) -> bool:
        """Whether the binlog is still that of a pass. Its durable age moves only where a lease needs it."""
        return kept.get("age") == self._facts.binlog_age and self._known == self._now()

    def _forget_purged(self) -> None:
        """What is said of files that are gone is no damage any more."""
        kept, now = self._kept(), self._now()
        if kept.get("damages") and not self._is_of_now(kept):
            kept = {**kept, "damages": []}
            self._keep(kept)
        if _UNDER_WAY in kept and not self._is_of_now(kept[_UNDER_WAY]):
            kept = _without_note(kept)
            self._keep(kept)
        self._known = now
        if len(left := self._there(kept)) < len(kept.get("damages", ())):
            self._keep({**kept, "damages": _as_kept(left)})

    def _kept(self) -> dict[str, Any]:
        kept = self._facts.get(SCRUB_KEY)
        return kept if isinstance(kept, dict) else {}

    def _keep(self, values: dict[str, Any]) -> None:
        with contextlib.suppress(StorageError):  # a full disk: it is done once more, or told anew
            self._facts.set(SCRUB_KEY, values)


def _as_kept(damages: Iterable[Damage]) -> list[list[Any]]:
    return [[*damage[:3], damage.reason[:_REASON_CHARS]] for damage in [*damages][:_KEPT_MAX]]


def _without_note(kept: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in kept.items() if name != _UNDER_WAY}


def _is_part(passed: LookedAt) -> bool:
    return part_number(passed.name) is not None


def _has(engine: ClassicEngine, number: int) -> bool:
    return any(file.number == number for file in engine.files())
