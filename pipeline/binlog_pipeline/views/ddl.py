"""View ddl: a row for each statement that makes, changes or removes something in the database.

    gtid, file, offset, ts   see `view.py`
    db                       the database that was in use
    sql                      the statement as it was logged: the server rewords some
    affected                 tables that it makes, changes or removes, as db.table; db.* for all of a database. Null
                             if the statement is of a kind unknown here
    kind                     create, alter, drop, rename, truncate, other

Of an ALTER TABLE in two phases (binlog_alter_two_phase) the second counts: the first has no effect yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from binlog_pipeline.groups import Groups
from binlog_pipeline.schemas.logged_statements import LoggedStatement, ddl_in
from binlog_pipeline.telling import readable
from binlog_pipeline.views.view import PLACE, place_arrays

DDL_SCHEMA: Final = pa.schema(
    [
        *PLACE,
        pa.field("db", pa.string()),
        pa.field("sql", pa.string()),
        pa.field("affected", pa.list_(pa.field("element", pa.string()))),
        pa.field("kind", pa.string()),
    ]
)


class DdlView:
    """View `ddl`; see the module."""

    schema: Final = DDL_SCHEMA
    barrier: Final = None

    def batches(self, groups: Iterable[Groups]) -> Iterator[pa.RecordBatch]:
        for some in groups:
            if found := [*ddl_in(some)]:
                yield _batch(some, [i for i, _ in found], [statement for _, statement in found])


def _batch(groups: Groups, which: list[int], found: list[LoggedStatement]) -> pa.RecordBatch:
    affected = [
        [readable(str(name)) for name in statement.meaning.affected]
        if statement.meaning.is_certain
        else None
        for statement in found
    ]
    arrays = [
        *place_arrays(groups, np.array(which)),
        pa.array([readable(statement.database) for statement in found], pa.string()),
        pa.array([readable(statement.sql) for statement in found], pa.string()),
        pa.array(affected, DDL_SCHEMA.field("affected").type),
        pa.array([statement.meaning.kind for statement in found], pa.string()),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=DDL_SCHEMA)
