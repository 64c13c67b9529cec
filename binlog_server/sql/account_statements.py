"""SQL about accounts: text to values, by the grammar in `accounts.lark`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

from binlog_protocol.errors import SqlSyntaxError
from binlog_protocol.errors.sql_errors import WrongUsage
from lark import Token, Transformer

from binlog_server.accounts.account import ANY_HOST, Require
from binlog_server.accounts.privileges import CREATE_USER, RELOAD
from binlog_server.sql.grammars import Grammar
from binlog_server.sql.statement import Family, Statement
from binlog_server.sql.tokens import unquote
from binlog_server.sql.view import ResultSet, Work

if TYPE_CHECKING:
    from binlog_server.sql.sql_session import SqlSession

MAX_USER_CONNECTIONS_MAX = 2**31 - 1
_MAX_USER_CONNECTIONS, _GRANT_OPTION = "max_user_connections", "grant_option"


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
class AccountStatement(Statement):
    """One statement about accounts.

    `identified` and `to` (the new names of RENAME) belong to the accounts in `who` one by one. A field that is None
    changes nothing. `operation` is the name in errors of a statement that changes accounts.
    """

    operation: ClassVar[str] = ""

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

    def answer(self, session: SqlSession) -> ResultSet | Work | None:
        assert session.accounts is not None
        return session.accounts.run(self, session.diagnostics)


@dataclass(frozen=True, slots=True)
class CreateUser(AccountStatement):
    """CREATE USER."""

    syntax = '"CREATE"i or_replace "USER"i if_not_exists specs options'
    needs = (CREATE_USER,)
    commits = True
    operation = "CREATE USER"

    @classmethod
    def built(cls, children: list[Any]) -> CreateUser:
        or_replace, tolerant, (who, identified), options = children
        if or_replace and tolerant:
            raise WrongUsage("OR REPLACE", "IF NOT EXISTS")
        return cls(who, identified=identified, or_replace=or_replace, tolerant=tolerant, **options)


@dataclass(frozen=True, slots=True)
class AlterUser(AccountStatement):
    """ALTER USER."""

    syntax = '"ALTER"i "USER"i if_exists specs options'
    needs = (CREATE_USER,)
    commits = True
    operation = "ALTER USER"

    @classmethod
    def built(cls, children: list[Any]) -> AlterUser:
        tolerant, (who, identified), options = children
        return cls(who, identified=identified, tolerant=tolerant, **options)


@dataclass(frozen=True, slots=True)
class DropUser(AccountStatement):
    """DROP USER."""

    syntax = '"DROP"i "USER"i if_exists accounts'
    needs = (CREATE_USER,)
    commits = True
    operation = "DROP USER"

    @classmethod
    def built(cls, children: list[Any]) -> DropUser:
        tolerant, who = children
        return cls(who, tolerant=tolerant)


@dataclass(frozen=True, slots=True)
class RenameUser(AccountStatement):
    """RENAME USER."""

    syntax = '"RENAME"i "USER"i renamed ("," renamed)*'
    needs = (CREATE_USER,)
    commits = True
    operation = "RENAME USER"

    @classmethod
    def built(cls, children: list[Any]) -> RenameUser:
        old, new = zip(*children, strict=True)
        return cls(old, new)


@dataclass(frozen=True, slots=True)
class SetPassword(AccountStatement):
    """SET PASSWORD."""

    syntax = '"SET"i "PASSWORD"i ["FOR"i account] "=" password'
    needs = (CREATE_USER,)
    commits = True
    is_free_for_ones_own = True
    operation = "SET PASSWORD"

    @classmethod
    def built(cls, children: list[Any]) -> SetPassword:
        who, identified = children
        return cls((who or ME,), identified=(identified,))


@dataclass(frozen=True, slots=True)
class Grant(AccountStatement):
    """GRANT."""

    syntax = '"GRANT"i privileges _ON_ALL "TO"i specs options'
    needs = (CREATE_USER,)
    commits = True
    operation = "GRANT"

    @classmethod
    def built(cls, children: list[Any]) -> Grant:
        privileges, (who, identified), options = children
        return cls(who, identified=identified, privileges=privileges, **options)


@dataclass(frozen=True, slots=True)
class Revoke(AccountStatement):
    """REVOKE of privileges."""

    syntax = '"REVOKE"i privileges _ON_ALL "FROM"i accounts'
    needs = (CREATE_USER,)
    commits = True
    operation = "REVOKE"

    @classmethod
    def built(cls, children: list[Any]) -> Revoke:
        privileges, who = children
        return cls(who, privileges=privileges)


@dataclass(frozen=True, slots=True)
class RevokeAll(AccountStatement):
    """REVOKE ALL PRIVILEGES, GRANT OPTION."""

    syntax = '"REVOKE"i _ALL_AND_GRANT "FROM"i accounts'
    needs = (CREATE_USER,)
    commits = True
    operation = "REVOKE"


@dataclass(frozen=True, slots=True)
class ShowGrants(AccountStatement):
    """SHOW GRANTS."""

    syntax = '"SHOW"i "GRANTS"i ["FOR"i account]'
    needs = (CREATE_USER,)
    is_free_for_ones_own = True

    @classmethod
    def built(cls, children: list[Any]) -> ShowGrants:
        return cls((children[0] or ME,))


@dataclass(frozen=True, slots=True)
class ShowCreateUser(AccountStatement):
    """SHOW CREATE USER."""

    syntax = '"SHOW"i "CREATE"i "USER"i [account]'
    needs = (CREATE_USER,)
    is_free_for_ones_own = True

    @classmethod
    def built(cls, children: list[Any]) -> ShowCreateUser:
        return cls((children[0] or ME,))


@dataclass(frozen=True, slots=True)
class FlushHosts(AccountStatement):
    """FLUSH HOSTS, FLUSH PRIVILEGES."""

    syntax = '"FLUSH"i _not_logged? ("HOSTS"i | "PRIVILEGES"i)'
    needs = (RELOAD,)
    commits = True


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

    def renamed(self, children: list[Who]) -> tuple[Who, Who]:
        old, new = children
        return old, new


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
_FAMILY: Final = Family(
    (
        CreateUser,
        AlterUser,
        DropUser,
        RenameUser,
        SetPassword,
        Grant,
        Revoke,
        RevokeAll,
        ShowGrants,
        ShowCreateUser,
        FlushHosts,
    ),
    builder=_Builder,
    beginnings=_BEGINNINGS,
)
# A syntax error quotes no string: one may be a password.
ACCOUNTS: Final = Grammar("accounts.lark", [_FAMILY], quotes_strings=False)
