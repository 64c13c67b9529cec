"""The shapes of docs/commands.md: by command the keys of its objects."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parent.parent.parent / "docs/commands.md"


def shapes(program: str) -> dict[str, list[str]]:
    """By the words behind the program's name the keys, in the order of the page."""
    found: dict[str, list[str]] = {}
    keys: list[str] = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if match := re.fullmatch(r"### `(\S+) (.+)`", line):
            keys = []
            if match[1] == program:
                found[match[2]] = keys
        elif match := re.match(r"\| `(\w+)` \|", line):
            keys.append(match[1])
    return found
