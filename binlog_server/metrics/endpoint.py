"""The paths of the metrics' listener: /metrics, /healthz, /readyz for programs; the status page and its API for people.

The first three are for everybody who reaches the listener. The others tell accounts, addresses and lines of the log:
they are for the machine itself, and elsewhere for those who have `metrics_token`, as a bearer or as a password, or a
certificate of `metrics_ssl_ca`.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import ipaddress
import json
import logging
import socket
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from http import HTTPStatus
from math import ceil
from typing import Any, Final, TypeVar

from binlog_storage.errors import StorageError

from binlog_server.loop.shielded import shielded
from binlog_server.metrics import health
from binlog_server.metrics.api import openapi
from binlog_server.metrics.collector import METRICS, render, values
from binlog_server.metrics.guesses import FREE, Guesses
from binlog_server.metrics.history import EVERY_S, History
from binlog_server.metrics.http import HttpListener, Request, Response
from binlog_server.metrics.observed import Look, Observed
from binlog_server.metrics.page import POLICY, middle, page
from binlog_server.metrics.status import Glance
from binlog_server.process.logs import RecentLines

log = logging.getLogger(__name__)

T = TypeVar("T")

LIVE_S: Final = 2.0  # between two statuses of a stream; no look at the server is made sooner
_JSON: Final = "application/json"
_HTML: Final = "text/html; charset=utf-8"
_EVENTS: Final = "text/event-stream; charset=utf-8"
_OF_PROXIES: Final = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
_HEADERS: Final = {"Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff"}


class MetricsEndpoint:
    """The metrics listener of one server, on one event loop."""

    def __init__(self, server: Observed) -> None:
        self._server = server
        self._one = asyncio.Lock()  # scrapes take turns: a thread each is not theirs to take
        self._history = History(METRICS)
        self._guesses = Guesses()
        self._lines = RecentLines()
        self._asking: asyncio.Future[dict[str, Any]] | None = None
        self._looked = 0.0  # by the monotonic clock
        self._sampling: asyncio.Task[None] | None = None
        for_people: dict[str, Callable[[Request], Awaitable[Response]]] = {
            "/": self._page,
            "/live": self._live,
            "/api/status": self._api_status,
            "/api/history": self._api_history,
            "/api/metrics": self._api_metrics,
            "/api/events": self._api_events,
            "/api/openapi.json": self._api_document,
        }
        self._listener = HttpListener(
            {
                "/metrics": self._metrics,
                "/healthz": self._healthz,
                "/readyz": self._readyz,
                **{path: self._guarded(handler) for path, handler in for_people.items()},
            },
            tls=lambda: server.metrics_tls,
        )

    @property
    def port(self) -> int:
        return self._listener.port

    async def start(self, sockets: Sequence[socket.socket]) -> None:
        """Listen at these. Raises `OSError` if the address is taken."""
        await self._listener.start(sockets)
        logging.getLogger().addHandler(self._lines)
        self._sampling = asyncio.get_running_loop().create_task(self._sample())
        host = sockets[0].getsockname()[0]
        log.info("metrics on host: '%(host)s' port: %(port)d", {"host": host, "port": self.port})

    async def close(self) -> None:
        """Stop listening; the store may be closed afterwards."""
        logging.getLogger().removeHandler(self._lines)
        await self._listener.close()
        for task in (self._sampling, self._asking):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    # --- for everybody ---

    async def _metrics(self, request: Request) -> Response:
        accept = request.headers.get("accept", "")
        look = Look(self._server)
        body, content_type = await self._in_turn(lambda: render(look, accept))
        return Response(body, content_type=content_type)

    async def _healthz(self, _: Request) -> Response:
        return _health(health.what_ails(self._server))

    async def _readyz(self, _: Request) -> Response:
        return _health(health.what_is_missing(self._server))

    # --- for people ---

    def _guarded(
        self, handler: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            refused = refusal(request, self._server.config.metrics_token, self._guesses)
            if refused is not None:
                return refused
            try:
                return await handler(request)
            except StorageError as error:
                return _failed(error)

        return answer

    async def _page(self, _: Request) -> Response:
        body = page(await self._now(), self._history.told())
        return Response(body.encode(), content_type=_HTML, headers=_HEADERS)

    async def _live(self, _: Request) -> Response:
        return self._stream(lambda status: middle(status, self._history.told()))

    async def _api_events(self, _: Request) -> Response:
        return self._stream(json.dumps)

    async def _api_status(self, _: Request) -> Response:
        return _json(await self._now())

    async def _api_history(self, _: Request) -> Response:
        return _json(self._history.told())

    async def _api_metrics(self, _: Request) -> Response:
        look = Look(self._server)
        return _json(await self._in_turn(lambda: values(look)))

    async def _api_document(self, _: Request) -> Response:
        return _json(openapi())

    def _stream(self, shown: Callable[[dict[str, Any]], str]) -> Response:
        async def events() -> AsyncGenerator[bytes, None]:
            while True:
                try:
                    text = shown(await self._now())
                except StorageError:
                    return  # the browser asks again, and is told
                lines = "".join(f"data: {line}\n" for line in text.split("\n"))
                yield f"{lines}\n".encode()
                await asyncio.sleep(LIVE_S)

        return Response(b"", content_type=_EVENTS, headers=_HEADERS, stream=events())

    async def _now(self) -> dict[str, Any]:
        """The status: one look is for all who ask within `LIVE_S`. Raises `StorageError`."""
        asking, now = self._asking, time.monotonic()
        if asking is None or (asking.done() and now - self._looked >= LIVE_S):
            self._looked = now
            glance = Glance(self._server, self._lines)
            asking = self._asking = asyncio.ensure_future(self._in_turn(glance.read))
        return await shielded(asking)

    async def _sample(self) -> None:
        while True:
            look = Look(self._server)
            try:
                await self._in_turn(lambda look=look: self._history.take(look))  # type: ignore[misc]
            except StorageError as error:
                log.debug("no sample was taken: %s", error)
            await asyncio.sleep(EVERY_S)

    async def _in_turn(self, call: Callable[[], T]) -> T:
        """The result of a call in a thread. One at a time."""
        async with self._one:
            asked = asyncio.ensure_future(asyncio.to_thread(call))
            try:
                return await shielded(asked)
            except asyncio.CancelledError:
                await asked  # the thread goes on: the next one has to wait for it
                raise


def _health(found: list[str]) -> Response:
    """`ok`, or 503 and the list."""
    if found:
        # What an upstream says is quoted: it may have lines of its own.
        lines = (" ".join(line.split()) for line in found)
        return Response.text("\n".join(lines), HTTPStatus.SERVICE_UNAVAILABLE)
    return Response.text("ok")


def refusal(request: Request, token: str, guesses: Guesses) -> Response | None:
    """Why a request is not for people to see; None if it is. A wrong token is noted in `guesses`.

    Without a certificate or the token it must come from this machine, and be meant for it: a page from elsewhere whose
    name leads here (DNS rebinding) is not. Nor is a request that a proxy on this machine hands on, where it says so.
    """
    if request.has_certificate or _is_of_this_machine(request):
        return None
    if not token:
        text = "this is for the machine itself; set metrics_token or metrics_ssl_ca to see it from elsewhere"
        return Response.text(text, HTTPStatus.FORBIDDEN)
    if "authorization" in request.headers:
        wait_s = guesses.wait_s(request.peer)
        if wait_s:
            body = Response.text("too many wrong tokens", HTTPStatus.TOO_MANY_REQUESTS)
            return Response(body.body, body.status, headers={"Retry-After": str(ceil(wait_s))})
        # Bytes that are no UTF-8 are surrogates in a header.
        shown = _shown_token(request).encode("utf-8", "surrogatepass")
        if hmac.compare_digest(shown, token.encode()):
            guesses.right(request.peer)
            return None
        if guesses.wrong(request.peer, shown):
            log.warning("status page: %d wrong tokens from %s: it has to wait", FREE, request.peer)
    asked = {"WWW-Authenticate": 'Basic realm="binlog-server: any name, metrics_token"'}
    body = Response.text("metrics_token is asked for", HTTPStatus.UNAUTHORIZED)
    return Response(body.body, body.status, headers=asked)


def _shown_token(request: Request) -> str:
    kind, _, shown = request.headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return shown.strip()
    if kind.lower() == "basic":
        try:
            return base64.b64decode(shown, validate=True).decode().partition(":")[2]
        except ValueError:  # no base64, not even ASCII, or no UTF-8
            return ""
    return ""


def _is_of_this_machine(request: Request) -> bool:
    return (
        _is_loopback(request.peer)
        and _is_local_name(request.headers.get("host", ""))
        and not any(name in request.headers for name in _OF_PROXIES)
    )


def _is_loopback(address: str) -> bool:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback


def _is_local_name(host: str) -> bool:
    name, colon, port = host.rpartition(":")
    if not colon or "]" in port:
        name = host
    elif not port.isdecimal():
        return False
    return name.lower() == "localhost" or _is_loopback(name.strip("[]"))


def _json(value: object) -> Response:
    body = json.dumps(value, separators=(",", ":")).encode()
    return Response(body, content_type=_JSON, headers={"X-Content-Type-Options": "nosniff"})


def _failed(error: StorageError) -> Response:
    text = f"the store cannot be asked: {error}"
    return Response.text(text, HTTPStatus.INTERNAL_SERVER_ERROR)
