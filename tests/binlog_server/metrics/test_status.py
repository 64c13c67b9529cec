"""The status page and its API: whole without scripts, equal to each other, and not for everybody."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import json
import logging
import re
from collections.abc import AsyncIterator
from html import unescape
from typing import Any

import pytest
from binlog_storage.errors import FileMissing

from binlog_server.metrics import endpoint
from binlog_server.metrics.api import SCHEMAS
from binlog_server.metrics.collector import METRICS
from binlog_server.metrics.endpoint import refusal
from binlog_server.metrics.guesses import ADDRESSES_MAX, FORGOTTEN_S, FREE, Guesses
from binlog_server.metrics.history import PLOTS, SAMPLES, History
from binlog_server.metrics.http import Request
from binlog_server.metrics.observed import Look
from binlog_server.metrics.page import _short, middle, page
from binlog_server.metrics.status import BAD, GOOD, LATE
from binlog_server.relay.status import UpstreamStatus
from binlog_server.semi_sync.master import NOWHERE
from tests.binlog_server.lab import USER, Lab, until, within

from .scrape import Answer, answer_of, exchange, metrics

LISTEN = "127.0.0.1:0"


@pytest.fixture
async def lab(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Lab]:
    monkeypatch.setattr(endpoint, "LIVE_S", 0.0)  # each look is a new one
    async with Lab(metrics_listen=LISTEN) as running:
        yield running


async def ask(lab: Lab, path: str, host: str = "localhost:9104", more: str = "") -> Answer:
    request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\n{more}\r\n"
    return answer_of(await exchange(lab.server.metrics_port, request.encode()))


async def told(lab: Lab, path: str) -> Any:
    answer = await ask(lab, path)
    assert answer.status == 200, answer.body
    assert answer.headers["content-type"] == "application/json"
    return json.loads(answer.body)


def fits(value: Any, schema: Any, place: str = "$") -> None:
    """A value as the OpenAPI document says it: as much of JSON Schema as the document uses."""
    assert set(schema) <= {
        *("type", "properties", "required", "additionalProperties", "items", "enum", "description")
    }
    kinds = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    python: dict[str, Any] = {
        "string": str,
        "boolean": bool,
        "null": type(None),
        "array": list,
        "object": dict,
    }
    numbers: dict[str, Any] = {"number": (int, float), "integer": int}
    assert any(
        isinstance(value, python[kind])
        if kind in python
        else isinstance(value, numbers[kind]) and not isinstance(value, bool)
        for kind in kinds
    ), f"{place}: {value!r} is not {kinds}"
    if value is None:
        return
    if "enum" in schema:
        assert value in schema["enum"], place
    for index, item in enumerate(value if isinstance(value, list) else []):
        fits(item, schema["items"], f"{place}[{index}]")
    if isinstance(value, dict) and "properties" in schema:
        assert set(value) == set(schema["required"]) == set(schema["properties"]), place
        for name, inner in schema["properties"].items():
            fits(value[name], inner, f"{place}.{name}")
    elif isinstance(value, dict) and isinstance(schema.get("additionalProperties"), dict):
        for name, inner in value.items():
            fits(inner, schema["additionalProperties"], f"{place}.{name}")


async def test_answers_are_as_the_document_says(lab: Lab) -> None:
    lab.publish("0-1-1,0-1-2")
    await lab.replica("0-1-1")
    lab.server.leases.create("etl", None, None, None)
    logging.getLogger("binlog_server").error("a line with %s", "<b>\n")
    document = await told(lab, "/api/openapi.json")
    assert set(document["paths"]) == {*SCHEMAS, "/api/events"}
    for path, schema in SCHEMAS.items():
        stated = document["paths"][path]["get"]["responses"]["200"]["content"]
        assert stated["application/json"]["schema"] == schema
        value = await told(lab, path)
        fits(value, schema)
        if path == "/api/status":
            assert all(value[name] for name in ("replicas", "leases", "files", "errors"))
            assert value["errors"][0]["text"] == r"a line with <b>\n"


async def test_without_its_directory_all_else_is_told(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.publish("0-1-1,0-1-2")
    await lab.replica("0-1-1")

    def gone() -> list[object]:
        raise FileMissing("cannot list /data: No such file or directory")

    monkeypatch.setattr(lab.server.engine, "files", gone)
    monkeypatch.setattr(lab.server.engine, "explain_purge", lambda to, before: gone())
    value = await told(lab, "/api/status")
    fits(value, SCHEMAS["/api/status"])
    why = "store: its files cannot be looked at: cannot list /data: No such file or directory"
    assert (value["server"]["health"], value["server"]["missing"]) == (BAD, [why])
    assert (value["files"], len(value["replicas"])) == ([], 1)
    assert why in unescape((await ask(lab, "/")).body.decode())


@pytest.mark.parametrize("broken", ["missing", "more", "wrong"])
async def test_what_does_not_fit_is_seen(lab: Lab, broken: str) -> None:
    value = await told(lab, "/api/status")
    if broken == "missing":
        del value["server"]["health"]
    elif broken == "more":
        value["files"][0]["more"] = 1
    else:
        value["server"]["uptime_s"] = "1"
    with pytest.raises(AssertionError):
        fits(value, SCHEMAS["/api/status"])


async def test_a_replica_and_where_it_is(lab: Lab) -> None:
    lab.publish("0-1-1,0-1-2")
    replica = await lab.replica("0-1-1")
    await until(lambda: all(c.sent == lab.engine.durable_end for c in lab.server.connections))
    (row,) = (await told(lab, "/api/status"))["replicas"]
    assert (row["health"], row["account"]) == (GOOD, f"{USER}@%")
    assert (row["sent"], row["bytes_behind"], row["seconds_behind"]) == ("0-1-2", 0, 0)
    scraped = await metrics(lab.server.metrics_port)
    labels = {"server_id": str(row["server_id"]), "account": row["account"]}
    assert scraped.value("replica_lag_bytes", **labels) == row["bytes_behind"]
    # It goes, and its slot says so: on the page in red.
    replica.client.close()
    await until(lambda: any(lease.is_slot for lease in lab.server.leases.all()))
    (row,) = (await told(lab, "/api/status"))["replicas"]
    assert (row["health"], row["connection"], row["sent"]) == (BAD, None, "0-1-2")
    text = (await ask(lab, "/")).body.decode()
    assert '<span class="bad">not connected; its slot keeps its files</span>' in text


async def test_a_replica_that_stands_still(lab: Lab) -> None:
    """Its sockets take megabytes, so that all was sent to it: with semi-sync it is red all the same."""
    lab.publish("0-1-1")
    middle = lab.engine.durable_end
    lab.publish("0-1-2")
    await lab.replica("0-1-1")
    await until(lambda: all(c.sent == lab.engine.durable_end for c in lab.server.connections))
    (connection,) = lab.server.connections.dumps_of(100)
    (row,) = (await told(lab, "/api/status"))["replicas"]
    assert (row["health"], row["seconds_unacknowledged"]) == (GOOD, None)
    for place, health in ((lab.engine.durable_end, GOOD), (NOWHERE, GOOD), (middle, BAD)):
        connection.acknowledged = place  # without semi-sync nobody else writes this
        (row,) = (await told(lab, "/api/status"))["replicas"]
        assert (row["health"], row["seconds_behind"]) == (health, 0), place
    assert row["seconds_unacknowledged"] > 1e6, "the groups are of 2023"
    shown = (await ask(lab, "/")).body.decode()
    assert re.search(r'"bad">has not acknowledged what is \d+ d \d+ h old<', shown)


async def test_a_replica_that_reads_nothing(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without semi-sync it is told by its window: `PeerReads`."""
    lab.publish("0-1-1")
    await lab.replica("0-1-1")
    await until(lambda: all(c.sent == lab.engine.durable_end for c in lab.server.connections))
    (row,) = (await told(lab, "/api/status"))["replicas"]
    assert (row["health"], row["seconds_unread"]) == (GOOD, 0)
    (connection,) = lab.server.connections.dumps_of(100)
    for seconds, health in ((None, GOOD), (4.0, GOOD), (5.0, LATE), (100.0, BAD)):
        monkeypatch.setattr(connection, "unread_s", lambda seconds=seconds: seconds)
        (row,) = (await told(lab, "/api/status"))["replicas"]
        assert (row["health"], row["seconds_unread"]) == (health, seconds)
    shown = (await ask(lab, "/")).body.decode()
    assert '"bad">has read nothing for 1 min<' in shown
    labels = {"server_id": "100", "account": row["account"]}
    assert (await metrics(lab.server.metrics_port)).value("replica_unread_seconds", **labels) == 100


async def test_upstreams(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    down = UpstreamStatus("db1:3306", last_error="Can't connect <i>", connection="one")
    up = UpstreamStatus("db2:3306", connected=True, version="11.8.9-MariaDB")
    monkeypatch.setattr(type(lab.server), "upstreams", [down, up])
    first, second = (await told(lab, "/api/status"))["upstreams"]
    assert (first["health"], first["error"]) == (BAD, "Can't connect <i>")
    assert (second["health"], second["error"]) == (LATE, "")  # connected, and nothing heard yet
    status = await told(lab, "/api/status")
    assert status["server"]["health"] == BAD
    assert status["server"]["missing"] == [
        "upstream one db1:3306: not connected: Can't connect <i>"
    ]
    text = (await ask(lab, "/")).body.decode()
    assert "not ready" in text
    assert "Can&#x27;t connect &lt;i&gt;" in text
    assert "<i>" not in text


async def test_the_page_says_what_the_api_says(lab: Lab) -> None:
    lab.publish("0-1-1,0-1-2")
    await lab.replica("0-1-2")
    status, history = await told(lab, "/api/status"), await told(lab, "/api/history")
    answer = await ask(lab, "/")
    text = unescape(re.sub(r"<[^>]+>", " ", answer.body.decode()))
    for row in status["files"]:
        assert row["name"] in text
    for row in status["replicas"]:
        assert row["address"] in text
    assert status["server"]["gtid_binlog_pos"] in text
    assert page(status, history).count("<tr>") == answer.body.count(b"<tr>")
    # Nothing of it comes from elsewhere, and nothing can.
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; connect-src 'self'; script-src 'sha256-")
    assert re.findall(r'(?:src|href|action)="([^"]*)"', answer.body.decode()) == [
        *("api/status", "api/openapi.json", "metrics")
    ]
    assert b'<noscript><meta http-equiv="refresh"' in answer.body


async def test_the_last_hour(lab: Lab) -> None:
    """A sample is taken at the start; the next ones here."""
    now = [100.0]
    history = History(METRICS, clock=lambda: 5e8 + now[0], monotonic=lambda: now[0])
    assert history.told()["at"] == []
    history.take(Look(lab.server))
    lab.publish("0-1-1,0-1-2,0-1-3")
    now[0] += 10
    history.take(Look(lab.server))
    found = history.told()
    assert found["at"] == [5e8 + 110]
    assert found["series"]["commits"] == [0.3]
    assert found["series"]["replica_lag"] == [None]  # there is no replica
    for _ in range(SAMPLES + 5):
        now[0] += 10
        history.take(Look(lab.server))
    found = history.told()
    assert len(found["at"]) == SAMPLES
    assert found["series"]["commits"][-1] == 0.0
    drawn = middle(await told(lab, "/api/status"), found)
    assert drawn.count("<figure") == len(PLOTS)
    assert drawn.count("<polyline") == sum(v[0] is not None for v in found["series"].values())


async def test_a_stream_goes_on(lab: Lab) -> None:
    for path, first in (("/api/events", "{"), ("/live", "<p ")):
        reader, writer = await asyncio.open_connection("127.0.0.1", lab.server.metrics_port)
        writer.write(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        head = (await within(reader.readuntil(b"\r\n\r\n"))).decode()
        assert "Content-Type: text/event-stream" in head
        assert "Content-Length" not in head
        for _ in range(3):
            event = (await within(reader.readuntil(b"\n\n"))).decode()
            assert event.startswith(f"data: {first}")
            assert all(line.startswith("data: ") for line in event.rstrip("\n").split("\n"))
        writer.close()
    # Streams end with the server.
    reader, writer = await asyncio.open_connection("127.0.0.1", lab.server.metrics_port)
    writer.write(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await within(reader.readuntil(b"\n\n"))
    await lab.stop()
    with contextlib.suppress(ConnectionError):
        await within(reader.read(-1))  # to its end


TOKEN = "0123456789abcdef"
BASIC = "Basic " + base64.b64encode(f"me:{TOKEN}".encode()).decode()


@pytest.mark.parametrize(
    ("token", "peer", "headers", "status"),
    [
        ("", "127.0.0.1", {"host": "localhost:9104"}, None),
        ("", "127.0.0.1", {"host": "127.0.0.1"}, None),
        ("", "::1", {"host": "[::1]:9104"}, None),
        ("", "::ffff:127.0.0.1", {"host": "localhost"}, None),
        ("", "10.0.0.5", {"host": "localhost"}, 403),
        ("", "127.0.0.1", {"host": "evil.example"}, 403),  # its name leads here
        ("", "127.0.0.1", {}, 403),
        ("", "127.0.0.1", {"host": "localhost.evil.example"}, 403),
        ("", "127.0.0.1", {"host": "localhost:80@evil.example"}, 403),
        ("", "127.0.0.1", {"host": "localhost", "x-forwarded-for": "10.0.0.5"}, 403),  # by a proxy
        ("", "127.0.0.1", {"host": "localhost", "forwarded": "for=10.0.0.5"}, 403),
        ("", "10.0.0.5", {"host": "x", "authorization": "Bearer "}, 403),  # none is no token
        ("", "10.0.0.5", {"host": "x", "authorization": "Basic Og=="}, 403),
        (TOKEN, "10.0.0.5", {"host": "relay", "authorization": f"Bearer {TOKEN}"}, None),
        (TOKEN, "10.0.0.5", {"host": "relay", "authorization": BASIC}, None),
        (TOKEN, "10.0.0.5", {"host": "relay"}, 401),
        (TOKEN, "10.0.0.5", {"host": "relay", "authorization": "Bearer x"}, 401),
        (TOKEN, "10.0.0.5", {"host": "relay", "authorization": "Basic %%%"}, 401),
        (TOKEN, "10.0.0.5", {"host": "relay", "authorization": "Basic \xe9"}, 401),
        (TOKEN, "10.0.0.5", {"host": "relay", "authorization": "Basic \udcff"}, 401),
        (TOKEN, "10.0.0.5", {"host": "relay", "authorization": "Bearer \xe9"}, 401),
        (TOKEN, "10.0.0.5", {"host": "relay", "authorization": "Bearer \udcff"}, 401),  # no UTF-8
        (TOKEN, "127.0.0.1", {"host": "localhost"}, None),
        (TOKEN, "", {"host": "localhost"}, 401),
    ],
)
def test_for_whom(token: str, peer: str, headers: dict[str, str], status: int | None) -> None:
    refused = refusal(Request("GET", "/", headers, peer), token, Guesses())
    assert (None if refused is None else refused.status) == status


def test_who_shows_wrong_tokens_has_to_wait(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    guesses = Guesses(lambda: now[0])

    def ask(token: str, peer: str = "10.0.0.5") -> tuple[int, str]:
        headers = {"host": "relay", "authorization": f"Bearer {token}"}
        refused = refusal(Request("GET", "/", headers, peer), TOKEN, guesses)
        return (200, "") if refused is None else (
            refused.status, refused.headers.get("Retry-After", "")
        )  # fmt: skip

    for _ in range(20):  # one that is shown again is no further guess
        assert ask("old") == (401, "")
    assert [ask(f"guess {n}") for n in range(4)] == [(401, "")] * 4
    waits = []
    for n in range(9):
        status, wait = ask(TOKEN)  # not looked at
        assert status == 429
        waits.append(int(wait))
        now[0] += int(wait)
        assert ask(f"further {n}") == (401, "")
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert ask(TOKEN, "10.0.0.6") == (200, "")  # another one
    now[0] += 60
    assert ask(TOKEN) == (200, "")
    assert ask("x") == (401, "")  # and the count begins anew
    assert [r.getMessage() for r in caplog.records] == [
        "status page: 5 wrong tokens from 10.0.0.5: it has to wait"
    ]


def test_the_memory_of_wrong_tokens_is_bounded() -> None:
    """A client of IPv6 is its network; who was wrong ten minutes ago begins anew."""
    now = [0.0]
    guesses = Guesses(lambda: now[0])
    for n in range(FREE):
        guesses.wrong(f"2001:db8::{n}", b"%d" % n)
    assert guesses.wait_s("2001:db8::ffff") == 1
    assert guesses.wait_s("2001:db8:0:1::1") == 0
    now[0] = FORGOTTEN_S
    assert not guesses.wrong("2001:db8::1", b"x")
    assert guesses.wait_s("2001:db8::1") == 0
    for n in range(2 * ADDRESSES_MAX):
        guesses.wrong(f"10.0.{n >> 8}.{n & 255}", b"x")
    assert len(guesses._wrong) == ADDRESSES_MAX


async def test_wrong_tokens_over_the_network(lab: Lab) -> None:
    lab.server.config = dataclasses.replace(lab.server.config, metrics_token=TOKEN)
    shown = [f"Authorization: Bearer x{n}\r\n" for n in range(FREE)]
    found = [(await ask(lab, "/", host="relay", more=one)).status for one in shown]
    assert found == [401] * FREE
    right = f"Authorization: Bearer {TOKEN}\r\n"
    answer = await ask(lab, "/api/status", host="relay", more=right)
    assert (answer.status, answer.headers["retry-after"]) == (429, "1")
    assert (await ask(lab, "/metrics", host="relay", more=right)).status == 200
    assert (await ask(lab, "/")).status == 200  # the machine itself


async def test_metrics_are_for_everybody_and_the_rest_is_not(lab: Lab) -> None:
    for path in ("/metrics", "/healthz", "/readyz"):
        assert (await ask(lab, path, host="relay")).status == 200
    for path in ("/", "/live", *SCHEMAS, "/api/events"):
        assert (await ask(lab, path, host="relay")).status == 403
    assert (await ask(lab, "/api", host="localhost")).status == 404


@pytest.mark.parametrize(
    ("value", "step", "text"),
    [
        *((0, 1000, "0"), (0.3, 1000, "0.30"), (12.34, 1000, "12.3"), (999, 1000, "999")),
        *((1000, 1000, "1.00 K"), (1536, 1024, "1.50 K"), (1 << 30, 1024, "1.00 G")),
        *((5, 1024, "5 "), (1e30, 1000, "1000000000000 E")),
    ],
)
def test_numbers_are_short(value: float, step: int, text: str) -> None:
    assert _short(value, step) == text
