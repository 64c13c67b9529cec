"""EXPLAIN PURGE (which files would go, and what holds the others) and EXPLAIN GTID (what became of a group).

Both read the store: they are called in a thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import BadGtidList, PurgeProhibited
from binlog_protocol.gtid import Gtid
from binlog_protocol.wire.results import Column
from binlog_storage.errors import PositionPurged, StorageError
from binlog_storage.log.stored_groups import look_for

from binlog_server.dumps.coordinates import Coordinates
from binlog_server.sql.maintenance import Purge
from binlog_server.sql.moments import not_a_time, seconds_of
from binlog_server.sql.statement import LOOK_AT_FILES, Family, Statement
from binlog_server.sql.time_zones import Clock, utc
from binlog_server.sql.tokens import unquote
from binlog_server.sql.view import Diagnostics, ResultSet, Row, ServerView, Work
from binlog_server.store.leases import SLOTS_MAX

if TYPE_CHECKING:
    from binlog_server.dumps.archive_parts import ArchiveParts
    from binlog_server.sql.sql_session import SqlSession

_ONLY_CONNECTED: Final = (
    "Only replicas that are connected, and the slots of those that have gone (SHOW BINLOG LEASES), hold files back. "
    "One that is away and is to come back to these files needs a lease: CREATE BINLOG LEASE"
)
_NAMED_MAX: Final = 3
HAVE, ARCHIVED, PURGED, NEVER_SEEN = "have", "archived", "purged", "never seen"
OTHER_HISTORY = "other history"


@dataclass(frozen=True, slots=True)
class ExplainPurge(Statement):
    """EXPLAIN PURGE; without `purge` it is about the purge by age and size limits."""

    syntax = '"EXPLAIN"i "PURGE"i _binary_logs? _purge_limit?'
    needs = LOOK_AT_FILES
    only_looks = True
    uses_tables = True

    purge: Purge | None = None

    def answer(self, session: SqlSession) -> Work:
        server, told, clock = session.server, session.diagnostics, session.clock()
        return Work(lambda: _explain_purge(server, self.purge, told, clock, session.coordinates))


@dataclass(frozen=True, slots=True)
class ExplainGtid(Statement):
    """EXPLAIN GTID: what became of the group with one GTID.

    One row: the group's status here (have, archived, purged, never seen, other history), and advice for a replica
    there. Its work raises `BadGtidList` (1941).
    """

    syntax = '"EXPLAIN"i "GTID"i STRING'
    needs = LOOK_AT_FILES
    only_looks = True

    gtid: str

    @classmethod
    def built(cls, children: list[Any]) -> ExplainGtid:
        return cls(unquote(children[0]))

    def answer(self, session: SqlSession) -> Work:
        view = session.server

        def run() -> ResultSet:
            gtid = Gtid.parse(self.gtid.strip())
            if not gtid.seq_no:
                raise BadGtidList()  # numbers begin with 1
            columns = [Column.text("Gtid"), Column.text("Status"), Column.text("What_to_do", 4096)]
            return ResultSet(columns, [(str(gtid), *_found(view, gtid))])

        return Work(run)


FAMILY = Family((ExplainPurge, ExplainGtid))


def _explain_purge(
    view: ServerView,
    purge: Purge | None,
    diagnostics: Diagnostics,
    clock: Clock,
    coordinates: Coordinates,
) -> ResultSet:
    """One row a file: whether PURGE would delete it, and if not, the reason. Raises `UnknownBinlog`."""
    view.refresh_holds()
    columns = [
        Column.text("Log_name"),
        Column.bigint("File_size"),
        Column.text("Last_write"),
        Column.text("Wanted", 3),
        Column.text("Purged", 3),
        Column.text("Held_back_by", 4096, null=True),
    ]
    to, before = None, None
    if purge is not None and purge.to is not None:
        to = coordinates.number(purge.to)
    if purge is not None and purge.before is not None:
        before = seconds_of(purge.before, clock)
        if before is None:
            diagnostics.warn(not_a_time(purge.before, clock))
            before = 0.0  # no file is that old
    fates = view.engine.explain_purge(to, before)
    if any(fate.goes for fate in fates):
        diagnostics.note(PurgeProhibited(_ONLY_CONNECTED))
    if without := view.leases.without_slot():
        diagnostics.note(PurgeProhibited(_no_room(without)))
    rows: list[Row] = [
        (
            coordinates.name(fate.file_no),
            coordinates.position(fate.size),
            utc(fate.modified),
            _yes(fate.wanted),
            _yes(fate.goes),
            "; ".join(fate.held_by) or None,
        )
        for fate in fates
    ]
    return ResultSet(columns, rows)


def _no_room(without: Sequence[str]) -> str:
    named = ", ".join(without[:_NAMED_MAX]) + (", ..." if len(without) > _NAMED_MAX else "")
    return (
        f"{len(without)} replicas that are connected have no slot ({named}): there are {SLOTS_MAX} slots, all of "
        "replicas that are connected. Their files are not kept when they go: give each a lease, CREATE BINLOG LEASE"
    )


def _of_archive(parts: ArchiveParts | None, gtid: Gtid) -> str:
    """Why a group that was purged is not in an archive; empty if it is."""
    if parts is None:
        return "There is no archive of it (binlog_archive_url). "
    try:
        archive = parts.archive()
    except StorageError as error:
        return f"{error}. "
    if archive.begin.has(gtid):
        return f"The archive {archive.where} begins at '{archive.begin.position()}'. "
    if not archive.manifest.state.has(gtid):
        return f"The archive {archive.where} is at '{archive.manifest.state.position()}'. "
    return ""


def _yes(value: bool) -> str:
    return "YES" if value else "NO"


def _found(view: ServerView, gtid: Gtid) -> tuple[str, str]:
    engine = view.engine
    state = engine.binlog_state()
    last = state.last(gtid.domain_id)
    if last is None:
        return NEVER_SEEN, (
            f"The binlog has nothing of domain {gtid.domain_id}. If an upstream has it, wait until it has come; a "
            "replica at this position is refused (1236)"
        )
    logged = state.get(gtid.domain_id, gtid.server_id)
    if logged is None or logged < gtid.seq_no:
        if last.seq_no >= gtid.seq_no:
            return OTHER_HISTORY, (
                f"The domain has gone on to {last} without it: a replica at this position has executed something of "
                "its own (diverged). Set it up again, or give it a position that this binlog has"
            )
        return NEVER_SEEN, (
            f"The domain ends at {last}. If an upstream is ahead, wait until it has come; else whoever has it has "
            "written past this server"
        )
    # That server's numbers have reached this one: the group was logged once, or the server has skipped the number.
    try:
        start = engine.find_start(state.position().with_gtid(gtid))
    except PositionPurged:
        told = _of_archive(view.archive_parts, gtid)
        if not told:
            return ARCHIVED, (
                "It was purged here. A replica at this position is served from the archive, and goes on from here"
            )
        return PURGED, (
            f"{told}It was passed before Binlog_gtid_begin ('{engine.first_start().state.position()}'), behind which "
            "all groups are whole. A replica at this position must be set up again from a backup"
        )
    if start.state.last(gtid.domain_id) == gtid or look_for(engine, gtid, start).group:
        return HAVE, "A replica at this position goes on from here"
    return OTHER_HISTORY, (
        f"Server {gtid.server_id} has gone on to {logged} here, but this number was never logged here. A replica in "
        "strict mode is refused at this position (1236); another one goes on behind it"
    )
