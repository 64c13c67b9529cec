"""Faults of a master, as a test orders them: what happens, at which place of a conversation or a stream, and to whom.

    [[fault]]               TOML; a call has the same as arguments, and CREATE BINLOG FAULT as options
    name = "torn"           to find it again; without one it gets a number
    do = "cut"              what: see `KINDS`, which also says what else is to be given
    gtid = "0-1-5"          where: one of
    event = 3                 gtid (with event: the n-th of that group; the first is its GTID event), event (of the
                              stream), byte (of the stream), after_seconds (of the stream),
    on = "login"              on: a step of the conversation, see `STEPS`,
    statement = "SET @"       statement: one that begins so, in any case
    command = "COM_PING"      command: the answer to one of this kind, see `COMMANDS`
    account = "repl"        to whom: the user's name, the server_id of the replica; both, or all
    server_id = 100
    connection = 7          or one client that is connected, by its number in SHOW PROCESSLIST
    times = 1               how often, over all clients; 0 is always

This module is the schema, and who has ordered what. `dumps.fault_run` and `sessions.faulty_session` do it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from itertools import count
from typing import Any, Final, NamedTuple, Protocol

from binlog_protocol.connection.commands import CommandCode
from binlog_protocol.connection.handshake import Capability
from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import ErrorKind, ServerError
from binlog_protocol.events.format_description import SERVER_VERSION_SIZE
from binlog_protocol.gtid import U32_MAX, Gtid
from binlog_storage.console.arguments import did_you_mean

STEPS: Final = {
    "connect": "in the place of the greeting",
    "tls": "when the client asks for TLS, in the place of the server's part of the handshake",
    "login": "in the place of the answer to the login",
    "register": "in the place of the answer to COM_REGISTER_SLAVE",
    "dump": "in the place of the first event",
    "out_of_band": "in the place of the answer to a statement whose transaction has begun to write out of band",
}
"""Steps of a conversation."""
_FORMAT: Final = "format"  # each format description of a stream
COMMANDS: Final = {
    f"COM_{code.name}": code
    for code in CommandCode
    if code
    not in (
        # They have no answer.
        CommandCode.QUIT,
        CommandCode.STMT_CLOSE,
        CommandCode.STMT_SEND_LONG_DATA,
        # They have steps of their own.
        CommandCode.CHANGE_USER,
        CommandCode.REGISTER_SLAVE,
        CommandCode.BINLOG_DUMP,
        CommandCode.BINLOG_DUMP_GTID,
    )
}
"""Commands whose answers may suffer."""
_EVENT, _GROUP, _BYTE, _TIME, _STATEMENT, _COMMAND = (
    "an event",
    "a gtid alone",
    "a byte",
    "a time",
    "a statement",
    "a command",
)
_ALONG: Final = (_EVENT, _GROUP, _TIME)
_TALK: Final = (*STEPS, _STATEMENT, _COMMAND)


class Misbehaviour(NamedTuple):
    """What may be done: where (classes of places, and steps), what has to be given for it, what else may be."""

    places: tuple[str, ...]
    needs: tuple[str, ...] = ()
    may: tuple[str, ...] = ()


KINDS: Final[Mapping[str, Misbehaviour]] = {
    # Nothing is sent for so long; with `heartbeats` these are.
    "delay": Misbehaviour((*_ALONG, *_TALK), ("seconds",), ("heartbeats",)),
    "throttle": Misbehaviour(_ALONG, ("bytes_per_second",)),  # from there on
    "cut": Misbehaviour((*_ALONG, _BYTE, *_TALK), (), ("inside",)),  # the connection ends
    # The last byte of the event (of its CRC-32, if it has one), or that byte of the stream, is wrong.
    "garble": Misbehaviour((_EVENT, _GROUP, _BYTE)),
    "leave_out": Misbehaviour((_GROUP,)),  # the group is not sent
    "repeat": Misbehaviour((_GROUP,)),  # the group is sent twice
    "reorder": Misbehaviour((_GROUP,)),  # the group is sent behind the next one
    "hole": Misbehaviour((_EVENT, _GROUP)),  # the numbers of packets leave one out
    "heartbeat": Misbehaviour(_ALONG, (), ("log_pos", "file")),  # one that nobody has asked for
    # An event of a type that only another version has, in front of the event.
    "foreign_event": Misbehaviour((_EVENT, _GROUP), ("event_type",), ("ignorable",)),
    # An ERR packet, with `message`. A stream, and a conversation before the login, end by it.
    "error": Misbehaviour(
        (*_ALONG, *(step for step in _TALK if step != "tls")), ("errno",), ("message",)
    ),
    # The replica hears that another one with its server_id has come, and the connection ends.
    "duplicate_server_id": Misbehaviour(_ALONG),
    "lose_ack": Misbehaviour(
        (_GROUP,)
    ),  # the acknowledgement of semi-sync for that group is not heard
    "delay_ack": Misbehaviour((_GROUP,), ("seconds",)),  # it, and all behind it, are heard later
    # The process ends as by kill -9, once all that it has logged is on the disk: the open transaction, too.
    "die": Misbehaviour(tuple(step for step in _TALK if step != "tls")),
    # The server begins anew with the store as it was at the order: all that was logged since is lost. Behind
    # `another_history` these GTIDs are there again, of groups that say nothing.
    "lose_tail": Misbehaviour((*_ALONG, *(step for step in _TALK if step != "tls"))),
    "another_history": Misbehaviour((*_ALONG, *(step for step in _TALK if step != "tls"))),
    "break_tls": Misbehaviour((*_ALONG, "tls")),  # bytes that are no TLS, then the end
    # The greeting names another version, or lacks capabilities; the format description names another version.
    "claim": Misbehaviour(("connect", _FORMAT), (), ("version", "without")),
}
"""By name. `message` is there for `error` alone, and so on: what a kind neither needs nor may have is refused."""

_WHERE: Final = ("gtid", "event", "byte", "after_seconds", "on", "statement", "command")
GOES_BACK: Final = ("lose_tail", "another_history")
_COMMON: Final = frozenset({"name", "do", *_WHERE, "account", "server_id", "connection", "times"})
_ERRNO_MAX: Final = 65_535
_PROGRESS: Final = 65_535
"""In an ERR packet no error: MariaDB's clients read a progress report behind it, and go on."""
_EVENT_TYPE_MAX: Final = 255
_NAME_CHARS_MAX: Final = 64
_TEXT_CHARS_MAX: Final = 4096  # eight times the longest message of a MariaDB
_SECONDS_MAX: Final = 366 * 86_400
_WORDS: Final[Mapping[type, str]] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
}
_SERVER_KNOWN: Final = ("register", "dump")
_ORDERED_MAX: Final = 1000
"""Orders of one server: more than any test needs, and each packet of a stream is held against all of its own."""


_MARKS_MAX: Final = 16
"""Copies of the store."""


class BadFault(ValueError):
    """A fault that says too little, too much, or what does not go together."""


@dataclass(frozen=True, slots=True)
class FaultOrder:
    """See above. Times in seconds."""

    do: str
    name: str = ""
    gtid: str = ""
    event: int = 0
    byte: int = 0
    after_seconds: float = 0
    on: str = ""
    statement: str = ""
    command: str = ""
    account: str = ""
    server_id: int = 0
    connection: int = 0
    times: int = 1
    inside: bool = False
    heartbeats: bool = False
    seconds: float = 0
    bytes_per_second: int = 0
    errno: int = 0
    message: str = "A fault that was ordered"
    log_pos: int = 0
    file: str = ""
    version: str = ""
    without: str = ""
    event_type: int = 0
    ignorable: bool = False

    def __post_init__(self) -> None:
        """Raises `BadFault`."""
        if self.do not in KINDS:
            raise BadFault(f"do: {self.do!r} is none of {', '.join(KINDS)}")
        self._check_numbers()
        self._check_texts()
        place = self._check_place()
        kind = KINDS[self.do]
        for name in kind.needs:
            if not getattr(self, name):
                raise BadFault(f"{self.do}: {name} is missing")
        for name in self._said() - _COMMON - {*kind.needs, *kind.may}:
            raise BadFault(f"{self.do}: {name} is for others: {_who_takes(name)}")
        if self.inside and place != _EVENT and not self.gtid:
            raise BadFault("inside: it is for a cut at an event")
        if self.heartbeats and place in _TALK:
            raise BadFault("heartbeats: they are for a delay in a stream")
        if self.do in ("heartbeat", "foreign_event") and self.event == 1 and not self.gtid:
            raise BadFault(f"{self.do}: a stream begins with a ROTATE: from event 2 on")
        if self.do == "claim":
            self._check_claim(place)

    def _said(self) -> set[str]:
        return {one.name for one in fields(self) if getattr(self, one.name) != one.default}

    def _check_numbers(self) -> None:
        for name in ("after_seconds", "seconds"):
            self._require_within(name, 0, _SECONDS_MAX)
        for name in ("event", "byte", "times", "bytes_per_second", "connection"):
            self._require_within(name, 0, 1 << 62)
        self._require_within("errno", 0, _ERRNO_MAX)
        if self.errno == _PROGRESS:
            raise BadFault(f"errno: {_PROGRESS} is no error: clients take it for a progress report")
        self._require_within("event_type", 0, _EVENT_TYPE_MAX)
        for name in ("server_id", "log_pos"):
            self._require_within(name, 0, U32_MAX)

    def _require_within(self, name: str, least: int, most: int) -> None:
        if not least <= getattr(self, name) <= most:
            raise BadFault(f"{name}: {getattr(self, name)} is not between {least} and {most}")

    def _check_texts(self) -> None:
        """They come into the log, and into answers: of one line each, and not of any length."""
        for one in fields(self):
            text = getattr(self, one.name)
            most = _NAME_CHARS_MAX if one.name == "name" else _TEXT_CHARS_MAX
            if isinstance(text, str) and len(text) > most:
                raise BadFault(f"{one.name}: it is longer than {most} characters")
            if isinstance(text, str) and not text.isprintable():
                raise BadFault(f"{one.name}: {text!r} has what cannot be printed")
        if self.statement != self.statement.lstrip():
            raise BadFault("statement: it begins with a blank, and none does behind its own")

    def _check_place(self) -> str:
        """The class of its place."""
        given = [name for name in _WHERE if getattr(self, name)]
        if len(given) != 1 and given != ["gtid", "event"]:
            raise BadFault(
                f"{self.do}: give one place of {', '.join(_WHERE)}, or a gtid and an event; not "
                f"{' and '.join(given) or 'none'}"
            )
        if self.gtid:
            try:
                Gtid.parse(self.gtid)
            except (ServerError, ValueError):
                raise BadFault(f"gtid: {self.gtid!r} is none, such as '0-1-5'") from None
        if self.on not in ("", _FORMAT, *STEPS):
            raise BadFault(f"on: {self.on!r} is none of {', '.join((*STEPS, _FORMAT))}")
        if self.command and self.command not in COMMANDS:
            raise BadFault(f"command: {self.command!r} is none of {', '.join(COMMANDS)}")
        place = (
            self.on
            or {
                "gtid": _EVENT if self.event else _GROUP,
                "event": _EVENT,
                "byte": _BYTE,
                "after_seconds": _TIME,
                "statement": _STATEMENT,
                "command": _COMMAND,
            }[given[0]]
        )
        allowed = KINDS[self.do].places
        if place not in allowed:
            raise BadFault(f"{self.do}: not at {place}; it is for {', '.join(allowed)}")
        if self.account and place in ("connect", "tls"):
            raise BadFault(f"account: it is not known yet at {place}")
        if self.server_id and place in _TALK and place not in _SERVER_KNOWN:
            raise BadFault(f"server_id: it is not known yet at {place}")
        if self.connection and place in ("connect", "tls"):
            raise BadFault(f"connection: a client has its number behind {place}")
        return place

    def _check_claim(self, place: str) -> None:
        if not self.version and not self.without:
            raise BadFault("claim: give version, or without")
        if self.without and place == _FORMAT:
            raise BadFault("without: capabilities are in the greeting: on = 'connect'")
        if len(self.version.encode()) > SERVER_VERSION_SIZE:
            raise BadFault(f"version: {self.version!r} does not fit")
        if unknown := self._lacking() - Capability.__members__.keys():
            names = ", ".join(name or "''" for name in sorted(unknown))
            raise BadFault(f"without: no capability {names}")

    def _lacking(self) -> set[str]:
        return {name.strip().upper() for name in self.without.split(",")} if self.without else set()

    @property
    def capabilities_lacking(self) -> int:
        """The bits that a greeting lacks."""
        return sum(int(Capability[name]) for name in self._lacking())

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> FaultOrder:
        """From a table of TOML. Raises `BadFault`."""
        if not isinstance(table, Mapping):
            raise BadFault(f"{table!r} is no table")
        defaults = {one.name: one.default for one in fields(cls)}
        for name, value in table.items():
            if name not in defaults:
                meant = did_you_mean(name, defaults) or f"; there are {', '.join(defaults)}"
                raise BadFault(f"unknown: {name!r}{meant}")
            wanted = str if name == "do" else type(defaults[name])
            allowed = (int, float) if name in ("seconds", "after_seconds") else wanted
            if isinstance(value, bool) is not (wanted is bool) or not isinstance(value, allowed):
                words = _WORDS[wanted if allowed is wanted else float]
                raise BadFault(f"{name}: {value!r} is not {words}")
        if "do" not in table:
            raise BadFault("do is missing")
        return cls(**table)

    @classmethod
    def several(cls, tables: Sequence[Mapping[str, Any]]) -> list[FaultOrder]:
        """From tables of TOML. Raises `BadFault`, which says of several which one it is."""
        found = []
        for number, table in enumerate(tables, 1):
            try:
                found.append(cls.of(table))
            except BadFault as error:
                if len(tables) == 1:
                    raise
                raise BadFault(f"fault {number} of {len(tables)}: {error}") from None
        return found

    @property
    def is_of_stream(self) -> bool:
        """Whether it happens in a stream, not in the conversation before it."""
        return self.on in ("", _FORMAT) and not self.statement and not self.command

    @property
    def is_of_format(self) -> bool:
        """Whether it happens to format descriptions."""
        return self.on == _FORMAT

    @property
    def error(self) -> ServerError:
        """The error that it gives."""
        return ErrorKind(self.errno, "{message}")(self.message)

    @property
    def text(self) -> str:
        """What CREATE BINLOG FAULT says of it behind its name."""
        said = [one.name for one in fields(self) if one.name in self._said() - {"name", "do"}]
        options = (f" {name.upper()}={_literal(getattr(self, name))}" for name in said)
        return f"DO {self.do}{''.join(options)}"

    def is_for(self, account: str, server_id: int, connection: int) -> bool:
        """Whether that replica suffers it."""
        return (
            self.account in ("", account)
            and self.server_id in (0, server_id)
            and self.connection in (0, connection)
        )


def _who_takes(name: str) -> str:
    takers = [kind for kind, one in KINDS.items() if name in (*one.needs, *one.may)]
    return ", ".join(takers)


def _literal(value: object) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"
    return f"{value:f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


_Who = tuple[str, int, int]
"""Of a stream: the user's name, the server_id of the replica, the number of the connection."""


class KeptStore(Protocol):
    """A store as it was; see `store.marks`."""

    def discard(self) -> None: ...


class OrderedFault:
    """A fault, and how often it was met."""

    def __init__(self, order: FaultOrder, name: str, mark: KeptStore | None = None) -> None:
        """`mark`: the store at the order, for those that go back to it."""
        self.fault: Final = order
        self.mark: Final = mark
        self.name: Final = name
        self.gtid: Final = Gtid.parse(order.gtid) if order.gtid else None
        self.met = 0
        self.is_over = False

    @property
    def is_live(self) -> bool:
        """Whether it is to be met again."""
        return not self.is_over and (not self.fault.times or self.met < self.fault.times)


class Faults:
    """All faults of a server, on its loop. A client has them from their order on, in a stream that runs, too."""

    def __init__(self, is_there: Callable[[int], bool] = lambda connection: False) -> None:
        """`is_there`: whether there is a client of that number."""
        self._is_there = is_there
        self.die: Callable[[], None] | None = None
        """Ends the process of the server; None where it is not the server's own."""
        self.make_mark: Callable[[], KeptStore] | None = None
        """Called in a thread. None where the server cannot go back."""
        self.go_back: Callable[[OrderedFault], None] | None = None
        """Called on the loop: the server is to begin anew with the store of the mark, soon, and with these faults."""
        self._ordered: dict[str, OrderedFault] = {}
        self._numbers = count(1)
        self._talk: list[OrderedFault] = []  # those of conversations
        self._restarting: OrderedFault | None = None
        self._watching: dict[object, tuple[_Who, Callable[[OrderedFault], None]]] = {}
        self._suffering: dict[object, tuple[FaultOrder, Callable[[], None]]] = {}

    def take_over(self, before: Faults) -> None:
        """Those of the server that has been in the place of this one; but none for one client, which is gone."""
        self.die, self.make_mark, self.go_back = before.die, before.make_mark, before.go_back
        self._numbers = before._numbers
        for name, one in before._ordered.items():
            if one.fault.connection:
                one.is_over = True
            else:
                self._ordered[name] = one
        self._talk = [one for one in before._talk if not one.is_over]
        met = before._restarting
        if met is not None and met.mark is not None and not self._has(met.mark):
            met.mark.discard()  # it was dropped meanwhile

    def restart(self, fault: FaultOrder) -> None:
        """One that goes back is met. Nothing if it was dropped meanwhile, or another one was met before."""
        assert self.go_back is not None, "it was refused"
        if self._restarting is not None:
            return
        for one in self._ordered.values():
            if one.fault is fault:
                self._restarting = one
                self.go_back(one)
                break

    def needs_mark(self, tables: Sequence[Mapping[str, Any]]) -> bool:
        """Whether one of them goes back: `add` wants marks then, made in front of it. Raises `BadFault`."""
        if not any(order.do in GOES_BACK for order in FaultOrder.several(tables)):
            return False
        if self.make_mark is None:
            raise BadFault("the server cannot go back: it is part of another program")
        if len({one.mark for one in self._ordered.values()} - {None}) >= _MARKS_MAX:
            raise BadFault(f"more than {_MARKS_MAX} copies of the store: drop faults that go back")
        return True

    def add(
        self,
        tables: Sequence[Mapping[str, Any]],
        *,
        replace: bool = False,
        mark: KeptStore | None = None,
    ) -> None:
        """Order these: all or, if one is wrong, none. Raises `BadFault`.

        replace: one of the same name, which is met no more then.
        mark: the store of now, if `needs_mark`.
        """
        made: dict[str, OrderedFault] = {}
        for order in FaultOrder.several(tables):
            if order.do == "die" and self.die is None:
                raise BadFault("die: the server is a thread of another process: process=True")
            if order.connection and not self._is_there(order.connection):
                raise BadFault(f"connection: there is no {order.connection}")
            name = order.name or self._free_name(made)
            if name in made or (name in self._ordered and not replace):
                raise BadFault(f"name: there is a fault {name!r} already")
            if order.do in GOES_BACK and mark is None:
                raise BadFault(f"{order.do}: there is no mark")
            made[name] = OrderedFault(order, name, mark if order.do in GOES_BACK else None)
        if len(self._ordered) + len(made) > _ORDERED_MAX:
            raise BadFault(f"more than {_ORDERED_MAX} faults")
        for name in made:
            self.drop(name)
        self._ordered |= made
        for one in made.values():
            if not one.fault.is_of_stream:
                self._talk.append(one)
                continue
            for who, ordered in list(self._watching.values()):
                if one.fault.is_for(*who):
                    ordered(one)

    def watch(self, who: _Who, ordered: Callable[[OrderedFault], None]) -> Callable[[], None]:
        """`ordered` is told each order for a stream, from now on. Returns what ends that."""
        key = object()
        self._watching[key] = who, ordered
        return lambda: self._watching.pop(key, None) and None

    def when_dropped(self, fault: FaultOrder, call: Callable[[], None]) -> Callable[[], None]:
        """`call` when that order is dropped, for whom it lasts: nobody waits on behind a delay of a year. Returns what
        ends that."""
        key = object()
        self._suffering[key] = fault, call
        return lambda: self._suffering.pop(key, None) and None

    def _free_name(self, made: Mapping[str, OrderedFault]) -> str:
        return next(
            name
            for name in (f"fault{number}" for number in self._numbers)
            if name not in self._ordered and name not in made
        )

    def drop(self, name: str) -> bool:
        """It is met no more, in no stream, and lasts no longer. False: there is none of that name."""
        one = self._ordered.pop(name, None)
        if one is not None:
            one.is_over = True
            for fault, call in list(self._suffering.values()):
                if fault is one.fault:
                    call()
            if one in self._talk:
                self._talk.remove(one)
            if one.mark is not None and one is not self._restarting and not self._has(one.mark):
                one.mark.discard()
        return one is not None

    def _has(self, mark: KeptStore) -> bool:
        return any(one.mark is mark for one in self._ordered.values())

    def clear(self) -> None:
        """None is met any more, in no stream."""
        for name in list(self._ordered):
            self.drop(name)

    def end(self) -> None:
        """As `clear`, and nobody goes back any more: the mark that this was on the way to goes as well."""
        self.clear()
        if self._restarting is not None and self._restarting.mark is not None:
            self._restarting.mark.discard()

    def ordered(self) -> list[OrderedFault]:
        """In the order in which they were ordered."""
        return list(self._ordered.values())

    def met(self) -> list[tuple[str, int]]:
        """What each does, and how often it was met, in their order."""
        return [(one.fault.do, one.met) for one in self._ordered.values()]

    def of_stream(self, account: str, server_id: int, connection: int) -> list[OrderedFault]:
        """Those that a stream which begins now has to fear."""
        return [
            one
            for one in self._ordered.values()
            if one.is_live
            and one.fault.is_of_stream
            and one.fault.is_for(account, server_id, connection)
        ]

    def of_conversation(self, connection: int = 0) -> Sequence[OrderedFault]:
        """Those that a client has to fear before its stream; without its number those of one that connects now."""
        return [
            one for one in self._talk if one.is_live and one.fault.connection in (0, connection)
        ]
