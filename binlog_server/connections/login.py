"""Decides a login: blocked addresses, the account for a name and address, its proof, and limits of connections."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable

from binlog_protocol.connection.auth import NATIVE_PASSWORD
from binlog_protocol.connection.ed25519 import CHALLENGE_SIZE, CLIENT_ED25519, ED25519
from binlog_protocol.errors import (
    AccessDenied,
    AccountLocked,
    HostBlocked,
    HostNotAllowed,
    SecureTransportRequired,
    ServerError,
    TooManyConnections,
    TooManyUserConnections,
    UserLimitReached,
)

from binlog_server.accounts.account import Credential, Require, UserAccount
from binlog_server.accounts.privileges import ALL_PRIVILEGES
from binlog_server.accounts.users import Users
from binlog_server.connections.connections import Connections
from binlog_server.settings.config import Config

_ADDRESSES_MAX = 10_000  # whose failures are remembered; beyond it the oldest are forgotten
# Privileges with which a login succeeds beyond max_connections: somebody has to mend the overload.
_ALWAYS_ADMITTED = frozenset({ALL_PRIVILEGES, "CONNECTION ADMIN", "SUPER"})
# By plugin: the credential of an unknown name, with a password that nobody knows.
_NOBODY = {
    NATIVE_PASSWORD: Credential(text="*" + "0" * 40),
    ED25519: Credential.of(secrets.token_hex(), ED25519),
}


class FailedLogins:
    """Failed logins in a row, by address. `limit()` of them block an address until `clear` (FLUSH HOSTS)."""

    def __init__(self, limit: Callable[[], int]) -> None:
        self._limit = limit
        self.total = 0  # since the start
        self._counts: OrderedDict[str, int] = OrderedDict()

    def is_blocked(self, address: str) -> bool:
        """Whether the address is blocked: it gets no greeting."""
        return self._counts.get(address, 0) >= self._limit()

    def failed(self, address: str) -> int:
        """Count a failed login; returns the failures in a row."""
        self.total += 1
        count = self._counts.pop(address, 0) + 1
        self._counts[address] = count
        if len(self._counts) > _ADDRESSES_MAX:
            self._counts.popitem(last=False)
        return count

    def succeeded(self, address: str) -> None:
        """Forget the failures of an address."""
        self._counts.pop(address, None)

    def clear(self) -> None:
        self._counts.clear()


class Login:
    """The login of one connection, from the greeting to the account. Addresses are without the port."""

    def __init__(
        self,
        users: Users,
        failures: FailedLogins,
        connections: Connections,
        config: Config,
        *,
        again: bool = False,
    ) -> None:
        """`again`: of a connection that has logged in already."""
        self._users = users
        self._failures = failures
        self._connections = connections
        self._config = config
        self._account: UserAccount | None = None
        self._credential = _NOBODY[NATIVE_PASSWORD]
        self._ed25519_share = 0.0  # of the accounts that clients from this address may use
        self._challenge = b""
        self._user = ""
        self.again = again

    def greets(self, address: str) -> ServerError | None:
        """The error that a client from this address gets instead of a greeting; None if it is greeted."""
        if self._failures.is_blocked(address):
            return HostBlocked(address)
        accounts = self._users.all()
        admitting = [account for account in accounts if account.admits(address)]
        if accounts and not admitting:
            return HostNotAllowed(address)
        signing = sum(account.credential.plugin == ED25519 for account in admitting)
        self._ed25519_share = signing / max(1, len(admitting))
        return None

    def begin(
        self, user: str, address: str, salt: bytes, *, needs_switch: bool
    ) -> tuple[str, bytes] | None:
        """The plugin to switch to and its challenge, or None if the client has answered to `salt` already."""
        self._user = user
        # Done for every name, so that the time does not tell whether a name has an account.
        nobody = self._nobody(user)
        self._account = self._users.find(user, address)
        self._credential = nobody if self._account is None else self._account.credential
        self._challenge = salt
        if self._credential.plugin == ED25519:
            self._challenge = secrets.token_bytes(CHALLENGE_SIZE)
            return CLIENT_ED25519, self._challenge
        return (NATIVE_PASSWORD, salt) if needs_switch else None

    def _nobody(self, user: str) -> Credential:
        """The credential that an unknown name is asked for: always the same for one name, and each plugin as often as
        among the accounts. So the plugin does not tell whether a name has an account."""
        plugin = ED25519 if self._users.share_of(user) < self._ed25519_share else NATIVE_PASSWORD
        return _NOBODY[plugin]

    def finish(
        self, response: bytes, address: str, *, secured: bool, certified: bool
    ) -> UserAccount:
        """The account, if the client's answer to the challenge proves it.

        Args:
            response: the answer.
            address: the client's.
            secured: whether the connection has TLS.
            certified: whether the client has shown a certificate of our CA.

        Raises `ServerError` (1040, 1045, 1203, 1226, 3159, 4151).
        """
        if self._config.require_secure_transport and not secured:
            raise SecureTransportRequired()
        account = self._account
        proved = self._credential.verify(self._challenge, response)
        if account is not None and proved:
            proved = certified if account.require is Require.X509 else proved
            proved = secured if account.require is Require.SSL else proved
        if account is None or not proved:
            self._failures.failed(address)
            raise AccessDenied(self._user, address, "YES" if response else "NO")
        self._failures.succeeded(address)
        if account.locked:
            raise AccountLocked()
        self._check_count(account)
        return account

    def _check_count(self, account: UserAccount) -> None:
        full = not self.again and self._connections.logged_in >= self._config.max_connections
        if full and _ALWAYS_ADMITTED.isdisjoint(account.grants):
            self._connections.too_many += 1
            raise TooManyConnections()
        own = account.max_user_connections
        limit = own or self._config.max_user_connections
        if limit and self._connections.count_of(account.name) >= limit:
            if own:
                raise UserLimitReached(account.user, "max_user_connections", own)
            raise TooManyUserConnections(account.user)
