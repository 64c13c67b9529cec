"""Changes as they came, as Parquet files that are added one behind the other: the landing table.

    TARGET/part-000000000012.parquet

A file and the GTID position behind it, in the file's own metadata (`binlog.position`), appear at once, by one rename.
So the folder can be read by anything that reads Parquet, and the last file tells where to go on.
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

from binlog_pipeline.errors import SourceError
from binlog_pipeline.tables.lock import sole_writer
from binlog_pipeline.tables.watermark import behind, gtid_text
from binlog_pipeline.telling import doubted

_POSITION: Final = b"binlog.position"
_DIGITS: Final = 12


class Landing:
    """A folder that is open for writing. Made by `open_landing`."""

    takes_parts: Final = False

    def __init__(self, target: Path, doubts: LandedDoubts) -> None:
        self._target: Final = target
        self._doubts: Final = doubts
        for left in target.glob("_new-*"):
            left.unlink()
        parts = landed_parts(target)
        self._number = int(parts[-1].stem[-_DIGITS:]) if parts else 0
        self.position = landed_position(target) or SlavePosition()

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
        with synced_file(staged) as file:
            pq.write_table(changes.replace_schema_metadata(metadata), file, compression="zstd")
        self._number += 1
        put_in_place(staged, self._target / f"part-{self._number:0{_DIGITS}}.parquet")
        self.position = position
        self._doubts.add(changes)

    def flush(self, position: SlavePosition) -> None:
        """A file was made for each `add`."""


@contextmanager
def open_landing(target: Path, doubts: LandedDoubts | None = None) -> Iterator[Landing]:
    """A landing table, for one process at a time. Raises `PipelineError`, OSError.

    `doubts`: of a run that opens it more than once.
    """
    target = local_path(target)
    with sole_writer(target, f"{target} is being written by another process"):
        yield Landing(target, doubts or LandedDoubts())


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


def landed_position(target: Path) -> SlavePosition | None:
    """The position behind the last file; None without one. Raises `SourceError`."""
    parts = landed_parts(target)
    return _position(parts[-1]) if parts else None


def _position(part: Path) -> SlavePosition:
    try:
        return SlavePosition.parse(pq.read_schema(part).metadata[_POSITION].decode())
    except (KeyError, TypeError, OSError, pa.ArrowException) as error:
        raise SourceError(
            f"{part} was not written by this program, or is damaged: {error!r}"
        ) from None
