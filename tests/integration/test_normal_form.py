"""What the store holds is the upstream's binlog, byte by byte, in normal form: no checksums, no end positions.

The expectation is made here from the upstream's own dump, by the layout of an event header alone:

    offset  size  field                 offset  size  field
    0       4     timestamp             9       4     event length
    4       1     type                  13      4     end position
    5       4     server_id             17      2     flags
"""

from __future__ import annotations

import random

import pytest
from binlog_protocol.groups.stored_group import group_gtid
from binlog_protocol.gtid import BinlogState, Gtid

from binlog_server.testing.waiting import until
from tests.integration import store_files
from tests.integration.raw_client import RawClient, all_events, start_markers
from tests.integration.test_restart import NO_GTID_INDEX
from tests.integration.test_statements import FORMATS, ddl, dml
from tests.kit.fixtures import MakeRelay

pytestmark = pytest.mark.any_version

GTID, FORMAT_DESCRIPTION = 162, 15
OF_FILES = {3, 4, FORMAT_DESCRIPTION, 27, 161, 163, 164}
"""STOP, ROTATE, HEARTBEAT, BINLOG_CHECKPOINT, GTID_LIST, START_ENCRYPTION: no part of a group."""
FLAG_ARTIFICIAL = 0x20


def normal(event: bytes, *, checksum: bool) -> bytes:
    if checksum:
        event = event[:9] + (len(event) - 4).to_bytes(4, "little") + event[13:-4]
    return event[:13] + bytes(4) + event[17:]


def groups(events: list[bytes], *, checksum: bool) -> list[bytes]:
    """Everything from one GTID to the next."""
    found: list[bytes] = []
    for event in events:
        if event[4] in OF_FILES or event[17] & FLAG_ARTIFICIAL:
            continue
        if event[4] == GTID:
            found.append(b"")
        found[-1] += normal(event, checksum=checksum)
    return found


@pytest.mark.parametrize("checksum", ["CRC32", "NONE"])
def test_store_equals_upstream(backend: object, checksum: str, make_relay: MakeRelay) -> None:
    upstream, server = make_relay(
        f"--binlog-checksum={checksum}", "--max-binlog-size=65536", table="", max_binlog_size=262144
    )
    for name in FORMATS:
        db = f"d_{name.lower()}"
        upstream.script(f"SET SESSION binlog_format={name}", *ddl(db), *dml(db, name))
    upstream.make_table("d.wide")
    upstream.script(
        "XA START 'x'",
        "INSERT INTO d.wide (a) VALUES ('xa')",
        "XA END 'x'",
        "XA PREPARE 'x'",
        "XA COMMIT 'x'",
        "SET SESSION gtid_domain_id=3",
        "INSERT INTO d.wide (a) SELECT REPEAT('w', 190) FROM d_row.t, d_row.t AS more",
    )
    wanted = groups(all_events(upstream), checksum=checksum == "CRC32")
    state = BinlogState.parse(upstream.gtid_binlog_state)
    until(
        lambda: len(groups(all_events(server), checksum=False)) == len(wanted), "all groups stored"
    )
    with RawClient(server) as client:
        sent = list(client.dump(""))
    server.stop()

    stored = [p for p in store_files.payloads(server.directory) if p[4] != FORMAT_DESCRIPTION]
    assert len(wanted) > 100
    assert stored == wanted
    assert all(payload[4] == GTID for payload in stored)
    assert store_files.binlog_state(server.directory) == state
    # What replicas get is what is stored.
    assert groups(sent, checksum=False) == wanted
    assert all(event[13:17] == bytes(4) for event in sent)


def test_nothing_but_groups_and_start_markers(make_relay: MakeRelay) -> None:
    upstream, server = make_relay(NO_GTID_INDEX, "--max-binlog-size=4096")
    for i in range(50):
        upstream.q("INSERT INTO d.t (a) VALUES (%s)", f"{i}" * 50)
    upstream.q("FLUSH BINARY LOGS")
    assert len(upstream.q("SHOW BINARY LOGS")) > 3
    until(lambda: len(groups(all_events(server), checksum=False)) == 52, "all groups stored")
    server.stop()
    payloads = store_files.payloads(server.directory)
    assert len(payloads) == 53  # files have format descriptions, but only one tells of a start
    assert start_markers(payloads[:1]) == payloads[:1]


@pytest.mark.proves("position", "several domains", "NON_BLOCK", client="any client")
def test_any_position(backend: object, make_relay: MakeRelay, rng: random.Random) -> None:
    """From every position of three domains over several files: the groups that the upstream sends."""
    upstream, server = make_relay(
        NO_GTID_INDEX, table="", max_binlog_size=262144, innodb_binlog_state_interval=65536
    )
    upstream.script("CREATE DATABASE d", "CREATE TABLE d.t (a MEDIUMTEXT)")
    with upstream.connect() as connection, connection.cursor() as cursor:
        for i in range(150):
            cursor.execute(f"SET SESSION gtid_domain_id={rng.choice((0, 5, 7))}")
            cursor.execute("INSERT INTO d.t VALUES (%s)", (f"{i}-" * rng.randrange(1, 4000),))
    every = [g for p in groups(all_events(upstream), checksum=True) if (g := group_gtid(p))]
    until(lambda: len(groups(all_events(server), checksum=False)) == len(every), "all stored")
    assert len(server.q("SHOW BINARY LOGS")) > 2
    for _ in range(25):
        at: dict[int, Gtid] = {}
        for gtid in every[: rng.randrange(len(every) + 1)]:
            at[gtid.domain_id] = gtid
        if at and rng.random() < 0.3:
            del at[rng.choice(list(at))]  # a domain that the replica does not know
        position = ",".join(map(str, at.values()))
        wanted = groups(all_events(upstream, position), checksum=True)
        assert groups(all_events(server, position), checksum=False) == wanted, position
