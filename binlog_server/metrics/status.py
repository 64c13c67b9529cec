"""The server at one moment, for people: what the status page shows and `/api/status` tells, as plain values for JSON.

Nothing is found out here: the rows are those of SHOW BINLOG REPLICAS, SHOW BINLOG LEASES and EXPLAIN PURGE, states of
upstreams those of SHOW ALL SLAVES STATUS, and what is wrong is what /readyz says.

`STATUS` says what each value is; the OpenAPI document is made of it, and a test holds answers to it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, Final

from binlog_storage.engine import EngineReader
from binlog_storage.engine.purge import FileFate
from binlog_storage.errors import StorageError

from binlog_server.dumps.replica_rows import ReplicaRows
from binlog_server.metrics.health import what_is_missing
from binlog_server.metrics.observed import Look, Observed
from binlog_server.metrics.store_metrics import directory_free_bytes
from binlog_server.process.logs import RecentLines
from binlog_server.relay.status import UpstreamStatus
from binlog_server.semi_sync.master import NOWHERE
from binlog_server.store.leases import Lease, slot_name, slot_of

LATE_S, BAD_S = 5.0, 30.0
"""A replica or an upstream that is so many seconds behind is shown as late, and as bad."""
FILES_MAX: Final = 200  # the newest; EXPLAIN PURGE has all

GOOD, LATE, BAD = "good", "late", "bad"
"""How a row is doing. `bad` is what somebody has to look at: red on the page."""

TEXT, NUMBER, FLAG = {"type": "string"}, {"type": "number"}, {"type": "boolean"}
OR_NONE: Final = {"type": ["string", "null"]}
NUMBER_OR_NONE: Final = {"type": ["number", "null"]}
_HEALTH: Final = {"type": "string", "enum": [GOOD, LATE, BAD]}
Shape = Mapping[str, Mapping[str, Any]]

REPLICA: Final[Shape] = {
    "health": _HEALTH,
    "state": TEXT,
    "connection": {"type": ["integer", "null"], "description": "its number in SHOW PROCESSLIST"},
    "server_id": NUMBER,
    "account": TEXT,
    "address": OR_NONE,
    "sent": {**OR_NONE, "description": "GTID position"},
    "acknowledged": {**OR_NONE, "description": "GTID position, with semi-sync"},
    "bytes_behind": {**NUMBER_OR_NONE, "description": "not sent"},
    "seconds_behind": {**NUMBER_OR_NONE, "description": "age of the first group not sent"},
    "seconds_unacknowledged": {
        **NUMBER_OR_NONE,
        "description": "age of the first group not acknowledged; null without semi-sync",
    },
    "seconds_unread": {
        **NUMBER_OR_NONE,
        "description": "age of the first bytes that its system has and that it has not read; null if nobody can tell",
    },
}
UPSTREAM: Final[Shape] = {
    "health": _HEALTH,
    "connection": {**TEXT, "description": "the name that CHANGE MASTER gave it"},
    "address": TEXT,
    "state": TEXT,
    "connected": FLAG,
    "version": TEXT,
    "server_id": NUMBER,
    "protection": TEXT,
    "seconds_behind": NUMBER_OR_NONE,
    "last_heard": {**NUMBER, "description": "seconds since 1970; 0 for never"},
    "error": TEXT,
}
LEASE: Final[Shape] = {
    "name": TEXT,
    "position": TEXT,
    "from_file": NUMBER,
    "bytes": NUMBER,
    "until": {**NUMBER_OR_NONE, "description": "seconds since 1970; null for ever"},
}
ARCHIVE: Final[Shape] = {
    "health": _HEALTH,
    "where": {**TEXT, "description": "a folder or URL"},
    "position": {
        **OR_NONE,
        "description": "GTID position up to which it has all; null if it cannot be told",
    },
    "parts": NUMBER_OR_NONE,
    "groups": NUMBER_OR_NONE,
    "bytes": NUMBER_OR_NONE,
    "replicas": {
        **NUMBER,
        "description": "that are served from it, as their position was purged here",
    },
    "problem": {**TEXT, "description": "why it is not used: nothing that it may lack is purged"},
}
FILE: Final[Shape] = {
    "name": TEXT,
    "bytes": NUMBER,
    "last_write": {**NUMBER, "description": "seconds since 1970"},
    "wanted": {**FLAG, "description": "a limit of age or size wants it to go"},
    "held_by": {"type": "array", "items": TEXT},
}
ERROR: Final[Shape] = {
    "at": {**NUMBER, "description": "seconds since 1970"},
    "level": TEXT,
    "text": TEXT,
}
SCRUB: Final[Shape] = {
    "passes": {**NUMBER, "description": "since the start of the server"},
    "bytes": {**NUMBER, "description": "read since the start of the server"},
    "last_pass": {**NUMBER_OR_NONE, "description": "its end, in seconds since 1970"},
    "damages": {"type": "array", "items": TEXT, "description": "place and reason of each"},
}
SERVER: Final[Shape] = {
    "version": TEXT,
    "server_version": TEXT,
    "server_id": NUMBER,
    "uptime_s": NUMBER,
    "gtid_binlog_pos": TEXT,
    "health": _HEALTH,
    "missing": {
        "type": "array",
        "items": TEXT,
        "description": "what /readyz says, and why the files cannot be looked at",
    },
    "disk_free_bytes": NUMBER_OR_NONE,
}


def _array(shape: Shape) -> Mapping[str, Any]:
    return {"type": "array", "items": as_object(shape)}


def as_object(shape: Shape) -> Mapping[str, Any]:
    """The JSON schema of an object that has all of these."""
    return {
        "type": "object",
        "properties": dict(shape),
        "required": list(shape),
        "additionalProperties": False,
    }


STATUS: Final[Shape] = {
    "at": {**NUMBER, "description": "seconds since 1970"},
    "server": as_object(SERVER),
    "upstreams": _array(UPSTREAM),
    "replicas": _array(REPLICA),
    "leases": _array(LEASE),
    "archives": _array(ARCHIVE),
    "files": _array(FILE),
    "files_left_out": {**NUMBER, "description": f"older ones than the {FILES_MAX} that are told"},
    "scrub": as_object(SCRUB),
    "errors": _array(ERROR),
}


class Glance:
    """A look at the server for its status. Made on the loop; `read` in a thread, because it asks the store."""

    def __init__(self, server: Observed, lines: RecentLines) -> None:
        self._look = Look(server)
        self._server = server
        connections = list(server.connections)
        self._accounts = {c.id: c.account for c in connections}
        self._acknowledged = {c.id: c.acknowledged for c in connections}
        self._unread = {c.id: c.unread_s() for c in connections}
        self._replicas = ReplicaRows(server.engine, connections)
        self._missing = what_is_missing(server)
        self._upstreams = [_upstream(status) for status in server.upstreams]
        self._lines = lines

    def read(self) -> dict[str, Any]:
        """The status, see `STATUS`. Raises `StorageError`."""
        server = self._server
        leases, fates = self._looked_up()  # first: what is wrong with them is told of the server
        here = [self._replica(row) for row in self._replicas]
        known = {slot_name(row["server_id"], row["account"]) for row in here}
        away = [lease for lease, _ in leases if lease.is_slot and lease.name not in known]
        return {
            "at": time.time(),
            "server": self._of_the_server(),
            "upstreams": self._upstreams,
            "replicas": [*here, *(_away(slot, server.leases.last_position(slot)) for slot in away)],
            "leases": [_lease(lease, held) for lease, held in leases],
            "archives": self._archives(),
            "files": [_file(server.engine, fate) for fate in fates[-FILES_MAX:]],
            "files_left_out": max(0, len(fates) - FILES_MAX),
            "scrub": {
                "passes": server.scrub.passes,
                "bytes": server.scrub.bytes_read,
                "last_pass": server.scrub.last_pass,
                "damages": [str(damage) for damage in server.scrub.damages()],
            },
            "errors": [
                {"at": line.at, "level": line.level, "text": line.text}
                for line in self._lines.newest_first()
            ],
        }

    def _of_the_server(self) -> dict[str, Any]:
        server = self._server
        return {
            "version": version("binlog-server"),
            "server_version": server.config.server_version,
            "server_id": server.config.server_id,
            "uptime_s": server.uptime_s,
            "gtid_binlog_pos": str(server.engine.binlog_state().position()),
            "health": BAD if self._missing else GOOD,
            "missing": [" ".join(line.split()) for line in self._missing],
            "disk_free_bytes": directory_free_bytes(self._look),
        }

    def _looked_up(self) -> tuple[list[tuple[Lease, int]], list[FileFate]]:
        """Leases, with the bytes that they hold, and files. None where the directory cannot be looked at: all else is
        told.
        """
        server = self._server
        try:
            return server.leases.all_held(), server.engine.explain_purge(None, None)
        except StorageError as error:
            self._missing.append(f"store: its files cannot be looked at: {error}")
            return [], []

    def _archives(self) -> list[dict[str, Any]]:
        hold, parts = self._server.archive_hold, self._server.archive_parts
        if hold is None:
            return []
        manifest, problem = None, ""
        try:
            manifest = hold.archive.manifest
        except StorageError as error:
            problem = str(error)
        return [
            {
                "health": BAD if problem else GOOD,
                "where": str(hold.where),
                "position": None if manifest is None else str(manifest.state.position()),
                "parts": None if manifest is None else manifest.count,
                "groups": None if manifest is None else manifest.groups,
                "bytes": None if manifest is None else manifest.size,
                "replicas": 0 if parts is None else parts.replicas,
                "problem": problem,
            }
        ]

    def _replica(self, row: Sequence[Any]) -> dict[str, Any]:
        number, server_id, address, _, sent, _, acknowledged, behind, behind_ms, state = row
        seconds = None if behind_ms is None else behind_ms / 1000
        late, unread = self._unacknowledged(number), self._unread[number]
        stands = max(late or 0.0, unread or 0.0)
        return {
            "health": _health(max(seconds or 0.0, stands) if stands else seconds),
            "state": state,
            "connection": number,
            "server_id": server_id,
            "account": self._accounts[number],
            "address": address,
            "sent": sent,
            "acknowledged": acknowledged,
            "bytes_behind": behind,
            "seconds_behind": seconds,
            "seconds_unacknowledged": late,
            "seconds_unread": unread,
        }

    def _unacknowledged(self, connection: int) -> float | None:
        """What the sockets of a replica that stands still take, megabytes, was sent; it has not got it."""
        place = self._acknowledged[connection]
        return None if place is None or place == NOWHERE else self._look.lag_s(place)


def _away(slot: Lease, position: str) -> dict[str, Any]:
    server_id, account = slot_of(slot.name)
    return {
        "health": BAD,
        "state": "not connected; its slot keeps its files",
        "connection": None,
        "server_id": server_id,
        "account": account,
        "address": None,
        "sent": position,
        "acknowledged": None,
        "bytes_behind": None,
        "seconds_behind": None,
        "seconds_unacknowledged": None,
        "seconds_unread": None,
    }


def _upstream(status: UpstreamStatus) -> dict[str, Any]:
    return {
        "health": _health(status.behind_s) if status.connected else BAD,
        "connection": status.connection,
        "address": status.name,
        "state": status.io_state.text or "stopped",
        "connected": status.connected,
        "version": status.version,
        "server_id": status.server_id,
        "protection": status.protection,
        "seconds_behind": status.behind_s,
        "last_heard": status.last_heard,
        "error": "" if status.connected else status.last_error,
    }


def _lease(lease: Lease, held: int) -> dict[str, Any]:
    return {
        "name": lease.name,
        "position": lease.position,
        "from_file": lease.from_file,
        "bytes": held,
        "until": lease.until,
    }


def _file(engine: EngineReader, fate: FileFate) -> dict[str, Any]:
    return {
        "name": str(engine.file_name(fate.file_no)),
        "bytes": fate.size,
        "last_write": fate.modified,
        "wanted": fate.wanted,
        "held_by": [str(holder) for holder in fate.held_by],
    }


def _health(seconds: float | None) -> str:
    if seconds is None or LATE_S <= seconds < BAD_S:
        return LATE
    return GOOD if seconds < LATE_S else BAD
