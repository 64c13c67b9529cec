"""The tables are declared as a real 11.8 declares them, and their columns are sent as it sends them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Final

import pytest
from binlog_protocol.wire.results import ResultCharset

from binlog_server.queries.catalog import MYSQL, SCHEMAS, TableDefinition, tables

# A digest for each table, of its rows of information_schema.COLUMNS and of its columns on the wire, by a real server.
RECORDED: Final = json.loads(Path(__file__).with_name("tables.json").read_text())


def digest(table: TableDefinition) -> str:
    declared = [
        [
            at,
            column.name,
            column.column_type,
            column.data_type,
            "YES" if column.may_be_null else "NO",
            column.default,
            column.characters,
            column.octets,
            *column.precision,
            column.datetime_precision,
            column.character_set,
            column.collation or None,
            column.key,
            column.extra,
        ]
        for at, column in enumerate(table.definitions, 1)
    ]
    sent = [
        d.wire(table.schema, table.name).sent_in(ResultCharset(224, 4)) for d in table.definitions
    ]
    on_the_wire = [
        [
            *(c.schema, c.table, c.original_table, c.name, c.original_name),
            *(c.type, min(c.length, 2**32 - 1), c.charset, c.flags, c.decimals),
        ]
        for c in sent
    ]
    facts = [declared, None if table.schema == MYSQL else on_the_wire]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_as_of_a_real_server(schema: str) -> None:
    found = {f"{schema}.{t.name}": digest(t) for t in tables(schema).values()}
    recorded = {name: value for name, value in RECORDED.items() if name.startswith(f"{schema}.")}
    assert {name: found.get(name) for name in recorded} == recorded
    ours = found.keys() - recorded.keys()
    assert all(name.startswith("information_schema.BINLOG_") for name in ours)


def test_a_row_of_what_is_known() -> None:
    table = tables("information_schema")["processlist"]
    row = table.row(id=1, user="root")
    assert len(row) == len(table.definitions)
    assert row[:4] == (1, "root", "", None)
