"""`compare` and `find` at the URL of a running server, ours. tests/integration/test_compare.py has MariaDB's."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from binlog_server.app.app import Server
from binlog_server.app.in_process import running_server
from tests.binlog_server.cli.command import Ran, run
from tests.binlog_server.lab import ROOT

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
    return Path(server.config.binlog_directory)


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
    shutil.copytree(directory(server), earlier)
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
