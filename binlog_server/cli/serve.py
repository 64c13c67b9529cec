"""`binlog-server serve`: run until SIGTERM, SIGINT or SIGQUIT."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import logging
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import uvloop
from binlog_protocol.errors import ServerError
from binlog_protocol.gtid import SlavePosition
from binlog_storage.archive.places import archive_argument
from binlog_storage.disk.local_path import path_argument

from binlog_server.app.app import Server, call_soon, certificate_of
from binlog_server.connections.open_files import allow_open_files
from binlog_server.process import logs
from binlog_server.process.allocation import keep_freed_memory, spare_what_stays
from binlog_server.process.disk_watch import DiskWatch
from binlog_server.process.service_manager import ServiceManager
from binlog_server.process.signals import Signals
from binlog_server.settings import config as configuration
from binlog_server.settings.config import Config, ConfigError
from binlog_server.store.archive_intake import ArchiveIntake
from binlog_server.store.store_directory import StoreDirectory

log = logging.getLogger(__name__)

# The interpreter's switch interval. The thread that has synced needs the interpreter while the loop is busy with other
# commits; with the default of 5 ms every group commit waits that long. Measured with 64 clients: 8,000 commits/s with
# the default, 23,000 with this; a smaller value costs more than it gains.
SWITCH_INTERVAL_S = 0.0001
THREADS_S = 1.0  # that threads get to return at the end


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser("serve", help="serve a binlog store to replicas")
    parser.add_argument("--directory", dest="binlog_directory", help="the binlog store")
    parser.add_argument("--listen", metavar="HOST:PORT", help="default 127.0.0.1:3306")
    parser.add_argument("--upstream", metavar="mariadb://USER:PASSWORD@HOST:PORT")
    parser.add_argument(
        "--archive",
        type=archive_argument,
        metavar="DIR|URL",
        help="take what the store lacks of this archive into it, before serving",
    )
    parser.add_argument(
        "--archive-start-position",
        type=_position,
        metavar="GTIDS",
        help="begin an empty store with the part of the archive that has this position",
    )
    parser.add_argument("--config", type=path_argument, metavar="FILE.toml")
    parser.add_argument("--server-id", dest="server_id", type=int)
    parser.add_argument("--log-level", dest="log_level", choices=["DEBUG", "INFO", "WARNING"])
    parser.add_argument("--log-format", dest="log_format", choices=logs.FORMATS)
    parser.add_argument("--metrics-listen", dest="metrics_listen", metavar="HOST:PORT")
    parser.add_argument(
        "--check-config",
        action="store_true",
        help="say whether the configuration is right, and end; a server may run meanwhile",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command: serve until a signal or a failure of the store. Returns the exit code.

    Raises `ConfigError`, `StorageError`, `OSError`.
    """
    overrides = {
        name: getattr(arguments, name)
        for name in (
            "binlog_directory",
            "listen",
            "upstream",
            "server_id",
            "log_level",
            "log_format",
            "metrics_listen",
        )
    }

    def load() -> Config:
        return configuration.load(arguments.config, overrides)

    config = load()
    if arguments.check_config:
        return _check(config)
    logs.set_up_logging(config.log_level, config.log_format)
    for doubt in configuration.doubts(config):
        log.warning("%s", doubt)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    keep_freed_memory()
    if config.innodb_read_only and arguments.archive is not None:
        raise ConfigError("--archive writes the store: leave it or innodb_read_only out")

    def read() -> Config:
        found = load()
        return dataclasses.replace(found, max_connections=allow_open_files(found.max_connections))

    with Signals() as signals, DiskWatch(config.net_read_timeout):
        start = arguments.archive_start_position
        return uvloop.run(_serve(read(), signals, arguments.archive, start, read))


def _check(config: Config) -> int:
    """Say what there is to say about a configuration that could be read, and look at the files that it names."""
    if config.ssl:
        certificate_of(config)
    for doubt in configuration.doubts(config):
        print(f"binlog-server: warning: {doubt}", file=sys.stderr)
    print("the configuration is right")
    return 0


async def _serve(
    config: Config,
    signals: Signals,
    archive: str | Path | None,
    start: SlavePosition | None,
    read: Callable[[], Config] | None = None,
    manager: ServiceManager | None = None,
) -> int:
    """Serve until a signal comes. Returns the exit code: 1 after a failure of the store that ends the server.

    Args:
        read: reads the configuration again.
    """
    manager = manager or ServiceManager()
    at = partial(_at, signals, manager)
    loop = asyncio.get_running_loop()
    threads = ThreadPoolExecutor(thread_name_prefix="binlog-pool")
    loop.set_default_executor(threads)
    at("opening the store")
    directory = StoreDirectory.of(
        config, background=False, patient=not config.innodb_read_only, to_serve=True
    )
    try:
        server = Server(config, directory, read)
    except BaseException:
        directory.close()
        raise
    directory.start()  # not before the server has set its holds on files
    stop = asyncio.Event()
    signals.status = 1
    intake = None if archive is None else ArchiveIntake(directory, archive, start)

    def end() -> None:
        if intake is not None:
            intake.stop()
        call_soon(loop, stop.set)

    server.end_process = end
    signals.hear(end, lambda: call_soon(loop, server.reload_soon))
    watching = loop.create_task(manager.watch())
    try:
        if intake is not None:
            at("taking the archive into the store")
            await asyncio.to_thread(intake.take)
            server.look_at_begin()
            server.history_changed()
        serves = not stop.is_set()
        if serves:
            await server.start(intake)
            spare_what_stays()
    except BaseException:
        server.directory.close()
        raise
    if not serves:
        directory.close()
    else:  # also if it was told to end meanwhile: there may be clients
        await _until_told(server, stop, signals, manager)
    signals.status = 1 if server.failed.is_set() else 0
    at("threads that have not returned")
    watching.cancel()
    threads.shutdown(wait=False, cancel_futures=True)
    await _leave_threads(signals)
    return signals.status


def _at(signals: Signals, manager: ServiceManager, what: str) -> None:
    """The process is at this now."""
    signals.doing = what
    manager.status(what)


async def _until_told(
    server: Server, stop: asyncio.Event, signals: Signals, manager: ServiceManager
) -> None:
    """Serve until it is told to end, or has failed; then end in order."""
    at = partial(_at, signals, manager)
    at("serving")
    server.tell_of_reloads(manager.reloading, manager.ready)
    manager.ready()
    ended = [asyncio.create_task(event.wait()) for event in (stop, server.failed)]
    await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED)
    log.info("shutting down")
    manager.stopping()
    signals.ending()
    await server.stop(at)


async def _leave_threads(signals: Signals) -> None:
    """Wait a short time for the threads, then leave without them: the interpreter would wait without end."""
    end = time.monotonic() + THREADS_S
    while left := signals.threads_left():
        if time.monotonic() > end:
            log.warning("left behind, as they do not return: threads %s", ", ".join(left))
            signals.leave(signals.status)
        await asyncio.sleep(0.01)


def _position(text: str) -> SlavePosition:
    try:
        return SlavePosition.parse(text)
    except ServerError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no GTID position: {error}") from None
