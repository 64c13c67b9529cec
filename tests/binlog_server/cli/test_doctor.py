"""`binlog-server doctor`: what it finds, and that it changes nothing."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path

import pytest

from binlog_server.cli import main
from binlog_server.cli.doctor import ERROR, OK, WARNING, judged
from binlog_server.cli.troubles import TROUBLES, about, page
from binlog_server.settings.config import Config
from tests.protocol.errors_page import kinds

PAGE = (Path(__file__).parents[3] / "docs" / "troubleshooting.md").read_text("utf-8")
REPLICAS = (Path(__file__).parents[3] / "docs" / "replica-behaviour.md").read_text("utf-8")
GOOD = {
    "log_bin": "ON",
    "server_id": "2",
    "binlog_format": "MIXED",
    "binlog_row_metadata": "FULL",
    "binlog_row_image": "FULL",
    "version": "11.8.9-MariaDB",
}
MAY = ["GRANT REPLICATION SLAVE ON *.* TO `repl`@`%`"]


@pytest.mark.parametrize(
    ("values", "grants", "apart_s", "expected"),
    [
        ({}, MAY, 0.5, []),
        ({}, ["GRANT ALL PRIVILEGES ON *.* TO `root`@`%`"], 0, []),
        ({"log_bin": "OFF"}, MAY, 0, [(ERROR, "it has no binlog")]),
        ({"server_id": "1"}, MAY, 0, [(ERROR, "it has our server_id, 1")]),
        ({}, ["GRANT USAGE ON *.* TO `repl`@`%`"], 0, [(ERROR, "the account may not replicate")]),
        ({"binlog_format": "STATEMENT"}, MAY, 0, [(WARNING, "binlog_format=STATEMENT")]),
        ({"binlog_row_metadata": "NO_LOG"}, MAY, 0, [(WARNING, "binlog_row_metadata=NO_LOG")]),
        ({"binlog_row_image": "MINIMAL"}, MAY, 0, [(WARNING, "binlog_row_image=MINIMAL")]),
        ({"binlog_row_metadata": ""}, MAY, 0, []),  # before 10.5
        ({}, MAY, 3, [(WARNING, "its clock and ours are 3 s apart")]),
    ],
)
def test_upstreams_are_judged(
    values: dict[str, str], grants: list[str], apart_s: float, expected: list[tuple[str, str]]
) -> None:
    found = list(judged(Config(Path("/d")), {**GOOD, **values}, grants, apart_s))
    assert found[0] == (OK, "MariaDB 11.8.9-MariaDB answers")
    assert [level for level, _ in found[1:]] == [level for level, _ in expected]
    for (_, text), (_, begin) in zip(found[1:], expected, strict=True):
        assert text.startswith(begin)


def doctor(folder: Path, text: str, *more: str) -> int:
    path = folder / "server.toml"
    path.write_text(text)
    return main(["doctor", "--config", str(path), "--directory", str(folder / "store"), *more])


def test_a_machine_that_is_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor(tmp_path, 'listen = "127.0.0.1:0"\nmax_binlog_size = "64K"\n', "--json") == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {one["level"] for one in found} == {OK}
    assert [one["about"] for one in found] == [
        *("configuration", "TLS", str(tmp_path / "store"), "listen", "upstreams")
    ]
    assert not (tmp_path / "store").exists()


def test_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        closed = nobody.getsockname()[1]
        port = taken.getsockname()[1]
        text = (
            f'listen = "127.0.0.1:{port}"\nssl_cert = "/no/such"\nssl_key = "/no/such"\n'
            f'upstream = "mariadb://u:p@127.0.0.1:{closed}"\nmax_binlog_total_size = 1\n'
        )
        assert doctor(tmp_path, text) == 1
    out = capsys.readouterr().out
    assert "warning  configuration: max_binlog_total_size = 1 cannot be kept" in out
    assert "error    TLS: ssl_cert, ssl_key, ssl_ca: " in out
    assert f"warning  listen: 127.0.0.1:{port}: " in out
    assert f"error    upstream 127.0.0.1:{closed}: " in out
    assert "Nothing listens" not in out  # causes are for --error; here stands what to do
    assert "Look at host and port" in out


@pytest.mark.parametrize("place", ["192.0.2.1:3306", "[2001:db8::1]:3306"])
def test_an_address_of_others(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not one that is taken, as by the server itself: it cannot listen there."""
    assert doctor(tmp_path, f"listen = '{place}'") == 1
    assert "error    listen: " in (told := capsys.readouterr().out)
    assert "as it should be" not in told


@pytest.mark.parametrize(
    ("key_file", "told"),
    [("", "file-key-management-filename is not set"), ("/no/such", "File '/no/such' not found")],
)
def test_a_key_file_that_is_not_there(
    key_file: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server would not start; the check of the configuration says so, too."""
    text = f"binlog_storage_engine = ''\nencrypt_binlog = true\nfile_key_management_filename = '{key_file}'\n"
    assert doctor(tmp_path, f"listen = '127.0.0.1:0'\n{text}") == 1
    assert f"error    encryption: {told}" in capsys.readouterr().out
    command = ["serve", "--config", str(tmp_path / "server.toml"), "--check-config"]
    assert main([*command, "--directory", str(tmp_path / "store")]) == 2
    assert told in capsys.readouterr().err


def test_a_directory_of_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`serve` would refuse it."""
    (tmp_path / "store").mkdir()
    (tmp_path / "store/ibdata1").touch()
    assert main(["doctor", "--directory", str(tmp_path / "store"), "--listen", "127.0.0.1:0"]) == 1
    out = capsys.readouterr().out
    assert "is not a binlog store: it holds 'ibdata1'" in out
    assert "listen: 127.0.0.1:0 is free" in out


def test_a_link_to_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "disk")
    assert main(["doctor", "--directory", str(link), "--listen", "127.0.0.1:0"]) == 1
    assert "link is a symbolic link to" in capsys.readouterr().out


def test_an_error_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["doctor", "--error", "Got fatal error 1236: 'The slave was dropped: it lags'"]) == 0
    )
    out = capsys.readouterr().out
    assert out.startswith('1236 "The slave was dropped"')
    assert "MAX_LAG_SECONDS" in out
    assert main(["doctor", "--error", "never seen"]) == 1
    assert "not known here" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "shown", "remedy"),
    [
        (
            "ERROR 1947 (HY000): Specified GTID 0-1-36 conflicts with the binary log which contains a more recent GTID "
            "0-4-37. If MASTER_GTID_POS=CURRENT_POS is used, the binlog position will override the new value",
            "1947, 1948",
            "RESET MASTER",
        ),
        (
            "Specified value for @@gtid_slave_pos contains no value for replication domain 0. This conflicts with the "
            "binary log which contains GTID 0-1-5.",
            "1947, 1948",
            "RESET MASTER",
        ),
        (
            "ERROR: Binary logs never reached expected GTID state of 0-1-5",
            "mariadb-binlog",
            "binlog.000001",
        ),
        (
            "Could not find server version: Master reported unrecognized MariaDB version '11.8.9-MariaDB'.",
            "mariadb-binlog",
            "SERVER_VERSION",
        ),
        (
            "ERROR 2002 (HY000): Can't connect to local server through socket '/run/mysqld/mysqld.sock' (2)",
            "2002",
            "-h 127.0.0.1",
        ),
        ("ERROR 2002 (HY000): Can't connect to server on 'db1' (111)", "2003", "host and port"),
        ("SSL connection error: Failed to verify the server certificate", "2026", "MASTER_SSL_CA"),
        ("SSL connection error: Failed to set ciphers to use", "2026", "MASTER_SSL_CIPHER=''"),
        (
            "SSL connection error: SSL_CTX_set_default_verify_paths failed",
            "2026",
            "RESET SLAVE ALL",
        ),
    ],
)
def test_what_a_dba_meets_first(text: str, shown: str, remedy: str) -> None:
    first = next(iter(about(text)))
    assert first.shown.startswith(shown)
    assert remedy in first.remedy


def test_the_page_is_made_of_the_table() -> None:
    assert page() in PAGE, "docs/troubleshooting.md: paste troubles.page()"


def test_each_row_finds_what_it_shows() -> None:
    for trouble in TROUBLES:
        shown = re.sub(r" \(missing.*", "", trouble.shown).replace(" ... ", " x ")
        texts = [shown.replace("...", "x"), *re.findall('"([^"]+)"', trouble.shown)]
        assert any(trouble in about(text) for text in texts), trouble.shown


@pytest.mark.long
def test_each_error_of_the_server_is_known() -> None:
    """Of docs/errors.md, by its text; who is thrown out by it finds a row of its own."""
    for name, kind in kinds().items():
        said = re.sub(r"\{\w+\}", "x", kind.text)
        found = about(f"ERROR {kind.errno} ({kind.sqlstate}): {said}")
        assert found, name
        assert not kind.fatal or found[0] in TROUBLES, name
        assert about(said) or len(said) < 8, name
        assert all(one.cause and one.remedy for one in found)


def test_each_number_of_a_replica_is_known() -> None:
    """Of docs/replica-behaviour.md: what stops a replica, and what a master said to it."""
    numbers = set(re.findall(r"\b(?:stops, |\| |ERRNO=|\()(1\d{3}|4\d{3})\b", REPLICAS))
    assert {"1062", "1193", "1236", "1593", "1594", "1595", "1040", "1227"} <= numbers
    for number in numbers:
        assert any(one in TROUBLES for one in about(f"Last_IO_Errno: {number}")), number


# As replicas, clients and masters of MariaDB 10.11 and 11.8 say them, by what tells of the cause: the number first.
SAID = """
1236 'log event entry exceeded max_allowed_packet; Increase max_allowed_packet on master'
1236 'binlog truncated in the middle of event; consider out of disk space on master'
1236 'bogus data in log event; the first event 'bin.000001' at 4'
1236 'event read from binlog did not pass crc check; the first event 'bin.000001' at 4'
1236 'Slave can not handle replication events with the checksum that master is configured to log'
1236 'Misconfigured master - server_id was not set'
1236 'Binary log is not open'
1236 which is not in the master's binlog ... it probably means that the slave has diverged
1032 Could not execute Delete_rows_v1 event on table d.t; Can't find record in 't', Error_code: 1032;
1062 Could not execute Write_rows_v1 event on table d.t; Duplicate entry '1' for key 'PRIMARY'
1197 Multi-statement transaction required more than 'max_binlog_cache_size' bytes of storage
1201 Could not initialize master info structure for ''; more error messages can be found
1205 Slave SQL thread retried transaction 10 time(s) in vain, giving up.
1205 Lock wait timeout exceeded; try restarting transaction
1205 Deadlock found when trying to get lock; try restarting transaction
1290 The MariaDB server is running with the --read-only option so it cannot execute this statement
1452 Cannot add or update a child row: a foreign key constraint fails (`d`.`c`, CONSTRAINT `x`)
1590 The incident LOST_EVENTS occured on the master. Message: error writing to the binary log
1595 Unexpected master's heartbeat data: heartbeat is not compatible with local info
1677 Column 1 of table 'd.t' cannot be converted from type 'varchar(100)' to type 'varchar(50)'
1677 Table definition on master and slave does not match: Column 0 type mismatch
1932 Unable to load replication GTID slave state from mysql.gtid_slave_pos: Table 'x' doesn't exist
1950 An attempt was made to binlog GTID 0-1-5 which would create an out-of-order sequence number
1964 Commit failed due to failure of an earlier commit on which this one depends
2003 message: Can't connect to server on '10.0.0.5' (110 "Connection timed out")
2005 message: Unknown server host 'db1' (-2)
2013 Lost connection to server at 'handshake: reading initial communication packet'
2013 Server has gone away
2013 Master command COM_REGISTER_SLAVE failed: failed registering on master, reconnecting
2026 TLS/SSL error: certificate has expired
2026 TLS/SSL error: Validation of SSL server certificate failed
2026 TLS/SSL error: tlsv1 alert protocol version
2026 TLS/SSL error: self-signed certificate in certificate chain
2059 Authentication plugin 'caching_sha2_password' cannot be loaded: no such file
"""


@pytest.mark.parametrize("line", SAID.strip().splitlines())
def test_what_a_mariadb_says_is_known(line: str) -> None:
    """By its text alone, one cause each; by its number, where that stands in the text of a replica."""
    number, text = line.split(" ", 1)
    (one,) = about(text)
    assert one in TROUBLES
    assert number in one.shown
    if number.startswith("1"):
        assert any(one in TROUBLES for one in about(f"Last_SQL_Errno: {number}"))


def test_a_number_of_many_texts_tells_of_the_one_that_came() -> None:
    assert [one.is_general for one in about("Got fatal error 1236: 'no reason'")] == [True]
    (one,) = about("Got fatal error 1236: 'Could not find first log file name'")
    assert not one.is_general
    assert about("10.0.0.42 said 41 words") == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "Fatal error: the key file /srv/k of passwords cannot be used: No such file",
            "the key file",
        ),
        ("ERROR 1378 (HY000): A purgeable log is in use, will not purge", "1378"),
        ("as you have a running slave ''; run STOP SLAVE '' first", "1198"),
        ("Failed to set up special execution directory in /var/lib: File exists", "238"),
    ],
)
def test_what_a_page_leads_to(text: str, shown: str) -> None:
    """Texts that somebody meets who goes by the documents, and that told of something else, or of nothing."""
    (found,) = about(text)
    assert shown in found.shown
    assert found in TROUBLES
