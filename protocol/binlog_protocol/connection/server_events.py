"""Events of the server side, `server.py`: everything that a client sends."""

from __future__ import annotations

from dataclasses import dataclass

from binlog_protocol.connection.commands import Command
from binlog_protocol.connection.handshake import LoginRequest


@dataclass(frozen=True, slots=True)
class TlsRequested:
    """The client wants TLS: what follows is its handshake, of which `handshake` has come already.

    The caller calls `tls_started` when it is done, and feeds what was decrypted from then on.
    """

    handshake: bytes


@dataclass(frozen=True, slots=True)
class LoginReceived:
    """A login: to be answered by `accept_login`, `reject_login` or `request_auth_switch`.

    `needs_switch`: the client used another plugin than the one in the greeting, so its response
    proves nothing; it is to be asked again.
    """

    request: LoginRequest
    needs_switch: bool


@dataclass(frozen=True, slots=True)
class AuthSwitchAnswered:
    """The client's answer to `request_auth_switch`; decided as `LoginReceived`."""

    auth_response: bytes


ServerEvent = TlsRequested | LoginReceived | AuthSwitchAnswered | Command
