"""Time zones by name, and a session's time (`Clock`).

The names are those of the system's zone files, which a MariaDB on the same machine would load into its tables. SQL
ignores the case of a name, so a folder is listed for it, once: a statement may name many zones. All folders together
have 1,800 files and would take 0.03 s of each start. Zones that are installed later are known after a restart.
"""

from __future__ import annotations

import importlib.util
import re
import zoneinfo
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import cache
from pathlib import Path
from typing import Final

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import UnknownTimeZone

from binlog_server.queries.values import datetime_text

# Zone names have no point; the other files in the same folders have one.
_PART: Final = compiled_later(r"[a-z][a-z0-9_+-]*", re.IGNORECASE | re.ASCII)
_PARTS_MAX: Final = 4
_MAGIC: Final = b"TZif"


def is_time_zone(name: str) -> bool:
    """Whether there is a zone of that name, in any case. False for an offset, and for SYSTEM."""
    return _zone_name(name) is not None


def _zone_name(name: str) -> str | None:
    """The name as the system has it; None if there is no such zone."""
    parts = name.lower().split("/")
    if not name.isascii() or len(parts) > _PARTS_MAX:
        return None
    tops = (*zoneinfo.TZPATH, *_package())
    return next((found for top in tops for found in _names(top, parts)), None)


@dataclass(frozen=True, slots=True)
class Clock:
    """A session's time: `now` in seconds since 1970; `zone`, None for the machine's."""

    now: float
    zone: tzinfo | None

    @staticmethod
    def of(timestamp: str, time_zone: str, now: float) -> Clock:
        """The clock of a session by its variables, as SHOW VARIABLES prints them. A `timestamp` of "" or 0 is `now`.

        Raises `UnknownTimeZone` (1298) for a zone that was known when it was SET, and is gone.
        """
        return Clock(float(timestamp or 0) or now, _zone(time_zone))

    def local(self, seconds: float) -> datetime:
        """Local date and time, from seconds since 1970.

        Raises `OverflowError` or `ValueError` outside of the years 1 to 9999.
        """
        return datetime.fromtimestamp(seconds, self.zone).replace(tzinfo=None)

    def seconds(self, local: datetime) -> float:
        """Seconds since 1970, from local date and time. Raises as `local` does.

        A local time that comes twice, when clocks are put back, is the earlier one, so that PURGE deletes less.
        """
        return min(local.replace(tzinfo=self.zone, fold=fold).timestamp() for fold in (0, 1))

    def text(self, *, in_utc: bool = False) -> str:
        """NOW(), as MariaDB prints it."""
        shown = datetime.fromtimestamp(self.now, UTC) if in_utc else self.local(self.now)
        return datetime_text(shown)


def utc(seconds: float) -> str:
    """Seconds since 1970 as MariaDB prints a DATETIME, in UTC."""
    return datetime_text(datetime.fromtimestamp(seconds, UTC))


def _zone(name: str) -> tzinfo | None:
    if name == "SYSTEM":
        return None
    if name[:1] in ("+", "-"):
        hours, minutes = map(int, name[1:].split(":"))
        offset = timedelta(hours=hours, minutes=minutes)
        return timezone(-offset if name[0] == "-" else offset)
    if (known := _zone_name(name)) is None:
        raise UnknownTimeZone(name)
    try:
        return zoneinfo.ZoneInfo(known)
    except (ValueError, OSError) as error:
        raise UnknownTimeZone(name) from error


@cache
def _package() -> tuple[str, ...]:
    """If the system has no zone files, those of the package `tzdata` are used, as `zoneinfo` itself does."""
    spec = importlib.util.find_spec("tzdata")
    folders = spec and spec.submodule_search_locations
    return tuple(f"{folder}/zoneinfo" for folder in folders or ())


def _names(folder: str, parts: Sequence[str]) -> Iterator[str]:
    """Names of zones with these parts, which are in lower case.

    Paths are texts here: a `Path` for each part of a name was most of what a SET of many zones took.
    """
    first, *others = parts
    for name in _listed(folder).get(first, ()):
        if others:
            yield from (f"{name}/{inner}" for inner in _names(f"{folder}/{name}", others))
        elif _is_zone(f"{folder}/{name}"):
            yield name


@cache
def _listed(folder: str) -> Mapping[str, Sequence[str]]:
    """What may be a zone or a folder of zones, by its name in lower case."""
    found: dict[str, list[str]] = {}
    with suppress(OSError):
        for path in Path(folder).iterdir():
            if _PART.fullmatch(path.name):
                found.setdefault(path.name.lower(), []).append(path.name)
    return found


@cache  # only what is in a list is asked for
def _is_zone(path: str) -> bool:
    try:
        with Path(path).open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False
