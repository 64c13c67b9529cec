"""A scenario at one replica: a real MariaDB, or our relay; and what came of it, in a few words."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol

import pymysql

from binlog_server.testing.found import running_replica
from binlog_server.testing.mariadb import MariaDB
from binlog_server.testing.master import BinlogMaster
from binlog_server.testing.master_process import MasterProcess
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
_COUNTER: Final[Mapping[str, Any]] = {"do": "delay", "on": "connect", "seconds": 1e-6, "times": 0}
"""Counts connections."""


class Subject(Protocol):
    """Who follows."""

    def clear(self, scenario: Scenario) -> None:
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

    def clear(self, scenario: Scenario) -> None:
        self._server.script(
            "STOP SLAVE",
            "RESET SLAVE ALL",
            "DROP DATABASE IF EXISTS d",
            "SET GLOBAL gtid_slave_pos=''",
            f"SET GLOBAL slave_net_timeout={scenario.net_timeout}",
            f"SET GLOBAL rpl_semi_sync_slave_enabled={scenario.semi_sync:d}",
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

    def clear(self, scenario: Scenario) -> None:
        self.close()
        self._running = contextlib.ExitStack()
        self._server = self._running.enter_context(
            running_master(
                server_id=_SERVER_ID,
                slave_net_timeout=scenario.net_timeout,
                rpl_semi_sync_slave_enabled=scenario.semi_sync,
                read_only=True,
            )
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
    replica.clear(scenario)
    with running_master(process=scenario.dies, **_options(scenario)) as master:
        master.sql("CREATE DATABASE d; CREATE TABLE d.t (a INT PRIMARY KEY, b LONGTEXT)")
        for row in range(1, _ROWS):
            master.rows("d.t", [{"a": row}])
        if scenario.goes_back:
            _order(scenario, master)
        end, before = "", 0
        if not scenario.semi_sync:
            end = master.rows("d.t", [{"a": _ROWS}])
        if not scenario.goes_back and not scenario.semi_sync:
            _order(scenario, master)
        _follow(replica, master, scenario.link)
        if scenario.semi_sync:
            # Rows were logged when nobody was there: commits wait again when it has acknowledged those.
            until(lambda: _status(master, "status") == "ON", "it acknowledges", _PATIENCE_S)
            master.sql(f"SET GLOBAL rpl_semi_sync_master_timeout={scenario.patience_ms}")
            before = int(_status(master, "no_tx"))
            _order(scenario, master)
            end = master.rows("d.t", [{"a": _ROWS}])
        came = _settled(replica, end)
        if scenario.goes_back and not came:
            came = _settled(replica, master.rows("d.t", [{"a": _ROWS + 1}]), away=True)
        if scenario.dies and not came:
            _die(master)
            came = _settled(replica, master.rows("d.t", [{"a": _ROWS + 1}]))
        came = came or _went_on(replica, master, scenario)
        in_vain = scenario.semi_sync and int(_status(master, "no_tx")) > before
        return f"{came}, its commit has waited in vain" if in_vain else came


def _options(scenario: Scenario) -> dict[str, Any]:
    """Of the master. Replicas of an .ibb store ask for no checksums; that is where transactions are out of band."""
    options: dict[str, Any] = {"binlog_storage_engine": "innodb" if scenario.dies else ""}
    if scenario.same_server_id:
        options["server_id"] = _SERVER_ID
    if scenario.dies:
        options["binlog_cache_size"] = 4096
    if scenario.semi_sync:
        options |= {
            "rpl_semi_sync_master_enabled": True,
            "rpl_semi_sync_master_timeout": 1000,
        }
    return options


def _order(scenario: Scenario, master: BinlogMaster) -> None:
    for fault in (_COUNTER, *scenario.faults):
        master.fault(**fault)


def _die(master: BinlogMaster) -> None:
    assert isinstance(master, MasterProcess), "it has a process of its own"
    with master.connect() as connection, connection.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("INSERT INTO d.t VALUES (77, %s)", ["x" * 20_000])
        with contextlib.suppress(pymysql.OperationalError):
            cursor.execute("INSERT INTO d.t VALUES (78, 'y')")
    master.kill()  # returns when it has ended
    master.start()


def _status(master: BinlogMaster, name: str) -> str:
    (row,) = master.sql(f"SHOW STATUS LIKE 'Rpl_semi_sync_master_{name}'")
    return str(row["Value"])


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
    if scenario.goes_back:
        if rows != [row["a"] for row in master.sql("SELECT a FROM d.t ORDER BY a")]:
            words.append("what it has is not what the master has")
        return ", ".join(words)
    # A master that has died has no connection of before; who comes at once is there before any could be counted.
    again = scenario.dies or master.faults_met[0][1] > (0 if scenario.semi_sync else 1)
    words.append("after it has connected again" if again else "with the same connection")
    lost = [str(row) for row in range(1, _ROWS + 1) if row not in rows]
    if lost:
        words.append(f"**row {', '.join(lost)} is lost**")
    if len(rows) > len(set(rows)):
        words.append("a group is there twice")
    if 77 in rows:
        words.append("with a group that the master has not")
    return ", ".join(words)
