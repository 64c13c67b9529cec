"""`binlog-server events` on a store that a real upstream filled: its SQL gives another server the same data."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from binlog_server.testing.local import LocalMariaDB
from binlog_server.testing.mariadb import MariaDB
from tests.binlog_server.cli import command
from tests.integration.test_statements import FORMATS, ddl, dml, objects
from tests.kit.backends import Backend
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB, MakeRelay
from tests.kit.server import BinlogServer

pytestmark = [pytest.mark.each_version, pytest.mark.by_turns(2)]

SMALL = 65536  # the least size of a file: many file ends


def cli(*arguments: str | Path) -> bytes:
    ran = command.run(*arguments)
    assert ran.code == 0, ran.err
    return ran.out


def apply(target: MariaDB, script: bytes) -> None:
    """By the client program of that version, as a pipe would."""
    path = target.dir / "script.sql"
    path.write_bytes(script)
    path.chmod(0o644)
    options = [
        "--no-defaults",
        f"--port={target.port}",
        f"--host={target.host}",
        "--user=root",
        "--skip-ssl",
        "--binary-mode",
        "--local-infile=1",
        "--max-allowed-packet=1G",
    ]
    if isinstance(target, LocalMariaDB):
        argv = [*target.install.program("mariadb"), *options]
        done = subprocess.run(argv, input=script, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        return
    try:
        target.run("sh", "-c", f"mariadb {' '.join(options)} < {path}")
    except subprocess.CalledProcessError as error:
        pytest.fail(f"mariadb: {error.output[-2000:]}")


def stored(server: BinlogServer, upstream: MariaDB) -> Path:
    """The directory, once all of the upstream is in it and the server has stopped."""
    server.wait_position(upstream.gtid_binlog_pos)
    server.stop()
    return server.directory


@pytest.mark.by_turns(3)
@pytest.mark.parametrize("binlog_format", FORMATS)
def test_gives_the_same_tables_and_gtids(
    backend: Backend,
    make_upstream: MakeMariaDB,
    binlog_server: MakeBinlogServer,
    binlog_format: str,
) -> None:
    upstream = make_upstream(f"--log-bin-compress={int(binlog_format == 'MIXED')}")
    server = binlog_server(upstream=upstream, max_binlog_size=SMALL)
    upstream.script(
        f"SET SESSION binlog_format={binlog_format}, time_zone='+05:00'",
        *ddl("d"),
        *dml("d", binlog_format),
        "CREATE TABLE u (id INT PRIMARY KEY AUTO_INCREMENT, a VARCHAR(100) CHARACTER SET utf8mb4, b DOUBLE,"
        " c DATETIME(6))",
        "SET @s = _cp1251 x'cff0e8' COLLATE cp1251_bin, @n = NULL, @f = 1e20, @d = -1.50, @i = 18446744073709551615",
        "INSERT INTO u (a, b) VALUES (@s, @f), (@n, @d), (@i, RAND())",
        "INSERT INTO u (a, c) VALUES (UUID(), NOW(6)), (COLLATION(@s), SYSDATE(6))"
        if binlog_format != "STATEMENT"
        else "INSERT INTO u (a, c) VALUES (COLLATION(@s), NOW(6))",
        "SET SESSION auto_increment_increment=7, auto_increment_offset=3, foreign_key_checks=0",
        "INSERT INTO u (a) VALUES ('seven'), ('fourteen')",
        "SET NAMES latin1",
        "INSERT INTO u (a) VALUES (_latin1 x'e9'), ('a;b/*!*/ \\' \\\\ \\n')",
        *(f"INSERT INTO u (a, b) VALUES (REPEAT('{n % 10}', 90), {n})" for n in range(300)),
        "INSERT INTO u (a) SELECT a FROM u",
        "INSERT INTO u (a) SELECT a FROM u",
    )
    upstream.script(  # character sets and time zones one after the other; temporary tables
        f"SET SESSION binlog_format={binlog_format}",
        "CREATE TEMPORARY TABLE d.tmp (a INT)",
        "INSERT INTO d.tmp VALUES (1), (2)",
        "INSERT INTO d.u (b) SELECT a FROM d.tmp",
        "DROP TEMPORARY TABLE d.tmp",
        "XA START 'x', 'y', 3",
        "INSERT INTO d.u (a) VALUES ('xa')",
        "XA END 'x', 'y', 3",
        "XA PREPARE 'x', 'y', 3",
        "XA COMMIT 'x', 'y', 3",
    )
    directory = stored(server, upstream)
    assert len(list(directory.glob("*.ibb"))) > 2
    target = make_upstream("--gtid-strict-mode=0", server_id=upstream.server_id + 1000)
    apply(target, cli("events", directory, "-vv"))
    assert target.checksum() == upstream.checksum()
    assert objects(target, "d") == objects(upstream, "d")
    assert target.gtid_binlog_state == upstream.gtid_binlog_state
    assert target.q("XA RECOVER") == []


@pytest.mark.any_version
def test_piece_by_piece_each_group_once(
    backend: Backend, make_upstream: MakeMariaDB, binlog_server: MakeBinlogServer
) -> None:
    upstream = make_upstream()
    server = binlog_server(upstream=upstream, max_binlog_size=SMALL)
    upstream.make_table()
    for n in range(400):
        upstream.q(f"INSERT INTO d.t (a) VALUES (REPEAT('x', {n % 190}))")
    domain = upstream.server_id
    middle = f"0-{domain}-200"
    directory = stored(server, upstream)
    target = make_upstream("--gtid-strict-mode=1", server_id=domain + 1000)
    apply(target, cli("events", directory, "--stop-position", middle))
    assert target.gtid_binlog_pos == middle
    apply(target, cli("events", directory, "--start-position", middle))
    # A row that came twice would have been refused: its key is there.
    assert target.gtid_binlog_pos == upstream.gtid_binlog_pos
    assert target.checksum() == upstream.checksum()

    # File by file, and all files at once, the same groups.
    files = sorted(directory.glob("*.ibb"))
    filled = [path for path in files if any(path.open("rb").read(4))]
    assert len(filled) > 2
    every = gtids(directory)
    assert len(every) == len(set(every)) == 402
    assert gtids(*filled) == every
    assert [gtid for path in filled for gtid in gtids(path)] == every


@pytest.mark.any_version
def test_large_group_and_large_event(
    backend: Backend, make_upstream: MakeMariaDB, binlog_server: MakeBinlogServer
) -> None:
    """Several BINLOG statements of one statement, and one too long for a packet."""
    upstream = make_upstream()
    server = binlog_server(upstream=upstream, max_binlog_size=4 << 20)
    upstream.make_table()
    upstream.script(
        "USE d",
        "CREATE TABLE d.big (id INT PRIMARY KEY, a LONGBLOB)",
        "INSERT INTO d.t (a) SELECT REPEAT(seq % 10, 200) FROM seq_1_to_20000",
        "UPDATE d.t SET a = CONCAT('u', LEFT(a, 150))",
        "INSERT INTO d.big VALUES (1, REPEAT('large ', 2500000))",
    )
    directory = stored(server, upstream)
    target = make_upstream(server_id=upstream.server_id + 1000)
    script = cli("events", directory)
    assert script.count(b"BINLOG '") > 5
    assert b"@binlog_fragment_1" in script
    target.q("SET GLOBAL max_allowed_packet=67108864")
    apply(target, script)
    assert target.checksum() == upstream.checksum()
    assert target.gtid_binlog_state == upstream.gtid_binlog_state


def test_over_a_restart_of_the_upstream(
    backend: Backend, make_upstream: MakeMariaDB, binlog_server: MakeBinlogServer
) -> None:
    """What a server start ends, the start marker ends in the target's session as well."""
    upstream = make_upstream("--binlog-format=STATEMENT")
    upstream.make_table()
    with upstream.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TEMPORARY TABLE d.tmp (a INT)")
        cursor.execute("INSERT INTO d.tmp VALUES (1), (2)")
        upstream.kill()
    upstream.restart()
    upstream.script(
        "CREATE TEMPORARY TABLE d.tmp (b INT)",
        "INSERT INTO d.tmp VALUES (3)",
        "INSERT INTO d.t (a) SELECT b FROM d.tmp",
        "DROP TEMPORARY TABLE d.tmp",
        "SET SESSION binlog_format=MIXED",
        "INSERT INTO d.t (a) VALUES (UUID())",
    )
    # From the beginning: one that was connected all the time may be told of no restart, as a replica may.
    server = binlog_server(upstream=upstream, max_binlog_size=SMALL)
    directory = stored(server, upstream)
    script = cli("events", directory)
    assert b"started\nROLLBACK/*!*/;" in script
    target = make_upstream(server_id=upstream.server_id + 1000)
    apply(target, script)
    assert target.checksum() == upstream.checksum()
    assert target.gtid_binlog_state == upstream.gtid_binlog_state


def test_choices(
    backend: Backend, make_upstream: MakeMariaDB, binlog_server: MakeBinlogServer
) -> None:
    upstream = make_upstream()
    server = binlog_server(upstream=upstream, max_binlog_size=SMALL)
    upstream.make_table("d.t")
    upstream.make_table("e.t")
    upstream.script(
        "USE e",
        "INSERT INTO d.t (a) VALUES ('in d')",
        "INSERT INTO e.t (a) VALUES ('in e')",
        "BEGIN",
        "INSERT INTO d.t (a) VALUES ('both')",
        "INSERT INTO e.t (a) VALUES ('both')",
        "COMMIT",
        "SET SESSION gtid_domain_id=7",
        "INSERT INTO d.t (a) VALUES ('domain 7')",
        "SET SESSION gtid_domain_id=0, server_id=55",
        "INSERT INTO d.t (a) VALUES ('server 55')",
        "SET SESSION timestamp=1000000000",
        "INSERT INTO d.t (a) VALUES ('long ago')",
    )
    directory = stored(server, upstream)

    def values(*options: str) -> list[str]:
        lines = cli("events", directory, "--json", *options).splitlines()
        return [
            f"{item['table']} {row['after']['@2']}"
            for item in map(json.loads, lines)
            for row in item.get("rows", ())
        ]

    ordinary = ["d.t in d", "e.t in e", "d.t both", "e.t both"]
    assert values() == [*ordinary, "d.t domain 7", "d.t server 55", "d.t long ago"]
    assert values("--table", "e.t") == values("--database", "e") == ["e.t in e", "e.t both"]
    assert values("--table", "t", "--database", "e") == ["e.t in e", "e.t both"]
    assert values("--domain", "7") == ["d.t domain 7"]
    assert values("--server-id", "55") == ["d.t server 55", "d.t long ago"]
    assert values("--stop-datetime", "2001-09-09 01:46:40Z") == []
    assert values("--start-datetime", "2001-09-09 01:46:41Z") == [
        *ordinary,
        "d.t domain 7",
        "d.t server 55",
    ]
    assert "d.t in d" in values("--start-datetime", "2001-09-09 01:46:40Z")
    script = cli("events", directory, "--table", "e.t", "-v")
    assert b"CREATE" not in script
    target = make_upstream(server_id=upstream.server_id + 1000)
    target.make_table("e.t")
    apply(target, script)
    assert target.checksum(["e.t"]) == upstream.checksum(["e.t"])


def test_load_data_and_two_phase_alter(
    backend: Backend,
    make_upstream: MakeMariaDB,
    binlog_server: MakeBinlogServer,
    tmp_path: Path,
) -> None:
    upstream = make_upstream("--local-infile=1")
    server = binlog_server(upstream=upstream, max_binlog_size=SMALL)
    upstream.make_table()
    data = tmp_path / "data.txt"
    data.write_text("".join(f"{n}\trow {n}\n" for n in range(5000)))
    with upstream.connect(local_infile=True) as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION binlog_format=STATEMENT")
        cursor.execute(f"LOAD DATA LOCAL INFILE '{data}' REPLACE INTO TABLE d.t (id, a)")
        cursor.execute("SET SESSION binlog_alter_two_phase=1")
        cursor.execute("ALTER TABLE d.t ADD COLUMN b INT DEFAULT 3")
        cursor.execute("INSERT INTO d.t (a) VALUES ('after')")
    directory = stored(server, upstream)
    target = make_upstream("--local-infile=1", server_id=upstream.server_id + 1000)
    script = cli("events", directory, "--local-load", target.dir / "load")
    for path in (target.dir / "load").iterdir():
        path.chmod(0o644)
    (target.dir / "load").chmod(0o755)
    apply(target, script)
    assert target.checksum() == upstream.checksum()
    refused = command.run("events", directory)
    assert refused.code == 1
    assert "--local-load" in refused.err


@pytest.mark.any_version
def test_beside_a_running_server(backend: Backend, make_relay: MakeRelay) -> None:
    """Of a server at work what it has written out is seen, and nothing is in its way."""
    upstream, server = make_relay(max_binlog_size=SMALL)
    for _ in range(10):
        for _ in range(40):
            upstream.q("INSERT INTO d.t (a) VALUES (REPEAT('x', 190))")
        listing = json.loads(cli("ls", server.directory, "--json"))
        assert all(file["state"] != "damaged" for file in listing)
        cli("events", server.directory)
    stored(server, upstream)
    assert b"sound" in cli("verify", server.directory)
    if isinstance(upstream, LocalMariaDB):  # the upstream's own file tells the same
        classic = upstream.datadir / "upstream-bin.000001"
        assert gtids(classic) == gtids(server.directory)
        assert cli("events", classic, "-v").count(b"### INSERT") == 400


def gtids(*paths: Path) -> list[str]:
    lines = cli("events", *paths, "--json").splitlines()
    return [item["gtid"] for item in map(json.loads, lines) if item["type"] == "GTID"]
