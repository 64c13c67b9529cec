"""Tables as they are, read from a running server, and joined with its log without a seam. No lock is held.

    TARGET/_load/plan.json     where the log stood when it began, and the pieces, by primary key
    TARGET/_load/rows/         a file a piece that was read
    TARGET/_load/state/        the table, joined with the log
    TARGET                     then, in one step

TARGET/_load is the folder that is given for it instead, where TARGET is no folder of this machine.

The position of the beginning is that of a consistent snapshot. The pieces are read later, each by a statement of its
own, side by side: so a row is as it was at some time between the beginning and the end. What the log has of that time
is folded over them: the last change of a row decides, whether it was seen or not, so behind the end all rows are right.
Only then is anything published: at the end, or at the target's own position if that is further. So whoever keeps the
target, by `state` or by a stream, goes on from there, and passes over what is in it. A run that was killed goes on
where it was.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.charsets import BINARY_COLLATION, charset_of
from binlog_protocol.events.column_type import ColumnType
from binlog_protocol.events.table_map import TableMap
from binlog_protocol.gtid import BinlogState, SlavePosition
from binlog_protocol.row_columns.options import ColumnOptions
from binlog_protocol.row_columns.result_rows import ResultColumns, selected
from binlog_protocol.sql.statements import parse_statement
from binlog_protocol.sql.token_reader import TableName
from binlog_protocol.tables.sql_type import SqlType
from binlog_storage.console.progress import Progress
from binlog_storage.disk.durable_files import put_in_place, replace_file, sync_folder, synced_file
from binlog_storage.disk.local_path import local_path

from binlog_pipeline.errors import BadOption, DataLost, IncompleteImage, NonRowChange, SourceError
from binlog_pipeline.jobs.manifest import folder_of
from binlog_pipeline.jobs.state import Kept, keep_state, merged
from binlog_pipeline.jobs.workers import LocalWorkers
from binlog_pipeline.options import SourceOptions
from binlog_pipeline.schemas.asked import (
    AskedTable,
    asked_names,
    asked_table,
    described,
    encoded,
    quoted,
)
from binlog_pipeline.schemas.lineage import lineage, placed_ddl
from binlog_pipeline.schemas.logged_statements import LoggedStatement
from binlog_pipeline.schemas.row_effects import row_effect
from binlog_pipeline.schemas.seed import Seed
from binlog_pipeline.schemas.subscription import Subscription
from binlog_pipeline.sources.dump.address import ServerAddress
from binlog_pipeline.sources.dump.link import ServerLink
from binlog_pipeline.sources.opening import open_source
from binlog_pipeline.sources.server import table_session
from binlog_pipeline.table_names import parsed_table, table_text
from binlog_pipeline.tables.buckets import open_parquet_state, read_state
from binlog_pipeline.tables.facts import Facts
from binlog_pipeline.tables.lock import PATIENCE_S, in_turns, sole_writer
from binlog_pipeline.tables.sinks import KeptTable, open_sink, published, require_kept_types
from binlog_pipeline.targets import Target, is_local, target_path
from binlog_pipeline.views.changes_opening import column_options_of

if TYPE_CHECKING:
    import pyarrow as pa

PIECE_ROWS: Final = 100_000
STAGING: Final = "_load"
_PLAN: Final = "plan.json"
_VERSION: Final = 2
_BEHIND: Final = "binlog.behind"  # in a piece's file: where the log stood when it had been read
_BATCH_BYTES: Final = 16 << 20
_BATCH_ROWS: Final = 1 << 14
_TRIES: Final = 3
_NUMBERED: Final = re.compile(r"\sAUTO_INCREMENT=\d+")
_AS_NUMBERS: Final = frozenset((
    ColumnType.TINY, ColumnType.SHORT, ColumnType.INT24, ColumnType.LONG, ColumnType.LONGLONG, ColumnType.NEWDECIMAL,
    ColumnType.YEAR,
))  # fmt: skip
_AS_TEXTS: Final = frozenset((
    ColumnType.DATE, ColumnType.DATETIME2, ColumnType.TIMESTAMP2, ColumnType.TIME2,
))  # fmt: skip
_STRINGS: Final = frozenset((ColumnType.STRING, ColumnType.VARCHAR))


@dataclass(frozen=True, slots=True)
class LoadedTable:
    """The outcome for one table. rows: in the target behind it. is_new: it was read; else it was there already."""

    table: str
    target: Path | str
    kept: Kept
    rows: int
    is_new: bool


@dataclass(frozen=True, slots=True)
class KeyPiece:
    """A part of a table: rows with a key behind `after`, up to `until`; None for no bound."""

    number: int
    after: tuple[str, ...] | None
    until: tuple[str, ...] | None
    path: str

    def __str__(self) -> str:
        return f"piece {self.number + 1}"


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """What is read, and how. All of it is in the file.

    position: of the log, in front of all that is read.
    table: as `encoded`; types: as information_schema prints them, in its order.
    keys: the columns that tell rows apart. bounds: keys between pieces, each value as hexadecimal text.
    """

    position: str
    table: str
    types: tuple[str, ...]
    created: str
    is_versioned: bool
    keys: tuple[str, ...]
    options: dict[str, str]
    bounds: tuple[tuple[str, ...], ...]

    @property
    def map(self) -> TableMap:
        return described(self.table)

    @property
    def sql_types(self) -> list[SqlType]:
        return [SqlType.parse(text) for text in self.types]

    @property
    def begin(self) -> SlavePosition:
        return SlavePosition.parse(self.position)

    def pieces(self, folder: Path) -> list[KeyPiece]:
        """All pieces, with the file of each."""
        ends = (None, *self.bounds, None)
        return [
            KeyPiece(number, after, until, str(folder / f"{number:08}.parquet"))
            for number, (after, until) in enumerate(pairwise(ends))
        ]

    @classmethod
    def read(cls, path: Path) -> LoadPlan | None:
        """The plan of a run that has ended too soon; None for none. Raises `SourceError`."""
        try:
            found = json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise SourceError(f"{path} is damaged: {error!r}") from None
        if found.pop("version", None) != _VERSION:
            return None
        found["types"] = tuple(found["types"])
        found["keys"] = tuple(found["keys"])
        found["bounds"] = tuple(tuple(one) for one in found["bounds"])
        return cls(**found)

    def write(self, path: Path) -> None:
        """Write it whole, or not at all. Raises OSError."""
        replace_file(path, json.dumps({"version": _VERSION, **asdict(self)}, indent=1).encode())


@dataclass(frozen=True, slots=True)
class ReadPiece:
    """The task that reads one piece into its file, on a connection of its own."""

    address: ServerAddress
    plan: LoadPlan
    seed: str

    def __call__(self, piece: KeyPiece) -> int:
        """The number of rows. Raises `PipelineError`, OSError, `ProtocolError`."""
        import pyarrow.parquet as pq

        table, types = self.plan.map, self.plan.sql_types
        columns = ResultColumns(
            Seed.read(self.seed).applied(table),
            types,
            ColumnOptions(**self.plan.options),  # type: ignore[arg-type]
        )
        path = Path(piece.path)
        staged = path.with_suffix(".new")
        count = 0
        with (
            table_session(self.address) as link,
            synced_file(staged) as file,
            pq.ParquetWriter(  # read once, whole: bounds would cost memory, and be of no use
                file, columns.schema, compression="zstd", write_statistics=False
            ) as writer,
        ):
            for rows in _batches(link.rows(select(self.plan, table, types, piece))):
                count += len(rows)
                writer.write_batch(columns.batch(rows))
            writer.add_key_value_metadata({_BEHIND: str(_log_end(link))})
        put_in_place(staged, path)
        return count


def load(
    options: SourceOptions,
    target: Target,
    *,
    keys: Sequence[str] = (),
    sink: str = "parquet",
    again: bool = False,
    workers: int = 1,
    piece_rows: int = PIECE_ROWS,
    staging: Path | None = None,
) -> LoadedTable:
    """Fill the target of one table with its rows. Raises `PipelineError`, `ProtocolError`, OSError.

    Args:
        options: the server, with view changes, layout struct, ops of a state, and the table.
        keys: unique columns, instead of the primary key; the table is read in one piece then.
        again: also if the target has the table: its rows are replaced, in one step.
        workers: connections that read side by side.
        piece_rows: of a piece, about.
        staging: a folder of this target alone, for what is read until all is; in the target, unless given. A run that
            was killed goes on with it.
    """
    if sink == "changes":
        raise BadOption("--sink changes keeps no table")
    target = target_path(target)
    address = _server_of(options)
    if staging is None:
        if not is_local(target):
            raise BadOption(
                f"{target} is no folder of this machine: name one by --staging, for rows until all are read"
            )
        staging = Path(target) / STAGING
    staging = local_path(staging)
    with sole_writer(staging, f"{target} is being loaded by another process"):
        plan = LoadPlan.read(staging / _PLAN)
        if plan is None and not again:
            with _opened(sink, target, options.table) as kept:
                if not kept.is_new:
                    return LoadedTable(options.table, target, _as_kept(kept), 0, is_new=False)
        for left in range(_TRIES, 0, -1):
            try:
                return _load_once(
                    options,
                    address,
                    target,
                    keys,
                    sink,
                    staging,
                    workers=workers,
                    piece_rows=piece_rows,
                )
            except DataLost:
                _remove(staging)
                if plan is None:
                    raise
                plan = None  # the log has no more what a run before this one would be joined with
            except IncompleteImage:  # these rows cannot be joined with the log, new ones may be
                _remove(staging)
                if left == 1:
                    raise
            except _Altered as error:
                _remove(staging)
                if left == 1:
                    raise SourceError(
                        f"{options.table} was altered while it was read, {_TRIES} times: {error}"
                    ) from None
    raise AssertionError


def tables_of(options: SourceOptions, patterns: Sequence[str]) -> list[str]:
    """The tables of the server that patterns (shop.*) mean. Raises `BadOption` for none, and as `load`."""
    wanted = Subscription.parse(patterns)
    with table_session(_server_of(options)) as link:
        found = [table_text(name) for name in asked_names(link.texts) if wanted.has(*name)]
    if not found:
        raise BadOption(f"the server shows no table of {', '.join(patterns)} to this account")
    return found


def _server_of(options: SourceOptions) -> ServerAddress:
    if options.kind != "server":
        raise BadOption("rows are read from a running server: SOURCE is mariadb://USER@HOST:PORT")
    return ServerAddress.of(options)


def target_of(folder: Target, table: str) -> Path | str:
    """Where a table is kept among others: FOLDER/shop/orders."""
    names = [folder_of(name) for name in parsed_table(table)]
    found = target_path(folder)
    return found.joinpath(*names) if isinstance(found, Path) else "/".join((found, *names))


def staging_of(folder: Path, table: str) -> Path:
    """Where rows of a table are until all are read."""
    return folder.joinpath(*(folder_of(name) for name in parsed_table(table)), STAGING)


def position_of(target: Target, table: str, sink: str) -> SlavePosition | None:
    """Where the target of a table is; None if it is not there, or a run that loads it has not ended.

    Nothing is made, not even a lock. Raises `PipelineError`.
    """
    target = target_path(target)
    if is_local(target) and LoadPlan.read(Path(target) / STAGING / _PLAN) is not None:
        return None
    return published(sink, target, table)


class _Altered(Exception):
    """The table was altered while it was read, so its pieces do not fit together."""


def _load_once(
    options: SourceOptions,
    address: ServerAddress,
    target: Path | str,
    keys: Sequence[str],
    sink: str,
    staging: Path,
    *,
    workers: int,
    piece_rows: int,
) -> LoadedTable:
    plan = _plan(options, address, staging, keys, sink, piece_rows)
    _read_pieces(options, address, plan, staging / "rows", workers)
    with table_session(address) as link:
        _require_same(plan, asked_table(link.texts, _name(options)))
        end = _log_end(link)
        _require_one_history(link.binlog_state(), plan.pieces(staging / "rows"), address)
    _refuse_ddl(options, plan, end)
    state = staging / "state"
    _begin_state(plan, state, staging / "rows", options.table)
    joined = replace(options, start_gtid=None)
    end = merged(plan.begin, end)
    _join(joined, state, end)

    def published() -> LoadedTable:
        with _opened(sink, target, options.table) as kept:
            if not kept.is_new:
                _join(joined, state, _furthest(end, kept.position))
            rows, manifest = read_state(state)
            facts = Facts.of(manifest.facts)
            kept.name(manifest.logged_as or options.table)
            kept.take_over(rows, manifest.keys, manifest.slave_position, facts)
            return LoadedTable(options.table, target, _as_kept(kept), len(rows), is_new=True)

    done = in_turns(published)
    _remove(staging)
    return done


def _plan(
    options: SourceOptions,
    address: ServerAddress,
    staging: Path,
    keys: Sequence[str],
    sink: str,
    piece_rows: int,
) -> LoadPlan:
    """The plan of the run before, if it still holds; else a new one."""
    chosen = asdict(column_options_of(options))
    name = _name(options)
    with table_session(address) as link:
        old = LoadPlan.read(staging / _PLAN)
        if old is not None and old.options == chosen:
            asked = asked_table(link.texts, name)
            if _is_same(old, asked) and (not keys or [*old.keys] == [*keys]):
                return old
        _remove(staging)
        _require_logged(link, options)
        position, asked = _begun(link, name)
        if asked.by_transactions:
            raise SourceError(
                f"{name} is versioned by transaction ids, and servers log what changes such a table as text, whatever "
                "binlog_format is: no log would keep it up to date. Version it by TIMESTAMP(6), or by WITH SYSTEM "
                "VERSIONING alone"
            )
        table = asked.map
        primary = [table.columns[part.column].name or "" for part in table.primary_key or ()]
        found = [*(keys or primary)]
        missing = [key for key in found if key not in asked.names]
        if missing or not found:
            raise BadOption(
                f"{name} has no column {', '.join(missing)}"
                if missing
                else f"{name} has no primary key: name unique columns that are NOT NULL by --keys"
            )
        plan = LoadPlan(
            str(position),
            encoded(table),
            tuple(map(str, asked.types)),
            asked.created,
            asked.is_versioned,
            tuple(found),
            chosen,
            (),
        )
        if not plan.table:
            raise SourceError(f"{name}: its columns cannot be described as its log would do")
        require_kept_types(sink, options.table, _columns(plan, options).schema)
        if found == primary:
            bounds = tuple(_bounds(link, plan, piece_rows))
            plan = replace(plan, bounds=bounds)
    plan.write(staging / _PLAN)
    return plan


def _begun(link: ServerLink, name: TableName) -> tuple[SlavePosition, AskedTable]:
    """Where the log stands in a consistent snapshot, with no lock; and the table.

    What is in the log may not be committed yet, so the position at the end of it would miss rows: that of the snapshot
    does not.
    """
    link.query("START TRANSACTION WITH CONSISTENT SNAPSHOT")
    try:
        said = link.query("SHOW STATUS LIKE 'binlog_snapshot_%'")
        by_name = {(name or "").lower(): value or "" for name, value in said}
        file, offset = (
            by_name.get("binlog_snapshot_file", ""),
            by_name.get("binlog_snapshot_position", ""),
        )
        if not file or not offset.isdecimal():
            raise SourceError("the server does not say where in its binlog a snapshot stands")
        text = _value(link, f"SELECT BINLOG_GTID_POS(X'{file.encode().hex()}', {offset})")
        if text is None:
            raise SourceError(f"the server has no GTID position for {file}, {offset} of its binlog")
        return SlavePosition.parse(text), asked_table(link.texts, name)
    finally:
        link.query("COMMIT")


def _require_logged(link: ServerLink, options: SourceOptions) -> None:
    """Check that changes are logged as the join needs them. Raises `SourceError`."""
    link.binlog_state()
    if _value(link, "SELECT @@GLOBAL.binlog_format") != "ROW":
        raise SourceError("the server does not log rows: set binlog_format=ROW")
    if not options.schema_seed and _value(link, "SELECT @@GLOBAL.binlog_row_metadata") != "FULL":
        raise SourceError(
            "the log of the server has no names of columns: set binlog_row_metadata=FULL, or give --schema-seed"
        )


def _read_pieces(
    options: SourceOptions, address: ServerAddress, plan: LoadPlan, folder: Path, workers: int
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pieces = plan.pieces(folder)
    wanted = [piece for piece in pieces if not Path(piece.path).exists()]
    task = ReadPiece(address, plan, options.schema_seed)
    with Progress(options.table) as progress:
        done = len(pieces) - len(wanted)
        for _ in LocalWorkers(workers).map(task, wanted):
            done += 1
            progress.show(done, len(pieces))
    sync_folder(folder)


def _require_one_history(
    state: BinlogState, pieces: Sequence[KeyPiece], address: ServerAddress
) -> None:
    """Whether the server has all that had happened when the pieces were read. Raises `DataLost`.

    Behind a failover it may be another one, which never got the last groups: rows may hold what they did.
    """
    import pyarrow.parquet as pq

    ends = {pq.read_metadata(piece.path).metadata[_BEHIND.encode()].decode() for piece in pieces}
    for gtid in (gtid for text in ends for gtid in SlavePosition.parse(text)):
        if not state.has(gtid):
            raise DataLost(
                f"{address.name} does not have {gtid}, which was there when rows were read: it is another server, "
                "which is behind the one before or has another history, or it was set back; load again"
            )


def _begin_state(plan: LoadPlan, state: Path, folder: Path, table: str) -> None:
    """The rows that were read, as a target that stands where the reading began. It is nobody else's."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    keys = [*plan.keys]
    with open_parquet_state(state, table, (), plan.begin) as kept:
        if kept.is_new:
            parts = [pq.read_table(piece.path) for piece in plan.pieces(folder)]
            rows = _distinct(pa.concat_tables(parts).combine_chunks(), keys)
            kept.take_over(rows, keys, plan.begin, _facts(plan, table))


def _distinct(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """One row a key: a row whose key has changed meanwhile may have been read under both, never twice under one.

    Unless a key is not unique, or its order is another one than that of its comparison.
    """
    import numpy as np

    from binlog_pipeline.tables.effects import key_codes

    codes = key_codes([rows.select(keys)], keys)[0]
    if len(codes) != int(codes.max(initial=-1)) + 1:
        twice = int(np.argmax(np.bincount(codes) > 1))
        shown = rows.select(keys).slice(int(np.argmax(codes == twice)), 1).to_pylist()[0]
        is_lossy = None in shown.values()
        hint = "; zero and partial dates are null unless zeroDate=string" * is_lossy
        raise SourceError(f"two rows of one key, which is not unique: {shown}{hint}")
    return rows


def _facts(plan: LoadPlan, table: str) -> Facts:
    """What the CREATE TABLE tells, for rows that are whole."""
    name = parsed_table(table)
    said = LoggedStatement(
        name.database, plan.created, parse_statement(plan.created, name.database)
    )
    effect = row_effect(said, name)
    facts = Facts()
    if effect is not None:
        facts = replace(facts.behind("t", asdict(effect), plan.position), was_emptied=False)
    return replace(facts, is_whole=not facts.doubt, described=plan.table)


def _join(options: SourceOptions, state: Path, end: SlavePosition) -> None:
    """Fold what the log has up to `end` over the rows. Raises `PipelineError`; `_Altered` if that is not all."""
    try:
        keep_state(options, state, until=end)
    except NonRowChange as error:
        raise _Altered(str(error)) from None


def _refuse_ddl(options: SourceOptions, plan: LoadPlan, end: SlavePosition) -> None:
    """Raises `_Altered` if the table was altered, renamed or made anew while it was read."""
    source = open_source(options)
    slices = source.slices(options.wanted.between(plan.begin, end), options.partition_bytes)
    ddl = [*placed_ddl((groups for part in slices for groups in part.read()), plan.begin)]
    stretches = lineage(_name(options), plan.begin, end, ddl)
    if stretches is None or len(stretches) > 1 or stretches[0].is_begun:
        raise _Altered(f"its DDL stands between '{plan.begin}' and '{end}'")
    for placed in ddl:
        effect = row_effect(placed.said, _name(options))
        if effect is not None and effect.op == "x":
            raise _Altered(f"{placed.gtid}: {effect.doubt}")


def _is_same(plan: LoadPlan, asked: AskedTable) -> bool:
    return _NUMBERED.sub("", plan.created) == _NUMBERED.sub("", asked.created)


def _require_same(plan: LoadPlan, asked: AskedTable) -> None:
    if not _is_same(plan, asked):
        raise _Altered("its CREATE TABLE is another one")


def select(plan: LoadPlan, table: TableMap, types: Sequence[SqlType], piece: KeyPiece) -> str:
    """The statement that asks for the rows of a piece."""
    expressions = [
        selected(column.name or "", type_)
        for column, type_ in zip(table.columns, types, strict=True)
    ]
    kinds = _kinds(plan, table)
    said = []
    if piece.after is not None:
        said.append(_beyond(kinds, piece.after, ">"))
    if piece.until is not None:
        said.append(_beyond(kinds, piece.until, "<", or_equal=True))
    where = f" WHERE {' AND '.join(said)}" if said else ""
    return f"SELECT {', '.join(expressions)} FROM {_from(plan, table)}{where}"


def _from(plan: LoadPlan, table: TableMap) -> str:
    versions = " FOR SYSTEM_TIME ALL" if plan.is_versioned else ""
    return f"{quoted(table.database)}.{quoted(table.table)}{versions}"


_Literal = Callable[[bytes], str]


def _kinds(plan: LoadPlan, table: TableMap) -> list[tuple[str, _Literal]]:
    """The names of the key in a statement, and how its values are written; none if that is not known for all."""
    by_name = {
        column.name: (column, SqlType.parse(text))
        for column, text in zip(table.columns, plan.types, strict=True)
    }
    found: list[tuple[str, _Literal]] = []
    for key in plan.keys:
        column, type_ = by_name[key]
        kind = column.layout.type
        if kind in _AS_NUMBERS:
            literal: _Literal = _plain
        elif kind in _AS_TEXTS:
            literal = _in_quotes
        elif kind in _STRINGS and (type_.is_text or type_.name in ("binary", "varbinary")):
            charset = charset_of(column.collation or BINARY_COLLATION) or "binary"
            literal = _Introduced(charset)
        else:
            return []
        found.append((quoted(key), literal))
    return found


def _plain(value: bytes) -> str:
    return value.decode("ascii")


def _in_quotes(value: bytes) -> str:
    return f"'{value.decode('ascii')}'"


@dataclass(frozen=True, slots=True)
class _Introduced:
    """Bytes of a character set; compared by the collation of the column that they are compared with."""

    charset: str

    def __call__(self, value: bytes) -> str:
        return f"_{self.charset} X'{value.hex()}'"


def _beyond(
    kinds: Sequence[tuple[str, _Literal]],
    bound: Sequence[str],
    sign: str,
    *,
    or_equal: bool = False,
) -> str:
    """The condition that a key is beyond a bound, in a form that servers read a key's range by."""
    pairs = [
        (name, literal(bytes.fromhex(value)))
        for (name, literal), value in zip(kinds, bound, strict=True)
    ]
    ways = []
    for number, (name, value) in enumerate(pairs):
        same = [f"{a} = {b}" for a, b in pairs[:number]]
        last = sign + "=" * (or_equal and number == len(pairs) - 1)
        ways.append(" AND ".join([*same, f"{name} {last} {value}"]))
    if len(ways) == 1:
        return ways[0]
    first, value = pairs[0]
    either = " OR ".join(f"({way})" for way in ways)
    return f"{first} {sign}= {value} AND ({either})"


def _bounds(link: ServerLink, plan: LoadPlan, piece_rows: int) -> Iterator[tuple[str, ...]]:
    """Keys that lie about so many rows apart; none where values of the key cannot be written in a statement."""
    table = plan.map
    kinds = _kinds(plan, table)
    if not kinds:
        return
    names = ", ".join(name for name, _ in kinds)
    where = ""
    while True:
        sql = f"SELECT {names} FROM {_from(plan, table)}{where} ORDER BY {names} LIMIT 1 OFFSET {piece_rows - 1}"
        found = [*link.rows(sql)]
        if not found or None in found[0]:
            return
        bound = tuple((value or b"").hex() for value in found[0])
        yield bound
        where = f" WHERE {_beyond(kinds, bound, '>')}"


def _batches(rows: Iterator[list[bytes | None]]) -> Iterator[list[list[bytes | None]]]:
    """Rows in bounded lists."""
    held: list[list[bytes | None]] = []
    size = 0
    for row in rows:
        held.append(row)
        size += sum(len(value) for value in row if value is not None)
        if size >= _BATCH_BYTES or len(held) >= _BATCH_ROWS:
            yield held
            held, size = [], 0
    if held:
        yield held


def _log_end(link: ServerLink) -> SlavePosition:
    return SlavePosition.parse(_value(link, "SELECT @@GLOBAL.gtid_binlog_pos"))


def _value(link: ServerLink, sql: str) -> Any:
    rows = link.query(sql)
    if not rows:
        raise ProtocolError(f"no answer to {sql}")
    return rows[0][0]


@contextmanager
def _opened(sink: str, target: Target, table: str) -> Iterator[KeptTable]:
    """The target, when nobody else writes to it."""
    with open_sink(sink, target, table, (), SlavePosition(), patience_s=PATIENCE_S) as kept:
        assert isinstance(kept, KeptTable)
        yield kept


def _as_kept(kept: KeptTable) -> Kept:
    return Kept(kept.position, 0, kept.is_complete, kept.doubt)


def _columns(plan: LoadPlan, options: SourceOptions) -> ResultColumns:
    table = Seed.read(options.schema_seed).applied(plan.map)
    return ResultColumns(table, plan.sql_types, column_options_of(options))


def _name(options: SourceOptions) -> TableName:
    return parsed_table(options.table)


def _furthest(a: SlavePosition, b: SlavePosition) -> SlavePosition:
    """The further one of each domain."""
    for gtid in b:
        there = a.get(gtid.domain_id)
        if there is None or there.seq_no < gtid.seq_no:
            a = a.with_gtid(gtid)
    return a


def _remove(staging: Path) -> None:
    """All that was staged, the plan first: without it the rest is nothing. The lock of the folder stays."""
    (staging / _PLAN).unlink(missing_ok=True)
    for part in ("rows", "state"):
        shutil.rmtree(staging / part, ignore_errors=True)
