"""Runs the statements about accounts. A change holds from the next login on, as in MariaDB; a replica's limits change
at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from binlog_protocol.connection.auth import HASH_SIZE, NATIVE_PASSWORD
from binlog_protocol.connection.ed25519 import ED25519
from binlog_protocol.errors import PrivilegeRequired, SqlSyntaxError, UnknownServerError
from binlog_protocol.errors.account_errors import (
    CannotRevokeAll,
    CannotUser,
    NonexistingGrant,
    NoSuchUser,
    PasswordFormat,
    PluginNotLoaded,
)
from binlog_protocol.errors.sql_errors import NotSupportedYet, OptionPreventsStatement
from binlog_protocol.wire.results import Column

from binlog_server.accounts.account import Credential, Require, UserAccount
from binlog_server.accounts.privileges import (
    ALL_PRIVILEGES,
    BINLOG_REPLAY,
    CREATE_USER,
    GRANT_OPTION,
    OF_WHAT_IS_NOT_HERE,
    SINGLE,
    USAGE,
    as_shown,
    in_one_way,
    privileges,
    suffices,
)
from binlog_server.accounts.replica_policy import ReplicaPolicy
from binlog_server.accounts.users import Users
from binlog_server.sql.account_statements import (
    AccountStatement,
    CreateUser,
    DropUser,
    FlushHosts,
    Grant,
    Identified,
    Oneself,
    RenameUser,
    Revoke,
    RevokeAll,
    SetPassword,
    ShowCreateUser,
    ShowGrants,
    Who,
)
from binlog_server.sql.view import Diagnostic, Level, ResultSet, Work

ACCOUNTS_MAX = 256


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
        self._users = users
        self._me = me
        self._unblock = unblock
        self._set_policy = set_policy

    @property
    def are_for_replicas(self) -> bool:
        """Whether statements that change accounts are committed, and so reach the replicas, instead of running here.

        It is so for an account that may commit SQL but not manage accounts.
        """
        return BINLOG_REPLAY in self._me.grants and CREATE_USER not in self._me.grants

    def run(self, statement: AccountStatement, told: list[Diagnostic]) -> ResultSet | Work | None:
        """Run a statement: the result, None for OK, or `Work` that writes the accounts.

        Args:
            told: gets the statement's notes (1396, 1973, 1974) and warnings (1235).

        Both the call and the work raise `ServerError` (1064, 1105, 1133, 1141, 1227, 1269, 1290, 1372, 1396, 1524); the
        work raises `StorageError`, too.
        """
        if len(statement.who) > ACCOUNTS_MAX:
            raise NotSupportedYet(f"more than {ACCOUNTS_MAX} accounts in a statement")
        statement = replace(statement, who=tuple(map(self._who, statement.who)))
        self._check_right(statement)
        match statement:
            case FlushHosts():
                self._unblock()
                return None
            case ShowGrants():
                return self._show("Grants for", _grant_text, statement.who[0])
            case ShowCreateUser():
                return self._show("CREATE USER for", _create_text, statement.who[0])
        return self._write(statement, told)

    def _write(self, statement: AccountStatement, told: list[Diagnostic]) -> Work:
        """Work for a thread: the accounts are one file, which is written and synced as a whole."""
        changed: list[UserAccount] = []

        def write() -> None:
            match statement:
                case DropUser():
                    self._drop(statement, told)
                case RenameUser():
                    self._rename(statement)
                case _:
                    changed.extend(self._change(statement, told))

        def done() -> None:
            for account in changed:
                self._set_policy(account.name, account.replica)

        return Work(write, done, in_turn_of=self._me.name)

    def _who(self, who: Who) -> Who:
        return Who(self._me.user, self._me.host) if isinstance(who, Oneself) else who

    def _check_right(self, statement: AccountStatement) -> None:
        mine = all(who.name == self._me.name for who in statement.who)
        is_free = mine and statement.is_free_for_ones_own
        if not is_free and not suffices(self._me.grants, statement.needs):
            raise PrivilegeRequired(", ".join(statement.needs))
        for who in (*statement.who, *statement.to):
            if self._users.is_configured(who.user) and statement.operation:
                raise OptionPreventsStatement(
                    "[users]", f": '{who.user}' is an account of the configuration file"
                )

    def _drop(self, statement: AccountStatement, told: list[Diagnostic]) -> None:
        found = [(who, self._users.named(who.name)) for who in statement.who]
        missing = [who for who, account in found if account is None]
        if missing and not statement.tolerant:
            raise _cannot(statement, missing)
        told += [
            _note(1974, f"Can't drop user {_quoted(who)}; it doesn't exist") for who in missing
        ]
        self._users.save([], [account for _, account in found if account is not None])

    def _rename(self, statement: AccountStatement) -> None:
        """Rename the accounts one after the other, each as the renames before have left it; all or none."""
        saved: dict[str, UserAccount] = {}
        dropped: dict[str, UserAccount] = {}

        def current(who: Who) -> UserAccount | None:
            found = self._users.named(who.name)
            return saved.get(who.name, None if who.name in dropped else found)

        for old, new in zip(statement.who, statement.to, strict=True):
            account = current(old)
            if account is None or current(new) is not None:
                raise _cannot(statement, [old])
            saved.pop(old.name, None)
            dropped[old.name] = account
            try:
                saved[new.name] = replace(account, user=new.user, host=new.host)
            except ValueError:
                raise _cannot(statement, [old]) from None
        self._users.save(saved.values(), dropped.values())

    def _change(self, statement: AccountStatement, told: list[Diagnostic]) -> list[UserAccount]:
        """Change all accounts of the statement, or none. Returns the changed accounts."""
        changed = []
        refused = []
        named = _privileges(statement, told)
        identified = statement.identified or (None,) * len(statement.who)
        for who, proof in zip(statement.who, identified, strict=True):
            account = self._users.named(who.name)
            if isinstance(statement, CreateUser):
                if account is not None and not statement.or_replace:
                    if statement.tolerant:
                        text = f"Can't create user {_quoted(who)}; it already exists"
                        told.append(_note(1973, text))
                    else:
                        refused.append(who)
                    continue
                account = self._new(who)
            elif account is None:
                if isinstance(statement, Grant) and proof is not None:
                    account = self._new(who)  # as GRANT ... IDENTIFIED BY always did
                elif isinstance(statement, Revoke):
                    raise NonexistingGrant(who.user, who.host)
                elif isinstance(statement, RevokeAll):
                    raise CannotRevokeAll
                elif isinstance(statement, Grant | SetPassword):
                    raise NoSuchUser
                else:
                    refused.append(who)
                    continue
            changed.append(self._changed(account, statement, proof, named))
        if refused:
            error = _cannot(statement, refused)
            if not statement.tolerant:
                raise error
            told.append(_note(error.errno, error.message))
        self._users.save(changed)
        return changed

    def _new(self, who: Who) -> UserAccount:
        try:
            return UserAccount(who.user, who.host)
        except ValueError:
            raise CannotUser("CREATE USER", _quoted(who)) from None

    def _changed(
        self,
        account: UserAccount,
        statement: AccountStatement,
        proof: Identified | None,
        named: frozenset[str],
    ) -> UserAccount:
        if proof is not None:
            account = replace(account, credential=_credential(proof, account.credential.plugin))
        if statement.require is not None:
            account = replace(account, require=statement.require)
        if statement.max_user_connections is not None:
            account = replace(account, max_user_connections=statement.max_user_connections)
        if statement.replica:
            account = replace(account, replica=_policy(account.replica, statement.replica))
        if isinstance(statement, RevokeAll):
            return replace(account, granted=frozenset())
        if isinstance(statement, Grant):
            return replace(account, granted=(account.granted | named) - {USAGE})
        if isinstance(statement, Revoke):
            granted = account.granted
            if ALL_PRIVILEGES in named:
                return replace(account, granted=frozenset())
            if ALL_PRIVILEGES in granted:
                granted = frozenset(SINGLE)
            return replace(account, granted=granted - named)
        return account

    def _show(self, head: str, text: Callable[[UserAccount], str], who: Who) -> ResultSet:
        account = self._me if who.name == self._me.name else None
        account = self._users.named(who.name) or account
        if account is None:
            raise NoSuchUser if text is _create_text else NonexistingGrant(who.user, who.host)
        return ResultSet([Column.text(f"{head} {account.name}", 1024)], [(text(account),)])


def _privileges(statement: AccountStatement, told: list[Diagnostic]) -> frozenset[str]:
    """The statement's privileges that this server has; `told` gets a warning for each that only MariaDB has."""
    names = list(map(in_one_way, statement.privileges))
    for name in dict.fromkeys(n for n in names if n in OF_WHAT_IS_NOT_HERE):
        error = NotSupportedYet(f"{name}: there is nothing here that it is for, so it is not kept")
        told.append(Diagnostic(Level.WARNING, error.errno, error.message))
    try:
        named = privileges(n for n in names if n not in OF_WHAT_IS_NOT_HERE and n != GRANT_OPTION)
    except ValueError:
        raise SqlSyntaxError(", ".join(statement.privileges)) from None
    if not statement.grant_option and GRANT_OPTION not in names:
        return named
    if not named - {USAGE} and GRANT_OPTION not in names:
        # In MariaDB it concerns the privileges granted with it; here it is CREATE USER, more than any of those.
        error = NotSupportedYet(
            "WITH GRANT OPTION: no privilege beside it is kept, so it is not, either; GRANT CREATE USER gives it"
        )
        told.append(Diagnostic(Level.WARNING, error.errno, error.message))
        return named
    return named | {CREATE_USER}


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


def _cannot(statement: AccountStatement, who: list[Who]) -> CannotUser:
    return CannotUser(statement.operation, ",".join(map(_quoted, who)))


def _quoted(who: Who) -> str:
    return f"'{who.user}'@'{who.host}'"


def _note(code: int, text: str) -> Diagnostic:
    return Diagnostic(Level.NOTE, code, text)


def _identified(account: UserAccount) -> str:
    credential = account.credential
    if credential.plugin != NATIVE_PASSWORD:
        return f" IDENTIFIED VIA {credential.plugin} USING '{credential.text}'"
    return f" IDENTIFIED BY PASSWORD '{credential.text}'" if credential.text else ""


def _options(account: UserAccount) -> str:
    limit = account.max_user_connections
    limits = [f"MAX_USER_CONNECTIONS {limit}"] if limit else []
    limits += account.replica.words()
    require = f" REQUIRE {account.require.value}" if account.require is not Require.NONE else ""
    return require + (f" WITH {' '.join(limits)}" if limits else "")


def _grant_text(account: UserAccount) -> str:
    shown = as_shown(account.granted)
    return f"GRANT {shown} ON *.* TO {account.quoted}{_identified(account)}{_options(account)}"


def _create_text(account: UserAccount) -> str:
    return f"CREATE USER {account.quoted}{_identified(account)}{_options(account)}"
