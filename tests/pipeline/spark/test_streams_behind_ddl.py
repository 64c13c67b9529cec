"""Streams of tables behind any DDL, ended anywhere and started again: what the server has, or an error that says why.

What Spark does with a source and a sink is done here without its JVM, in one process, so that there are hundreds of
batches a minute: a batch is planned, noted, read and given to the target, and done again if it was not finished.
"""

from __future__ import annotations

import contextlib
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pymysql
import pytest
from binlog_pipeline.errors import PipelineError
from binlog_pipeline.jobs.load import load
from binlog_pipeline.jobs.state import OPS
from binlog_pipeline.options import SourceOptions
from binlog_pipeline.sources.opening import open_source
from binlog_pipeline.spark.stream_reader import BinlogStreamReader
from binlog_pipeline.spark.streams import StreamTarget
from binlog_pipeline.targets import TABLE_SINKS
from binlog_pipeline.tasks import HERE
from binlog_pipeline.views.reading import open_view
from binlog_protocol.gtid import SlavePosition
from pyspark.sql.pandas.types import from_arrow_schema

from binlog_server.testing.mariadb import MariaDB
from tests.integration.pipeline import sources
from tests.kit.backends import Backend
from tests.kit.fixtures import MakeMariaDB
from tests.pipeline.stores import FULL
from tests.pipeline.tables.any_history import (
    DML,
    FOLLOWED,
    FOLLOWED_SHARES,
    TAME,
    TRANSACTIONS,
    WILD,
    History,
)
from tests.pipeline.tables.lake import configure, place, rows_of
from tests.pipeline.tables.test_any_history import DOUBT, REFUSED, SAME, compared, end, tables

SHARES: Final = (
    ((DML, 70), (FOLLOWED, 20), (TAME, 10)),
    ((DML, 60), (TAME, 30), (TRANSACTIONS, 10)),
    ((DML, 60), (TAME, 30), (WILD, 10)),
    FOLLOWED_SHARES,
)
ENDED: Final = "ended"
STUCK: Final = "an older state of it was put there"
ROUNDS: Final = 4
COUNT: Final = 100
"""Of histories in the slow test."""


class Stream:
    """One table, as a stream with a checkpoint keeps it."""

    def __init__(self, upstream: MariaDB, name: tuple[str, str], folder: Path, sink: str) -> None:
        self._upstream = upstream
        self.name = ".".join(name)
        self._sink = sink
        self._folder = folder / self.name
        self._start: dict[str, Any] | None = None
        self._planned: dict[str, Any] | None = None

    def options(self, count: int = 1) -> SourceOptions:
        said = {
            "view": "changes",
            "table": self.name,
            "ops": OPS,
            "zeroDate": "string",
            "time": "string",
        }
        return sources.options_of(
            self._upstream, None, maxTransactionsPerTrigger=str(count), **said
        )

    @property
    def target(self) -> Path | str:
        return place(self._sink, self._folder / "t")

    def run(self, rng: random.Random, *, may_end: bool) -> str:
        """Until it has what is there, or is ended. Raises `PipelineError`."""
        options = self.options(rng.choice((1, 2, 3, 50)))
        view = open_view(options, open_source(options))
        reader = BinlogStreamReader(options, view, view.schema.names)
        target = self._opened(options, from_arrow_schema(view.schema))
        try:
            if self._start is None:
                self._start = reader.initialOffset()
            reader.prepareForTriggerAvailableNow()
            while self._planned or self._plan(reader):
                assert self._planned is not None
                if may_end and rng.random() < 0.1:
                    return ENDED
                parts = reader.partitions(self._start, self._planned)
                rows = [batch for part in parts for batch in reader.read(part) if len(batch)]
                if rows:
                    target._add(iter(rows), HERE)
                if may_end and rng.random() < 0.15:
                    return ENDED
                self._start, self._planned = self._planned, None
        finally:
            reader.stop()
        with target.opened() as kept:
            return SAME if kept.is_complete else DOUBT

    def _plan(self, reader: BinlogStreamReader) -> bool:
        assert self._start is not None
        end = reader.latestOffset(self._start, reader.getDefaultReadLimit())
        self._planned = None if end == self._start else end
        return self._planned is not None

    def _opened(self, options: SourceOptions, schema: Any) -> StreamTarget:
        class Changes:
            """All that a target asks of a DataFrame."""

        Changes.schema = schema  # type: ignore[attr-defined]
        target = StreamTarget(
            Changes(),  # type: ignore[arg-type]
            str(self.target),
            table=self.name,
            keys=(),
            sink=self._sink,
            read=options,
        )
        self._folder.mkdir(exist_ok=True)
        target._note = self._folder / "note"
        with contextlib.suppress(OSError, ValueError):
            target._reached = SlavePosition.parse(target._note.read_text())
        return target

    def load_again(self) -> None:
        staging = self._folder / "staging"
        load(
            self.options(), self.target, sink=self._sink, again=True, piece_rows=2, staging=staging
        )

    def compared(self, told: str) -> str:
        database, table = self.name.split(".")
        return compared(self._upstream, (database, table), rows_of(self._sink, self.target), told)


def test_some_streams(
    make_upstream: MakeMariaDB,
    tmp_path: Path,
    rng: random.Random,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configure(monkeypatch, tmp_path)
    run(make_upstream(FULL), tmp_path, rng, 3)


@pytest.mark.slow
@pytest.mark.each_version
@pytest.mark.timeout(1800)
def test_many_streams(
    backend: Backend,
    make_upstream: MakeMariaDB,
    tmp_path: Path,
    rng: random.Random,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configure(monkeypatch, tmp_path)
    assert run(make_upstream(FULL), tmp_path, rng, COUNT)[SAME] > COUNT


def run(upstream: MariaDB, folder: Path, rng: random.Random, count: int) -> Counter[str]:
    """What came of the tables of so many histories."""
    upstream.q(f"GRANT SELECT, REPLICATION CLIENT ON *.* TO `{upstream.account.user}`@'%'")
    modern = upstream.value("SELECT VERSION()") >= "11.8"
    told: Counter[str] = Counter()
    wrong: list[str] = []
    for number in range(count):
        upstream.script("RESET MASTER")
        history = History(rng, number, modern=modern, is_text=False, shares=rng.choice(SHARES))
        sink, done = rng.choice(TABLE_SINKS), list[str]()
        one, two = history.databases
        names = [(one, "t"), (one, "u"), (two, "t"), (two, "s")]
        streams = [Stream(upstream, name, folder, sink) for name in names]
        lived(upstream, history, streams, rng, done)
        for _ in range(3):  # one that ended at other columns goes on when it is started again
            outcomes = [outcome(stream, rng, may_end=False) for stream in streams]
        left = {".".join(name) for name in tables(upstream, history)}
        for stream, came in zip(streams, outcomes, strict=True):
            found = came
            if came == SAME and stream.name in left:
                found = stream.compared(f"by {sink}")
            told[REFUSED if found.startswith(REFUSED) else found[: len(SAME)]] += 1
            if found not in (SAME, DOUBT) and (not found.startswith(REFUSED) or STUCK in found):
                wrong.append("\n    ".join((found, *done)))
            shutil.rmtree(folder / stream.name, ignore_errors=True)
        end(upstream, history)
    print(f"{count} histories: {dict(told)}")
    assert not wrong, "\n\n".join(wrong)
    return told


def lived(
    upstream: MariaDB,
    history: History,
    streams: list[Stream],
    rng: random.Random,
    done: list[str],
) -> None:
    """A history, while streams of its tables are ended and started, and tables are loaded again."""
    images = ["FULL"] * 3 + ["MINIMAL", "NOBLOB"]
    with contextlib.ExitStack() as stack:
        cursors = [stack.enter_context(upstream.connect()).cursor() for _ in range(2)]
        image = rng.choice(images)
        for cursor in cursors:
            cursor.execute(
                "SET sql_mode='', foreign_key_checks=0, innodb_lock_wait_timeout=0, lock_wait_timeout=0, "
                f"binlog_row_image={image}, binlog_format=ROW, time_zone='+00:00'"
            )
        steps = history.begin()
        for _ in range(ROUNDS):
            for _ in range(rng.choice((2, 4, 7))):
                steps += history.steps()
            for step in steps:
                with contextlib.suppress(pymysql.MySQLError):
                    cursors[step.other].execute(step.sql)
                    done.append(f"{step.other + 1}: {step.sql}")
            steps = []
            for stream in streams:
                done.append(f"-- {stream.name}: {outcome(stream, rng, may_end=True)}")


def outcome(stream: Stream, rng: random.Random, *, may_end: bool) -> str:
    """What came of a run, or of a load; of one that was refused why."""
    try:
        if may_end and rng.random() < 0.1:
            stream.load_again()
            return "loaded"
        return stream.run(rng, may_end=may_end)
    except PipelineError as error:
        return f"{REFUSED}: {error}"
