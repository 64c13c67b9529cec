"""SQL about upstreams: text to values, by the grammar in `replication.lark`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cache
from pathlib import Path
from typing import Any, Final

from binlog_protocol.errors import SqlSyntaxError
from binlog_protocol.errors.replication_errors import WrongArguments
from lark import Lark, Token, Transformer

from binlog_server.sql.tokens import NEAR_CHARS, integer, read, unquote, whole_words

_SLAVES: Final = frozenset(
    {("SLAVE",), ("REPLICA",), ("ALL", "SLAVES"), ("ALL", "REPLICAS")}  # one upstream, or all
)
_BOTH_NAMES: Final = "CONNECTION_NAME AND FOR CHANNEL CAN NOT BE SPECIFIED AT THE SAME TIME)"  # sic


def is_about_replication(words: Sequence[str]) -> bool:
    """Whether a statement is about upstreams, by its first words in upper case."""
    verb, rest = "".join(words[:1]), (tuple(words[1:2]), tuple(words[1:3]))
    if verb in ("START", "STOP"):
        return not _SLAVES.isdisjoint(rest)
    return (verb, *rest[0]) in (("CHANGE", "MASTER"), ("RESET", "SLAVE"), ("RESET", "REPLICA"))


class Until(Enum):
    """UNTIL of START SLAVE."""

    NONE = auto()
    GTID = auto()
    OTHER = auto()  # refused


@dataclass(frozen=True, slots=True)
class ChangeMaster:
    """CHANGE MASTER.

    `options` have the names of CHANGE MASTER in lower case without MASTER_. `name` is the connection's; None is the
    session's default.
    """

    name: str | None
    options: Mapping[str, Any] = field(repr=False)  # one may be a password


@dataclass(frozen=True, slots=True)
class StartSlave:
    """START SLAVE. `threads` are those that the statement names; empty if it names none."""

    name: str | None
    threads: frozenset[str] = frozenset()
    until: Until = Until.NONE
    gtids: str = ""


@dataclass(frozen=True, slots=True)
class StopSlave:
    """STOP SLAVE."""

    name: str | None
    threads: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class StartAllSlaves:
    """START ALL SLAVES."""


@dataclass(frozen=True, slots=True)
class StopAllSlaves:
    """STOP ALL SLAVES."""


@dataclass(frozen=True, slots=True)
class ResetSlave:
    """RESET SLAVE; `everything` is RESET SLAVE ALL."""

    name: str | None
    everything: bool = False


ReplicationStatement = (
    ChangeMaster | StartSlave | StopSlave | StartAllSlaves | StopAllSlaves | ResetSlave
)


def parse_replication_statement(text: str) -> ReplicationStatement:
    """Parse a statement. Raises `SqlSyntaxError` (1064), which quotes no string: one may be a password."""
    statement: ReplicationStatement = read(text, build_grammar, lambda _: _Builder())
    return statement


@cache
def build_grammar() -> Lark:
    """The grammar of these statements, built at the first call and kept."""
    grammar = Path(__file__).with_name("replication.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", maybe_placeholders=True, edit_terminals=whole_words)


def _name(name: Token | None, channel: str | None) -> str | None:
    """The connection's name from either of its two places. Raises `WrongArguments` (1210) if both are given."""
    if name is not None and channel is not None:
        raise WrongArguments(_BOTH_NAMES)
    return channel if name is None else unquote(name)


def _option(token: Token) -> str:
    return token.lower().removeprefix("master_")


class _Builder(Transformer[Token, Any]):
    """A method per rule or alias of the grammar."""

    def start(self, children: list[Any]) -> ReplicationStatement:
        statement: ReplicationStatement = children[0]
        return statement

    # Statements

    def change_master(self, children: list[Any]) -> ChangeMaster:
        name, *options, channel = children
        return ChangeMaster(_name(name, channel), dict(options))

    def start_slave(self, children: list[Any]) -> StartSlave:
        name, threads, until, channel = children
        kind, gtids = until or (Until.NONE, "")
        return StartSlave(_name(name, channel), threads or frozenset(), kind, gtids)

    def stop_slave(self, children: list[Any]) -> StopSlave:
        name, threads, channel = children
        return StopSlave(_name(name, channel), threads or frozenset())

    def start_all(self, _: list[Any]) -> StartAllSlaves:
        return StartAllSlaves()

    def stop_all(self, _: list[Any]) -> StopAllSlaves:
        return StopAllSlaves()

    def reset_slave(self, children: list[Any]) -> ResetSlave:
        name, everything, channel = children
        return ResetSlave(_name(name, channel), everything)

    def reset_all(self, children: list[Token]) -> bool:
        return bool(children)

    # Parts

    def channel(self, children: list[Token]) -> str:
        return unquote(children[0])

    def threads(self, children: list[Token]) -> frozenset[str]:
        return frozenset(thread.upper() for thread in children)

    def until_gtid(self, children: list[Token]) -> tuple[Until, str]:
        return Until.GTID, unquote(children[0])

    def until_other(self, _: list[Token]) -> tuple[Until, str]:
        return Until.OTHER, ""

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
