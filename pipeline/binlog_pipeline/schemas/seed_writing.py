"""Files for `schemaSeed`: from information_schema of a running server, and whole again or not at all."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from binlog_storage.disk.durable_files import put_in_place, synced_file
from binlog_storage.disk.local_path import local_path

from binlog_pipeline.schemas.seed import SEED_VERSION
from binlog_pipeline.schemas.subscription import Subscription

_SYSTEM: Final = "('information_schema', 'performance_schema', 'sys')"
_COLUMNS: Final = f"""
    SELECT c.TABLE_SCHEMA, c.TABLE_NAME, c.COLUMN_NAME, HEX(c.COLUMN_TYPE), c.CHARACTER_SET_NAME,
        t.TABLE_TYPE = 'SYSTEM VERSIONED' AND NOT EXISTS (
            SELECT * FROM information_schema.COLUMNS s
            WHERE s.TABLE_SCHEMA = c.TABLE_SCHEMA AND s.TABLE_NAME = c.TABLE_NAME
                AND s.GENERATION_EXPRESSION = 'ROW END')
    FROM information_schema.COLUMNS c JOIN information_schema.TABLES t USING (TABLE_SCHEMA, TABLE_NAME)
    WHERE t.TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED') AND TABLE_SCHEMA NOT IN {_SYSTEM}
    ORDER BY c.TABLE_SCHEMA, c.TABLE_NAME, c.ORDINAL_POSITION
"""
_KEYS: Final = f"""
    SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME FROM information_schema.KEY_COLUMN_USAGE
    WHERE CONSTRAINT_NAME = 'PRIMARY' AND TABLE_SCHEMA NOT IN {_SYSTEM}
    ORDER BY TABLE_SCHEMA, TABLE_NAME, ORDINAL_POSITION
"""
_HASHES: Final = f"""
    SELECT s.TABLE_SCHEMA, s.TABLE_NAME, COUNT(DISTINCT s.INDEX_NAME)
    FROM information_schema.STATISTICS s JOIN information_schema.TABLES t USING (TABLE_SCHEMA, TABLE_NAME)
    WHERE s.INDEX_TYPE = 'HASH' AND s.NON_UNIQUE = 0 AND s.INDEX_NAME <> 'PRIMARY' AND t.ENGINE <> 'MEMORY'
        AND TABLE_SCHEMA NOT IN {_SYSTEM}
    GROUP BY s.TABLE_SCHEMA, s.TABLE_NAME
"""
_HASH: Final = "DB_ROW_HASH_{}"
_ROW_TIMES: Final = [{"name": name, "type": "timestamp(6)"} for name in ("row_start", "row_end")]


class DbConnection(Protocol):
    """A connection of any library with the DB-API: pymysql, mariadb, mysql.connector."""

    def cursor(self) -> Any: ...


def write_seed(
    connection: DbConnection, path: str | os.PathLike[str], tables: Sequence[str] = ()
) -> int:
    """Write what a server says of its tables now; the number of tables. Of `tables` (globs, shop.*), or of all."""
    wanted = Subscription.parse(tables)
    found: dict[tuple[str, str], dict[str, Any]] = {}
    versioned: set[tuple[str, str]] = set()
    for database, table, name, type_, charset, is_versioned in _rows(connection, _COLUMNS):
        if wanted.has(database, table):
            if is_versioned:
                versioned.add((database, table))
            entry = found.setdefault(
                (database, table), {"database": database, "table": table, "columns": [], "key": []}
            )
            column = {"name": name, "type": printed_type(type_)}
            entry["columns"].append({**column, "charset": charset} if charset else column)
    for one in versioned:  # the log has these, information_schema.columns has not
        found[one]["columns"] += _ROW_TIMES
    for database, table, count in _rows(connection, _HASHES):  # hidden columns, behind all others
        if (database, table) in found:
            columns = found[database, table]["columns"]
            columns += _hash_columns(int(count), {column["name"].upper() for column in columns})
    for database, table, name in _rows(connection, _KEYS):
        if (database, table) in found:
            found[database, table]["key"].append(name)
    write_tables(local_path(path), [*found.values()])
    return len(found)


def _hash_columns(count: int, names: Collection[str]) -> list[dict[str, str]]:
    """So many columns of keys that are hashes, beside columns with these names in capitals."""
    free = (name for name in map(_HASH.format, itertools.count(1)) if name not in names)
    return [{"name": next(free), "type": "bigint(20) unsigned"} for _ in range(count)]


def write_tables(path: Path, tables: Sequence[Mapping[str, Any]]) -> None:
    """Write a file with these tables, in the place of what is there in one step. Raises OSError."""
    path = local_path(path)
    document = {"version": SEED_VERSION, "tables": tables}
    text = json.dumps(document, ensure_ascii=False, indent=1) + "\n"
    staged = path.with_name(f"{path.name}.{os.getpid()}.new")
    with synced_file(staged) as file:
        file.write(text.encode("utf-8", "surrogateescape"))
    put_in_place(staged, path)


def printed_type(printed: str) -> str:
    """COLUMN_TYPE, of its hexadecimal form: drivers fail at what is no UTF-8, such as half a surrogate pair in ucs2.

    Each byte of those becomes `?`, as servers print others that are no text.
    """
    text = bytes.fromhex(printed).decode("utf-8", "surrogateescape")
    return text.encode("utf-8", "replace").decode()


def _rows(connection: DbConnection, sql: str) -> list[tuple[str, ...]]:
    cursor = connection.cursor()
    try:
        cursor.execute(sql)
        return [
            tuple(r.values()) if isinstance(r, Mapping) else tuple(r) for r in cursor.fetchall()
        ]
    finally:
        cursor.close()
