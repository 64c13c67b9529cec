"""Damage in groups, with its place."""

from __future__ import annotations

from binlog_protocol.errors import ProtocolError


class DamagedGroup(ProtocolError):
    """Bytes of a group that no server logs.

    group, event: numbers, the first as the caller counts groups; `event` is None where the group does not split into
        events.
    """

    def __init__(self, reason: str, group: int, event: int | None = None) -> None:
        self.group = group
        self.event = event
        place = f"group {group}" if event is None else f"group {group}, event {event}"
        super().__init__(f"{reason} ({place})")
