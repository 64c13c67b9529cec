"""From the dump command to the end of the stream: who may have it, whom it replaces, and the task that runs it."""

from __future__ import annotations

import asyncio
import logging

from binlog_server.admin.answers import SqlSession
from binlog_server.channel import Channel
from binlog_server.connections import Connection
from binlog_server.dump import Dump, DumpRequest, Sink
from binlog_server.host import Host
from binlog_server.privileges import REPLICATION_SLAVE
from binlog_server.replica_policy import ReplicaPolicy
from protocol.connection.commands import BinlogDump
from protocol.connection.server_states import ServerState
from protocol.errors import DuplicateServerId, PrivilegeRequired, ServerError

log = logging.getLogger(__name__)


class DumpSession:
    """A dump that runs. Its connection ends with it."""

    def __init__(self, dump: Dump, channel: Channel) -> None:
        self._channel = channel
        self._task = asyncio.get_running_loop().create_task(self._run(dump))

    @classmethod
    def start(
        cls,
        command: BinlogDump,
        policy: ReplicaPolicy,
        server: Host,
        channel: Channel,
        connection: Connection,
        sql: SqlSession,
        sink: Sink,
    ) -> DumpSession | None:
        """Begin; None if it was refused: then the client has been told, and the connection ends."""
        skip_marked = sql.variables.get("skip_replication") == "ON"
        channel.machine.start_dump()
        try:
            if REPLICATION_SLAVE not in sql.grants:
                raise PrivilegeRequired(REPLICATION_SLAVE)
            request = DumpRequest.of(command, sql.user_variables, skip_marked=skip_marked)
        except ServerError as error:
            log.warning("dump refused: %s: %s", channel.peer, error)
            channel.write(channel.machine.dump_error(error))
            channel.close()
            return None
        for older in server.connections.dumps_of(request.server_id):
            log.warning(
                "connection %(connection)d ends: server_id %(server_id)d has connected again as "
                "connection %(newer)d",
                {
                    "connection": older.id,
                    "server_id": request.server_id,
                    "newer": connection.id,
                },
            )
            older.ending.end(DuplicateServerId())
        connection.dump_server_id = request.server_id
        connection.now("Binlog Dump", "starting")
        log.info(
            "dump starts: %(peer)s, server_id %(server_id)d, position '%(gtid)s'",
            {
                "peer": channel.peer,
                "server_id": request.server_id,
                "gtid": request.position,
            },
        )
        return cls(server.new_dump(request, channel.machine, sink, connection), channel)

    def cancel(self) -> None:
        """Nothing more is sent."""
        self._task.cancel()

    def end(self, error: ServerError | None) -> None:
        """Ended from outside, with an error for the replica if there is one to tell."""
        self.cancel()
        if error is not None and not self._channel.machine.is_closed:
            self._channel.write(self._channel.machine.dump_error(error))

    def shut_down(self) -> None:
        """The server stops."""
        self.cancel()
        if self._channel.machine.state is ServerState.DUMPING:
            self._channel.write(self._channel.machine.dump_end_eof())

    async def _run(self, dump: Dump) -> None:
        try:
            await dump.run()
        except ConnectionError:
            pass  # said where it was noticed
        except Exception:
            log.exception("a bug ended the dump of %s", self._channel.peer)
            raise
        finally:
            log.info("dump ends: %s", self._channel.peer)
            self._channel.close()
