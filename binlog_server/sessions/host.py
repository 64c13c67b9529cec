"""The server, as its sessions see it."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Protocol

from binlog_server.accounts.users import Users
from binlog_server.connections.compression import Compressor
from binlog_server.connections.session_memory import SessionMemory
from binlog_server.sql.runner import Runner
from binlog_server.sql.sql_session import SqlSession
from binlog_server.sql.view import ServerView
from binlog_server.sql_commit.client import CommitClient
from binlog_server.sql_commit.quick_way import StatusHolder
from binlog_server.sql_commit.session_transaction import SessionTransaction

if TYPE_CHECKING:
    from binlog_server.dumps.dump import Dump
    from binlog_server.dumps.dump_request import DumpRequest
    from binlog_server.dumps.replica_stream import ReplicaStream

# No NUL (ends the salt in the greeting), and nothing that some old client libraries choke on.
_SALT_FIRST, _SALT_LETTERS = 33, 94
_SALT_LETTER_OF = bytes(_SALT_FIRST + byte % _SALT_LETTERS for byte in range(256))
_SALT_BYTES = 20


def new_salt() -> bytes:
    """20 random bytes for a login. None comes more often than once in 2**128: a letter is that of up to 3 bytes."""
    return secrets.token_bytes(_SALT_BYTES).translate(_SALT_LETTER_OF)


class Host(ServerView, Protocol):
    """The server as a session sees it: `ServerView` for its statements, and more for logins and dumps."""

    @property
    def users(self) -> Users: ...
    @property
    def session_memory(self) -> SessionMemory: ...
    @property
    def runner(self) -> Runner:
        """Runs the statements that cannot be answered at once."""

    @property
    def compressor(self) -> Compressor: ...
    @property
    def dumps_begin(self) -> asyncio.Event:
        """Set unless the binlog is about to go on in another store."""

    def new_dump(self, request: DumpRequest, stream: ReplicaStream) -> Dump:
        """A dump of the server's store."""

    def new_transaction(
        self, client: CommitClient, machine: StatusHolder, sql: SqlSession
    ) -> SessionTransaction:
        """The transaction of one session."""
