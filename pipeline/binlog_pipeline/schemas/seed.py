"""The schema seed: a file with names the log lacks (binlog_row_metadata=MINIMAL), and types such as UUID.

    {"version": 1,
     "tables": [{"database": "shop", "table": "orders",
                 "columns": [{"name": "id", "type": "bigint(20) unsigned"},
                             {"name": "token", "type": "uuid"},
                             {"name": "state", "type": "enum('new','paid')", "charset": "utf8mb4"}],
                 "key": ["id"]}]}

`type` is COLUMN_TYPE of information_schema.columns, `charset` CHARACTER_SET_NAME, `key` the primary key in its order;
charset and key may be left out. Hidden columns of keys that are hashes (`TableMap.visible`) are in the file where the
log has no names: they count. Where the log has names, columns are found by them, and not all need be in the file.
A table may be there several times, for layouts that it had: the first that fits the log is taken. What the log says
itself stands. Labels of ENUM and SET whose charset is binary are taken if they are ASCII without `?`: a text does not
say which bytes others are. `seed_writing.py` makes such a file of a server, `binlog_pipeline/jobs/ddl_seed.py` of the
log's own DDL: with `since`, the GTID of the statement behind each layout, for its reader only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.events.charsets import BINARY_COLLATION
from binlog_protocol.events.collation_names import charset_named, default_collation
from binlog_protocol.events.table_map import KeyPart, TableColumn, TableMap
from binlog_protocol.sql.statements import TableName
from binlog_protocol.tables.sql_type import SqlType
from binlog_storage.disk.given_files import read_given_text
from binlog_storage.disk.local_path import local_path

from binlog_pipeline.errors import BadOption
from binlog_pipeline.schemas.columns import is_named, table_name
from binlog_pipeline.schemas.subscription import Subscription

SEED_VERSION: Final = 1
_FILE_BYTES_MAX: Final = 256 << 20


@dataclass(frozen=True, slots=True)
class SeedColumn:
    """A column, as the seed file describes it."""

    name: str
    type: SqlType
    collation: int | None

    def added_to(self, column: TableColumn) -> TableColumn:
        """The column of a table map with the facts that the log lacks."""
        type_ = self.type
        collation = self.collation if column.collation is None else column.collation
        labels = type_.labels_of(collation) if column.labels is None else column.labels
        return replace(
            column,
            name=self.name,
            unsigned=type_.unsigned if column.unsigned is None else column.unsigned,
            collation=collation,
            labels=labels,
            fraction_digits=type_.fraction_digits(column),
            kind=type_.kind,
        )


@dataclass(frozen=True, slots=True)
class SeedTable:
    """One layout of a table, as the seed file describes it."""

    columns: tuple[SeedColumn, ...]
    key: tuple[str, ...]

    def applied(self, table: TableMap) -> TableMap | None:
        """The table map with the facts of the seed; None if it has another layout."""
        pairs = self._pairs(table)
        if pairs is None or not all(seed.type.fits(column) for column, seed in pairs if seed):
            return None
        known = [seed.added_to(column) if seed else column for column, seed in pairs]
        names = [column.name for column in known]
        found = table.with_columns(known)
        if table.primary_key is not None or not self.key or not {*self.key} <= {*names}:
            return found
        return replace(found, primary_key=tuple(KeyPart(names.index(k), 0) for k in self.key))

    def _pairs(self, table: TableMap) -> list[tuple[TableColumn, SeedColumn | None]] | None:
        """Pairs of a column in the log and its column in the file; None if the file has another number of columns."""
        if is_named(table):
            by_name = {column.name: column for column in self.columns}
            return [(column, by_name.get(column.name or "")) for column in table.columns]
        if len(self.columns) != len(table.columns):
            return None
        return [*zip(table.columns, self.columns, strict=True)]


@dataclass(frozen=True, slots=True)
class Seed:
    """The tables of a seed file; none without a file. Picklable."""

    tables: Mapping[tuple[str, str], tuple[SeedTable, ...]]

    @classmethod
    def read(cls, path: str) -> Seed:
        """An empty path is no file. Raises `BadOption`."""
        if not path:
            return cls({})
        try:
            return cls.parse(json.loads(read_given_text(local_path(path), _FILE_BYTES_MAX)))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadOption(f"schemaSeed {path}: {error!r}; docs/spark.md describes it") from None

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Seed:
        """Raises ValueError, KeyError, TypeError."""
        if document["version"] != SEED_VERSION:
            raise ValueError(f"it is of version {document['version']}, not {SEED_VERSION}")
        tables: dict[tuple[str, str], tuple[SeedTable, ...]] = {}
        for entry in document["tables"]:
            name = (str(entry["database"]), str(entry["table"]))
            tables[name] = (*tables.get(name, ()), _table(entry))
        return cls(tables)

    def of_wanted(
        self, table: TableMap, wanted: Subscription, unnamed: set[TableName] | None = None
    ) -> TableMap | None:
        """A table map with what is known of it; None for a table that is not wanted.

        Tables without names in the log are added to `unnamed`.
        """
        if not wanted.has(table.database, table.table):
            return None
        if unnamed is not None and not is_named(table):
            unnamed.add(table_name(table))
        return self._known(table)

    def applied(self, table: TableMap) -> TableMap:
        """A table map with what is known of it, without columns that are hidden."""
        return self._known(table).visible

    def _known(self, table: TableMap) -> TableMap:
        for layout in self.tables.get((table.database, table.table), ()):
            known = layout.applied(table)
            if known is not None:
                return known
        return table


def _table(entry: Mapping[str, Any]) -> SeedTable:
    columns = tuple(map(_column, entry["columns"]))
    key = tuple(map(str, entry.get("key") or ()))
    names = [column.name for column in columns]
    missing = [name for name in key if name not in names]
    if missing:
        raise ValueError(f"the key has columns that the table has not: {', '.join(missing)}")
    return SeedTable(columns, key)


def _column(entry: Mapping[str, Any]) -> SeedColumn:
    type_ = SqlType.parse(str(entry["type"]))
    collation = BINARY_COLLATION if type_.is_binary else None
    if entry.get("charset"):
        charset = charset_named(str(entry["charset"]))
        if charset is None:
            raise ValueError(f"{entry['charset']!r} is no character set that is known here")
        collation = default_collation(charset)
    return SeedColumn(str(entry["name"]), type_, collation)
