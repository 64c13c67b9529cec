"""Statements about upstreams (CHANGE MASTER, START SLAVE ...). docs/relay.md describes each of them.

Their work is a `Deed`, to be run on the loop. `answer` raises at once what needs no work to be found; the `Deed` raises
the other errors. `name` is the connection's; None is the session's default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import (
    BadSlaveUntil,
    MasterInfoRefused,
    NotSupportedYet,
    OptionIgnored,
    SlaveStarted,
    SlaveStopped,
    SlaveWasNotRunning,
    SlaveWasRunning,
    SqlSyntaxError,
    WrongArguments,
)
from binlog_protocol.gtid import SlavePosition

from binlog_server.accounts.privileges import RELOAD
from binlog_server.sql.grammars import Grammar
from binlog_server.sql.statement import Family, Rules, Statement
from binlog_server.sql.tokens import NEAR_CHARS, integer, unquote
from binlog_server.sql.view import Deed

if TYPE_CHECKING:
    from lark import Token

    from binlog_server.sql.sql_session import SqlSession

_FOLLOW: Final = ("SUPER", "REPLICATION SLAVE ADMIN")
_ONE_TASK: Final = NotSupportedYet(
    "IO_THREAD and SQL_THREAD by themselves: a relay has one task for both, and that is meant"
)
_POSITIONS: Final = ("log_file", "log_pos", "relay_log_file", "relay_log_pos")
_WHOLE_PLACES: Final = (["master_log_file", "master_log_pos"], ["relay_log_file", "relay_log_pos"])
_FLAGS: Final = ("ssl", "ssl_verify_server_cert", "check_last_group")
_BOTH_NAMES: Final = "CONNECTION_NAME AND FOR CHANNEL CAN NOT BE SPECIFIED AT THE SAME TIME)"  # sic


class Until(Enum):
    """UNTIL of START SLAVE."""

    NONE = auto()
    GTID = auto()
    OTHER = auto()  # refused
    HALF = auto()  # a file without a position, or the like: wrong in MariaDB, too


@dataclass(frozen=True, slots=True)
class ChangeMaster(Statement):
    """CHANGE MASTER. `options` have its names in lower case without MASTER_."""

    syntax = '"CHANGE"i "MASTER"i [STRING] "TO"i option ("," option)* [channel]'
    needs = _FOLLOW
    changes_store = True
    com = "change_master"

    name: str | None
    options: Mapping[str, Any] = field(repr=False)  # one may be a password

    @classmethod
    def built(cls, children: list[Any]) -> ChangeMaster:
        name, *options, channel = children
        return cls(_name(name, channel), dict(options))

    def answer(self, session: SqlSession) -> Deed:
        name, wanted = _connection(session, self.name), dict(self.options)
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
            await session.server.relay.change(name, wanted, session.warn)

        return Deed(run)


@dataclass(frozen=True, slots=True)
class StartSlave(Statement):
    """START SLAVE. `threads` are those that the statement names; empty if it names none."""

    syntax = '"START"i _SLAVE [STRING] [threads] [until] [channel]'
    needs = _FOLLOW
    changes_store = True
    com = "start_slave"

    name: str | None
    threads: frozenset[str] = frozenset()
    until: Until = Until.NONE
    gtids: str = ""

    @classmethod
    def built(cls, children: list[Any]) -> StartSlave:
        name, threads, until, channel = children
        kind, gtids = until or (Until.NONE, "")
        return cls(_name(name, channel), threads or frozenset(), kind, gtids)

    def answer(self, session: SqlSession) -> Deed:
        name = _connection(session, self.name)
        until = None
        if self.until is Until.HALF:
            raise BadSlaveUntil()
        if self.until is Until.OTHER:
            raise NotSupportedYet(
                "UNTIL with files, or before a GTID: UNTIL MASTER_GTID_POS = '...' names the last groups that are "
                "wanted"
            )
        if self.until is Until.GTID:
            if len(self.threads) == 1:
                raise BadSlaveUntil()
            until = SlavePosition.from_peer(self.gtids)

        async def run() -> None:
            if not await session.server.relay.start(name, until, session.warn):
                session.diagnostics.note(SlaveWasRunning())
            _about_threads(session, self.threads)

        return Deed(run)


@dataclass(frozen=True, slots=True)
class StopSlave(Statement):
    """STOP SLAVE."""

    syntax = '"STOP"i _SLAVE [STRING] [threads] [channel]'
    needs = _FOLLOW
    com = "stop_slave"

    name: str | None
    threads: frozenset[str] = frozenset()

    @classmethod
    def built(cls, children: list[Any]) -> StopSlave:
        name, threads, channel = children
        return cls(_name(name, channel), threads or frozenset())

    def answer(self, session: SqlSession) -> Deed:
        session.require_no_transaction()
        name = _connection(session, self.name)

        async def run() -> None:
            if not await session.server.relay.stop(name, session.warn):
                session.diagnostics.note(SlaveWasNotRunning())
            _about_threads(session, self.threads)

        return Deed(run)


@dataclass(frozen=True, slots=True)
class StartAllSlaves(Statement):
    """START ALL SLAVES."""

    syntax = '"START"i "ALL"i _SLAVES [threads]'
    needs = _FOLLOW
    changes_store = True
    com = "start_all_slaves"

    @classmethod
    def built(cls, _: list[Any]) -> StartAllSlaves:
        return cls()

    def answer(self, session: SqlSession) -> Deed:
        async def run() -> None:
            for name in await session.server.relay.start_all(session.warn):
                session.diagnostics.note(SlaveStarted(name))

        return Deed(run)


@dataclass(frozen=True, slots=True)
class StopAllSlaves(Statement):
    """STOP ALL SLAVES."""

    syntax = '"STOP"i "ALL"i _SLAVES [threads]'
    needs = _FOLLOW
    com = "stop_all_slaves"

    @classmethod
    def built(cls, _: list[Any]) -> StopAllSlaves:
        return cls()

    def answer(self, session: SqlSession) -> Deed:
        session.require_no_transaction()

        async def run() -> None:
            for name in await session.server.relay.stop_all(session.warn):
                session.diagnostics.note(SlaveStopped(name))

        return Deed(run)


@dataclass(frozen=True, slots=True)
class ResetSlave(Statement):
    """RESET SLAVE; `everything` is RESET SLAVE ALL."""

    syntax = '"RESET"i _SLAVE [STRING] reset_all [channel]'
    needs = (RELOAD,)
    changes_store = True
    com = "reset"
    commits = True

    name: str | None
    everything: bool = False

    @classmethod
    def built(cls, children: list[Any]) -> ResetSlave:
        name, everything, channel = children
        return cls(_name(name, channel), everything)

    def answer(self, session: SqlSession) -> Deed:
        name = _connection(session, self.name)

        async def run() -> None:
            await session.server.relay.reset(name, everything=self.everything)

        return Deed(run)


def _name(name: Token | None, channel: str | None) -> str | None:
    """The connection's name from either of its two places. Raises `WrongArguments` (1210) if both are given."""
    if name is not None and channel is not None:
        raise WrongArguments(_BOTH_NAMES)
    return channel if name is None else unquote(name)


def _option(token: Token) -> str:
    return token.lower().removeprefix("master_")


def _connection(session: SqlSession, name: str | None) -> str:
    return session.master_connection if name is None else name


def _about_threads(session: SqlSession, threads: frozenset[str]) -> None:
    if len(threads) == 1:
        session.diagnostics.note(_ONE_TASK)


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
        session.diagnostics.note(OptionIgnored(shown.upper()))
        del options[option]


class _Builder(Rules):
    def reset_all(self, children: list[Token]) -> bool:
        return bool(children)

    def channel(self, children: list[Token]) -> str:
        return unquote(children[0])

    def threads(self, children: list[Token]) -> frozenset[str]:
        return frozenset(thread.upper() for thread in children)

    def until_gtid(self, children: list[Token]) -> tuple[Until, str]:
        return Until.GTID, unquote(children[0])

    def until_other(self, _: list[Token]) -> tuple[Until, str]:
        return Until.OTHER, ""

    def until_place(self, children: list[Token]) -> str:
        return children[0].lower()

    def until_places(self, children: list[str]) -> tuple[Until, str]:
        is_whole = sorted(children) in _WHOLE_PLACES
        return Until.OTHER if is_whole else Until.HALF, ""

    # Options

    def text_option(self, children: list[Token]) -> tuple[str, str]:
        return _option(children[0]), unquote(children[1])

    def number_option(self, children: list[Token]) -> tuple[str, int]:
        return _option(children[0]), integer(children[1])

    def heartbeat(self, children: list[Token]) -> tuple[str, float]:
        if len(children[0]) > NEAR_CHARS:
            raise SqlSyntaxError(children[0][:NEAR_CHARS])
        return "heartbeat_period", float(children[0])

    def list_option(self, children: list[Token | None]) -> tuple[str, tuple[int, ...]]:
        option, *numbers = children
        assert option is not None
        return option.lower(), tuple(integer(number) for number in numbers if number is not None)

    def use_gtid(self, children: list[Token]) -> tuple[str, str]:
        return "use_gtid", children[0].lower().replace("replica", "slave")


REPLICATION: Final = Grammar(
    "replication.lark",
    [
        Family(
            (ChangeMaster, StartSlave, StopSlave, StartAllSlaves, StopAllSlaves, ResetSlave),
            builder=_Builder,
            beginnings=(
                ("CHANGE", "MASTER"),
                *(("RESET", slave) for slave in ("SLAVE", "REPLICA")),
                *((verb, slave) for verb in ("START", "STOP") for slave in ("SLAVE", "REPLICA")),
                *(
                    (verb, "ALL", slaves)
                    for verb in ("START", "STOP")
                    for slaves in ("SLAVES", "REPLICAS")
                ),
            ),
        )
    ],
    quotes_strings=False,  # one may be a password
)
