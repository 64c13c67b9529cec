"""Lines of the log: what they hold, and that nobody can forge one."""

from __future__ import annotations

import io
import json
import logging
import time
from typing import Any

import pytest
from binlog_protocol.errors import AccessDenied, RemoteError
from binlog_protocol.gtid import Gtid
from hypothesis import given
from hypothesis import strategies as st

from binlog_server.process.logs import (
    JSON,
    TEXT,
    JsonFormatter,
    Peer,
    PeerLimit,
    TextFormatter,
    set_up_logging,
)

log = logging.getLogger("binlog_server.test")

NASTY = st.text(st.characters(codec=None), max_size=20)
PEER = Peer(7, "10.0.0.1:4711", "repl")


def record(message: str, *args: Any, exc_info: Any = None) -> logging.LogRecord:
    return log.makeRecord(log.name, logging.WARNING, "f.py", 1, message, args, exc_info)


def fields(message: str, *args: Any) -> dict[str, Any]:
    """Of the line in JSON, without those that every line has."""
    line: dict[str, Any] = json.loads(JsonFormatter().format(record(message, *args)))
    return {k: v for k, v in line.items() if k not in ("ts", "level", "logger", "message")}


def test_json() -> None:
    made = record("dump starts: %(peer)s, server_id %(server_id)d", {"peer": PEER, "server_id": 3})
    made.created = 1_700_000_000.0626
    line = JsonFormatter().format(made)
    assert list(json.loads(line).items()) == [
        ("ts", "2023-11-14T22:13:20.062Z"),
        ("level", "WARNING"),
        ("logger", "binlog_server.test"),
        ("message", "dump starts: connection 7 from 10.0.0.1:4711 (repl), server_id 3"),
        ("connection", 7),
        ("address", "10.0.0.1:4711"),
        ("user", "repl"),
        ("server_id", 3),
    ]


def test_facts() -> None:
    assert fields("nothing") == {}
    assert fields("%d%%", 5) == {}
    assert fields("lost %s", Peer(1, "a:1")) == {"connection": 1, "address": "a:1"}
    denied = AccessDenied("u", "h", "YES")
    assert fields("refused %s: %s", PEER, denied)["errno"] == 1045
    assert fields("%s", RemoteError(1236, "HY000", "purged")) == {"errno": 1236}
    values = {"gtid": Gtid(0, 1, 9), "s": 1.5, "none": None, "on": True, "odd": float("nan")}
    shown = {"gtid": "0-1-9", "s": 1.5, "none": None, "on": True, "odd": "nan"}
    assert fields("%(gtid)s", values) == shown


def test_no_fact_takes_the_place_of_what_every_line_has() -> None:
    line = json.loads(JsonFormatter().format(record("x %(level)s", {"level": "forged", "ts": 0})))
    assert line["level"] == "WARNING"
    assert line["ts"].endswith("Z")


def test_text_is_in_utc_wherever_the_server_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/St_Johns")
    time.tzset()
    try:
        made = record("x")
        made.created = 1_700_000_000.0625
        assert TextFormatter().format(made) == "2023-11-14T22:13:20.062Z WARNING x"
    finally:
        monkeypatch.undo()
        time.tzset()


@given(NASTY, NASTY)
def test_one_line(user: str, name: str) -> None:
    made = record("closed %(peer)s: %(name)s", {"peer": Peer(1, "a", user), "name": name})
    text = TextFormatter().format(made)
    assert text.isprintable()
    line = JsonFormatter().format(made)
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["name"].encode("utf-8", "strict") == name.encode(
        "utf-8", "backslashreplace"
    )


@given(NASTY)
def test_a_traceback_is_no_other_line(words: str) -> None:
    try:
        raise ValueError(words)
    except ValueError as error:
        made = record("a bug", exc_info=(type(error), error, error.__traceback__))
    first, *rest = TextFormatter().format(made).split("\n")
    assert first.endswith("WARNING a bug")
    assert len(rest) >= 3
    assert all(line.startswith("    ") and line.isprintable() for line in rest)
    made.exc_text = None  # the cache of the other formatter
    line = JsonFormatter().format(made)
    assert line.isprintable()
    assert json.loads(line)["exception"].startswith("Traceback")


@pytest.mark.parametrize("log_format", [TEXT, JSON])
def test_set_up(monkeypatch: pytest.MonkeyPatch, log_format: str) -> None:
    written = io.StringIO()
    monkeypatch.setattr("sys.stderr", written)
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    level = root.level
    try:
        set_up_logging("INFO", log_format)
        log.info("%(a)s", {"a": "b"})
        log.debug("not this")
    finally:
        root.setLevel(level)
    (line,) = written.getvalue().splitlines()
    assert ('"a": "b"' in line) == (log_format == JSON)
    assert line.endswith(" INFO b") == (log_format == TEXT)


def test_nobody_fills_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever user and port: by address and kind of line. It is told that lines are left out, and how many were."""
    limit = PeerLimit()

    def let_through(
        count: int,
        second: float = 0.0,
        host: str = "10.0.0.1",
        message: str = "%s: %s",
        level: int = logging.INFO,
        name: str = "binlog_server.connections.channel",
    ) -> int:
        passed = 0
        for number in range(count):
            args = (Peer(number, f"{host}:{number}", f"u{number}"), "1064")
            made = log.makeRecord(name, level, "f.py", 1, message, args, None)
            made.created = 1_700_000_000 + second
            passed += limit.filter(made)
        return passed

    assert let_through(250) == PeerLimit.LINES
    assert let_through(5, host="10.0.0.2") == 5
    assert let_through(5, message="closed %s: %s") == 5
    assert let_through(5, level=logging.ERROR) == 5
    assert let_through(5, name="binlog_server.dumps.dump") == 5
    assert [r.getMessage() for r in caplog.records] == [
        "more lines about 10.0.0.1 within 60 s are left out: '%s: %s'"
    ]
    assert let_through(3, second=61) == 3
    assert caplog.messages[1:] == ["150 lines about 10.0.0.1 were left out: '%s: %s'"]
