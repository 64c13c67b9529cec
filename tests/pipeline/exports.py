"""What an export holds, read back by pyarrow: rows in the order of the log, and the tables that they lead to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
from binlog_pipeline.jobs.manifest import ExportManifest
from binlog_protocol.gtid import Gtid

Row = dict[str, Any]


def manifest_of(target: Path) -> ExportManifest:
    """It must be there, and all its files, and no others."""
    manifest = ExportManifest.read(target)
    assert manifest is not None
    there = {str(path.relative_to(target)) for path in target.rglob("*.parquet")}
    assert there == set(manifest.files)
    return manifest


def rows_of(target: Path, database: str, table: str) -> list[Row]:
    """Of all schemas, in the order of the log; as the manifest counts them."""
    manifest = manifest_of(target)
    found = next(t for t in manifest.tables if (t.database, t.table) == (database, table))
    rows: list[Row] = []
    for schema in found.schemas:
        for file in schema.files:
            read = ds.dataset(target / schema.folder / file.name).to_table().to_pylist()
            assert len(read) == file.rows
            assert read == sorted(read, key=_order)
            rows += read
    return sorted(rows, key=_order)


def folded(rows: list[Row], key: str = "id") -> dict[Any, Row]:
    """The table that the changes lead to, by its key."""
    table: dict[Any, Row] = {}
    for row in rows:
        if row["before"] is not None:
            del table[row["before"][key]]
        if row["after"] is not None:
            assert row["after"][key] not in table
            table[row["after"][key]] = row["after"]
    return table


def gtid(row: Row) -> Gtid:
    """Of a row's group."""
    return Gtid(*(row["_gtid"][name] for name in ("domain", "server", "seq")))


def _order(row: Row) -> tuple[int, ...]:
    return tuple(row["_order"].values())
