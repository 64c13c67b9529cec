"""The table of options tells every option of the configuration, with the default that it has."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from binlog_server.settings.config import DEFAULTS

ROOT = Path(__file__).parents[3]
HEAD = "| option | default |"
FIRST = "`binlog_directory`"
# What is no plain value is told in words.
IN_WORDS = {"listen", "upstream", "users", "read_only", "binlog_directory", "master_info_key_file"}
IN_WORDS |= {"binlog_storage_engine", "log_bin"}
PARTS = {"listen_host", "listen_port"}  # of `listen`
NOT_FROM_OUTSIDE = {"ignored_options"}


def rows() -> list[list[str]]:
    """First cell, default, effect."""
    pages = (ROOT / "docs").glob("*.md")
    tables = [
        table.split("\n\n")[0]
        for page in pages
        for table in page.read_text(encoding="utf-8").split(HEAD)[1:]
    ]
    (table,) = [text for text in tables if FIRST in text]
    return [line[1:].split("|", 2) for line in table.splitlines() if line.startswith("| `")]


def forms(value: Any) -> set[str]:
    """How a default may be written."""
    if isinstance(value, bool):
        return {str(value).lower()}
    if isinstance(value, float):
        return {f"{value:g}"}
    if isinstance(value, int) and value and value % (1 << 20) == 0:
        return {str(value), f"{value >> 20} MiB"}
    return {str(value)}


def test_every_option_is_told_with_its_default() -> None:
    told = set()
    for first, second, effect in rows():
        names = re.findall(r"`\[?([a-z_]+)\]?`", first)
        said = [text.strip(" `") for text in second.split(", ")]
        for name, default in zip(names, said * len(names) if len(said) == 1 else said, strict=True):
            if name not in IN_WORDS:
                assert default in forms(DEFAULTS[name]), name
        told |= {*names, *re.findall(r"`([a-z_]+)`", effect)}
    assert told >= DEFAULTS.keys() - PARTS - NOT_FROM_OUTSIDE
