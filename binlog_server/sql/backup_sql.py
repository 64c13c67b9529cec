"""BACKUP SERVER: a backup as a result set, which `binlog-server backup` makes files of. Statements of this server."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from binlog_protocol.errors import NotSupportedYet, UnknownServerError
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
from lark import Token, Transformer

from binlog_server.sql.statement import Family, Statement
from binlog_server.sql.tokens import unquote
from binlog_server.sql.view import Row, RowStream

if TYPE_CHECKING:
    from binlog_server.sql.sql_session import SqlSession
    from binlog_server.store.backups import Backups


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


_RULES: Final = """
no_lock: "NO_LOCK"i
skip_binlog: "SKIP_BINLOG"i
since_gtid: "SINCE"i "GTID"i STRING
since_place: "SINCE"i STRING
"""


class _Builder(Transformer[Token, Any]):
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


FAMILY: Final = Family((BackupServer,), _RULES, _Builder)
