"""The slots of replicas, as the loop sees them: who is connected, and who has just gone.

A dump ends with its hold still held: `left` takes it over, and releases it when the slot holds the files instead.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from binlog_storage.defects import Defects
from binlog_storage.engine import EngineReader, Pin
from binlog_storage.errors import StorageError

from binlog_server.connections.connections import Connection, Connections
from binlog_server.store.leases import Leases, Seen

log = logging.getLogger(__name__)


class Slots:
    """Keeps the slots of one server up to date. On its event loop only."""

    def __init__(self, engine: EngineReader, connections: Connections, leases: Leases) -> None:
        self._engine: Final = engine
        self._connections: Final = connections
        self._leases: Final = leases
        self._left: list[tuple[Seen | None, Pin, int]] = []
        """Whoever has gone, with its hold and the age of the binlog in which it had its place."""
        self._releasing: asyncio.Task[None] | None = None
        self._renewing: Final = asyncio.Lock()
        self._defects: Final = Defects()
        self._told = ""  # why they cannot be renewed; empty while they can

    async def run(self, pause_s: float) -> None:
        """Renew the slots of all that are connected, again and again."""
        while True:
            await asyncio.sleep(pause_s)
            await self._renew([])

    def left(self, connection: Connection, hold: Pin) -> None:
        """A dump has ended. Its hold is released soon; RESET MASTER does not wait for that: it ends slots."""
        self._left.append((_seen(connection), hold, self._engine.age))
        hold.left()  # from here on another age may begin
        if self._releasing is None or self._releasing.done():
            self._releasing = asyncio.get_running_loop().create_task(self._release())

    async def close(self) -> None:
        """Wait until the slots of all that have gone are made. `Leases.expire` writes them down."""
        if self._releasing is not None:
            await self._releasing

    async def _release(self) -> None:
        while self._left:
            left, self._left = self._left, []
            try:
                gone = [(seen, age) for seen, _, age in left if seen is not None]
                if gone:
                    await self._renew(gone)
            finally:
                for _, hold, _ in left:
                    hold.release()

    async def _renew(self, gone: Sequence[tuple[Seen, int]]) -> None:
        """`gone`: whoever has gone, each with the age of the binlog then."""
        async with self._renewing:  # so that no older picture of who is there comes last
            age = self._engine.age
            left = [seen for seen, at in gone if at == age]
            here = [seen for connection in self._connections if (seen := _seen(connection))]
            try:
                await asyncio.to_thread(self._leases.renew_slots, here, left, age)
            except Exception as error:
                # Said where it begins, and where it becomes another error: it is tried again every few seconds.
                if (why := f"{error}" or repr(error)) != self._told:
                    self._told = why
                    log.error(
                        "slots of replicas cannot be renewed: %s. Replicas that are connected keep their files; those "
                        "of one that leaves now may be purged, so mend this first. It is tried again by itself",
                        why,
                        exc_info=None
                        if isinstance(error, StorageError)
                        else self._defects.trace(error),
                    )
            else:
                if self._told:
                    self._told = ""
                    log.info("slots of replicas are renewed again")


def _seen(connection: Connection) -> Seen | None:
    """None for whoever is no replica, or none that will come back: it has not registered, or has asked for what there
    is and no more.
    """
    has = connection.has()
    if has is None or not connection.account or connection.dump_server_id == 0:
        return None
    return Seen(connection.dump_server_id, connection.account, *has)
