"""A server in this process; and what tests put into its store beside SQL: events, rows of any layout, files."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from socket import socket
from typing import Any, Final, NamedTuple, TypeVar

from binlog_protocol.errors import BadValue, PrimaryKeyRequired, ProtocolError, ServerError
from binlog_protocol.events.checksum import ChecksumAlgorithm, normal_form
from binlog_protocol.events.collation_names import default_collation
from binlog_protocol.events.column_type import ColumnType
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.gtid import gtid_of
from binlog_protocol.events.header import TYPE_OFFSET, parse_whole
from binlog_protocol.groups.event_group import (
    EventGroup,
    EventGroupAssembler,
    Incident,
    StartMarker,
)
from binlog_protocol.groups.group_runs import GroupRun
from binlog_protocol.groups.statement_group import Origin
from binlog_protocol.gtid import Gtid
from binlog_protocol.tables.definition import KeyKind, StoredTable
from binlog_protocol.tables.row_format import RowFormat
from binlog_protocol.tables.row_group import LoggedTable, RowLogging, RowStatement, TableChange
from binlog_storage.disk.sparse_copy import copy_sparse
from binlog_storage.ibb.file_header import number_in
from binlog_storage.ibb.file_names import file_name
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.intake.intake import Intake
from binlog_storage.intake.server_version import note_server_version
from binlog_storage.intake.source import FileStart, IntakeSource, Item

from binlog_server.app.app import Server
from binlog_server.app.in_process import prepared_server
from binlog_server.faults.faults import Faults, OrderedFault
from binlog_server.relay.large_group import IncomingGroup
from binlog_server.tables.definitions import Creation, quoted_name, read_table
from binlog_server.testing import rundir
from binlog_server.testing.replay import Pace, RunningReplay

log = logging.getLogger(__name__)
T = TypeVar("T")
Values = Mapping[str, Any]
"""Values of a row by the names of its columns."""

_GTID: Final = Gtid(0, 1, 1)  # of some transaction, to have its events read
_SOME: Final = Origin(1)
_SOME_KEY: Final = "no such column"
_FLOATS: Final = frozenset({ColumnType.FLOAT, ColumnType.DOUBLE})


class GivenGroup(NamedTuple):
    """A group in normal form; a start marker has no GTID."""

    payload: bytes
    gtid: Gtid | None


class Served:
    """Use: calls from any thread but the server's own, then `close`."""

    def __init__(self, directory: Path, options: Mapping[str, Any]) -> None:
        """`options`: of the configuration file. Raises `ConfigError`, `StorageError`, `OSError`."""
        self._stack = ExitStack()
        self._running = ExitStack()
        self._directory, self._options = directory, options
        self._state = threading.Condition()
        self._changes = False  # it goes back, or ends
        self._lost: BaseException | None = None  # why it has not begun anew
        self._loop_thread: threading.Thread | None = None
        self._replays: dict[int, RunningReplay] = {}
        self._server = self._begun()
        self._loading = threading.Lock()
        self._table_id = 1 << 20  # of tables that are only in events

    @property
    def server(self) -> Server:
        """That of now; waits while it goes back. Raises what has kept it from that.

        In a thread that is waited for then, its loop and replays, that which ends.
        """
        with self._state:
            here = threading.current_thread()
            if here is self._loop_thread or any(
                here is one.thread for one in list(self._replays.values())
            ):
                return self._server
            self._state.wait_for(lambda: not self._changes)
            if self._lost is not None:
                raise self._lost
            return self._server

    def close(self) -> None:
        with self._state:
            self._state.wait_for(lambda: not self._changes)
            self._changes = True
        try:
            self._stop()
            self._server.faults.clear()
        finally:
            self._changed()
        self._stack.close()

    def _changed(self) -> None:
        with self._state:
            self._changes = False
            self._state.notify_all()

    def _stop(self) -> None:
        for replay in list(self._replays.values()):
            replay.stop()
        self._running.close()

    # --- back to a mark ---

    def _begun(self, before: Faults | None = None, sockets: Sequence[socket] = ()) -> Server:
        def give_faults(server: Server) -> None:
            self._loop_thread = threading.current_thread()
            server.faults.make_mark, server.faults.go_back = server.mark, self._go_back
            if before is not None:
                server.faults.take_over(before)

        return self._running.enter_context(
            prepared_server(
                self._directory,
                self._options,
                give_faults,
                sockets,
                keeps_marks=before is not None,
            )
        )

    def _go_back(self, one: OrderedFault) -> None:
        """On the loop of the server."""
        with self._state:
            if self._changes:
                return
            self._changes = True
        sockets = self._server.listening_sockets()  # who comes meanwhile waits
        self._server.cut_off()
        arguments = one, sockets
        threading.Thread(target=self._gone_back, args=arguments, name="binlog-go-back").start()

    def _gone_back(self, one: OrderedFault, sockets: Sequence[socket]) -> None:
        before = self._server
        try:
            self._stop()
            from binlog_server.store.marks import StoreMark

            assert isinstance(one.mark, StoreMark), "such a fault has one"
            one.mark.restore(before.config, differs=one.fault.do == "another_history")
            self._server = self._begun(before.faults, sockets)
        except BaseException as error:
            self._lost = error  # raised by the next call
            for waiting in sockets:  # nobody answers who waits there
                waiting.close()
            if one.mark is not None:
                one.mark.discard()
            log.exception("the store could not go back, and this master has ended")
        finally:
            self._changed()

    # --- events ---

    def raw(self, events: Sequence[bytes], checksums: bool, check: bool) -> str:
        """Events as one or more groups; without a GTID event in front, as a transaction under the next number.

        Args:
            checksums: the events end in CRC-32, until a format description among them says something else.
            check: read them as those of a master are. Otherwise they are one group, whatever they hold.

        Returns the GTID of the last group. Raises `ProtocolError`, `BadValue`, `ServerError`, `StorageError`.
        """
        if not events:
            raise BadValue("no events")
        algorithm = ChecksumAlgorithm.CRC32 if checksums else ChecksumAlgorithm.NONE
        has_gtid = any(parse_whole(event).type == EventType.GTID for event in events)
        if has_gtid and check:
            groups = _groups(events, algorithm)
            return self._append(lambda: groups)
        plain = [normal_form(event, algorithm) for event in map(bytes, events)]
        if has_gtid:
            return self._append(lambda: [GivenGroup(b"".join(plain), gtid_of(plain[0]))])
        if plain[-1][TYPE_OFFSET] == EventType.XID:
            del plain[-1]  # it has the number of the group
        if check:
            _groups([_SOME.begin(_GTID, 0), *plain, _SOME.commit(1, 0)], ChecksumAlgorithm.NONE)
        return self._append(lambda: [self._numbered(b"".join(plain))])

    def append(self, groups: Sequence[tuple[bytes, Gtid]]) -> str:
        """Groups in normal form as they are. Returns the GTID of the last one. Raises `ServerError`, `StorageError`."""
        return self._append(lambda: (GivenGroup(payload, gtid) for payload, gtid in groups))

    def raw_files(self, paths: Sequence[Path]) -> str:
        """All groups of these files, behind what is there. Returns the GTID of the last one.

        Raises `StorageError`, `ServerError`.
        """
        source = _source(paths)
        try:
            return self._append(lambda: _of_items(source.items(0)))
        finally:
            source.close()

    # --- rows ---

    def rows(
        self,
        table: str,
        insert: Sequence[Values],
        update: Sequence[tuple[Values, Values]],
        delete: Sequence[Values],
        columns: Mapping[str, str] | None,
        keys: Sequence[str],
    ) -> str:
        """One transaction of row changes. Returns its GTID. Raises `ServerError`, `BadValue`, `StorageError`."""
        if columns is not None:
            statement = self._layout_changes(table, columns, keys, insert, update, delete)
            return self._append(lambda: [self._numbered(b"".join(self._row_events(statement)))])
        with self.server.master.transaction() as t:
            if insert:
                t.insert(table, insert)
            for where, changes in update:
                t.update(table, changes, where)
            for where in delete:
                t.delete(table, where)
        return t.gtid

    def _layout_changes(
        self,
        table: str,
        columns: Mapping[str, str],
        keys: Sequence[str],
        insert: Sequence[Values],
        update: Sequence[tuple[Values, Values]],
        delete: Sequence[Values],
    ) -> RowStatement:
        layout = _layout(table, columns, keys)
        self._table_id += 1
        logged = LoggedTable(layout, self._table_id)
        changes = [TableChange(logged, None, _row(layout, row)) for row in insert]
        for before, after in update:
            old, new = _row(layout, before), _row(layout, {**before, **after})
            changes.append(TableChange(logged, old, new))
        changes += [TableChange(logged, _row(layout, row), None) for row in delete]
        if not changes:
            raise BadValue("no row is inserted, updated or deleted")
        return RowStatement.of(changes, timestamp=self.server.publisher.now())

    def _row_events(self, statement: RowStatement) -> Iterator[bytes]:
        return statement.events(Origin(self.server.config.server_id), RowLogging())

    # --- captured history ---

    def load(self, paths: Sequence[Path]) -> str:
        """The history of these files; behind what is there, exactly. Returns the GTID position of the store's end.

        Raises `StorageError`, `OSError`.
        """
        server = self.server
        server.publisher.require_whole()
        source = _source(paths)
        try:
            with self._loading:
                Intake(server.engine, source).run()
            note_server_version(server.state, source.server_version)
        finally:
            source.close()

        def noted() -> str:
            server.publisher.others_have_logged()
            server.look_at_begin()
            server.syncer.appended()
            return str(server.engine.binlog_state().position())

        return self._on_loop(noted)

    # --- replays ---

    def start_replay(
        self, number: int, paths: Sequence[Path], pace: Mapping[str, float], loop: int, fresh: bool
    ) -> None:
        """Begin the one of this number. Raises `StorageError`, `OSError`, `BadValue`."""
        source = _source(paths)
        self._stack.callback(source.close)
        self._replays[number] = RunningReplay(
            lambda: _of_items(source.items(0)),
            lambda payload, gtid: self._append(lambda: [GivenGroup(payload, gtid)]),
            self.last_seq_no,
            Pace(**pace),
            loop=loop,
            fresh=fresh,
        )

    def last_seq_no(self, domain_id: int) -> int:
        """Of that domain in the store; 0 without a group of it."""
        state = self._on_loop(self.server.engine.binlog_state)
        return max((one.seq_no for one in state.entries() if one.domain_id == domain_id), default=0)

    def replayed(self, number: int) -> tuple[int, str, bool]:
        """Groups logged so far, the GTID of the last one, whether it is over. Raises what it has met."""
        replay = self._replay(number)
        if replay.error is not None:
            raise replay.error
        is_over = replay.is_over  # asked first: the others stay then
        return replay.count, replay.gtid, is_over

    def stop_replay(self, number: int) -> None:
        """Returns when nothing more is logged."""
        self._replay(number).stop()

    def _replay(self, number: int) -> RunningReplay:
        try:
            return self._replays[number]
        except KeyError:
            raise RuntimeError("the replay has ended: its master was stopped meanwhile") from None

    # --- faults ---

    def order_faults(self, tables: Sequence[Mapping[str, Any]]) -> None:
        """From now on, in streams that run, too. Raises `BadFault`; then none of them is ordered."""
        faults = self.server.faults
        mark = self._server.mark() if faults.needs_mark(tables) else None
        try:
            self._on_loop(lambda: faults.add(tables, mark=mark))
        except BaseException:
            if mark is not None:
                mark.discard()
            raise

    def clear_faults(self) -> None:
        """None is met any more."""
        self._on_loop(self.server.faults.clear)

    def faults_met(self) -> list[tuple[str, int]]:
        """What each does, and how often it was met."""
        return self._on_loop(self.server.faults.met)

    def _on_loop(self, call: Callable[[], T]) -> T:
        async def called() -> T:
            return call()

        return self.server.master.run(called())

    # --- into the store, on the loop ---

    def _append(self, groups: Callable[[], Iterable[GivenGroup]]) -> str:
        """`groups` is called on the loop, and walked there: each when there is room for it."""
        return self.server.master.run(self._appended(groups))

    async def _appended(self, groups: Callable[[], Iterable[GivenGroup]]) -> str:
        server = self.server
        last: Gtid | None = None
        try:
            await server.room.wait()
            for group in groups():
                await self._append_one(group)
                last = group.gtid or last
                await server.room.wait()
        finally:
            server.publisher.others_have_logged()
            server.syncer.appended()
        await server.syncer.synced()
        return str(last or "")

    async def _append_one(self, group: GivenGroup) -> None:
        engine, payload, gtid = self.server.engine, group.payload, group.gtid
        if gtid is not None:
            self.server.publisher.require_open(gtid.domain_id)
        if gtid is None or len(payload) <= engine.cache_bytes:
            engine.append(payload, gtid)
            return
        large = IncomingGroup(self.server.room, bulk=False)
        try:
            await large.finish(payload)
            await self.server.room.wait()
            await large.commit(gtid, engine.age)
        except BaseException:
            await large.rollback()
            raise

    def _numbered(self, body: bytes) -> GivenGroup:
        """A transaction with these events, under the next number. Raises `BadValue` where it is too large for that."""
        server = self.server
        publisher, config = server.publisher, server.config
        publisher.require_open(config.gtid_domain_id)
        publisher.announce()
        domain = publisher.domain(config.gtid_domain_id)
        gtid = Gtid(domain.id, config.server_id, domain.next_seq_no())
        origin, now = Origin(config.server_id), publisher.now()
        payload = origin.begin(gtid, now) + body + origin.commit(gtid.seq_no, now)
        # A larger one is stored piece by piece, and others may take the number meanwhile.
        if len(payload) > server.engine.cache_bytes:
            raise BadValue(
                f"{len(payload)} bytes without a GTID event: give one, or at most {server.engine.cache_bytes} bytes"
            )
        return GivenGroup(payload, gtid)


def _groups(events: Iterable[bytes], algorithm: ChecksumAlgorithm) -> list[GivenGroup]:
    """Raises `ProtocolError`."""
    assembler = EventGroupAssembler(algorithm)
    found = []
    for event in events:
        match assembler.feed(bytes(event)):
            case EventGroup(gtid, payload):
                found.append(GivenGroup(payload, gtid))
            case StartMarker() as marker:
                found.append(GivenGroup(marker.payload, None))
            case Incident(incident):
                raise ProtocolError(f"a store keeps no INCIDENT: {incident}")
    if assembler.unfinished is not None:
        raise ProtocolError(f"group {assembler.unfinished} has no end")
    return found


def _of_items(items: Iterable[Item]) -> Iterator[GivenGroup]:
    for item in items:
        if isinstance(item, GroupRun):
            for index in range(len(item)):
                yield GivenGroup(item.payload(index), item.gtid(index))
        elif not isinstance(item, FileStart):
            yield GivenGroup(b"".join((item.payload, *(item.rest or ()))), item.gtid)


def _source(paths: Sequence[Path]) -> IntakeSource:
    """That of files. Those of an .ibb binlog, whatever they are called, are taken under their names."""
    from binlog_server.store.given_source import is_ibb, source_of

    if not any(path.is_file() and is_ibb(path) for path in paths):
        return source_of(paths)
    folder = rundir.new_dir("captured")
    for path in paths:
        with path.open("rb") as file:
            number = number_in(file.read(PAGE_SIZE))
        copy_sparse(path, folder / file_name(number))
    return source_of([folder])


def _layout(table: str, columns: Mapping[str, str], keys: Sequence[str]) -> RowFormat:
    """Raises `ServerError` for what is no column."""
    parts = [f"{quoted_name(column)} {kind}" for column, kind in columns.items()]
    try:
        return RowFormat(_definition(table, [*parts, *keys]))
    except ServerError as error:
        if error.errno != PrimaryKeyRequired.errno:
            raise
    # A table here must have one, and one elsewhere need not.
    made = _definition(table, [*parts, *keys, f"{quoted_name(_SOME_KEY)} INT PRIMARY KEY"])
    others = tuple(key for key in made.keys if key.kind is not KeyKind.PRIMARY)
    return RowFormat(replace(made, columns=made.columns[:-1], keys=others))


def _definition(table: str, parts: Sequence[str]) -> StoredTable:
    database, _, name = table.rpartition(".")
    made = read_table(
        f"CREATE TABLE {quoted_name(name)} ({', '.join(parts)})",
        database,
        lambda _: default_collation("utf8mb4"),
        lambda column, literal: literal,
    )
    assert isinstance(made, Creation), "it has no SELECT"
    return made.table


def _row(layout: RowFormat, values: Values) -> bytes:
    """Columns that are not named are NULL. Raises `BadValue`."""
    names = [column.name for column in layout.definition.columns]
    if unknown := values.keys() - set(names):
        raise BadValue(f"no column {', '.join(sorted(unknown))}", layout.definition.name)
    return layout.row(
        [
            _exact(column.type, values.get(name))
            for name, column in zip(names, layout.columns, strict=True)
        ]
    )


def _exact(kind: ColumnType, value: Any) -> Any:
    """Whole numbers as the number that the column has."""
    if isinstance(value, int):
        if kind in _FLOATS:
            return float(value)
        if kind == ColumnType.NEWDECIMAL:
            return Decimal(value)
    return value
