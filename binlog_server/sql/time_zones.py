"""Time zones by name, and a session's time (`Clock`).

The names are those of the system's zone files, which a MariaDB on the same machine would load into its tables. They are
read once, when the server starts (`time_zones`): SQL ignores the case of a name, so that no single file could be looked
up, and a statement may name many zones. Zones that are installed later are known after a restart.
"""

from __future__ import annotations

import importlib.util
import re
import zoneinfo
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import cache
from pathlib import Path
from typing import Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import UnknownTimeZone

from binlog_server.queries.values import datetime_text

# Zone names have no point; the other files in the same folders have one.
_PART: Final = re.compile(r"[a-z][a-z0-9_+-]*", re.IGNORECASE | re.ASCII)
_PARTS_MAX: Final = 4
_MAGIC: Final = b"TZif"


def is_time_zone(name: str) -> bool:
    """Whether there is a zone of that name, in any case. False for an offset, and for SYSTEM."""
    return name.isascii() and name.lower() in time_zones()


@cache
def time_zones() -> Mapping[str, str]:
    """All zone names, by the name in lower case. The first call reads some hundred files."""
    return {name.lower(): name for top in _tops() for name in _names(top, _PARTS_MAX)}


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
    try:
        return zoneinfo.ZoneInfo(time_zones()[name.lower()])
    except (KeyError, ValueError, OSError) as error:
        raise UnknownTimeZone(name) from error


def _tops() -> Iterator[Path]:
    yield from map(Path, zoneinfo.TZPATH)
    # If the system has no zone files, those of the package `tzdata` are used, as `zoneinfo` itself does.
    spec = importlib.util.find_spec("tzdata")
    for folder in (spec and spec.submodule_search_locations) or ():
        yield Path(folder, "zoneinfo")


def _names(folder: Path, parts: int) -> Iterator[str]:
    """Names of the zones in a folder and its subfolders, to a small depth: a link may lead back to the folder."""
    try:
        paths = [path for path in folder.iterdir() if _PART.fullmatch(path.name)]
    except OSError:
        return
    for path in paths:
        if _is_zone(path):
            yield path.name
        elif parts > 1:
            yield from (f"{path.name}/{name}" for name in _names(path, parts - 1))


def _is_zone(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False
