"""Retention leases: a named consumer keeps files from being purged, until a deadline or a disk budget is reached.

A consumer that reads the files themselves (a backup, a Spark job) is no replica, so no dump tells what it still needs.
It takes a lease from the GTID position where it goes on, moves and renews it as it gets on, and drops it in the end. If
it dies, the lease ends by itself: at its deadline, or when the files from its first one on take more than its budget.

Leases are kept in the store's state, and hold again after a restart. They hold whole files.

A replica that was here lately has a lease that nobody has to ask for, its *slot*: by server_id and account, for a time
and up to a size (`replica_slot_seconds`, `replica_slot_bytes`), both from the moment on at which it was last here. What
differs from other leases:

    made, moved   by the server, in memory, as the replica gets on; written down with the next look at all leases. So
                  what a kill -9 finds is a place that is some seconds old: it keeps more, not less.
    its place     may go back, if the replica does
    its time      is counted by a clock that is never set: a jump of the machine's clock ends none. Nor does the time
                  in which no server ran: one that was over meanwhile has `GRACE_S` left.
    its end       is remembered, for the replica that comes back and finds its files gone
    RESET MASTER  does not wait for it, and ends all

What lets files go takes effect on a full disk, too, as it makes room. It is kept as soon as there is some; a restart
before that finds the lease as it was.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Final, NamedTuple

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import UnknownServerError
from binlog_protocol.gtid import SlavePosition
from binlog_storage.disk.state import StoreFacts
from binlog_storage.engine import BinlogFile, EngineReader, Pin, Position
from binlog_storage.errors import DiskFull, PositionPurged, StorageError

log = logging.getLogger(__name__)

_PREFIX = "lease/"
LEASES_MAX = 1000
SLOT_PREFIX: Final = "slot/"  # of the names of slots, and of their keys in the state
_ENDED_PREFIX: Final = "ended_slot/"
SLOTS_MAX: Final = 1000  # and as many ends are remembered
GRACE_S: Final = 600.0  # of a slot whose time was over before the server was there again
UNACKNOWLEDGED_BYTES: Final = 32 << 20
"""What may lie in buffers on both sides between the server and a replica that does not acknowledge."""
_AGE: Final = "age"  # of the binlog, in what is kept of a slot
_JUMP_S: Final = 1.0  # a smaller step of the clock is none
_RENEWED: Final = 0.1  # of the time of a slot: it is written down again when so much has passed

Warn = Callable[[str], None]
NAME_CHARS_MAX = 64


def _untold(text: str) -> None:
    """A `Warn` of those whom nobody asked."""


@dataclass(frozen=True, slots=True)
class Lease:
    """One lease. Times in seconds since 1970, None is for ever; `max_bytes` of files from its first one on.

    `from_file`: number of the first file that is held.
    """

    name: str
    position: str
    from_file: int
    created: float
    until: float | None
    max_bytes: int | None

    @property
    def is_slot(self) -> bool:
        return self.name.startswith(SLOT_PREFIX)


class SlotTerms(NamedTuple):
    """For how many seconds a slot lasts, and how many bytes it may hold. There are none if one of them is 0."""

    seconds: int
    max_bytes: int

    @property
    def are_off(self) -> bool:
        return not self.seconds or not self.max_bytes


NO_SLOTS: Final = SlotTerms(0, 0)


class Seen(NamedTuple):
    """A replica at one moment. It has everything before `place`; so it says, if it was `acknowledged`."""

    server_id: int
    account: str
    place: Position
    acknowledged: bool

    @property
    def name(self) -> str:
        """The name of its slot."""
        return slot_name(self.server_id, self.account)


def slot_name(server_id: int, account: str) -> str:
    return f"{SLOT_PREFIX}{server_id}/{account}"


class Leases:
    """All leases of one store. May be used from several threads; every change waits for a disk.

    Args:
        clock: seconds since 1970.
        monotonic: seconds of a clock that is never set.
        terms: those of slots, which may change at any time.
    """

    def __init__(
        self,
        engine: EngineReader,
        state: StoreFacts,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        terms: Callable[[], SlotTerms] = lambda: NO_SLOTS,
    ) -> None:
        self._engine = engine
        self._state = state
        self._clock = clock
        self._monotonic = monotonic
        self._terms = terms
        self._lock = threading.Lock()
        self._offset = clock() - monotonic()
        self._load()
        self.expire()

    def _load(self) -> None:
        """Take them from the state of the store."""
        self._age = self._engine.age
        self._durable_age = self._state.binlog_age  # in this one
        self._here: frozenset[str] = frozenset()  # slots of replicas that are connected
        self._without: set[str] = set()  # of those, the ones that have no slot: there are too many
        self._kept_until: dict[str, float] = {}  # the ends of slots as the state has them
        self._ended: dict[str, str] = {}  # why slots have ended, by their names, oldest first
        self._leases: dict[str, Lease] = {}
        self._holds: dict[str, Pin] = {}
        self._places: dict[
            str, Position
        ] = {}  # where replicas with slots were last, since the start
        self._unkept: set[str] = set()  # of which the state still says more than holds
        for key, value in self._state.items(_PREFIX):
            lease = _of_state(key.removeprefix(_PREFIX), value)
            self._leases[lease.name] = lease
            self._holds[lease.name] = self._hold(lease)
        self._open_slots()

    @contextlib.contextmanager
    def changing_store(self) -> Iterator[None]:
        """The engine and the state go on in another store, inside of the block: all is written down before, and taken
        from that store behind it. Nothing of leases changes meanwhile.
        """
        with self._lock:
            self._keep_all()
            held = list(self._holds.values())
            yield
            self._load()
            for hold in held:
                hold.release()

    def create(
        self,
        name: str,
        position: str | None,
        until: float | None,
        max_bytes: int | None,
        *,
        or_replace: bool = False,
    ) -> Lease:
        """Hold files from the one on that a replica at `position` would read first; durable when it returns.

        Without a position from the oldest file on. Raises `UnknownServerError`, `BadGtidList`.
        """
        if not 0 < len(name) <= NAME_CHARS_MAX or not name.isprintable():
            raise UnknownServerError(f"a name has 1 to {NAME_CHARS_MAX} printable characters")
        if name.startswith(SLOT_PREFIX):
            raise UnknownServerError(f"names that begin with '{SLOT_PREFIX}' are those of replicas")
        with self._lock:
            self._end_expired()
            if name in self._leases and not or_replace:
                raise UnknownServerError(f"the lease '{name}' exists; ALTER moves or renews it")
            named = sum(not lease.is_slot for lease in self._leases.values())
            if name not in self._leases and named >= LEASES_MAX:
                raise UnknownServerError(f"there are {LEASES_MAX} leases already")
            lease = Lease(name, position or "", 0, self._clock(), until, max_bytes)
            return self._take(lease, lambda: self._first_file(position))

    def alter(
        self,
        name: str,
        position: str | None,
        until: float | None,
        max_bytes: int | None,
        warn: Warn = _untold,
    ) -> Lease:
        """Move one forward, or renew it; what is None stays as it was. Durable when it returns.

        Raises `UnknownServerError`, `BadGtidList`. On a full disk one is moved all the same, and `warn` told.
        """
        with self._lock:
            self._end_expired()
            older = self._leases.get(name)
            if older is None:
                raise UnknownServerError(
                    f"there is no lease '{name}': it was dropped, or has ended"
                )
            lease = replace(
                older,
                position=older.position if position is None else position,
                until=older.until if until is None else until,
                max_bytes=older.max_bytes if max_bytes is None else max_bytes,
            )
            only_moved = until is None and max_bytes is None
            return self._take(
                lease, lambda: self._moved(older, position), warn if only_moved else None
            )

    def _take(
        self, wanted: Lease, first_file: Callable[[], int], warn: Warn | None = None
    ) -> Lease:
        """Hold files for it, in place of those that a lease of that name has held.

        warn: given if what is kept may go on to say what it says.
        """
        name = wanted.name
        if wanted.until is not None and wanted.until <= self._clock():
            raise UnknownServerError(f"the lease '{name}' would have ended already")
        # Held before the search, as a dump does: what is found must not be purged meanwhile.
        hold = self._engine.hold(
            self._told(wanted),
            slot=wanted.is_slot,
            ended_by=_ended_by(wanted),
            holder=_holder(wanted),
        )
        try:
            lease = replace(wanted, from_file=first_file())
            hold.move(lease.from_file)
            held = self.held_bytes(lease)
            if lease.max_bytes is not None and held > lease.max_bytes:
                raise UnknownServerError(
                    f"the files from {self._held_from(lease)} on take {held} bytes already, more than "
                    f"MAX_BYTES {lease.max_bytes}"
                )
            try:
                self._keep({name: lease})
            except DiskFull as error:
                if warn is None:
                    raise
                self._keep_later(name, error, warn)
        except BaseException:
            hold.release()
            raise
        older = self._holds.get(name)
        self._leases[name], self._holds[name] = lease, hold
        if older is not None:
            older.release()
        facts = {"lease": name, "file": self._held_from(lease)}
        log.info("lease '%(lease)s' holds %(file)s and later files", facts)
        return lease

    def _moved(self, older: Lease, position: str | None) -> int:
        if position is None:
            return older.from_file
        first = self._first_file(position)
        if first < older.from_file:
            raise UnknownServerError(
                f"'{position}' lies before {self._held_from(older)}, the first file that the lease holds; CREATE OR "
                "REPLACE goes back"
            )
        return first

    def drop(self, name: str, warn: Warn = _untold) -> bool:
        """End one; whether there was one. On a full disk, too, and `warn` is told."""
        with self._lock:
            self._end_expired()
            if name not in self._leases:
                return False
            try:
                self._keep({name: None})
            except DiskFull as error:
                self._keep_later(name, error, warn)
            if name.startswith(SLOT_PREFIX):
                self._remember_end(name, "it was dropped")
            self._let_go(name)
        log.info("lease '%(lease)s' dropped", {"lease": name})
        return True

    def all(self) -> list[Lease]:
        """All leases that hold files, by name."""
        with self._lock:
            now = self._clock()
            return [
                lease
                for _, lease in sorted(self._leases.items())
                if lease.until is None or lease.until > now or lease.name in self._here
            ]

    def held_bytes(self, lease: Lease) -> int:
        """Bytes of the files that the lease holds."""
        return _Sizes(self._engine.files()).held(lease.from_file)

    def all_held(self) -> list[tuple[Lease, int]]:
        """`all`, and the bytes of the files that each one holds."""
        leases = self.all()
        sizes = _Sizes(self._engine.files() if leases else [])
        return [(lease, sizes.held(lease.from_file)) for lease in leases]

    def expire(self) -> None:
        """End those whose time or budget is over. To be called now and then, and before each purge."""
        with self._lock:
            self._end_expired()
            with contextlib.suppress(StorageError):  # another time; a thousand slots may have moved
                self._keep_all()

    # --- slots ---

    def _open_slots(self) -> None:
        now, last = self._clock(), self._engine.written_end.file_no
        for name, value in self._state.items(SLOT_PREFIX):
            slot = _of_state(name, value)
            if value.get(_AGE, 0) != self._durable_age or slot.from_file > last:
                self._unkept.add(name)  # of a binlog before RESET MASTER
                continue
            # Not longer than it would last from now on: the clock may have been set back.
            until = min(
                max(slot.until or 0, now + GRACE_S), now + max(self._terms().seconds, GRACE_S)
            )
            slot = self._leases[name] = replace(slot, until=until)
            self._holds[name] = self._hold(slot)
            self._kept_until[name] = until
        for key, why in self._state.items(_ENDED_PREFIX):
            self._ended[key.removeprefix(_ENDED_PREFIX)] = str(why)

    def renew_slots(self, here: Sequence[Seen], left: Sequence[Seen], age: int) -> None:
        """Make or move the slots of replicas. Durable with the next `expire`; at once for who leaves its first one.

        Args:
            here: those that are connected now.
            left: those that have gone since the last call.
            age: of the binlog in which they have their places.
        """
        with self._lock:
            if age != self._engine.age:
                return
            self._forget_reset()
            self._follow_clock()
            self._here = frozenset(seen.name for seen in here)
            terms = self._terms()
            if terms.are_off:
                return  # `expire` ends those that there are
            sizes = _Sizes(self._engine.files())
            for seen in (*left, *here):
                self._renew(seen, terms, sizes)
            self._without &= self._here
            if any(
                seen.name in self._leases and seen.name not in self._kept_until for seen in left
            ):
                with contextlib.suppress(StorageError):  # with the next `expire`
                    self._keep_all()

    def _renew(self, seen: Seen, terms: SlotTerms, sizes: _Sizes) -> None:
        name, now = seen.name, self._clock()
        older = self._leases.get(name)
        back = 0 if seen.acknowledged else UNACKNOWLEDGED_BYTES  # it may never have come there
        from_file = sizes.file_before(seen.place, back)
        made = now if older is None else older.created
        slot = Lease(name, "", from_file, made, now + terms.seconds, terms.max_bytes)
        if (held := sizes.held(from_file)) > terms.max_bytes:
            if older is None and name in self._ended:
                return  # said already
            files = f"{self._held_from(slot)} and later files"
            why = f"{files} take {held} bytes, more than replica_slot_bytes={terms.max_bytes}"
            self._end_slot(name, why)
            return
        if older is None and not self._make_room(name):
            self._goes_without(name)
            return
        self._without.discard(name)
        self._places[name] = seen.place
        if older is not None and older.from_file == from_file:
            slot = replace(slot, position=older.position)
        else:
            slot = replace(slot, position=self._position_before(from_file))
        pin = self._holds.get(name)
        if older is None or pin is None or from_file < older.from_file:
            self._holds[name] = self._hold(slot)
            if pin is not None:
                pin.release()
        else:
            pin.name = self._told(slot)
            pin.move(from_file)
        self._leases[name] = slot
        self._ended.pop(name, None)
        is_kept = older is not None and older.from_file == from_file and name in self._here
        until = self._kept_until.get(name, 0.0)
        if not is_kept or until < now + terms.seconds * (1 - _RENEWED):
            self._unkept.add(name)

    def _make_room(self, name: str) -> bool:
        """Whether one more may be made. If there are too many, one goes: of the account that has most of them, the one
        of the replica that has been away for longest.
        """
        slots = self._slots()
        if len(slots) < SLOTS_MAX:
            return True
        count = Counter(_account_of(slot.name) for slot in slots)
        away = [slot for slot in slots if slot.name not in self._here]
        if not away:
            return False
        gone = max(away, key=lambda slot: (count[_account_of(slot.name)], -(slot.until or 0)))
        self._end_slot(gone.name, f"there are {SLOTS_MAX} slots, and '{name}' is newer")
        return True

    def _goes_without(self, name: str) -> None:
        """There is no room for its slot, which is said once."""
        if name in self._without:
            return
        self._without.add(name)
        server_id, _, account = name.removeprefix(SLOT_PREFIX).partition("/")
        why = f"there are {SLOTS_MAX} slots, all of replicas that are connected"
        facts = {"server_id": server_id, "account": account, "reason": why}
        log.warning(
            "server_id %(server_id)s, account '%(account)s' has no slot: %(reason)s. Its files are not kept when it "
            "goes",
            facts,
        )
        self._remember_end(name, why)

    def without_slot(self) -> list[str]:
        """The names that the slots of connected replicas would have for which there is no room."""
        with self._lock:
            return sorted(self._without)

    def why_ended(self, server_id: int, account: str) -> str:
        """When and why the slot of a replica has ended; empty if it has one, or never had any."""
        return self._ended.get(slot_name(server_id, account), "")

    def _end_slot(self, name: str, why: str) -> None:
        """End one, or say why there is none. Durable with the next `expire`."""
        self._places.pop(name, None)
        slot = self._leases.get(name)
        server_id, _, account = name.removeprefix(SLOT_PREFIX).partition("/")
        log.warning(
            "server_id %(server_id)s, account '%(account)s' has no slot any more, lease '%(lease)s': %(reason)s. "
            "It has held %(held)s",
            {
                "server_id": server_id,
                "account": account,
                "lease": name,
                "reason": why,
                "held": "nothing" if slot is None else f"{self._held_from(slot)} and later files",
            },
        )
        self._remember_end(name, why)
        self._unkept.add(name)
        if slot is not None:
            self._let_go(name)

    def _remember_end(self, name: str, why: str) -> None:
        self._ended.pop(name, None)
        while len(self._ended) >= SLOTS_MAX:
            oldest = next(iter(self._ended))
            del self._ended[oldest]
            self._unkept.add(oldest)
        self._ended[name] = (
            f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(self._clock()))} UTC: {why}"
        )
        self._unkept.add(name)

    def _end_slots(self, why: str) -> None:
        for slot in self._slots():
            self._end_slot(slot.name, why)

    def _slots(self) -> list[Lease]:
        return [lease for lease in self._leases.values() if lease.is_slot]

    def _forget_reset(self) -> None:
        if (age := self._engine.age) != self._age:
            self._age = age
            self._durable_age = self._state.binlog_age
            self._end_slots("RESET MASTER has begun another binlog")

    def _follow_clock(self) -> None:
        """Move the ends of slots with a clock that was set."""
        offset = self._clock() - self._monotonic()
        jump = offset - self._offset
        if abs(jump) < _JUMP_S:
            return
        self._offset = offset
        for slot in self._slots():
            self._leases[slot.name] = replace(slot, until=(slot.until or 0) + jump)
            self._unkept.add(slot.name)

    def _held_from(self, lease: Lease) -> str:
        return self._engine.file_name(lease.from_file)

    def last_position(self, slot: Lease) -> str:
        """The GTID position up to which a replica with a slot has everything; since a start of the server that it has
        not been seen after, the one that its slot keeps, at the beginning of a file."""
        with self._lock:
            place = self._places.get(slot.name)
        if place is None:
            return slot.position
        try:
            return str(self._engine.state_at(place).position())
        except StorageError:
            return slot.position

    def _position_before(self, file_no: int) -> str:
        try:
            return str(self._engine.state_at(Position(file_no, self._engine.file_start)).position())
        except StorageError:
            return ""  # in front of the first file

    def _told(self, lease: Lease) -> str:
        """The holder of a file, in the words of PURGE. One that changes all the time would be logged each time."""
        told = _told(lease)
        return f"{told}, connected" if lease.name in self._here else _with_end(told, lease)

    # --- all of them ---

    def _first_file(self, position: str | None) -> int:
        oldest = self._engine.files()[0].number
        if position is None:
            return oldest
        try:
            return self._engine.find_start(SlavePosition.parse(position)).position.file_no
        except PositionPurged:
            raise UnknownServerError(
                f"no file reaches back to '{position}': it was purged"
            ) from None

    def _end_expired(self) -> None:
        self._forget_reset()
        self._follow_clock()
        if self._terms().are_off:
            self._end_slots("replica_slot_seconds or replica_slot_bytes is 0")
        now = self._clock()
        is_bounded = any(lease.max_bytes is not None for lease in self._leases.values())
        sizes = _Sizes(self._engine.files() if is_bounded else [])
        for lease in list(self._leases.values()):
            held = sizes.held(lease.from_file)
            if lease.is_slot:
                self._end_slot_if_over(lease, now, held)
            elif lease.until is not None and lease.until <= now:
                log.warning("lease '%(lease)s' has reached its deadline", {"lease": lease.name})
                self._end_by_itself(lease.name)
            elif lease.max_bytes is not None and held > lease.max_bytes:
                log.warning(
                    "lease '%(lease)s' ends: the files that it holds take more than its MAX_BYTES=%(max_bytes)d",
                    {"lease": lease.name, "max_bytes": lease.max_bytes},
                )
                self._end_by_itself(lease.name)

    def _end_slot_if_over(self, slot: Lease, now: float, held: int) -> None:
        if slot.name not in self._here and slot.until is not None and slot.until <= now:
            self._end_slot(slot.name, "the replica was away for longer than replica_slot_seconds")
        elif slot.max_bytes is not None and held > slot.max_bytes:
            why = f"its files take {held} bytes, more than replica_slot_bytes={slot.max_bytes}"
            self._end_slot(slot.name, why)

    def _end_by_itself(self, name: str) -> None:
        """End a lease that is over, also if a full disk cannot keep that: its files are to go."""
        try:
            self._keep({name: None})
        except StorageError as error:
            self._keep_later(name, error)
        self._let_go(name)

    def _keep(self, leases: Mapping[str, Lease | None]) -> None:
        """Write leases to the state, all at once; durable when it returns. Raises `DiskError`."""
        changes: dict[str, Any] = {}
        for name, lease in leases.items():
            value = None if lease is None else _to_state(lease)
            if value is not None and lease is not None and lease.is_slot:
                value[_AGE] = self._durable_age
            if name.startswith(SLOT_PREFIX):
                changes |= {name: value, _ENDED_PREFIX + name: self._ended.get(name)}
            else:
                changes[_PREFIX + name] = value
        if changes:
            self._state.update(changes)
        for name, lease in leases.items():
            self._unkept.discard(name)
            if lease is None or not lease.is_slot:
                self._kept_until.pop(name, None)
            else:
                self._kept_until[name] = lease.until or 0.0

    def _keep_all(self) -> None:
        """Write down all that has changed; durable when it returns. Raises `DiskError`."""
        self._keep({name: self._leases.get(name) for name in self._unkept})

    def _keep_later(self, name: str, error: StorageError, warn: Warn = _untold) -> None:
        self._unkept.add(name)
        text = f"Lease '{name}': {error}; until there is room, a restart finds it as it was"
        log.error("%s", text)
        warn(text)

    def _let_go(self, name: str) -> None:
        del self._leases[name]
        self._holds.pop(name).release()

    def _hold(self, lease: Lease) -> Pin:
        start = Position(lease.from_file, self._engine.file_start)
        told, ended_by = self._told(lease), _ended_by(lease)
        return self._engine.hold(
            told, start, slot=lease.is_slot, ended_by=ended_by, holder=_holder(lease)
        )


def slot_of(name: str) -> tuple[int, str]:
    """The server_id and account of a slot's name, see `slot_name`."""
    server_id, _, account = name.removeprefix(SLOT_PREFIX).partition("/")
    return int(server_id), account


def _account_of(name: str) -> str:
    return slot_of(name)[1]


class _Sizes:
    """The sizes of all files at one moment: what is held of them, from any file on."""

    def __init__(self, files: Sequence[BinlogFile]) -> None:
        self._sizes = dict(files)
        self._numbers = [file.number for file in files]
        self._behind = [0]  # bytes of the last file, of the last two, ...
        for file in reversed(files):
            self._behind.append(self._behind[-1] + file.size)

    def held(self, from_file: int) -> int:
        """Bytes of this file and all later ones."""
        return self._behind[len(self._numbers) - bisect_left(self._numbers, from_file)]

    def file_before(self, place: Position, size: int) -> int:
        """The file so many bytes before a place; the oldest one if there are not so many."""
        file_no, offset = place.file_no, place.offset - size
        while offset < 0 and file_no - 1 in self._sizes:
            file_no -= 1
            offset += self._sizes[file_no]
        return file_no


def _holder(lease: Lease) -> tuple[str, str]:
    return "slot" if lease.is_slot else "lease", lease.name


def _told(lease: Lease) -> str:
    return f"the {'slot' if lease.is_slot else 'lease'} '{lease.name}'"


def _with_end(told: str, lease: Lease) -> str:
    if lease.until is not None:
        told += time.strftime(" until %Y-%m-%d %H:%M:%SZ", time.gmtime(lease.until))
    if lease.max_bytes is not None:
        told += f" up to {lease.max_bytes} bytes"
    return told


def _ended_by(lease: Lease) -> str:
    return f"DROP BINLOG LEASE '{lease.name}'"


def _to_state(lease: Lease) -> dict[str, Any]:
    return {name: value for name, value in asdict(lease).items() if name != "name"}


def _of_state(name: str, value: dict[str, Any]) -> Lease:
    try:
        return Lease(name, **{key: one for key, one in value.items() if key != _AGE})
    except TypeError as error:
        raise UnknownServerError(f"the lease '{name}' cannot be read: {error}") from None


def in_another_store(key: str, value: Any, engine: EngineReader, binlog_age: int) -> Any:
    """A fact of one store as another one has it with the same groups: leases hold other files there.

    Args:
        engine, binlog_age: of the other store.
    """
    if not key.startswith((_PREFIX, SLOT_PREFIX)):
        return value
    try:
        from_file = engine.find_start(SlavePosition.parse(value["position"])).position.file_no
    except PositionPurged:
        from_file = engine.files()[0].number
    moved = {**value, "from_file": from_file}
    return {**moved, _AGE: binlog_age} if key.startswith(SLOT_PREFIX) else moved
