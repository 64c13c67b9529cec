"""Groups as the change messages of Debezium's connector for MariaDB, by its documentation: JSON without schemas.

    topic                   key                 value
    PREFIX.database.table   the primary key     before, after, op (c, u, d), source, transaction, ts_ms
    PREFIX.database.table   of a deleted row    null: a tombstone, behind the message of the DELETE
    PREFIX                  the database        a statement that changes definitions there: ddl, databaseName, source
    PREFIX.transaction      the GTID            status BEGIN or END; END counts the messages of each table

A row whose primary key changes is deleted, and created under the new one. Messages have the GTID of their group in the
header `gtid`. Changes of a prepared XA transaction come when it is committed; until then they are held in memory.

Columns need names: binlog_row_metadata=FULL. What is no row change and no definition, a statement that changes rows
and is logged as text, ends the stream, unless it is told to go on without.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import ProtocolError
from binlog_protocol.event_text.choice import Choice
from binlog_protocol.event_text.column_rules import Change, ColumnRules
from binlog_protocol.event_text.debezium_values import (
    UNAVAILABLE,
    DecimalHandling,
    Invalid,
    debezium_value,
)
from binlog_protocol.event_text.literals import UTF8, shown_text
from binlog_protocol.event_text.table_maps import TableMaps, UnreadableMap
from binlog_protocol.events.compressed import uncompressed
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.gtid import GtidEvent, GtidExtraFlags, GtidFlags, XaId
from binlog_protocol.events.header import TYPE_OFFSET, EventHeader
from binlog_protocol.events.load_data import ExecuteLoadQuery
from binlog_protocol.events.query import QueryEvent
from binlog_protocol.events.rows import ROWS_TYPES, Absent, Image, RowChange, RowsEvent
from binlog_protocol.events.status_variables import StatusVariables
from binlog_protocol.events.table_map import TableColumn, TableMap
from binlog_protocol.gtid import Gtid
from binlog_protocol.sql.statements import StatementMeaning, parse_statement, written_tables

Object = dict[str, Any]

CONNECTOR: Final = "mariadb"
PREPARED_BYTES_MAX: Final = 256 << 20
"""Bytes of messages of prepared XA transactions, all together, that are held."""

_NO_BACKSLASH_ESCAPES: Final = 1 << 20
_DEFINITIONS: Final = frozenset(("create", "alter", "drop", "rename", "truncate"))
_NOT_DONE: Final = GtidExtraFlags.START_ALTER | GtidExtraFlags.ROLLBACK_ALTER
_NOT_OF_TOPICS: Final = compiled_later(r"[^a-zA-Z0-9._-]")
_XA_COMMIT: Final = b"XA COMMIT"


class Message(NamedTuple):
    """One message; without a value it is a tombstone, and without a key its table has no primary key."""

    topic: str
    key: Object | None
    value: Object | None
    headers: dict[str, str]


@dataclass(frozen=True, slots=True)
class DebeziumOptions:
    """What messages look like.

    prefix: Debezium's `topic.prefix`.
    decimals, invalid: see `debezium_values`.
    transactions: messages for the beginning and the end of each transaction (`provide.transaction.metadata`).
    tombstones: a message without a value behind each DELETE (`tombstones.on.delete`).
    skip_statements: go on without statements that change rows and are logged as text.
    """

    prefix: str = "binlog"
    columns: ColumnRules = ColumnRules()
    decimals: DecimalHandling = DecimalHandling.STRING
    invalid: Invalid = Invalid.FAIL
    transactions: bool = False
    tombstones: bool = True
    skip_statements: bool = False


class _Column(NamedTuple):
    number: int
    name: str
    column: TableColumn
    change: Change | None


class _Table(NamedTuple):
    """A table as its messages need it. `key`: numbers of the columns of the primary key."""

    map: TableMap
    topic: str
    columns: tuple[_Column, ...]
    key: tuple[_Column, ...]


class DebeziumForm:
    """Turns groups into messages. One owner.

    Args:
        clock: what tells the time, in seconds since 1970.
    """

    def __init__(
        self, choice: Choice, options: DebeziumOptions, clock: Callable[[], float], version: str
    ) -> None:
        self._choice = choice
        self._options = options
        self._clock = clock
        self._version = version
        self._table_maps = TableMaps()
        self._known: dict[TableMap, _Table] = {}
        self._prepared: dict[XaId, list[Message]] = {}
        self._prepared_bytes = 0

    @property
    def has_prepared(self) -> bool:
        """Whether changes of prepared XA transactions are held: their groups are needed again by who begins anew."""
        return bool(self._prepared)

    def knows(self, xa_id: XaId) -> bool:
        """Whether it is prepared, and its changes are held."""
        return xa_id in self._prepared

    def group(self, events: Iterable[bytes], file: str = "", offset: int = 0) -> Iterator[Message]:
        """The messages of one group, which lies there. Raises `ProtocolError` for what has none."""
        group = _Group(self, file, offset)
        try:
            yield from group.messages(events)
        except ProtocolError as error:
            where = "" if group.gtid is None else f"{group.gtid.gtid}: "
            raise ProtocolError(f"{where}{error}") from None

    def _hold(self, xa_id: XaId, messages: list[Message]) -> None:
        self._prepared[xa_id] = messages
        self._prepared_bytes += _size(messages)
        if self._prepared_bytes > PREPARED_BYTES_MAX:
            raise ProtocolError(
                f"the changes of {len(self._prepared)} prepared XA transactions have more than {PREPARED_BYTES_MAX} "
                "bytes, which is what is held: commit or roll back some, and begin again in front of them"
            )

    def _settle(self, xa_id: XaId) -> list[Message]:
        """Let go of a prepared transaction. Raises `ProtocolError` for one that is not known here."""
        messages = self._prepared.pop(xa_id, None)
        if messages is None:
            raise ProtocolError(
                f"XA COMMIT {xa_id.sql}: it was prepared in front of where this began; "
                "begin in front of its XA PREPARE, or go on without its changes by --skip-statements"
            )
        self._prepared_bytes -= _size(messages)
        return messages

    def _table(self, map_: TableMap) -> _Table:
        table = self._known.get(map_)
        if table is None:
            if len(self._known) >= 256:
                self._known.clear()
            table = self._known[map_] = self._described(map_)
        return table

    def _described(self, map_: TableMap) -> _Table:
        name = f"{map_.database}.{map_.table}"
        rules = self._options.columns
        columns = []
        for number, column in enumerate(map_.columns):
            if column.name is None:
                raise ProtocolError(
                    f"the log does not name the columns of {name}: SET GLOBAL binlog_row_metadata=FULL at the server, "
                    "and begin behind that"
                )
            full = f"{name}.{column.name}"
            columns.append(_Column(number, column.name, column, rules.change(full)))
        shown = tuple(c for c in columns if not rules.leaves_out(f"{name}.{c.name}"))
        key = tuple(columns[part.column] for part in map_.primary_key or ())
        return _Table(map_, topic_name(f"{self._options.prefix}.{name}"), shown, key)


class _Group:
    """One group on its way to messages."""

    def __init__(self, form: DebeziumForm, file: str, offset: int) -> None:
        self.gtid: GtidEvent | None = None
        self._form = form
        self._options = form._options
        self._maps: dict[int, TableMap | UnreadableMap] = {}
        self._file = file
        self._offset = offset
        self._counts: Counter[str] = Counter()
        self._has_begun = False

    def messages(self, events: Iterable[bytes]) -> Iterator[Message]:
        held: list[Message] = []
        is_prepared = False
        for stored in events:
            type_ = stored[TYPE_OFFSET]
            if type_ == EventType.GTID:
                self.gtid = GtidEvent.parse(stored)
                is_prepared = bool(self.gtid.flags2 & GtidFlags.PREPARED_XA)
                continue
            if self._form._choice.leaves_out(stored, self._maps):
                continue
            found = self._event(uncompressed(stored))
            if is_prepared:
                held += found
            else:
                for message in found:
                    yield from self._in_transaction(message)
        if is_prepared:
            assert self.gtid is not None
            assert self.gtid.xa_id is not None
            self._form._hold(self.gtid.xa_id, held)
        elif self._has_begun and self._options.transactions:
            yield self._boundary("END")

    def _event(self, event: bytes) -> Iterator[Message]:
        type_ = event[TYPE_OFFSET]
        if type_ == EventType.TABLE_MAP:
            map_ = self._form._table_maps.parse(event)
            if self._form._choice.has_table(map_):
                self._maps[map_.table_id] = map_
        elif type_ in ROWS_TYPES:
            yield from self._rows(event)
        elif type_ == EventType.QUERY:
            yield from self._query(event)
        elif type_ == EventType.EXECUTE_LOAD_QUERY:
            self._refuse(ExecuteLoadQuery.parse(event).query)

    def _in_transaction(self, message: Message) -> Iterator[Message]:
        """The message with its place in the transaction, behind that of the transaction's beginning."""
        value = message.value
        if value is None or "op" not in value:
            yield message
            return
        if not self._has_begun:
            self._has_begun = True
            if self._options.transactions:
                yield self._boundary("BEGIN")
        table = f"{value['source']['db']}.{value['source']['table']}"
        self._counts[table] += 1
        value["transaction"] = {
            "id": self._id,
            "total_order": self._counts.total(),
            "data_collection_order": self._counts[table],
        }
        yield message

    @property
    def _id(self) -> str:
        return "" if self.gtid is None else str(self.gtid.gtid)

    def _boundary(self, status: str) -> Message:
        is_end = status == "END"
        value = {
            "status": status,
            "id": self._id,
            "ts_ms": self._now_ms(),
            "event_count": self._counts.total() if is_end else None,
            "data_collections": [
                {"data_collection": table, "event_count": count}
                for table, count in self._counts.items()
            ]
            if is_end
            else None,
        }
        return self._message("transaction", {"id": self._id}, value)

    def _message(self, name: str, key: Object | None, value: Object | None) -> Message:
        topic = f"{self._options.prefix}.{name}" if name else self._options.prefix
        return Message(topic, key, value, {"gtid": self._id})

    def _now_ms(self) -> int:
        return int(self._form._clock() * 1000)

    # --- rows ---

    def _rows(self, event: bytes) -> Iterator[Message]:
        rows = RowsEvent.parse(event)
        map_ = self._maps.get(rows.table_id)
        if map_ is None:
            return
        if isinstance(map_, UnreadableMap):
            raise ProtocolError(f"the table map of {map_.database}.{map_.table}: {map_.error}")
        table = self._form._table(map_)
        source = self._source(event, map_.database, map_.table)
        for number, change in enumerate(rows.rows(map_)):
            yield from self._change(table, change, {**source, "row": number})

    def _change(self, table: _Table, change: RowChange, source: Object) -> Iterator[Message]:
        before, after = change.before, change.after
        if before is not None and after is not None:
            after = tuple(
                old if isinstance(new, Absent) else new
                for old, new in zip(before, after, strict=True)
            )
        old_key = None if before is None else self._key(table, before)
        new_key = None if after is None else self._key(table, after)
        old, new = (
            None if image is None else self._image(table, image, table.columns)
            for image in (before, after)
        )
        if old is None:
            yield self._row(table, new_key, "c", None, new, source)
        elif new is None:
            yield self._row(table, old_key, "d", old, None, source)
            yield from self._tombstone(table, old_key)
        elif old_key == new_key:
            yield self._row(table, new_key, "u", old, new, source)
        else:
            yield self._row(
                table, old_key, "d", old, None, source, {"__debezium.newkey": as_json(new_key)}
            )
            yield from self._tombstone(table, old_key)
            yield self._row(
                table, new_key, "c", None, new, source, {"__debezium.oldkey": as_json(old_key)}
            )

    def _tombstone(self, table: _Table, key: Object | None) -> Iterator[Message]:
        if self._options.tombstones and key is not None:
            yield Message(table.topic, key, None, {"gtid": self._id})

    def _row(
        self,
        table: _Table,
        key: Object | None,
        op: str,
        before: Object | None,
        after: Object | None,
        source: Object,
        headers: dict[str, str] | None = None,
    ) -> Message:
        now = self._now_ms()
        value = {
            "before": before,
            "after": after,
            "source": source,
            "op": op,
            "ts_ms": now,
            "ts_us": now * 1000,
            "ts_ns": now * 1_000_000,
            "transaction": None,
        }
        return Message(table.topic, key, value, {"gtid": self._id, **(headers or {})})

    def _key(self, table: _Table, image: Image) -> Object | None:
        return self._image(table, image, table.key) if table.key else None

    def _image(self, table: _Table, image: Image, columns: tuple[_Column, ...]) -> Object:
        options = self._options
        found: Object = {}
        for number, name, column, change in columns:
            value = image[number]
            if isinstance(value, Absent):
                found[name] = UNAVAILABLE
                continue
            try:
                made = debezium_value(value, column, options.decimals, options.invalid)
            except ProtocolError as error:
                raise ProtocolError(
                    f"{table.map.database}.{table.map.table}.{name}: {error}"
                ) from None
            if change is not None:
                made = change(made if made is None or isinstance(made, str) else json.dumps(made))
            found[name] = made
        return found

    # --- statements ---

    def _query(self, event: bytes) -> Iterator[Message]:
        query = QueryEvent.parse(event)
        gtid = self.gtid
        if gtid is not None and gtid.flags2 & GtidFlags.COMPLETED_XA and gtid.xa_id is not None:
            yield from self._settled(
                gtid.xa_id, is_commit=query.text.upper().startswith(_XA_COMMIT)
            )
            return
        if query.ends_group:
            return
        text, database, meaning = _read(query)
        if meaning.writes_rows or meaning.kind in ("dml", "rollback"):
            self._refuse(query)
        elif meaning.kind in _DEFINITIONS and self._is_done(query):
            for name in self._databases(meaning, database):
                value = {
                    "source": self._source(event, name, None),
                    "ts_ms": self._now_ms(),
                    "databaseName": name,
                    "schemaName": None,
                    "ddl": text,
                    "tableChanges": [],
                }
                yield self._message("", {"databaseName": name}, value)

    def _settled(self, xa_id: XaId, *, is_commit: bool) -> Iterator[Message]:
        """What was prepared, under the GTID of its COMMIT."""
        if self._form.knows(xa_id) or (is_commit and not self._options.skip_statements):
            messages = self._form._settle(xa_id)
            if is_commit:
                for message in messages:
                    yield message._replace(headers={**message.headers, "gtid": self._id})

    def _is_done(self, query: QueryEvent) -> bool:
        """Whether a statement that changes definitions was done."""
        is_part = self.gtid is not None and self.gtid.flags_extra & _NOT_DONE
        return not query.error_code and not is_part

    def _databases(self, meaning: StatementMeaning, used: str) -> list[str]:
        """Those whose definitions a statement changes, as far as they are chosen; the one in use if it names none."""
        choice = self._form._choice
        if not meaning.is_certain:
            return [used]
        named = meaning.affected
        if not choice.is_all:
            named = tuple(name for name in named if choice.has_table(name))
            return [*dict.fromkeys(name.database for name in named)]
        return [*dict.fromkeys(name.database for name in (*named, *meaning.views))] or [used]

    def _refuse(self, query: QueryEvent) -> None:
        """Raises `ProtocolError` for a statement that changes rows, unless none of them can be of a chosen table."""
        if self._options.skip_statements:
            return
        text, database, _ = _read(query)
        _, names = written_tables(text, database)
        choice = self._form._choice
        if names is not None and not any(choice.has_table(name) for name in names):
            return
        raise ProtocolError(
            f"a statement changes rows and is logged as text: {text[:80]!r}. SET GLOBAL binlog_format=ROW at the "
            "server; --skip-statements goes on without it"
        )

    def _source(self, event: bytes, database: str, table: str | None) -> Object:
        header = EventHeader.parse(event)
        gtid: Gtid | None = None if self.gtid is None else self.gtid.gtid
        return {
            "version": self._form._version,
            "connector": CONNECTOR,
            "name": self._options.prefix,
            "ts_ms": header.timestamp * 1000,
            "ts_us": header.timestamp * 1_000_000,
            "ts_ns": header.timestamp * 1_000_000_000,
            "snapshot": "false",
            "db": database,
            "sequence": None,
            "table": table,
            "server_id": header.server_id,
            "gtid": None if gtid is None else str(gtid),
            "file": self._file,
            "pos": self._offset,
            "row": 0,
            "thread": None if self.gtid is None else self.gtid.thread_id,
            "query": None,
        }


def topic_name(name: str) -> str:
    """The name with `_` for each character that a topic of Kafka cannot have, as Debezium does it."""
    return _NOT_OF_TOPICS.sub("_", name)


def as_json(value: Object | None) -> str:
    """One line."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _read(query: QueryEvent) -> tuple[str, str, StatementMeaning]:
    """The text of a statement, the database in use, and what it does."""
    status = StatusVariables.parse(query.status_variables)
    text = shown_text(query.text, status.charset[0] if status.charset else UTF8)
    database = query.database.decode("utf-8", "surrogateescape")
    escapes = not (status.sql_mode or 0) & _NO_BACKSLASH_ESCAPES
    return text, database, parse_statement(text, database, backslash_escapes=escapes)


def _size(messages: Iterable[Message]) -> int:
    return sum(len(as_json(message.value)) for message in messages)
