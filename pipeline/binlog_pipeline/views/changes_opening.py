"""A view of changes made of options: the schema of a table is looked for in the log."""

from __future__ import annotations

from dataclasses import fields, replace

from binlog_protocol.gtid import Gtid
from binlog_protocol.row_columns import ColumnOptions
from binlog_protocol.sql.token_reader import TableName
from binlog_storage.ibb.chunk import Position

from binlog_pipeline.errors import BadOption, SourceError
from binlog_pipeline.options import SourceOptions
from binlog_pipeline.schemas.asked import asked_table
from binlog_pipeline.schemas.columns import is_named, key_fields, picked_fields
from binlog_pipeline.schemas.evolution import Evolution
from binlog_pipeline.schemas.search import FoundTable, newest_table
from binlog_pipeline.schemas.seed import Seed
from binlog_pipeline.schemas.subscription import Subscription
from binlog_pipeline.sources.server import ServerSource, table_session
from binlog_pipeline.sources.source import LogSource
from binlog_pipeline.table_names import parsed_table
from binlog_pipeline.views.changes import ChangesView
from binlog_pipeline.views.changes_layouts import layout_named
from binlog_pipeline.views.changes_tables import TABLE_LAYOUTS, TablesView


def open_changes(options: SourceOptions, source: LogSource) -> ChangesView | TablesView:
    """View `changes` of one table or of several, as the options say. Raises `BadOption`, `SourceError`."""
    if "x" in options.ops and options.layout != "struct":
        raise BadOption(f"layout={options.layout} has no rows for statements; leave x out of ops")
    return _one_table(options, source) if options.table else _several_tables(options, source)


def _one_table(options: SourceOptions, source: LogSource) -> ChangesView:
    return view_of_table(options, table_of(options, source))


def view_of_table(options: SourceOptions, found: FoundTable) -> ChangesView:
    """View `changes` of one table with the columns that it has in `found`. Raises `BadOption`."""
    database, table = parsed_table(options.table)
    seed = Seed.read(options.schema_seed)
    by_name = is_named(found.table)
    found = replace(found, table=seed.applied(found.table))
    column_options = column_options_of(options)
    fields = tuple(picked_fields(found.table, column_options, options.columns))
    key = key_fields(found.table, column_options)
    if options.layout == "cdf" and "t" in options.ops:
        raise BadOption("layout=cdf has no rows for a table that was emptied; leave t out of ops")
    evolution = Evolution(
        options.schema_evolution,
        found,
        column_options,
        fields,
        key,
        bool(options.columns),
        "x" in options.ops,
    )
    layout = layout_named(
        options.layout, database, table, fields, key, has_statements="x" in options.ops
    )
    wanted = Subscription.one(database, table)
    return ChangesView(
        evolution, layout, wanted, seed, options.ops, options.non_row, options.batch_rows, by_name
    )


def table_of(options: SourceOptions, source: LogSource) -> FoundTable:
    """The table of the options as the log has it last, or as a running server has it that has logged no row of it.

    Raises `BadOption` if neither tells.
    """
    database, table = parsed_table(options.table)
    found = newest_table(source, (database, table), options.end_gtid, by_numbers=source.is_growing)
    if found is None and options.end_gtid is None and isinstance(source, ServerSource):
        found = _shown(source, TableName(database, table))
    if found is None:
        end = "" if options.end_gtid is None else f" up to {options.end_gtid}"
        is_server = isinstance(source, ServerSource)
        asked = (
            "; nor does it show the table: the account needs SELECT for that" if is_server else ""
        )
        raise BadOption(
            f"{source.name} has no row of {options.table}{end}, so its columns are not known; names of tables are "
            "taken exactly as they were logged, and the server must log rows (binlog_format=ROW; with STATEMENT, and "
            "most often with MIXED, its default, changes are logged as text, and those of a table that is versioned by "
            f"transaction ids always){asked}"
        )
    return found


def _shown(source: ServerSource, name: TableName) -> FoundTable | None:
    """The table as the server has it: it is empty, or its rows are older than the log, as behind a load.

    Whatever comes is behind that, so rows with other columns are known as such. None if the server shows it to nobody.
    """
    last = next(iter(source.latest()), Gtid(0, 0, 0))
    try:
        with table_session(source.address) as link:
            return FoundTable(asked_table(link.texts, name).map, Position(0, 0), last)
    except (BadOption, SourceError):
        return None


def _several_tables(options: SourceOptions, source: LogSource) -> TablesView:
    if options.layout not in TABLE_LAYOUTS:
        raise BadOption(
            f"layout={options.layout} has the columns of one table; name it with the option table, or take "
            f"layout={' or '.join(TABLE_LAYOUTS)}"
        )
    if options.columns:
        raise BadOption("columns are those of one table; name it with the option table")
    found = None
    if "x" in options.ops:
        found = newest_table(source, None, options.end_gtid, by_numbers=source.is_growing)
    return TablesView(
        Subscription.parse(options.tables),
        Seed.read(options.schema_seed),
        column_options_of(options),
        options.layout,
        options.ops,
        options.non_row,
        options.batch_rows,
        found is None or is_named(found.table),
    )


def column_options_of(options: SourceOptions) -> ColumnOptions:
    """The options that say what values of a column become."""
    return ColumnOptions(**{one.name: getattr(options, one.name) for one in fields(ColumnOptions)})
