"""The server: a store, a listener, replicas; and whatever brings groups into the store."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import secrets
import socket
import threading
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from binlog_protocol.errors import ServerError
from binlog_storage.binlog.stored_tables import TableEngine
from binlog_storage.classic.store import ClassicEngine
from binlog_storage.console.running import told
from binlog_storage.defects import Defects
from binlog_storage.disk.read_only_disk import ReadOnlyDisk
from binlog_storage.engine import BinlogEngine
from binlog_storage.engine.backup import BackupEngine
from binlog_storage.engine.switching import SwitchingEngine, SwitchingFacts
from binlog_storage.errors import StorageError
from binlog_storage.intake.server_version import UPSTREAM_VERSION_KEY, note_server_version

from binlog_server.accounts.users import LOGIN_KEY, Users
from binlog_server.app.conversion import FormatChange
from binlog_server.app.master import Master
from binlog_server.app.reload import Reload
from binlog_server.app.slots import Slots
from binlog_server.commits.publisher import Publisher
from binlog_server.commits.room import AppendRoom
from binlog_server.commits.syncer import Syncer
from binlog_server.connections.compression import Compressor
from binlog_server.connections.connections import Connections
from binlog_server.connections.listening import Bound, named
from binlog_server.connections.login import FailedLogins
from binlog_server.connections.session_memory import SessionMemory
from binlog_server.connections.tls import TlsServer
from binlog_server.connections.tmp_space import TmpSpace
from binlog_server.dumps.frame_cache import FrameCache
from binlog_server.dumps.tail import Tail
from binlog_server.dumps.tail_feed import TailFeed
from binlog_server.dumps.time_places import TimePlaces
from binlog_server.faults.faults import Faults
from binlog_server.loop.apart import apart
from binlog_server.loop.rounds import Rounds
from binlog_server.relay.gate import Domains
from binlog_server.relay.into import Into
from binlog_server.relay.manager import Relay
from binlog_server.relay.status import UpstreamStatus
from binlog_server.semi_sync.commits import Commits
from binlog_server.semi_sync.master import SemiSyncMaster
from binlog_server.sessions.faulty_session import new_session
from binlog_server.settings.config import ABORT_SERVER, Config, ConfigError, parse_listen
from binlog_server.sql.parser import build_grammars
from binlog_server.sql.prepared_sql import PreparedCount
from binlog_server.sql.runner import Runner
from binlog_server.sql.sql_session import SqlSession
from binlog_server.sql.state_texts import StateTexts
from binlog_server.sql.user_locks import UserLocks
from binlog_server.sql_commit.client import CommitClient
from binlog_server.sql_commit.quick_way import StatusHolder
from binlog_server.sql_commit.session_transaction import SessionTransaction
from binlog_server.sql_commit.xa import XaBranches
from binlog_server.store.backups import Backups
from binlog_server.store.leases import Leases, SlotTerms
from binlog_server.store.store_directory import ARCHIVES_NAME, StoreDirectory
from binlog_server.store.whereabouts import Whereabouts
from binlog_server.tables.held import HeldTables
from binlog_server.upstreams.password import KeyFile

if TYPE_CHECKING:
    from binlog_storage.archive.manifest import PartFormName

    from binlog_server.dumps.archive_parts import ArchiveParts
    from binlog_server.dumps.dump import Dump
    from binlog_server.dumps.dump_request import DumpRequest
    from binlog_server.dumps.replica_stream import ReplicaStream
    from binlog_server.metrics.endpoint import MetricsEndpoint
    from binlog_server.store.archive_hold import ArchiveHold
    from binlog_server.store.archive_intake import ArchiveIntake
    from binlog_server.store.marks import StoreMark
    from binlog_server.store.scrub import Scrub

log = logging.getLogger(__name__)

LATER: Final = (
    "binlog_server.dumps.dump",
    "binlog_server.sessions.dump_session",
    "binlog_server.store.marks",
    "binlog_server.store.scrub",
)
"""Modules that no start needs, and no login: loaded where they are used, and by `load_ahead` before that."""
SERVER_UUID_KEY = "server_uuid"
BACKLOG = 1024
GOODBYE_S = 2.0  # for the last bytes to clients at shutdown
_LOOK_AGAIN_S = 0.02
LEASE_ROUND_S = (
    10.0  # between two looks at deadlines and budgets of leases, and at what is archived
)
REST_RETRY_S = 60.0  # when what follows an archive could not be begun


def _config_of(server: Server) -> Callable[[], Config]:
    """What gives the one that holds now: by a call of C, as each commit asks."""
    return cast(Callable[[], Config], partial(getattr, server, "config"))


class Server:
    """One running server. Use: `start`, then `stop`, on one event loop."""

    def __init__(
        self, config: Config, directory: StoreDirectory, read: Callable[[], Config] | None = None
    ) -> None:
        """`read`: reads the configuration again, in a thread. Raises `ConfigError`."""
        self.config = given = config
        self._reload = Reload(self, given, read or (lambda: given))
        if directory.path != config.binlog_directory:  # it has gone on elsewhere
            self.config = config = dataclasses.replace(
                config, binlog_directory=directory.path, binlog_storage_engine=None, log_bin=None
            )
        self.directory = directory
        self.switching = SwitchingEngine(directory.engine)
        self.engine = cast(BinlogEngine, self.switching)
        self.state = self.facts = SwitchingFacts(directory.state)
        self.connections = Connections()
        self._make_keys()
        self.users = Users(self.state, config.users)
        self.failed_logins = FailedLogins(lambda: self.config.max_connect_errors)
        self.tls, self.metrics_tls = _all_tls_of(config)  # FLUSH SSL replaces both
        self.compressor = Compressor()
        self.faults = Faults(self.connections.is_there)
        self.prepared_count = PreparedCount()
        self.session_memory = SessionMemory(lambda: self.config.session_memory_limit)
        self.frames = FrameCache(self.engine, config.dump_frame_cache_size)
        self.publisher = Publisher(
            self.engine,
            server_version=config.server_version,
            server_id=config.server_id,
            domain_id=config.gtid_domain_id,
            binlog_cache_size=config.binlog_cache_size,
            binlog_stmt_cache_size=config.binlog_stmt_cache_size,
            strict=config.gtid_strict_mode,
        )
        has_tables = directory.table_engine is not None
        self.tables = HeldTables(cast(TableEngine, self.switching) if has_tables else None)
        self.semi_sync = SemiSyncMaster(_config_of(self), age=lambda: self.engine.age)
        self.relay = self._relay()
        self.publisher.read_only = (
            bool(self.relay.connections) if config.read_only is None else config.read_only
        )
        self.room = AppendRoom(self.engine)
        self.failed = asyncio.Event()  # the store has, and the server is to end for it
        self.end_process: Callable[[bool], object] | None = None
        self.port = 0
        self._started = time.monotonic()
        self.rounds: list[Rounds] = []
        self._running_rounds: list[asyncio.Task[None]] = []
        self._ending = asyncio.Event()  # the server is to end
        self._tail: Tail
        self._feed: TailFeed
        self._listeners: list[asyncio.Server] = []
        self.is_listening = False
        self.syncer: Syncer
        self.master: Master  # from `start` on
        self._endpoint: MetricsEndpoint | None = None
        self.kept_variables: dict[str, str] = {}
        self.user_locks = UserLocks()
        self.backups = Backups(self.switching)
        self.tmp_space = TmpSpace(lambda: self.config.max_tmp_total_space_usage)
        self.xa = XaBranches(self.engine)
        self.time_places = TimePlaces()
        self.leases = Leases(self.engine, self.state, terms=self._slot_terms)
        self.slots = Slots(self.engine, self.connections, self.leases)
        self._archive: ArchiveIntake | None = None  # that was not all there at the start
        self._rest: asyncio.Task[None]
        self.archive_hold, self.archive_parts = self._open_archive()
        self._make_rounds()
        self.gtid_begin = ""
        self.look_at_begin()
        self._texts: StateTexts | None = None

    def _slot_terms(self) -> SlotTerms:
        return SlotTerms(self.config.replica_slot_seconds, self.config.replica_slot_bytes)

    def _make_keys(self) -> None:
        """Make the random values that a store keeps all its life, if it has none yet."""
        if self.state.get(SERVER_UUID_KEY) is None:
            self.state.set(SERVER_UUID_KEY, str(uuid.uuid4()))
        if self.state.get(LOGIN_KEY) is None:
            with contextlib.suppress(StorageError):  # a full disk: another time
                self.state.set(LOGIN_KEY, secrets.token_hex())

    def renewed_tls(self, config: Config | None = None) -> Callable[[], None]:
        """See `ServerView`. `config`: with the files' names, if they have changed."""
        config = config or self.config
        made, for_metrics = certificate_of(config), metrics_tls_of(config)

        def put_to_use() -> None:
            self.tls, self.metrics_tls = made, for_metrics
            log.info("the certificate was read again")
            self._warn_of_certificate()

        return put_to_use

    def _warn_of_certificate(self) -> None:
        if self.tls is not None and (doubt := self.tls.doubt()):
            log.warning("%s", doubt)

    async def reload_configuration(self) -> list[ServerError]:
        """See `ServerView`."""
        return await self._reload.run()

    def reload_soon(self) -> None:
        """SIGHUP: hosts are flushed, and the configuration is read again. On the loop."""
        self.failed_logins.clear()
        self._reload.soon()

    def tell_of_reloads(self, begun: Callable[[], None], over: Callable[[], None]) -> None:
        """Whom to tell when the configuration is read again, and when that is over."""
        self._reload.begun, self._reload.over = begun, over

    def _make_rounds(self) -> None:
        """The caretaker purges by itself; leases that are over, and what is archived, must not hold it back.

        An archive may lie on any disk: one that does not answer holds up no lease.
        """
        failure = "files could not be let go"
        hanging = "the look at leases does not come to an end"
        self.rounds.append(Rounds("leases", self._refresh_leases, failure=failure, hanging=hanging))
        if (hold := self.archive_hold) is not None:
            hanging = f"{hold.where} does not answer: what is archived meanwhile is not purged"
            failure = "nothing is archived" if self.config.binlog_archive_url else failure
            self.rounds.append(Rounds("archive", hold.round, failure=failure, hanging=hanging))
        if not self.config.innodb_read_only:  # it is served as it lies, and nothing is noted there
            failure, hanging = "the scrub does not go on", "the scrub waits for a disk"
            scrub = Rounds("scrub", self._scrub_step, failure=failure, hanging=hanging)
            self.rounds.append(scrub)
            failure = "the directory of the store is not the one that is served"
            hanging = "the disk does not say where the directory of the store is"
            whereabouts = Whereabouts(lambda: self.config.binlog_directory)
            whereabouts.look()
            self.rounds.append(
                Rounds("directory", whereabouts.look, failure=failure, hanging=hanging)
            )

    def _scrub_step(self) -> None:
        """Its module is loaded by the first one."""
        self.scrub.step()

    @cached_property
    def scrub(self) -> Scrub:
        """See `sql.view.ServerView`."""
        from binlog_storage.archive.archive import Archive

        from binlog_server.store.scrub import Scrub

        url, keys = self.config.binlog_archive_url, self.config.archive_keys()
        return Scrub(
            lambda: self.config,
            lambda: self.switching.now,
            lambda: ReadOnlyDisk(self.directory.path),
            self.facts,
            partial(Archive.open, url, keys) if url else None,
            lambda: self.backups.is_one_made,
        )

    def _open_archive(self) -> tuple[ArchiveHold | None, ArchiveParts | None]:
        where, url = self.config.binlog_archive_directory, self.config.binlog_archive_url
        if not where and not url:
            return None, None
        from binlog_storage.archive.archiver import StoreArchiver
        from binlog_storage.archive.remembered_manifests import ManifestMemory

        from binlog_server.dumps.archive_parts import ArchiveParts
        from binlog_server.store.archive_hold import ArchiveHold

        keys, key_id = self.config.archive_keys(url), self.config.binlog_archive_encryption_key_id
        if not self.config.innodb_read_only:  # it is served as it lies
            memory = ManifestMemory(self.directory.path / ARCHIVES_NAME)
            keys = dataclasses.replace(keys, memory=memory)
        if key_id:
            keys.get(key_id, url)  # else it would be told when the first part is written
        form = cast("PartFormName", self.config.binlog_archive_format.lower())
        archiver = (
            StoreArchiver(self.engine, url, keys=keys, key_id=key_id, form=form) if url else None
        )
        hold = ArchiveHold(self.engine, url or where, archiver, keys)
        size = self.config.binlog_archive_cache_size
        return hold, ArchiveParts(lambda: hold.archive, hold.refresh, size)

    def _pause_of(self, rounds: Rounds) -> float:
        if rounds.what == "archive" and self.config.binlog_archive_url:
            return self.config.binlog_archive_interval
        if rounds.what == "scrub" and "scrub" in vars(self):
            return self.scrub.pause_s(LEASE_ROUND_S)
        return LEASE_ROUND_S

    def _relay(self) -> Relay:
        domains = Domains(self.engine, self.publisher, self.config.server_id)
        domains.ignore_duplicates = self.config.gtid_ignore_duplicates

        def changed(follows: bool) -> None:
            self.publisher.follows = follows

        keys = KeyFile(self.config.key_file)
        return Relay(domains, self.state, keys, self.config.upstream, changed)

    async def start(
        self, archive: ArchiveIntake | None = None, sockets: Bound | None = None
    ) -> None:
        """Listen, and follow the upstreams that there are. Raises `OSError` if the address is taken.

        `archive`: until all of it is in the store nothing else comes in. `sockets`: listen at these; they are the
        server's from now on.
        """
        sockets = Bound.of(self.config) if sockets is None else sockets
        loop = asyncio.get_running_loop()
        if archive is not None and not archive.is_whole:
            self._archive = archive
            self.publisher.missing = lambda: archive.missing
        self.publisher.as_it_lies = self.config.innodb_read_only
        self.engine.never_wait_in(threading.get_ident())
        config = self.config
        self._tail = Tail(self.engine, loop)
        self.syncer = self._new_syncer()
        self._commits = Commits(self.engine, self.syncer, self.semi_sync)
        self._feed = TailFeed(self.engine, self.frames, self._tail, self.syncer)
        self.engine.when_failed(lambda error: call_soon(loop, lambda: self.syncer.fail(error)))
        self.master, self._conversion = Master(self, self.tables, loop), FormatChange(self, loop)
        try:
            await self._start_endpoint(sockets.metrics)
            await self._listen(sockets.clients)
        except BaseException:
            sockets.close()
            raise
        self.syncer.start()  # who commits needs its thread: let a start fail that cannot have it
        self._warn_of_certificate()
        if config.purges_by_itself:
            self._warn_of_limits()
        if not self.users.all():
            log.warning(
                "there are no users, so nobody can log in: add one with `binlog-server user add NAME "
                "--directory %s`, or a [users] table in the configuration file",
                config.binlog_directory,
            )
        into = Into(
            lambda: self.config,
            self.engine,
            self.syncer,
            self.room,
            self.relay.domains,
            self._upstream_is,
            self.semi_sync,
            self.connections.next_id,
            self.publisher.require_whole,
        )
        self.relay.open(into)
        if self._archive is None:
            self.relay.start_wanted(skip=config.skip_slave_start or config.innodb_read_only)
        else:
            self._rest = loop.create_task(self._take_rest(self._archive))
        self._running_rounds = [
            loop.create_task(rounds.run(partial(self._pause_of, rounds))) for rounds in self.rounds
        ]
        self._running_rounds.append(loop.create_task(self.slots.run(LEASE_ROUND_S)))
        log.info(
            "ready for connections. Version: '%(version)s' host: '%(host)s' port: %(port)d "
            "directory: %(directory)s server_id: %(server_id)d",
            {
                "version": config.server_version,
                "host": config.listen_host,
                "port": self.port,
                "directory": config.binlog_directory,
                "server_id": config.server_id,
            },
        )

    async def _listen(self, sockets: Sequence[socket.socket]) -> None:
        """Raises `OSError`."""
        loop, config = asyncio.get_running_loop(), self.config
        new: Callable[[], asyncio.BaseProtocol] = lambda: new_session(self)  # noqa: E731
        with named("listen", config.listen_host, config.listen_port):
            self._listeners = [
                await loop.create_server(new, sock=one, backlog=BACKLOG) for one in sockets
            ]
        self.port = self._listeners[0].sockets[0].getsockname()[1]
        self.is_listening = True

    def listening_sockets(self) -> list[socket.socket]:
        """Those it listens at, to be kept when it does not any more: who comes meanwhile waits."""
        return [
            socket.socket(fileno=os.dup(one.fileno()))
            for listener in self._listeners
            for one in listener.sockets
        ]

    @contextlib.asynccontextmanager
    async def nobody_comes(self) -> AsyncIterator[None]:
        """Inside of the block whoever connects waits for the greeting, in the queue of the sockets."""
        kept = self.listening_sockets()
        for listener in self._listeners:
            listener.close()
        try:
            yield
        finally:
            if self.is_listening:
                await self._listen(kept)
            else:  # the server was cut off meanwhile
                for one in kept:
                    one.close()

    async def admit_no_more(self) -> None:
        """Listen no more, and let those go on who are logging in: for a short time, as some never will."""
        self._close_listeners()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE_S):
                await self.connections.pending.none_left()

    def mark(self) -> StoreMark:
        """The store as it is now, to go back to. It takes time: for a thread."""
        from binlog_server.store.marks import StoreMark

        assert isinstance(self.engine, BackupEngine), "all engines are"
        return StoreMark.make(self.engine, self.backups, self.config)

    def cut_off(self) -> None:
        """As a crash would: nobody is let in, and nobody gets another word."""
        self._close_listeners()
        for connection in self.connections:
            connection.ending.end(None)

    def _close_listeners(self) -> None:
        for listener in self._listeners:
            listener.close()
        self.is_listening = False

    def _warn_of_limits(self) -> None:
        """Say that limits of age and size do nothing yet, where no replica is known that could make them work."""
        needed = self.config.slave_connections_needed_for_purge
        known = sum(lease.is_slot for lease in self.leases.all())
        if known < needed:
            log.warning(
                "binlog_expire_logs_seconds and max_binlog_total_size purge nothing before %d replicas are connected "
                "(slave_connections_needed_for_purge), and %d are known",
                needed,
                known,
            )

    def _new_syncer(self) -> Syncer:
        config = self.config
        return Syncer(
            self.engine,
            flush_log_at_trx_commit=config.innodb_flush_log_at_trx_commit,
            flush_log_at_timeout=config.innodb_flush_log_at_timeout,
            sync_binlog=_sync_binlog(self.engine, config),
            failed=self._store_failed,
            alone=self._is_nobody_kept_waiting,
        )

    async def _start_endpoint(self, sockets: Sequence[socket.socket]) -> None:
        if listen := self.config.metrics_listen:
            # aiohttp and Prometheus' library are for those who want them: a start takes as long as its imports.
            from binlog_server.metrics.endpoint import MetricsEndpoint

            self._endpoint = MetricsEndpoint(self)
            host, port = parse_listen(listen, "metrics_listen")
            with named("metrics_listen", host, port):
                await self._endpoint.start(sockets)

    async def stop(
        self,
        doing: Callable[[str], object] = lambda what: None,
        see_off: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """End everything in order: no more groups in, what is in is synced, dumps end, the store closes.

        doing: is told each step that may take long. see_off: waits as long as `replicas_behind` may go on.
        """
        doing("a change of the store")
        await self._conversion.close()
        self._reload.close()
        if "scrub" in vars(self):
            self.scrub.stop()
        if self.archive_hold is not None:
            self.archive_hold.stop()
        for rounds in self._running_rounds:
            rounds.cancel()
        self._close_listeners()
        if self._archive is not None:
            doing("what is taken of the archive")
            self._ending.set()
            self._archive.stop()
            await self._rest
        doing("leaving the upstreams")
        await self.relay.close()
        self.publisher.stop()
        self.master.aio.close()
        doing("the last sync of the redo log")
        await self.syncer.close()
        if see_off is not None:
            doing("sending replicas what they lack")
            self.connections.end_clients()
            await see_off()
        self.semi_sync.close()
        doing("taking leave of clients")
        for connection in self.connections:
            connection.ending.shut_down()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE_S):
                await self.connections.none_left()
        await self.slots.close()
        with contextlib.suppress(StorageError):  # what was written down before holds again
            await asyncio.to_thread(self.leases.expire)
        if self._endpoint is not None:
            await self._endpoint.close()
        self.room.close()
        self._tail.close()
        doing("statements that change files")
        self.engine.stop_waiting()
        # Those that waited for room roll back, though their clients have gone.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE_S):
                while self.tmp_space.used:  # noqa: ASYNC110 - threads give it back
                    await asyncio.sleep(_LOOK_AGAIN_S)
        if "runner" in vars(self):
            self.runner.close()
        self.compressor.close()
        doing("closing the store")
        try:
            self.directory.close()
        except StorageError as error:
            if self.syncer.failure is None:
                raise
            log.error("the store was left as it is: %s", error)
        log.info("shutdown complete")
        assert not self.tmp_space.used, f"{self.tmp_space.used} bytes were not given back"

    def replicas_behind(self) -> int:
        """How many have not been sent everything that is durable."""
        return len(self.connections.behind(self.engine.durable_end))

    @property
    def metrics_port(self) -> int:
        """The port of the metrics' listener; 0 without one."""
        return self._endpoint.port if self._endpoint is not None else 0

    @property
    def upstreams(self) -> Sequence[UpstreamStatus]:
        """The states of upstreams that run, or ought to."""
        return self.relay.statuses

    @property
    def server_uuid(self) -> str:
        """The UUID of the store, made with it."""
        return str(self.state.get(SERVER_UUID_KEY))

    @property
    def uptime_s(self) -> int:
        """Seconds since the server was made."""
        return int(time.monotonic() - self._started)

    @cached_property
    def runner(self) -> Runner:
        """A runner of statements that cannot be answered at once. It needs the running loop."""
        return Runner(self.engine)

    def state_texts(self) -> StateTexts:
        """See `sql.view.ServerView`."""
        age, end = self.engine.age, self.engine.written_end
        texts = self._texts
        if texts is None or (texts.age, texts.end) != (age, end):
            texts = self._texts = StateTexts(age, end, self.engine.binlog_state())
        return texts

    def refresh_holds(self) -> None:
        """See `sql.view.ServerView`."""
        self._refresh_leases()
        if self.archive_hold is not None:
            self.archive_hold.refresh()

    def _refresh_leases(self) -> None:
        self.leases.expire()
        self.look_at_begin()

    def look_at_begin(self) -> None:
        """See `sql.view.ServerView`."""
        with contextlib.suppress(StorageError):  # a purge under way: it is looked at again
            self.gtid_begin = str(self.engine.first_start().state.position())

    def convert(self, target: Path, log_bin: str | None, given_up: Callable[[], bool]) -> None:
        """See `sql.view.ServerView`."""
        self._conversion.run(target, log_bin, given_up)

    @property
    def dumps_begin(self) -> asyncio.Event:
        """See `sessions.host.Host`."""
        return self._conversion.dumps_begin

    def history_changed(self) -> None:
        """See `sql.view.ServerView`."""
        # Who remembers any place or number looks at the age of the engine first; but these wait, and nothing comes.
        self.semi_sync.enter_age()

    async def _take_rest(self, archive: ArchiveIntake) -> None:
        """Take it, then begin what had to wait for it. What goes wrong is tried again, and logged until it changes."""
        defects, said = Defects(), ""
        while not self._ending.is_set():
            try:
                await apart(archive, archive.take_rest)
                if archive.is_whole:
                    await self._go_on_behind_archive()
                return
            except Exception as error:
                archive.waits = why = repr(error)
                if why != said:
                    said, trace = why, defects.trace(error)
                    log.error(
                        "%s. Trying again in %d s", archive.missing, REST_RETRY_S, exc_info=trace
                    )
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), REST_RETRY_S)

    async def _go_on_behind_archive(self) -> None:
        """May be called again when it has failed."""
        await asyncio.to_thread(self.look_at_begin)
        self.history_changed()
        # In this order: until then nobody else starts one of them.
        await self.relay.start_late(skip=self.config.skip_slave_start)
        self.publisher.missing = None

    def new_dump(self, request: DumpRequest, stream: ReplicaStream) -> Dump:
        """A dump of this server's store."""
        from binlog_server.dumps.dump import Dump

        return Dump(
            request,
            stream,
            engine=self.engine,
            frames=self.frames,
            tail=self._tail,
            feed=self._feed,
            syncer=self.syncer,
            semi_sync=self.semi_sync,
            format_version=self.state.get(UPSTREAM_VERSION_KEY, self.config.server_version),
            server_id=self.config.server_id,
            release=self.slots.left,
            why_ended=self.leases.why_ended,
            times=self.time_places,
            archive=self.archive_parts,
        )

    def _is_nobody_kept_waiting(self) -> bool:
        """Whether the loop may make a short sync itself: all that it serves waits for just that."""
        return len(self.connections.by_id) - len(self._feed.members) <= 1

    def new_transaction(
        self, client: CommitClient, machine: StatusHolder, sql: SqlSession
    ) -> SessionTransaction:
        """See `sessions.host.Host`."""
        return SessionTransaction(
            client,
            machine,
            sql,
            self.publisher,
            self._commits,
            self.room,
            server_id=self.config.server_id,
            domain_id=self.config.gtid_domain_id,
            tables=self.tables,
            threads=lambda: self.runner.row_threads(sql.account),
            xa=self.xa,
        )

    def _store_failed(self, error: StorageError) -> None:
        if self.config.binlog_error_action == ABORT_SERVER:
            log.error("the server ends, as binlog_error_action=ABORT_SERVER says: %s", error)
            self.failed.set()
        else:
            log.error(
                "nothing is committed or taken from an upstream any more, what is durable is still served: %s. "
                "Repair the disk and restart",
                error,
            )

    async def _upstream_is(self, version: str) -> None:
        try:
            await asyncio.to_thread(note_server_version, self.state, version)
        except StorageError as error:  # it is told again with the next connection
            log.warning("the version of the upstream, %s, is not kept: %s", version, error)


async def load_ahead() -> None:
    """Load what first statements would take long for, in a thread. Servers of tests do that with the first use."""
    await asyncio.to_thread(load_later)


def load_later() -> None:
    """The same in this thread: for a process of which servers are forked, too."""
    build_grammars()
    for name in LATER:
        import_module(name)


def certificate_of(config: Config) -> TlsServer:
    """The certificate that a server with this configuration has. Raises `ConfigError`."""
    return _tls_of(config, "ssl_ca")


def metrics_tls_of(config: Config) -> TlsServer | None:
    """The same certificate, for the metrics' listener; None if that has no TLS. Raises `ConfigError`."""
    return _tls_of(config, "metrics_ssl_ca") if config.metrics_ssl else None


def _all_tls_of(config: Config) -> tuple[TlsServer | None, TlsServer | None]:
    """For clients, and for the metrics' listener."""
    return certificate_of(config) if config.ssl else None, metrics_tls_of(config)


def _tls_of(config: Config, authorities: str) -> TlsServer:
    """authorities: the option that names who signs certificates of clients."""
    ca = getattr(config, authorities)
    try:
        return TlsServer.make(config.ssl_cert, config.ssl_key, ca, versions=config.tls_versions)
    except (OSError, ValueError) as error:
        said = told(error) if isinstance(error, OSError) else error
        raise ConfigError(f"ssl_cert, ssl_key, {authorities}: {said}") from None


def call_soon(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """Call on the loop from another thread; nothing if the loop has ended."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(call)


def _sync_binlog(engine: BinlogEngine, config: Config) -> int:
    """The option of traditional files; of others it means nothing, which is said."""
    if isinstance(engine, ClassicEngine):
        return config.sync_binlog
    if config.sync_binlog != 1:
        log.warning("sync_binlog has no effect: innodb_flush_log_at_trx_commit decides")
    return 1
