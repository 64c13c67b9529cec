"""Unit tests: no server, no other process, no other machine. `make test-unit` runs them, and nothing else.

A test is one by its place: it is in a folder of the code, asks for nothing that is a server or a disk, is not marked as
`slow`, `spark` or `long`, and its module is not in `LONG`. What it may not do is refused while it runs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

TESTS: Final = Path(__file__).parent.parent
FOLDERS: Final = frozenset({"protocol", "storage", "binlog_server", "pipeline", "benchmarks"})
LONG: Final = {
    "benchmarks": "benchmarks parts streams",
    "binlog_server": "compatibility_page loop_on_a_full_disk",
    "binlog_server/accounts": "accounts",
    "binlog_server/app": "as_it_lies conversion master",
    "binlog_server/cli": "backup compare convert events find hand_over import json offline seed serve_archive "
    "server_histories signals verify",
    "binlog_server/commits": "quick_commit",
    "binlog_server/connections": "compression tls",
    "binlog_server/dumps": "archived_dump classic_style dump large_group_frames replica_stream",
    "binlog_server/metrics": "endpoint",
    "binlog_server/relay": "follower guard ingest large_groups lost_anywhere",
    "binlog_server/sessions": "doors faulty_session handshake_lab prepared session session_fuzz",
    "binlog_server/queries": "bounds documents regular",
    "binlog_server/settings": "config_fuzz",
    "binlog_server/sql": "admin answers grammar inquiries rights",
    "binlog_server/sql_commit": "sql_commit",
    "binlog_server/store": "slots",
    "binlog_server/tables": "consistent_snapshot duplicates histories hostile lock_tables paths planted quick_rows "
    "sessions snapshot_isolation sqlite_tables temporary_tables",
    "binlog_server/testing": "master master_process random_histories start_modules",
    "pipeline": "filters",
    "pipeline/cli": "cli json",
    "pipeline/jobs": "archive archive_killed ddl_seed_cli ddl_seed_server export stats",
    "pipeline/schemas": "ddl_tables",
    "pipeline/sources": "archive_source damaged_stores directory directory_live server_large server_source",
    "pipeline/tables": "sinks",
    "pipeline/views": "views_events",
    "protocol": "errors fuzz",
    "protocol/connection": "ed25519",
    "protocol/groups": "group_content",
    "protocol/row_columns": "against_plain base_install repeats",
    "protocol/wire": "event_frames packets semi_sync",
    "storage": "engines",
    "storage/archive": "archiver encryption merging part_reader s3",
    "storage/backup": "backup power_cuts sqlite traditional",
    "storage/convert": "roads",
    "storage/binlog": "ages fill_page open_files opening page_store properties purge refused_starts threads",
    "storage/classic": "crash cuts files rename store tables",
    "storage/crash": "crash crash_steps enumerated planted tables tables_planted",
    "storage/intake": "intake",
    "storage/log": "batch_reader partitions search",
    "storage/redo": "any_history",
    "storage/simulation": "simulation",
}
"""By folder the modules of which `test_...` takes more than some 1.5 s of processor time, or starts processes."""

_OTHER_TIERS: Final = ("replica", "slow", "spark", "long")
_OUTSIDE: Final = frozenset(
    {"backend", "make_replica", "make_upstream", "binlog_server", "make_mariadb_replica"}
    | {"cut_disk", "small_disk", "thin_disk", "failing_disk"}
)
_NO_UNIT: Final = re.compile(
    rf"\bmark\.({'|'.join(_OTHER_TIERS)})\b|\b({'|'.join(sorted(_OUTSIDE))})\s*[:,)]"
)
_PROCESSES: Final = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn"})
_LOOPBACK: Final = ("127.", "::1", "localhost")

_state = {"alone": False, "watched": False}


@cache
def may_have_units(path: Path) -> bool:
    """Whether a file may have a test that `make test-unit` runs: the others need not be read for it."""
    if not path.is_relative_to(TESTS):
        return False
    below = path.relative_to(TESTS)
    name = below.stem.removeprefix("test_")
    return below.parts[0] in FOLDERS and name not in LONG.get(str(below.parent), "").split()


@cache
def has_units_alone(path: Path) -> bool:
    """Whether `make test-others` need not read a file: nothing in its text makes a test anything but a unit.

    `require_units_alone` holds it to be true in each run of the units.
    """
    is_test = path.name.startswith("test_") and may_have_units(path)
    return is_test and not _NO_UNIT.search(path.read_text("utf-8"))


def require_units_alone(items: Iterable[pytest.Item]) -> None:
    """Raises `pytest.UsageError` if one is no unit and would be run by nobody."""
    for item in items:
        if has_units_alone(item.path) and not is_unit(item):
            raise pytest.UsageError(f"{item.nodeid} is no unit: say so in its file, by a marker")


def is_unit(item: pytest.Item) -> bool:
    """Whether `make test-unit` runs it."""
    return (
        may_have_units(item.path)
        and not any(item.get_closest_marker(name) for name in _OTHER_TIERS)
        and not _OUTSIDE & set(getattr(item, "fixturenames", ()))
    )


@contextmanager
def alone(wanted: bool) -> Iterator[None]:
    """Within it no process is started and no other machine is called, if that is `wanted`."""
    if not _state["watched"]:
        sys.addaudithook(_refuse)  # for good: there is no way to take one back
        _state["watched"] = True
    before, _state["alone"] = _state["alone"], wanted
    try:
        yield
    finally:
        _state["alone"] = before


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if not _state["alone"]:
        return
    if event in _PROCESSES:
        raise RuntimeError(f"a unit test starts a process ({event}): mark it as long")
    if event == "socket.connect" and isinstance(arguments[1], tuple):
        host = str(arguments[1][0])
        if not host.startswith(_LOOPBACK):
            raise RuntimeError(f"a unit test connects to {host}: mark it as long")
