"""Statistics of a source: which tables are hot, how large transactions are, how many there are when, who writes, which
GTIDs are missing.
"""

from __future__ import annotations

from dataclasses import field
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from binlog_protocol.dataclass import dataclass
from binlog_protocol.gtid import Gtid

from binlog_pipeline.groups import Integers
from binlog_pipeline.jobs.amounts import Amount, Rates, Sizes
from binlog_pipeline.jobs.cutting import over_slices
from binlog_pipeline.jobs.workers import Engine
from binlog_pipeline.options import SourceOptions
from binlog_pipeline.sources.opening import open_source
from binlog_pipeline.sources.source import Slice
from binlog_pipeline.views.transactions import TransactionsView

LARGEST: Final = 100
_GAPS_KEPT: Final = 1000
_OPS: Final = ("inserts", "updates", "deletes")
_MICROSECONDS: Final = 1_000_000


class LargeTransaction(NamedTuple):
    """A transaction among the largest. `tables`: up to three that have most of it."""

    bytes: int
    gtid: Gtid
    timestamp: int
    rows: int
    tables: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Gap:
    """Numbers between two groups that follow each other in a domain; `missing` is negative where they go back."""

    before: Gtid
    behind: Gtid

    @property
    def missing(self) -> int:
        ahead = self.behind.seq_no - self.before.seq_no
        return ahead - 1 if ahead > 0 else ahead


@dataclass(slots=True)
class DomainNumbers:
    """The groups of one domain, in the order of the log.

    missing: how many numbers there are between the first and the last that no group has.
    gaps: the first thousand places where numbers are missing or go back; gap_count has all.
    """

    first: Gtid
    last: Gtid
    count: int = 0
    missing: int = 0
    gap_count: int = 0
    gaps: list[Gap] = field(default_factory=list)

    @classmethod
    def of(cls, domain: int, servers: Integers, numbers: Integers) -> DomainNumbers:
        """The numbers of consecutive groups of a domain; at least one."""

        def gtid(i: int) -> Gtid:
            return Gtid(domain, int(servers[i]), int(numbers[i]))

        made = cls(gtid(0), gtid(len(numbers) - 1), len(numbers))
        steps = np.diff(numbers)
        for i in np.flatnonzero(steps != 1).tolist():
            made._note(Gap(gtid(i), gtid(i + 1)))
        return made

    def merge(self, following: DomainNumbers) -> None:
        """Add the numbers that follow in the log."""
        if following.first.seq_no != self.last.seq_no + 1:
            self._note(Gap(self.last, following.first))
        self.last = following.last
        self.count += following.count
        self.missing += following.missing
        self.gap_count += following.gap_count
        self.gaps += following.gaps[: _GAPS_KEPT - len(self.gaps)]

    def _note(self, gap: Gap) -> None:
        self.gap_count += 1
        self.missing += max(gap.missing, 0)
        if len(self.gaps) < _GAPS_KEPT:
            self.gaps.append(gap)


@dataclass(slots=True)
class LogStatistics:
    """Statistics of consecutive groups. A group is a transaction, or a statement such as DDL."""

    groups: int = 0
    events: int = 0
    bytes: int = 0
    ddl: int = 0
    xa: int = 0
    operations: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_OPS, 0))
    """Rows that were inserted, updated, deleted."""
    tables: dict[str, Amount] = field(default_factory=dict)
    """Amounts by database.table; bytes are those of row events."""
    writers: dict[int, Amount] = field(default_factory=dict)
    """Amounts by server id."""
    domains: dict[int, DomainNumbers] = field(default_factory=dict)
    sizes: Sizes = field(default_factory=Sizes)
    rates: Rates = field(default_factory=Rates)
    largest: list[LargeTransaction] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(self.operations.values())

    def add(self, batch: pa.RecordBatch) -> None:
        """Rows of view transactions."""
        if not batch.num_rows:
            return
        columns = _Columns(batch)
        self.groups += batch.num_rows
        self.events += int(columns.integers("events").sum())
        self.bytes += int(columns.bytes.sum())
        self.ddl += batch.column("ddl").true_count
        self.xa += batch.num_rows - batch.column("xa").null_count
        for name in _OPS:
            self.operations[name] += int(columns.integers(name).sum())
        self._add_tables(batch.column("tables"))
        self._add_writers(columns)
        for domain in np.unique(columns.domain).tolist():
            here = columns.domain == domain
            numbers = DomainNumbers.of(domain, columns.server[here], columns.seq[here])
            self._add_domain(domain, numbers)
        self.sizes.add(columns.bytes)
        self.rates.add(columns.seconds, columns.rows, columns.bytes)
        self._add_largest(columns, batch.column("tables"))

    def merge(self, following: LogStatistics) -> None:
        """Add the statistics of the groups that follow in the log."""
        self.groups += following.groups
        self.events += following.events
        self.bytes += following.bytes
        self.ddl += following.ddl
        self.xa += following.xa
        for name in _OPS:
            self.operations[name] += following.operations[name]
        for table, amount in following.tables.items():
            self.tables.setdefault(table, Amount()).add(amount)
        for writer, amount in following.writers.items():
            self.writers.setdefault(writer, Amount()).add(amount)
        for domain, numbers in following.domains.items():
            self._add_domain(domain, numbers)
        self.sizes.merge(following.sizes)
        self.rates.merge(following.rates)
        self.largest = sorted(self.largest + following.largest, key=_by_size)[:LARGEST]

    def _add_tables(self, tables: pa.ListArray) -> None:
        found = pa.Table.from_struct_array(tables.flatten()).group_by(["db", "table"])
        sums = found.aggregate([("rows", "sum"), ("bytes", "sum"), ("rows", "count")])
        for row in sums.to_pylist():
            amount = Amount(row["rows_count"], row["rows_sum"], row["bytes_sum"])
            self.tables.setdefault(f"{row['db']}.{row['table']}", Amount()).add(amount)

    def _add_writers(self, columns: _Columns) -> None:
        for server in np.unique(columns.server).tolist():
            here = columns.server == server
            amount = Amount(
                int(np.count_nonzero(here)),
                int(columns.rows[here].sum()),
                int(columns.bytes[here].sum()),
            )
            self.writers.setdefault(server, Amount()).add(amount)

    def _add_domain(self, domain: int, numbers: DomainNumbers) -> None:
        known = self.domains.setdefault(domain, numbers)
        if known is not numbers:
            known.merge(numbers)

    def _add_largest(self, columns: _Columns, tables: pa.ListArray) -> None:
        least = self.largest[-1].bytes if len(self.largest) == LARGEST else 0
        candidates = np.flatnonzero(columns.bytes > least)
        order = np.argsort(-columns.bytes[candidates], kind="stable")[:LARGEST]
        found = []
        for i in candidates[order].tolist():
            changed = sorted(tables[i].as_py(), key=lambda table: -int(table["bytes"]))
            names = tuple(f"{table['db']}.{table['table']}" for table in changed[:3])
            gtid = Gtid(*(int(c[i]) for c in (columns.domain, columns.server, columns.seq)))
            numbers = (int(columns.seconds[i]), int(columns.rows[i]))
            found.append(LargeTransaction(int(columns.bytes[i]), gtid, *numbers, names))
        self.largest = sorted(self.largest + found, key=_by_size)[:LARGEST]


class _Columns:
    """The columns of a batch of view transactions, as numpy arrays."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        gtid = batch.column("gtid")
        self.domain: Integers = gtid.field("domain").to_numpy()
        self.server: Integers = gtid.field("server").to_numpy()
        self.seq: Integers = gtid.field("seq").to_numpy()
        self.seconds: Integers = batch.column("ts").view(pa.int64()).to_numpy() // _MICROSECONDS
        self.bytes: Integers = self.integers("bytes")
        self.rows: Integers = sum(
            (self.integers(name) for name in _OPS[1:]), self.integers(_OPS[0])
        )

    def integers(self, name: str) -> Integers:
        found: Integers = self._batch.column(name).to_numpy().astype(np.int64, copy=False)
        return found


def statistics(options: SourceOptions, engine: Engine | None = None) -> LogStatistics:
    """The statistics of the groups that the options select. Raises `PipelineError`, `StorageError`."""
    total = LogStatistics()
    source = open_source(options)
    for part in over_slices(slice_statistics, source, options.wanted, engine, "stats"):
        total.merge(part)
    return total


def slice_statistics(part: Slice) -> LogStatistics:
    """The task of a worker: the statistics of one slice."""
    found = LogStatistics()
    for batch in TransactionsView().batches(part.read()):
        found.add(batch)
    return found


def _by_size(transaction: LargeTransaction) -> tuple[int, Gtid]:
    return -transaction.bytes, transaction.gtid
