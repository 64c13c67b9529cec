"""A server in a thread of this process: for programs and tests that want a master without a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import uvloop

from binlog_server.app.app import Server, call_soon
from binlog_server.connections.listening import Bound
from binlog_server.settings.config import load
from binlog_server.store.store_directory import StoreDirectory


@contextlib.contextmanager
def running_server(directory: Path | str, **options: Any) -> Iterator[Server]:
    """A server on a store directory, with tables, until the end of the block; `server.master` changes its tables.

    `options`: those of the configuration file, as it has them; `listen_port` is any free one by default, `server.port`
    tells it.
    Signals, the log and limits of the process stay as they are. Raises `ConfigError`, `StorageError`, `OSError`.
    """
    with prepared_server(directory, options) as server:
        yield server


@contextlib.contextmanager
def prepared_server(
    directory: Path | str,
    options: Mapping[str, Any],
    before_start: Callable[[Server], object] = lambda server: None,
    sockets: Sequence[socket.socket] = (),
    keeps_marks: bool = False,
) -> Iterator[Server]:
    """See `running_server`. `before_start` is called on the loop, when nobody can connect yet.

    sockets: listen at these.
    keeps_marks: see `StoreDirectory.of`.
    """
    config = load(
        None,
        {"binlog_directory": directory, "listen_port": 0, "local_tables": True, **options},
    )
    started: Future[tuple[Server, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        places = Bound.of(config, sockets)
        with contextlib.ExitStack() as undo:
            undo.callback(places.close)
            store = StoreDirectory.of(
                config, background=False, to_serve=True, keeps_marks=keeps_marks
            )
            undo.callback(store.close)
            server = Server(config, store)
            store.start()  # not before the server has set its holds on files
            before_start(server)
            await server.start(sockets=places)
            undo.pop_all()
        stop = asyncio.Event()
        started.set_result((server, asyncio.get_running_loop(), stop))
        await stop.wait()
        await server.stop()

    def run() -> None:
        try:
            uvloop.run(serve())
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    thread = threading.Thread(target=run, name="binlog-server")
    thread.start()
    try:
        server, loop, stop = started.result()
    except BaseException:
        thread.join()
        raise

    def end() -> None:
        call_soon(loop, stop.set)
        thread.join()

    _ends().add(end)
    try:
        yield server
    finally:
        _ends().discard(end)
        end()


@functools.cache
def _ends() -> set[Callable[[], None]]:
    """Of the servers that run. At the end of the program they end in order, as if each had been told to.

    The interpreter waits for threads before it calls what `atexit` has, and starts none any more then. What the pool of
    threads of the standard library registers is called in front of that, the last one first: this is behind that pool.
    """
    import concurrent.futures.thread  # noqa: F401 - registers itself

    ends: set[Callable[[], None]] = set()

    def end_all() -> None:
        for end in list(ends):
            end()

    threading._register_atexit(end_all)  # type: ignore[attr-defined]  # 3.9 and later have it
    return ends
