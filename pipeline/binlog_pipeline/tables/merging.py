"""A MERGE by files: which data files of a table a batch concerns, and writing these anew. Formats are beside it.

It is done by tasks (`tasks.py`), so by any workers: this process, or executors of Spark. A task reads its files, takes
out the rows whose keys have changed, and writes what is left. One of them writes the rows of now, together, for a row
that has changed may soon change again. What comes back is descriptions of files; and where the log has only parts of
rows, the rest of these. No file counts until a commit names it: a task that runs twice leaves one that nobody names.
So a group that comes in parts is merged by ranges of keys (`folded_parts.py`), and one commit behind all of them names
the files (`Uncommitted`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Generic, Protocol, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from binlog_protocol.dataclass import dataclass

from binlog_pipeline.errors import SourceError
from binlog_pipeline.schemas.conversion import with_columns
from binlog_pipeline.tables.effects import Booleans, Effects, key_codes
from binlog_pipeline.tables.fold import fold
from binlog_pipeline.tasks import HERE, Workers

SIZE_BYTES: Final = 128 << 20
"""Bytes that the rows of a file have in memory, at most, where a table says nothing else."""
_SMALL_ROWS: Final = 50_000
_SMALL_FILES: Final = 16
"""So many files of fewer rows are left as they are, though no row of them has changed."""
_WORTH_SENDING: Final = 8 << 20
"""Bytes of files and of rows: of fewer, other processes would take longer to be told than to do it."""
_MOST_SENT: Final = 128 << 20
"""Bytes of rows that a job may carry: Spark's driver has a copy of them. Of larger batches all is written here."""

_Named = TypeVar("_Named")
_Named_in = TypeVar("_Named_in", contravariant=True)
_Written = TypeVar("_Written")


class NotSeen(SourceError):
    """Workers do not see the table: a file that they wrote would not be where the commit is made."""


class DataFiles(Protocol[_Named_in, _Written]):
    """The data files of one table, as its format has them. Goes to tasks, with what names and what describes a file."""

    @property
    def size(self) -> int:
        """Bytes that the rows of a file may have in memory."""

    def unseen(self) -> str:
        """Why files that are written here would not be seen where the commit is made; empty if they are."""

    def read(self, file: _Named_in, names: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """The rows of a file, part after part. Raises `SourceError` for one that is damaged or gone.

        Args:
            names: the columns that are wanted, of which the file may have others, or not all; None for all.
        """

    def write(self, parts: Iterable[pa.Table]) -> list[_Written]:
        """A file for each part."""

    def remove(self, file: _Named_in) -> None:
        """A file that no commit names. One that is gone, or stays, is no error."""


@dataclass(frozen=True, slots=True)
class KeptFile(Generic[_Named]):
    """A data file of a table.

    name: what the format reads it by.
    size: bytes.
    rows: how many; None if that is not known.
    lower, upper: of the first column of the key; None if that is not known.
    is_anew: it is to be written anew, whatever changes.
    """

    name: _Named
    size: int
    rows: int | None
    lower: Any = None
    upper: Any = None
    is_anew: bool = False

    @property
    def is_small(self) -> bool:
        return self.rows is not None and self.rows < _SMALL_ROWS


@dataclass(frozen=True, slots=True)
class _Piece:
    """Files that one task writes anew, into one if they are small.

    begin, end: the effects that may concern their rows.
    is_whole: they are written though no row of them changes.
    adds: so are the rows of all effects.
    """

    files: tuple[KeptFile[Any], ...]
    begin: int
    end: int
    is_whole: bool
    adds: bool = False

    def __str__(self) -> str:
        return f"{'new rows and ' * self.adds}data files ({len(self.files)})"


@dataclass(frozen=True, slots=True)
class _Rewritten:
    """The outcome of a piece.

    gone: numbers of its files that others stand for now.
    touched: rows that the effects change in part; None if all are set as a whole.
    unseen: the reason for which nothing was done.
    """

    gone: tuple[int, ...]
    new: tuple[Any, ...]
    touched: pa.Table | None
    unseen: str = ""


@dataclass(frozen=True, slots=True)
class _Merging:
    """A task: the effects on the rows of a piece.

    touched: rows of other pieces that the effects change in part.
    """

    files: DataFiles[Any, Any]
    effects: Effects
    keys: tuple[str, ...]
    shown_name: str
    touched: pa.Table

    def __call__(self, piece: _Piece) -> _Rewritten:
        """Raises `SourceError` for a value that is another one in its new type."""
        if unseen := self.files.unseen():
            return _Rewritten((), (), None, unseen)
        effects = self.effects.some(np.arange(piece.begin, piece.end))
        gone = [
            number
            for number, file in enumerate(piece.files)
            if piece.is_whole or self._has_changed(file, effects)
        ]
        touched = [self.touched]
        rows = self._rows([piece.files[number] for number in gone], effects, touched, piece.adds)
        new = self.files.write(rolled(rows, self.files.size))
        is_asked = effects.present is not None and not piece.adds
        found = pa.concat_tables(touched).combine_chunks() if is_asked else None
        return _Rewritten(tuple(gone), tuple(new), found)

    def _has_changed(self, file: KeptFile[Any], effects: Effects) -> bool:
        """Whether a row of it is concerned. Only its keys are read."""
        changed = effects.rows.select(self.keys)
        parts = self._parts(file, changed.schema, self.keys)
        return any(_has_keys(rows, changed, self.keys).any() for rows in parts)

    def _rows(
        self,
        files: Sequence[KeptFile[Any]],
        effects: Effects,
        touched: list[pa.Table],
        adds: bool,
    ) -> Iterator[pa.Table]:
        """The rows that are to be written in the place of those of some files. Those that change go to `touched`."""
        for file in files:
            for rows in self._parts(file, effects.rows.schema):
                is_changed = _has_keys(rows, effects.rows, self.keys)
                if effects.present is not None:
                    touched.append(rows.filter(pa.array(is_changed)))
                yield rows.filter(pa.array(~is_changed))
        if adds:
            yield fold(pa.concat_tables(touched).combine_chunks(), effects, self.keys)

    def _parts(
        self, file: KeptFile[Any], schema: pa.Schema, names: Sequence[str] | None = None
    ) -> Iterator[pa.Table]:
        for rows in self.files.read(file.name, names):
            yield with_columns(rows, schema, lambda name: f"column {name} of {self.shown_name}")


@dataclass(frozen=True, slots=True)
class Merge(Generic[_Named]):
    """The effects of a batch, one a key, on the files of a table. Made by `of`."""

    pieces: Sequence[_Piece]
    effects: Effects
    keys: Sequence[str]
    shown_name: str

    @classmethod
    def of(
        cls,
        kept: Iterable[KeptFile[_Named]],
        effects: Effects,
        keys: Sequence[str],
        shown_name: str,
        key_type: pa.DataType | None,
        *,
        is_converted: bool = False,
    ) -> Self:
        """Plan it.

        Args:
            kept: all files of the table.
            shown_name: of the table, for messages.
            key_type: of the bounds of files; None if these cannot be compared.
            is_converted: a column has another type, so that all files are written anew.
        """
        effects, values = _ordered(effects, keys[0], key_type)
        pieces = _planned(list(kept), len(effects), values, is_converted=is_converted)
        return cls(pieces, effects, keys, shown_name)

    @property
    def is_worth_sending(self) -> bool:
        """Whether workers other than this process are asked."""
        size = sum(file.size for piece in self.pieces for file in piece.files)
        return _is_worth_sending(self.effects.rows, size)

    def done(
        self, files: DataFiles[_Named, _Written], workers: Workers
    ) -> tuple[list[KeptFile[_Named]], list[_Written]]:
        """The files that go, and those that come: the workers write them. Raises `PipelineError`, `NotSeen`."""
        effects, pieces = self.effects, self.pieces
        # What is left of rows that were logged in part must be known to the one that adds them.
        waves = [pieces] if effects.present is None else [pieces[:-1], pieces[-1:]]
        gone: list[KeptFile[_Named]] = []
        new: list[_Written] = []
        touched = [effects.rows.schema.empty_table()]
        for wave in waves:
            known = pa.concat_tables(touched)
            task = _Merging(files, effects, tuple(self.keys), self.shown_name, known)
            for number, done in workers.map(task, wave):
                if done.unseen:
                    raise NotSeen(done.unseen)
                gone.extend(wave[number].files[i] for i in done.gone)
                new.extend(done.new)
                if done.touched is not None:
                    touched.append(done.touched)
        return gone, new


class Uncommitted(Generic[_Named, _Written]):
    """The files of a table as they are behind merges that no commit names yet: those of a group that came in parts.

    Args:
        kept: all files of the table.
        found: what stands for a file that was written.
    """

    def __init__(
        self,
        kept: Iterable[KeptFile[_Named]],
        found: Callable[[_Written], KeptFile[_Named]],
    ) -> None:
        self.kept: list[KeptFile[_Named]] = [*kept]
        self.gone: list[KeptFile[_Named]] = []
        self._found: Final = found
        self._written: dict[int, _Written] = {}  # by the identity of what stands for it

    @property
    def new(self) -> list[_Written]:
        """The files that the commit adds."""
        return [*self._written.values()]

    def take(
        self, merge: Merge[_Named], files: DataFiles[_Named, _Written], workers: Workers
    ) -> None:
        """A merge that was planned with the files as they are here. Raises as `Merge.done`."""
        self._replace(files, *merge.done(files, workers))

    def empty(self, files: DataFiles[_Named, _Written]) -> None:
        """Leave no row."""
        self._replace(files, self.kept, [])

    def _replace(
        self,
        files: DataFiles[_Named, _Written],
        gone: Sequence[KeptFile[_Named]],
        new: Sequence[_Written],
    ) -> None:
        numbers = {id(one) for one in gone}
        self.kept = [one for one in self.kept if id(one) not in numbers]
        for one in gone:
            if self._written.pop(id(one), None) is None:
                self.gone.append(one)
            else:  # no commit will name it
                files.remove(one.name)
        for file in new:
            one = self._found(file)
            self.kept.append(one)
            self._written[id(one)] = file


@dataclass(frozen=True, slots=True)
class _NewFile:
    """The rows of one file that is to be written."""

    rows: pa.Table

    def __str__(self) -> str:
        return f"a file of {len(self.rows)} new rows"

    def __reduce__(self) -> tuple[Any, ...]:
        """As a stream: what pickles a slice takes all the rows of which it is one."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.rows.schema) as stream:
            stream.write_table(self.rows)
        return _new_file, (sink.getvalue().to_pybytes(),)


def _new_file(stream: bytes) -> _NewFile:
    return _NewFile(pa.ipc.open_stream(stream).read_all())


@dataclass(frozen=True, slots=True)
class _Writing:
    """A task: rows that are in no file."""

    files: DataFiles[Any, Any]

    def __call__(self, item: _NewFile) -> list[Any] | str:
        return self.files.unseen() or self.files.write([item.rows])


def written(files: DataFiles[Any, _Written], rows: pa.Table, workers: Workers) -> list[_Written]:
    """Files with these rows, by the workers; none for no row. Raises `PipelineError`, `NotSeen`."""
    items = [_NewFile(part) for part in rolled([rows], files.size)]
    found: list[_Written] = []
    workers = workers if _is_worth_sending(rows) else HERE
    for _, new in workers.map(_Writing(files), items):
        if isinstance(new, str):
            raise NotSeen(new)
        found += new
    return found


def rolled(tables: Iterable[pa.Table], size: int) -> Iterator[pa.Table]:
    """The rows of tables in tables of so many bytes, but the last one; nothing of no row."""
    held: list[pa.Table] = []
    have = 0
    for rows in tables:
        if not len(rows):
            continue
        held.append(rows)
        have += rows.nbytes
        if have < size:
            continue
        whole = pa.concat_tables(held)
        step = max(1, len(whole) * size // have)
        begin = 0
        while begin + step < len(whole):
            yield whole.slice(begin, step)
            begin += step
        held = [whole.slice(begin)]
        have = held[0].nbytes
    if held:
        yield pa.concat_tables(held)


def _is_worth_sending(rows: pa.Table, size: int = 0) -> bool:
    """Whether others than this process are asked to work on these rows, and so many bytes of files."""
    rows_size: int = rows.nbytes
    return size + rows_size >= _WORTH_SENDING and rows_size <= _MOST_SENT


def _planned(
    kept: Sequence[KeptFile[Any]], count: int, values: Sequence[Any] | None, *, is_converted: bool
) -> list[_Piece]:
    """Pieces that may go side by side; the last one adds the rows of the effects, to small files if there are any.

    Args:
        count: of the effects.
        values: of the first column of the key, in order; None if bounds of files cannot be compared with them.
    """
    is_joined = sum(file.is_small for file in kept) > _SMALL_FILES
    found: list[_Piece] = []
    packs: list[list[KeptFile[Any]]] = [[]]
    rows = 0
    for file in kept:
        is_whole = is_converted or file.is_anew or (file.is_small and is_joined)
        begin, end = 0, count
        if values is not None and file.lower is not None and file.upper is not None:
            begin, end = bisect_left(values, file.lower), bisect_right(values, file.upper)
        if not is_whole and begin >= end:
            continue
        if not file.is_small:
            found.append(_Piece((file,), begin, max(begin, end), is_whole))
            continue
        if rows >= _SMALL_FILES * _SMALL_ROWS:
            packs.append([])
            rows = 0
        packs[-1].append(file)
        rows += file.rows or 0
    for pack in packs:
        adds = pack is packs[-1]
        is_whole = is_converted or is_joined or any(file.is_anew for file in pack)
        found.append(_Piece(tuple(pack), 0, count, is_whole, adds))
    return found


def _ordered(
    effects: Effects, key: str, key_type: pa.DataType | None
) -> tuple[Effects, list[Any] | None]:
    """The effects in the order of this column, and its values; as they are, and None, if these are not of that type."""
    values = effects.rows.column(key)
    if key_type is None or values.type != key_type or values.null_count:
        return effects, None
    effects = effects.some(pc.sort_indices(values).to_numpy())
    return effects, effects.rows.column(key).to_pylist()


def _has_keys(rows: pa.Table, changed: pa.Table, keys: Sequence[str]) -> Booleans:
    """Which rows have a key of `changed`. Most often most have not even its first column."""
    first = pc.is_in(rows.column(keys[0]), value_set=changed.column(keys[0]).combine_chunks())
    found = np.array(first.to_numpy(), np.bool_)
    if len(keys) == 1 or not found.any():
        return found
    places = np.flatnonzero(found)
    mine, others = key_codes([rows.select(keys).take(pa.array(places)), changed.select(keys)], keys)
    is_changed = np.zeros(int(max(mine.max(initial=-1), others.max(initial=-1))) + 1, np.bool_)
    is_changed[others] = True
    found[places] = is_changed[mine]
    return found
