"""Groups of statements, as a publisher would log them, for tests that need any."""

from __future__ import annotations

from collections.abc import Sequence

from binlog_protocol.groups.statement_group import Origin
from binlog_protocol.gtid import Gtid


def ddl_group(gtid: Gtid, statement: str, *, timestamp: int) -> bytes:
    """One statement that commits by itself, such as CREATE TABLE."""
    return Origin(gtid.server_id).standalone(gtid, statement.encode(), timestamp)


def transaction_group(
    gtid: Gtid, statements: Sequence[str], *, xid: int, database: str = "", timestamp: int
) -> bytes:
    """Statements on transactional tables, ended by a commit with number `xid`."""
    origin = Origin(gtid.server_id, database.encode())
    events = [origin.statement(statement.encode(), timestamp) for statement in statements]
    return b"".join((origin.begin(gtid, timestamp), *events, origin.commit(xid, timestamp)))
