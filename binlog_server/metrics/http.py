"""A small HTTP/1.1 listener for scrapers and health checks: GET and HEAD, one request a connection, nothing else.

With a certificate it speaks TLS, and only that: the one that holds when a client connects.

What a client may cost is bounded: so many connections, so many bytes of a request, so many seconds for all of it. Slow
ones keep nobody out: who comes beyond the limit is let in, and the oldest one leaves (`crowd`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import NamedTuple, cast

from binlog_server.connections.tls import TlsLayer, TlsServer
from binlog_server.loop.crowd import Crowd

log = logging.getLogger(__name__)

REQUEST_BYTES_MAX = 8192
CONNECTIONS_MAX = 32
DEADLINE_S = 10.0  # from the first byte to the last one of the answer
PLAIN = "text/plain; charset=utf-8"


class BadRequest(Exception):
    """A request that is answered with `status`."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


class Request(NamedTuple):
    """`path` without the query; names of `headers` in lower case; `peer`: the address of the client, without port.
    `has_certificate`: the client has shown one, which was verified."""

    method: str
    path: str
    headers: Mapping[str, str]
    peer: str = ""
    has_certificate: bool = False


@dataclass(frozen=True, slots=True)
class Response:
    """`headers`: beside those that every answer has. `stream`: what comes behind `body`, piece by piece, for as long
    as the client takes it."""

    body: bytes
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = PLAIN
    headers: Mapping[str, str] = field(default_factory=dict)
    stream: AsyncIterator[bytes] | None = None

    @classmethod
    def text(cls, text: str, status: HTTPStatus = HTTPStatus.OK) -> Response:
        """Plain text, ended by a newline."""
        return cls(f"{text}\n".encode("utf-8", "backslashreplace"), status)

    def build(self, *, head_only: bool = False) -> bytes:
        headers = {
            "Content-Type": self.content_type,
            **({} if self.stream else {"Content-Length": str(len(self.body))}),
            "Cache-Control": "no-store",
            "Connection": "close",
            **self.headers,
        }
        lines = [f"HTTP/1.1 {self.status.value} {self.status.phrase}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        head = ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")
        return head if head_only else head + self.body


def parse_request(head: bytes) -> Request:
    """A request up to its empty line. Raises `BadRequest`."""
    first, *rest = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1.") or not words[1].startswith("/"):
        raise BadRequest(HTTPStatus.BAD_REQUEST)
    headers = {}
    for line in filter(None, rest):
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise BadRequest(HTTPStatus.BAD_REQUEST)
        headers[name.lower()] = value.strip()
    return Request(words[0], words[1].partition("?")[0], headers)


Handler = Callable[[Request], Awaitable[Response]]


class _Visit(NamedTuple):
    """A connection and what serves it."""

    id: int
    task: asyncio.Task[None]


class _Streams(asyncio.StreamReaderProtocol):
    """The two streams of a connection, inside TLS if there is any. The handshake is a part of the request's time."""

    def __init__(
        self,
        accept: Callable[[asyncio.StreamReader, asyncio.StreamWriter], None],
        tls: TlsServer | None,
    ) -> None:
        super().__init__(asyncio.StreamReader(REQUEST_BYTES_MAX), accept)
        self._tls = tls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self._tls is None:
            super().connection_made(transport)
            return
        layer = TlsLayer(cast(asyncio.Transport, transport), self, self._tls.context)
        super().connection_made(layer)
        layer.start(b"")

    def tls_started(self) -> None:
        """See `SecuredSession`."""

    def tls_failed(self, reason: str) -> None:
        """See `SecuredSession`."""
        log.debug("metrics: no TLS with a client: %s", reason)


class HttpListener:
    """Answers what stands in `routes`, by path. For one event loop."""

    def __init__(
        self,
        routes: Mapping[str, Handler],
        *,
        deadline_s: float = DEADLINE_S,
        tls: Callable[[], TlsServer | None] = lambda: None,
    ) -> None:
        self._routes = routes
        self._deadline_s = deadline_s
        self._tls = tls
        self._open: set[asyncio.Task[None]] = set()
        self._crowd: Crowd[_Visit] = Crowd()
        self._accepted = 0
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises `OSError` if the address is taken."""
        self._server = await asyncio.get_running_loop().create_server(
            lambda: _Streams(self._accept, self._tls()), host or None, port
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Listen no more, and end what is under way."""
        if self._server is not None:
            self._server.close()
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A task of our own: asyncio's complains when it is cancelled.
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._accepted += 1
        visit = _Visit(self._accepted, task)
        peer = writer.get_extra_info("peername")
        leaves = self._crowd.add(visit, peer[0] if peer else "", CONNECTIONS_MAX)
        if leaves is not None:
            leaves.task.cancel()
        self._open.add(task)

        def ended(_: asyncio.Task[None]) -> None:
            self._open.discard(task)
            self._crowd.remove(visit)
            if task.cancelled():  # perhaps before it began
                writer.transport.abort()

        task.add_done_callback(ended)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(self._deadline_s) as deadline:
                await self._converse(reader, writer, deadline)
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            writer.transport.abort()
        finally:
            writer.close()

    async def _converse(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, deadline: asyncio.Timeout
    ) -> None:
        head_only = False
        try:
            peer, tls = writer.get_extra_info("peername"), writer.get_extra_info("ssl_object")
            request = parse_request(await _head(reader))._replace(
                peer=peer[0] if peer else "",
                has_certificate=tls is not None and tls.getpeercert(binary_form=True) is not None,
            )
            head_only = request.method == "HEAD"
            response = await self._answer(request)
        except BadRequest as error:
            response = Response.text(error.status.phrase, error.status)
        writer.write(response.build(head_only=head_only))
        await writer.drain()
        if response.stream is not None and not head_only:
            await self._send_stream(response.stream, reader, writer, deadline)
        # What the client still sends must not make the system throw away the answer.
        writer.write_eof()
        with contextlib.suppress(ConnectionError):
            while await reader.read(REQUEST_BYTES_MAX):
                pass

    async def _send_stream(
        self,
        stream: AsyncIterator[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        deadline: asyncio.Timeout,
    ) -> None:
        """Until it ends, or the client does: who closes its side, or takes no piece in time."""
        loop = asyncio.get_running_loop()
        gone = asyncio.ensure_future(reader.read(1))
        try:
            while not gone.done():
                deadline.reschedule(None)
                following = asyncio.ensure_future(anext(stream, b""))
                await asyncio.wait((following, gone), return_when=asyncio.FIRST_COMPLETED)
                if not following.done():
                    following.cancel()
                    await asyncio.gather(following, return_exceptions=True)
                    return
                if not (piece := following.result()):
                    return
                deadline.reschedule(loop.time() + self._deadline_s)
                writer.write(piece)
                await writer.drain()
        finally:
            gone.cancel()
            deadline.reschedule(loop.time() + self._deadline_s)

    async def _answer(self, request: Request) -> Response:
        handler = self._routes.get(request.path)
        if handler is None:
            return Response.text(f"there are {', '.join(self._routes)}", HTTPStatus.NOT_FOUND)
        if request.method not in ("GET", "HEAD"):
            status = HTTPStatus.METHOD_NOT_ALLOWED
            return Response(b"", status, headers={"Allow": "GET, HEAD"})
        return await handler(request)


async def _head(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise BadRequest(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE) from None
