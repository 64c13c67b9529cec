"""The words of the house are true: READMEs name every module, and what documents and comments point at is there.

And tests stand where the code stands: a folder for a folder.

A module is named in the nearest README, in the section of its folder: a heading with `folder/` in it.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from tests.house import nodes_in

ROOT = Path(__file__).parent.parent
TOPS = ("protocol", "storage", "binlog_server", "pipeline", "benchmarks", "tests")
PACKAGES = {
    "binlog_protocol": "protocol/binlog_protocol",
    "binlog_storage": "storage/binlog_storage",
    "binlog_pipeline": "pipeline/binlog_pipeline",
    "binlog_server": "binlog_server",
    "benchmarks": "benchmarks",
    "tests": "tests",
}
MODULES = (".py", ".pyi", ".c", ".h", ".lark")
UNNAMED = {"__init__.py", "__main__.py", "conftest.py"}  # their names say what they are
MADE = re.compile(r"/(captures|samples|data)/")
ELSEWHERE = re.compile(
    r"storage/innobase/|.*\.abi3\.so$"
)  # MariaDB's source; what a compiler makes

QUOTED = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\[[^]\n]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.*?)\s*$", re.MULTILINE)
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
NAME = re.compile(rf"(?<![\w./-])(?:{'|'.join(PACKAGES)})(?:\.[A-Za-z_]\w*)+(?![\w/])")
PATH = re.compile(
    rf"(?<![\w./*<{{-])((?:{'|'.join({*PACKAGES, *TOPS, 'docs', 'docker'})})/[\w./-]*[\w/])"
)
DOCUMENTED = {ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef}
SEE = re.compile(r"\b[Ss]ee `([A-Za-z_][\w.]*)`")
SECTION = re.compile(r"\b(?:sections? \d[\d.]*|§ ?\d)", re.IGNORECASE)
DOTTED_FILES = {"abi3", "so", "md", "toml", "json"}


@cache
def files(root: Path) -> frozenset[str]:
    """Those that git has, or is about to have; of a folder that is no work tree all."""
    if (root / ".git").exists():
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        return frozenset(name for name in listed if (root / name).exists())
    found = (path for path in root.rglob("*") if path.is_file())
    return frozenset(path.relative_to(root).as_posix() for path in found)


def text_of(root: Path, name: str) -> str:
    return (root / name).read_text("utf-8")


# --- READMEs name every module, and no other ---


def sections(text: str) -> Iterator[tuple[str, str]]:
    """The folders that headings name, and what stands below each. What stands above all belongs to "."."""
    folder, lines = ".", list[str]()
    for line in text.splitlines():
        if line.startswith("## "):
            yield folder, "\n".join(lines)
            named = re.match(r"## `([^`]+)/`", line)
            folder, lines = named[1] if named else "", []
        lines.append(line)
    yield folder, "\n".join(lines)


def first_cells(text: str) -> str:
    """Of a table its first column; other lines whole. What a thing does may name others."""
    return "\n".join(
        line.split("|")[1] if line.startswith("|") else line for line in text.splitlines()
    )


def modules_named(text: str) -> set[str]:
    quoted = {name for name in QUOTED.findall(text) if re.fullmatch(r"\w+(\.\w+)+", name)}
    listed = set(re.findall(r"^ {4}(\w+\.\w+) ", text, re.MULTILINE))
    return {name for name in quoted | listed if PurePosixPath(name).suffix in MODULES}


def unnamed_modules(root: Path) -> Iterator[str]:
    """What is there and not named, and what is named in the table of a folder and is not there."""
    readmes = {
        name
        for name in files(root)
        if PurePosixPath(name).name == "README.md" and name.split("/")[0] in TOPS
    }
    there = dict[tuple[str, str], set[str]]()  # by README and folder
    for name in files(root):
        path = PurePosixPath(name)
        if path.parts[0] not in TOPS or path.suffix not in MODULES or MADE.search(name):
            continue
        if path.name in UNNAMED or (path.parts[0] == "tests" and path.name.startswith("test_")):
            continue
        parents = [str(parent / "README.md") for parent in path.parents]
        readme = next((parent for parent in parents if parent in readmes), None)
        if readme is None:
            yield f"{name}: no README above it"
        else:
            there.setdefault((readme, str(path.parent)), set()).add(path.name)
    for (readme, folder), names in sorted(there.items()):
        text = text_of(root, readme)
        own = PurePosixPath(readme).parent == PurePosixPath(folder)
        fitting = {section for section, _ in sections(text) if f"/{folder}".endswith(f"/{section}")}
        meant = {max(fitting, key=len, default=None)}  # `integration/rows/` before `rows/`
        below = [
            part
            for section, part in sections(text)
            if section in meant or (own and section in (".", ""))
        ]
        named = modules_named(first_cells("\n".join(below)))
        for missing in sorted(names - modules_named("\n".join(below))):
            yield f"{readme}: {folder}/{missing} is not named in a section `{PurePosixPath(folder).name}/`"
        if not own or fitting:
            tabled = modules_named(
                "\n".join(
                    line
                    for line in first_cells("\n".join(below)).splitlines()
                    if line.startswith(" `")
                )
            )
            for gone in sorted((tabled & named) - names - UNNAMED):
                yield f"{readme}: {folder}/{gone} is named and not there"


def test_readmes_name_every_module() -> None:
    assert not list(unnamed_modules(ROOT))


# --- what is pointed at is there ---


def anchors(text: str) -> set[str]:
    """As GitHub makes them of headings."""
    made = set()
    for heading in HEADING.findall(FENCE.sub("", text)):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        made.add(re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-"))
    return made


@cache
def folders(root: Path) -> frozenset[str]:
    return frozenset(str(above) for name in files(root) for above in PurePosixPath(name).parents)


def is_there(root: Path, path: str) -> bool:
    path = path.rstrip("/")
    return path in files(root) or path in folders(root)


def broken_links(root: Path) -> Iterator[str]:
    for page in sorted(name for name in files(root) if name.endswith(".md")):
        text = FENCE.sub("", text_of(root, page))
        for target in LINK.findall(text):
            if "://" in target or target.startswith("mailto:"):
                continue
            path, _, anchor = target.partition("#")
            full = ((root / page).parent / path).resolve() if path else root / page
            if not full.is_relative_to(root) or not is_there(root, str(full.relative_to(root))):
                yield f"{page}: {target} is not there"
            elif anchor and anchor not in anchors(full.read_text("utf-8")):
                yield f"{page}: no heading gives #{anchor}"


def resolves(root: Path, dotted: str) -> bool:
    """A module, or a name at the top of one, or a member of a class there."""
    first, *rest = dotted.split(".")
    place = PACKAGES[first]
    while rest:
        below = f"{place}/{rest[0]}"
        if f"{below}/__init__.py" in files(root) or (
            f"{below}.py" not in files(root) and is_there(root, below)
        ):
            place, rest = below, rest[1:]
            continue
        if any(f"{below}{suffix}" in files(root) for suffix in (".py", ".pyi", ".c")):
            if len(rest) == 1:
                return True
            module = f"{below}.py" if f"{below}.py" in files(root) else f"{below}.pyi"
            return module in files(root) and has(root, module, rest[1:])
        return f"{place}/__init__.py" in files(root) and has(root, f"{place}/__init__.py", rest)
    return True


@cache
def parsed(root: Path, module: str) -> tuple[frozenset[str], list[str]]:
    """Of a module the names bound anywhere in it, and its docstrings."""
    names, docstrings = set[str](), list[str]()
    todo: list[Any] = [ast.parse(text_of(root, module))]
    while todo:
        node = todo.pop()
        kind = type(node)
        if kind in DOCUMENTED:
            names.add(getattr(node, "name", ""))
            if docstring := ast.get_docstring(node):
                docstrings.append(docstring)
        elif kind is ast.Name:
            names.add(node.id)
            continue
        elif kind is ast.Attribute:
            names.add(node.attr)
            todo.append(node.value)
            continue
        elif kind is ast.alias:
            names.add((node.asname or node.name).split(".")[0])
        todo += nodes_in(node)
    return frozenset(names), docstrings


def names_in(root: Path, module: str) -> frozenset[str]:
    """Names bound anywhere in a module: enough to tell a name that is there from one that has gone."""
    return parsed(root, module)[0]


def has(root: Path, module: str, rest: list[str]) -> bool:
    return set(rest) <= names_in(root, module)


def prose(root: Path, name: str) -> str:
    """Of a page all but what it shows as an example; of code what a reader reads: comments and docstrings."""
    text = text_of(root, name)
    if name.endswith(".md"):
        return FENCE.sub("", text)
    if not name.endswith((".py", ".pyi")):
        return text
    parts = [line.partition("#")[2] for line in text.splitlines() if "#" in line]
    return "\n".join([*parts, *parsed(root, name)[1]])


def readable(root: Path) -> Iterator[str]:
    for name in sorted(files(root)):
        if MADE.search(name) or "/corpus/" in name or name == "tests/test_tidy.py":
            continue
        if name.endswith((".md", ".py", ".pyi", ".c", ".h", ".lark", ".toml", ".sh")) or name in (
            "Makefile",
            ".ci/run",
        ):
            yield name


def paths_of(root: Path, page: str, path: str) -> Iterable[str]:
    """Where a path may be meant from: the root, the page's folder, a package's folder."""
    first, _, rest = path.partition("/")
    yield path
    yield str(PurePosixPath(page).parent / path)
    if first in PACKAGES:
        yield f"{PACKAGES[first]}/{rest}"
    if first in TOPS:
        yield f"{PACKAGES.get(f'binlog_{first}', first)}/{rest}"
    top = page.split("/")[0]
    if top in TOPS:
        yield f"{top}/{path}"
        yield f"{PACKAGES.get(f'binlog_{top}', top)}/{path}"


def dangling(root: Path) -> Iterator[str]:
    """Paths and names that lead nowhere, and sections by number: no document here numbers its sections."""
    for page in readable(root):
        text = prose(root, page)
        for found in PATH.finditer(text):
            path = found[1]
            if text[found.end() : found.end() + 1] in ("*", "<", "{") or ELSEWHERE.match(path):
                continue  # a pattern, or none of ours
            if not any(is_there(root, tried) for tried in paths_of(root, page, path)):
                yield f"{page}: {path} is not there"
        for found in NAME.finditer(text):
            if found[0].rsplit(".", 1)[1] in DOTTED_FILES | {"py"}:
                continue
            if not resolves(root, found[0]):
                yield f"{page}: {found[0]} is not there"
        for seen in SEE.findall(text) if page.endswith(".py") else ():
            if not is_named(root, page, seen):
                yield f"{page}: there is no {seen} to see"
        for quoted in QUOTED.findall(text):
            if re.fullmatch(r"[a-z]\w*\.pyi?", quoted) and quoted not in basenames(root):
                yield f"{page}: no module is called {quoted}"
        for found in SECTION.finditer(text):
            yield f"{page}: cites {found[0]!r}: no document has sections with numbers"


@cache
def all_names(root: Path) -> frozenset[str]:
    modules = [name for name in files(root) if name.endswith(".py")]
    found = {PurePosixPath(name).stem for name in modules}
    return frozenset(found.union(*(names_in(root, name) for name in modules)))


def is_named(root: Path, page: str, name: str) -> bool:
    """Whether a `See` leads to a full name, to one below the page's package or folder, or to a class or its member."""
    if name.endswith(".py") or name.split(".")[0] in {*sys.stdlib_module_names, "hatchling"}:
        return True  # a file of ours, which is looked for by its name; or nothing of ours
    meant = [name]
    for package, place in PACKAGES.items():
        if page.startswith(f"{place}/"):
            inner = PurePosixPath(page).parent.relative_to(place).parts
            meant += [f"{package}.{name}", ".".join([package, *inner, name])]
    if any(one.split(".")[0] in PACKAGES and resolves(root, one) for one in meant):
        return True
    module_like = "." in name and name.split(".")[0].islower()
    return not module_like and set(name.split(".")) <= all_names(root)


@cache
def basenames(root: Path) -> frozenset[str]:
    return frozenset(PurePosixPath(name).name for name in files(root))


def pages_named(root: Path) -> Iterator[str]:
    """Every page of docs/ is in its index."""
    index = text_of(root, "docs/README.md")
    for name in sorted(files(root)):
        page = name.removeprefix("docs/")
        if (
            page != name
            and page.endswith(".md")
            and page != "README.md"
            and f"({page}" not in index
        ):
            yield f"docs/README.md: {name} is not in it"


# --- tests stand where the code stands ---

# Tests of the whole of a package, each with a reason in tests/README.md; and where another folder has the tests.
TESTS_OF_MORE = {"compatibility", "rights", "contract", "crash", "simulation"}
TESTED_ELSEWHERE = {
    "app",  # by all tests with a Lab
    "engine",  # in contract and binlog
    "testing",  # the twins pass the contract
    "sources/dump",  # in sources
}


def rooms(root: Path, top: str) -> set[str]:
    """The folders with Python below one, as paths from there."""
    found = {
        PurePosixPath(name).parent.relative_to(top).as_posix()
        for name in files(root)
        if name.startswith(f"{top}/") and name.endswith(".py")
    }
    return found - {"."}


def not_mirrored(root: Path) -> Iterator[str]:
    for package in ("binlog_protocol", "binlog_storage", "binlog_server", "binlog_pipeline"):
        place = PACKAGES[package]
        tests = f"tests/{place.split('/')[0]}"
        code = rooms(root, place)
        for room in sorted(rooms(root, tests) - code - TESTS_OF_MORE):
            yield f"{tests}/{room} is no folder of {place}"
        for room in sorted(code - rooms(root, tests) - TESTED_ELSEWHERE):
            yield f"{place}/{room} has no folder {tests}/{room}"


def test_tests_mirror_the_code() -> None:
    assert not list(not_mirrored(ROOT))


def test_links_lead_somewhere() -> None:
    assert not list(broken_links(ROOT))


@pytest.mark.timeout(240)  # it parses all files: 10 s of a processor that may have other work
def test_paths_and_names_lead_somewhere() -> None:
    assert not list(dangling(ROOT))


def test_every_page_is_in_the_index() -> None:
    assert not list(pages_named(ROOT))


# --- and the checks find what they are for ---


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A small one, in which all is well."""
    for name, text in {
        "storage/README.md": "# storage\n\n## `disk/`\n\n| file | job |\n|---|---|\n| `disk.py` | a door |\n",
        "storage/binlog_storage/disk/__init__.py": "",
        "storage/binlog_storage/disk/disk.py": '"""See docs/a.md; see `disk.Disk`."""\n'
        "class Disk:\n    def read(self): ...\n",
        "tests/storage/disk/test_disk.py": "",
        "docs/README.md": "[a](a.md)\n",
        "docs/a.md": "# A page, of A\n\n`storage/binlog_storage/disk/`, `binlog_storage.disk.disk.Disk.read`\n"
        "[up](#a-page-of-a)\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def breaches(house: Path) -> list[str]:
    files.cache_clear()
    parsed.cache_clear()
    folders.cache_clear()
    basenames.cache_clear()
    all_names.cache_clear()
    return [
        *unnamed_modules(house),
        *broken_links(house),
        *dangling(house),
        *pages_named(house),
        *not_mirrored(house),
    ]


def test_a_tidy_house_has_no_breach(house: Path) -> None:
    assert breaches(house) == []


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("storage/binlog_storage/disk/new.py", "", "disk/new.py is not named"),
        ("storage/binlog_storage/room/new.py", "", "room/new.py is not named"),
        ("storage/README.md", "## `disk/`\n| `disk.py`, `old.py` | a door |\n", "old.py is named and not there"),
        ("storage/README.md", "## `other/`\n| `disk.py` | a door |\n", "disk/disk.py is not named"),
        ("docs/a.md", "[gone](b.md)\n", "b.md is not there"),
        ("docs/a.md", "# A\n[gone](#b)\n", "no heading gives #b"),
        ("docs/a.md", "`storage/binlog_storage/gone.py`\n", "gone.py is not there"),
        ("docs/a.md", "`binlog_storage.disk.gone`\n", "binlog_storage.disk.gone is not there"),
        ("docs/a.md", "`binlog_storage.disk.disk.Gone`\n", "disk.Gone is not there"),
        ("docs/a.md", "`gone.py` did it\n", "no module is called gone.py"),
        ("storage/binlog_storage/disk/disk.py", '"""See `gone.Disk`."""', "no gone.Disk to see"),
        ("storage/binlog_storage/disk/disk.py", '"""See `Gone`."""', "no Gone to see"),
        ("storage/binlog_storage/room/__init__.py", "", "has no folder tests/storage/room"),
        ("tests/storage/room/test_room.py", "", "is no folder of storage/binlog_storage"),
        ("docs/b.md", "# B\n", "docs/b.md is not in it"),
        ("storage/binlog_storage/disk/disk.py", '"""See docs/gone.md."""', "docs/gone.md is not there"),
        ("storage/binlog_storage/disk/disk.py", "# as section 11.2 says", "cites 'section 11.2'"),
    ],
)  # fmt: skip
def test_a_breach_is_found(house: Path, name: str, text: str, said: str) -> None:
    (house / name).parent.mkdir(exist_ok=True)
    (house / name).write_text(text)
    found = breaches(house)
    assert any(said in breach for breach in found), found


def test_the_house_has_every_top_folder() -> None:
    """So that nothing passes because it was not looked at."""
    assert {name.split("/")[0] for name in files(ROOT)} >= {*TOPS, "docs", "docker"}
    for top in TOPS:
        assert f"{top}/README.md" in files(ROOT)
