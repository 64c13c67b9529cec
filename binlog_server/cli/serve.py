"""`binlog-server serve`: run until SIGTERM, SIGINT or SIGQUIT."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop
from binlog_protocol.gtid import U32_MAX, SlavePosition
from binlog_storage.archive.places import archive_argument, is_remote
from binlog_storage.console.arguments import add_json, number_argument, position_argument
from binlog_storage.console.output import shortened, show_json
from binlog_storage.disk.local_path import path_argument
from binlog_storage.errors import NoBinlogKey

from binlog_server.app.app import (
    Server,
    call_soon,
    certificate_of,
    load_ahead,
    metrics_tls_of,
)
from binlog_server.connections.listening import Bound
from binlog_server.connections.open_files import allow_open_files
from binlog_server.faults.faults import OrderedFault
from binlog_server.loop.few_threads import FewThreads
from binlog_server.process import logs
from binlog_server.process.allocation import spare_what_stays
from binlog_server.process.disk_watch import DiskWatch
from binlog_server.process.hand_over import (
    READY,
    SERVING,
    Predecessor,
    Successor,
    given_sockets,
    own_command,
)
from binlog_server.process.service_manager import ServiceManager
from binlog_server.process.signals import Signals, kill_process
from binlog_server.settings import config as configuration
from binlog_server.settings.config import Config, ConfigError
from binlog_server.store.store_directory import StoreDirectory

if TYPE_CHECKING:
    from binlog_server.store.archive_intake import ArchiveIntake

log = logging.getLogger(__name__)

# The interpreter's switch interval. The thread that has synced needs the interpreter while the loop is busy with other
# commits; with the default of 5 ms every group commit waits that long. Measured with 64 clients: 8,000 commits/s with
# the default, 23,000 with this; a smaller value costs more than it gains.
SWITCH_INTERVAL_S = 0.0001
READY_S = 60.0  # that a new process gets until it could take our place
SEE_OFF_S = 0.05  # between two looks at replicas that are sent the end
THREADS_S = 1.0  # that threads get to return at the end
SETTLE_S = 0.3  # until the first clients of a start, who have waited for it, are in


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser("serve", help="serve a binlog store to replicas")
    parser.add_argument("--directory", dest="binlog_directory", help="the binlog store")
    parser.add_argument("--listen", metavar="HOST:PORT", help="default 127.0.0.1:3306")
    parser.add_argument(
        "--upstream",
        metavar="mariadb://USER:PASSWORD@HOST:PORT",
        help="the master that is followed",
    )
    parser.add_argument(
        "--archive",
        type=archive_argument,
        metavar="DIR|URL",
        help="take what the store lacks of this archive into it, before serving",
    )
    parser.add_argument(
        "--archive-start-position",
        type=position_argument,
        metavar="GTIDS",
        help="begin an empty store with the part of the archive that has this position",
    )
    parser.add_argument(
        "--config",
        type=path_argument,
        metavar="FILE.toml",
        help="options; those of variables BINLOG_SERVER_... go before, those of this line before both",
    )
    parser.add_argument(
        "--server-id",
        dest="server_id",
        type=number_argument(1, U32_MAX),
        help="unlike all others of the topology (default 1)",
    )
    parser.add_argument(
        "--log-level",
        dest="log_level",
        choices=["DEBUG", "INFO", "WARNING"],
        help="the least that is logged (default INFO)",
    )
    parser.add_argument(
        "--log-format",
        dest="log_format",
        choices=logs.FORMATS,
        help="a line of text or a JSON object for each fact (default text)",
    )
    parser.add_argument(
        "--metrics-listen",
        dest="metrics_listen",
        metavar="HOST:PORT",
        help="for metrics, health and the status page (default: none)",
    )
    parser.add_argument(
        "--check-config",
        action="store_true",
        help="say whether the configuration is right, and end; a server may run meanwhile",
    )
    add_json(parser, "one JSON object; with --check-config")
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
        return configuration.load(arguments.config, overrides, os.environ)

    config = load()
    if arguments.check_config:
        return _check(config, as_json=arguments.json)
    if arguments.json:
        raise ConfigError("--json is for --check-config; the log is made JSON by --log-format json")
    logs.set_up_logging(config.log_level, config.log_format)
    for doubt in configuration.doubts(config):
        log.warning("%s", doubt)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    if config.innodb_read_only and arguments.archive is not None:
        raise ConfigError("--archive writes the store: leave it or innodb_read_only out")

    def read() -> Config:
        found = load()
        return dataclasses.replace(found, max_connections=allow_open_files(found.max_connections))

    predecessor = Predecessor.of()
    with Signals() as signals, DiskWatch(config.net_read_timeout):
        start = arguments.archive_start_position
        return uvloop.run(
            _serve(read(), signals, arguments.archive, start, read, None, predecessor)
        )


def _check(config: Config, *, as_json: bool) -> int:
    """Say what there is to say about a configuration that could be read, and look at the files that it names."""
    doubts = list(configuration.doubts(config))
    if config.ssl and (doubt := certificate_of(config).doubt()):
        doubts.append(doubt)
    metrics_tls_of(config)
    try:
        config.binlog_keys()
    except NoBinlogKey as error:
        raise ConfigError(f"file_key_management_filename: {error}") from None
    if as_json:
        show_json({"right": True, "doubts": doubts})
        return 0
    for doubt in doubts:
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
    predecessor: Predecessor | None = None,
) -> int:
    """Serve until a signal comes. Returns the exit code: 1 after a failure of the store that ends the server.

    Args:
        read: reads the configuration again.
        predecessor: the process whose place this one takes.
    """
    threads = FewThreads(name="binlog-pool")
    loop = asyncio.get_running_loop()
    loop.set_default_executor(threads)
    serving = _Serving(signals, manager or ServiceManager(), read)
    sockets: Sequence[socket.socket] = given_sockets()
    if predecessor is not None:
        sockets = await _wait_for_place(config, predecessor)
    watching = loop.create_task(serving.manager.watch())
    try:
        while True:
            successor = await serving.serve(config, archive, start, sockets, predecessor)
            if successor is None and serving.goes_back:
                config, sockets, predecessor = serving.config, serving.way_back.sockets, None
                continue
            if successor is None or await serving.successors.is_taken_by(successor):
                break
            config, sockets, predecessor = serving.config_again(), successor.sockets, None
    finally:
        serving.forget_faults()
    serving.at("threads that have not returned")
    watching.cancel()
    threads.shutdown(wait=False, cancel_futures=True)
    await _leave_threads(signals)
    serving.at("ended")
    return signals.status


async def _wait_for_place(config: Config, predecessor: Predecessor) -> Sequence[socket.socket]:
    """Do what can be done beside the process that still serves, then wait until it does not. Returns its sockets."""
    if config.ssl:
        await asyncio.to_thread(
            certificate_of(config).prepare
        )  # the first one takes ten times as long as the next
    metrics_tls_of(config)
    await load_ahead()
    await asyncio.to_thread(predecessor.load_as_it)
    spare_what_stays()
    if not await predecessor.lets_go():
        log.warning("the process whose place this one takes is gone, and has not closed the store")
        await asyncio.to_thread(predecessor.is_gone)
    return predecessor.take_sockets(f"{config.listen_host}:{config.listen_port}")


class _WayBack:
    """A fault lets the store go back to a mark: the server ends, the store is what it was, and is served again.

    Args:
        at: see `_Serving.at`.
    """

    def __init__(self, signals: Signals, at: Callable[[str], None]) -> None:
        self._signals = signals
        self._at = at
        self._server: Server
        self._before: Server | None = None  # whose faults and marks go along
        self._fault: OrderedFault | None = None  # that has asked for it
        self.asked = asyncio.Event()
        self.sockets: Sequence[socket.socket] = ()
        """Where who comes meanwhile waits."""

    @property
    def is_under_way(self) -> bool:
        return self._fault is not None

    def opens(self) -> bool:
        """A store is opened. Returns whether it has gone back: its marks are kept."""
        self._before, self._fault = self._server if self._fault is not None else None, None
        self.asked.clear()
        return self._before is not None

    def serves(self, server: Server) -> None:
        """That server has faults from now on."""
        self._server = server
        server.faults.make_mark, server.faults.go_back = server.mark, self._go_back
        if self._before is not None:
            server.faults.take_over(self._before.faults)
            self._before = None

    def _go_back(self, one: OrderedFault) -> None:
        if self._fault is None:
            self._fault = one
            self.sockets = self._server.listening_sockets()
            self._server.cut_off()
            self.asked.set()

    async def go(self) -> None:
        """End the server, and make its store what it was."""
        server, one = self._server, self._fault
        assert one is not None, "it goes back"
        from binlog_server.store.marks import StoreMark

        assert isinstance(one.mark, StoreMark), "such a fault has one"
        log.warning("fault %s: the store goes back to what it was", one.name)
        with self._signals.in_time():
            await server.stop(self._at)
        differs = one.fault.do == "another_history"
        await asyncio.to_thread(one.mark.restore, server.config, differs=differs)


class _Successors:
    """Processes that are to take the place of this one.

    Args:
        at: see `_Serving.at`.
        stop: is set when this process is told to end.
    """

    def __init__(
        self,
        signals: Signals,
        manager: ServiceManager,
        at: Callable[[str], None],
        stop: asyncio.Event,
    ) -> None:
        self._signals = signals
        self._manager = manager
        self._at = at
        self._stop = stop
        self.asked = asyncio.Event()

    async def give_up(self, following: asyncio.Task[Successor]) -> None:
        following.cancel()
        await asyncio.wait([following])
        if not following.cancelled() and following.exception() is None:
            following.result().kill()

    async def next_for(self, server: Server) -> Successor:
        """One that is ready, as often as one is asked for."""
        while True:
            await self.asked.wait()
            self.asked.clear()
            if (found := await self._new(server)) is not None:
                return found

    async def _new(self, server: Server) -> Successor | None:
        """A process that is ready to take the place of this one."""
        if os.getpid() == 1:
            log.error("this is process 1, whose end ends its container: start another container")
            return None
        listen = f"{server.config.listen_host}:{server.config.listen_port}"
        try:
            successor = Successor.begin(own_command(), server.listening_sockets(), listen)
        except OSError as error:
            log.error("no new process could be started, this one goes on: %s", error)
            return None
        log.info("process %d is to take the place of this one", successor.pid)
        self._signals.takes_along = successor.kill
        try:
            async with asyncio.timeout(READY_S):
                if await successor.says(READY):
                    return successor
        except TimeoutError:
            log.error("process %d is not ready in %.0f s", successor.pid, READY_S)
            successor.kill()
        except BaseException:
            successor.kill()
            raise
        await successor.ended()
        log.error("process %d has ended before it was ready: this one goes on", successor.pid)
        successor.close()
        return None

    async def is_taken_by(self, successor: Successor) -> bool:
        """Wait until another process serves in the place of this one, which is over then. False: it does not."""
        self._at(f"process {successor.pid} opens the store")
        word = asyncio.create_task(successor.says(SERVING))
        stop = asyncio.create_task(self._stop.wait())
        await asyncio.wait([word, stop], return_when=asyncio.FIRST_COMPLETED)
        if stop.done():
            successor.end()
        stop.cancel()
        serves = await word
        self._signals.takes_along = lambda: None
        if serves and not self._stop.is_set():
            log.info("process %d serves", successor.pid)
            self._manager.main_is(successor.pid)
        if serves or self._stop.is_set():
            successor.close()
            return True
        await successor.ended()
        log.error("process %d has ended and does not serve: this one goes on", successor.pid)
        successor.close(keep_sockets=True)
        return False


class _Serving:
    """What this process does: it opens a store and serves it until it is told to end, or to make room."""

    def __init__(
        self, signals: Signals, manager: ServiceManager, read: Callable[[], Config] | None
    ) -> None:
        self._signals = signals
        self.manager = manager
        self._read = read
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._intake: ArchiveIntake | None = None
        self._waits_for_replicas = False
        self.way_back = _WayBack(signals, self.at)
        self.successors = _Successors(signals, manager, self.at, self._stop)
        self._server: Server

    def at(self, what: str) -> None:
        """The process is at this now."""
        self._signals.doing = what
        self.manager.status(what)

    def _end(self) -> None:
        """In any thread."""
        if self._intake is not None:
            self._intake.stop()
        call_soon(self._loop, self._stop.set)

    def _end_by_sql(self, waits: bool) -> None:
        self._waits_for_replicas = waits
        self._end()

    @property
    def config(self) -> Config:
        """That of the server."""
        return self._server.config

    @property
    def goes_back(self) -> bool:
        """Whether it is to serve again, at the sockets of `way_back`, with the same configuration."""
        return self.way_back.is_under_way and not self._stop.is_set()

    def forget_faults(self) -> None:
        """Marks go with them."""
        if (server := getattr(self, "_server", None)) is not None:
            server.faults.end()

    async def _see_off(self) -> None:
        """Wait until replicas have everything, or a signal says that it is enough. That may take as long as it does."""
        while (left := self._server.replicas_behind()) and not self._signals.is_ending:
            self.at(f"sending {left} replicas what they lack")
            await asyncio.sleep(SEE_OFF_S)
        self._signals.ending()

    async def serve(
        self,
        config: Config,
        archive: str | Path | None,
        start: SlavePosition | None,
        sockets: Sequence[socket.socket],
        predecessor: Predecessor | None,
    ) -> Successor | None:
        """Until it is told to end. Returns the process that waits for the store, if that is why."""
        if archive is not None and not is_remote(archive):
            from binlog_storage.archive.archive import Archive

            # One that is not there is told before a new store is made for nothing.
            Archive.open(archive, config.archive_keys(archive))
        self.at("finding the addresses to listen at")
        places = Bound.of(config, sockets)
        try:
            server = self._open(config)
        except BaseException:
            places.close()
            raise
        directory = server.directory
        directory.start()  # not before the server has set its holds on files
        self._signals.status = 1
        self._intake = intake = (
            None if archive is None else _intake_of(config, directory, archive, start)
        )
        server.end_process = self._end_by_sql
        server.faults.die = kill_process
        self.way_back.serves(server)
        self._signals.hear(
            self._end,
            lambda: call_soon(self._loop, server.reload_soon),
            lambda: call_soon(self._loop, self.successors.asked.set),
        )
        try:
            if intake is not None:
                self.at("taking the archive into the store")
                await asyncio.to_thread(intake.take)
                server.look_at_begin()
                server.history_changed()
            serves = not self._stop.is_set()
            if serves:
                if config.binlog_faults:
                    log.warning(
                        "binlog_faults: accounts with BINLOG FAULT may make this server misbehave"
                    )
                await server.start(intake, places)
        except BaseException:
            server.directory.close()
            raise
        if not serves:
            places.close()
            directory.close()
            self._signals.status = 0
            return None
        # Also if it was told to end meanwhile: there may be clients.
        if predecessor is not None:
            predecessor.serving()
        return await self._until_told()

    def _open(self, config: Config) -> Server:
        """The server, over its store. Raises `ConfigError`, `StorageError`."""
        self.at("opening the store")
        has_gone_back = self.way_back.opens()
        directory = StoreDirectory.of(
            config,
            background=False,
            patient=not config.innodb_read_only,
            to_serve=True,
            keeps_marks=has_gone_back,
        )
        try:
            self._server = server = Server(config, directory, self._read)
        except BaseException:
            directory.close()
            raise
        return server

    async def _settle(self) -> None:
        """Load what later clients should not wait for. A server that cannot is of no use, and ends."""
        server = self._server
        try:
            await asyncio.sleep(SETTLE_S)
            await load_ahead()
            if server.tls is not None:
                await asyncio.to_thread(server.tls.prepare)
            spare_what_stays()
        except Exception:
            log.exception("the server ends, as a part of it cannot be loaded")
            server.failed.set()

    async def _until_told(self) -> Successor | None:
        """Serve until it is told to end, or has failed, or another process is ready; then end in order."""
        server = self._server
        self.at("serving")
        server.tell_of_reloads(self.manager.reloading, self.manager.ready)
        self.manager.ready()
        events = (self._stop, server.failed)
        ended = [asyncio.create_task(event.wait()) for event in (*events, self.way_back.asked)]
        settling = asyncio.create_task(self._settle())
        following = asyncio.create_task(self.successors.next_for(server))
        await asyncio.wait([*ended, following], return_when=asyncio.FIRST_COMPLETED)
        for task in (*ended, settling):
            task.cancel()
        if any(event.is_set() for event in events):
            await self.successors.give_up(following)
            log.info("shutting down")
            self.manager.stopping()
            if self._waits_for_replicas:
                await server.stop(self.at, self._see_off)
            else:
                self._signals.ending()
                await server.stop(self.at)
            successor = None
        elif self.way_back.asked.is_set():
            await self.successors.give_up(following)
            await self.way_back.go()
            successor = None
        else:
            successor = following.result()
            log.info("process %d takes the place of this one", successor.pid)
            with self._signals.in_time():
                await server.admit_no_more()
                await server.stop(self.at)
            successor.yours()
        # A store that has failed is closed, too, but for what its next start finds in the redo log, or not.
        is_whole = not server.failed.is_set() and server.syncer.failure is None
        self._signals.status = 0 if is_whole else 1
        return successor

    def config_again(self) -> Config:
        """As it is in the file, or as it was if it cannot be read."""
        try:
            return self._read() if self._read is not None else self._server.config
        except (ConfigError, OSError) as error:
            log.error("the configuration stays as it was: %s", shortened(str(error)))
            return self._server.config


def _intake_of(
    config: Config, directory: StoreDirectory, archive: str | Path, start: SlavePosition | None
) -> ArchiveIntake:
    from binlog_server.store.archive_intake import ArchiveIntake

    return ArchiveIntake(directory, archive, start, config.archive_keys(archive))


async def _leave_threads(signals: Signals) -> None:
    """Wait a short time for the threads, then leave without them: the interpreter would wait without end."""
    end = time.monotonic() + THREADS_S
    while left := signals.threads_left():
        if time.monotonic() > end:
            log.warning("left behind, as they do not return: threads %s", ", ".join(left))
            signals.leave(signals.status)
        await asyncio.sleep(0.01)
