"""The content of an export: OUT/_manifest.json. A file that is not in it does not count.

    {"format": "binlog-spark export", "version": 1, "source": ..., "settings": {...},
     "begin": "0-1-7", "position": "0-1-5000", "runs": 2,
     "tables": [{"database": "shop", "table": "orders", "key": ["id"], "schemas": [
         {"number": 1, "folder": "shop/orders/schema=1", "fingerprint": ...,
          "columns": [["id", "int32"], ...],
          "files": [{"name": "part-00001-00000.parquet", "rows": 10, "bytes": 4000,
                     "first": "0-1-8", "last": "0-1-17"}]}]}],
     "statements": [{"gtid": "0-1-12", "database": "shop", "table": "orders", "op": "t", "sql": "TRUNCATE orders",
                     "why": ""}]}

`statements` are those that changed rows of a table without rows in the log, in their order: t has emptied it; what x
has done to its rows the log does not say (`schemas/row_effects.py`). Table * is all of the database. Where the log has
no names of columns (`is_unnamed` of a schema), those are there, too, by which columns have come or gone: a, and `why`
is what `schemas/ddl_alter.py` has as `moves`. It becomes x when a schema has rows of before and of behind it, and a
column there may be two.
`begin` and `position` are GTID positions: all that the source has behind the one and up to the other is in the files,
as far as the settings want it. A new manifest is written beside the old one, synced, and renamed over it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote

from binlog_protocol.dataclass import dataclass
from binlog_protocol.gtid import Gtid, SlavePosition
from binlog_storage.disk.durable_files import replace_file

from binlog_pipeline.errors import SourceError
from binlog_pipeline.jobs.typed_files import WrittenFile
from binlog_pipeline.schemas.ddl_alter import COLUMN_COMES, COLUMN_GOES, may_shift
from binlog_pipeline.schemas.row_effects import NO_NAMES

MANIFEST: Final = "_manifest.json"
_FORMAT: Final = "binlog-spark export"
_VERSION: Final = 1
MOVES: Final = "a"


@dataclass(slots=True)
class ExportedFile:
    """One Parquet file of a table, as the manifest lists it."""

    name: str
    rows: int
    bytes: int
    first: str
    last: str


@dataclass(slots=True)
class TableSchema:
    """A list of columns that a table had, and the files that have it. `number` counts from 1.

    is_unnamed: the log has no names of them, for some of the rows; names are numbers, or a seed's.
    """

    number: int
    folder: str
    fingerprint: str
    columns: list[list[str]]
    files: list[ExportedFile] = field(default_factory=list)
    is_unnamed: bool = False


@dataclass(slots=True)
class ExportedTable:
    """One table, with its schemas in the order in which they came up."""

    database: str
    table: str
    key: list[str]
    schemas: list[TableSchema] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(file.rows for schema in self.schemas for file in schema.files)


@dataclass(frozen=True, slots=True)
class ExportedStatement:
    """A statement that changed rows without rows in the log; see the module."""

    gtid: str
    database: str
    table: str
    op: str
    sql: str
    why: str


@dataclass(slots=True)
class ExportManifest:
    """The content of `_manifest.json`; see the module."""

    source: str
    settings: dict[str, Any]
    begin: str
    position: str = ""
    runs: int = 0
    tables: list[ExportedTable] = field(default_factory=list)
    statements: list[ExportedStatement] = field(default_factory=list)

    @classmethod
    def read(cls, directory: Path) -> Self | None:
        """The manifest of an export; None without one. Raises `SourceError`."""
        path = directory / MANIFEST
        try:
            found = json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise SourceError(
                f"{path} is damaged: {error}; export into another directory"
            ) from None
        try:
            if found.pop("format") != _FORMAT or found.pop("version") != _VERSION:
                raise SourceError(f"{path} is not of an export that this program knows")
            tables = [_table(table) for table in found.pop("tables")]
            statements = [ExportedStatement(**one) for one in found.pop("statements", [])]
            return cls(**found, tables=tables, statements=statements)
        except (KeyError, TypeError, AttributeError) as error:
            raise SourceError(
                f"{path} is damaged: {error!r}; export into another directory"
            ) from None

    def write(self, directory: Path) -> None:
        """Write the manifest as a whole. Raises OSError."""
        text = json.dumps({"format": _FORMAT, "version": _VERSION, **asdict(self)}, indent=1)
        replace_file(directory / MANIFEST, text.encode())

    @property
    def slave_position(self) -> SlavePosition:
        return SlavePosition.parse(self.position)

    @property
    def files(self) -> dict[str, ExportedFile]:
        """All files, by their paths below the directory."""
        return {
            f"{schema.folder}/{file.name}": file
            for table in self.tables
            for schema in table.schemas
            for file in schema.files
        }

    def mixing(self) -> list[ExportedStatement]:
        """Take for x those `a` by which a schema may have two columns as one; those of tables with names go.

        The order of what is in several domains is not known here: such a schema has rows of before and of behind.
        """
        tables = {(table.database, table.table): table for table in self.tables}
        found: dict[int, ExportedStatement] = {}
        gone: set[int] = set()
        moved = [(i, one) for i, one in enumerate(self.statements) if one.op == MOVES]
        for name in {(one.database, one.table) for _, one in moved}:
            own = [(i, one) for i, one in moved if (one.database, one.table) == name]
            table = tables.get(name)
            schemas = [s for s in table.schemas if s.is_unnamed] if table is not None else []
            if not schemas:
                gone |= {i for i, _ in own}
            for schema in schemas:
                within = [(i, one) for i, one in own if _is_around(schema, Gtid.parse(one.gtid))]
                if may_shift({move for _, one in within for move in one.why.split()}):
                    found |= {
                        i: replace(one, op="x", why=NO_NAMES)
                        for i, one in within
                        if {COLUMN_COMES, COLUMN_GOES} & {*one.why.split()}
                    }
        self.statements = [
            found.get(i, one) for i, one in enumerate(self.statements) if i not in gone
        ]
        return [found[i] for i in sorted(found)]

    def schema_of(self, written: WrittenFile) -> TableSchema:
        """The schema that a file belongs to; made for the first file of a layout."""
        name = written.database, written.table
        table = next((t for t in self.tables if (t.database, t.table) == name), None)
        if table is None:
            table = ExportedTable(*name, list(written.key))
            self.tables.append(table)
        table.key = list(written.key) or table.key
        for schema in table.schemas:
            if schema.fingerprint == written.fingerprint:
                return schema
        number = len(table.schemas) + 1
        folder = f"{folder_of(name[0])}/{folder_of(name[1])}/schema={number}"
        columns = [list(column) for column in written.columns]
        table.schemas.append(TableSchema(number, folder, written.fingerprint, columns))
        return table.schemas[-1]


def _is_around(schema: TableSchema, gtid: Gtid) -> bool:
    firsts = [one for file in schema.files for one in SlavePosition.parse(file.first)]
    lasts = [one for file in schema.files for one in SlavePosition.parse(file.last)]
    if any(one.domain_id != gtid.domain_id for one in lasts):
        return True
    return any(one.seq_no < gtid.seq_no for one in firsts) and any(
        one.seq_no > gtid.seq_no for one in lasts
    )


def folder_of(name: str) -> str:
    """A name as a folder that readers of Parquet do not pass over, as they do with _x and .x."""
    quoted = quote(name.encode("utf-8", "surrogateescape"), safe=" ")
    return f"%{ord(quoted[0]):02X}{quoted[1:]}" if quoted[0] in "._" else quoted


def _table(found: dict[str, Any]) -> ExportedTable:
    schemas = []
    for schema in found.pop("schemas"):
        files = [ExportedFile(**file) for file in schema.pop("files")]
        schemas.append(TableSchema(**schema, files=files))
    return ExportedTable(**found, schemas=schemas)
