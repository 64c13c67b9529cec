"""ALTER BINLOG CONVERT: a running server goes on in a store of the other format.

    1  a thread brings the groups into the new store, again and again, each time behind a FLUSH BINARY LOGS, until what
       is left takes less than `SHORT_S`. Commits, upstreams and replicas go on
    2  the border: upstreams are left, commits wait, as on a full disk; semi-sync is waited for, and dumps end by EOF,
       so that replicas reconnect, and wait. Open transactions that have something in files or tables are waited for
    3  the last groups, prepared XA transactions and facts, all durable
    4  the note in the old directory that the store has gone on in the new one, durable: a crash in front of it leaves
       the old store, behind it the new one
    5  everybody's engine is the new one: who has waited goes on

What fails in front of 4 leaves the server as it was.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from binlog_protocol.errors import (
    LockWaitExceeded,
    OptionPreventsBecause,
    QueryInterrupted,
    UnknownServerError,
)
from binlog_storage.binlog.stored_tables import TableEngine
from binlog_storage.classic.store import ClassicEngine
from binlog_storage.convert.stores import store_source, take_rest
from binlog_storage.convert.tables import copy_tables, require_convertible
from binlog_storage.engine.switching import SwitchingEngine
from binlog_storage.errors import StorageError, StoreFailed, UnknownTable
from binlog_storage.intake.intake import Intake
from binlog_storage.intake.server_version import UPSTREAM_VERSION_KEY
from binlog_storage.tables.store import TableStore

from binlog_server.loop.shielded import shielded
from binlog_server.settings.config import Config, ConfigError
from binlog_server.store.conversion import take_facts, wanted_of, without_limits
from binlog_server.store.store_directory import StoreDirectory, go_on_in, require_new

if TYPE_CHECKING:
    from binlog_server.app.app import Server

log = logging.getLogger(__name__)

_STATEMENT: Final = "ALTER BINLOG CONVERT"
SHORT_S: Final = 1.0  # a round that takes less is followed by the border
_ROUNDS: Final = 20  # and so is the last of these, whatever it took
BORDER_S: Final = 30.0  # that commits may wait
_LOOK_S: Final = 0.01
_READERS_S: Final = 10.0  # that statements which read the old files may take until those are closed


class FormatChange:
    """Those of one server, one at a time. `run` is called in a thread; all else on the loop."""

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self._one = threading.Lock()
        self._border = asyncio.Lock()
        self._stopping = False
        self.dumps_begin = asyncio.Event()
        """See `sessions.host.Host`."""
        self.dumps_begin.set()
        self._closing: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """The server stops: none begins any more. Returns when one that is at its border has ended, and old stores are
        closed.
        """
        self._stopping = True
        async with self._border:
            pass
        await asyncio.gather(*self._closing)

    # --- in a thread ---

    def run(self, target: Path, log_bin: str | None, given_up: Callable[[], bool]) -> None:
        """Raises `ServerError`, `StorageError`; the server goes on as it was then."""
        if not self._one.acquire(blocking=False):
            raise UnknownServerError(f"{_STATEMENT} is at work")
        try:
            with self._server.backups.changing(given_up):
                self._run(target, log_bin, lambda: given_up() or self._stopping)
        except (ConfigError, OSError) as error:
            raise UnknownServerError(str(error)) from None
        finally:
            self._one.release()

    def _run(self, target: Path, log_bin: str | None, given_up: Callable[[], bool]) -> None:
        self._require_possible(target)
        server, path = self._server, self._server.directory.path
        old = server.directory.engine
        require_new(target)
        hold = old.hold(_STATEMENT, ended_by="KILL QUERY ends it")
        try:
            config = self._config(target, log_bin)
            directory = StoreDirectory.of(config, converting=True)
            try:
                self._catch_up(path, directory, given_up)
                border = self._at_border(directory, config, given_up)
                asyncio.run_coroutine_threadsafe(border, self._loop).result()
            except BaseException:
                if server.directory is not directory:
                    directory.close()
                raise
        finally:
            hold.release()

    def _require_possible(self, target: Path) -> None:
        server = self._server
        server.publisher.require_whole()
        if not target.is_absolute():
            raise UnknownServerError(f"'{target}' is no absolute path")
        config = server.config
        if config.binlog_archive_directory or config.binlog_archive_url:
            raise OptionPreventsBecause(
                "--binlog-archive-url"
                if config.binlog_archive_url
                else "--binlog-archive-directory",
                "the archive is that of this store. Take it out of the configuration file, restart, and archive the "
                "new store into another directory",
            )
        if config.encrypt_binlog and isinstance(server.directory.engine, ClassicEngine):
            raise OptionPreventsBecause(
                "--encrypt-binlog",
                "the new store has no encryption. Turn it off, restart, and see that what the store lies on is "
                "encrypted",
            )
        if (tables := server.directory.table_engine) is not None:
            require_convertible(tables.tables, ended=False)

    def _config(self, target: Path, log_bin: str | None) -> Config:
        """That of the new store, which purges nothing before it is served."""
        server = self._server
        with contextlib.closing(
            store_source(server.directory.path, running=True, keys=server.config.binlog_keys())
        ) as source:
            options = wanted_of(source, target, log_bin)
        version = server.state.get(UPSTREAM_VERSION_KEY, server.config.server_version)
        return without_limits(server.config, server_version=version, **options)

    def _catch_up(
        self, path: Path, directory: StoreDirectory, given_up: Callable[[], bool]
    ) -> None:
        """Step 1."""
        old, keys = self._server.directory.engine, self._server.config.binlog_keys()

        def progress(_: object) -> None:
            if given_up():
                raise QueryInterrupted()

        for _ in range(_ROUNDS):
            # An intake begins with a file: what is to be read again in the next round is short then.
            old.flush((), given_up)
            began = time.monotonic()
            with contextlib.closing(store_source(path, running=True, keys=keys)) as source:
                taken = Intake(directory.engine, source, progress).run()
            if (rows := self._rows(directory)) is not None:
                with contextlib.suppress(UnknownTable):  # it was dropped; the next round sees it
                    copy_tables(rows[0], rows[1].tables, progress)
            took = time.monotonic() - began
            log.info("%s: %d groups in %.1f s", _STATEMENT, taken.groups, took)
            if took < SHORT_S:
                break

    def _rows(self, directory: StoreDirectory) -> tuple[TableStore, TableEngine] | None:
        """The tables, and the engine that is to have them."""
        old, new = self._server.directory.table_engine, directory.table_engine
        if old is None or new is None:
            return None
        require_convertible(old.tables, ended=False)
        return old.tables, new

    def _carry_over(
        self, directory: StoreDirectory, config: Config, until: float, given_up: Callable[[], bool]
    ) -> None:
        """Steps 3 to 5, but for what belongs on the loop."""
        server, path = self._server, self._server.directory.path
        old, new = server.directory.engine, directory.engine

        def in_time(_: object) -> None:
            if given_up():
                raise QueryInterrupted()
            if time.monotonic() > until:
                raise LockWaitExceeded()

        old.flush()
        with contextlib.closing(store_source(path, keys=config.binlog_keys())) as source:
            Intake(new, source, in_time).run()
            take_rest(new, source, self._rows(directory), in_time)
        if new.binlog_state() != old.binlog_state() or new.prepared() != old.prepared():
            raise StorageError(
                f"{directory.path} is at '{new.binlog_state()}', and {path} at '{old.binlog_state()}'"
            )
        with server.leases.changing_store(), server.facts.lock:
            take_facts(server.facts.now.items(""), path, directory)
            go_on_in(path, directory.path)
            server.switching.go_on_in(new)
            server.facts.now = directory.state
        limits = server.config
        new.set_option("binlog_expire_logs_seconds", limits.expire_s)
        new.set_option("max_binlog_total_size", limits.max_binlog_total_size)
        try:
            directory.converted()
        except StorageError as error:  # the next start does it
            log.warning("%s", error)
        server.look_at_begin()

    # --- on the loop ---

    async def _at_border(
        self, directory: StoreDirectory, config: Config, given_up: Callable[[], bool]
    ) -> None:
        """Steps 2 to 5."""
        async with self._border:
            await shielded(self._loop.create_task(self._cross(directory, config, given_up)))

    async def _cross(
        self, directory: StoreDirectory, config: Config, given_up: Callable[[], bool]
    ) -> None:
        if given_up():
            raise QueryInterrupted()
        server, began = self._server, time.monotonic()
        if by_file := [str(one.id) for one in server.connections if one.dump_by_file]:
            raise UnknownServerError(
                f"connection {', '.join(by_file)} reads from a file and position, which there is not in the other "
                "format: CHANGE MASTER TO MASTER_USE_GTID=slave_pos on that replica, or KILL it"
            )
        engine, old, until = server.switching, server.directory, began + BORDER_S
        # A replica asks for the form of the stream first, which is another one behind the border; and one that is sent
        # away without an event comes back only after MASTER_CONNECT_RETRY, a minute.
        async with server.relay.left_for_now(), server.nobody_comes():
            with server.tables.going_elsewhere(), self._no_dump_begins():
                await self._paused(engine, until, given_up)
                age = engine.age
                try:
                    await self._replicas_gone(until)
                    await asyncio.to_thread(self._carry_over, directory, config, until, given_up)
                    self._gone_on(directory, config, age)
                except StoreFailed as error:
                    server.syncer.fail(error)
                    raise
                finally:
                    engine.resume()
        log.info(
            "the binlog goes on in %s; commits have waited %.2f s",
            directory.path,
            time.monotonic() - began,
        )
        closing = self._loop.create_task(self._close(old))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    @contextlib.contextmanager
    def _no_dump_begins(self) -> Iterator[None]:
        """Who has come before, and asks for one inside of the block, gets it behind that."""
        self.dumps_begin.clear()
        try:
            yield
        finally:
            self.dumps_begin.set()

    async def _paused(
        self, engine: SwitchingEngine, until: float, given_up: Callable[[], bool]
    ) -> None:
        def paused() -> bool:
            if given_up():
                raise QueryInterrupted()
            return not self._server.tables.at_work and engine.pause()

        if not await _comes(paused, until):
            raise LockWaitExceeded()

    async def _replicas_gone(self, until: float) -> None:
        """Commits that wait for replicas are answered, and then no dump is there any more."""
        server = self._server
        await server.syncer.synced()
        # Those that are left are answered as ones that no replica has.
        await _comes(lambda: not server.semi_sync.waiting_s, until)
        ended = self._end_dumps()
        gone = await _comes(lambda: ended.isdisjoint(c.id for c in server.connections), until)
        if not gone:
            raise LockWaitExceeded()
        await server.slots.close()

    def _end_dumps(self) -> set[int]:
        """Returns the ids of their connections."""
        dumping = [one for one in self._server.connections if one.end_dump is not None]
        for connection in dumping:
            if connection.end_dump is not None:
                connection.end_dump("the binlog goes on in another store")
        return {connection.id for connection in dumping}

    def _gone_on(self, directory: StoreDirectory, config: Config, age: int) -> None:
        """`age`: that of the binlog before."""
        server = self._server
        server.directory = directory
        server.config = dataclasses.replace(
            server.config,
            binlog_directory=config.binlog_directory,
            binlog_storage_engine=config.binlog_storage_engine,
            log_bin=config.log_bin,
        )
        server.publisher.went_on(age)
        server.history_changed()
        for connection in server.connections:
            connection.store_changed()

    async def _close(self, old: StoreDirectory) -> None:
        # For those that are left it is an error.
        await _comes(lambda: not old.reads_files, time.monotonic() + _READERS_S)
        try:
            await asyncio.to_thread(old.close)
        except StorageError as error:
            log.error("%s was left as it is: %s", old.path, error)


async def _comes(what: Callable[[], bool], until: float) -> bool:
    """Whether it is so in time."""
    while True:
        if what():
            return True
        if time.monotonic() > until:
            return False
        await asyncio.sleep(_LOOK_S)
