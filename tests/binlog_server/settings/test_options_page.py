"""docs/options.md has every option of the configuration with its default, and no other."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from binlog_server.settings.config import Config

PAGE = (Path(__file__).parents[3] / "docs" / "options.md").read_text("utf-8")
# `listen` is host and port, `[users]` a table of its own; what was ignored is no option.
SAID_OTHERWISE = {"listen_host", "listen_port", "users", "ignored_options"}
DEFAULTS = {
    field.name: field.default
    for field in dataclasses.fields(Config)
    if field.name not in SAID_OTHERWISE
}
SIZES = {"KiB": 10, "MiB": 20, "GiB": 30}


def rows() -> Iterator[tuple[list[str], str]]:
    """The names in the first column, and the text of the second."""
    for line in PAGE.partition("\n## ")[0].splitlines():
        if line.startswith("| `"):
            names, default = line.split("|")[1:3]
            yield re.findall(r"`(\w+)`", names), default.strip()


def value(text: str) -> Any:
    """A default as the page writes it."""
    text = text.strip("`")
    if text in ("true", "false"):
        return text == "true"
    number, _, unit = text.partition(" ")
    if number.isdigit():
        return int(number) << SIZES[unit] if unit else int(number)
    return text


def test_every_option_is_there_once() -> None:
    named = [name for names, _ in rows() for name in names if name != "listen"]
    assert sorted(named) == sorted(DEFAULTS)


@pytest.mark.parametrize(
    ("names", "text"),
    [pytest.param(names, text, id=",".join(names)) for names, text in rows() if names],
)
def test_the_default_is_the_one_of_the_code(names: list[str], text: str) -> None:
    """One for all names of the row, or one for each. In words where the default depends on something else."""
    defaults = [DEFAULTS[name] for name in names if name in DEFAULTS]
    if not text or text in ("in the store", "with an upstream", "that of the directory"):
        assert all(default in ("", None, dataclasses.MISSING) for default in defaults)
    elif defaults:
        told = [value(part) for part in (text.split(", ") if ", " in text else [text])]
        assert told * (len(defaults) // len(told)) == defaults
