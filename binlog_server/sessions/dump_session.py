"""A dump from its command to its end: its privileges, the dump that it replaces, and the task that runs it."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Final

from binlog_protocol.connection.commands import BinlogDump
from binlog_protocol.errors import DuplicateServerId, ServerError
from binlog_storage.errors import StorageError

from binlog_server.connections.channel import Channel
from binlog_server.connections.connections import Connection
from binlog_server.dumps.dump import Dump
from binlog_server.dumps.dump_request import DumpRequest
from binlog_server.dumps.faulty_stream import FaultyStream
from binlog_server.dumps.replica_stream import ReplicaStream
from binlog_server.loop.defects import internal_error
from binlog_server.process.logs import shortened
from binlog_server.sessions.host import Host
from binlog_server.sql.sql_session import SqlSession

log = logging.getLogger(__name__)

_SHUTDOWN: Final = "the server stops"


class DumpSession:
    """A running dump. Its connection ends with it."""

    def __init__(
        self,
        request: DumpRequest,
        server: Host,
        channel: Channel,
        connection: Connection,
    ) -> None:
        self._channel = channel
        self._connection = connection
        self._engine = server.engine
        self._reason = ""  # why it ends, once that is known
        faults, who = server.faults, (connection.user, request.server_id, connection.id)
        make = (
            partial(FaultyStream, faults, request.server_id, checksum=request.style.checksum)
            if server.config.binlog_faults or faults.of_stream(*who)  # or some may come
            else ReplicaStream
        )
        self._stream = make(
            channel,
            connection,
            server.connections,
            server.engine,
            request.heartbeat_s,
            grace_s=lambda: server.config.replica_lag_grace_seconds,
            drop=self._drop,
        )
        self._dump = server.new_dump(request, self._stream)
        self._task = asyncio.get_running_loop().create_task(self._run(self._dump))

    @classmethod
    def start(
        cls,
        command: BinlogDump,
        server: Host,
        channel: Channel,
        connection: Connection,
        sql: SqlSession,
    ) -> DumpSession | None:
        """Begin a dump. None if it is refused: the client has its error then, and the connection ends."""
        skip_marked = sql.variables.get("skip_replication") == "ON"
        channel.machine.start_dump()
        try:
            sql.require_for(command)
            request = DumpRequest.of(
                command,
                {name: held.value for name, held in sql.user_variables.items()},
                skip_marked=skip_marked,
                coordinates=sql.coordinates,
                registered=connection.registered is not None,
                named=connection.target,
                zone=sql.clock().zone,
            )
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
            server.connections.duplicate_server_ids += 1
            older.ending.end(DuplicateServerId())
        connection.dump_server_id = request.server_id
        connection.now("Binlog Dump", "starting")
        place, facts = request.place_for_log
        log.info(
            f"dump starts: %(peer)s, server_id %(server_id)d, {place}",
            {"peer": channel.peer, "server_id": request.server_id, **facts},
        )
        channel.give_up_after(channel.net_write_timeout())
        channel.stream()
        connection.unread_s = channel.unread_s
        session = cls(request, server, channel, connection)

        def end(reason: str) -> None:
            session.shut_down(reason)
            channel.close()

        connection.end_dump, connection.dump_by_file = end, request.file_position is not None
        return session

    def received(self) -> bool:
        """Take bytes from the replica: semi-sync acknowledgements. True if more are left. Raises `ProtocolError`."""
        return self._dump.take_acks()

    def cancel(self, reason: str) -> None:
        """Stop sending at once. `reason` is for the log."""
        if not self._reason:
            self._reason = reason
            self._task.cancel()
        self._stream.close()

    def end(self, error: ServerError | None) -> None:
        """End the dump from outside, with an error packet for the replica if there is an error."""
        self.cancel("it was killed" if error is None else str(error))
        if error is None:
            self._stream.flush()
        else:
            self._stream.fail(error)

    def shut_down(self, reason: str = _SHUTDOWN) -> None:
        """End the dump by EOF, so that the replica reconnects. `reason` is for the log."""
        self.cancel(reason)
        self._stream.end()

    def _drop(self, error: ServerError) -> None:
        """End a dump that lags too far. The replica gets time to take the bytes under way, so that it reads the
        error."""
        log.warning(
            "dropped %(peer)s, server_id %(server_id)d: %(reason)s",
            {
                "peer": self._channel.peer,
                "server_id": self._connection.dump_server_id,
                "reason": error,
            },
        )
        self.end(error)
        self._channel.close(linger_s=self._channel.net_write_timeout())

    async def _run(self, dump: Dump) -> None:
        reason = ""
        failure: ServerError | None = None
        try:
            await dump.run()
            reason = "it was refused" if dump.refused else "it has all that it asked for"
        except ConnectionError as error:
            reason = str(error)
            if not reason:  # a socket that has failed: the loop tells of what in its next round
                await asyncio.get_running_loop().create_future()  # `cancel` ends it, and says
        except Exception as error:  # noqa: BLE001 - logged there
            reason = "a bug"
            failure = internal_error(error, self._channel.peer)
        finally:
            peer = self._channel.peer
            if not self._channel.is_closing:
                if failure is None:
                    self._stream.flush()
                else:
                    self._stream.fail(failure)
            self._stream.close()
            self._channel.close()
            reason = self._reason = self._reason or reason
            facts = {
                "peer": peer,
                "server_id": self._connection.dump_server_id,
                "sent": shortened(await self._sent()),
                "reason": reason,
            }
            log.info(
                "dump ends: %(peer)s, server_id %(server_id)d, sent up to %(sent)s: %(reason)s",
                facts,
            )

    async def _sent(self) -> str:
        """The end of the sent groups for the log: a GTID position; a place in the files if it cannot be read."""
        if self._dump.until is not None:
            return f"'{self._dump.until}'"
        sent = self._connection.sent
        if sent is None:
            return "nothing"
        try:
            if sent >= self._engine.written_end:
                return f"'{self._engine.binlog_state().position()}'"
            if self._reason != _SHUTDOWN:  # behind which there is no store
                state = await asyncio.to_thread(self._engine.state_at, sent)
                return f"'{state.position()}'"
        except StorageError:
            pass
        return f"{self._engine.file_name(sent.file_no)} {sent.offset}"
