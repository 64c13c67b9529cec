"""binlog_protocol turns bytes into values and back, and knows nothing of the world."""

from __future__ import annotations

import ast
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import binlog_protocol

from tests.house import walk

PACKAGE = Path(binlog_protocol.__path__[0])
MODULES = sorted(PACKAGE.rglob("*.py"))

# What of the standard library may be used: no files, sockets, clocks, threads, chance, logging.
PURE = {
    "__future__",
    "array",
    "base64",
    "codecs",
    "collections",
    "contextlib",
    "dataclasses",
    "datetime",
    "decimal",
    "enum",
    "functools",
    "hashlib",
    "hmac",
    "ipaddress",
    "itertools",
    "json",
    "re",
    "struct",
    "typing",
    "uuid",
    "zlib",
}
# Of the one package that nothing of the server imports.
COLUMNS = {"numpy", "pyarrow"}
# Reads a table that is a file of the package.
MAKES_METHODS = "dataclass.py"  # of text, as the standard library does
READS_A_TABLE = "tables/uca1400.py"


class Used(NamedTuple):
    """What a module names."""

    imported: set[str]
    called: set[str]
    attributes: set[str]


@cache
def used(path: Path) -> Used:
    found = Used(set(), set(), set())
    for node in walk(path.read_text()):
        if isinstance(node, ast.Import):
            found.imported.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.imported.add((node.module or "").partition(".")[0])
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found.called.add(node.func.id)
        elif isinstance(node, ast.Attribute):
            found.attributes.add(node.attr)
    return found


def test_imports_nothing_impure() -> None:
    for path in MODULES:
        columns = COLUMNS if path.is_relative_to(PACKAGE / "row_columns") else set()
        tables = {"importlib"} if path == PACKAGE / READS_A_TABLE else set()
        impure = used(path).imported - PURE - {"binlog_protocol"} - columns - tables
        assert not impure, path


def test_uses_no_impure_builtin() -> None:
    for path in MODULES:
        impure = used(path).called & {"open", "print", "input", "exec", "eval", "__import__"}
        if path == PACKAGE / MAKES_METHODS:
            impure -= {"exec"}
        assert not impure, path


def test_asks_no_clock_and_no_chance() -> None:
    """Of `datetime` and `uuid` only what turns given values into others."""
    for path in MODULES:
        impure = used(path).attributes & {"now", "today", "utcnow", "uuid1", "uuid4"}
        assert not impure, path


def test_list_of_pure_modules_is_standard_library() -> None:
    assert PURE - {"__future__"} <= sys.stdlib_module_names
