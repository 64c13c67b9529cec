"""The parts of a store are made each from those before it: nothing reaches forward, and no method is pasted on."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

import pytest
from binlog_storage.binlog import store

SOURCE = Path(store.__file__).read_text()


def forward(source: str) -> Iterator[str]:
    """What `IbbEngine` does that needs a part which is not there yet, or makes a part's method its own."""
    engine = next(n for n in ast.parse(source).body if getattr(n, "name", "") == "IbbEngine")
    assert isinstance(engine, ast.ClassDef)
    methods = {n.name: n for n in engine.body if isinstance(n, ast.FunctionDef)}
    begin = itertools.takewhile(
        lambda statement: not makes_parts(statement), simple(methods["__init__"].body)
    )
    parts = simple(methods["_make_parts"].body)
    there: set[str] = set()
    for statement in itertools.chain(begin, parts):
        own = [n for n in ast.walk(statement) if is_own(n)]
        made = {n.attr for n in own if isinstance(n.ctx, ast.Store)}
        yield from (f"{n.attr} is not there yet" for n in own if n.attr not in there | made)
        there |= made
        if any(isinstance(n, ast.Lambda) for n in ast.walk(statement)):
            yield f"{ast.unparse(statement)}: a lambda"
        value = getattr(statement, "value", None)
        if isinstance(value, ast.Attribute) and is_own(value.value):
            yield f"{ast.unparse(statement)}: pasted on"


def simple(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements in their order, those in a `with` one by one."""
    for statement in body:
        yield from simple(statement.body) if isinstance(statement, ast.With) else [statement]


def makes_parts(statement: ast.stmt) -> bool:
    return "self._make_parts(" in ast.unparse(statement)


def is_own(node: ast.AST) -> TypeGuard[ast.Attribute]:
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    )


def test_each_part_is_made_from_those_before_it() -> None:
    assert list(forward(SOURCE)) == []


@pytest.mark.parametrize(
    ("there", "instead"),
    [
        ("Durability(self._redo, self._writer)", "Durability(self._redo, lambda: self._writer)"),
        ("Durability(self._redo, self._writer)", "Durability(self._redo, self._flusher)"),
        ("        self._first_file = FirstFile(facts)", "        self.fates = self.keeper.explain"),
    ],
    ids=["a lambda", "a part that comes later", "a method of a part"],
)
def test_what_is_found(there: str, instead: str) -> None:
    assert there in SOURCE
    assert list(forward(SOURCE.replace(there, instead)))
