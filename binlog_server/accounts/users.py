"""The accounts: where they are kept, and which one a client logs in to.

They come from two places: the store's state (`binlog-server user add`, CREATE USER), and the `[users]` table of the
configuration file, which wins: of a name that stands there no other account counts, and SQL cannot change it.

Passwords are kept as the hashes of their plugin, never as they are. Keys of the state:

    account/USER@HOST     `UserAccount.to_json`
    user/USER             hash of the account USER@%, of a store older than that; with
    grants/USER           its privileges

    login_key             what unknown names are answered by; see `Users.share_of`
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import Any

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.dataclass import dataclass
from binlog_storage.disk.state import StoreFacts

from binlog_server.accounts.account import ANY_HOST, Credential, UserAccount
from binlog_server.accounts.privileges import privileges, without_grants
from binlog_server.accounts.replica_policy import ReplicaPolicy

_PREFIX = "account/"
_OLD_PREFIX = "user/"
_OLD_GRANTS_PREFIX = "grants/"
LOGIN_KEY = "login_key"
_KEPT_OF_NOBODY = UserAccount("nobody", credential=Credential(text="*" + "0" * 40)).to_json()
_HASH_TEXT = compiled_later(r"\*[0-9A-Fa-f]{40}")


@dataclass(frozen=True, slots=True)
class Account:
    """One account of the configuration: its password, or its hash as `*` and 40 hex digits, its privileges, and how
    its replicas are served."""

    password: str = field(repr=False)
    grants: frozenset[str] = frozenset()
    replica: ReplicaPolicy = field(default_factory=ReplicaPolicy)


class Users:
    """The accounts. `configured` maps a name to an account, or to its password alone."""

    def __init__(
        self, state: StoreFacts, configured: Mapping[str, str | Account] | None = None
    ) -> None:
        self._state = state
        # Where it cannot be kept, on a full disk, one until the next start.
        self._key = str(state.get(LOGIN_KEY) or secrets.token_hex()).encode()
        self._configured: Mapping[str, UserAccount] = {}
        self.configure(configured or {})

    def configure(self, configured: Mapping[str, str | Account]) -> list[UserAccount]:
        """From now on the configuration file has these accounts. They are returned as they are here."""
        made: dict[str, UserAccount] = {}
        for name, given in configured.items():
            account = given if isinstance(given, Account) else Account(given)
            made[name] = UserAccount(
                name,
                ANY_HOST,
                _credential(account.password),
                without_grants(account.grants),
                replica=account.replica,
            )
        self._configured = made
        return list(made.values())

    def find(self, user: str, address: str) -> UserAccount | None:
        """The account of a client: of those for its address the most specific one."""
        admitting = [account for account in self.of(user) if account.admits(address)]
        return min(admitting, key=lambda account: account.rank, default=None)

    def of(self, user: str) -> list[UserAccount]:
        """All accounts of that name."""
        # How long an answer takes does not tell whether there is an account, nor where: in any case the stored ones are
        # looked through, and one is made of what is kept.
        stored = [account for account in self._stored(f"{user}@") if account.user == user]
        if not stored:
            UserAccount.from_json(f"nobody@{ANY_HOST}", _KEPT_OF_NOBODY)
        return [self._configured[user]] if user in self._configured else stored

    def share_of(self, user: str) -> float:
        """A number from 0 to 1 for a name: always the same in this store, and known to nobody."""
        digest = hmac.digest(self._key, user.encode(errors="backslashreplace"), "sha256")
        return int.from_bytes(digest[:8], "big") / (1 << 64)

    def named(self, name: str) -> UserAccount | None:
        """The account user@host."""
        return next((a for a in self.of(name.partition("@")[0]) if a.name == name), None)

    def all(self) -> list[UserAccount]:
        """All accounts in force, by name: an account of the configuration hides stored ones of that user."""
        stored = [a for a in self._stored("") if a.user not in self._configured]
        return sorted([*stored, *self._configured.values()], key=lambda account: account.name)

    def is_configured(self, user: str) -> bool:
        """Whether the configuration file has it: then it can be changed there alone."""
        return user in self._configured

    def _stored(self, start: str) -> Iterable[UserAccount]:
        """The stored accounts whose names begin with `start`."""
        found = {
            key.removeprefix(_PREFIX): value for key, value in self._state.items(_PREFIX + start)
        }
        for name, value in found.items():
            yield UserAccount.from_json(name, value)
        user = start.removesuffix("@")
        for key, text in self._state.items(_OLD_PREFIX + user):
            name = f"{key.removeprefix(_OLD_PREFIX)}@{ANY_HOST}"
            if name not in found:
                user = key.removeprefix(_OLD_PREFIX)
                granted = frozenset(self._state.get(_OLD_GRANTS_PREFIX + user, []))
                credential = Credential.stored(text)
                yield UserAccount(user, ANY_HOST, credential, without_grants(granted))

    # Changes of the state

    def save(self, saved: Iterable[UserAccount], dropped: Iterable[UserAccount] = ()) -> None:
        """Keep accounts, and forget others, together. Durable when it returns."""
        changes: dict[str, Any] = {}
        for account in dropped:
            changes |= _forgotten(account)
        for account in saved:
            changes |= _forgotten(account)
            changes[_PREFIX + account.name] = account.to_json()
        self._state.update(changes)

    def add(self, user: str, password: str, grants: Iterable[str] = (), **others: Any) -> None:
        """Add an account to the state, or change its password and privileges. ValueError for an impossible name or
        an unknown privilege. `others`: `host`, `plugin` and further fields of `UserAccount`."""
        plugin = {"plugin": others.pop("plugin")} if "plugin" in others else {}
        granted = without_grants(privileges(grants))
        credential = Credential.of(password, **plugin)
        self.save([UserAccount(user, credential=credential, granted=granted, **others)])

    def set_replica(self, user: str, host: str, options: Mapping[str, Any]) -> None:
        """Change how an account's replicas are served; `options` as of `ReplicaPolicy.changed`.

        KeyError if there is no such account, ValueError for an impossible option.
        """
        account = self._stored_one(user, host)
        self.save([replace(account, replica=account.replica.changed(options))])

    def drop(self, user: str, host: str = ANY_HOST) -> None:
        """Remove an account from the state. KeyError if there is none."""
        self.save([], [self._stored_one(user, host)])

    def _stored_one(self, user: str, host: str) -> UserAccount:
        stored = {account.name: account for account in self._stored(user)}
        return stored[f"{user}@{host}"]


def _forgotten(account: UserAccount) -> dict[str, None]:
    keys = [_PREFIX + account.name]
    if account.host == ANY_HOST:
        keys += [_OLD_PREFIX + account.user, _OLD_GRANTS_PREFIX + account.user]
    return dict.fromkeys(keys)


def _credential(text: str) -> Credential:
    return Credential.stored(text) if _HASH_TEXT.fullmatch(text) else Credential.of(text)
