"""Who may import whom. Read from the source, so that nothing has to be installed or imported.

binlog_server -> binlog_storage -> binlog_protocol        binlog_pipeline -> binlog_storage, binlog_protocol

And no module needs itself, by whatever way round.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
OURS = (
    "binlog_protocol",
    "binlog_storage",
    "binlog_server",
    "binlog_pipeline",
    "benchmarks",
    "tests",
)


class Rule(NamedTuple):
    """What one package may use of ours besides itself, and which other modules it may not."""

    ours: frozenset[str]
    never: frozenset[str]


IO = frozenset({"asyncio", "uvloop", "socket", "socketserver", "selectors", "select"})
# The clock is `time`; `datetime` is also how a value looks, and stays allowed.
WORLD = frozenset({"os", "time", "random", "logging", "threading", "secrets", "pathlib"})
SPARK = frozenset({"pyspark"})

RULES = {
    "protocol/binlog_protocol": Rule(frozenset(), IO | WORLD | SPARK),
    "storage/binlog_storage": Rule(frozenset({"binlog_protocol"}), IO | SPARK),
    "binlog_server": Rule(frozenset({"binlog_storage", "binlog_protocol"}), SPARK | {"struct"}),
    "pipeline/binlog_pipeline": Rule(frozenset({"binlog_storage", "binlog_protocol"}), frozenset()),
}


class Import(NamedTuple):
    """One imported module, as an absolute dotted name."""

    module: str
    line: int


def imports(source: str, package: str) -> Iterator[Import]:
    """All imports of a module of `package`, also those inside functions or under `TYPE_CHECKING`, and by name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                parts = package.split(".")[: len(package.split(".")) - node.level + 1]
                yield Import(".".join([*parts, *filter(None, [node.module])]), node.lineno)
            else:
                yield Import(node.module or "", node.lineno)
        elif isinstance(node, ast.Call) and node.args:
            name = ast.unparse(node.func)
            first = node.args[0]
            if name in ("__import__", "importlib.import_module", "import_module") and isinstance(
                first, ast.Constant
            ):
                yield Import(str(first.value), node.lineno)


def breaches(root: Path) -> list[str]:
    """Every import under `root` that the rules forbid, as `file:line: what`."""
    found = []
    for folder, rule in RULES.items():
        above = (root / folder).parent
        for path in sorted((root / folder).rglob("*.py")):
            shown = path.relative_to(above)
            name, package = shown.parts[0], ".".join(shown.parent.parts)
            for module, line in imports(path.read_text(encoding="utf-8"), package):
                top = module.split(".")[0]
                if (top in OURS and top not in {name, *rule.ours}) or top in rule.never:
                    found.append(f"{shown}:{line}: {name} must not import {module}")
    return found


def test_the_direction_of_imports() -> None:
    found = breaches(ROOT)
    assert not found, "\n" + "\n".join(found)


def test_there_is_something_to_check() -> None:
    for folder in RULES:
        assert any((ROOT / folder).rglob("*.py")), folder


PLANTED = {
    "protocol/binlog_protocol/wire.py": "import struct\nimport os.path\nfrom binlog_storage.disk.disk import Disk\n",
    "protocol/binlog_protocol/events/clock.py": "def now():\n    from time import time\n    return time()\n",
    "storage/binlog_storage/ibb/page.py": "from __future__ import annotations\nimport asyncio\nimport threading\n",
    "storage/binlog_storage/up.py": "from binlog_server.dumps.dump import Dump\nfrom binlog_protocol import gtid\n",
    "storage/binlog_storage/hidden.py": "import importlib\nspark = importlib.import_module('pyspark.sql')\n",
    "binlog_server/layout.py": "import struct\nimport asyncio\nfrom . import listener\n",
    "binlog_server/near/far.py": "from ..binlog_pipeline import source\nfrom ...binlog_pipeline import jobs\n",
    "binlog_server/test.py": "if True:\n    import tests.kit\n",
    "pipeline/binlog_pipeline/up.py": "import pyspark\nimport binlog_server.cli\nfrom binlog_storage import engine\n",
}

EXPECTED = [
    "binlog_protocol/events/clock.py:2: binlog_protocol must not import time",
    "binlog_protocol/wire.py:2: binlog_protocol must not import os.path",
    "binlog_protocol/wire.py:3: binlog_protocol must not import binlog_storage.disk.disk",
    "binlog_storage/hidden.py:2: binlog_storage must not import pyspark.sql",
    "binlog_storage/ibb/page.py:2: binlog_storage must not import asyncio",
    "binlog_storage/up.py:1: binlog_storage must not import binlog_server.dumps.dump",
    "binlog_server/layout.py:1: binlog_server must not import struct",
    "binlog_server/near/far.py:2: binlog_server must not import binlog_pipeline",
    "binlog_server/test.py:2: binlog_server must not import tests.kit",
    "binlog_pipeline/up.py:2: binlog_pipeline must not import binlog_server.cli",
]


def test_planted_breaches_are_found(tmp_path: Path) -> None:
    for name, text in PLANTED.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert breaches(tmp_path) == EXPECTED


def needed(root: Path) -> dict[str, set[str]]:
    """The modules that each of ours imports when it runs, inside functions too: not those for types alone."""
    paths = {}
    for folder in RULES:
        for path in (root / folder).rglob("*.py"):
            name = ".".join(path.relative_to((root / folder).parent).with_suffix("").parts)
            paths[name.removesuffix(".__init__")] = path
    found = {}
    for name, path in paths.items():
        tree = WithoutTypes().visit(ast.parse(path.read_text(encoding="utf-8")))
        names = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    names.add(inner if inner in paths else str(node.module))
        found[name] = names & paths.keys() - {name}
    return found


class WithoutTypes(ast.NodeTransformer):
    """Without what stands under `if TYPE_CHECKING`."""

    def visit_If(self, node: ast.If) -> ast.AST:
        if ast.unparse(node.test) == "TYPE_CHECKING":
            return ast.Pass()
        return self.generic_visit(node)


def in_cycles(graph: dict[str, set[str]]) -> set[str]:
    """Those that need themselves."""
    found = set()
    for name in graph:
        seen: set[str] = set()
        ahead = [*graph[name]]
        while ahead:
            one = ahead.pop()
            if one not in seen:
                seen.add(one)
                ahead += graph[one]
        if name in seen:
            found.add(name)
    return found


def test_no_module_needs_itself() -> None:
    assert not in_cycles(needed(ROOT))


def test_a_planted_cycle_is_found(tmp_path: Path) -> None:
    texts = {
        "protocol/binlog_protocol/a.py": "from binlog_protocol import b\n",
        "protocol/binlog_protocol/b.py": "def f():\n    from binlog_protocol.c import g\n",
        "protocol/binlog_protocol/c.py": "import binlog_protocol.a\n",
        "protocol/binlog_protocol/d.py": "if TYPE_CHECKING:\n    import binlog_protocol.e\n",
        "protocol/binlog_protocol/e.py": "import binlog_protocol.d, binlog_protocol.a\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert in_cycles(needed(tmp_path)) == {f"binlog_protocol.{name}" for name in "abc"}
