"""Tests with real servers and clients that are marked `pytest.mark.proves`, found by reading them.

What the marker says:

features: rows of the table of replicas; for other clients, what it does in a few words.
client: "replica" unless said.
versions: of the replica. A test that has the fixture `backend` runs on every version that the kit has.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.kit.backends import VERSIONS

ROOT = Path(__file__).parents[3]
TESTS = ROOT / "tests"
_MARKER = "pytest.mark.proves"


@dataclass(frozen=True)
class Proof:
    """A test stands for these features. `path` from the project's folder."""

    path: str
    test: str
    client: str
    features: tuple[str, ...]
    versions: tuple[str, ...]


def proofs(folder: Path = TESTS) -> list[Proof]:
    """All of them, in order of their files. ValueError for a marker that does not say enough."""
    return [proof for path in sorted(folder.rglob("test_*.py")) for proof in _in_file(path)]


def _in_file(path: Path) -> Iterator[Proof]:
    text = path.read_text()
    if _MARKER not in text:
        return
    tree = ast.parse(text)
    markers = {id(node) for node in ast.walk(tree) if _is_marker(node)}
    for test in tree.body:
        if isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef):
            for decorator in test.decorator_list:
                if isinstance(decorator, ast.Call) and _is_marker(decorator):
                    markers.remove(id(decorator))
                    yield _proof(path, test, decorator)
    if markers:
        raise ValueError(f"{path.name}: a marker proves(...) belongs above a test")


def _is_marker(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == _MARKER


def _proof(path: Path, test: ast.FunctionDef | ast.AsyncFunctionDef, marker: ast.Call) -> Proof:
    place = f"{path.name}::{test.name}"
    if not test.name.startswith("test_"):
        raise ValueError(f"{place} is no test")
    try:
        features = tuple(ast.literal_eval(argument) for argument in marker.args)
        said = {word.arg: ast.literal_eval(word.value) for word in marker.keywords}
    except ValueError:
        raise ValueError(f"{place}: write what it proves as constants") from None
    if not features or said.keys() - {"client", "versions"}:
        raise ValueError(f"{place}: proves(*features, client=..., versions=...)")
    client = said.get("client", "replica")
    takes_backend = any(argument.arg == "backend" for argument in test.args.args)
    versions = tuple(said.get("versions", VERSIONS if takes_backend else ()))
    if client == "replica" and not versions:
        raise ValueError(f"{place}: say for which versions, it has no fixture `backend`")
    relative = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    return Proof(str(relative), test.name, client, features, versions)
