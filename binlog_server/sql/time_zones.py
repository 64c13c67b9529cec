"""Time zones by name, and the time as a session has it (`Clock`).

The names are those of the zone files that this system has, which a MariaDB of it would load into its tables.
They are read once, when the server starts (`time_zones`): the case does not matter in SQL, so that one look for a
file would not do, and a statement may name many. Zones that come later are known after a restart.
"""

from __future__ import annotations

import importlib.util
import re
import zoneinfo
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import cache
from pathlib import Path
from typing import Final

from binlog_protocol.errors.sql_errors import UnknownTimeZone

# No name of a zone has a point; files beside them have.
_PART: Final = re.compile(r"[a-z][a-z0-9_+-]*", re.IGNORECASE | re.ASCII)
_PARTS_MAX: Final = 4
_MAGIC: Final = b"TZif"


def is_time_zone(name: str) -> bool:
    """Whether there is a zone of that name, in any case. False for an offset, and for SYSTEM."""
    return name.isascii() and name.lower() in time_zones()


@cache
def time_zones() -> Mapping[str, str]:
    """All names, by their lower case. Reads some hundred files, once."""
    return {name.lower(): name for top in _tops() for name in _names(top, _PARTS_MAX)}


@dataclass(frozen=True, slots=True)
class Clock:
    """What time it is for a session: `now` in seconds since 1970, `zone` None for that of the machine."""

    now: float
    zone: tzinfo | None

    @staticmethod
    def of(timestamp: str, time_zone: str, now: float) -> Clock:
        """By the variables as SHOW VARIABLES prints them; no `timestamp`, and 0, is `now`.

        Raises `UnknownTimeZone` (1298) for one that was known when it was SET, and is gone.
        """
        return Clock(float(timestamp or 0) or now, _zone(time_zone))

    def local(self, seconds: float) -> datetime:
        """What a clock on the wall shows then. Raises `OverflowError`, `ValueError` where no year has four digits."""
        return datetime.fromtimestamp(seconds, self.zone).replace(tzinfo=None)

    def seconds(self, local: datetime) -> float:
        """Since 1970, of what `local` gives. Raises as it does.

        Where clocks are changed there may be two answers; it is the earlier, so that PURGE deletes less.
        """
        return min(local.replace(tzinfo=self.zone, fold=fold).timestamp() for fold in (0, 1))

    def text(self, *, in_utc: bool = False) -> str:
        """NOW(), as MariaDB prints it."""
        shown = datetime.fromtimestamp(self.now, UTC) if in_utc else self.local(self.now)
        return shown.strftime("%Y-%m-%d %H:%M:%S")


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
    # From a package where the system has none, as `zoneinfo` itself does.
    spec = importlib.util.find_spec("tzdata")
    for folder in (spec and spec.submodule_search_locations) or ():
        yield Path(folder, "zoneinfo")


def _names(folder: Path, parts: int) -> Iterator[str]:
    """Of the zones in a folder, and in those in it. A link may lead back to it: names have few parts."""
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
