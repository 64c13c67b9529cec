"""`compare`, `find` and `events` at the URL of a running server, ours. tests/integration has MariaDB's."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest
from binlog_protocol.gtid import Gtid
from binlog_storage.disk.read_only_disk import ReadOnlyDisk
from binlog_storage.log.publication import read_published

from binlog_server.app.app import Server
from binlog_server.app.in_process import running_server
from binlog_server.relay.server_history import ServerHistory
from binlog_server.testing.waiting import until
from binlog_server.upstreams.master_info import MasterInfo
from tests.binlog_server.cli.command import Ran, run
from tests.binlog_server.lab import ROOT
from tests.storage.disks import copy_of_running

T = "shop.t"
READER = {"reader": {"password": "pw", "grants": ["REPLICATION SLAVE"]}}
KINDS = {"ibb": {}, "traditional": {"binlog_storage_engine": "", "log_bin": "mariadb-bin"}}
SIZES = {"max_binlog_size": 1 << 22, "innodb_log_file_size": 4 << 20}
NOT_VERIFIED = "--skip-ssl-verify-server-cert"


@pytest.fixture(scope="module", params=KINDS)
def server(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Server]:
    """With a large group in the middle, which comes in parts."""
    kind, path = KINDS[request.param], tmp_path_factory.mktemp("server") / "store"
    with running_server(path, users={**ROOT, **READER}, **SIZES, **kind) as running:
        master = running.master
        master.create_database("shop")
        master.create_table(T, {"id": "INT PRIMARY KEY", "a": "LONGTEXT"})
        for number in range(20):
            insert(running, number, "x")
            if number == 9:
                insert(running, 1000, "large" * 80_000, rows=6)
        running.engine.flush()
        yield running


def insert(server: Server, number: int, text: str, rows: int = 1) -> None:
    with server.master.transaction() as t:
        for row in range(rows):
            t.insert(T, {"id": number + row, "a": text})


def directory(server: Server) -> Path:
    """Once it says how far it is durable, which a thread writes there: behind that nobody reads."""
    path, engine = Path(server.config.binlog_directory), server.engine

    def is_told() -> bool:
        told = read_published(ReadOnlyDisk(path))
        return told is not None and told.end == engine.durable_end

    until(is_told, "the durable end is published")
    return path


def url(server: Server, password: str = "pw") -> str:
    return f"mariadb://reader:{password}@127.0.0.1:{server.port}"


def compared(*arguments: str | Path) -> Ran:
    return run("compare", *arguments, NOT_VERIFIED, "--json")


def test_a_server_and_its_directory(server: Server) -> None:
    store = directory(server)
    ran = compared(url(server), store)
    assert ran.code == 0, ran.err
    told = json.loads(ran.out)
    assert told["first"] == f"mariadb://127.0.0.1:{server.port}"  # without the account
    (domain,) = told["domains"]
    assert (domain["first"], domain["equal"], domain["logged_anew"]) == ("0-1-1", 23, 0)
    assert compared(store, url(server)).code == 0
    assert compared(url(server), url(server)).code == 0


def test_what_is_behind_the_end(server: Server, tmp_path: Path) -> None:
    """The last block is read again, from the server too."""
    earlier = tmp_path / "earlier"
    copy_of_running(directory(server), earlier)
    insert(server, 3000, "behind")
    ran = compared(url(server), earlier)
    (domain,) = json.loads(ran.out)["domains"]
    assert (ran.code, domain["last"], domain["only_first"]) == (0, "0-1-23", 1), ran.err


def test_find(server: Server) -> None:
    ran = run("find", url(server), NOT_VERIFIED, "--larger-than", "1M", "--json")
    assert ran.code == 0, ran.err
    (found,) = map(json.loads, ran.lines)
    assert (found["gtid"], found["before"], found["behind"]) == ("0-1-13", "0-1-12", "0-1-13")
    assert found["size"] > 2_400_000
    ran = run("find", url(server), NOT_VERIFIED, "--table", T, "--op", "create", "--json")
    assert [json.loads(line)["gtid"] for line in ran.lines] == ["0-1-1", "0-1-2"]
    assert run("find", url(server), NOT_VERIFIED, "--gtid", "0-1-5").code == 0
    assert run("find", url(server), NOT_VERIFIED, "--gtid", "0-1-500").code == 1


def events(*arguments: str | Path) -> list[dict[str, Any]]:
    """Without where they are."""
    ran = run("events", *arguments, "--json")
    assert ran.code == 0, ran.err
    return [
        {key: value for key, value in json.loads(line).items() if key not in ("file", "offset")}
        for line in ran.lines
    ]


def insert_some(server: Server) -> None:
    for number in range(4):
        insert(server, 4000 + number, "follows")


def last(server: Server) -> Gtid:
    gtid = server.engine.binlog_state(0).last(0)
    assert gtid is not None
    return gtid


def test_events(server: Server) -> None:
    server.engine.flush()
    there = events(url(server), NOT_VERIFIED)
    stored = [event for event in events(directory(server)) if "gtid" in event]
    assert there == stored
    behind = events(url(server), NOT_VERIFIED, "--start-position", "0-1-20")
    assert behind == [event for event in stored if int(event["gtid"].split("-")[2]) > 20]
    part = events(url(server), NOT_VERIFIED, "--start-position=0-1-3", "--stop-position=0-1-5")
    assert {event["gtid"] for event in part} == {"0-1-4", "0-1-5"}
    assert events(url(server), NOT_VERIFIED, "--start-position", "latest") == []
    ran = run("events", url(server), NOT_VERIFIED, "--stop-position", "0-1-5000")
    assert "0-1-5000 is not in the binlog of 127.0.0.1" in ran.err


def test_events_that_come(server: Server) -> None:
    begin = last(server)
    until = Gtid(0, 1, begin.seq_no + 3)
    coming = threading.Thread(target=insert_some, args=(server,))
    coming.start()
    follow = (url(server), NOT_VERIFIED, "--follow", "--start-position", str(begin))
    seen = events(*follow, "--stop-position", str(until))
    coming.join()
    gtids = [event["gtid"] for event in seen if "rows" in event]
    assert gtids == [str(Gtid(0, 1, begin.seq_no + n)) for n in (1, 2, 3)]


def dumps(server: Server) -> list[int]:
    with root(server) as cursor:
        cursor.execute("SHOW PROCESSLIST")
        return [row[0] for row in cursor.fetchall() if row[4] == "Binlog Dump"]


@contextlib.contextmanager
def root(server: Server) -> Iterator[Any]:
    connected = pymysql.connect(host="127.0.0.1", port=server.port, user="root", password="pw")
    with connected, connected.cursor() as cursor:
        yield cursor


def test_a_connection_that_is_lost_is_made_again(server: Server) -> None:
    told: list[str] = []
    info = MasterInfo.from_url(url(server))
    history = ServerHistory(dataclasses.replace(info, ssl_verify_server_cert=False))
    with contextlib.closing(history):
        coming = history.follow(history.end.position(), told.append)
        got = []
        for n in range(3):
            insert(server, 5000 + n, "x")
            wanted = last(server)
            group = next(coming)
            got.append(group.gtid)
            assert group.gtid == wanted
            with root(server) as cursor:
                cursor.execute(f"KILL {dumps(server)[0]}")
        assert len(set(got)) == 3
        assert len(told) == 2
        assert "connecting again" in told[0]


def test_only_a_server_is_followed(server: Server) -> None:
    ran = run("events", directory(server), "--follow")
    assert (ran.code, "--follow is for a server" in ran.err) == (2, True)
    ran = run("events", url(server), directory(server))
    assert "a server stands alone" in ran.err
    ran = run("events", directory(server), "--start-position", "latest")
    assert ran.code == 2


def test_what_cannot_be_read(server: Server) -> None:
    ran = run("compare", url(server, "wrong"), directory(server), NOT_VERIFIED)
    assert (ran.code, "1045 (28000): Access denied" in ran.err) == (2, True)
    ran = run("find", url(server), directory(server), "--gtid", "0-1-1", NOT_VERIFIED)
    assert "a server stands alone" in ran.err
    nobody = "mariadb://reader:pw@127.0.0.1:1"
    ran = run("compare", nobody, directory(server), NOT_VERIFIED)
    assert (ran.code, "is the server up" in ran.err) == (2, True)
    assert "pw" not in ran.err


def test_purged(server: Server) -> None:
    """The beginning of a binlog in the engine is found by what is refused, of a traditional one in its first file.

    It is the last one here: the server is that of the others.
    """
    server.engine.set_option("slave_connections_needed_for_purge", 0)
    server.engine.flush()
    before = server.engine.binlog_state(0).last(
        0
    )  # other tests here may have committed, or run elsewhere
    insert(server, 2000, "behind")
    last = server.engine.binlog_state(0).last(0)
    assert server.engine.purge_to(server.engine.files()[-1].number).delete
    server.engine.sync()
    ran = run("find", url(server), NOT_VERIFIED, "--table", T, "--json")
    (found,) = map(json.loads, ran.lines)
    assert (found["gtid"], found["before"]) == (str(last), str(before)), ran.err
