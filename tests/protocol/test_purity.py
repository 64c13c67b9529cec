"""binlog_protocol turns bytes into values and back, and knows nothing of the world."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import binlog_protocol
import pytest

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
    "re",
    "struct",
    "typing",
    "uuid",
    "zlib",
}
# Of the one package that nothing of the server imports.
COLUMNS = {"numpy", "pyarrow"}
# Reads a table that is a file of the package.
READS_A_TABLE = "tables/uca1400.py"


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add((node.module or "").partition(".")[0])
    return names


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_nothing_impure(path: Path) -> None:
    columns = COLUMNS if path.is_relative_to(PACKAGE / "row_columns") else set()
    tables = {"importlib"} if path == PACKAGE / READS_A_TABLE else set()
    assert imported(path) <= PURE | {"binlog_protocol"} | columns | tables


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_uses_no_impure_builtin(path: Path) -> None:
    calls = {
        node.func.id
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not calls & {"open", "print", "input", "exec", "eval", "__import__"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_asks_no_clock_and_no_chance(path: Path) -> None:
    """Of `datetime` and `uuid` only what turns given values into others."""
    names = {n.attr for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Attribute)}
    assert not names & {"now", "today", "utcnow", "uuid1", "uuid4"}


def test_list_of_pure_modules_is_standard_library() -> None:
    assert PURE - {"__future__"} <= sys.stdlib_module_names
