"""Errors of logins, accounts and privileges. See `binlog_protocol.errors`."""

from __future__ import annotations

from binlog_protocol.errors import ServerError


class SecureTransportRequired(ServerError):
    """ER_SECURE_TRANSPORT_REQUIRED."""

    errno = 3159
    sqlstate = "08004"
    fatal = True

    def __init__(self) -> None:
        super().__init__(
            "Connections using insecure transport are prohibited while --require_secure_transport=ON."
        )


class EmptyQuery(ServerError):
    """ER_EMPTY_QUERY."""

    errno = 1065
    sqlstate = "42000"

    def __init__(self) -> None:
        super().__init__("Query was empty")


class HostBlocked(ServerError):
    """ER_HOST_IS_BLOCKED, in place of the greeting."""

    errno = 1129
    sqlstate = "HY000"
    fatal = True

    def __init__(self, host: str) -> None:
        super().__init__(
            f"Host '{host}' is blocked because of many connection errors; "
            "unblock with 'mariadb-admin flush-hosts'"
        )


class HostNotAllowed(ServerError):
    """ER_HOST_NOT_PRIVILEGED, in place of the greeting: no account is for clients from there."""

    errno = 1130
    sqlstate = "HY000"
    fatal = True

    def __init__(self, host: str) -> None:
        super().__init__(f"Host '{host}' is not allowed to connect to this MariaDB server")


class NonexistingGrant(ServerError):
    """ER_NONEXISTING_GRANT."""

    errno = 1141
    sqlstate = "42000"

    def __init__(self, user: str, host: str) -> None:
        super().__init__(f"There is no such grant defined for user '{user}' on host '{host}'")


class TooManyUserConnections(ServerError):
    """ER_TOO_MANY_USER_CONNECTIONS: the server's max_user_connections."""

    errno = 1203
    sqlstate = "42000"
    fatal = True

    def __init__(self, user: str) -> None:
        super().__init__(
            f"User {user} already has more than 'max_user_connections' active connections"
        )


class UserLimitReached(ServerError):
    """ER_USER_LIMIT_REACHED: a limit of the account."""

    errno = 1226
    sqlstate = "42000"
    fatal = True

    def __init__(self, user: str, resource: str, value: int) -> None:
        super().__init__(
            f"User '{user}' has exceeded the '{resource}' resource (current value: {value})"
        )


class QueryInterrupted(ServerError):
    """ER_QUERY_INTERRUPTED: KILL QUERY."""

    errno = 1317
    sqlstate = "70100"

    def __init__(self) -> None:
        super().__init__("Query execution was interrupted")


class ConnectionKilled(ServerError):
    """ER_CONNECTION_KILLED: by KILL, while a statement was being answered."""

    errno = 1927
    sqlstate = "70100"
    fatal = True

    def __init__(self) -> None:
        super().__init__("Connection was killed")


class NoSuchUser(ServerError):
    """ER_PASSWORD_NO_MATCH."""

    errno = 1133
    sqlstate = "28000"

    def __init__(self) -> None:
        super().__init__("Can't find any matching row in the user table")


class CannotRevokeAll(ServerError):
    """ER_REVOKE_GRANTS."""

    errno = 1269
    sqlstate = "HY000"

    def __init__(self) -> None:
        super().__init__("Can't revoke all privileges for one or more of the requested users")


class PasswordFormat(ServerError):
    """ER_PASSWD_LENGTH: a hash that is none."""

    errno = 1372
    sqlstate = "HY000"

    def __init__(self, expected: int) -> None:
        super().__init__(f"Password hash should be a {expected}-digit hexadecimal number")


class CannotUser(ServerError):
    """ER_CANNOT_USER: an account that is there already, or is not."""

    errno = 1396
    sqlstate = "HY000"

    def __init__(self, operation: str, names: str) -> None:
        super().__init__(f"Operation {operation} failed for {names}")


class PluginNotLoaded(ServerError):
    """ER_PLUGIN_IS_NOT_LOADED."""

    errno = 1524
    sqlstate = "HY000"

    def __init__(self, plugin: str) -> None:
        super().__init__(f"Plugin '{plugin}' is not loaded")


class InternalError(ServerError):
    """ER_INTERNAL_ERROR: a mistake of the server's own."""

    errno = 1815
    sqlstate = "HY000"

    def __init__(self, text: str) -> None:
        super().__init__(f"Internal error: {text}")
