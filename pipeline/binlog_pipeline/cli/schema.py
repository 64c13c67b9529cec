"""Tell which columns a table had, and from which GTID on.

The log tells a table's columns with each change of a row, so an ALTER TABLE is seen at the first change behind it.
Types are those of typed files and views. Names, keys and labels are logged with binlog_row_metadata=FULL only.
With --seed-from-ddl the statements of the log are read instead: what CREATE TABLE and ALTER TABLE say of columns is
written to a file for the option schemaSeed. Tables that are not understood are told, and are not in the file.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import asdict

from binlog_storage.console.arguments import add_json
from binlog_storage.console.output import counted, show_json, show_table, time_text
from binlog_storage.disk.local_path import path_argument

from binlog_pipeline.cli.arguments import add_engine, add_range, add_source, engine, source_options
from binlog_pipeline.errors import BadOption


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser)
    parser.add_argument("--table", metavar="DB.TABLE", help="which table")
    parser.add_argument(
        "--seed-from-ddl",
        type=path_argument,
        metavar="FILE",
        help="write what the log's DDL tells of tables; an option schemaSeed takes it",
    )
    parser.add_argument(
        "--tables", metavar="GLOB,...", help="only these are written, such as shop.* (default: all)"
    )
    add_json(parser, "one array, an object a list of columns; with --seed-from-ddl one object")
    add_range(parser)
    add_engine(parser)
    parser.set_defaults(makes="seed_from_ddl")


def run(arguments: argparse.Namespace) -> int:
    """The command: 1 if there is no change of the table, or no table that is known for a seed."""
    if arguments.seed_from_ddl is not None:
        if arguments.table is not None:
            raise BadOption("--seed-from-ddl writes all tables, or those of --tables, not --table")
        return _seed(arguments)
    if arguments.table is None:
        raise BadOption("--table DB.TABLE is needed, or --seed-from-ddl FILE")
    if arguments.tables is not None:
        raise BadOption("--tables belongs to --seed-from-ddl; here it is --table DB.TABLE")
    return _history(arguments)


def _seed(arguments: argparse.Namespace) -> int:
    from binlog_pipeline.jobs.ddl_seed import write_ddl_seed

    done = write_ddl_seed(source_options(arguments), arguments.seed_from_ddl, engine(arguments))
    if arguments.json:
        shown = {
            "known": [asdict(table) for table in done.known],
            "unknown": [{"name": name, "why": why} for name, why in done.unknown],
        }
        show_json(shown)
    else:
        for table in done.known:
            text = f"{table.name}: {counted(table.layouts, 'layout')}, {counted(table.columns, 'column')}"
            if table.hidden:
                text += f"; taken for a newer layout where the log has no names: {table.hidden}"
            if table.unknown_charsets:
                text += f"; not known: character set of {', '.join(table.unknown_charsets)}"
            print(text)
        for name, why in done.unknown:
            print(f"{name}: not known: {why}")
    if not done.known:
        print("binlog-spark: no table is known by the DDL there", file=sys.stderr)
        return 1
    return 0


def _history(arguments: argparse.Namespace) -> int:
    from binlog_pipeline.jobs.table_history import layout_columns, table_history
    from binlog_pipeline.schemas.columns import key_names

    options = source_options(arguments)
    found = table_history(options, engine(arguments))
    shown = [
        {
            "first": str(layout.first),
            "last": str(layout.last),
            "time": time_text(layout.timestamp),
            "columns": layout_columns(layout, options),
            "key": key_names(layout.table),
        }
        for layout in found
    ]
    if arguments.json:
        show_json(shown)
    if not found:
        print(f"binlog-spark: no row change of {arguments.table} there", file=sys.stderr)
        return 1
    if not arguments.json:
        columns: dict[str, str] = {}
        for layout, one in zip(found, shown, strict=True):
            key = ", ".join(key_names(layout.table)) or "not logged"
            print(f"{layout.first} .. {layout.last}  from {one['time']}  primary key: {key}")
            before, columns = columns, layout_columns(layout, options)
            rows = list(_rows(before, columns))
            show_table(("", "", ""), rows)
    return 0


def _rows(before: dict[str, str], columns: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    """Columns, with what is new of them."""
    for name, kind in columns.items():
        old = before.get(name)
        if not before or old == kind:
            yield "  ", name, kind
        elif old is None:
            yield " +", name, kind
        else:
            yield " ~", name, f"{kind}, was {old}"
    for name, kind in before.items():
        if name not in columns:
            yield " -", name, kind
