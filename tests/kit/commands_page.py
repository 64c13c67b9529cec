"""docs/commands.md as data: the shapes of `--json`, and which commands have `--dry-run`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent.parent.parent / "docs/commands.md"
_SHAPE = re.compile(r"### `(\S+) (.+)`")
_KEY = re.compile(r"\| `(\w+)` \| (.*)\|")
_NESTED = re.compile(r"objects with ((?:`\w+`(?:, )?)+)")
_DRY_RUN = re.compile(r"\| (.+) \| (yes|no)[:;]? ?(.*) \|")


@cache
def shapes(program: str) -> dict[str, dict[str, str]]:
    """By the words behind the program's name the keys, with what the page says of each."""
    found: dict[str, dict[str, str]] = {}
    keys: dict[str, str] = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if match := _SHAPE.fullmatch(line):
            keys = {}
            if match[1] == program:
                found[match[2]] = keys
        elif match := _KEY.match(line):
            keys[match[1]] = match[2]
    return found


def must_hold(program: str, shape: str, one: dict[str, Any]) -> None:
    """An object that a command has printed has the keys of the page, and so have objects in it.

    What the page calls `null` may be that, and nothing else is.
    """
    said = shapes(program)[shape]
    assert sorted(one) == sorted(said), shape
    for key, value in one.items():
        assert value is not None or "`null`" in said[key], (shape, key)
        if nested := _NESTED.search(said[key]):
            keys = re.findall(r"`(\w+)`", nested[1])
            for part in value or ():
                assert sorted(part) == sorted(keys), (shape, key)


def dry_runs() -> dict[str, bool]:
    """By command, as `program command`, whether the page says that it has `--dry-run`."""
    found: dict[str, bool] = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if match := _DRY_RUN.fullmatch(line):
            for name in re.findall(r"`(binlog-(?:server|spark) [a-z ]+)`", match[1]):
                assert name not in found, f"{name} stands there twice"
                found[name] = match[2] == "yes"
    return found


def commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The commands of a program; those of `user`, not `user` itself."""
    inner = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    if not inner:
        yield parser
    for action in inner:
        for command in action.choices.values():
            yield from commands(command)
