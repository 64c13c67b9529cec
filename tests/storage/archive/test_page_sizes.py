"""Sizes of pages: as a Parquet writer makes them, and bytes of any kind."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from binlog_storage.archive.page_sizes import (
    BadFooter,
    BadPageHeader,
    ColumnLevels,
    check_footer,
    unpacked_size,
)
from hypothesis import given
from hypothesis import strategies as st

TABLE = pa.table(
    {
        "n": pa.array(range(50_000)),
        "s": pa.array([{"x": i, "y": None} for i in range(50_000)]),
        "b": pa.array([bytes(100)] * 50_000, pa.binary()),
        "is": pa.array([i % 3 == 0 for i in range(50_000)]),
    }
)
SETTINGS: list[dict[str, Any]] = [
    {},
    {"use_dictionary": True},
    {"data_page_version": "2.0"},
    {"compression": "none"},
    {"write_page_checksum": True},
    {"data_page_size": 1000},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_it_is_what_a_true_footer_says(tmp_path: Path, settings: dict[str, Any]) -> None:
    path = tmp_path / "x.parquet"
    made = {"compression": "zstd", "use_dictionary": False, **settings}
    pq.write_table(TABLE, path, row_group_size=30_000, **made)
    data, told = path.read_bytes(), pq.ParquetFile(path).metadata
    for number in range(told.num_row_groups):
        for i in range(told.row_group(number).num_columns):
            column = told.row_group(number).column(i)
            begin = column.data_page_offset
            if column.has_dictionary_page:
                begin = column.dictionary_page_offset
            found = unpacked_size(
                lambda count, at: data[at : at + count], begin, column.total_compressed_size
            )
            assert 0 < found < column.total_uncompressed_size  # which counts the headers, too
            if column.compression == "UNCOMPRESSED":
                assert column.total_uncompressed_size == column.total_compressed_size
            with pytest.raises(BadPageHeader):
                unpacked_size(
                    lambda count, at: data[at : at + count],
                    begin,
                    column.total_compressed_size - 1,
                )


@pytest.mark.parametrize("byte", [0x19, 0x1C, 0x9C])
def test_a_header_that_goes_deep(byte: int) -> None:
    """Lists of lists, structs in structs."""
    data = bytes([byte]) * 10_000
    with pytest.raises(BadPageHeader):
        unpacked_size(lambda count, at: data[at : at + count], 0, len(data))


LEVELS = [ColumnLevels(0, level, is_text) for level, is_text in (
    (1, False), (2, False), (2, False), (1, True), (1, False),
)]  # fmt: skip


def _check(data: bytes, levels: list[ColumnLevels]) -> None:
    check_footer(lambda count, at: data[at : at + count], len(data), levels)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_footer_that_fits_its_columns(tmp_path: Path, settings: dict[str, Any]) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(TABLE.slice(0, 3000), path, row_group_size=1000, **settings)
    data = path.read_bytes()
    _check(data, LEVELS)
    with pytest.raises(BadFooter, match="a row group of 5 columns"):
        _check(data, LEVELS[:4])
    for i, levels in enumerate(LEVELS):
        other = levels._replace(definition=levels.definition + 1)
        with pytest.raises(BadFooter, match="counts of other levels"):
            _check(data, [*LEVELS[:i], other, *LEVELS[i + 1 :]])
    with pytest.raises(BadFooter, match="bytes of texts in a column of numbers"):
        _check(data, [one._replace(has_bytes=False) for one in LEVELS])
    with pytest.raises(BadFooter):
        _check(data[:-100], LEVELS)


@given(footer=st.binary(max_size=200))
def test_any_footer(footer: bytes) -> None:
    with contextlib.suppress(BadFooter):
        _check(footer + len(footer).to_bytes(4, "little") + b"PAR1", LEVELS)


@given(data=st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    try:
        found = unpacked_size(lambda count, at: data[at : at + count], 0, len(data))
    except BadPageHeader:
        return
    assert found >= 0
