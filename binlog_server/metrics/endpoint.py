"""The pages of the metrics' listener: /metrics, /healthz, /readyz."""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus

from binlog_storage.errors import StorageError

from binlog_server.loop.shielded import shielded
from binlog_server.metrics import health
from binlog_server.metrics.collector import render
from binlog_server.metrics.http import HttpListener, Request, Response
from binlog_server.metrics.observed import Look, Observed

log = logging.getLogger(__name__)


class MetricsEndpoint:
    """The metrics listener of one server, on one event loop."""

    def __init__(self, server: Observed) -> None:
        self._server = server
        self._one = asyncio.Lock()  # scrapes take turns: a thread each is not theirs to take
        self._listener = HttpListener(
            {"/metrics": self._metrics, "/healthz": self._healthz, "/readyz": self._readyz}
        )

    @property
    def port(self) -> int:
        return self._listener.port

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises `OSError` if the address is taken."""
        await self._listener.start(host, port)
        log.info("metrics on host: '%(host)s' port: %(port)d", {"host": host, "port": self.port})

    async def close(self) -> None:
        """Stop listening; the store may be closed afterwards."""
        await self._listener.close()

    async def _metrics(self, request: Request) -> Response:
        accept = request.headers.get("accept", "")
        async with self._one:
            rendering = asyncio.ensure_future(asyncio.to_thread(render, Look(self._server), accept))
            try:
                body, content_type = await shielded(rendering)
            except StorageError as error:
                text = f"the store cannot be asked: {error}"
                return Response.text(text, HTTPStatus.INTERNAL_SERVER_ERROR)
            except asyncio.CancelledError:
                await rendering  # the thread goes on: the next one has to wait for it
                raise
        return Response(body, content_type=content_type)

    async def _healthz(self, _: Request) -> Response:
        return health.response(health.what_ails(self._server))

    async def _readyz(self, _: Request) -> Response:
        return health.response(health.what_is_missing(self._server))
