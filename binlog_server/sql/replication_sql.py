"""Runs the statements about upstreams (CHANGE MASTER, START SLAVE ...). docs/relay.md describes each of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from binlog_protocol.errors.replication_errors import (
    ER_SLAVE_STARTED,
    ER_SLAVE_STOPPED,
    ER_SLAVE_WAS_NOT_RUNNING,
    ER_SLAVE_WAS_RUNNING,
    WARN_OPTION_IGNORED,
    WAS_NOT_RUNNING,
    WAS_RUNNING,
    BadSlaveUntil,
    MasterInfoRefused,
)
from binlog_protocol.errors.sql_errors import NotSupportedYet
from binlog_protocol.gtid import SlavePosition

from binlog_server.sql.replication_statements import (
    ChangeMaster,
    ReplicationStatement,
    ResetSlave,
    StartAllSlaves,
    StartSlave,
    StopAllSlaves,
    StopSlave,
    Until,
)
from binlog_server.sql.view import Deed, Diagnostic, Level
from binlog_server.upstreams.master_info import Warn

if TYPE_CHECKING:
    from binlog_server.sql.sql_session import SqlSession

_ONE_TASK: Final = NotSupportedYet(
    "IO_THREAD and SQL_THREAD by themselves: a relay has one task for both, and that is meant"
)
_POSITIONS: Final = ("log_file", "log_pos", "relay_log_file", "relay_log_pos")
_FLAGS: Final = ("ssl", "ssl_verify_server_cert", "check_last_group")


def replicate(session: SqlSession, statement: ReplicationStatement) -> Deed:
    """The work of a statement about upstreams, to be run on the loop.

    Raises `ServerError` at once for an error that needs no work to be found; the `Deed` raises the others.
    """
    default = session.master_connection
    match statement:
        case ChangeMaster(name, options):
            return _change(session, default if name is None else name, options)
        case StartSlave():
            return _start(session, default if statement.name is None else statement.name, statement)
        case StopSlave(name, threads):
            return _stop(session, default if name is None else name, threads)
        case ResetSlave(name, everything):
            return _reset(session, default if name is None else name, everything=everything)
        case StartAllSlaves():
            return _start_all(session)
        case StopAllSlaves():
            return _stop_all(session)


def _note(session: SqlSession, code: int, text: str) -> None:
    session.diagnostics.append(Diagnostic(Level.NOTE, code, text))


def _warn_in(session: SqlSession) -> Warn:
    return lambda code, text: session.diagnostics.append(Diagnostic(Level.WARNING, code, text))


def _about_threads(session: SqlSession, threads: frozenset[str]) -> None:
    if len(threads) == 1:
        _note(session, _ONE_TASK.errno, _ONE_TASK.message)


def _change(session: SqlSession, name: str, options: Mapping[str, Any]) -> Deed:
    wanted = dict(options)
    if wanted.pop("delay", 0):
        raise NotSupportedYet(
            "MASTER_DELAY: groups are served as soon as they are durable; set it on the replicas"
        )
    for demote in ("demote_to_slave", "demote_to_replica"):
        wanted.pop(demote, None)  # the binlog's position has the server's own groups already
    _check_positions(session, name, wanted)
    for flag in _FLAGS:
        if flag in wanted:
            wanted[flag] = bool(wanted[flag])

    async def run() -> None:
        await session.server.relay.change(name, wanted, _warn_in(session))

    return Deed(run)


def _check_positions(session: SqlSession, name: str, options: dict[str, Any]) -> None:
    """A warning where MASTER_LOG_FILE and MASTER_LOG_POS are ignored, as in MariaDB with GTID.

    Raises where GTID is off, which is not supported; the error says what to do.
    """
    given = [option for option in _POSITIONS if option in options]
    use_gtid = options.get("use_gtid")
    if use_gtid == "no" or (given and use_gtid is None):
        file, position = options.get("log_file", "FILE"), options.get("log_pos", "POSITION")
        raise MasterInfoRefused(
            name,
            f"a relay follows by GTID only. SELECT BINLOG_GTID_POS('{file}', {position}) on the master, then here "
            "SET GLOBAL gtid_slave_pos='...' and CHANGE MASTER TO ..., MASTER_USE_GTID=slave_pos",
        )
    for option in given:
        shown = option if option.startswith("relay") else f"master_{option}"
        _note(session, WARN_OPTION_IGNORED, f"{shown.upper()} option ignored")
        del options[option]


def _start(session: SqlSession, name: str, statement: StartSlave) -> Deed:
    until = None
    if statement.until is Until.OTHER:
        raise NotSupportedYet(
            "UNTIL with files, or before a GTID: UNTIL MASTER_GTID_POS = '...' names the last groups that are wanted"
        )
    if statement.until is Until.GTID:
        if len(statement.threads) == 1:
            raise BadSlaveUntil
        until = SlavePosition.from_peer(statement.gtids)

    async def run() -> None:
        if not await session.server.relay.start(name, until, _warn_in(session)):
            _note(session, ER_SLAVE_WAS_RUNNING, WAS_RUNNING)
        _about_threads(session, statement.threads)

    return Deed(run)


def _stop(session: SqlSession, name: str, threads: frozenset[str]) -> Deed:
    async def run() -> None:
        if not await session.server.relay.stop(name, _warn_in(session)):
            _note(session, ER_SLAVE_WAS_NOT_RUNNING, WAS_NOT_RUNNING)
        _about_threads(session, threads)

    return Deed(run)


def _reset(session: SqlSession, name: str, *, everything: bool) -> Deed:
    async def run() -> None:
        await session.server.relay.reset(name, everything=everything)

    return Deed(run)


def _start_all(session: SqlSession) -> Deed:
    async def run() -> None:
        for name in await session.server.relay.start_all(_warn_in(session)):
            _note(session, ER_SLAVE_STARTED, f"SLAVE '{name}' started")

    return Deed(run)


def _stop_all(session: SqlSession) -> Deed:
    async def run() -> None:
        for name in await session.server.relay.stop_all(_warn_in(session)):
            _note(session, ER_SLAVE_STOPPED, f"SLAVE '{name}' stopped")

    return Deed(run)
