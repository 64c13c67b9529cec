"""Errors of logins, accounts and privileges. See `protocol.errors`."""

from __future__ import annotations

from protocol.errors import ServerError


class SecureTransportRequired(ServerError):
    """ER_SECURE_TRANSPORT_REQUIRED."""

    errno = 3159
    sqlstate = "08004"
    fatal = True

    def __init__(self) -> None:
        super().__init__(
            "Connections using insecure transport are prohibited while --require_secure_transport=ON."
        )
