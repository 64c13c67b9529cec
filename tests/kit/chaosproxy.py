"""A TCP proxy that misbehaves on request: what netem would do, without root, at an exact byte.

It runs in a thread of its own, so that tests which block (pymysql) can use it as well as asyncio
ones. `up` is what the client sends to the target, `down` what it gets back:

    with ChaosProxy(("127.0.0.1", server.port)) as proxy:
        replica.follow(server, port=proxy.port)
        proxy.down.cut_after = 5000     # of the next connection that gets that far
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self, TypeVar

from binlog_server.testing.sql_server import Credentials

T = TypeVar("T")


@dataclass
class Faults:
    """Of one direction. Byte positions count from the start of a connection."""

    latency: float = 0.0
    """Seconds before each piece is passed on."""
    jitter: float = 0.0
    """Seconds by which the latency varies, to both sides."""
    chunk: int | None = None
    """Pass on in pieces of so many bytes; 1 is one byte per segment."""
    rate: float | None = None
    """Bytes per second; smooth with a small `chunk`."""
    black_hole: bool = False
    """Read and forget: the sender notices nothing."""
    hold: bool = False
    """Do not read: the sender's buffers fill up."""
    cut_after: int | None = None
    """Reset the connection after that byte; once, then it is None again."""
    then_refuse: bool = False
    """After such a cut `refuse` is set: nobody is back before the test says so."""
    flip_at: int | None = None
    """Flip one bit (of the seed's choice) of that byte; once, then it is None again."""


@dataclass(eq=False)
class _Link:
    client: asyncio.StreamWriter
    target: asyncio.StreamWriter

    def reset(self) -> None:
        for writer in (self.client, self.target):
            _reset(writer)


class ChaosProxy:
    """A `Source` to follow, with the target's account."""

    def __init__(
        self,
        target: tuple[str, int],
        *,
        seed: int = 0,
        host: str = "127.0.0.1",
        port: int = 0,
        account: Credentials | None = None,
    ) -> None:
        self.target = target
        """May be changed: it counts for the next connection."""
        self.account = account or Credentials()
        self.host = host
        self.port = port
        self.accepted = 0
        """Connections so far, refused ones included."""
        self._random = random.Random(seed)
        self._links: set[_Link] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="chaos")
        self.clear()

    def clear(self) -> None:
        """Behave, from now on."""
        self.up = Faults()
        self.down = Faults()
        self.refuse = False

    def start(self) -> Self:
        self._thread.start()

        async def listen() -> asyncio.Server:
            return await asyncio.start_server(self._accept, self.host, self.port)

        self._server = asyncio.run_coroutine_threadsafe(listen(), self._loop).result(10)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def stop(self) -> None:
        async def end() -> None:
            self._server.close()
            self._reset_all()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def cut(self) -> int:
        """Resets every connection; says how many."""
        return self._call(self._reset_all)

    @property
    def connections(self) -> int:
        return self._call(lambda: len(self._links))

    def _call(self, function: Callable[[], T]) -> T:
        async def call() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(10)

    def _reset_all(self) -> int:
        links = list(self._links)
        for link in links:
            link.reset()
        return len(links)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        if self.refuse:
            _reset(writer)
            return
        try:
            target_reader, target_writer = await asyncio.open_connection(*self.target)
        except OSError:
            _reset(writer)
            return
        link = _Link(writer, target_writer)
        self._links.add(link)
        try:
            await asyncio.gather(
                self._pump(reader, target_writer, "up", link),
                self._pump(target_reader, writer, "down", link),
            )
        except OSError:
            link.reset()
        finally:
            self._links.discard(link)
            for end in (writer, target_writer):
                end.close()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: str, link: _Link
    ) -> None:
        passed = 0
        while True:
            await self._while_held(way)
            data = await reader.read(65536)
            await self._while_held(way)
            faults: Faults = getattr(self, way)  # `clear` puts a new one in its place
            if not data:
                if writer.can_write_eof():
                    writer.write_eof()
                return
            if faults.black_hole:
                continue
            if faults.latency or faults.jitter:
                shift = self._random.uniform(-faults.jitter, faults.jitter)
                await asyncio.sleep(max(0.0, faults.latency + shift))
            data = self._flip(data, passed, faults)
            cut = faults.cut_after
            if cut is not None and passed + len(data) >= cut:
                self.refuse = self.refuse or faults.then_refuse
                faults.cut_after = None
                await self._send(writer, data[: max(0, cut - passed)], faults)
                await asyncio.sleep(0.01)  # a reset overtakes what the other side has not read yet
                link.reset()
                return
            passed += len(data)
            await self._send(writer, data, faults)

    async def _while_held(self, way: str) -> None:
        while getattr(self, way).hold:  # noqa: ASYNC110  # a plain attribute, set by any thread
            await asyncio.sleep(0.01)

    def _flip(self, data: bytes, passed: int, faults: Faults) -> bytes:
        if faults.flip_at is None or not passed <= faults.flip_at < passed + len(data):
            return data
        changed = bytearray(data)
        changed[faults.flip_at - passed] ^= 1 << self._random.randrange(8)
        faults.flip_at = None
        return bytes(changed)

    async def _send(self, writer: asyncio.StreamWriter, data: bytes, faults: Faults) -> None:
        size = faults.chunk or len(data) or 1
        for i in range(0, len(data), size):
            piece = data[i : i + size]
            writer.write(piece)  # asyncio sets TCP_NODELAY: a piece is a segment
            await writer.drain()
            if faults.rate:
                await asyncio.sleep(len(piece) / faults.rate)
            elif faults.chunk:
                await asyncio.sleep(0)


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):  # closed already
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
