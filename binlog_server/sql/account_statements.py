"""SQL about accounts: text to values, by the grammar in `accounts.lark`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final

from binlog_protocol.errors import SqlSyntaxError
from binlog_protocol.errors.sql_errors import WrongUsage
from lark import Token, Transformer

from binlog_server.accounts.account import ANY_HOST, Require
from binlog_server.accounts.privileges import CREATE_USER, RELOAD
from binlog_server.sql.grammars import Grammar
from binlog_server.sql.statement import Family
from binlog_server.sql.tokens import unquote

MAX_USER_CONNECTIONS_MAX = 2**31 - 1
_MAX_USER_CONNECTIONS, _GRANT_OPTION = "max_user_connections", "grant_option"


class Kind(Enum):
    """The statements about accounts."""

    CREATE = auto()
    ALTER = auto()
    DROP = auto()
    RENAME = auto()
    SET_PASSWORD = auto()
    GRANT = auto()
    REVOKE = auto()
    REVOKE_ALL = auto()
    SHOW_GRANTS = auto()
    SHOW_CREATE = auto()
    FLUSH = auto()

    @property
    def needs(self) -> tuple[str, ...]:
        """The privileges of which any one will do."""
        return (RELOAD,) if self is Kind.FLUSH else (CREATE_USER,)

    @property
    def is_free_for_ones_own(self) -> bool:
        """Whether it needs none for one's own account."""
        return self in (Kind.SET_PASSWORD, Kind.SHOW_GRANTS, Kind.SHOW_CREATE)


@dataclass(frozen=True, slots=True)
class Who:
    """An account by name."""

    user: str
    host: str = ANY_HOST

    @property
    def name(self) -> str:
        """user@host."""
        return f"{self.user}@{self.host}"


@dataclass(frozen=True, slots=True)
class Oneself(Who):
    """CURRENT_USER. A type of its own, so that no written name equals it, not even the empty one."""

    user: str = ""


ME = Oneself()


@dataclass(frozen=True, slots=True)
class Identified:
    """How an account proves itself: by a password, or by a stored hash; neither means an empty password."""

    plugin: str | None = None
    password: str | None = None
    stored: str | None = None

    def __repr__(self) -> str:
        return f"Identified({self.plugin!r})"


@dataclass(frozen=True, slots=True)
class AccountStatement:
    """One statement about accounts.

    `identified` and `to` (the new names of RENAME) belong to the accounts in `who` one by one. A field that is None
    changes nothing.
    """

    kind: Kind
    who: tuple[Who, ...] = ()
    to: tuple[Who, ...] = ()
    identified: tuple[Identified | None, ...] = ()
    privileges: tuple[str, ...] = ()
    require: Require | None = None
    max_user_connections: int | None = None
    replica: Mapping[str, str | int] = field(default_factory=dict)  # see `ReplicaPolicy.changed`
    grant_option: bool = False
    or_replace: bool = False
    tolerant: bool = False  # IF EXISTS, IF NOT EXISTS


def _text(token: Token) -> str:
    return unquote(token) if token.type in ("STRING", "QUOTED_NAME") else str(token)


class _Builder(Transformer[Token, Any]):
    """A method per rule or alias of the grammar."""

    def name(self, children: list[Token]) -> Token:
        return children[0]

    def account(self, children: list[Token | None]) -> Who:
        user, host = children
        assert user is not None
        return Who(_text(user), ANY_HOST if host is None else _text(host).lower())

    def current_user(self, _: list[Any]) -> Who:
        return ME

    def accounts(self, children: list[Who]) -> tuple[Who, ...]:
        return tuple(children)

    def spec(self, children: list[Any]) -> tuple[Who, Identified | None]:
        who, identified = children
        return who, identified

    def specs(self, children: list[tuple[Who, Identified | None]]) -> Any:
        return tuple(who for who, _ in children), tuple(identified for _, identified in children)

    def by_password(self, children: list[Token]) -> Identified:
        return Identified(password=unquote(children[0]))

    def by_hash(self, children: list[Token]) -> Identified:
        return Identified(stored=unquote(children[0]))

    def via(self, children: list[Token]) -> Identified:
        return Identified(children[0].lower(), stored="")

    def via_hash(self, children: list[Token]) -> Identified:
        return Identified(children[0].lower(), stored=unquote(children[1]))

    def via_password(self, children: list[Token]) -> Identified:
        return Identified(children[0].lower(), password=unquote(children[1]))

    def require(self, children: list[Token]) -> Require:
        word = children[1].upper()
        return Require.NONE if word == "NONE" else Require(word)

    def max_user_connections(self, children: list[Token]) -> tuple[str, int]:
        count = int(children[0])
        if count > MAX_USER_CONNECTIONS_MAX:
            raise SqlSyntaxError(str(children[0]))
        return _MAX_USER_CONNECTIONS, count

    def grant_option(self, _: list[Any]) -> tuple[str, bool]:
        return _GRANT_OPTION, True

    def stream_style(self, children: list[Token]) -> tuple[str, str]:
        return "stream_style", str(children[0])

    def replica_limit(self, children: list[Token]) -> tuple[str, int]:
        name, value = children
        return name.lower(), int(value)

    def options(self, children: list[Any]) -> dict[str, Any]:
        require, *limits = children
        given: dict[str, Any] = dict(limits)  # an option given twice: the last holds, as in MariaDB
        return {
            "require": require,
            "max_user_connections": given.pop(_MAX_USER_CONNECTIONS, None),
            "grant_option": given.pop(_GRANT_OPTION, False),
            "replica": given,
        }

    def privilege(self, children: list[Token]) -> str:
        return " ".join(children)

    def privileges(self, children: list[str]) -> tuple[str, ...]:
        return tuple(children)

    def or_replace(self, children: list[Token]) -> bool:
        return bool(children)

    def if_not_exists(self, children: list[Token]) -> bool:
        return bool(children)

    def if_exists(self, children: list[Token]) -> bool:
        return bool(children)

    def create_user(self, children: list[Any]) -> AccountStatement:
        or_replace, tolerant, (who, identified), options = children
        if or_replace and tolerant:
            raise WrongUsage("OR REPLACE", "IF NOT EXISTS")
        return AccountStatement(
            Kind.CREATE,
            who,
            identified=identified,
            or_replace=or_replace,
            tolerant=tolerant,
            **options,
        )

    def alter_user(self, children: list[Any]) -> AccountStatement:
        tolerant, (who, identified), options = children
        return AccountStatement(
            Kind.ALTER, who, identified=identified, tolerant=tolerant, **options
        )

    def drop_user(self, children: list[Any]) -> AccountStatement:
        tolerant, who = children
        return AccountStatement(Kind.DROP, who, tolerant=tolerant)

    def renamed(self, children: list[Who]) -> tuple[Who, Who]:
        old, new = children
        return old, new

    def rename_user(self, children: list[tuple[Who, Who]]) -> AccountStatement:
        old, new = zip(*children, strict=True)
        return AccountStatement(Kind.RENAME, who=old, to=new)

    def set_password(self, children: list[Any]) -> AccountStatement:
        who, identified = children
        return AccountStatement(Kind.SET_PASSWORD, (who or ME,), identified=(identified,))

    def grant(self, children: list[Any]) -> AccountStatement:
        privileges, (who, identified), options = children
        return AccountStatement(
            Kind.GRANT, who, identified=identified, privileges=privileges, **options
        )

    def revoke(self, children: list[Any]) -> AccountStatement:
        privileges, who = children
        return AccountStatement(Kind.REVOKE, who, privileges=privileges)

    def revoke_all(self, children: list[tuple[Who, ...]]) -> AccountStatement:
        return AccountStatement(Kind.REVOKE_ALL, who=children[0])

    def show_grants(self, children: list[Any]) -> AccountStatement:
        return AccountStatement(Kind.SHOW_GRANTS, (children[0] or ME,))

    def show_create_user(self, children: list[Any]) -> AccountStatement:
        return AccountStatement(Kind.SHOW_CREATE, (children[0] or ME,))

    def flush(self, _: list[Any]) -> AccountStatement:
        return AccountStatement(Kind.FLUSH)


_BEGINNINGS: Final = (
    *((verb, "USER") for verb in ("CREATE", "ALTER", "DROP", "RENAME")),
    ("CREATE", "OR", "REPLACE", "USER"),
    ("SHOW", "CREATE", "USER"),
    ("SHOW", "GRANTS"),
    ("SET", "PASSWORD"),
    ("GRANT",),
    ("REVOKE",),
    *(
        ("FLUSH", *not_logged, what)
        for not_logged in ((), ("LOCAL",), ("NO_WRITE_TO_BINLOG",))
        for what in ("HOSTS", "PRIVILEGES")
    ),
)
ACCOUNTS: Final = Grammar(
    "accounts.lark",
    [Family((), builder=_Builder, beginnings=_BEGINNINGS)],
    quotes_strings=False,  # one may be a password
)


def parse_account_statement(text: str) -> AccountStatement:
    """Parse a statement. Raises `SqlSyntaxError` (1064), which quotes no string: one may be a password."""
    statement: AccountStatement = ACCOUNTS.parse(text)
    return statement
