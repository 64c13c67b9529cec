"""The HTTP listener: what it takes, what it refuses, and that no client costs more than its share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from binlog_server.metrics import http
from binlog_server.metrics.http import BadRequest, HttpListener, Request, Response, parse_request

from ..lab import DEADLINE_S, until, within
from .scrape import answer_of, exchange, get

OK = b"GET /ok HTTP/1.1\r\nHost: a\r\n\r\n"


async def say(request: Request) -> Response:
    return Response.text(f"{request.method} {request.path}")


@asynccontextmanager
async def listening(
    handler: Callable[[Request], Awaitable[Response]] = say, *, deadline_s: float = 30.0
) -> AsyncIterator[int]:
    listener = HttpListener({"/ok": handler}, deadline_s=deadline_s)
    await listener.start("127.0.0.1", 0)
    try:
        yield listener.port
    finally:
        await within(listener.close())


PARSED = [
    (b"GET / HTTP/1.1\r\n\r\n", Request("GET", "/", {})),
    (b"HEAD /a?b=c&d HTTP/1.0\r\n\r\n", Request("HEAD", "/a", {})),
    (
        b"GET /m HTTP/1.1\r\nAccept: a/b\r\nX:y:z\r\nEmpty:\r\n\r\n",
        Request("GET", "/m", {"accept": "a/b", "x": "y:z", "empty": ""}),
    ),
    (b"GET /\xff HTTP/1.1\r\nA:\t\xe4 \r\n\r\n", Request("GET", "/\xff", {"a": "\xe4"})),
]


@pytest.mark.parametrize(("head", "request_"), PARSED)
def test_parsed(head: bytes, request_: Request) -> None:
    assert parse_request(head) == request_


BAD = [
    b"\r\n\r\n",
    b"GET /\r\n\r\n",
    b"GET  / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/2\r\n\r\n",
    b"GET http://a/ HTTP/1.1\r\n\r\n",
    b"GET metrics HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
    b"GET / HTTP/1.1\r\n: value\r\n\r\n",
    b"GET / HTTP/1.1\r\nA : b\r\n\r\n",
    b"GET / HTTP/1.1\r\nA: b\r\n folded: c\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
]


@pytest.mark.parametrize("head", BAD)
def test_bad(head: bytes) -> None:
    with pytest.raises(BadRequest):
        parse_request(head)


@given(st.binary(max_size=200))
def test_anything_is_parsed_or_refused(data: bytes) -> None:
    for head in (data, b"GET / HTTP/1.1\r\n" + data):
        with suppress(BadRequest):
            assert parse_request(head).path.startswith("/")


async def test_answers() -> None:
    async with listening() as port:
        found = await get(port, "/ok?x=1")
        assert (found.status, found.body) == (200, b"GET /ok\n")
        assert found.headers["content-length"] == "8"
        assert found.headers["connection"] == "close"
        head = await get(port, "/ok", method="HEAD")
        assert (head.status, head.body) == (200, b"")
        assert head.headers["content-length"] == "9"
        assert (await get(port, "/other")).status == 404
        assert (await get(port, "/ok/")).status == 404
        refused = await get(port, "/ok", method="POST")
        assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD")
        assert answer_of(await exchange(port, b"hello\r\n\r\n")).status == 400


async def test_byte_by_byte_and_with_more_behind_it() -> None:
    async with listening() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for n in range(len(OK)):
            writer.write(OK[n : n + 1])
            await asyncio.sleep(0)
        assert answer_of(await within(reader.read(-1))).status == 200
        writer.close()
        assert answer_of(await exchange(port, OK + b"x" * 1_000_000)).status == 200
        assert answer_of(await exchange(port, OK + OK)).status == 200, "the first one only"


async def test_too_large() -> None:
    async with listening() as port:
        large = b"GET /ok HTTP/1.1\r\n" + b"A: b\r\n" * http.REQUEST_BYTES_MAX
        assert answer_of(await exchange(port, large)).status == 431
        endless = b"G" * 1_000_000
        assert answer_of(await exchange(port, endless)).status == 431


@pytest.mark.parametrize("said", [b"", b"GET /ok HT", OK])
async def test_who_goes_on_for_too_long_is_cut_off(said: bytes) -> None:
    """Whoever says nothing or half a request; or does not close after the answer."""
    async with listening(deadline_s=0.05) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(said)
        with suppress(ConnectionError):
            assert (await within(reader.read(-1)) != b"") == (said == OK)
        await closed(reader, writer)


async def closed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Returns when the other end takes nothing any more."""
    async with asyncio.timeout(DEADLINE_S):
        with suppress(ConnectionError):
            while not writer.is_closing():
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.001)
    writer.close()


async def test_who_does_not_read_is_cut_off() -> None:
    async def much(_: Request) -> Response:
        return Response(b"x" * (64 << 20))

    async with listening(much, deadline_s=0.2) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(OK)
        await closed(reader, writer)


async def test_slow_ones_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A liveness probe gets its answer however many connections say nothing, or half of a request."""
    monkeypatch.setattr(http, "CONNECTIONS_MAX", 3)
    async with listening() as port:
        slow = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        for _, writer in slow:
            writer.write(OK[:9])
        for gone in range(3):
            assert answer_of(await exchange(port, OK)).status == 200
            assert await within(slow[gone][0].read()) == b"", "the oldest one leaves"
            slow.append(await asyncio.open_connection("127.0.0.1", port))
        for _, writer in slow:
            writer.close()


async def test_close_ends_what_is_under_way() -> None:
    asked = asyncio.Event()
    ended: list[str] = []

    async def forever(_: Request) -> Response:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ended")
        return Response.text("never")

    async with listening(forever) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(OK)
        await within(asked.wait())
    await until(lambda: ended == ["ended"])
    with suppress(ConnectionError):
        assert await within(reader.read(-1)) == b""
    writer.close()
    with pytest.raises(OSError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_an_address_that_is_taken() -> None:
    async with listening() as port:
        with pytest.raises(OSError):
            await HttpListener({}).start("127.0.0.1", port)
