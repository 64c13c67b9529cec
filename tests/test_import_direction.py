"""Who may import whom. Read from the source, so that nothing has to be installed or imported.

binlog_server -> binlog_storage -> binlog_protocol        binlog_pipeline -> binlog_storage, binlog_protocol

Within a package `ROOMS` says it. No module needs itself, by whatever way round.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from tests.house import PACKAGES, ROOT, House, knots, product

OURS = (*PACKAGES, "benchmarks", "tests")


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


ROOMS = {
    "binlog_protocol": {
        ".": "",
        "sql": ".",
        "events": ".",
        "events.rows": ". events",
        "wire": ". events",
        "dump": ". events",
        "event_text": ". events events.rows sql",
        "groups": ". sql events events.rows wire",
        "connection": ". events groups wire",
        "tables": ". sql events events.rows groups",
        "row_columns": ". events events.rows event_text tables",
    },
    "binlog_storage": {
        ".": "",
        "console": ".",
        "ibb": ".",
        "disk": ". ibb",
        "redo": ". ibb disk",
        "engine": ". ibb disk",
        "testing": ". ibb disk engine",
        "log": ". ibb disk redo engine",
        "tables": ". ibb disk redo",
        "binlog": ". ibb disk redo engine log tables",
        "intake": ". ibb disk engine log",
        "classic": ". ibb disk redo engine log tables binlog intake",
        "verify": ". ibb disk redo tables log classic",
        "archive": ". ibb disk engine log intake",
        "scrub": ". ibb disk log classic archive",
        "convert": ". ibb disk engine log tables binlog intake classic",
        "backup": ". ibb disk engine log tables classic",
    },
    "binlog_server": {
        "process": "",
        "loop": "",
        "accounts": "",
        "upstreams": "loop",
        "settings": "process accounts upstreams",
        "connections": "process loop accounts settings",
        "commits": "loop",
        "faults": "",
        "semi_sync": "loop commits",
        "dumps": "process loop accounts connections commits faults semi_sync",
        "relay": "process loop upstreams settings commits semi_sync",
        "store": "process upstreams settings",
        "queries": "",
        "tables": "queries",
        "sql": "loop accounts settings connections faults dumps relay store queries tables",
        "sql_commit": "loop accounts commits semi_sync queries tables sql",
        "sessions": "process loop accounts connections faults dumps sql sql_commit",
        "metrics": "process loop settings connections commits semi_sync dumps relay store",
        "app": "loop accounts upstreams settings connections commits faults semi_sync dumps relay store queries tables"
        " sql sql_commit sessions metrics",
        "cli": "process loop accounts upstreams settings connections faults relay store metrics tables app",
        "testing": "process faults relay store tables app",
        ".": "cli testing",
    },
    "binlog_pipeline": {
        ".": "",
        "sources.dump": ".",
        "sources": ". sources.dump",
        "schemas": ". sources",
        "tables": ". schemas",
        "views": ". sources schemas",
        "spark": ". sources tables views",
        "jobs": ". sources sources.dump schemas tables views spark",
        "cli": ". sources schemas spark jobs",
    },
}
"""The plan of each package, from the ground up: a room, and those below it from which it takes. `.` is the package
itself: what stands beside the rooms. A room that is not said here, or takes from more or from fewer, is a breach."""


def breaches(house: House) -> list[str]:
    """Every import that the rules forbid, as `file:line: what`: those for types alone, too."""
    found = []
    for folder, rule in RULES.items():
        name = folder.rpartition("/")[2]
        for module in house.modules.values():
            if module.room.split(".")[0] != name:
                continue
            shown = module.path.relative_to((house.root / folder).parent)
            for taken in sorted(module.outline.imports, key=lambda one: one.line):
                top = taken.name.split(".")[0]
                if (top in OURS and top not in {name, *rule.ours}) or top in rule.never:
                    found.append(f"{shown}:{taken.line}: {name} must not import {taken.name}")
    return found


def test_the_direction_of_imports() -> None:
    found = breaches(product())
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
    "binlog_protocol/events/clock.py:2: binlog_protocol must not import time.time",
    "binlog_protocol/wire.py:2: binlog_protocol must not import os.path",
    "binlog_protocol/wire.py:3: binlog_protocol must not import binlog_storage.disk.disk.Disk",
    "binlog_storage/hidden.py:2: binlog_storage must not import pyspark.sql",
    "binlog_storage/ibb/page.py:2: binlog_storage must not import asyncio",
    "binlog_storage/up.py:1: binlog_storage must not import binlog_server.dumps.dump.Dump",
    "binlog_server/layout.py:1: binlog_server must not import struct",
    "binlog_server/near/far.py:2: binlog_server must not import binlog_pipeline.jobs",
    "binlog_server/test.py:2: binlog_server must not import tests.kit",
    "binlog_pipeline/up.py:2: binlog_pipeline must not import binlog_server.cli",
]


def test_planted_breaches_are_found(tmp_path: Path) -> None:
    for name, text in PLANTED.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert breaches(House(tmp_path)) == EXPECTED


def rooms_taken_from(house: House, package: str) -> dict[str, set[str]]:
    """By room of a package the others of it from which it imports, named as in `ROOMS`."""

    def short(room: str) -> str:
        return room.removeprefix(package).removeprefix(".") or "."

    return {
        short(room): {short(one) for one in below if one.split(".")[0] == package}
        for room, below in house.rooms.items()
        if room.split(".")[0] == package
    }


@pytest.mark.parametrize("package", ROOMS)
def test_the_rooms_are_those_of_the_plan(package: str) -> None:
    plan = {room: set(below.split()) for room, below in ROOMS[package].items()}
    assert rooms_taken_from(product(), package) == plan
    built: set[str] = set()
    for room, below in plan.items():
        assert below <= built, f"{room} stands on {below - built}, which the plan has above it"
        built.add(room)


def test_no_module_needs_itself() -> None:
    assert not knots(product().needs)


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
    assert knots(House(tmp_path).needs) == [[f"binlog_protocol.{name}" for name in "abc"]]


def test_rooms_that_need_each_other_are_found(tmp_path: Path) -> None:
    texts = {
        "storage/binlog_storage/errors.py": "",
        "storage/binlog_storage/disk/disk.py": "from binlog_storage.errors import E\nimport binlog_protocol.gtid\n",
        "storage/binlog_storage/disk/names.py": "def f():\n    from ..log.search import g\n",
        "storage/binlog_storage/log/search.py": "from binlog_storage.disk.disk import Disk\n",
        "protocol/binlog_protocol/gtid.py": "",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    house = House(tmp_path)
    assert rooms_taken_from(house, "binlog_storage") == {
        ".": set(),
        "disk": {".", "log"},
        "log": {"disk"},
    }
    assert knots(house.rooms) == [["binlog_storage.disk", "binlog_storage.log"]]
