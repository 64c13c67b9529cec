"""A point in a history, as a person says it: a time or a list of GTIDs. And names of accounts that end with one.

    2026-11-20T10:00:00         in front of the first group, as the log has them, of this time or a later one
    2026-11-20 09:00:00Z        the same in UTC; +01:00 is an offset
    0-1-5,1-2-7                 up to these GTIDs, and with them; of other domains nothing, as START SLAVE UNTIL has it

    name+until=0-1-500          the login of `name`, whose stream goes up to there
    name+until=0-1-500+stop     and then ends

The time of a group is that of its GTID event, as for `binlog-server events --stop-datetime`. Clocks go
back, so times in a log need not ascend: the first group that is late enough is meant, whatever comes behind it.
"""

from __future__ import annotations

import datetime
import re
from typing import Final, NamedTuple

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import ServerError
from binlog_protocol.gtid import SlavePosition

TARGET_CHARS_MAX: Final = 512
_TIME: Final = compiled_later(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[T ]([0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?))?"
    r" ?(Z|z|[+-][0-9]{2}:[0-9]{2})?"
)
_GTIDS: Final = compiled_later(r"[0-9]+-[0-9]+-[0-9]+( ?, ?[0-9]+-[0-9]+-[0-9]+)*")
_SUFFIX: Final = compiled_later(r"(.*)\+until=(.+?)(\+stop)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class HistoryEnd:
    """A point in a history. One of `position` and `time` (seconds since 1970) is not None; `text` as it was given."""

    text: str
    position: SlavePosition | None = None
    time: float | None = None

    @classmethod
    def parse(cls, text: str, zone: datetime.tzinfo | None) -> HistoryEnd:
        """`zone`: of times that do not say theirs; None is the machine's. Raises `ValueError`, for people."""
        text = text.strip()
        if len(text) > TARGET_CHARS_MAX:
            raise ValueError(f"{text[:40]!r}... has more than {TARGET_CHARS_MAX} characters")
        if _GTIDS.fullmatch(text):
            try:
                return cls(text, position=SlavePosition.parse(text))
            except ServerError as error:
                raise ValueError(f"{text!r}: {error.message}") from None
        try:
            return cls(text, time=seconds_of(text, zone))
        except NoTime:
            raise ValueError(
                f"{text!r} is neither a time such as '2026-11-20 10:00:00' or '2026-11-20T09:00:00Z', nor GTIDs "
                "such as '0-1-5,1-2-7'"
            ) from None

    def __str__(self) -> str:
        """As it was given; a time in UTC, too, as its zone is easily mistaken."""
        if self.time is None:
            return str(self.position)
        shown = utc_text(self.time)
        return shown if shown == self.text else f"{self.text} ({shown})"


class NamedTarget(NamedTuple):
    """The end of a name: up to where its stream goes, and whether it ends there."""

    text: str
    stop: bool


def split_name(name: str) -> tuple[str, NamedTarget | None]:
    """The name of the account, and what stands behind it. The target is not looked at."""
    found = _SUFFIX.fullmatch(name)
    if found is None:
        return name, None
    return found[1], NamedTarget(found[2], found[3] is not None)


def seconds_of(text: str, zone: datetime.tzinfo | None) -> float:
    """A time as seconds since 1970. Raises `ValueError`: `NoTime`, or it comes twice or never by changes of clocks.

    zone: of a time that does not say its own; None is the machine's.
    """
    found = _TIME.fullmatch(text)
    try:
        if found is None:
            raise ValueError
        local = datetime.datetime.fromisoformat(f"{found[1]}T{found[2] or '00:00'}")
        if found[3]:
            return _moment(f"{local.isoformat()}{found[3].upper()}")
        return _local_seconds(text, local, zone)
    except _NoSuchTime:
        raise
    except (ValueError, OverflowError, OSError):
        raise NoTime(
            f"{text[:TARGET_CHARS_MAX]!r} is no time such as '2026-11-20 10:00:00' or '2026-11-20T09:00:00Z'"
        ) from None


class NoTime(ValueError):
    """A text that is no time."""


class _NoSuchTime(ValueError):
    """A local time that does not tell which one is meant."""


def _moment(text: str) -> float:
    return datetime.datetime.fromisoformat(text).timestamp()


def _local_seconds(text: str, local: datetime.datetime, zone: datetime.tzinfo | None) -> float:
    first, second = (local.replace(tzinfo=zone, fold=fold).timestamp() for fold in (0, 1))
    if first == second:
        return first
    if datetime.datetime.fromtimestamp(first, zone).replace(tzinfo=None) != local:
        raise _NoSuchTime(
            f"there is no {text}: clocks were put forward then. Say it in UTC, with Z"
        )
    raise _NoSuchTime(
        f"{text} comes twice, as clocks were put back: say {utc_text(first)} or {utc_text(second)}"
    )


def utc_text(seconds: float) -> str:
    """A time in UTC, as `HistoryEnd` takes it."""
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return moment.replace(tzinfo=None).isoformat(timespec="auto") + "Z"
