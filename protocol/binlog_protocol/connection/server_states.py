"""The turns on the server's end of a connection, as a transition table; `server.py` follows it."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final


class ServerState(Enum):
    """The turns: of the server, of the client, of nobody."""

    __hash__ = object.__hash__  # that of Enum is Python, and members are one of a kind

    OPENED = auto()  # we greet
    GREETED = auto()  # the client logs in, or asks for TLS first
    SECURING = auto()  # the TLS handshake, which the caller does: nothing is read
    SECURED = auto()  # the client logs in
    AUTHENTICATING = auto()  # we accept, reject or ask for another plugin
    SWITCHING = auto()  # the client answers with that plugin
    READY = auto()  # the client sends a command
    ANSWERING = auto()  # we answer
    DUMPING = auto()  # we stream; nothing that arrives is read
    CLOSED = auto()


class ServerStep(Enum):
    """The steps between the states of a server connection."""

    __hash__ = object.__hash__

    GREETING_SENT = auto()
    TLS_REQUESTED = auto()
    TLS_STARTED = auto()
    LOGIN_RECEIVED = auto()
    SWITCH_SENT = auto()
    SWITCH_ANSWERED = auto()
    LOGIN_ACCEPTED = auto()
    LOGIN_REJECTED = auto()
    COMMAND_RECEIVED = auto()
    ANSWER_SENT = auto()
    USER_CHANGES = auto()
    QUIT_RECEIVED = auto()
    DUMP_STARTED = auto()
    DUMP_ENDED = auto()
    FAILED = auto()


_S = ServerState
_T = ServerStep

SERVER_TRANSITIONS: Final[dict[ServerState, dict[ServerStep, ServerState]]] = {
    _S.OPENED: {_T.GREETING_SENT: _S.GREETED, _T.LOGIN_REJECTED: _S.CLOSED, _T.FAILED: _S.CLOSED},
    _S.GREETED: {
        _T.LOGIN_RECEIVED: _S.AUTHENTICATING,
        _T.TLS_REQUESTED: _S.SECURING,
        _T.FAILED: _S.CLOSED,
    },
    _S.SECURING: {_T.TLS_STARTED: _S.SECURED, _T.FAILED: _S.CLOSED},
    _S.SECURED: {_T.LOGIN_RECEIVED: _S.AUTHENTICATING, _T.FAILED: _S.CLOSED},
    _S.AUTHENTICATING: {
        _T.SWITCH_SENT: _S.SWITCHING,
        _T.LOGIN_ACCEPTED: _S.READY,
        _T.LOGIN_REJECTED: _S.CLOSED,
        _T.FAILED: _S.CLOSED,
    },
    _S.SWITCHING: {_T.SWITCH_ANSWERED: _S.AUTHENTICATING, _T.FAILED: _S.CLOSED},
    _S.READY: {
        _T.COMMAND_RECEIVED: _S.ANSWERING,
        _T.QUIT_RECEIVED: _S.CLOSED,
        _T.FAILED: _S.CLOSED,
    },
    _S.ANSWERING: {
        _T.ANSWER_SENT: _S.READY,
        _T.USER_CHANGES: _S.AUTHENTICATING,
        _T.DUMP_STARTED: _S.DUMPING,
        _T.FAILED: _S.CLOSED,
    },
    _S.DUMPING: {_T.DUMP_ENDED: _S.CLOSED, _T.FAILED: _S.CLOSED},
    _S.CLOSED: {},
}
assert SERVER_TRANSITIONS.keys() == set(ServerState)

# The states in which the client may be heard.
LISTENING: Final = frozenset({_S.GREETED, _S.SECURED, _S.SWITCHING, _S.READY})
BEFORE_LOGIN: Final = frozenset(
    {_S.OPENED, _S.GREETED, _S.SECURING, _S.SECURED, _S.AUTHENTICATING, _S.SWITCHING}
)
# The states in which what arrives is dropped unread.
DEAF: Final = frozenset({_S.DUMPING, _S.CLOSED})
