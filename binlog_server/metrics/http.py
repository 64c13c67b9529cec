"""The HTTP/1.1 listener for scrapers, health checks and people, by aiohttp: GET and HEAD, one request a connection.

With a certificate it speaks TLS, and only that: the one that holds when a client connects.

    socket transport  <-->  (TlsLayer)  <-->  _Guard  <-->  aiohttp's protocol, once the head of a request is whole

aiohttp parses requests and writes answers. What a client may cost is bounded by the guard: so many connections, so many
bytes of a request, so many seconds for all of it. Slow ones keep nobody out: who comes beyond the limit is let in, and
the oldest one leaves (`crowd`).
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import field
from http import HTTPStatus
from typing import Any, NamedTuple, cast

from aiohttp import web
from binlog_protocol.dataclass import dataclass
from binlog_storage.defects import Defects

from binlog_server.connections.tls import TlsLayer, TlsServer
from binlog_server.loop.crowd import Crowd

log = logging.getLogger(__name__)

REQUEST_BYTES_MAX = 8192
CONNECTIONS_MAX = 32
DEADLINE_S = 10.0  # from the first byte to the last one of the answer
PLAIN = "text/plain; charset=utf-8"


class Request(NamedTuple):
    """`path` without the query; names of `headers` in any case; `peer`: the address of the client, without port.
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
    stream: AsyncGenerator[bytes, None] | None = None

    @classmethod
    def text(cls, text: str, status: HTTPStatus = HTTPStatus.OK) -> Response:
        """Plain text, ended by a newline."""
        return cls(f"{text}\n".encode("utf-8", "backslashreplace"), status)

    def all_headers(self) -> dict[str, str]:
        """With those that every answer has."""
        return {
            "Content-Type": self.content_type,
            "Cache-Control": "no-store",
            "Connection": "close",
            "Server": "binlog-server",  # aiohttp tells its version and Python's otherwise
            **self.headers,
        }


Handler = Callable[[Request], Awaitable[Response]]


class _Quiet(logging.LoggerAdapter[logging.Logger]):
    """aiohttp's log: one line for debugging in the place of a traceback. Strangers may not fill the log."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        super().log(logging.DEBUG, f"metrics: {msg}: %r", *args, kwargs.get("exc_info"))


class _Guard(asyncio.Protocol, asyncio.Transport):
    """The protocol of a connection, and the transport of aiohttp's protocol, which sees nothing but one whole head.

    `answered` is set when the answer to the request is there: what aiohttp says before is its refusal of a head that is
    no HTTP, or of a handler that failed, and is told in the listener's own words.
    """

    def __init__(self, listener: HttpListener, number: int) -> None:
        asyncio.Transport.__init__(self)
        self.id = number
        self.answered = self.asked = False
        self._listener = listener
        self._below: asyncio.Transport  # the socket's, or TLS above it
        self._head = bytearray()
        self._above: web.RequestHandler | None = None
        self._ended = False  # all is said; what the client still sends is dropped
        self._client_ended = False
        self.streams = False
        self._deadline: asyncio.TimerHandle | None = None
        self.has_certificate = False

    # --- asyncio.Protocol: what comes from the client ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._below = cast(asyncio.Transport, transport)
        self.must_end_in_time()
        self._listener.entered(self)
        if (tls := self._listener.tls()) is not None:
            layer = self._below = TlsLayer(self._below, self, tls.context)
            layer.start(b"")

    def tls_started(self) -> None:
        """See `SecuredSession`."""
        self.has_certificate = cast(TlsLayer, self._below).has_client_certificate

    def tls_failed(self, reason: str) -> None:
        """See `SecuredSession`."""
        log.debug("metrics: no TLS with a client: %s", reason)

    def data_received(self, data: bytes) -> None:
        if self._above is not None or self._ended:
            return  # one request a connection, and none has a body
        self._head += data[: REQUEST_BYTES_MAX + 1 - len(self._head)]
        begin = len(self._head) - len(self._head.lstrip(b"\r\n"))  # empty lines: RFC 9112, 2.2
        end = self._head.find(b"\r\n\r\n", begin) + 4
        if end >= 4:
            self._above = self._listener.open_above(self)
            self._above.connection_made(self)
            self._above.data_received(bytes(self._head[begin:end]))
        elif len(self._head) > REQUEST_BYTES_MAX:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def eof_received(self) -> bool:
        """A client that has asked may close its side, and gets its answer; none that listens to a stream, as it is
        not known from one that has gone."""
        self._client_ended = True
        return self._above is not None and not self._ended and not self.streams

    def pause_writing(self) -> None:
        if self._above is not None:
            self._above.pause_writing()

    def resume_writing(self) -> None:
        if self._above is not None:
            self._above.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self.may_stay()
        self._ended = True
        self._listener.left(self)
        if self._above is not None:
            self._above.connection_lost(exc)

    # --- time ---

    def must_end_in_time(self) -> None:
        """What is under way has the time of a request from now on."""
        self.may_stay()
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(self._listener.deadline_s, self.abort)

    def may_stay(self) -> None:
        """Until there is something to send."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    # --- asyncio.Transport: what aiohttp asks for ---

    def write(self, data: Any) -> None:
        if self._ended:
            return
        if self.answered:
            self._below.write(data)
        elif self.asked:
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR)
        else:
            self._refuse(HTTPStatus.BAD_REQUEST)

    def close(self) -> None:
        """All is said. What the client still sends must not make the system throw away the answer: it is read, and
        dropped, until the client closes its side, too."""
        if not self._ended:
            self._ended = True
            self.must_end_in_time()
            if self._client_ended:
                self._below.close()
            elif not self._below.is_closing():
                self._below.write_eof()

    def abort(self) -> None:
        self._below.abort()

    def is_closing(self) -> bool:
        return self._ended or self._below.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._below.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """Nothing more is handed on as it is."""

    def resume_reading(self) -> None:
        """See `pause_reading`."""

    def _refuse(self, status: HTTPStatus) -> None:
        said = Response.text(status.phrase, status)
        headers = {**said.all_headers(), "Content-Length": str(len(said.body))}
        lines = [f"HTTP/1.1 {status.value} {status.phrase}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self._below.write("\r\n".join([*lines, "", ""]).encode("ascii") + said.body)
        self.close()


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
        self.deadline_s = deadline_s
        self.tls = tls
        self._open: set[_Guard] = set()
        self._answering: set[asyncio.Task[Any]] = set()
        self._crowd: Crowd[_Guard] = Crowd()
        self._accepted = 0
        self._defects = Defects()
        self._servers: list[asyncio.Server] = []
        self.port = 0

    async def start(self, sockets: Sequence[socket.socket]) -> None:
        """Listen at these. Raises `OSError` if the address is taken."""
        loop = asyncio.get_running_loop()
        for one in sockets:
            self._servers.append(await loop.create_server(self._accept, sock=one))
        self.port = sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Listen no more, and end what is under way."""
        for server in self._servers:
            server.close()
        for guard in list(self._open):
            guard.abort()
        await self._crowd.none_left()
        # aiohttp has cancelled them. A second time would be one too much for those that wait for a thread.
        await asyncio.gather(*self._answering, return_exceptions=True)

    # --- for guards ---

    def _accept(self) -> _Guard:
        self._accepted += 1
        return _Guard(self, self._accepted)

    def entered(self, guard: _Guard) -> None:
        """A connection is there: another one leaves for it where there are too many."""
        peer = guard.get_extra_info("peername")
        self._open.add(guard)
        leaves = self._crowd.add(guard, peer[0] if peer else "", CONNECTIONS_MAX)
        if leaves is not None:
            leaves.abort()

    def left(self, guard: _Guard) -> None:
        """A connection has gone."""
        self._open.discard(guard)
        self._crowd.remove(guard)

    def open_above(self, guard: _Guard) -> web.RequestHandler:
        """aiohttp's protocol for one request."""

        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            task = asyncio.current_task()
            assert task is not None
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)
            if request.version.major != 1:
                raise web.HTTPBadRequest
            guard.asked = True
            return await self._answer(request, guard)

        server = web.Server(
            answer,
            handler_cancellation=True,
            access_log=None,
            logger=_Quiet(log),
            keepalive_timeout=0,
            lingering_time=0,
        )
        return server()

    async def _answer(self, request: web.BaseRequest, guard: _Guard) -> web.StreamResponse:
        peer = request.remote or ""
        asked = Request(request.method, request.path, request.headers, peer, guard.has_certificate)
        try:
            response = await self._respond(asked)
        except Exception as error:
            trace = self._defects.trace(error)  # each once: strangers may not fill the log
            log.error(
                "metrics: no answer to %s %s: %r", asked.method, asked.path, error, exc_info=trace
            )
            raise
        guard.answered = True
        headers = response.all_headers()
        if response.stream is None or asked.method == "HEAD":
            return web.Response(body=response.body, status=response.status, headers=headers)
        streamed = web.StreamResponse(status=response.status, headers=headers)
        await streamed.prepare(request)
        await streamed.write(response.body)
        async with aclosing(response.stream) as stream:
            guard.streams = True
            guard.may_stay()
            async for piece in stream:
                guard.must_end_in_time()
                await streamed.write(piece)
                guard.may_stay()
        guard.must_end_in_time()
        return streamed

    async def _respond(self, request: Request) -> Response:
        handler = self._routes.get(request.path)
        if handler is None:
            return Response.text(f"there are {', '.join(self._routes)}", HTTPStatus.NOT_FOUND)
        if request.method not in ("GET", "HEAD"):
            status = HTTPStatus.METHOD_NOT_ALLOWED
            return Response(b"", status, headers={"Allow": "GET, HEAD"})
        return await handler(request)
