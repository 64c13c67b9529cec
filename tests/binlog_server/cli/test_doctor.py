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
        *("configuration", "TLS", str(tmp_path / "store"), "listen")
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


def test_a_directory_of_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`serve` would refuse it."""
    (tmp_path / "store").mkdir()
    (tmp_path / "store/ibdata1").touch()
    assert main(["doctor", "--directory", str(tmp_path / "store"), "--listen", "127.0.0.1:0"]) == 1
    out = capsys.readouterr().out
    assert "is not a binlog store: it holds 'ibdata1'" in out
    assert "listen: 127.0.0.1:0 is free" in out


def test_an_error_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["doctor", "--error", "Got fatal error 1236: 'The slave was dropped: it lags'"]) == 0
    )
    out = capsys.readouterr().out
    assert out.startswith('1236 "The slave was dropped"')
    assert "MAX_LAG_SECONDS" in out
    assert main(["doctor", "--error", "never seen"]) == 1
    assert "not known here" in capsys.readouterr().err


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


def test_a_number_of_many_texts_tells_of_the_one_that_came() -> None:
    assert [one.is_general for one in about("Got fatal error 1236: 'no reason'")] == [True]
    (one,) = about("Got fatal error 1236: 'Could not find first log file name'")
    assert not one.is_general
    assert about("10.0.0.42 said 41 words") == []
