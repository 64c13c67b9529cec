"""Names of time zones: those of the zone files that this system has, which a MariaDB of it would load into its tables.

They are read once, when the server starts (`time_zones`): the case does not matter in SQL, so that one look for a
file would not do, and a statement may name many. Zones that come later are known after a restart.
"""

from __future__ import annotations

import importlib.util
import re
import zoneinfo
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

# No name of a zone has a point; files beside them have.
_PART: Final = re.compile(r"[a-z][a-z0-9_+-]*", re.IGNORECASE | re.ASCII)
_PARTS_MAX: Final = 4
_MAGIC: Final = b"TZif"


def is_time_zone(name: str) -> bool:
    """Whether there is a zone of that name, in any case. False for an offset, and for SYSTEM."""
    return name.isascii() and name.lower() in time_zones()


@cache
def time_zones() -> frozenset[str]:
    """All names, in lower case. Reads some hundred files, once."""
    return frozenset(name.lower() for top in _tops() for name in _names(top, _PARTS_MAX))


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
