"""Tell which columns a table had, and from which GTID on.

The log tells a table's columns with each change of a row, so an ALTER TABLE is seen at the first change behind it.
Types are those of typed files and views. Names, keys and labels are logged with binlog_row_metadata=FULL only.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator

from pipeline.cli.arguments import add_engine, add_range, add_source, engine, source_options
from pipeline.cli.text_table import text_table, time_text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    add_source(parser)
    parser.add_argument("--table", required=True, metavar="DB.TABLE", help="which table")
    parser.add_argument(
        "--json", action="store_true", help="one array, an object a list of columns"
    )
    add_range(parser)
    add_engine(parser)


def run(arguments: argparse.Namespace) -> int:
    """The command: 1 if there is no change of the table."""
    from pipeline.jobs.table_history import layout_columns, table_history
    from pipeline.schemas.columns import key_names

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
        print(json.dumps(shown, indent=1))
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
            print("\n".join(list(text_table(("", "", ""), rows))[1:]))
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
