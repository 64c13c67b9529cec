"""A state of any table behind any history is what the server has, or says that it may not be."""

from __future__ import annotations

import contextlib
import datetime as dt
import random
import shutil
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pymysql
import pytest
from binlog_pipeline.errors import PipelineError
from binlog_pipeline.jobs.state import OPS, keep_state
from binlog_pipeline.options import SourceOptions
from binlog_pipeline.targets import TABLE_SINKS
from binlog_protocol.gtid import SlavePosition

from binlog_server.testing.mariadb import MariaDB
from tests.kit.backends import Backend
from tests.kit.fixtures import MakeMariaDB
from tests.pipeline.stores import FULL, store_of_upstream
from tests.pipeline.tables.any_history import FOLLOWED_SHARES, SHARES, History
from tests.pipeline.tables.lake import configure, place, rows_of

LENGTH = 14
"""Of a history, in steps."""
COUNT = 600
"""Of histories in the slow test."""
ALTERED = 200
"""The same of histories that are mostly ALTER TABLE and RENAME TABLE."""
REFUSED, DOUBT, SAME, BEFORE = TOLD = ("refused", "doubt", "same", "no CREATE TABLE")


def test_some_histories(make_upstream: MakeMariaDB, tmp_path: Path, rng: random.Random) -> None:
    run(make_upstream(FULL), tmp_path, rng, [5, 1])


@pytest.mark.slow
@pytest.mark.each_version
@pytest.mark.by_turns(2)
def test_many_histories(
    backend: Backend, make_upstream: MakeMariaDB, tmp_path: Path, rng: random.Random
) -> None:
    told = run(make_upstream(FULL), tmp_path, rng, [15, *[1] * 15] * (COUNT // 30))
    assert told[SAME] > COUNT // 2


def test_some_altered_histories(
    make_upstream: MakeMariaDB, tmp_path: Path, rng: random.Random
) -> None:
    run(
        make_upstream(FULL), tmp_path, rng, [6], FOLLOWED_SHARES
    )  # of six, now and then, none can be followed


@pytest.mark.slow
@pytest.mark.each_version
@pytest.mark.by_turns(2)
def test_many_altered_histories(
    backend: Backend,
    make_upstream: MakeMariaDB,
    tmp_path: Path,
    rng: random.Random,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configure(monkeypatch, tmp_path)
    upstream = make_upstream(FULL)
    told = run(
        upstream, tmp_path, rng, [20] * (ALTERED // 20), FOLLOWED_SHARES, rng.choice(TABLE_SINKS)
    )
    assert told[SAME] > ALTERED


def run(
    upstream: MariaDB,
    folder: Path,
    rng: random.Random,
    logs: Sequence[int],
    shares: Sequence[tuple[str, int]] = SHARES,
    sink: str = "parquet",
) -> Counter[str]:
    """What came of the tables of histories.

    Args:
        logs: how many there are in each log. Where there is one alone, some of its statements may be logged as text,
            which leaves a doubt in all tables.
    """
    told: Counter[str] = Counter()
    wrong: list[str] = []
    for log, count in enumerate(logs):
        upstream.script("RESET MASTER")
        numbers = range(sum(logs[:log]), sum(logs[: log + 1]))
        histories = [
            lived(upstream, rng, number, is_text=count == 1, shares=shares) for number in numbers
        ]
        store = store_of_upstream(folder / "store", upstream)
        for history, said, middle in histories:
            for name in tables(upstream, history):
                target = folder / f"{name[0]}_{name[1]}"
                first = middle if rng.random() < 0.5 else None
                outcome = state_of(upstream, store, target, name, sink, first)
                shutil.rmtree(target, ignore_errors=True)
                told[outcome] += 1
                if outcome not in TOLD:
                    wrong.append("\n    ".join((outcome, *said)))
        shutil.rmtree(store)  # 36 MiB each, and there are hundreds, perhaps in memory
        for history, *_ in histories:
            end(upstream, history)
    print(f"{sum(logs)} histories, {sink}: {dict(told)}")
    assert not wrong, "\n\n".join(wrong)
    return told


def lived(
    upstream: MariaDB,
    rng: random.Random,
    number: int,
    *,
    is_text: bool,
    shares: Sequence[tuple[str, int]],
) -> tuple[History, list[str], SlavePosition]:
    """A history, its statements that the server has done, and a position among them."""
    modern = upstream.value("SELECT VERSION()") >= "11.8"
    history = History(rng, number, modern=modern, is_text=is_text, shares=shares)
    done: list[str] = []
    with contextlib.ExitStack() as stack:
        cursors = [stack.enter_context(upstream.connect()).cursor() for _ in range(2)]
        for cursor in cursors:
            cursor.execute(
                "SET sql_mode='', foreign_key_checks=0, innodb_lock_wait_timeout=0, lock_wait_timeout=0, "
                "binlog_row_image=FULL, binlog_format=ROW, time_zone='+00:00'"
            )
        steps = history.begin()
        for _ in range(LENGTH):
            steps += history.steps()
        stop = rng.randrange(len(steps))
        middle = SlavePosition()
        for at, step in enumerate(steps):
            with contextlib.suppress(pymysql.MySQLError):
                cursors[step.other].execute(step.sql)
                done.append(f"{step.other + 1}: {step.sql}")
            if at == stop:
                middle = SlavePosition.parse(upstream.gtid_binlog_pos)
                done.append(f"-- {middle}")
    return history, done, middle


def tables(upstream: MariaDB, history: History) -> list[tuple[str, str]]:
    found = upstream.q(
        "SELECT TABLE_SCHEMA AS d, TABLE_NAME AS t FROM information_schema.TABLES WHERE TABLE_SCHEMA IN (%s, %s) "
        "AND TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED') AND ENGINE <> 'MRG_MyISAM' ORDER BY d, t",
        *history.databases,
    )
    return [(row["d"], row["t"]) for row in found]


def end(upstream: MariaDB, history: History) -> None:
    for row in upstream.q("XA RECOVER FORMAT='SQL'"):
        with contextlib.suppress(pymysql.MySQLError):
            upstream.script(f"XA ROLLBACK {row['data']}")
    for name in history.databases:
        upstream.script("SET foreign_key_checks=0", f"DROP DATABASE IF EXISTS {name}")


def state_of(
    upstream: MariaDB,
    store: Path,
    target: Path,
    name: tuple[str, str],
    sink: str,
    first: SlavePosition | None,
) -> str:
    """What came of it, or how it differs from what the server has though it says that it is right.

    first: where a run before ended; None if there was none.
    """
    options = {
        "path": str(store), "view": "changes", "table": ".".join(name), "ops": OPS, "schemaEvolution": "ignore",
        "zeroDate": "string",
    }  # fmt: skip
    if first is not None:
        with contextlib.suppress(PipelineError):
            keep_state(SourceOptions.parse(options), place(sink, target), sink=sink, until=first)
    try:
        done = keep_state(SourceOptions.parse(options), place(sink, target), sink=sink)
    except PipelineError:
        return REFUSED
    if not done.is_complete:
        return DOUBT if done.doubt else BEFORE
    return compared(upstream, name, rows_of(sink, target), str(first))


def compared(upstream: MariaDB, name: tuple[str, str], kept: pa.Table, told: str) -> str:
    """Whether the server has the same rows; how they differ, with what is told of them, if not."""
    table = f"{name[0]}.{name[1]}"
    kind = upstream.value(
        "SELECT TABLE_TYPE FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
        *name,
    )
    of_all = " FOR SYSTEM_TIME ALL" if kind == "SYSTEM VERSIONED" else ""
    columns = {
        row["c"]: row["t"]
        for row in upstream.q(
            "SELECT COLUMN_NAME AS c, DATA_TYPE AS t FROM information_schema.COLUMNS "
            "WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND COLUMN_NAME NOT IN ('row_start', 'row_end')",
            *name,
        )
    }
    with upstream.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET time_zone='+00:00'")
        chosen = ", ".join("`" + column.replace("`", "``") + "`" for column in columns)
        cursor.execute(f"SELECT {chosen} FROM {table}{of_all}")
        want = list(cursor.fetchall())
    rows = kept.to_pylist()
    found = Counter(str([plain(row.get(c), t) for c, t in columns.items()]) for row in rows)
    there = Counter(str([plain(row[c], t) for c, t in columns.items()]) for row in want)
    if found == there:
        return SAME
    return f"{table}, {told}: {found - there}, the server has {there - found}; {columns}"


def plain(value: Any, type_: str) -> Any:
    """The same for the same value, whoever gives it."""
    match value:
        case None:
            return None
        case _ if type_ in ("inet4", "inet6", "uuid", "vector", "point"):
            return "some"  # the log has their bytes alone
        case bytes() if type_ == "bit":
            return str(Decimal(int.from_bytes(value, "big")).normalize())
        case bytes() if type_ in ("char", "varchar", "text", "enum", "set"):
            return value.decode("latin1")
        case float() if type_ == "float":
            return f"{value:.5g}"  # servers tell 6 digits
        case bool() | int() | Decimal():
            return str(Decimal(value).normalize())
        case dt.datetime() | str() if type_ in ("datetime", "timestamp"):
            return str(value)[:19]
        case str() if type_ == "time":
            hours, minutes, seconds = map(float, value.lstrip("-").split(":"))
            taken = dt.timedelta(hours=hours, minutes=minutes, seconds=seconds)
            return str(-taken if value.startswith("-") else taken)
        case list():
            return ",".join(map(str, value)) if type_ == "set" else [float(one) for one in value]
        case _:
            return str(value).replace("\ufffd", "?")  # as servers give bytes that are no text
