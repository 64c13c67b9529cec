"""SQL about accounts: text to values, by the grammar in `accounts.lark`, and what that does to the accounts.

A change holds from the next login on, as in MariaDB; a replica's limits change at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, NoReturn

from binlog_protocol.connection.auth import HASH_SIZE, NATIVE_PASSWORD
from binlog_protocol.connection.ed25519 import ED25519
from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import (
    CannotRevokeAll,
    CannotUser,
    InvalidRole,
    NonexistingGrant,
    NoSuchUser,
    NotSupportedYet,
    OptionPreventsBecause,
    PasswordFormat,
    PluginNotLoaded,
    PrivilegeRequired,
    ServerError,
    SqlSyntaxError,
    UnknownServerError,
    UserAbsent,
    UserExists,
    WrongUsage,
    require_chars,
)
from binlog_protocol.wire.results import Column

from binlog_server.accounts.account import (
    ANY_HOST,
    NAME_CHARS_MAX,
    Credential,
    Require,
    UserAccount,
)
from binlog_server.accounts.privileges import (
    ALL_PRIVILEGES,
    BINLOG_REPLAY,
    CREATE_USER,
    GRANT_OPTION,
    OF_TABLES,
    OF_WHAT_IS_NOT_HERE,
    RELOAD,
    SINGLE,
    USAGE,
    as_shown,
    in_one_way,
    privileges,
    suffices,
)
from binlog_server.accounts.replica_policy import ReplicaPolicy
from binlog_server.accounts.users import Users
from binlog_server.sql.assignments import Assignment, SetVariables
from binlog_server.sql.expressions import Literal, Scope, SystemVariable
from binlog_server.sql.grammars import Grammar
from binlog_server.sql.statement import Family, Rules, Statement
from binlog_server.sql.tokens import unquote
from binlog_server.sql.view import Diagnostics, ResultSet, Work

if TYPE_CHECKING:
    from lark import Token

    from binlog_server.sql.sql_session import SqlSession

ACCOUNTS_MAX = 256  # in a statement
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
    changes nothing. `operation` is the name in errors and in the log of a statement that changes accounts.
    """

    operation: ClassVar[str] = ""

    who: tuple[Who, ...] = ()
    to: tuple[Who, ...] = ()
    identified: tuple[Identified | None, ...] = ()
    privileges: tuple[str, ...] = ()
    on_all: bool = True  # ON *.*
    locked: bool | None = None  # ACCOUNT LOCK, ACCOUNT UNLOCK
    require: Require | None = None
    max_user_connections: int | None = None
    replica: Mapping[str, str | int] = field(default_factory=dict)  # see `ReplicaPolicy.changed`
    grant_option: bool = False
    or_replace: bool = False
    tolerant: bool = False  # IF EXISTS, IF NOT EXISTS

    def answer(self, session: SqlSession) -> ResultSet | Work | None:
        assert session.accounts is not None
        if isinstance(self, AccountChange):
            session.require_writing()
        return session.accounts.run(self, session.diagnostics)

    def allowed(self, accounts: AccountSql, told: Diagnostics) -> ResultSet | Work | None:
        """The answer, once it is known that the session may have it. `who` has names only."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class AccountChange(AccountStatement):
    """A statement that changes accounts: all of those that it names, or none."""

    needs = (CREATE_USER,)
    changes_store = True
    commits = True

    @property
    def told(self) -> str:
        who = (*self.who, *self.to)
        named = ["CURRENT_USER" if one is ME else _quoted(one) for one in who] or ["CURRENT_USER"]
        about = ", ".join([*self.privileges, *named])
        return f"{self.operation}: {about}"

    def allowed(self, accounts: AccountSql, told: Diagnostics) -> Work:
        """Work for a thread: the accounts are one file, which is written and synced as a whole."""
        changed: list[UserAccount] = []

        def done() -> None:
            for account in changed:
                accounts.set_policy(account.name, account.replica)

        def write() -> None:
            changed.extend(self.write(accounts.users, told))

        return Work(write, done, in_turn_of=accounts.me.name)

    def write(self, users: Users, told: Diagnostics) -> list[UserAccount]:
        """Change the accounts. Returns those whose limits may have changed."""
        changed: list[UserAccount] = []
        refused: list[Who] = []
        named = _privileges(self, told)
        identified = self.identified or (None,) * len(self.who)
        for who, proof in zip(self.who, identified, strict=True):
            found = users.named(who.name)
            account = self.absent(who, proof) if found is None else self.present(found)
            if account is None:
                refused.append(who)
            else:
                changed.append(self._changed(account, proof, named))
        if refused:
            if not self.tolerant:
                raise _cannot(self, refused)
            for note in self.notes(refused):
                told.note(note)
        return self.save(users, changed)

    def absent(self, who: Who, proof: Identified | None) -> UserAccount | None:
        """An account to change in place of one that there is not; None refuses it."""
        return None

    def present(self, found: UserAccount) -> UserAccount | None:
        """An account to change for one that there is; None refuses it."""
        return found

    def notes(self, refused: list[Who]) -> list[ServerError]:
        """The notes of a tolerant statement."""
        return [_cannot(self, refused)]

    def save(self, users: Users, changed: list[UserAccount]) -> list[UserAccount]:
        """Keep what has changed, in one write. Returns as `write`."""
        users.save(changed)
        return changed

    def granted(self, before: frozenset[str], named: frozenset[str]) -> frozenset[str]:
        """The privileges of an account afterwards. `named`: those of the statement."""
        return before

    def _changed(
        self, account: UserAccount, proof: Identified | None, named: frozenset[str]
    ) -> UserAccount:
        if proof is not None:
            account = replace(account, credential=_credential(proof, account.credential.plugin))
        if self.require is not None:
            account = replace(account, require=self.require)
        if self.max_user_connections is not None:
            account = replace(account, max_user_connections=self.max_user_connections)
        if self.locked is not None:
            account = replace(account, locked=self.locked)
        if self.replica:
            account = replace(account, replica=_policy(account.replica, self.replica))
        return replace(account, granted=self.granted(account.granted, named))


@dataclass(frozen=True, slots=True)
class CreateUser(AccountChange):
    """CREATE USER."""

    syntax = '"CREATE"i or_replace "USER"i if_not_exists specs options'
    com = "create_user"
    operation = "CREATE USER"

    @classmethod
    def built(cls, children: list[Any]) -> CreateUser:
        or_replace, tolerant, (who, identified), options = children
        if or_replace and tolerant:
            raise WrongUsage("OR REPLACE", "IF NOT EXISTS")
        return cls(who, identified=identified, or_replace=or_replace, tolerant=tolerant, **options)

    def absent(self, who: Who, proof: Identified | None) -> UserAccount:
        return _new(who)

    def present(self, found: UserAccount) -> UserAccount | None:
        return _new(Who(found.user, found.host)) if self.or_replace else None

    def notes(self, refused: list[Who]) -> list[ServerError]:
        return [UserExists(_quoted(who)) for who in refused]


@dataclass(frozen=True, slots=True)
class AlterUser(AccountChange):
    """ALTER USER."""

    syntax = '"ALTER"i "USER"i if_exists specs options'
    com = "alter_user"
    operation = "ALTER USER"

    @classmethod
    def built(cls, children: list[Any]) -> AlterUser:
        tolerant, (who, identified), options = children
        return cls(who, identified=identified, tolerant=tolerant, **options)


@dataclass(frozen=True, slots=True)
class DropUser(AccountChange):
    """DROP USER."""

    syntax = '"DROP"i "USER"i if_exists accounts'
    com = "drop_user"
    operation = "DROP USER"

    @classmethod
    def built(cls, children: list[Any]) -> DropUser:
        tolerant, who = children
        return cls(who, tolerant=tolerant)

    def notes(self, refused: list[Who]) -> list[ServerError]:
        return [UserAbsent(_quoted(who)) for who in refused]

    def save(self, users: Users, changed: list[UserAccount]) -> list[UserAccount]:
        users.save([], changed)
        return []


@dataclass(frozen=True, slots=True)
class RenameUser(AccountChange):
    """RENAME USER."""

    syntax = '"RENAME"i "USER"i renamed ("," renamed)*'
    com = "rename_user"
    operation = "RENAME USER"

    @classmethod
    def built(cls, children: list[Any]) -> RenameUser:
        old, new = zip(*children, strict=True)
        return cls(old, new)

    def write(self, users: Users, told: Diagnostics) -> list[UserAccount]:
        """Rename the accounts one after the other, each as the renames before have left it; all or none."""
        saved: dict[str, UserAccount] = {}
        dropped: dict[str, UserAccount] = {}

        def current(who: Who) -> UserAccount | None:
            found = users.named(who.name)
            return saved.get(who.name, None if who.name in dropped else found)

        for old, new in zip(self.who, self.to, strict=True):
            account = current(old)
            if account is None or current(new) is not None:
                raise _cannot(self, [old])
            saved.pop(old.name, None)
            dropped[old.name] = account
            try:
                saved[new.name] = replace(account, user=new.user, host=new.host)
            except ValueError:
                raise _cannot(self, [old]) from None
        users.save(saved.values(), dropped.values())
        return []


@dataclass(frozen=True, slots=True)
class SetPassword(AccountChange):
    """SET PASSWORD, and variables behind it, as `mariadb-admin password` sends it."""

    syntax = '"SET"i "PASSWORD"i ["FOR"i account] _BECOMES password ("," setting)*'
    com = "set_option"
    is_free_for_ones_own = True
    operation = "SET PASSWORD"

    along: tuple[Assignment, ...] = ()

    @classmethod
    def built(cls, children: list[Any]) -> SetPassword:
        who, identified, *along = children
        return cls((who or ME,), identified=(identified,), along=tuple(along))

    def answer(self, session: SqlSession) -> ResultSet | Work | None:
        work = AccountChange.answer(self, session)
        if self.along:
            SetVariables(self.along).answer(session)  # of the session alone: nothing is left to do
        return work

    def absent(self, who: Who, proof: Identified | None) -> NoReturn:
        raise NoSuchUser()


@dataclass(frozen=True, slots=True)
class Grant(AccountChange):
    """GRANT."""

    syntax = '"GRANT"i privileges [on] "TO"i specs options'
    com = "grant"
    operation = "GRANT"

    @classmethod
    def built(cls, children: list[Any]) -> Grant:
        privileges, on, (who, identified), options = children
        _require_no_role(privileges, on)
        return cls(who, identified=identified, privileges=privileges, on_all=on is True, **options)

    def absent(self, who: Who, proof: Identified | None) -> UserAccount:
        if proof is None:
            raise NoSuchUser()
        return _new(who)  # as GRANT ... IDENTIFIED BY always did

    def granted(self, before: frozenset[str], named: frozenset[str]) -> frozenset[str]:
        return (before | named) - {USAGE}


@dataclass(frozen=True, slots=True)
class Revoke(AccountChange):
    """REVOKE of privileges."""

    syntax = '"REVOKE"i privileges [on] "FROM"i accounts'
    com = "revoke"
    operation = "REVOKE"

    @classmethod
    def built(cls, children: list[Any]) -> Revoke:
        privileges, on, who = children
        _require_no_role(privileges, on)
        return cls(who, privileges=privileges, on_all=on is True)

    def absent(self, who: Who, proof: Identified | None) -> NoReturn:
        raise NonexistingGrant(who.user, who.host)

    def granted(self, before: frozenset[str], named: frozenset[str]) -> frozenset[str]:
        if ALL_PRIVILEGES in named:
            return frozenset()
        return (frozenset(SINGLE) if ALL_PRIVILEGES in before else before) - named


@dataclass(frozen=True, slots=True)
class RevokeAll(AccountChange):
    """REVOKE ALL PRIVILEGES, GRANT OPTION."""

    syntax = '"REVOKE"i _ALL_AND_GRANT "FROM"i accounts'
    com = "revoke_all"
    operation = "REVOKE"

    def absent(self, who: Who, proof: Identified | None) -> NoReturn:
        raise CannotRevokeAll()

    def granted(self, before: frozenset[str], named: frozenset[str]) -> frozenset[str]:
        return frozenset()


@dataclass(frozen=True, slots=True)
class ShowGrants(AccountStatement):
    """SHOW GRANTS."""

    syntax = '"SHOW"i "GRANTS"i ["FOR"i account]'
    needs = (CREATE_USER,)
    com = "show_grants"
    only_looks = True
    is_free_for_ones_own = True

    @classmethod
    def built(cls, children: list[Any]) -> ShowGrants:
        return cls((children[0] or ME,))

    def allowed(self, accounts: AccountSql, told: Diagnostics) -> ResultSet:
        account = accounts.find(self.who[0])
        if account is None:
            raise NonexistingGrant(self.who[0].user, self.who[0].host)
        text = f"GRANT {as_shown(account.granted)} ON *.* TO {_shown(account)}"
        return ResultSet([Column.text(f"Grants for {account.name}", 1024)], [(text,)])


@dataclass(frozen=True, slots=True)
class ShowCreateUser(AccountStatement):
    """SHOW CREATE USER."""

    syntax = '"SHOW"i "CREATE"i "USER"i [account]'
    needs = (CREATE_USER,)
    com = "show_create_user"
    only_looks = True
    is_free_for_ones_own = True

    @classmethod
    def built(cls, children: list[Any]) -> ShowCreateUser:
        return cls((children[0] or ME,))

    def allowed(self, accounts: AccountSql, told: Diagnostics) -> ResultSet:
        account = accounts.find(self.who[0])
        if account is None:
            raise NoSuchUser()
        text = f"CREATE USER {_shown(account)}"
        return ResultSet([Column.text(f"CREATE USER for {account.name}", 1024)], [(text,)])


@dataclass(frozen=True, slots=True)
class FlushHosts(AccountStatement):
    """FLUSH HOSTS, FLUSH PRIVILEGES."""

    syntax = '"FLUSH"i _not_logged? ("HOSTS"i | "PRIVILEGES"i)'
    needs = (RELOAD,)
    com = "flush"
    commits = True

    def allowed(self, accounts: AccountSql, told: Diagnostics) -> None:
        accounts.unblock()


class AccountSql:
    """The statements about accounts, for one session.

    Args:
        me: the account of the session.
        unblock: called by FLUSH HOSTS and FLUSH PRIVILEGES: addresses with too many failed logins may try again.
        set_policy: called with the name of a changed account and its replica policy; on the loop.
    """

    def __init__(
        self,
        users: Users,
        me: UserAccount,
        unblock: Callable[[], None],
        set_policy: Callable[[str, ReplicaPolicy], None],
    ) -> None:
        self.users = users
        self.me = me
        self.unblock = unblock
        self.set_policy = set_policy

    @property
    def are_for_replicas(self) -> bool:
        """Whether statements that change accounts are committed, and so reach the replicas, instead of running here.

        It is so for an account that may commit SQL but not manage accounts.
        """
        return BINLOG_REPLAY in self.me.grants and CREATE_USER not in self.me.grants

    def seen(self) -> list[UserAccount]:
        """The accounts that the session may see: all with CREATE USER, else its own."""
        return self.users.all() if CREATE_USER in self.me.grants else [self.me]

    def run(self, statement: AccountStatement, told: Diagnostics) -> ResultSet | Work | None:
        """Run a statement: the result, None for OK, or `Work` that writes the accounts.

        Args:
            told: gets the statement's notes (1396, 1973, 1974) and warnings (1235).

        Both the call and the work raise `ServerError` (1064, 1105, 1133, 1141, 1227, 1269, 1290, 1372, 1396, 1524); the
        work raises `StorageError`, too.
        """
        if len(statement.who) > ACCOUNTS_MAX:
            raise NotSupportedYet(f"more than {ACCOUNTS_MAX} accounts in a statement")
        me = Who(self.me.user, self.me.host)
        names = tuple(me if isinstance(who, Oneself) else who for who in statement.who)
        statement = replace(statement, who=names)
        self._check_right(statement)
        return statement.allowed(self, told)

    def find(self, who: Who) -> UserAccount | None:
        """An account by name. The session's own is there as long as the session, also if it was dropped."""
        mine = self.me if who.name == self.me.name else None
        return self.users.named(who.name) or mine

    def _check_right(self, statement: AccountStatement) -> None:
        mine = all(who.name == self.me.name for who in statement.who)
        is_free = mine and statement.is_free_for_ones_own
        if not is_free and not suffices(self.me.grants, statement.needs):
            raise PrivilegeRequired(", ".join(statement.needs))
        for who in (*statement.who, *statement.to):
            if self.users.is_configured(who.user) and statement.operation:
                raise OptionPreventsBecause(
                    "[users]", f"'{who.user}' is an account of the configuration file"
                )


def _new(who: Who) -> UserAccount:
    try:
        return UserAccount(who.user, who.host)
    except ValueError:
        raise CannotUser("CREATE USER", _quoted(who)) from None


def _privileges(statement: AccountStatement, told: Diagnostics) -> frozenset[str]:
    """The statement's privileges that this server has; `told` gets a warning for each that only MariaDB has."""
    names = list(map(in_one_way, statement.privileges))
    if not statement.on_all:
        return _of_a_database(names, told)
    for name in dict.fromkeys(n for n in names if n in OF_WHAT_IS_NOT_HERE):
        told.warn(
            NotSupportedYet(f"{name}: there is nothing here that it is for, so it is not kept")
        )
    named = _known(n for n in names if n not in OF_WHAT_IS_NOT_HERE)
    if not statement.grant_option and GRANT_OPTION not in names:
        return named
    if not named - {USAGE} and GRANT_OPTION not in names:
        # In MariaDB it concerns the privileges granted with it; here it is CREATE USER, more than any of those.
        told.warn(
            NotSupportedYet(
                "WITH GRANT OPTION: no privilege beside it is kept, so it is not, either; GRANT CREATE USER gives it"
            )
        )
        return named
    return named | {CREATE_USER}


def _known(names: Iterable[str]) -> frozenset[str]:
    """Privileges by name, without GRANT OPTION. Raises `NotSupportedYet` (1235) for one that there is not."""
    try:
        return privileges(name for name in names if name != GRANT_OPTION)
    except ValueError as error:
        raise NotSupportedYet(str(error)) from None


def _of_a_database(names: list[str], told: Diagnostics) -> frozenset[str]:
    """Privileges on a database or table: none is kept. Raises 1221 for those of the server."""
    kinds = [name.partition("(")[0].strip() for name in names]  # without columns
    of_tables = OF_WHAT_IS_NOT_HERE.union(OF_TABLES)
    if _known(k for k in kinds if k not in of_tables) - {ALL_PRIVILEGES, USAGE}:
        raise WrongUsage("DB GRANT", "GLOBAL PRIVILEGES")
    what = f"{', '.join(names)} ON a database"
    told.warn(NotSupportedYet(f"{what}: it is not kept; ON *.* is, for tables that are here"))
    return frozenset()


def _require_no_role(privileges: tuple[str, ...], on: bool | None) -> None:
    """Raises `InvalidRole` (1959) for GRANT and REVOKE without ON, which are about roles."""
    if on is None:
        raise InvalidRole(privileges[0])


def _policy(policy: ReplicaPolicy, options: Mapping[str, str | int]) -> ReplicaPolicy:
    try:
        return policy.changed(options)
    except ValueError as error:
        raise UnknownServerError(str(error)) from None


def _credential(proof: Identified, plugin: str) -> Credential:
    """The credential from IDENTIFIED or SET PASSWORD.

    Where the statement names no plugin, a password keeps the account's own (`plugin`), as in MariaDB; a hash is one of
    mysql_native_password.
    """
    plugin = proof.plugin or (plugin if proof.password is not None else NATIVE_PASSWORD)
    if plugin not in (NATIVE_PASSWORD, ED25519):
        raise PluginNotLoaded(plugin)
    try:
        if proof.password is not None:
            return Credential.of(proof.password, plugin)
        return Credential.stored(proof.stored or "", plugin)
    except ValueError:
        raise PasswordFormat(1 + 2 * HASH_SIZE) from None


def _cannot(statement: AccountStatement, who: list[Who]) -> ServerError:
    return CannotUser(statement.operation, ",".join(map(_quoted, who)))


def _quoted(who: Who) -> str:
    return f"'{who.user}'@'{who.host}'"


def _shown(account: UserAccount) -> str:
    """The account with its proof and options, as SQL says them."""
    credential, limit = account.credential, account.max_user_connections
    text = account.quoted
    if credential.plugin != NATIVE_PASSWORD:
        text += f" IDENTIFIED VIA {credential.plugin} USING '{credential.text}'"
    elif credential.text:
        text += f" IDENTIFIED BY PASSWORD '{credential.text}'"
    if account.require is not Require.NONE:
        text += f" REQUIRE {account.require.value}"
    limits = [f"MAX_USER_CONNECTIONS {limit}"] if limit else []
    limits += account.replica.words()
    text += f" WITH {' '.join(limits)}" if limits else ""
    return f"{text} ACCOUNT LOCK" if account.locked else text


def _text(token: Token) -> str:
    return unquote(token) if token.type in ("STRING", "QUOTED_NAME") else str(token)


class _Builder(Rules):
    """A method per rule or alias of the grammar."""

    def name(self, children: list[Token]) -> Token:
        return children[0]

    def account(self, children: list[Token | None]) -> Who:
        user, host = children
        assert user is not None
        name, of = _text(user), ANY_HOST if host is None else _text(host).lower()
        require_chars(name, "user name", NAME_CHARS_MAX)
        require_chars(of, "host name", 255)
        return Who(name, of)

    def current_user(self, _: list[Any]) -> Who:
        return ME

    def _all(self, children: list[Any]) -> tuple[Any, ...]:
        return tuple(children)

    accounts = spec = renamed = privileges = _all

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

    def setting(self, children: list[Token]) -> Assignment:
        name, value = children
        return Assignment(SystemVariable(Scope.DEFAULT, name.lower()), Literal(int(value)))

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

    def on_all(self, _: list[Any]) -> bool:
        return True

    def on_some(self, _: list[Any]) -> bool:
        return False

    def account_lock(self, children: list[Token]) -> tuple[str, bool]:
        return "locked", children[0].upper() == "LOCK"

    def password_expires(self, children: list[Token]) -> tuple[str, bool]:
        return "expires", not children or children[0].upper() not in ("NEVER", "DEFAULT")

    def server_version(self, children: list[Token]) -> tuple[str, str]:
        return "server_version", unquote(children[0])

    def stream_style(self, children: list[Token]) -> tuple[str, str]:
        return "stream_style", str(children[0])

    def replica_limit(self, children: list[Token]) -> tuple[str, int]:
        name, value = children
        return name.lower(), int(value)

    def options(self, children: list[Any]) -> dict[str, Any]:
        require, *limits = children
        # An option given twice: the last holds, as in MariaDB.
        given: dict[str, Any] = dict(limit for limit in limits if limit is not None)
        if given.pop("expires", False):
            raise NotSupportedYet("PASSWORD EXPIRE: passwords do not expire here")
        return {
            "require": require,
            "locked": given.pop("locked", None),
            "max_user_connections": given.pop(_MAX_USER_CONNECTIONS, None),
            "grant_option": given.pop(_GRANT_OPTION, False),
            "replica": given,
        }

    def privilege(self, children: list[Token | None]) -> str:
        return " ".join(word for word in children if word is not None)

    def _given(self, children: list[Token]) -> bool:
        return bool(children)

    or_replace = if_not_exists = if_exists = _given


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
