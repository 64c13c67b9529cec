"""EXPLAIN SELECT: how the tables of a question are gone through, a row for each, in the columns of an 11.8.

Of a question on one table it is what is done: a range of its primary key, or of a unique one, or all rows. Joins go
through all rows of each table; `rows` is how many there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from binlog_protocol.events.column_type import ColumnType
from binlog_protocol.tables.definition import StoredKey, key_bytes
from binlog_protocol.wire.results import Column

from binlog_server.sql.view import ResultSet, Row
from binlog_server.tables.rows import HeldRows

if TYPE_CHECKING:
    from binlog_server.queries.binding import GivenTable
    from binlog_server.queries.parsing import Question

_NULLABLE_TEXTS: Final = {
    "table": 64, "type": 10, "possible_keys": 4096, "key": 64, "key_len": 4096, "ref": 2048, "rows": 64,
}  # fmt: skip
_LENGTH_BYTES: Final = 2
_VARIABLE: Final = ("varchar", "varbinary")


def explained(question: Question, tables: Mapping[tuple[str | None, str], GivenTable]) -> ResultSet:
    """The rows of EXPLAIN."""
    from binlog_server.queries.parsing import sources_of

    columns = [
        Column.unsigned("id", ColumnType.LONGLONG, 3, null=True),
        Column.text("select_type", 19),
        *(Column.text(name, length, null=True) for name, length in _NULLABLE_TEXTS.items()),
        Column.text("Extra", 255),
    ]
    sources = sources_of(question)
    is_alone = len(sources) == 1
    rows: list[Row] = []
    for source in sources:
        head = (source.number or None, source.kind)
        if source.name is None:
            extra = "" if source.alias else "No tables used"
            kind = "ALL" if source.alias else None
            rows.append((*head, source.alias or None, kind, *(None,) * 5, extra))
            continue
        table = tables[source.name]
        way: tuple[str | None, ...] = ("ALL", *(None,) * 5)
        if isinstance(table, HeldRows):
            way = _of_held(table, is_alone=is_alone)
        extra = "Using where" if source.has_conditions and way[0] != "const" else ""
        rows.append((*head, source.alias, *way, extra))
    return ResultSet(columns, rows)


def _of_held(source: HeldRows, *, is_alone: bool) -> tuple[str | None, ...]:
    """type, possible_keys, key, key_len, ref, rows."""
    path, table = source.path, source.table
    count = source.reading.count(table)
    if not is_alone or not path.columns:
        return ("ALL", None, None, None, None, str(count))
    key = table.key if path.index is None else path.index.key
    used = StoredKey(key.name, key.kind, tuple(p for p in key.parts if p.column in path.columns))
    columns = table.definition.columns
    extra = sum(
        columns[part.column].nullable
        + _LENGTH_BYTES * (columns[part.column].type.name in _VARIABLE)
        for part in used.parts
    )
    size = str(key_bytes(used, columns) + extra)
    if len(path.spans) == 1 and path.spans[0].is_point:
        return ("const", key.name, key.name, size, ",".join("const" for _ in used.parts), "1")
    is_range = any(span.is_point or span.low or span.high for span in path.spans)
    possible = key.name if is_range else None
    return ("range" if is_range else "index", possible, key.name, size, None, str(count))
