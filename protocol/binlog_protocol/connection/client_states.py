"""Whose turn it is at the client end of a connection, and what moves it on. See `client`."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final


class ClientState(Enum):
    """Whose turn it is."""

    CONNECTED = auto()  # the server greets
    GREETED = auto()  # we log in, or ask for TLS
    SECURED = auto()  # we log in, inside TLS
    LOGGING_IN = auto()  # the server decides
    READY = auto()  # we send a request
    WAITING = auto()  # the server answers
    COLUMNS = auto()  # inside a result set, before its rows
    ROWS = auto()  # inside a result set
    STREAMING = auto()  # the dump
    CLOSED = auto()


class ClientStep(Enum):
    """The steps between the states of a client connection."""

    GREETING_RECEIVED = auto()
    TLS_REQUESTED = auto()
    LOGIN_SENT = auto()
    SWITCH_ANSWERED = auto()
    LOGIN_ACCEPTED = auto()
    REQUEST_SENT = auto()
    ANSWER_RECEIVED = auto()
    RESULT_BEGUN = auto()
    COLUMNS_ENDED = auto()
    DUMP_SENT = auto()
    QUIT_SENT = auto()
    STREAM_ENDED = auto()
    FAILED = auto()


_S = ClientState
_T = ClientStep

CLIENT_TRANSITIONS: Final[dict[ClientState, dict[ClientStep, ClientState]]] = {
    _S.CONNECTED: {_T.GREETING_RECEIVED: _S.GREETED, _T.FAILED: _S.CLOSED},
    _S.GREETED: {
        _T.TLS_REQUESTED: _S.SECURED,
        _T.LOGIN_SENT: _S.LOGGING_IN,
        _T.FAILED: _S.CLOSED,
    },
    _S.SECURED: {_T.LOGIN_SENT: _S.LOGGING_IN, _T.FAILED: _S.CLOSED},
    _S.LOGGING_IN: {
        _T.SWITCH_ANSWERED: _S.LOGGING_IN,
        _T.LOGIN_ACCEPTED: _S.READY,
        _T.FAILED: _S.CLOSED,
    },
    _S.READY: {
        _T.REQUEST_SENT: _S.WAITING,
        _T.DUMP_SENT: _S.STREAMING,
        _T.QUIT_SENT: _S.CLOSED,
        _T.FAILED: _S.CLOSED,
    },
    _S.WAITING: {
        _T.ANSWER_RECEIVED: _S.READY,
        _T.RESULT_BEGUN: _S.COLUMNS,
        _T.FAILED: _S.CLOSED,
    },
    _S.COLUMNS: {_T.COLUMNS_ENDED: _S.ROWS, _T.FAILED: _S.CLOSED},
    _S.ROWS: {_T.ANSWER_RECEIVED: _S.READY, _T.FAILED: _S.CLOSED},
    _S.STREAMING: {_T.STREAM_ENDED: _S.CLOSED, _T.FAILED: _S.CLOSED},
    _S.CLOSED: {},
}
assert CLIENT_TRANSITIONS.keys() == set(ClientState)
