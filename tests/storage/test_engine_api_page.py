"""docs/engine-api.md has every method of an engine, and names nothing that is not there."""

from __future__ import annotations

import re
from pathlib import Path

from binlog_storage import engine

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "engine-api.md").read_text()
OURS = re.findall(r"^\|[^|]*\|(?:[^|]*\|)*?([^|]*)\|$", PAGE, re.MULTILINE)
SOURCE = "\n".join(path.read_text() for path in (ROOT / "storage").rglob("*.py"))


def test_every_method_is_on_the_page() -> None:
    names = {
        name
        for role in (engine.BinlogEngine, engine.GroupWriter)
        for name in vars(role)
        if not name.startswith("_")
    }
    assert {name for name in names if not re.search(rf"`[^`]*\b{name}\b", PAGE)} == set()


def test_what_is_on_the_page_is_there() -> None:
    """In the last column of the tables, which is ours: each name before a parenthesis."""
    said = {name for cell in OURS for name in re.findall(r"`(?:\w+\.)*(\w+)\(", cell)}
    assert said
    assert {name for name in said if not re.search(rf"\b{name}\b", SOURCE)} == set()
    assert "not there yet" not in PAGE
