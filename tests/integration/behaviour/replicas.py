"""A scenario at one replica: a real MariaDB, or our relay; and what came of it, in a few words."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any, Final, Protocol

from binlog_server.testing.found import running_replica
from binlog_server.testing.mariadb import MariaDB
from binlog_server.testing.master import BinlogMaster
from binlog_server.testing.running import running_master
from binlog_server.testing.sql_server import Row
from binlog_server.testing.waiting import until

from .corpus import Scenario

_PARALLEL: Final = ("--slave-parallel-threads=4", "--slave-parallel-mode=optimistic")
COLUMNS: Final = {
    "10.11": ("10.11", ()),
    "10.11, parallel": ("10.11", _PARALLEL),
    "11.8": ("11.8", ()),
    "11.8, parallel": ("11.8", _PARALLEL),
}
"""Real replicas: version and flags."""
OURS: Final = "binlog-server"
_SERVER_ID: Final = 77
_ROWS: Final = 4
_PATIENCE_S: Final = 60.0
_STILL_S: Final = 3.0
_COUNTER: Final = {"do": "delay", "on": "connect", "seconds": 1e-6, "times": 0}
"""Counts connections."""


class Subject(Protocol):
    """Who follows."""

    def clear(self, net_timeout: int) -> None:
        """Forget every master and every group."""

    def sql(self, text: str) -> list[Row]: ...
    def position(self) -> str:
        """The GTIDs that it has."""

    def rows(self) -> list[int]:
        """The rows that it has, in the order of their groups where it is known."""


class RealReplica:
    """A MariaDB, used again for each scenario."""

    def __init__(self, server: MariaDB) -> None:
        self._server = server

    def clear(self, net_timeout: int) -> None:
        self._server.script(
            "STOP SLAVE",
            "RESET SLAVE ALL",
            "DROP DATABASE IF EXISTS d",
            "SET GLOBAL gtid_slave_pos=''",
            f"SET GLOBAL slave_net_timeout={net_timeout}",
            f"SET GLOBAL server_id={_SERVER_ID}",
        )

    def sql(self, text: str) -> list[Row]:
        return self._server.q(text)

    def position(self) -> str:
        return self._server.gtid_slave_pos

    def rows(self) -> list[int]:
        if "d.t" not in self._server.tables():
            return []
        return [row["a"] for row in self._server.q("SELECT a FROM d.t ORDER BY a")]


class OurRelay:
    """A server of ours with no tables: it holds what it was sent. Rows by the GTIDs of their groups."""

    _running: contextlib.ExitStack | None = None
    _server: BinlogMaster

    def clear(self, net_timeout: int) -> None:
        self.close()
        self._running = contextlib.ExitStack()
        self._server = self._running.enter_context(
            running_master(server_id=_SERVER_ID, slave_net_timeout=net_timeout, read_only=True)
        )

    def close(self) -> None:
        if self._running is not None:
            self._running.close()

    def sql(self, text: str) -> list[Row]:
        return self._server.sql(text)

    def position(self) -> str:
        return self._server.gtid_binlog_pos

    def rows(self) -> list[int]:
        end = self.position()
        events: list[Row] = []

        def is_read() -> bool:
            # Readers see what is durable; the position is there before.
            events[:] = self._server.sql("SHOW BINLOG EVENTS")
            return any(event["Info"].endswith(f"GTID {end}") for event in events)

        until(is_read, f"{end} can be read", _PATIENCE_S)
        found = [re.search(r"GTID 0-1-(\d+)", event["Info"]) for event in events]
        return [int(one[1]) - 2 for one in found if one and int(one[1]) > 2]


@contextlib.contextmanager
def subject(column: str) -> Iterator[Subject]:
    """Of one column of the page. Raises `NoMariaDB`."""
    if column == OURS:
        relay = OurRelay()
        try:
            yield relay
        finally:
            relay.close()
        return
    version, flags = COLUMNS[column]
    with running_replica(*flags, version=version, server_id=_SERVER_ID) as server:
        yield RealReplica(server)


def outcome(scenario: Scenario, replica: Subject) -> str:
    """What comes of it."""
    replica.clear(scenario.net_timeout)
    options: dict[str, Any] = {"server_id": _SERVER_ID} if scenario.same_server_id else {}
    with running_master(binlog_storage_engine="", **options) as master:
        master.sql("CREATE DATABASE d; CREATE TABLE d.t (a INT PRIMARY KEY)")
        mark = None
        for row in range(1, _ROWS + 1):
            if scenario.master and row == _ROWS:
                mark = master.mark()
            master.rows("d.t", [{"a": row}])
        end = master.gtid_binlog_pos
        for fault in (_COUNTER, *scenario.faults):
            master.fault(**fault)
        _follow(replica, master, scenario.link)
        came = _settled(replica, end)
        if mark is not None and not came:
            master.go_back(mark)
            if scenario.master == "differs":
                master.rows("d.t", [{"a": 99}])
                end = master.rows("d.t", [{"a": _ROWS + 1}])
            came = _settled(replica, end, away=True)
        return came or _went_on(replica, master, scenario)


def _follow(replica: Subject, master: BinlogMaster, link: str) -> None:
    account = master.account
    replica.sql(
        f"CHANGE MASTER TO MASTER_HOST='{master.host}', MASTER_PORT={master.port}, MASTER_USER='{account.user}', "
        f"MASTER_PASSWORD='{account.password}', MASTER_USE_GTID=slave_pos, MASTER_CONNECT_RETRY=1, {link}"
    )
    replica.sql("START SLAVE")


def _settled(replica: Subject, end: str, *, away: bool = False) -> str:
    """Empty when it has all; else the thread that has stopped, or that it is still trying.

    away: the master has been away, so the replica must have come again, and be there for a while.
    """
    found: list[str] = []

    def has_stopped() -> bool:
        status = replica.sql("SHOW SLAVE STATUS")[0]
        for thread in ("IO", "SQL"):
            errno = status[f"Last_{thread}_Errno"]
            if status[f"Slave_{thread}_Running"] == "No" and errno:
                found.append(f"{thread} thread stops, {errno}")
        return bool(found)

    def is_settled() -> bool:
        return has_stopped() or replica.position() == end

    try:
        if away:
            with contextlib.suppress(TimeoutError):
                until(has_stopped, "it stops", _STILL_S)
        if not found:
            until(is_settled, f"the end {end}", _PATIENCE_S)
    except TimeoutError:
        status = replica.sql("SHOW SLAVE STATUS")[0]
        return f"tries again for ever, {status['Last_IO_Errno']}"
    return found[0] if found else ""


def _went_on(replica: Subject, master: BinlogMaster, scenario: Scenario) -> str:
    rows = replica.rows()
    words = ["goes on"]
    if scenario.master == "differs":
        if 99 not in rows or _ROWS in rows:
            words.append("what it has is not what the master has")
    elif scenario.master:
        words.append("with a group that the master has not")
    else:
        again = master.faults_met[0][1] > 1
        words.append("after it has connected again" if again else "with the same connection")
        lost = [str(row) for row in range(1, _ROWS + 1) if row not in rows]
        if lost:
            words.append(f"**row {', '.join(lost)} is lost**")
        if len(rows) > len(set(rows)):
            words.append("a group is there twice")
    return ", ".join(words)
