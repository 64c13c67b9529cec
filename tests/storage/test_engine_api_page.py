"""docs/engine-api.md has every method of an engine, and names nothing that is not there."""

from __future__ import annotations

import re
from pathlib import Path

from binlog_storage import engine

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "engine-api.md").read_text()
OURS = re.findall(r"^\|[^|]*\|(?:[^|]*\|)*?([^|]*)\|$", PAGE, re.MULTILINE)
ROLES = (engine.EngineWriter, engine.EngineReader, engine.EngineAdmin)
SOURCE = "\n".join(path.read_text() for path in (ROOT / "storage").rglob("*.py"))


def test_every_method_is_on_the_page() -> None:
    names = {
        name
        for role in (*ROLES, engine.OpenBinlog, engine.GroupWriter)
        for name in vars(role)
        if not name.startswith("_")
    }
    assert {name for name in names if not re.search(rf"`[^`]*\b{name}\b", PAGE)} == set()


def test_each_promise_is_to_one_role() -> None:
    parts = (engine.OpenBinlog, *ROLES)
    promises = [name for part in parts for name in annotated(part) if not name.startswith("_")]
    assert sorted(promises) == sorted(set(promises))
    assert annotated(engine.BinlogEngine) == set(), "it is made of the roles"
    assert all(f"`{role.__name__}`" in PAGE for role in parts)


def annotated(part: type) -> set[str]:
    """The promises that a role says itself."""
    return {name for name in {*vars(part), *part.__annotations__} if not name.startswith("_")}


# Modules that put parts together, or speak to all sides for a session; others take the role that they need.
WHOLE = {
    "binlog_server/app/app.py",
    "binlog_server/metrics/observed.py",
    "binlog_server/relay/into.py",
    "binlog_server/sql/view.py",
    "binlog_server/store/store_directory.py",
    "storage/binlog_storage/archive/taking.py",
    "storage/binlog_storage/intake/intake.py",
}


def test_callers_take_the_role_that_they_need() -> None:
    found = {
        str(path.relative_to(ROOT))
        for top in ("binlog_server", "storage", "pipeline")
        for path in (ROOT / top).rglob("*.py")
        if re.search(
            r"^from binlog_storage.engine import .*\bBinlogEngine\b", path.read_text(), re.M
        )
        and not {"engine", "testing"} & set(path.parts)
    }
    assert found == WHOLE


def test_what_is_on_the_page_is_there() -> None:
    """In the last column of the tables, which is ours: each name before a parenthesis."""
    said = {name for cell in OURS for name in re.findall(r"`(?:\w+\.)*(\w+)\(", cell)}
    assert said
    assert {name for name in said if not re.search(rf"\b{name}\b", SOURCE)} == set()
    assert "not there yet" not in PAGE
