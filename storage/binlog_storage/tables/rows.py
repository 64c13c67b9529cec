"""Rows in memory: versions of rows, transactions with their chains, and what a change, an undo and an end do to them.

The same steps serve who changes rows and who replays the redo log. Nothing here logs, waits or locks: the latch of the
tables is held around every call that changes something.
"""

from __future__ import annotations

import contextlib
import struct
from array import array
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from binlog_storage.errors import CorruptTables, UnknownTable
from binlog_storage.ibb.xa import Xid
from binlog_storage.tables.keys import SortedKeys
from binlog_storage.tables.records import CHANGE, KIND_CHANGE, NO_ROW, ChangedRow, State

UNFINISHED: Final = 1 << 62  # the commit number of a transaction that has none
CATALOG: Final = 0  # the table of definitions
ELSEWHERE: Final = 1 << 31
"""The bit in the numbers of tables whose rows another engine keeps: changes of these are not in the redo log."""
TEMPORARY: Final = 1 << 30
"""The bit in the numbers of tables that are in memory alone, as long as somebody wants them: see
`TableStore.make_temporary`."""
UNLOGGED: Final = ELSEWHERE | TEMPORARY
_TABLE_KEY: Final = struct.Struct(">I")
NODE_RECORD: Final = struct.Struct("<cIIII")
"""A node in a snapshot: 'N', its number and table, sizes of key and row before. These follow."""
VERSION_BYTES: Final = 320
"""What a version of a row takes beside its key and row: objects, its node, its part of dictionaries and lists."""
_UNPACKED_NODES: Final = 256  # the most of a chain, at once

Resource = tuple[int, bytes | None]


def table_key(table: int) -> bytes:
    """The key of a table in the catalog."""
    return _TABLE_KEY.pack(table)


class Node(NamedTuple):
    """How to undo a change: `key` of `table` had the row `before`. Never changed; `below` is the change before it."""

    no: int
    below: AnyNode | None
    table: int
    key: bytes
    before: bytes | None


class _Run(NamedTuple):
    """Nodes that stay where a start has found them: in a block of the snapshot, or a window of the redo log.

    places: offsets of their records in `body`, 4 bytes each, in the order of this machine; the oldest node first.
    below: the node on which the oldest one stands.
    """

    body: bytes
    places: bytes
    below: AnyNode | None


class PackedNode:
    """A node of a run, which is read from its record whenever somebody asks. It is used as a `Node`."""

    __slots__ = ("_at", "_run")

    def __init__(self, run: _Run, at: int) -> None:
        self._run = run
        self._at = at

    def _head(self) -> tuple[int, int, int, int, int]:
        """Number, table, offset of the key, sizes of key and row before."""
        body = self._run.body
        at = memoryview(self._run.places).cast("I")[self._at]
        if body[at] == KIND_CHANGE:
            _, _, no, _, table, key_size, size, _ = CHANGE.unpack_from(body, at)
            return no, table, at + CHANGE.size, key_size, size
        _, no, table, key_size, size = NODE_RECORD.unpack_from(body, at)
        return no, table, at + NODE_RECORD.size, key_size, size

    @property
    def no(self) -> int:
        """See `Node`, as all of these."""
        return self._head()[0]

    @property
    def table(self) -> int:
        return self._head()[1]

    @property
    def key(self) -> bytes:
        _, _, at, size, _ = self._head()
        return self._run.body[at : at + size]

    @property
    def before(self) -> bytes | None:
        _, _, at, key_size, size = self._head()
        return None if size == NO_ROW else self._run.body[at + key_size : at + key_size + size]

    @property
    def below(self) -> AnyNode | None:
        return PackedNode(self._run, self._at - 1) if self._at else self._run.below

    def unpacked(self) -> Node:
        """The same node, and some of those below of the same run, as objects."""
        from binlog_storage.ibb._speedups import unpack_nodes

        body, places, below = self._run
        left = self._at + 1
        parts = -(-left // _UNPACKED_NODES)
        first = left - left // parts
        if first:
            below = PackedNode(self._run, first - 1)
        node: Node = unpack_nodes(body, places, first, self._at + 1, below)
        return node


class Trx:
    """A transaction.

    Attributes:
        top: its last change that is not undone.
        no: the number of its last node; never used again.
        count: nodes in the chain.
        commit_no: `UNFINISHED` until it is committed.
        locks, tables: what it holds, with an entry in the lock table; tables that it has changed.
        recovered: it was found by a start.
        undoing: all of it is being undone.
        elsewhere, ready: it has changed rows that another engine keeps; and these are prepared there.
        has_unlogged: it has nodes that the redo log has not.
        patron: one whose locks are no hindrance, as the same session has taken them.
    """

    __slots__ = (
        "commit_no",
        "count",
        "elsewhere",
        "engines",
        "has_unlogged",
        "id",
        "locks",
        "logged",
        "no",
        "patron",
        "ready",
        "recovered",
        "state",
        "tables",
        "top",
        "undoing",
        "waiting",
        "xid",
    )

    def __init__(self, trx_id: int, patron: Trx | None = None) -> None:
        self.id = trx_id
        self.patron = patron
        self.top: AnyNode | None = None
        self.no = 0
        self.count = 0
        self.commit_no = UNFINISHED
        self.state = State.ACTIVE
        self.xid: Xid | None = None
        self.engines = 1
        self.locks: set[Resource] = set()
        self.tables: set[int] = set()
        self.waiting: object = None
        self.logged = False
        self.recovered = False
        self.undoing = False
        self.elsewhere = self.ready = self.has_unlogged = False

    def pack(self, body: bytes, places: bytes) -> None:
        """Put nodes on the chain that stay in `body`: see `_Run`."""
        count = len(places) // array("I").itemsize
        self.top = PackedNode(_Run(body, places, self.top), count - 1)
        self.count += count

    def unpack(self) -> Node | None:
        """The top of the chain, as an object; as are some below it."""
        if isinstance(self.top, PackedNode):
            self.top = self.top.unpacked()
        return self.top

    def chain(self) -> Iterator[Node]:
        """Its nodes, the newest first."""
        return nodes_from(self.top)


def nodes_from(node: AnyNode | None) -> Iterator[Node]:
    """A node and all below it."""
    while node is not None:
        if isinstance(node, PackedNode):
            node = node.unpacked()
        yield node
        node = node.below


def logged_no(node: AnyNode | None) -> int:
    """The number of the newest node from this one on that is in the redo log; 0 without one."""
    while node is not None and node.table & UNLOGGED:
        node = node.below
    return 0 if node is None else node.no


COMMITTED: Final = Trx(0)
COMMITTED.commit_no = 0


class Version:
    """A row as one transaction left it; None: deleted. `prev` is what was before, as long as somebody may need it."""

    __slots__ = ("prev", "row", "trx")

    def __init__(self, row: bytes | None, trx: Trx, prev: Version | None) -> None:
        self.row = row
        self.trx = trx
        self.prev = prev


# There are as many of these two as changed rows. They exist in C, too, and are used from there where that was built:
# Python's search for garbage walks over each object that may stand in a cycle, and holds everybody for a quarter of a
# second where a million rows have changed. The types in C stay out of it. Counting references frees them all, as no
# cycle leads through them: a node refers to bytes and to the node that was there before it, and never changes; a
# version to bytes, to an older version, and to its transaction, which has nodes, locks and numbers, and no version.
# Only a wait for a lock leads from a transaction back to the tables, as somebody is called at its end: it is let go
# with that end.
PlainNode, PlainVersion = Node, Version
if TYPE_CHECKING:
    from binlog_storage.ibb._speedups import PackedRows
else:
    with contextlib.suppress(ImportError):
        from binlog_storage.ibb._speedups import Node, Version
try:
    from binlog_storage.ibb._speedups import next_keys as next_keys
except ImportError:  # a wheel without compiled modules
    next_keys = None  # type: ignore[assignment]

AnyNode = Node | PackedNode


class Table:
    """The newest version of each row; and the keys in order, once somebody has wanted them so.

    Attributes:
        rows: those that are objects. A row that a start has found is none before somebody changes it.
        packed: the others; None if there never were any.
        listing: told of keys that go while somebody lists `rows`; None if nobody does.
        noted: keys that came (True) and went while somebody puts the others in order; None if nobody does.
        look: the newest version of a row by its key, None without one; takes no lock.
        take: the same, and it is in `rows` then; for whoever is going to change something.
    """

    __slots__ = ("keys", "listing", "look", "noted", "packed", "rows", "take")

    def __init__(self) -> None:
        self.rows: dict[bytes, Version] = {}
        self.keys: SortedKeys | None = None
        self.noted: list[tuple[bytes, bool]] | None = None
        self.listing: Listing | None = None
        self.packed: PackedRows | None = None
        self.look: Callable[[bytes], Version | None] = self.rows.get
        self.take: Callable[[bytes], Version | None] = self.rows.get

    def pack(self) -> PackedRows:
        """A start is going to leave rows where it has found them."""
        from binlog_storage.ibb._speedups import PackedRows

        self.packed = packed = PackedRows(self.rows, COMMITTED)
        self.look, self.take = packed.look, packed.take
        return packed

    def __len__(self) -> int:
        """How many rows it has, tombstones too."""
        return len(self.rows) + (0 if self.packed is None else len(self.packed))

    def all_keys(self) -> list[bytes]:
        """The keys, tombstones too. Under the latch."""
        packed = self.packed
        return [*self.rows, *(() if packed is None else packed.keys(0, packed.places))]

    def ordered(self) -> SortedKeys:
        """The keys in order, tombstones too."""
        if self.keys is None:
            self.keys = SortedKeys(self.all_keys())
        return self.keys

    def owner(self, key: bytes) -> Trx | None:
        """The transaction of a row's newest version."""
        version = self.rows.get(key)
        if version is not None:
            return version.trx
        return None if self.packed is None else self.packed.owner(key)

    def undo(self, key: bytes, trx: Trx) -> bool:
        """Undo the last change of a row, which is that transaction's. Returns whether there is a row left."""
        version = self.rows.get(key)
        if version is None:
            left = None if self.packed is None else self.packed.undo(key, trx)
            assert left is not None, "a row that was changed is not there"
            if not left:
                self._gone(key)
            return left
        assert version.trx is trx, (
            "a row was changed by another transaction than the one that had its lock"
        )
        below = version.prev
        if below is None or (below.row is None and below.prev is None):  # a tombstone of nothing
            self.remove(key)
            return False
        self.rows[key] = below
        return True

    def settle(self) -> None:
        """Forget what transactions that the log has committed make superfluous."""
        for key, top in list(self.rows.items()):
            version: Version | None = top
            while version is not None and version.trx.commit_no == UNFINISHED:
                version = version.prev
            if version is top and top.row is None:
                del self.rows[key]
            elif version is not None:
                version.prev, version.trx = None, COMMITTED

    def set(self, key: bytes, version: Version) -> None:
        """A newer version of a row."""
        if key not in self.rows:
            if self.keys is not None:
                self.keys.add(key)
            elif self.noted is not None:
                self.noted.append((key, True))
        self.rows[key] = version

    def remove(self, key: bytes) -> None:
        """Nobody sees a row of this key any more."""
        del self.rows[key]
        self._gone(key)

    def _gone(self, key: bytes) -> None:
        if self.listing is not None:
            self.listing.gone(key)
        if self.keys is not None:
            self.keys.discard(key)
        elif self.noted is not None:
            self.noted.append((key, False))


class Listing:
    """The keys of a table's rows that are objects, in steps between which others change it.

    Each key that was there at the first step and did not go comes, perhaps more than once; one that came since may be
    missing. A list of all at once holds everybody for 20 to 30 ms where there are a million. Each call is under the
    latch; `close` is the last.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._at = 0
        self._read: dict[bytes, None] = {}
        self._is_begun = False
        self._rest: list[bytes] | None = None
        # Keys that came since stand behind those that were there, and may come as fast as they are read.
        self._count = len(table.rows)
        table.listing = self

    def step(self, count: int) -> list[bytes]:
        """So many of the next keys; fewer or none at the end."""
        rows = self._table.rows
        if self._rest is None and next_keys is not None:
            last = next(reversed(self._read), None)
            # A place is found again by a key that was read and did not go.
            if last is not None or not self._is_begun:
                found = next_keys(rows, self._at, last, min(count, self._count))
                if found is not None:
                    keys, self._at = found
                    self._is_begun = True
                    self._count -= len(keys)
                    self._read = dict.fromkeys(keys)
                    return keys
        if self._rest is None:
            self._rest = list(reversed(rows))
        at = max(0, len(self._rest) - count)
        keys, self._rest[at:] = self._rest[at:], []
        return keys

    def gone(self, key: bytes) -> None:
        """A key is not there any more, although it may come again."""
        self._read.pop(key, None)

    def close(self) -> None:
        """It is wanted no longer."""
        self._table.listing = None


class TemporaryRows(Table):
    """A table that is in memory alone: it says how much of that.

    Attributes:
        size: bytes of its keys and rows, older versions that are still there too, with what stands around each.
    """

    __slots__ = ("size",)

    def __init__(self) -> None:
        super().__init__()
        self.size = 0

    def undo(self, key: bytes, trx: Trx) -> bool:
        """See `Table`."""
        top = self.rows[key]
        left = super().undo(key, trx)
        if left:
            self.size -= _bytes_of(key, top)
        return left

    def set(self, key: bytes, version: Version) -> None:
        """See `Table`."""
        self.size += _bytes_of(key, version)
        super().set(key, version)

    def remove(self, key: bytes) -> None:
        """See `Table`."""
        top = self.rows[key]
        self.cut(key, top)
        self.size -= _bytes_of(key, top)
        super().remove(key)

    def cut(self, key: bytes, version: Version) -> None:
        """The versions below one are needed no longer."""
        while (below := version.prev) is not None:
            self.size -= _bytes_of(key, below)
            version = below


def _bytes_of(key: bytes, version: Version) -> int:
    return VERSION_BYTES + len(key) + len(version.row or b"")


class Memory:
    """All tables."""

    def __init__(self) -> None:
        self.tables: dict[int, Table] = {CATALOG: Table()}
        self.commit_no = 0
        self._settles = False

    def table(self, number: int) -> Table:
        """Raises `UnknownTable`."""
        try:
            return self.tables[number]
        except KeyError:
            raise UnknownTable(f"there is no table {number}") from None

    def owner(self, resource: Resource) -> Trx | None:
        """The unfinished transaction to which the newest version of a row belongs."""
        table = self.tables.get(resource[0])
        if table is None or resource[1] is None:
            return None
        trx = table.owner(resource[1])
        return trx if trx is not None and trx.commit_no == UNFINISHED else None

    # --- changes ---

    def change(self, trx: Trx, table: int, key: bytes, row: bytes | None) -> None:
        """The transaction, which has the lock, puts a row, or deletes it with None."""
        place = self.tables[table]
        now = place.take(key)
        self._push(trx, trx.no + 1, table, key, None if now is None else now.row)
        place.set(key, Version(row, trx, now))
        if table == CATALOG and row is not None:
            self.tables.setdefault(int.from_bytes(key), Table())

    @staticmethod
    def _push(trx: Trx, no: int, table: int, key: bytes, before: bytes | None) -> None:
        trx.top = Node(no, trx.top, table, key, before)
        trx.no = no
        trx.count += 1
        if table not in trx.tables:
            trx.tables.add(table)

    def undo_top(self, trx: Trx) -> Node:
        """Undo the last change of a transaction. Returns its node."""
        node = trx.unpack()
        assert node is not None
        place = self.tables.get(node.table)
        if place is None:  # dropped since, with its rows
            assert node.table & TEMPORARY, "a row was changed in a table that is not there"
        elif not place.undo(node.key, trx) and node.table == CATALOG:
            self.tables.pop(int.from_bytes(node.key), None)
        trx.top = node.below
        trx.count -= 1
        return node

    def commit(self, trx: Trx) -> None:
        """The transaction is committed: what it did is seen by later views."""
        self.commit_no += 1
        trx.commit_no = self.commit_no
        if CATALOG in trx.tables:
            self._drop_of(trx, trx.top)

    def _drop_of(self, trx: Trx, top: AnyNode | None) -> None:
        """Forget the tables that a committed transaction has dropped, by its nodes from this one on."""
        for node in nodes_from(top):
            if node.table == CATALOG:
                version = self.tables[CATALOG].look(node.key)
                if version is None or version.row is None:
                    self.tables.pop(int.from_bytes(node.key), None)

    def forget(self, node: AnyNode, horizon: int) -> None:
        """Cut the versions of a row that no view needs: none is older than that commit number."""
        place = self.tables.get(node.table)
        top = version = None if place is None else place.take(node.key)
        while version is not None and version.trx.commit_no > horizon:
            version = version.prev
        if place is None or version is None:
            return
        if isinstance(place, TemporaryRows):
            place.cut(node.key, version)
        version.prev = None
        version.trx = COMMITTED  # all views see it: its transaction can be forgotten
        if version is top and version.row is None:
            place.remove(node.key)

    # --- replay ---

    def redo(self, trx: Trx, record: ChangedRow) -> None:
        """Apply a change of the log. The row may be newer than that already: the snapshot was read while it changed.

        Raises `CorruptTables`.
        """
        if record.below != (0 if trx.top is None else trx.top.no) or record.no <= trx.no:
            raise CorruptTables(
                f"change {record.no} of transaction {trx.id} is to stand on {record.below}, but the last is "
                f"{trx.top.no if trx.top else 0}"
            )
        place = self.tables.get(record.table)
        if place is None:
            place = self.tables[record.table] = Table()
        self._push(trx, record.no, record.table, record.key, record.before)
        before = version_below(trx, place.take(record.key), record.before)
        place.rows[record.key] = Version(record.after, trx, before)

    def redo_commit(self, trx: Trx) -> None:
        """The log says that a transaction was committed."""
        tables = self.tables
        trx.commit_no = 0
        node, trx.top = trx.top, None
        while isinstance(node, Node):
            place = tables.get(node.table)
            version = None if place is None else place.rows.get(node.key)
            if place is not None and version is not None and version.trx is trx:
                if version.row is None:
                    del place.rows[node.key]
                    if node.table == CATALOG:
                        tables.pop(int.from_bytes(node.key), None)
                else:
                    version.prev = None
                    version.trx = COMMITTED
            node = node.below
        if node is not None:  # there are many: they are settled together
            self._settles = True
            if CATALOG in trx.tables:
                self._drop_of(
                    trx, node
                )  # but what it has dropped is gone now: a number may come again

    def redone(self) -> None:
        """All of the log is applied: forget tables that were dropped while the snapshot was read."""
        for place in self.tables.values():
            if self._settles:
                place.settle()
            if place.packed is not None:
                place.packed.settle()
        known = {int.from_bytes(key) for key in self.tables[CATALOG].all_keys()}
        for number in [n for n in self.tables if n != CATALOG and n not in known]:
            del self.tables[number]
        for number in known:
            self.tables.setdefault(number, Table())


def version_below(
    trx: Trx,
    now: Version | None,
    row: bytes | None,
    committed: Trx = COMMITTED,
) -> Version | None:
    """The version below a change of the log: the one that is there if it has the row that was before.

    If not, the snapshot was read while the row changed, and that one is newer.
    """
    if now is not None and now.row == row:
        return now
    if now is not None and now.trx is trx:
        return Version(row, trx, now.prev)
    return None if row is None else Version(row, committed, None)
