"""The listener for metrics and health: what comes over its socket."""

from __future__ import annotations

import asyncio
import random
from typing import Final

import uvloop

from binlog_server.connections.listening import bound
from binlog_server.metrics.http import HttpListener, Request, Response
from tests.fuzz.mutation import mutated
from tests.fuzz.target import Wrong

_SEEDS: Final = (
    b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /healthz?a=1 HTTP/1.0\r\n\r\n",
    b"HEAD /readyz HTTP/1.1\r\nHost: a:9104\r\nAccept: text/plain;version=0.0.4;q=0.5,*/*\r\nX: y\r\n\r\n",
    b"POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
    b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 100 + b"\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
)
_WAIT_S: Final = 20.0


class Web:
    """A whole connection: the request, then the end of what the client sends."""

    name = "http"
    time_s = 0.1
    per_life = 2000

    def open(self) -> None:
        self._bugs: list[str] = []
        self._loop = uvloop.new_event_loop()
        asyncio.set_event_loop(self._loop)
        self._loop.set_exception_handler(lambda _, context: self._bugs.append(str(context)))
        self._listener = HttpListener(dict.fromkeys(("/metrics", "/healthz", "/readyz"), _answer))
        self._loop.run_until_complete(self._listener.start(bound("metrics_listen", "127.0.0.1", 0)))

    def close(self) -> None:
        self._loop.run_until_complete(self._listener.close())
        self._loop.close()

    def make(self, rng: random.Random) -> bytes:
        return mutated(rng.choice(_SEEDS), rng, _SEEDS)

    def run(self, data: bytes) -> None:
        answer = self._loop.run_until_complete(self._ask(data))
        if answer and not answer.startswith((b"HTTP/1.1 ", b"HTTP/1.0 ")):
            raise Wrong(f"it answers {answer[:60]!r}")
        if self._bugs:
            raise Wrong(self._bugs.pop())

    async def _ask(self, data: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._listener.port)
        try:
            async with asyncio.timeout(_WAIT_S):
                writer.write(data)
                writer.write_eof()
                return await reader.read()
        except ConnectionError:
            return b""
        except TimeoutError:
            raise Wrong("it neither answers nor closes") from None
        finally:
            writer.close()


async def _answer(request: Request) -> Response:
    return Response.text(f"{request.method} {request.path} {len(request.headers)}")
