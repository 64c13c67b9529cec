"""Files of Delta tables that others than the library have written: readers take them, and tables that ask for more."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import deltalake
import pyarrow as pa
import pytest
from binlog_pipeline.errors import SourceError, TargetChanged
from binlog_pipeline.tables import delta, delta_files, merging, sinks
from binlog_pipeline.tables.delta import DeltaState
from binlog_pipeline.tables.delta_files import DeltaFiles, asks_for_nothing, statistics, text_above
from binlog_pipeline.tables.lock import in_turns
from binlog_pipeline.tables.sinks import open_sink
from binlog_pipeline.tasks import HERE, InThisProcess, Workers
from binlog_protocol.gtid import Gtid, SlavePosition
from deltalake import CommitProperties, DeltaTable, QueryBuilder, TableFeatures

from tests.pipeline.tables.changes import SCHEMA, History, in_order
from tests.pipeline.tables.lake import rows_of

START = SlavePosition()
TABLE, KEYS = "shop.orders", ["id"]


class Executors(InThisProcess):
    """Workers that are not this process, as far as anybody asks."""

    def __init__(self, before: Callable[[], None] = lambda: None) -> None:
        self._before = before
        self.items = 0

    def map(self, task: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        self.items += len(items)
        for number, item in enumerate(items):
            done = task(item)
            self._before()
            yield number, done


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of a few rows are worth a job, and have many files, which are read in parts."""
    monkeypatch.setattr(merging, "_WORTH_SENDING", 0)
    monkeypatch.setattr(merging, "_SMALL_ROWS", 6)
    monkeypatch.setattr(DeltaFiles, "size", 600)
    monkeypatch.setattr(delta_files, "_PART_BYTES", 200)
    monkeypatch.setattr(delta_files, "_BATCH_ROWS", 3)
    monkeypatch.setattr(delta, "_NOT_SEEN", {})


def add(
    target: Path, changes: pa.Table, position: SlavePosition, workers: Workers | None = None
) -> None:
    with open_sink("delta", target, TABLE, KEYS, START, workers=workers or Executors()) as kept:
        assert isinstance(kept, DeltaState)
        kept.add(changes, position)


D: Final = Decimal
VALUES: Final[dict[str, tuple[pa.DataType, list[Any]]]] = {
    "tiny": (pa.int8(), [-128, 127, 0]),
    "long": (pa.int64(), [-(1 << 63), (1 << 63) - 1, (1 << 53) + 1]),
    "float": (pa.float32(), [0.1, -3.4e38, 1e-45]),
    "double": (pa.float64(), [0.1, -1.7976931348623157e308, 5e-324]),
    "zero": (pa.float64(), [0.0, -0.0]),
    "nan": (pa.float64(), [1.0, math.nan, 2.0]),
    "infinite": (pa.float64(), [-math.inf, 1.0, math.inf]),
    "decimal": (pa.decimal128(9, 2), [D("-9999999.99"), D("-0.01"), D("9999999.99")]),
    "wide": (
        pa.decimal128(38, 10),
        [D("-1234567890123456789012345678.0123456789"), D("1234567890123456789012345678.5")],
    ),
    "widest": (pa.decimal128(38, 0), [D("-9" * 1 + "9" * 37), D("9" * 38), D(7)]),
    "unsigned": (pa.decimal128(20, 0), [D(2**64 - 1), D(2**63 + 1), D(0)]),
    "negative": (pa.decimal128(30, 4), [D("-12345678901234567.8901"), D("-0.0001")]),
    "date": (pa.date32(), [date(1000, 1, 1), date(9999, 12, 31), date(1582, 10, 10)]),
    "time": (
        pa.timestamp("us"),
        [datetime(1000, 1, 1, 0, 0, 0, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)],
    ),
    "instant": (
        pa.timestamp("us", "UTC"),
        [datetime(1970, 1, 1, 0, 0, 1, 1, UTC), datetime(2106, 2, 7, 6, 28, 15, 999_999, UTC)],
    ),
    "text": (pa.string(), ["", "ä", "a\0b", 'q"\\', "z" * 32]),
    "texts": (pa.string(), ["a" * 100, "z" * 100, "m" * 31 + "é" * 9]),
    "last": (pa.string(), ["\U0010ffff" * 40, "x"]),
    "border": (pa.string(), ["x" * 31 + "\ud7ff" * 9, "a"]),
    "fine": (pa.decimal128(12, 8), [D("0.00000001"), D("-0.00000002"), D(5)]),
    "pair": (pa.struct([("d", pa.decimal128(30, 4))]), [{"d": D("-12345678901234567.8901")}]),
    "bytes": (pa.binary(), [b"", b"\xff" * 99]),
    "bool": (pa.bool_(), [True, False]),
    "list": (pa.list_(pa.string()), [["x", None], []]),
    "struct": (pa.struct([("a", pa.int32())]), [{"a": 1}, {"a": None}]),
    "a.b `c`": (pa.int32(), [5, 7]),
}
"""Columns by name: types and values. Each has NULL besides."""


def one_row(
    number: int, columns: pa.StructType, op: str = "c", before: Any = None, **values: Any
) -> pa.Table:
    """A group with one new row, or one that is another one now; or with a TRUNCATE."""
    schema = SCHEMA.set(5, pa.field("before", columns)).set(6, pa.field("after", columns))
    change = {
        "_op": op,
        "_gtid": {"domain": 0, "server": 1, "seq": number},
        "_order_key": number.to_bytes(24, "big"),
        "_key": None if op == "t" else {"id": number},
        "before": before,
        "after": None if op == "t" else {"id": number, **values},
    }
    return pa.Table.from_pylist([change], schema)


def at(seq: int) -> SlavePosition:
    return SlavePosition([Gtid(0, 1, seq)])


BY_THE_DRIVER: Final = ("decimal", "wide", "widest", "unsigned", "negative", "fine", "pair")
"""Which the library writes so that its own readers do not find them, but for the first."""


@pytest.mark.parametrize(
    ("name", "is_here"),
    [(name, False) for name in VALUES] + [(name, True) for name in BY_THE_DRIVER],
)
def test_readers_find_each_value(name: str, is_here: bool, tmp_path: Path) -> None:
    """By statistics, from the log and from a checkpoint; behind a change by the library's own MERGE as well."""
    type_, values = VALUES[name]
    columns = pa.struct([("id", pa.int64()), (name, type_), ("none", type_)])
    add(tmp_path, one_row(1, columns), at(1))
    all_of_them = [None, *values, None]
    batch = [one_row(n, columns, **{name: v}) for n, v in enumerate(all_of_them, 2)]
    executors = Executors()
    workers = HERE if is_here else executors
    add(tmp_path, pa.concat_tables(batch), at(len(batch) + 1), workers)
    assert bool(executors.items) != is_here
    for step in ("log", "checkpoint", "library"):
        if step == "checkpoint":
            DeltaTable(tmp_path).create_checkpoint()
        if step == "library":
            add(tmp_path, one_row(99, columns), at(99), HERE)
        table = DeltaTable(tmp_path)
        rows = rows_of("delta", tmp_path).sort_by("id")
        found = rows.column(name).to_pylist()[1 : len(batch) + 1]
        assert repr(found) == repr(pa.array(all_of_them, type_).to_pylist()), step
        is_found_by_filters(table, name, values, nulls=rows.column(name).null_count)
        is_found_by_filters(table, "none", [], nulls=len(rows))
        bounds = bounds_of(table, name)
        if bounds and not isinstance(values[0], dict):
            have = [value for value in rows.column(name).to_pylist() if value is not None]
            assert min(least for least, _ in bounds) <= min(have)
            assert max(most for _, most in bounds) >= max(have)


def bounds_of(table: DeltaTable, name: str) -> list[tuple[Any, Any]]:
    """The bounds of each file that has values; none if a file has not said any."""
    found = []
    for row in pa.table(table.get_add_actions()).to_pylist():
        assert row["num_records"]
        if (row["null_count"] or {}).get(name) == row["num_records"]:
            continue
        least, most = ((row[one] or {}).get(name) for one in ("min", "max"))
        if least is None or most is None:
            return []
        found.append((least, most))
    return found


def is_found_by_filters(table: DeltaTable, name: str, values: Sequence[Any], *, nulls: int) -> None:
    """By pyarrow, whose fragments have the bounds as expressions, and by the library's engine."""
    import pyarrow.dataset as ds

    data = table.to_pyarrow_dataset()
    type_ = data.schema.field(name).type
    engine = QueryBuilder().register("t", table)
    quoted = '"' + name.replace('"', '""') + '"'
    for value in values:
        if isinstance(value, (list, dict)) or (isinstance(value, float) and math.isnan(value)):
            continue
        wanted = ds.field(name) == pa.scalar(value, type_)
        assert data.count_rows(filter=wanted) >= 1, value
        for sign in (">=", "<="):
            made = {">=": ds.field(name) >= pa.scalar(value, type_)}
            made["<="] = ds.field(name) <= pa.scalar(value, type_)
            assert data.count_rows(filter=made[sign]) >= 1
    assert data.count_rows(filter=ds.field(name).is_null()) == nulls
    found = pa.table(engine.execute(f"SELECT COUNT(*) AS n FROM t WHERE {quoted} IS NULL"))
    assert found.to_pylist() == [{"n": nulls}]
    for text in literals(values):
        sql = f"SELECT COUNT(*) AS n FROM t WHERE {quoted} = {text}"
        assert pa.table(engine.execute(sql)).to_pylist()[0]["n"] >= 1, sql


def literals(values: Sequence[Any]) -> Iterator[str]:
    """Those that SQL has in the same words everywhere."""
    for value in values:
        if isinstance(value, str):
            yield "'" + value.replace("'", "''") + "'"
        elif isinstance(value, int) and not isinstance(value, bool) and value > -(1 << 63):
            yield str(value)
        elif isinstance(value, Decimal):
            whole, _, part = f"{value:f}".partition(".")
            digits = len(whole.lstrip("-")) + len(part)
            yield f"CAST('{value:f}' AS DECIMAL({digits},{len(part)}))"
        elif isinstance(value, datetime):
            zone = "None" if value.tzinfo is None else 'Some("UTC")'
            yield f"arrow_cast('{value.isoformat()}', 'Timestamp(Microsecond, {zone})')"
        elif isinstance(value, date):
            yield f"DATE '{value.isoformat()}'"


WIDE: Final = pa.struct([("id", pa.int64()), ("v", pa.decimal128(30, 4))])


def test_a_table_that_the_library_would_not_write_right_is_begun_and_emptied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between its files and its commits as well; and where its columns need a feature that it has not."""
    value = D("12345678901234567.8901")
    columns = pa.struct([*WIDE, ("t", pa.timestamp("us"))])
    steps = [
        [one_row(1, WIDE, v=value)],
        [one_row(2, WIDE, op="t"), one_row(3, WIDE, v=-value)],
        [one_row(4, columns, op="t"), one_row(5, columns, v=value, t=datetime(2020, 1, 1))],
        [one_row(6, columns, op="t"), one_row(7, columns, v=value)],
    ]
    made, changed = "create_table_with_add_actions", "create_write_transaction"
    places = {made: deltalake.transaction, changed: DeltaTable, "write_deltalake": deltalake}
    commits = [made, changed, "write_deltalake", changed]
    done: list[str] = []
    for name, place in places.items():
        monkeypatch.setattr(place, name, counted(done, name, getattr(place, name)))
    for number, (changes, commit) in enumerate(zip(steps, commits, strict=True)):
        batch, position = pa.concat_tables(changes), at(2 * number + 1)
        before = rows_of("delta", tmp_path).to_pylist() if number else []
        with monkeypatch.context() as killing:
            killing.setattr(places[commit], commit, kill)
            with pytest.raises(Killed):
                add(tmp_path, batch, position)
        assert not number or rows_of("delta", tmp_path).to_pylist() == before
        add(tmp_path, batch, position)
        wanted = changes[-1].to_pylist()[0]["after"]
        assert rows_of("delta", tmp_path).to_pylist() == [wanted]
    assert done == commits


def test_a_version_of_which_the_log_has_only_a_checkpoint(tmp_path: Path) -> None:
    """Its number in the log is what tells executors that they see the table. This process has it."""
    add(tmp_path, one_row(1, WIDE, v=D("12345678901234567.8901")), at(1))
    table = DeltaTable(tmp_path)
    table.create_checkpoint()
    (log,) = (tmp_path / "_delta_log").glob("*.json")
    said = log.read_text()
    log.unlink()
    assert DeltaFiles.of(table, str(tmp_path), pa.schema(table.schema().to_arrow())).unseen()
    log.write_text(said)  # which has the position
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(DeltaFiles, "unseen", lambda _: "gone")
        add(tmp_path, one_row(2, WIDE, v=D(5)), at(2), HERE)
    assert [row["id"] for row in in_order(rows_of("delta", tmp_path))] == [1, 2]


HIDDEN: Final = [D("12345678901234567.8901"), D("-0.0001"), D("99999999999999999999.9999")]
"""Values that readers do not find in a file with the library's bounds."""


@pytest.mark.parametrize("workers", [HERE, Executors()])
def test_files_that_others_have_put_there_are_written_anew(
    workers: Workers, tmp_path: Path
) -> None:
    """As OPTIMIZE does: its bounds hide rows until the next batch, of whatever key, and no longer."""
    for number, value in enumerate(HIDDEN, 1):
        add(tmp_path, one_row(number, WIDE, v=value), at(number))
    DeltaTable(tmp_path).optimize.compact()
    with pytest.raises(AssertionError):
        is_found_by_filters(DeltaTable(tmp_path), "v", HIDDEN, nulls=0)
    add(tmp_path, one_row(9, WIDE), at(9), workers)
    table = DeltaTable(tmp_path)
    is_found_by_filters(table, "v", HIDDEN, nulls=1)
    files = {*table.file_uris()}
    assert all(delta_files._OURS.fullmatch(Path(file).name) for file in files)
    add(tmp_path, one_row(10, WIDE), at(10), workers)
    assert len(files & {*DeltaTable(tmp_path).file_uris()}) >= len(files) - 1
    assert [row["v"] for row in in_order(rows_of("delta", tmp_path))] == [*HIDDEN, None, None]


@pytest.mark.parametrize("workers", [HERE, Executors()])
def test_a_new_column_that_the_library_would_not_write_right(
    workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes by a commit of its own, at the position of before: killed behind it, the next run makes the batch."""
    import pyarrow.dataset as ds

    narrow = pa.struct([("id", pa.int64())])
    more = pa.struct([*WIDE, ("w", pa.decimal128(20, 0)), ("text", pa.string())])
    add(tmp_path, one_row(1, narrow), at(1))
    with monkeypatch.context() as killing:
        killing.setattr(DeltaTable, "create_write_transaction", kill)
        with pytest.raises(Killed):
            add(tmp_path, one_row(2, WIDE, v=HIDDEN[0]), at(2), workers)
    assert rows_of("delta", tmp_path).to_pylist() == [{"id": 1, "v": None}]
    assert delta.delta_position(tmp_path) == at(1)
    for number, value in enumerate(HIDDEN, 2):
        add(tmp_path, one_row(number, WIDE, v=value), at(number), workers)
        is_found_by_filters(DeltaTable(tmp_path), "v", HIDDEN[: number - 1], nulls=1)
    add(tmp_path, one_row(9, more, v=D(1), w=D(2**64 - 1), text="x"), at(9), workers)
    add(tmp_path, one_row(10, more, w=D(2**63 + 1)), at(10), workers)
    data = DeltaTable(tmp_path).to_pyarrow_dataset()
    for value in (D(2**64 - 1), D(2**63 + 1)):
        assert data.count_rows(filter=ds.field("w") == pa.scalar(value, pa.decimal128(20, 0))) == 1
    # Files from before the column are said to have no NULL by the library's reader of pyarrow (1.6.6), of any table.
    assert in_order(rows_of("delta", tmp_path))[-2]["text"] == "x"


class Killed(BaseException):
    """As kill -9: no handler of an ordinary error runs."""


def kill(*_: Any, **__: Any) -> None:
    raise Killed


def counted(found: list[str], name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        found.append(name)
        return real(*arguments, **named)

    return call


def test_statistics_as_the_log_has_them() -> None:
    rows = pa.table({name: pa.array([*v, None], t) for name, (t, v) in just("decimal", "time")})
    assert json.loads(statistics(rows.slice(0, 2))) == {
        "numRecords": 2,
        "minValues": {"decimal": -9999999.99, "time": "1000-01-01T00:00:00.000001"},
        "maxValues": {"decimal": -0.01, "time": "9999-12-31T23:59:59.999999"},
        "nullCount": {"decimal": 0, "time": 0},
    }
    wide = pa.table({"v": pa.array(VALUES["wide"][1], pa.decimal128(38, 10))})
    assert '"minValues":{"v":-1234567890123460000000000000}' in statistics(wide)
    assert '"maxValues":{"v":1234567890123460000000000000}' in statistics(wide)
    widest = pa.table({"v": pa.array(VALUES["widest"][1], pa.decimal128(38, 0))})
    assert f'"minValues":{{"v":-{"9" * 38}}},"maxValues":{{"v":{"9" * 38}}}' in statistics(widest)
    for name in ("nan", "infinite"):
        two = pa.table({"id": [1, 2, 3], "v": pa.array(VALUES[name][1], pa.float64())})
        assert json.loads(statistics(two)) == {"numRecords": 3, "nullCount": {"id": 0, "v": 0}}
    assert json.loads(statistics(pa.table({"v": [b"x", None]}))) == {
        "numRecords": 2, "minValues": {}, "maxValues": {}, "nullCount": {"v": 1},
    }  # fmt: skip
    assert '"minValues":{"v":-0.0},"maxValues":{"v":0.0}' in statistics(
        pa.table({"v": [0.0, -0.0]})
    )
    nested = pa.table({"s": [{"a": 1, "b": "x", "c": None}, None], "l": [[1], []], "v": [3, 4]})
    said = json.loads(statistics(nested))
    assert said["minValues"] == {"s": {"a": 1, "b": "x"}, "v": 3}
    assert said["nullCount"] == {"s": {"a": 1, "b": 1, "c": 2}, "v": 0}
    assert statistics(nested, -1) == statistics(nested, 4) == statistics(nested)
    assert json.loads(statistics(nested, 1))["maxValues"] == {"s": {"a": 1}}
    assert json.loads(statistics(nested, 0))["maxValues"] == {}


def just(*names: str) -> list[tuple[str, tuple[pa.DataType, list[Any]]]]:
    return [(name, (VALUES[name][0], VALUES[name][1][:2])) for name in names]


def test_a_text_that_stands_above(rng: random.Random) -> None:
    """As UTF-8 is ordered, which is as its characters are."""
    ends = ["a", "\x7f", "é", "\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0010ffff"]
    for _ in range(2000):
        text = "".join(rng.choices(ends, k=rng.randint(0, 40)))
        above = text_above(text)
        assert len(above) <= 32 or text.startswith("\U0010ffff" * 32)
        assert above.encode() >= text.encode()
    assert text_above("a" * 31 + "\ud7ff" + "a") == "a" * 31 + "\ue000"
    assert text_above("b" + "\U0010ffff" * 40) == "c"


def constrain(table: DeltaTable) -> None:
    table.alter.add_constraint({"is_small": "id <= 101"})


def set_property(name: str, value: str) -> Callable[[DeltaTable], None]:
    def change(table: DeltaTable) -> None:
        table.alter.set_table_properties({name: value})

    return change


def add_feature(feature: TableFeatures) -> Callable[[DeltaTable], None]:
    def change(table: DeltaTable) -> None:
        table.alter.add_feature(feature, allow_protocol_versions_increase=True)

    return change


def column_metadata(table: DeltaTable) -> None:
    table.alter.set_column_metadata("name", {"__CHAR_VARCHAR_TYPE_STRING": "varchar(10)"})


ASKING: Final[dict[str, Callable[[DeltaTable], None]]] = {
    "constraint": constrain,
    "append only": set_property("delta.appendOnly", "true"),
    "change data": set_property("delta.enableChangeDataFeed", "true"),
    "unknown property": set_property("delta.dataSkippingStatsColumns", "id"),
    "deletion vectors": add_feature(TableFeatures.DeletionVectors),
    "row tracking": add_feature(TableFeatures.RowTracking),
    "column mapping": add_feature(TableFeatures.ColumnMapping),
    "domain metadata": add_feature(TableFeatures.DomainMetadata),
    "lengths of texts": column_metadata,
}


REFUSED: Final = {
    "constraint": "failed validation check",
    "append only": "append-only",
    "row tracking": "Unsupported table features",
    "domain metadata": "Unsupported table features",
}
"""By the library, too."""


@pytest.mark.parametrize("name", ASKING)
def test_a_table_that_asks_for_more_is_left_to_the_library(
    name: str, tmp_path: Path, rng: random.Random
) -> None:
    """The driver does what it did, whatever comes of that."""
    history = History(rng)
    add(tmp_path, history.batch(20), history.position)
    assert asks_for_nothing(DeltaTable(tmp_path))
    ASKING[name](DeltaTable(tmp_path))
    assert not asks_for_nothing(DeltaTable(tmp_path))
    executors = Executors()
    is_read = name not in ("deletion vectors", "column mapping")  # by deltalake's pyarrow
    before = in_order(rows_of("delta", tmp_path)) if is_read else []
    batch = history.batch(60)
    wanted = history.table()
    if name in REFUSED:
        with pytest.raises(SourceError, match=REFUSED[name]) as refused:
            add(tmp_path, batch, history.position, executors)
        assert not isinstance(refused.value, TargetChanged)  # it would be so again and again
        wanted = before
    else:
        add(tmp_path, batch, history.position, executors)
    assert not is_read or in_order(rows_of("delta", tmp_path)) == wanted
    assert not executors.items


def test_columns_and_partitions_of_others(tmp_path: Path) -> None:
    plain = pa.schema([("id", pa.int64()), ("p", pa.string())])
    made = {
        "plain": DeltaTable.create(tmp_path / "plain", plain),
        "partitions": DeltaTable.create(tmp_path / "p", plain, partition_by=["p"]),
        "not null": DeltaTable.create(
            tmp_path / "n", plain.set(0, pa.field("id", pa.int64(), nullable=False))
        ),
        "in a list": DeltaTable.create(
            tmp_path / "l",
            plain.append(pa.field("l", pa.list_(pa.field("element", pa.int32(), nullable=False)))),
        ),
        "map": DeltaTable.create(
            tmp_path / "m", plain.append(pa.field("m", pa.map_(pa.string(), pa.string())))
        ),
    }
    assert {name: asks_for_nothing(table) for name, table in made.items()} == {
        name: name == "plain" for name in made
    }


def test_a_new_column_is_made_by_the_library(tmp_path: Path) -> None:
    """A commit of files would have one that the table does not have."""
    two = pa.struct([("id", pa.int64()), ("a", pa.int32())])
    three = pa.struct([*two, ("b", pa.string())])
    add(tmp_path, one_row(1, two, a=1), at(1))
    for number, wanted in ((2, 0), (3, 1)):
        executors = Executors()
        add(tmp_path, one_row(number, three, a=number, b="x"), at(number), executors)
        assert executors.items >= wanted
        assert bool(executors.items) == bool(wanted)
    assert in_order(rows_of("delta", tmp_path)) == [
        {"id": 1, "a": 1, "b": None}, {"id": 2, "a": 2, "b": "x"}, {"id": 3, "a": 3, "b": "x"},
    ]  # fmt: skip


@pytest.mark.parametrize("indexed", ["0", "1", "-1"])
def test_files_without_statistics(indexed: str, tmp_path: Path, rng: random.Random) -> None:
    """Theirs have none, as the table says, or none of the key: all of them are looked at."""
    history = History(rng)
    add(tmp_path, history.batch(20), history.position)
    set_property("delta.dataSkippingNumIndexedCols", indexed)(DeltaTable(tmp_path))
    for number in range(8):
        workers = HERE if number % 2 else Executors()
        add(tmp_path, history.batch(20), history.position, workers)
        assert in_order(rows_of("delta", tmp_path)) == history.table()
    actions = pa.table(DeltaTable(tmp_path).get_add_actions(flatten=True))
    names = {name for name in actions.schema.names if name.startswith("null_count.")}
    assert names >= {"0": set(), "1": {"null_count.id"}}.get(indexed, {"null_count.amount"})


def test_maintenance_by_the_library(tmp_path: Path, rng: random.Random) -> None:
    """It joins files, takes out those that are gone, and tells what was done; the library's MERGE goes on, and ours."""
    history = History(rng)
    executors = Executors()
    add(tmp_path, history.batch(30), history.position)
    for number in range(12):
        workers = HERE if number % 4 == 3 else executors
        add(tmp_path, history.batch(10), history.position, workers)
        table = DeltaTable(tmp_path)
        match number:
            case 2 | 8:
                table.optimize.compact()
                assert len(table.file_uris()) == 1
            case 4:
                table.create_checkpoint()
            case 5 | 9:
                gone = table.vacuum(0, dry_run=False, enforce_retention_duration=False)
                assert gone
                files = {path.name for path in tmp_path.glob("*.parquet")}
                assert files == {uri.rsplit("/", 1)[1] for uri in table.file_uris()}
            case 10:
                table.optimize.z_order(["name"])
        assert in_order(rows_of("delta", tmp_path)) == history.table(), number
    assert executors.items
    told = DeltaTable(tmp_path).history()
    ours = [one for one in told if one["operation"] == "WRITE" and "binlog.position" in one]
    assert ours
    assert {one.get("isBlindAppend") for one in ours[:-1]} == {False}
    assert {one["operation"] for one in told} >= {"WRITE", "MERGE", "OPTIMIZE"}


def test_another_writer_is_faster_than_the_executors(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they have written is of a table that is no more: it is in no commit. And begun anew, it is right."""
    monkeypatch.setattr(sinks, "is_local", lambda _: False)
    history = History(rng)
    for _ in range(2):
        add(tmp_path, history.batch(20), history.position)
    batch = history.batch(20)
    others = iter((1,))

    def compact() -> None:
        for _ in others:
            table = DeltaTable(tmp_path)
            table.optimize.compact(commit_properties=CommitProperties())
            table.vacuum(0, dry_run=False, enforce_retention_duration=False)

    with pytest.raises(TargetChanged, match="by somebody else meanwhile"):
        add(tmp_path, batch, history.position, Executors(compact))
    others = iter((1,))
    in_turns(lambda: add(tmp_path, batch, history.position, Executors(compact)))
    assert in_order(rows_of("delta", tmp_path)) == history.table()


def test_executors_that_do_not_see_the_table(
    tmp_path: Path,
    rng: random.Random,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The driver writes, and says why, once."""
    history = History(rng)
    add(tmp_path, history.batch(20), history.position)
    real = DeltaFiles.unseen
    executors = Executors()

    def elsewhere(files: DeltaFiles) -> str:
        there = DeltaFiles(f"{files.where}.not", *(getattr(files, n) for n in REST))
        return real(there)

    def add_three() -> None:
        for _ in range(3):
            add(tmp_path, history.batch(20), history.position, executors)
            assert in_order(rows_of("delta", tmp_path)) == history.table()

    monkeypatch.setattr(DeltaFiles, "unseen", elsewhere)
    with pytest.warns(UserWarning, match=r"orders are read and written by the driver"):
        add_three()
    said = [one for one in caplog.messages if "is not there where Spark's executors run" in one]
    assert len(said) == 1
    assert not Path(f"{tmp_path}.not").exists()


REST: Final = ("version", "schema", "indexed", "size_bytes", "options")


def test_executors_are_asked_again(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that fails once for them does not leave a table to the driver for ever."""
    history, executors = History(rng), Executors()
    add(tmp_path, history.batch(20), history.position)
    now, asked = 0.0, 0
    real = DeltaFiles.unseen

    def failing(files: DeltaFiles) -> str:
        nonlocal asked
        asked += 1
        return "out of order"

    def batch(later_s: float) -> bool:
        """Whether executors were asked in the next one."""
        nonlocal now
        now += later_s
        before = executors.items
        add(tmp_path, history.batch(20), history.position, executors)
        assert in_order(rows_of("delta", tmp_path)) == history.table()
        return executors.items > before

    monkeypatch.setattr(delta, "time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(DeltaFiles, "unseen", failing)
    with pytest.warns(UserWarning, match="out of order") as said:
        found = [batch(later_s) for later_s in (0, 59, 1, 119, 1, 239)]
    assert found == [True, False, True, False, True, False]
    assert len(said) == 1
    monkeypatch.setattr(DeltaFiles, "unseen", real)
    assert [batch(later_s) for later_s in (1, 0, 0)] == [True] * 3
    for _ in range(9):
        delta._note_unseen("there")
    assert delta._NOT_SEEN["there"] == (now + 3600, 3600)


def test_only_files_with_keys_that_changed_are_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And small ones are joined when there are many."""
    columns = pa.struct([("id", pa.int64()), ("a", pa.int32())])
    monkeypatch.setattr(DeltaFiles, "size", 1 << 20)
    for number in range(1, 5):
        add(tmp_path, one_row(number, columns, a=number), at(number))
    before = {*DeltaTable(tmp_path).file_uris()}
    assert len(before) == 4
    change = one_row(5, columns).to_pylist()[0]
    change |= {"_op": "d", "after": None, "before": {"id": 2}, "_key": {"id": 2}}
    schema = one_row(5, columns).schema
    add(tmp_path, pa.Table.from_pylist([change], schema), at(5))
    behind = {*DeltaTable(tmp_path).file_uris()}
    assert len(before & behind) == 3 == len(behind)
    monkeypatch.setattr(merging, "_SMALL_FILES", 2)
    add(tmp_path, one_row(6, columns, a=6), at(6))
    assert len(DeltaTable(tmp_path).file_uris()) == 1
    assert [row["id"] for row in in_order(rows_of("delta", tmp_path))] == [1, 3, 4, 6]


@pytest.mark.parametrize("is_ours", [False, True])
@pytest.mark.parametrize("digits", [(20, 0), (38, 0), (38, 10), (10, 2)])
def test_keys_that_are_decimal(
    is_ours: bool, digits: tuple[int, int], tmp_path: Path, rng: random.Random
) -> None:
    """Bounds of the library's files are other numbers than their values, and for the largest no bounds at all."""
    precision, scale = digits
    type_ = pa.decimal128(precision, scale)
    columns = pa.struct([("id", type_), ("n", pa.int64())])
    most = min(10**precision - 1, (1 << 64) - 1 if not scale else 10**precision)
    known: dict[Decimal, int] = {}
    for seq in range(1, 15):
        batch = []
        for _ in range(rng.randint(1, 4)):
            near = rng.choice([most, most // 2, 1 << 53, 10 ** (precision // 2), 0])
            unscaled = min(max(near + rng.randint(-3, 3), 0), most)
            value = Decimal(unscaled).scaleb(-scale, Context(prec=40))
            op = "u" if value in known else "c"
            known[value] = seq
            before = {"id": value, "n": 0} if op == "u" else None
            batch.append(one_row(seq, columns, id=value, n=seq, op=op, before=before))
        workers = Executors() if is_ours or seq % 2 else HERE
        add(tmp_path, pa.concat_tables(batch), at(seq), workers)
        found = {row["id"]: row["n"] for row in rows_of("delta", tmp_path).to_pylist()}
        assert (found, len(rows_of("delta", tmp_path))) == (known, len(known)), seq


def test_a_key_beyond_the_bounds_that_the_library_gives(tmp_path: Path) -> None:
    """Of BIGINT UNSIGNED from 2^63 on: all of them are 2^63 - 1 in its statistics."""
    columns = pa.struct([("id", pa.decimal128(20, 0)), ("n", pa.int64())])
    keys = [Decimal((1 << 64) - 1), Decimal((1 << 63) + 5)]
    add(tmp_path, pa.concat_tables([one_row(1, columns, id=key, n=1) for key in keys]), at(1))
    for seq, key in enumerate(keys, 2):
        change = one_row(seq, columns, op="u", before={"id": key, "n": 1}, id=key, n=seq)
        executors = Executors()
        add(tmp_path, change, at(seq), executors)
        assert executors.items
    found = [(row["id"], row["n"]) for row in in_order(rows_of("delta", tmp_path))]
    assert found == [(keys[1], 3), (keys[0], 2)]


def test_files_of_spark(tmp_path: Path, rng: random.Random) -> None:
    """Times as INT96, which pyarrow has in nanoseconds, if it is not told otherwise; columns in another order."""
    import pyarrow.parquet as pq
    from deltalake.transaction import AddAction, RemoveAction

    columns = pa.struct([("id", pa.int64()), ("t", pa.timestamp("us", "UTC"))])
    first = datetime(1000, 1, 1, tzinfo=UTC)
    last = datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)
    add(
        tmp_path,
        pa.concat_tables([one_row(n, columns, t=t) for n, t in ((1, first), (2, last))]),
        at(2),
    )
    table = DeltaTable(tmp_path)
    rows = rows_of("delta", tmp_path).select(["t", "id"])
    pq.write_table(rows, tmp_path / "other.parquet", use_deprecated_int96_timestamps=True)
    (old,) = (uri.rsplit("/", 1)[1] for uri in table.file_uris())
    size = (tmp_path / "other.parquet").stat().st_size
    table.create_write_transaction(
        [AddAction("other.parquet", size, {}, 1, True, "{}"), RemoveAction(old, True, 1)],
        "append",
        table.schema(),
    )
    executors = Executors()
    add(
        tmp_path,
        pa.concat_tables([one_row(3, columns, id=1, t=last), one_row(3, columns)]),
        at(3),
        executors,
    )
    assert executors.items
    assert rows_of("delta", tmp_path).sort_by("id").column("t").to_pylist() == [last, last, None]
