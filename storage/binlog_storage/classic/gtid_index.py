"""The GTID index of a binlog file, `BASE.000001.idx`, as MariaDB has it since 11.4: places and states as a tree. Pure.

    file     pages of one size, at least 64 bytes; the first one begins with a head of 12 bytes:
             fe fe 0c 01, major version 1, minor version 0, 0 (u16), page size (u32)
    page     flags (u8: 1 leaf, 2 goes on with a node, 4 last page of its node, 8 of the root), 0 (3 bytes);
             items; zeros; CRC-32 of all before
    node     one page or several, one behind the other; an item lies whole in a page
    record   the number of GTIDs and 1 more (u32; 0: no more), offset in the binlog file (u32); the GTIDs, each an item:
             domain_id u32, server_id u32, seq_no u64
    leaf     records
    interior pointer, record, pointer ... pointer: a pointer is the number of a page, from 1 on (u32)

A record says: at this offset a group has ended, and these GTIDs are new since the record before. The first one is the
file's own GTID list, at its end. A leaf repeats as its first record the key that stands to the left of it in a node
above; the first key of a level is a whole state, each further one the difference to the key before. A node is written
when it is full, so the root is the last one: a file without a root was not finished, and is no index.

GTIDs inside a record have the order of MariaDB's hash tables there; here domains come as they were met, and in both the
last server of a domain comes last. Readers ask for no other order.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

from binlog_protocol.gtid import BinlogState, Gtid

INDEX_SUFFIX: Final = ".idx"
PAGE_BYTES_MIN: Final = 64
PAGE_BYTES_MAX: Final = 16 << 20
OFFSET_MAX: Final = 0xFFFFFFFF
_MAGIC: Final = b"\xfe\xfe\x0c\x01"
_FILE_HEAD: Final = struct.Struct("<4sBBHI")
_PAGE_HEAD: Final = struct.Struct("<B3x")
_RECORD: Final = struct.Struct("<II")
_GTID: Final = struct.Struct("<IIQ")
_POINTER: Final = struct.Struct("<I")
_CRC: Final = struct.Struct("<I")
_LEAF, _CONTINUES, _LAST, _ROOT = 1, 2, 4, 8
_ENTRIES_BYTES_MAX: Final = 64 << 20  # of one node: a state of 4 million GTIDs

assert _FILE_HEAD.size == 12
assert _PAGE_HEAD.size == _POINTER.size == _CRC.size == 4
assert _RECORD.size == 8
assert _GTID.size == 16


class BadIndex(Exception):
    """What was read is no finished index, or is damaged."""


class IndexRecord(NamedTuple):
    """GTIDs that are new at an offset: `change` since the record before, or a whole state."""

    offset: int
    change: tuple[Gtid, ...]


class _Node:
    """The open node of one level; `changes` are those of its records since it began."""

    def __init__(self, page_bytes: int, head: bytes) -> None:
        self._limit = page_bytes - _CRC.size
        self._half = page_bytes // 2
        self._page = bytearray(head + bytes(_PAGE_HEAD.size))
        self.pages = [self._page]
        self.changes = BinlogState()
        self._records = 0
        self._may_continue = False

    def has_room(self, bytes_: int) -> bool:
        """Whether a record of that size goes in. The first one does; behind one that leaves less than half of a page,
        another page may be begun.
        """
        free = self._limit - len(self._page)
        if self._records == 1 and free < self._half:
            self._may_continue = True
        return not self._records or self._may_continue or bytes_ <= free

    def add_record(self, offset: int, gtids: list[Gtid]) -> None:
        self._records += 1
        self.add_item(_RECORD.pack(len(gtids) + 1, offset))
        for gtid in gtids:
            self.add_item(_GTID.pack(*gtid))

    def add_item(self, item: bytes) -> None:
        if len(self._page) + len(item) > self._limit:
            self._page = bytearray(_PAGE_HEAD.size)
            self.pages.append(self._page)
            self._may_continue = False
        self._page += item


class IndexTree:
    """Writes an index from its records, which come in the order of their offsets.

    Args:
        offset, gtids: the end of the file's GTID list event, and the list.
    """

    def __init__(self, offset: int, gtids: Iterable[Gtid], page_bytes: int) -> None:
        self._page_bytes = page_bytes
        self._head = _FILE_HEAD.pack(_MAGIC, 1, 0, 0, page_bytes)
        self._levels: list[_Node] = []
        self._pages = 0
        self._written = bytearray()
        self._begin(0)
        self.add(offset, gtids)

    def _begin(self, level: int) -> None:
        head = self._head if not (self._levels or self._pages) else b""
        node = _Node(self._page_bytes, head)
        if level < len(self._levels):
            self._levels[level] = node
        else:
            self._levels.append(node)

    def add(self, offset: int, gtids: Iterable[Gtid]) -> None:
        """One record. Offsets beyond `OFFSET_MAX` are left out: there is no room for them."""
        if offset > OFFSET_MAX:
            return
        new = list(gtids)
        level = 0
        while True:
            node = self._levels[level]
            node.changes.overlay(new)
            if node.has_room(
                _RECORD.size + _GTID.size * len(new) + (_POINTER.size if level else 0)
            ):
                node.add_record(offset, new)
                return
            new = node.changes.entries()
            self._write(level, is_root=False)
            self._begin(level)
            if not level:
                self._levels[0].add_record(offset, new)
            level += 1

    def _write(self, level: int, *, is_root: bool) -> None:
        """Write the node of a level; the level above, which is made if it is not there, points to it."""
        pages = self._levels[level].pages
        number = self._pages + 1
        for at, page in enumerate(pages):
            flags = _LEAF * (not level) | _CONTINUES * bool(at) | _ROOT * is_root
            flags |= _LAST * (at == len(pages) - 1)
            _PAGE_HEAD.pack_into(page, len(self._head) if not self._pages else 0, flags)
            data = page.ljust(self._page_bytes - _CRC.size, b"\0")
            self._written += data + _CRC.pack(zlib.crc32(data))
            self._pages += 1
        if not is_root:
            if level + 1 == len(self._levels):
                self._begin(level + 1)
            self._levels[level + 1].add_item(_POINTER.pack(number))

    @property
    def waiting(self) -> int:
        """The bytes that `take` would give."""
        return len(self._written)

    def take(self) -> bytes:
        """The pages that were written since the last call."""
        data = bytes(self._written)
        self._written.clear()
        return data

    def finish(self) -> bytes:
        """The rest of the file; nothing may be added any more."""
        top = len(self._levels) - 1
        for level in range(top + 1):
            self._write(level, is_root=level == top)
        return self.take()


class Pages(Protocol):
    """A file of pages."""

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes at `offset`; fewer only at the end of the file."""

    def size(self) -> int:
        """Length in bytes."""


class IndexedPlace(NamedTuple):
    """The last record that was passed, and the state there; the same of the one before, if its leaf has it."""

    offset: int
    state: BinlogState
    before: tuple[int, BinlogState] | None


class _Items:
    """The items of one node, from the left."""

    def __init__(self, pages: list[tuple[int, bytes]], limit: int) -> None:
        self._pages = pages
        self._limit = limit
        self._page = 0
        self._at, self._data = pages[0]

    def _item(self, form: struct.Struct) -> tuple[int, ...] | None:
        """The next item; None behind the last one."""
        if self._at + form.size > self._limit:
            self._page += 1
            if self._page == len(self._pages):
                return None
            self._at, self._data = self._pages[self._page]
        found = form.unpack_from(self._data, self._at)
        self._at += form.size
        return found

    def pointer(self) -> int:
        found = self._item(_POINTER)
        if found is None:
            raise BadIndex("a node ends in front of a pointer")
        return found[0]

    def record(self) -> IndexRecord | None:
        found = self._item(_RECORD)
        if found is None or not found[0]:
            return None
        count, offset = found
        gtids = []
        for _ in range(count - 1):
            item = self._item(_GTID)
            if item is None:
                raise BadIndex("a node ends inside a record")
            gtids.append(Gtid(*item))
        return IndexRecord(offset, tuple(gtids))


class IndexReader:
    """Searches one index. Raises `BadIndex`, and whatever its file raises."""

    def __init__(self, file: Pages) -> None:
        """Looks at the head."""
        self._file = file
        head = file.pread(_FILE_HEAD.size, 0)
        if not head:
            raise BadIndex("it was not finished: it is empty")
        if len(head) < _FILE_HEAD.size or not head.startswith(_MAGIC):
            raise BadIndex(f"it begins {head[:4].hex(' ')}")
        _, major, _, _, self._page_bytes = _FILE_HEAD.unpack(head)
        if major > 1:
            raise BadIndex(f"it has version {major}")
        if not PAGE_BYTES_MIN <= self._page_bytes <= PAGE_BYTES_MAX:
            raise BadIndex(f"it has pages of {self._page_bytes} bytes")
        self._count, rest = divmod(file.size(), self._page_bytes)
        if rest or not self._count:
            raise BadIndex(f"{file.size()} bytes are not pages of {self._page_bytes}")

    def _page(self, number: int) -> tuple[int, int, bytes]:
        """The flags of a page, where its items begin, and its bytes."""
        data = self._file.pread(self._page_bytes, (number - 1) * self._page_bytes)
        crc_at = self._page_bytes - _CRC.size
        if len(data) < self._page_bytes or _CRC.unpack_from(data, crc_at)[0] != zlib.crc32(
            memoryview(data)[:crc_at]
        ):
            raise BadIndex(f"the CRC-32 of page {number} is wrong")
        at = _FILE_HEAD.size if number == 1 else 0
        return data[at], at + _PAGE_HEAD.size, data

    def _items(self, pages: list[tuple[int, bytes]]) -> _Items:
        return _Items(pages, self._page_bytes - _CRC.size)

    def _require_bound(self, pages: list[tuple[int, bytes]]) -> None:
        if len(pages) * self._page_bytes > max(_ENTRIES_BYTES_MAX, 2 * self._page_bytes):
            raise BadIndex("a node is too large")

    def _root(self) -> tuple[bool, int, _Items]:
        """Whether it is a leaf, its first page, and its items: the last pages of the file, from where a node begins."""
        pages: list[tuple[int, bytes]] = []
        number = self._count
        flags, at, data = self._page(number)
        if flags & (_ROOT | _LAST) != _ROOT | _LAST:
            raise BadIndex("it was not finished: it has no root")
        while True:
            pages.insert(0, (at, data))
            self._require_bound(pages)
            if not flags & _CONTINUES:
                return bool(flags & _LEAF), number, self._items(pages)
            number -= 1
            if not number:
                raise BadIndex("the root has no beginning")
            flags, at, data = self._page(number)
            if not flags & _ROOT:
                raise BadIndex("the root has no beginning")

    def _node(self, number: int, before: int) -> tuple[bool, _Items]:
        """Whether the node from a page on is a leaf, and its items. Its pages lie in front of `before`."""
        pages: list[tuple[int, bytes]] = []
        while True:
            if not 0 < number < before:
                raise BadIndex(f"a node of page {before} has page {number}")
            flags, at, data = self._page(number)
            if bool(flags & _CONTINUES) != bool(pages) or flags & _ROOT:
                raise BadIndex(f"page {number} has flags {flags}")
            pages.append((at, data))
            self._require_bound(pages)
            if flags & _LAST:
                return bool(flags & _LEAF), self._items(pages)
            number += 1

    def first(self) -> IndexRecord:
        """The record of the file's GTID list."""
        leaf, number, items = self._root()
        while not leaf:
            child = items.pointer()
            leaf, items = self._node(child, number)
            number = child
        record = items.record()
        if record is None:
            raise BadIndex("it has no record")
        return record

    def find(self, passes: Callable[[int, BinlogState], bool]) -> IndexedPlace | None:
        """The last place that `passes`, of which the offset and the state are told; None if not even the first does.

        As all before a place that passes do.
        """
        state = BinlogState()
        last = -1
        is_first = True  # no key was passed: the first leaf
        leaf, number, items = self._root()
        while not leaf:
            child = items.pointer()
            while (key := items.record()) is not None:
                following = state.copy()
                following.overlay(key.change)
                if key.offset <= last:
                    raise BadIndex(f"offset {key.offset} behind {last}")
                pointer = items.pointer()
                if not passes(key.offset, following):
                    break
                state, last, is_first, child = following, key.offset, False, pointer
            leaf, items = self._node(child, number)
            number = child
        return self._in_leaf(items, state, last, is_first, passes)

    def _in_leaf(
        self,
        items: _Items,
        state: BinlogState,
        last: int,
        is_first: bool,
        passes: Callable[[int, BinlogState], bool],
    ) -> IndexedPlace | None:
        record = items.record()
        if record is None or (not is_first and record.offset != last):
            raise BadIndex("a leaf does not begin with the key before it")
        if is_first:
            state.overlay(record.change)
            if not passes(record.offset, state):
                return None
        found = IndexedPlace(record.offset, state, None)
        while (record := items.record()) is not None:
            if record.offset <= found.offset:
                raise BadIndex(f"offset {record.offset} behind {found.offset}")
            following = found.state.copy()
            following.overlay(record.change)
            if not passes(record.offset, following):
                break
            found = IndexedPlace(record.offset, following, (found.offset, found.state))
        return found
