"""Filters that Spark pushes down narrow what is read. Spark applies them again, so a bit too much does no harm."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)

from binlog_pipeline.filters import PushedCondition, kept_rows, narrowed, narrowed_tables
from binlog_pipeline.options import SourceOptions
from binlog_pipeline.sources.opening import open_source
from binlog_pipeline.spark.batch_reader import BinlogReader
from binlog_pipeline.views import View, open_view

if TYPE_CHECKING:
    import pyarrow as pa

_OPERATORS: Final[dict[type[Filter], str]] = {
    EqualTo: "=",
    EqualNullSafe: "<=>",
    LessThan: "<",
    LessThanOrEqual: "<=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    In: "in",
}


class FilteringReader(BinlogReader):
    """Plans fewer slices, passes over groups and tables, and leaves out rows before they go to Spark."""

    def __init__(self, options: SourceOptions, view: View, names: Sequence[str]) -> None:
        super().__init__(options, view, names)
        self._conditions: tuple[PushedCondition, ...] = ()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        found = [_condition(given) for given in filters]
        self._conditions = tuple(condition for condition in found if condition is not None)
        self._wanted = narrowed(
            self._wanted, self._conditions, self._options.view, self._options.layout
        )
        self._narrow_tables()
        return filters

    def _narrow_tables(self) -> None:
        options = self._options
        if options.view != "changes" or options.table:
            return
        tables = narrowed_tables(options.tables, self._conditions)
        if tables != options.tables:
            self._options = replace(options, tables=tables)
            self._view = open_view(self._options, open_source(self._options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        for batch in super().read(partition):
            rows = kept_rows(batch, self._conditions)
            if rows.num_rows:
                yield rows


def _condition(given: Filter) -> PushedCondition | None:
    """The condition of a filter; None for a filter that is not used."""
    operator = _OPERATORS.get(type(given))
    if operator is None:
        return None
    return PushedCondition(operator, tuple(given.attribute), given.value)  # type: ignore[attr-defined]
