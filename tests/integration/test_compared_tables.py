"""Statements on tables here have the answer of a real 11.8, and leave the same rows; so has a real replica of ours.

`compared_tables.sql` is as `compared_statements.sql`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
from pymysql.cursors import Cursor

from tests.integration.test_compared_statements import NAMES, answer
from tests.integration.test_tables import REPLICA, USERS
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB

pytestmark = pytest.mark.any_version
GROUPS: Final = [
    group.splitlines()
    for group in Path(__file__).with_name("compared_tables.sql").read_text().split("\n\n")
]


def told(connection: Any, statement: str) -> tuple[Any, ...]:
    """All that a program may see: the answer, the number of a row, the text in the OK packet, flags of columns."""
    found = answer(connection, statement)
    if statement.startswith(("SHOW ", "CHECKSUM ")):
        return found
    result = connection._result
    flags = [field.flags for field in result.fields] if result and result.description else []
    return *found, result and result.insert_id, result and result.message, flags


@pytest.mark.timeout(180)  # some 1,200 statements on both, on a busy machine
def test_answers_are_those_of_a_real_server(
    backend: object,
    make_upstream: MakeMariaDB,
    make_replica: MakeMariaDB,
    binlog_server: MakeBinlogServer,
) -> None:
    real = make_upstream(version="11.8")
    ours = binlog_server(users=USERS, local_tables=True)
    replica = make_replica(*REPLICA, version="11.8").follow(ours)
    different: dict[str, tuple[Any, Any]] = {}
    for group in GROUPS:
        with real.connect(autocommit=True) as there, ours.connect(autocommit=True) as here:
            for connection in (there, here):
                connection.decoders = {}  # texts as they come
                connection.cursor(Cursor).execute(NAMES)
            for statement in group:
                theirs, mine = told(there, statement), told(here, statement)
                if theirs != mine:
                    different[statement] = theirs, mine
        replica.wait_gtid(ours.gtid_binlog_pos, timeout=60)
        tables = [f"shop.{next(iter(row.values()))}" for row in ours.q("SHOW TABLES FROM shop")]
        listed = f"CHECKSUM TABLE {', '.join(tables)}"
        for server in (real, replica):
            assert server.q(listed) == ours.q(listed)
    shown = "\n".join(
        f"{text}\n  11.8: {one}\n  ours: {two}" for text, (one, two) in different.items()
    )
    assert not different, shown
