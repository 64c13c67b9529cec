"""Changes as they came, as Parquet files that are added one behind the other: the landing table.

    TARGET/part-000000000012.parquet

A file and the GTID position behind it, in the file's own metadata (`binlog.position`), appear at once, by one rename.
So the folder can be read by anything that reads Parquet, and the last file tells where to go on. It tells of which
tables, too (`binlog.tables`): changes of others up to the position would be passed over.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from binlog_protocol.gtid import SlavePosition
from binlog_storage.disk.durable_files import put_in_place, synced_file
from binlog_storage.disk.local_path import local_path

from binlog_pipeline.errors import BadOption, SourceError
from binlog_pipeline.tables.lock import sole_writer
from binlog_pipeline.tables.watermark import behind, gtid_text
from binlog_pipeline.telling import doubted

_POSITION: Final = b"binlog.position"
_TABLES: Final = b"binlog.tables"
_DIGITS: Final = 12


class Landing:
    """A folder that is open for writing. Made by `open_landing`."""

    takes_parts: Final = False

    def __init__(self, target: Path, doubts: LandedDoubts, tables: str) -> None:
        self._target: Final = target
        self._doubts: Final = doubts
        for left in target.glob("_new-*"):
            left.unlink()
        parts = landed_parts(target)
        self._number = int(parts[-1].stem[-_DIGITS:]) if parts else 0
        self._tables: Final = tables
        self.position = landed_position(target, tables) or SlavePosition()

    @property
    def is_complete(self) -> bool:
        """Whether nothing that this run has added is in doubt."""
        return not self._doubts.text

    @property
    def doubt(self) -> str:
        """The doubts of this run; empty for none."""
        return self._doubts.text

    def add(self, changes: pa.Table, position: SlavePosition | None) -> None:
        """Write the new changes, if any, into a file. Raises OSError."""
        assert position is not None
        changes = behind(changes, self.position)
        if not len(changes):
            return
        staged = self._target / f"_new-{os.getpid()}"
        metadata = {**(changes.schema.metadata or {}), _POSITION: str(position).encode()}
        if self._tables:
            metadata[_TABLES] = self._tables.encode()
        with synced_file(staged) as file:
            pq.write_table(changes.replace_schema_metadata(metadata), file, compression="zstd")
        self._number += 1
        put_in_place(staged, self._target / f"part-{self._number:0{_DIGITS}}.parquet")
        self.position = position
        self._doubts.add(changes)

    def flush(self, position: SlavePosition) -> None:
        """A file was made for each `add`."""


@contextmanager
def open_landing(
    target: Path, doubts: LandedDoubts | None = None, tables: str = "", patience_s: float = 0.0
) -> Iterator[Landing]:
    """A landing table, for one process at a time. Raises `PipelineError`, OSError.

    Args:
        doubts: of a run that opens it more than once.
        tables: names or patterns of its tables, with commas; empty if that is not known.
        patience_s: how long another who writes is waited for.
    """
    target = local_path(target)
    with sole_writer(target, f"{target} is being written by another process", patience_s):
        yield Landing(target, doubts or LandedDoubts(), tables)


class LandedDoubts:
    """Doubts of a run: statements behind which tables may differ from what their landed rows make.

    `text` is the first of these, or what is only prepared; empty for nothing. Rows of a stream without x in `ops` tell
    nothing of that.
    """

    def __init__(self) -> None:
        self._first = ""
        self._prepared: dict[str, str] = {}  # by XID

    @property
    def text(self) -> str:
        return self._first or "; ".join(self._prepared.values())

    def add(self, changes: pa.Table) -> None:
        """Note statements that have landed, in the order of the log."""
        if "_statement" not in changes.schema.names:
            return
        is_one_table = "_db" not in changes.schema.names
        statements = changes.column("_statement")
        for i in np.flatnonzero(statements.is_valid().to_numpy()).tolist():
            said, op = statements[i].as_py(), changes.column("_op")[i].as_py()
            if op == "t" and is_one_table:
                self._first = ""  # whatever its rows were, they are gone
            text = doubted(gtid_text(changes, i), said["sql"], said["doubt"])
            if said["prepares"]:
                if said["doubt"]:
                    self._prepared[said["prepares"]] = text
                continue
            self._prepared.pop(said["ends"], None)
            if said["doubt"] or op == "x":
                self._first = self._first or text


def landed_parts(target: Path) -> list[Path]:
    """The files of a landing table, in the order in which they were added."""
    return sorted(target.glob(f"part-{'[0-9]' * _DIGITS}.parquet"))


def landed_position(target: Path, tables: str = "") -> SlavePosition | None:
    """The position behind the last file; None without one. Raises `SourceError`, `BadOption` if it is of other tables.

    Some of its tables may be left out from there on, or others come beside them.
    """
    parts = landed_parts(target)
    if not parts:
        return None
    position, there = _said(parts[-1])
    kept, asked = ({one.strip() for one in text.split(",")} for text in (there, tables))
    if there and tables and not (kept <= asked or asked <= kept):
        raise BadOption(
            f"{target} holds changes of {there}, not of {tables}: give each a folder of its own"
        )
    return position


def _said(part: Path) -> tuple[SlavePosition, str]:
    """The position behind a file, and its tables."""
    try:
        said = pq.read_schema(part).metadata
        return SlavePosition.parse(said[_POSITION].decode()), said.get(_TABLES, b"").decode()
    except (KeyError, TypeError, OSError, pa.ArrowException) as error:
        raise SourceError(
            f"{part} was not written by this program, or is damaged: {error!r}"
        ) from None
