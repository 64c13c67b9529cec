"""Names of time zones: those of the zone files that this system has, which a MariaDB of it would load into its tables.

A directory is read for each part of the name, instead of one look for the file: the case does not matter in SQL.
"""

from __future__ import annotations

import importlib.util
import re
import zoneinfo
from collections.abc import Iterator
from pathlib import Path
from typing import Final

# No name of a zone has a point; files beside them have.
_NAME: Final = re.compile(r"[a-z][a-z0-9_+-]*(?:/[a-z][a-z0-9_+-]*){0,3}", re.IGNORECASE | re.ASCII)
_MAGIC: Final = b"TZif"


def is_time_zone(name: str) -> bool:
    """Whether there is a zone of that name, in any case. False for an offset, and for SYSTEM."""
    if not _NAME.fullmatch(name):
        return False
    parts = name.lower().split("/")
    return any(_is_zone(path) for top in _tops() for path in _found(top, parts))


def _tops() -> Iterator[Path]:
    yield from map(Path, zoneinfo.TZPATH)
    # From a package where the system has none, as `zoneinfo` itself does.
    spec = importlib.util.find_spec("tzdata")
    for folder in (spec and spec.submodule_search_locations) or ():
        yield Path(folder, "zoneinfo")


def _found(folder: Path, parts: list[str]) -> Iterator[Path]:
    try:
        paths = list(folder.iterdir())
    except OSError:
        return
    for path in paths:
        if path.name.lower() == parts[0]:
            if len(parts) == 1:
                yield path
            else:
                yield from _found(path, parts[1:])


def _is_zone(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False
