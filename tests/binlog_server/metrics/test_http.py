"""The HTTP listener: what it takes, what it refuses, and that no client costs more than its share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from binlog_server.connections.listening import bound
from binlog_server.metrics import http
from binlog_server.metrics.http import HttpListener, Request, Response

from ..lab import DEADLINE_S, until, within
from .scrape import answer_of, exchange, get

OK = b"GET /ok HTTP/1.1\r\nHost: a\r\n\r\n"


async def say(request: Request) -> Response:
    return Response.text(f"{request.method} {request.path}")


@asynccontextmanager
async def listener_of(
    handler: Callable[[Request], Awaitable[Response]], deadline_s: float = DEADLINE_S
) -> AsyncIterator[HttpListener]:
    listener = HttpListener({"/ok": handler}, deadline_s=deadline_s)
    await listener.start(bound("metrics_listen", "127.0.0.1", 0))
    try:
        yield listener
    finally:
        await within(listener.close())


@asynccontextmanager
async def listening(
    handler: Callable[[Request], Awaitable[Response]] = say, *, deadline_s: float = DEADLINE_S
) -> AsyncIterator[int]:
    async with listener_of(handler, deadline_s) as listener:
        yield listener.port


HEARD = [
    (OK, Request("GET", "/ok", {"host": "a"})),
    (b"HEAD /ok?b=c&d HTTP/1.0\r\n\r\n", Request("HEAD", "/ok", {})),
    (
        b"GET /ok HTTP/1.0\r\nAccept: a/b\r\nX:y:z\r\nEmpty:\r\n\r\n",
        Request("GET", "/ok", {"accept": "a/b", "x": "y:z", "empty": ""}),
    ),
    (b"\r\n\n" + OK, Request("GET", "/ok", {"host": "a"})),
    (b"GET http://a/ok HTTP/1.1\r\nHost: b\r\n\r\n", Request("GET", "/ok", {"host": "b"})),
]


async def test_heard() -> None:
    """The handler is told the method, the path without its query, and headers."""
    heard: list[Request] = []

    async def hear(request: Request) -> Response:
        heard.append(request)
        return Response.text("")

    async with listening(hear) as port:
        for head, wanted in HEARD:
            assert (await exchange(port, head)).split(b" ")[1] == b"200"
            request = heard.pop()
            headers = {name.lower(): value for name, value in request.headers.items()}
            assert request._replace(headers=headers) == wanted._replace(peer="127.0.0.1")


BAD = [
    b"GET /\r\n\r\n",
    b"GET  / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/2.0\r\nHost: a\r\n\r\n",
    b"GET metrics HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
    b"GET / HTTP/1.1\r\n: value\r\n\r\n",
    b"GET / HTTP/1.1\r\nA : b\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
]


async def test_bad(caplog: pytest.LogCaptureFixture) -> None:
    """It is told in one line, and is at most one line in the log, of those who debug."""
    caplog.set_level(logging.DEBUG)
    async with listening() as port:
        for head in BAD:
            caplog.clear()
            answer = answer_of(await exchange(port, head))
            assert (answer.status, answer.body) == (400, b"Bad Request\n"), head
            assert answer.headers["server"] == "binlog-server"
            logged = [r for r in caplog.records if r.name != "asyncio"]
            assert len(logged) <= 1, head
            for record in logged:
                assert (record.levelno, record.exc_info) == (logging.DEBUG, None)
                assert "\n" not in record.getMessage()


async def test_a_handler_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    """The log has the traceback, once; the client nothing of it."""

    async def fail(_: Request) -> Response:
        raise ValueError("secret")

    async with listening(fail) as port:
        answers = [answer_of(await exchange(port, OK)) for _ in range(3)]
    assert {(one.status, one.body) for one in answers} == {(500, b"Internal Server Error\n")}
    assert [r.levelname for r in caplog.records] == ["ERROR"] * 3
    assert [r.exc_info is None for r in caplog.records] == [False, True, True]
    assert "secret" in caplog.text


async def test_answers() -> None:
    async with listening() as port:
        found = await get(port, "/ok?x=1")
        assert (found.status, found.body) == (200, b"GET /ok\n")
        assert found.headers["content-length"] == "8"
        assert found.headers["connection"] == "close"
        assert found.headers["server"] == "binlog-server", "nobody is told a version"
        head = await get(port, "/ok", method="HEAD")
        assert (head.status, head.body) == (200, b"")
        assert head.headers["content-length"] == "9"
        assert (await get(port, "/other")).status == 404
        assert (await get(port, "/ok/")).status == 404
        refused = await get(port, "/ok", method="POST")
        assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD")
        assert answer_of(await exchange(port, b"hello\r\n\r\n")).status == 400


@pytest.mark.parametrize("body", [b"", b"Content-Length: 5\r\n"])
async def test_who_waits_for_100_continue(body: bytes) -> None:
    """The answer is final, and says that no body is wanted (RFC 9110, 10.1.1)."""
    head = b"%s /ok HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n" + body + b"\r\n"
    async with listening() as port:
        for method, status in ((b"GET", 200), (b"HEAD", 200), (b"POST", 405)):
            assert answer_of(await exchange(port, head % method)).status == status


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


@pytest.mark.parametrize("said", [b"", b"GET /ok HT"])
async def test_who_goes_on_for_too_long_is_cut_off(said: bytes) -> None:
    """Whoever says nothing or half a request."""
    async with listening(deadline_s=0.05) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(said)
        with suppress(ConnectionError):
            assert await within(reader.read(-1)) == b""
        await closed(reader, writer)


async def test_who_does_not_close_after_the_answer_is_cut_off() -> None:
    async def say_and_be_impatient(request: Request) -> Response:
        listener.deadline_s = 0.05  # not before: the answer has time
        return await say(request)

    async with listener_of(say_and_be_impatient) as listener:
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        writer.write(OK)
        assert answer_of(await within(reader.read(-1))).status == 200
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


async def pieces(ended: list[str]) -> AsyncGenerator[bytes, None]:
    try:
        while True:
            yield b"x" * 10_000
            await asyncio.sleep(0)
    finally:
        ended.append("ended")


async def test_a_stream() -> None:
    """It goes on beyond the time of a request, and ends with its client: who leaves, closes its side, or reads no more.

    HTTP/1.1 gets chunks, HTTP/1.0 the bare bytes."""
    ended: list[str] = []

    hurried = False

    async def stream(_: Request) -> Response:
        if hurried:
            listener.deadline_s = 0.2
        return Response(b"", stream=pieces(ended))

    async with listener_of(stream) as listener:
        port = listener.port
        for head, first in ((OK, b"2710\r\n"), (OK.replace(b"1.1", b"1.0"), b"xx")):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(head)
            await within(reader.readuntil(b"\r\n\r\n"))
            assert (await within(reader.readexactly(len(first)))) == first
            writer.write_eof()
            await until(lambda: ended == ["ended"])
            writer.close()
            ended.clear()
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        hurried = True
        writer.write(OK)
        await until(
            lambda: ended == ["ended"]
        )  # it reads nothing: the time of a request is all it has
        await closed(reader, writer)
        listener.deadline_s, hurried = DEADLINE_S, False
        assert b"\r\n\r\n" in await exchange(port, OK.replace(b"GET", b"HEAD"))


async def test_every_address_of_a_name_is_listened_at() -> None:
    sockets = bound("metrics_listen", "127.0.0.1", 0) + bound("metrics_listen", "127.0.0.2", 0)
    ports = [one.getsockname()[1] for one in sockets]
    listener = HttpListener({"/ok": say})
    await listener.start(sockets)
    try:
        assert listener.port == ports[0]
        for host, port in zip(("127.0.0.1", "127.0.0.2"), ports, strict=True):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(OK)
            assert b" 200 " in await within(reader.readline())
            writer.close()
    finally:
        await within(listener.close())
