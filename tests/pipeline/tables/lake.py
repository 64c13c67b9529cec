"""Targets of all kinds below a folder, and the rows that are in them."""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from binlog_pipeline.tables.buckets import read_state
from binlog_pipeline.tables.delta import read_delta
from binlog_pipeline.tables.iceberg import read_iceberg

CATALOG: Final = "lake"


def configure(
    monkeypatch: pytest.MonkeyPatch, folder: Path, more: Mapping[str, str] | None = None
) -> None:
    """Configure the catalog as users do it, in the environment."""
    import pyiceberg.catalog
    from pyiceberg.utils.config import Config

    said = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
    for name, value in {**said, **(more or {})}.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__{CATALOG.upper()}__{name.upper()}", value)
    monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())  # it was read before


def place(sink: str, target: Path) -> Path | str:
    """What a sink calls the target that stands for this folder."""
    if sink != "iceberg":
        return target
    return f"iceberg://{CATALOG}/d/{target.name}{zlib.crc32(os.fsencode(target)):08x}"


def rows_of(sink: str, target: Path | str) -> pa.Table:
    """The table that is kept."""
    if isinstance(target, Path):
        target = place(sink, target)
    if sink == "parquet":
        return read_state(Path(target))[0]
    return read_delta(target) if sink == "delta" else read_iceberg(target)
