"""The leases: CREATE, ALTER, DROP and SHOW of them. The first three wait for a disk, so a thread runs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import NoRoomOnDisk, ServerError, UnknownServerError
from binlog_protocol.wire.results import Column

from binlog_server.sql import places
from binlog_server.sql.moments import (
    Moment,
    MomentBuilder,
    not_a_time,
    seconds_of,
    shifted,
    span_of,
)
from binlog_server.sql.statement import CHANGE_FILES, LOOK_AT_FILES, Family, Statement
from binlog_server.sql.time_zones import Clock
from binlog_server.sql.tokens import as_written, integer, unquote
from binlog_server.sql.view import Diagnostics, ResultSet, Work

if TYPE_CHECKING:
    from lark import Token

    from binlog_server.sql.sql_session import SqlSession


@dataclass(frozen=True, slots=True)
class CreateLease(Statement):
    """CREATE BINLOG LEASE. Without `gtid` it holds all files; without limits it holds until it is dropped."""

    syntax = '"CREATE"i or_replace "BINLOG"i "LEASE"i _lease_name lease_terms'
    needs = CHANGE_FILES
    changes_store = True

    name: str
    replace: bool = False
    gtid: str | None = None
    until: Moment | None = None
    max_bytes: int | None = None

    @classmethod
    def built(cls, children: list[Any]) -> CreateLease:
        replace, name, terms = children
        return cls(as_written(name), replace, *terms)

    def answer(self, session: SqlSession) -> Work:
        leases, clock = session.server.leases, session.clock()

        def run() -> None:
            until = _end_of(self.until, clock)
            leases.create(self.name, self.gtid, until, self.max_bytes, or_replace=self.replace)

        return Work(run)


@dataclass(frozen=True, slots=True)
class AlterLease(Statement):
    """ALTER BINLOG LEASE; a field that is None changes nothing. A warning tells of no room to write it down."""

    syntax = '"ALTER"i "BINLOG"i "LEASE"i _lease_name lease_terms'
    needs = CHANGE_FILES
    changes_store = True

    name: str
    gtid: str | None = None
    until: Moment | None = None
    max_bytes: int | None = None

    @classmethod
    def built(cls, children: list[Any]) -> AlterLease:
        name, terms = children
        return cls(as_written(name), *terms)

    def answer(self, session: SqlSession) -> Work:
        leases, clock, warn = session.server.leases, session.clock(), _no_room(session.diagnostics)

        def run() -> None:
            leases.alter(self.name, self.gtid, _end_of(self.until, clock), self.max_bytes, warn)

        return Work(run)


@dataclass(frozen=True, slots=True)
class DropLease(Statement):
    """DROP BINLOG LEASE: an error (1105) if there is none, unless IF EXISTS."""

    syntax = '"DROP"i "BINLOG"i "LEASE"i if_exists _lease_name'
    needs = CHANGE_FILES
    changes_store = True

    name: str
    if_exists: bool = False

    @classmethod
    def built(cls, children: list[Any]) -> DropLease:
        if_exists, name = children
        return cls(as_written(name), if_exists)

    def answer(self, session: SqlSession) -> Work:
        leases, warn = session.server.leases, _no_room(session.diagnostics)

        def run() -> None:
            if not leases.drop(self.name, warn) and not self.if_exists:
                raise UnknownServerError(f"there is no lease '{self.name}'")

        return Work(run)


@dataclass(frozen=True, slots=True)
class ShowBinlogLeases(Statement):
    """SHOW BINLOG LEASES."""

    syntax = '"SHOW"i "BINLOG"i "LEASES"i'
    needs = LOOK_AT_FILES
    only_looks = True

    def answer(self, session: SqlSession) -> ResultSet:
        columns = [
            Column.text("Name"),
            Column.text("From_gtid"),
            Column.text("First_file"),
            Column.text("Created"),
            Column.text("Until", null=True),
            Column.bigint("Max_bytes", null=True),
            Column.bigint("Held_bytes"),
        ]
        return ResultSet(columns, places.leases(session.server.leases, session.coordinates))


def _no_room(told: Diagnostics) -> Callable[[str], None]:
    return lambda text: told.warn(ServerError(NoRoomOnDisk, text))


def _end_of(moment: Moment | None, clock: Clock) -> float | None:
    if moment is None:
        return None
    until = seconds_of(moment, clock)
    if until is None:
        raise UnknownServerError(not_a_time(moment, clock).message)
    return until


# CREATE BINLOG LEASE 'etl' FROM GTID '0-1-5' FOR 86400 SECOND MAX_BYTES 10737418240; ALTER BINLOG LEASE 'etl' FOR 1 DAY
_RULES = """
?lease_end: "UNTIL"i moment                       -> until
         | "FOR"i INTEGER UNIT                   -> lease_for
_lease_name: STRING | NAME | QUOTED_NAME
lease_terms: ["FROM"i "GTID"i STRING] [lease_end] ["MAX_BYTES"i INTEGER]
!or_replace: ("OR"i "REPLACE"i)?
!if_exists: ("IF"i "EXISTS"i)?
"""


class _Builder(MomentBuilder):
    def or_replace(self, children: list[Token]) -> bool:
        return bool(children)

    def if_exists(self, children: list[Token]) -> bool:
        return bool(children)

    def until(self, children: list[Moment]) -> Moment:
        return children[0]

    def lease_for(self, children: list[Token]) -> Moment:
        return shifted(Moment(for_all=True), 1, span_of(*children))

    def lease_terms(self, children: list[Any]) -> tuple[str | None, Moment | None, int | None]:
        gtid, until, max_bytes = children
        return (
            None if gtid is None else unquote(gtid),
            until,
            None if max_bytes is None else integer(max_bytes),
        )


FAMILY = Family(
    (CreateLease, AlterLease, DropLease, ShowBinlogLeases),
    _RULES,
    _Builder,
    (
        ("CREATE", "BINLOG"),
        ("CREATE", "OR", "REPLACE", "BINLOG"),
        ("ALTER", "BINLOG"),
        ("DROP", "BINLOG"),
    ),
)
