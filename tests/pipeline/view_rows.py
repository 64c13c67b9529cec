"""What a view gives of a store, as a user gets it, but without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from binlog_pipeline.options import SourceOptions
from binlog_pipeline.sources.opening import open_source
from binlog_pipeline.views import open_view

MINIMAL = "--binlog-row-metadata=MINIMAL"


def table_of(store: Path, **options: str) -> pa.Table:
    """All rows of a view, `changes` unless another is named; each batch is checked."""
    chosen = SourceOptions.parse({"path": str(store), "view": "changes", **options})
    source = open_source(chosen)
    view = open_view(chosen, source)
    found = []
    for part in source.slices(chosen.wanted, chosen.partition_bytes):
        for batch in view.batches(part.read()):
            batch.validate(full=True)
            assert batch.schema == view.schema
            found.append(batch)
    return pa.Table.from_batches(found, view.schema)


def rows_of(store: Path, **options: str) -> list[dict[str, Any]]:
    """The same as dictionaries."""
    rows: list[dict[str, Any]] = table_of(store, **options).to_pylist()
    return rows
