"""A view of changes made of options: the schema of a table is looked for in the log."""

from __future__ import annotations

from pipeline.errors import BadOption
from pipeline.options import SourceOptions
from pipeline.schemas.columns import key_names, picked_fields, table_fields
from pipeline.schemas.evolution import Evolution, fields_of
from pipeline.schemas.search import newest_table
from pipeline.schemas.subscription import Subscription
from pipeline.sources.source import Source
from pipeline.views.changes import ChangesView
from pipeline.views.changes_layouts import layout_named
from protocol.row_columns import ColumnOptions


def open_changes(options: SourceOptions, source: Source) -> ChangesView:
    """Raises `BadOption`, `SourceError`."""
    database, table = options.table.split(".")
    found = newest_table(
        source, database, table, options.end_gtid, by_numbers=options.kind == "server"
    )
    if found is None:
        end = "" if options.end_gtid is None else f" up to {options.end_gtid}"
        raise BadOption(
            f"{source.name} has no row of {options.table}{end}, so its columns are not known; names of tables are "
            "taken exactly as they were logged"
        )
    column_options = column_options_of(options)
    fields = tuple(picked_fields(found.table, column_options, options.columns))
    key = fields_of(table_fields(found.table, column_options), key_names(found.table))
    if options.layout == "cdf" and "t" in options.ops:
        raise BadOption("layout=cdf has no rows for a table that was emptied; leave t out of ops")
    evolution = Evolution(
        options.schema_evolution, found, column_options, fields, key, bool(options.columns)
    )
    layout = layout_named(options.layout, database, table, fields, key)
    return ChangesView(
        evolution,
        layout,
        Subscription.one(database, table),
        options.ops,
        options.non_row,
        options.batch_rows,
    )


def column_options_of(options: SourceOptions) -> ColumnOptions:
    """What values become."""
    return ColumnOptions(
        zero_date=options.zero_date,  # type: ignore[arg-type]
        time=options.time,  # type: ignore[arg-type]
        unsigned_bigint=options.unsigned_bigint,  # type: ignore[arg-type]
        bad_text=options.bad_text,  # type: ignore[arg-type]
        bit1=options.bit1,  # type: ignore[arg-type]
        set_labels=options.set_labels,  # type: ignore[arg-type]
    )
