"""A bare uvloop server of ready-made bytes: what sockets, kernel and the drain clients themselves would allow.

Each client that sends a byte gets the same piece again and again, `--bytes` in all, then the packet that ends a dump:

    python -m benchmarks.loopback --bytes N

prints its port as JSON and serves until its standard input closes. `benchmarks.drain --bare` are its clients.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import Final, cast

import uvloop

from benchmarks.drain import END_PACKET

PIECE_BYTES: Final = 265_000  # about what our server sends at once
HIGH_WATER: Final = 512 * 1024  # as our server has it


class _Sender(asyncio.Protocol):
    """The stream to one client."""

    def __init__(self, piece: bytes, size: int) -> None:
        self._piece = piece
        self._left = size - len(END_PACKET)
        self._paused = False
        self._started = False
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are not derived from it
        self._transport.set_write_buffer_limits(high=HIGH_WATER)

    def data_received(self, data: bytes) -> None:
        if not self._started:
            self._started = True
            self._send()

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._send()

    def _send(self) -> None:
        """Send one piece; then the other clients have their turn."""
        if self._paused or self._transport.is_closing():
            return
        size = min(self._left, len(self._piece))
        if not size:
            self._transport.write(END_PACKET)
            self._transport.close()
            return
        self._left -= size
        self._transport.write(self._piece if size == len(self._piece) else self._piece[:size])
        if not self._paused:
            asyncio.get_running_loop().call_soon(self._send)


async def serve(size: int) -> None:
    """Serve until standard input closes."""
    loop = asyncio.get_running_loop()
    piece = bytes(range(250)) * (PIECE_BYTES // 250)
    server = await loop.create_server(lambda: _Sender(piece, size), "127.0.0.1", 0, backlog=1024)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    async with server:
        await loop.run_in_executor(None, sys.stdin.read)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loopback")
    parser.add_argument("--bytes", type=int, required=True, help="for each client, at least 9")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(parser.parse_args().bytes))


if __name__ == "__main__":
    main()
