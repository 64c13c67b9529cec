"""The shape of the product's Python, counted: `python -m tests.house`. What must stay so is held by test_house.py.

Whether two modules are one job is for a reader to judge. These numbers say where to look, and are what a change of the
house reports before and after.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent

PACKAGES = {
    "binlog_protocol": "protocol/binlog_protocol",
    "binlog_storage": "storage/binlog_storage",
    "binlog_server": "binlog_server",
    "binlog_pipeline": "pipeline/binlog_pipeline",
}
"""What is installed, and the folder in which it is."""

Graph = Mapping[str, Collection[str]]

JOBS = {
    "a record is put together from chunks": r"& CONT\b",
    "a commit record is decoded": r"\bcommit\.decode\b",
    "a state record is decoded": r"\bgtid_state\.decode\b",
    "a page is found by bisection": r"\(low \+ high\) // 2",
    "a client logs in": r"\bLoginRequest\(",
}
"""Jobs that stood in several places once, each with a pattern that finds whoever does it."""


class Import(NamedTuple):
    """One imported name, absolute: a module, or what is taken from one."""

    name: str
    line: int
    for_types: bool
    """Under `if TYPE_CHECKING`: not when the module runs."""


class Outline(NamedTuple):
    """What the rules ask of a module's text."""

    imports: list[Import]
    """Inside functions, relative, and by name, too."""
    classes: list[str]
    functions: list[tuple[int, str]]
    """How many lines each has, and its name."""


@dataclass(frozen=True)
class Module:
    """A file of Python. Its room is the package in which it stands; an `__init__.py` stands in its own."""

    name: str
    room: str
    path: Path
    text: str

    @cached_property
    def outline(self) -> Outline:
        return outline(self.text, self.room)

    @property
    def lines(self) -> int:
        return self.text.count("\n")


def outline(text: str, room: str) -> Outline:
    """One walk over all nodes."""
    found = Outline([], [], [])
    ahead: list[tuple[Any, bool]] = [(ast.parse(text), False)]
    while ahead:
        node, for_types = ahead.pop()
        kind = type(node)
        if kind is ast.Name or kind is ast.Constant:
            continue
        if kind is ast.Import or kind is ast.ImportFrom or kind is ast.Call:
            found.imports.extend(
                Import(name, node.lineno, for_types) for name in imported(node, room)
            )
        elif kind is ast.ClassDef:
            found.classes.append(node.name)
        elif kind is ast.FunctionDef or kind is ast.AsyncFunctionDef:
            found.functions.append((node.end_lineno - node.lineno + 1, node.name))
        elif kind is ast.If and ast.unparse(node.test) == "TYPE_CHECKING":
            ahead += [(one, True) for one in node.body]
            ahead += [(one, for_types) for one in node.orelse]
            continue
        ahead += [(one, for_types) for one in nodes_in(node)]
    return found


def walk(text: str) -> Iterator[Any]:
    """All nodes of a module, in no order."""
    ahead: list[ast.AST] = [ast.parse(text)]
    while ahead:
        node = ahead.pop()
        yield node
        ahead += nodes_in(node)


def nodes_in(node: ast.AST) -> list[ast.AST]:
    """Its children: `ast.iter_child_nodes` takes three times as long, and there are thousands of files.

    Without those that say only how another one is used (`ast.Load`) or joined (`ast.Add`), a third of all.
    """
    found = list[ast.AST]()
    for name, value in vars(node).items():
        if type(value) is list:
            found += [one for one in value if isinstance(one, ast.AST)]
        elif name not in _NO_CHILDREN and isinstance(value, ast.AST):
            found.append(value)
    return found


_NO_CHILDREN = frozenset({"lineno", "end_lineno", "col_offset", "end_col_offset", "ctx", "op"})


def imported(node: ast.Import | ast.ImportFrom | ast.Call, room: str) -> Iterator[str]:
    """The names that one statement, or one call, of a module of `room` imports."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        parts = room.split(".")[: len(room.split(".")) - node.level + 1] if node.level else []
        taken_from = ".".join([*parts, *filter(None, [node.module])])
        yield from (f"{taken_from}.{alias.name}" for alias in node.names)
    elif node.args and isinstance(node.args[0], ast.Constant):
        called = node.func
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        if name in ("__import__", "import_module"):
            yield str(node.args[0].value)


@dataclass(frozen=True)
class House:
    """The modules of the product below `root`, by their names."""

    root: Path

    @cached_property
    def modules(self) -> dict[str, Module]:
        found = {}
        for folder in PACKAGES.values():
            for path in sorted((self.root / folder).rglob("*.py")):
                parts = path.relative_to((self.root / folder).parent).with_suffix("").parts
                room = ".".join(parts[:-1])
                name = room if parts[-1] == "__init__" else ".".join(parts)
                found[name] = Module(name, room, path, path.read_text(encoding="utf-8"))
        return found

    def module_of(self, name: str) -> str | None:
        """The module that an imported name is, or is in; None if it is none of ours."""
        above = name.rpartition(".")[0]
        return name if name in self.modules else above if above in self.modules else None

    @cached_property
    def needs(self) -> dict[str, set[str]]:
        """By module those that it imports when it runs: not those for types alone."""
        found = {}
        for module in self.modules.values():
            taken = (one.name for one in module.outline.imports if not one.for_types)
            names = map(self.module_of, taken)
            found[module.name] = {name for name in names if name} - {module.name}
        return found

    @cached_property
    def rooms(self) -> dict[str, set[str]]:
        """By room the other rooms that its modules import from."""
        found: dict[str, set[str]] = {module.room: set() for module in self.modules.values()}
        for name, needed in self.needs.items():
            room = self.modules[name].room
            found[room] |= {self.modules[other].room for other in needed} - {room}
        return found

    @property
    def with_one_importer(self) -> list[str]:
        importers = [other for needed in self.needs.values() for other in needed]
        return [
            name
            for name, module in self.modules.items()
            if module.path.name != "__init__.py" and importers.count(name) == 1
        ]

    @property
    def ambiguous_classes(self) -> dict[str, list[str]]:
        """Public names of classes that more than one module gives, with these modules."""
        found = defaultdict(set)
        for module in self.modules.values():
            for name in module.outline.classes:
                if not name.startswith("_"):
                    found[name].add(module.name)
        return {name: sorted(found[name]) for name in sorted(found) if len(found[name]) > 1}

    @cached_property
    def places(self) -> dict[str, list[str]]:
        """By job of `JOBS` the modules in which it is done; doubles for tests do not count."""
        return {
            job: [
                module.name
                for module in self.modules.values()
                if ".testing" not in module.room and re.search(pattern, module.text, re.MULTILINE)
            ]
            for job, pattern in JOBS.items()
        }

    @property
    def functions(self) -> list[tuple[int, str]]:
        """How many lines each has, and its name."""
        return [
            (lines, f"{module.name}.{name}")
            for module in self.modules.values()
            for lines, name in module.outline.functions
        ]


@cache
def product() -> House:
    """This one. Read once: its modules, as they were then."""
    return House(ROOT)


def knots(graph: Graph) -> list[list[str]]:
    """Groups whose members need each other, by whatever way round."""
    reached = {name: reach(graph, name) for name in graph}
    together = {
        frozenset(other for other in reached[name] if name in reached[other])
        for name in graph
        if name in reached[name]
    }
    return sorted(map(sorted, together))


def reach(graph: Graph, start: str) -> set[str]:
    seen: set[str] = set()
    ahead = [*graph[start]]
    while ahead:
        name = ahead.pop()
        if name not in seen:
            seen.add(name)
            ahead += graph[name]
    return seen


def main() -> None:
    house = product()
    files = [module for module in house.modules.values() if module.path.name != "__init__.py"]
    alone = house.with_one_importer
    length, function = max(house.functions)
    print(f"lines of the product          {sum(module.lines for module in house.modules.values())}")
    print(f"modules                       {len(files)}")
    print(f"modules with one importer     {len(alone)}")
    print(f"  of these below 80 lines     {sum(house.modules[one].lines < 80 for one in alone)}")
    print(f"import cycles                 {len(knots(house.needs))}")
    print(f"knots of rooms                {len(knots(house.rooms))}")
    print(f"class names with more classes {len(house.ambiguous_classes)}")
    print(f"longest function              {length} lines, {function}")
    for job, modules in house.places.items():
        print(f"{job:<37} {len(modules)}: {', '.join(modules)}")
    for knot in (*knots(house.needs), *knots(house.rooms)):
        print(f"\n{' <-> '.join(knot)}")
    for name, modules in house.ambiguous_classes.items():
        print(f"\nclass {name}: {', '.join(modules)}")


if __name__ == "__main__":
    main()
