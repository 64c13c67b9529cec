"""Faults of streams that a test orders, at real replicas: each does to them what it says."""

from __future__ import annotations

from typing import Any

import pytest

from binlog_server.pytest_plugin import MakeBinlogMaster
from tests.kit.backends import Backend
from tests.kit.fixtures import MakeMariaDB

pytestmark = [pytest.mark.each_version, pytest.mark.by_turns(2)]

LEFT_OUT = [{"a": 2}]
THREE = [{"a": 1}, {"a": 2}, {"a": 3}]


@pytest.mark.by_turns(4)
@pytest.mark.parametrize("ignorable", [False, True])
def test_behind_our_relay_an_event_of_another_version_is_what_it_is_in_front(
    backend: Backend,
    make_replica: MakeMariaDB,
    make_binlog_master: MakeBinlogMaster,
    ignorable: bool,
) -> None:
    master, relay = make_binlog_master(), make_binlog_master(server_id=7, read_only=True)
    master.sql("CREATE DATABASE d; CREATE TABLE d.t (a INT PRIMARY KEY)")
    gtids = [master.rows("d.t", [row]) for row in THREE]
    master.fault("foreign_event", gtid=gtids[1], event=3, event_type=200, ignorable=ignorable)
    relay.sql(
        f"CHANGE MASTER TO MASTER_HOST='{master.host}', MASTER_PORT={master.port}, MASTER_SSL=0, "
        f"MASTER_USER='{master.account.user}', MASTER_PASSWORD='{master.account.password}', "
        "MASTER_USE_GTID=slave_pos; START SLAVE"
    )
    replica = make_replica()
    replica.follow(relay, start=False)
    replica.q("START SLAVE")
    if ignorable:
        replica.wait_gtid(gtids[2])
        assert replica.q("SELECT a FROM d.t ORDER BY a") == THREE
    else:
        assert replica.wait_stopped()["Last_SQL_Errno"] == 1594
        assert replica.q("SELECT a FROM d.t") == THREE[:1]
        assert relay.gtid_binlog_pos == gtids[2]
    assert master.faults_met == [("foreign_event", 1)]


@pytest.mark.by_turns(2)
@pytest.mark.parametrize(
    ("fault", "stopped"),
    [
        ({"do": "error", "errno": 1236, "message": "as ordered"}, ("IO", 1236, "as ordered")),
        ({"do": "garble", "event": 4}, ("IO", 1595, "could not queue event from master")),
        ({"do": "repeat"}, ("SQL", 1062, "Duplicate entry '2'")),
        ({"do": "leave_out"}, None),
        ({"do": "cut", "event": 3, "inside": True}, None),
    ],
    ids=lambda value: value.get("do") if isinstance(value, dict) else "",
)
def test_at_a_replica(
    backend: Backend,
    make_replica: MakeMariaDB,
    make_binlog_master: MakeBinlogMaster,
    fault: dict[str, Any],
    stopped: tuple[str, int, str] | None,
) -> None:
    # Of an .ibb store replicas take events without checksums.
    binlog_master = make_binlog_master(binlog_storage_engine="")
    binlog_master.sql("CREATE DATABASE d; CREATE TABLE d.t (a INT PRIMARY KEY)")
    gtids = [binlog_master.rows("d.t", [row]) for row in THREE]
    binlog_master.fault(gtid=gtids[1], **fault)
    replica = make_replica()
    replica.follow(binlog_master, start=False)
    replica.q("START SLAVE")
    if stopped is None:
        binlog_master.wait_for(replica)
        wanted = [row for row in THREE if fault["do"] != "leave_out" or row not in LEFT_OUT]
        assert replica.q("SELECT a FROM d.t ORDER BY a") == wanted
    else:
        thread, errno, text = stopped
        status = replica.wait_stopped()
        assert status[f"Last_{thread}_Errno"] == errno
        assert text in status[f"Last_{thread}_Error"]
    assert binlog_master.faults_met == [(fault["do"], 1)]
