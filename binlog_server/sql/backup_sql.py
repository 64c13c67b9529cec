"""BACKUP SERVER: a backup as a result set, which `binlog-server backup` makes files of. And BACKUP STAGE and LOCK.

What BACKUP STAGE and BACKUP LOCK answer is what 11.8 answers. From START to END files stay, as with MariaDB's engine
binlog: PURGE, FLUSH and RESET MASTER of others wait. From BLOCK_COMMIT on commits wait, those of DDL and upstreams too.
BLOCK_DDL and LOCK hold up no DDL of others: a warning says so."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import NoDatabaseSelected, NotSupportedYet, UnknownServerError
from binlog_protocol.events.column_type import ColumnType
from binlog_protocol.gtid import SlavePosition
from binlog_protocol.wire.results import Column
from binlog_storage.engine.backup import (
    BACKUP_NAME,
    Backup,
    BackupEngine,
    BackupPlace,
    BackupRequest,
    Manifest,
)

from binlog_server.accounts.privileges import RELOAD
from binlog_server.sql.statement import Family, Rules, Statement
from binlog_server.sql.tokens import unquote
from binlog_server.sql.view import Row, RowStream, Work
from binlog_server.store.backups import STAGES, Backups, SessionBackup

if TYPE_CHECKING:
    from lark import Token

    from binlog_server.sql.sql_session import SqlSession


@dataclass(frozen=True, slots=True)
class BackupServer(Statement):
    """BACKUP SERVER: rows of files' bytes, in order; the first and the last are the manifest.

    It gives all that the store has, the hashes of passwords too: SUPER.
    """

    syntax = '"BACKUP"i "SERVER"i [no_lock] [skip_binlog] [since_gtid | since_place]'
    needs = ("SUPER",)

    wanted: BackupRequest

    @classmethod
    def built(cls, children: list[Any]) -> BackupServer:
        no_lock, skip_binlog, since = children
        place = since if isinstance(since, BackupPlace) else None
        position = since if isinstance(since, SlavePosition) else None
        return cls(BackupRequest(bool(no_lock), bool(skip_binlog), place, position))

    def answer(self, session: SqlSession) -> RowStream:
        engine = session.server.engine
        if not isinstance(engine, BackupEngine):
            raise NotSupportedYet("BACKUP SERVER of this store: stop it and copy its directory")
        waiting = None if self.wanted.no_lock else session.server.backups
        return RowStream(COLUMNS, _batches(engine, self.wanted, waiting))


@dataclass(frozen=True, slots=True)
class BackupStage(Statement):
    """BACKUP STAGE START, FLUSH, BLOCK_DDL, BLOCK_COMMIT or END."""

    syntax = '"BACKUP"i "STAGE"i NAME'
    needs = (RELOAD,)
    com = "backup"
    commits = True

    stage: str

    @classmethod
    def built(cls, children: list[Any]) -> BackupStage:
        return cls(str(children[0]))

    def answer(self, session: SqlSession) -> Work | None:
        stage, backup, server = self.stage.upper(), session.backup, session.server
        session.require_no_locked_tables()
        backup.require_next(stage if stage in STAGES else self.stage)
        if stage == STAGES[0]:
            wait_s = float(session.variables.get("lock_wait_timeout") or _LOCK_WAIT_S)
            return Work.patient(
                "backup", lambda given_up: backup.begin(wait_s, given_up), session.variables_changed
            )
        if stage == STAGES[-1]:
            backup.end()
            session.variables_changed()
            return None
        before, backup.stage = backup.stage, stage
        if stage == "BLOCK_DDL":
            session.warn(NotSupportedYet(f"BACKUP STAGE {stage}: DDL of others goes on"))
            return None
        if stage == "FLUSH":
            return Work(server.engine.sync)
        return _block_commits(backup, before)


def _block_commits(backup: SessionBackup, before: str) -> Work:
    settled, given_up = threading.Event(), threading.Event()

    def wait() -> None:
        backup.settle(given_up.is_set)
        settled.set()

    def give_up() -> None:
        given_up.set()
        if not settled.is_set():
            backup.step_back(before)

    backup.block_commits()
    return Work(wait, line="block_commit", give_up=give_up)


@dataclass(frozen=True, slots=True)
class BackupLock(Statement):
    """BACKUP LOCK of a table; a second one takes the place of the first."""

    syntax = '"BACKUP"i "LOCK"i (NAME | QUOTED_NAME) ["." (NAME | QUOTED_NAME)]'
    needs = (RELOAD,)
    com = "backup_lock"
    commits = True
    uses_tables = True

    table: str
    has_database: bool

    @classmethod
    def built(cls, children: list[Any]) -> BackupLock:
        return cls(str(children[0]), children[1] is not None)

    def answer(self, session: SqlSession) -> None:
        if not self.has_database and not session.database:
            raise NoDatabaseSelected()
        session.backup.lock = self.table
        session.variables_changed()
        session.warn(NotSupportedYet("BACKUP LOCK: DDL of others goes on"))


@dataclass(frozen=True, slots=True)
class BackupUnlock(Statement):
    """BACKUP UNLOCK; without a lock it does nothing."""

    syntax = '"BACKUP"i "UNLOCK"i'
    needs = (RELOAD,)
    com = "backup_lock"
    commits = True

    def answer(self, session: SqlSession) -> None:
        session.backup.lock = ""
        session.variables_changed()


COLUMNS: Final = [
    Column.text("Name", 64),
    Column.bigint("Size"),
    Column.bigint("Offset"),
    Column.binary("Data", ColumnType.LONG_BLOB, 2**32 - 1),
]


def _batches(
    engine: BackupEngine, wanted: BackupRequest, waiting: Backups | None
) -> Iterator[list[Row]]:
    with contextlib.nullcontext() if waiting is None else waiting.running():
        backup: Backup = engine.backup(wanted)
        try:
            yield [_manifest(backup.begin())]
            for piece in backup.pieces():
                yield [tuple(piece)]
            yield [_manifest(backup.finish())]
        finally:
            backup.close()


def _manifest(manifest: Manifest) -> Row:
    data = manifest.build()
    return (BACKUP_NAME, len(data), 0, data)


_LOCK_WAIT_S: Final = 86400.0  # lock_wait_timeout
_RULES: Final = """
no_lock: "NO_LOCK"i
skip_binlog: "SKIP_BINLOG"i
since_gtid: "SINCE"i "GTID"i STRING
since_place: "SINCE"i STRING
"""


class _Builder(Rules):
    def no_lock(self, _: list[Token]) -> bool:
        return True

    def skip_binlog(self, _: list[Token]) -> bool:
        return True

    def since_gtid(self, children: list[Token]) -> SlavePosition:
        return SlavePosition.parse(unquote(children[0]))

    def since_place(self, children: list[Token]) -> BackupPlace:
        """The `end` of the manifest of an earlier backup."""
        try:
            return BackupPlace(**json.loads(unquote(children[0])))
        except (ValueError, TypeError):
            raise UnknownServerError("SINCE: this is no end of an earlier backup") from None


FAMILY: Final = Family((BackupServer, BackupStage, BackupLock, BackupUnlock), _RULES, _Builder)
