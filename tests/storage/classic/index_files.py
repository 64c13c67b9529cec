"""GTID indexes, taken apart; and made of a binlog file as the store makes them."""

from __future__ import annotations

import zlib
from pathlib import Path

from binlog_protocol.groups.group_runs import GroupRun
from binlog_protocol.gtid import BinlogState, Gtid
from binlog_storage.classic.binlog import read_head
from binlog_storage.classic.file_indexes import GrowingIndex
from binlog_storage.classic.groups import FileGroups
from binlog_storage.classic.options import ClassicOptions


class Bytes:
    """A file in memory."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def pread(self, size: int, offset: int) -> bytes:
        return self.data[offset : offset + size]

    def size(self) -> int:
        return len(self.data)


def taken_apart(data: bytes) -> list[list[object]]:
    """The nodes of an index: flags of the pages, pointers, and records, whose GTIDs may come in any order."""
    page_bytes = int.from_bytes(data[8:12], "little")
    nodes: list[list[object]] = []
    items: list[bytes] = []
    flags: list[int] = []
    for begin in range(0, len(data), page_bytes):
        page = data[begin : begin + page_bytes]
        assert zlib.crc32(page[:-4]) == int.from_bytes(page[-4:], "little")
        head = 12 if not begin else 0
        assert page[:head] == data[:head]
        flags.append(page[head])
        items.append(page[head + 4 : -4])
        if page[head] & 4:
            nodes.append([flags, *_node(items, leaf=bool(page[head] & 1))])
            items, flags = [], []
    assert not items
    return nodes


def _node(pages: list[bytes], *, leaf: bool) -> list[object]:
    found: list[object] = []
    page, at = 0, 0

    def item(size: int) -> bytes:
        nonlocal page, at
        if at + size > len(pages[page]):
            page, at = page + 1, 0
        if page == len(pages):
            return b""
        at += size
        return pages[page][at - size : at]

    if not leaf:
        found.append(item(4))
    while (head := item(8)) and head[:4] != bytes(4):
        count = int.from_bytes(head[:4], "little") - 1
        found.append((head[4:], sorted(item(16) for _ in range(count))))
        if not leaf:
            found.append(item(4))
    return found


def groups_of(path: Path) -> list[tuple[int, Gtid]]:
    """Where the groups of a file end, and their GTIDs."""
    reader = FileGroups(path)
    found: list[tuple[int, Gtid]] = []
    for item in reader.items():
        if isinstance(item, GroupRun):
            found += [(end, item.gtid(at)) for at, end in enumerate(reader.ends_of(item))]
        elif item.gtid is not None:
            for _ in item.rest or ():
                pass
            found.append((reader.offset, item.gtid))
    reader.close()
    return found


def index_of(path: Path, page_size: int, span_min: int) -> bytes:
    """The index of a binlog file."""
    options = ClassicOptions(
        binlog_gtid_index_page_size=page_size, binlog_gtid_index_span_min=span_min
    )
    index = GrowingIndex.of(read_head(path), options)
    for end, gtid in groups_of(path):
        index.add(end, gtid)
    return index.finish()


def state_behind(path: Path, end: int) -> BinlogState:
    """The state at an offset of a file, by reading all before."""
    state = read_head(path).state
    state.overlay(gtid for at, gtid in groups_of(path) if at <= end)
    return state
