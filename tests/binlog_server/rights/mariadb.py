"""What MariaDB says to an account without privileges: `mariadb.json`, which a live test holds true."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

FILE: Final = Path(__file__).with_name("mariadb.json")
VERSIONS: Final = ("10.11", "11.8")
NOBODY: Final = "nobody"

# Errors that say that something is not allowed, and those that say that MariaDB has no such thing.
DENIED: Final = frozenset({1044, 1045, 1095, 1142, 1227})
_UNKNOWN: Final = frozenset({1047, 1064, 1193})
_NAMED: Final = re.compile(r"at least one of\) the (.*) privilege\(s\)")

NOTHING, UNKNOWN, HIDDEN = "", "-", "left out"


def needed(errno: int, message: str) -> str:
    """From an error (0 is none): the privileges that it names, or its number if it names none; `NOTHING`, `UNKNOWN`."""
    named = _NAMED.search(message)
    if named is not None:
        return named[1]
    if errno in _UNKNOWN:
        return UNKNOWN
    return f"error {errno}" if errno in DENIED else NOTHING


def recorded() -> Mapping[str, Mapping[str, str]]:
    """By version, then by what the page shows of an example."""
    answers: Mapping[str, Mapping[str, str]] = json.loads(FILE.read_text(encoding="utf-8"))
    return answers
