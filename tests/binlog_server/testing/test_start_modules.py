"""What the first master of a process loads: imports are nearly all of the time that it takes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import pytest

from binlog_server.app.app import LATER

LIBRARIES: Final = {"google_crc32c", "uvloop"}
"""Of others. What is not among them is loaded where it is used: cryptography with the first TLS, lark with the first
statement that needs a grammar, pymysql with `sql`."""
NEVER: Final = {
    *LATER,
    "binlog_protocol.event_text.debezium_form",
    "binlog_server.cli",
    "binlog_server.connections.certificate",
    "binlog_server.metrics.http",
    "binlog_server.metrics.metric",
    "binlog_server.relay.connection",
    "binlog_server.testing.master_process",
    "binlog_server.testing.mariadb",
    "binlog_server.testing.random_histories",
    "binlog_storage.archive.archive",
    "binlog_storage.verify",
    "email",
    "multiprocessing",
    "tomllib",
}
MODULES: Final = 650
"""A start loads 640."""
PROGRAM: Final = """
import json, sys
from binlog_server.testing import new_master
master = new_master().start()
print(json.dumps({name: getattr(module, "__file__", None) or "" for name, module in sys.modules.items()}))
"""

CALLER: Final = """
import json, sys
from binlog_server.testing import new_master
new_master(process=True).discard()
print(json.dumps(list(sys.modules)))
"""
SEARCHED: Final = 30_000
"""Of the 117,000 objects that modules are made of: so many may the searches for garbage of a start look at in all."""
SEARCHES: Final = """
import gc
searched = []
def note(phase, info):
    if phase == "start":
        searched.append(sum(len(gc.get_objects(number)) for number in range(info["generation"] + 1)))
gc.callbacks.append(note)
"""
CONFIGURED: Final = """
import sys
from binlog_server.cli import main
assert not main(["serve", "--check-config", f"--directory={sys.argv[1]}"])
print(sum(searched))
"""
STARTED: Final = """
from binlog_server.testing import new_master
master = new_master().start()
print(sum(searched), flush=True)
"""
OF_SERVERS: Final = {
    "asyncio",
    "binlog_server.app",
    "binlog_server.sql",
    "binlog_server.testing.served",
    "binlog_storage.engine",
    "uvloop",
}


def superfluous(loaded: Mapping[str, str]) -> list[str]:
    """Modules by name that no start needs. `loaded`: the file of each."""
    found = []
    for name, file in loaded.items():
        library = name.partition(".")[0]
        is_asked_for = not library.startswith("_")  # those of .pth files are not
        if (
            "site-packages" in Path(file).parts and is_asked_for and library not in LIBRARIES
        ) or name in NEVER:
            found.append(name)
    return sorted(found)


def named(names: Iterable[str]) -> dict[str, str]:
    return {name: f"/venv/lib/site-packages/{name}.py" for name in names}


def test_a_start_loads_what_it_needs() -> None:
    """The program ends, though it has not stopped its master: nor does that say anything then."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=50
    )
    assert done.stderr == ""
    loaded: dict[str, str] = json.loads(done.stdout)
    assert superfluous(loaded) == []
    loaded.pop("sitecustomize", None)  # Debian's Python has one, whoever starts it
    assert len(loaded) < MODULES


def test_the_caller_of_a_master_in_another_process_loads_no_server() -> None:
    """It is loaded once, there: two of them one behind the other were twice the time."""
    done = subprocess.run(
        [sys.executable, "-c", CALLER], capture_output=True, text=True, check=True
    )
    assert not OF_SERVERS & set(json.loads(done.stdout))


def test_what_is_superfluous_is_seen() -> None:
    assert superfluous(named(["uvloop.loop", "cryptography.x509"])) == ["cryptography.x509"]
    assert superfluous({"email": "/lib/python3/email/__init__.py"}) == ["email"]


@pytest.mark.parametrize("program", [CONFIGURED, STARTED])
def test_modules_are_not_searched_for_garbage(program: str, tmp_path: Path) -> None:
    """Not in the first search behind them, either: it took a tenth of a start."""
    done = subprocess.run(
        [sys.executable, "-c", SEARCHES + program, str(tmp_path / "store")],
        capture_output=True,
        text=True,
        check=True,
        timeout=50,
    )
    assert int(done.stdout.split()[-1]) < SEARCHED
