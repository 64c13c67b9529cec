"""The faults of a master for tests, by SQL: CREATE, DROP and SHOW of them. The server must have been started so."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import OptionPreventsStatement, UnknownServerError
from binlog_protocol.wire.results import Column
from binlog_storage.errors import StorageError

from binlog_server.accounts.privileges import BINLOG_FAULT
from binlog_server.faults.faults import BadFault, Faults, KeptStore
from binlog_server.sql.statement import Family, Rules, Statement
from binlog_server.sql.tokens import as_written, exact_number, integer, unquote
from binlog_server.sql.view import ResultSet, Row, Work

if TYPE_CHECKING:
    from lark import Token

    from binlog_server.sql.sql_session import SqlSession

_NEEDS: Final = (BINLOG_FAULT,)


def _faults(session: SqlSession) -> Faults:
    """Raises `OptionPreventsStatement` (1290)."""
    server = session.server
    if not server.config.binlog_faults:
        raise OptionPreventsStatement("--binlog-faults=0")
    return server.faults


@dataclass(frozen=True, slots=True)
class CreateFault(Statement):
    """CREATE BINLOG FAULT: an error (1105) where it is none that can be ordered."""

    syntax = '"CREATE"i or_replace "BINLOG"i "FAULT"i _fault_name "DO"i NAME fault_option*'
    needs = _NEEDS

    name: str
    do: str
    options: tuple[tuple[str, Any], ...] = ()
    replace: bool = False

    @classmethod
    def built(cls, children: list[Any]) -> CreateFault:
        replace, name, do, *options = children
        return cls(as_written(name), str(do).lower(), tuple(options), replace)

    def answer(self, session: SqlSession) -> Work | None:
        faults = _faults(session)
        said = {"name": self.name, "do": self.do, **dict(self.options)}
        if len(said) != len(self.options) + 2:
            raise UnknownServerError("an option stands twice")
        with _told():
            if faults.needs_mark([said]):
                return _marked(faults, said, replace=self.replace)
            faults.add([said], replace=self.replace)
        return None


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except BadFault as error:
        raise UnknownServerError(str(error)) from None


def _marked(faults: Faults, said: Mapping[str, Any], *, replace: bool) -> Work:
    """Order one that needs a mark: that is made in a thread."""
    make, loop = faults.make_mark, asyncio.get_running_loop()
    assert make is not None, "it was asked for"

    async def add(mark: KeptStore) -> None:
        faults.add([said], replace=replace, mark=mark)

    def run() -> None:
        try:
            mark = make()
        except (StorageError, OSError) as error:
            raise UnknownServerError(f"no mark could be made: {error}") from None
        with _told():
            try:
                asyncio.run_coroutine_threadsafe(add(mark), loop).result()
            except BadFault:
                mark.discard()
                raise

    return Work(run)


@dataclass(frozen=True, slots=True)
class DropFault(Statement):
    """DROP BINLOG FAULT: an error (1105) if there is none, unless IF EXISTS."""

    syntax = '"DROP"i "BINLOG"i "FAULT"i if_exists _fault_name'
    needs = _NEEDS

    name: str
    if_exists: bool = False

    @classmethod
    def built(cls, children: list[Any]) -> DropFault:
        if_exists, name = children
        return cls(as_written(name), if_exists)

    def answer(self, session: SqlSession) -> None:
        if not _faults(session).drop(self.name) and not self.if_exists:
            raise UnknownServerError(f"there is no fault '{self.name}'")


@dataclass(frozen=True, slots=True)
class DropAllFaults(Statement):
    """DROP ALL BINLOG FAULTS."""

    syntax = '"DROP"i "ALL"i "BINLOG"i "FAULTS"i'
    needs = _NEEDS

    def answer(self, session: SqlSession) -> None:
        _faults(session).clear()


@dataclass(frozen=True, slots=True)
class ShowBinlogFaults(Statement):
    """SHOW BINLOG FAULTS, in the order in which they were ordered."""

    syntax = '"SHOW"i "BINLOG"i "FAULTS"i'
    needs = _NEEDS
    only_looks = True

    def answer(self, session: SqlSession) -> ResultSet:
        columns = [
            Column.text("Name"),
            Column.text("Fault"),
            Column.bigint("Times"),
            Column.bigint("Met"),
        ]
        rows: list[Row] = [
            (one.name, one.fault.text, one.fault.times, one.met)
            for one in _faults(session).ordered()
        ]
        return ResultSet(columns, rows)


# CREATE BINLOG FAULT torn DO cut GTID='0-1-5' EVENT=3 INSIDE=TRUE ACCOUNT='repl'
_RULES = """
_fault_name: STRING | NAME | QUOTED_NAME
fault_option: NAME "=" (STRING | INTEGER | DECIMAL | NAME)
"""
_SWITCHES: Final = {"TRUE": True, "FALSE": False}


class _Builder(Rules):
    def fault_option(self, children: list[Token]) -> tuple[str, Any]:
        name, value = children
        given: Any
        match value.type:
            case "STRING":
                given = unquote(value)
            case "INTEGER":
                given = integer(value)
            case "DECIMAL":
                given = float(exact_number(value))
            case _:
                given = _SWITCHES.get(value.upper(), str(value))
        return str(name).lower(), given


FAMILY = Family(
    (CreateFault, DropFault, DropAllFaults, ShowBinlogFaults),
    _RULES,
    _Builder,
    (("DROP", "ALL", "BINLOG"),),
)
