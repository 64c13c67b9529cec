"""INCIDENT events of one connection: where following stops, and which of them it goes by because a person said so.

An incident has no GTID, so a position says nothing about it: it comes again at each connection until a group behind it
is stored. The last one that was passed is remembered, over restarts too, by where it is in the master's files.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from binlog_protocol.groups.event_group import Incident
from binlog_protocol.gtid import SlavePosition
from binlog_protocol.wire.semi_sync import ReplicaPlace

from binlog_server.relay.gate import GroupRefused

log = logging.getLogger(__name__)


ER_SLAVE_INCIDENT = 1590


class Passed(NamedTuple):
    """An incident that was passed. `timestamp` in seconds since 1970, `position` of its end in the master's file."""

    server_id: int
    timestamp: int
    file: str
    position: int

    def includes(self, other: Passed) -> bool:
        """Whether that one comes before it in the same history, or is the same."""
        return (
            other.server_id == self.server_id
            and other.timestamp <= self.timestamp
            and (len(other.file), other.file, other.position)
            <= (len(self.file), self.file, self.position)
        )


class Incidents:
    """The incidents of one connection, for as long as it is to the same server."""

    def __init__(self, kept: list[Any] | None = None) -> None:
        """`kept`: see the property."""
        self.skip_counter = 0
        """sql_slave_skip_counter: so many may be passed, until a group comes."""
        self.keep: Callable[[], Awaitable[None]] | None = None
        """Makes `kept` durable."""
        self._passed = None if kept is None else Passed(*kept)

    @property
    def kept(self) -> list[Any] | None:
        """The passed incident in the form that is kept; None for none."""
        return None if self._passed is None else list(self._passed)

    async def meet(
        self, name: str, incident: Incident, place: ReplicaPlace, position: SlavePosition
    ) -> None:
        """Note an incident that ends there in the master's files. Raises `GroupRefused` if it is not to be passed.

        Args:
            name: the upstream's.
            position: what is stored.
        """
        event = incident.event
        found = Passed(event.server_id, event.timestamp, place.file, place.position)
        if self._passed is not None and self._passed.includes(found):
            return
        if not self.skip_counter:
            raise GroupRefused(
                f"{event}. Behind '{position}' changes are missing in the binlog of the master: see its error log, put "
                "the replicas right, and to go on: SET GLOBAL sql_slave_skip_counter = 1, START SLAVE",
                ER_SLAVE_INCIDENT,
            )
        self.skip_counter -= 1
        self._passed = found
        if self.keep is not None:
            await self.keep()
        log.warning(
            "%s: passed, as sql_slave_skip_counter says, behind '%s': %s", name, position, event
        )

    def went_on(self) -> None:
        """A group is stored: what was said about incidents in front of it is over."""
        self.skip_counter = 0
