"""Event groups on their way to columns: payloads, and the fields of each group's head (`HEAD_FIELDS`) as arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Self

import numpy as np
from binlog_protocol.groups.stored_group import FORMAT_DESCRIPTION_EVENT, HEAD_BYTES, HEAD_FIELDS
from binlog_protocol.gtid import Gtid, SlavePosition
from binlog_storage.engine import LargeGroup
from binlog_storage.ibb.chunk import LAST_CHUNK_START, Position
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.log.batch_reader import PLAIN_OVERHEAD, LaidBatch
from numpy.typing import NDArray

Integers = NDArray[np.int64]

_HEAD: Final = np.dtype(HEAD_FIELDS)


class Groups:
    """Consecutive groups of a source, in its order, without start markers. A large group stands alone.

    payloads: in normal form. Of a large group only its beginning: `pieces` has all of it.
    file, offset: where each ends in the source; what that means is the source's affair, but it grows, and no two are
        equal.
    timestamp: of the statement that began the group, in seconds since 1970.
    markers: start markers, for who keeps them: each with the number of the group in front of which it was logged, which
        is `len` for those behind the last one.
    """

    __slots__ = (
        "domain", "file", "flags2", "large", "markers", "offset", "payloads", "seq", "server",
        "timestamp",
    )  # fmt: skip

    def __init__(
        self,
        payloads: Sequence[bytes],
        file: Integers,
        offset: Integers,
        large: LargeGroup | None = None,
        markers: Sequence[tuple[int, bytes]] = (),
        heads: NDArray[np.void] | None = None,
    ) -> None:
        """`heads`: the beginnings of the payloads, for who has looked at them already."""
        self.payloads = payloads
        self.file = file
        self.offset = offset
        self.large = large
        self.markers = markers
        if heads is None:
            heads = _heads(payloads)
        self.timestamp: Integers = heads["timestamp"].astype(np.int64)
        self.server: Integers = heads["server"].astype(np.int64)
        self.seq: Integers = heads["seq"].astype(np.int64)
        self.domain: Integers = heads["domain"].astype(np.int64)
        self.flags2: NDArray[np.uint8] = heads["flags2"]

    @classmethod
    def of(cls, payloads: Sequence[bytes], ends: Sequence[Position]) -> Self:
        """Groups that are in memory."""
        places = np.array(ends, np.int64).reshape(-1, 2)
        return cls(payloads, places[:, 0], places[:, 1])

    @classmethod
    def of_large(cls, large: LargeGroup) -> Self:
        """One group that is not in memory."""
        file_no, offset = large.end
        return cls([large.head], np.array([file_no]), np.array([offset]), large)

    @classmethod
    def of_batch(cls, batch: LaidBatch) -> Self:
        """Groups and start markers of a batch of `.ibb` files."""
        if batch.large is not None:
            return cls.of_large(batch.large)
        payloads = batch.groups
        file = np.full(len(payloads), batch.start.file_no, np.int64)
        offset = _ends(batch)
        heads = _heads(payloads)
        is_marker = heads["type"] == FORMAT_DESCRIPTION_EVENT
        if not is_marker.any():
            return cls(payloads, file, offset, heads=heads)
        before = np.cumsum(~is_marker)
        markers = [(int(before[i]), payloads[i]) for i in np.flatnonzero(is_marker).tolist()]
        groups = [payloads[i] for i in np.flatnonzero(~is_marker).tolist()]
        return cls(groups, file[~is_marker], offset[~is_marker], None, markers)

    def __len__(self) -> int:
        return len(self.payloads)

    def some(self, mask: NDArray[np.bool_]) -> Self:
        """The groups for which `mask` is True, and the markers in front of them or behind all."""
        if mask.all():
            return self
        which = np.flatnonzero(mask)
        payloads = [self.payloads[i] for i in which.tolist()]
        large = self.large if payloads else None
        markers = [
            (int(np.count_nonzero(mask[:i])), marker)
            for i, marker in self.markers
            if i == len(mask) or mask[i]
        ]
        return type(self)(payloads, self.file[which], self.offset[which], large, markers)

    def with_markers(self, markers: Sequence[tuple[int, bytes]]) -> Self:
        """The same groups with these in place of theirs."""
        return type(self)(self.payloads, self.file, self.offset, self.large, markers)

    @property
    def columns(self) -> tuple[Integers, ...]:
        """Domain, server, seq, file, offset, timestamp."""
        return self.domain, self.server, self.seq, self.file, self.offset, self.timestamp

    def gtid(self, i: int) -> Gtid:
        """The GTID of group `i`."""
        return Gtid(int(self.domain[i]), int(self.server[i]), int(self.seq[i]))

    def place(self, i: int) -> Position:
        """The end of group `i`."""
        return Position(int(self.file[i]), int(self.offset[i]))

    def pieces(self, i: int) -> Iterator[bytes]:
        """The bytes of one group, piece by piece."""
        if self.large is None:
            return iter((self.payloads[i],))
        return self.large.pieces()


def chosen(
    stream: Iterable[Groups], mask_of: Callable[[Groups], NDArray[np.bool_]]
) -> Iterator[Groups]:
    """The groups for which the mask is True, with the markers in front of them.

    Markers behind the last group of all are given alone.
    """
    waiting: list[bytes] = []  # behind a group, and in front of one that did not come yet
    for groups in stream:
        count = len(groups)
        if not groups.markers and not waiting:
            found = groups.some(mask_of(groups)) if count else groups
            if len(found):
                yield found
            continue
        inner = [(0, marker) for marker in waiting] if count else []
        inner += [(i, marker) for i, marker in groups.markers if i < count]
        behind = [marker for i, marker in groups.markers if i == count]
        waiting = behind if count else [*waiting, *behind]
        if count:
            found = groups.with_markers(inner).some(mask_of(groups))
            if len(found):
                yield found
    if waiting:
        yield Groups.of([], []).with_markers([(0, marker) for marker in waiting])


def after(position: SlavePosition, groups: Groups) -> SlavePosition:
    """`position`, moved on behind these groups."""
    last = {domain: i for i, domain in enumerate(groups.domain.tolist())}
    for i in last.values():
        position = position.with_gtid(groups.gtid(i))
    return position


def _heads(payloads: Sequence[bytes]) -> NDArray[np.void]:
    return np.frombuffer(b"".join([p[:HEAD_BYTES] for p in payloads]), _HEAD)


def _ends(batch: LaidBatch) -> Integers:
    """The end of each group of a batch: offsets in its file."""
    sizes = np.fromiter(map(len, batch.groups), np.int64, len(batch.groups)) + PLAIN_OVERHEAD
    ends = np.cumsum(sizes)
    first, begin = np.array(batch.runs, np.int64).reshape(-1, 2).T
    counts = np.diff(first, append=len(sizes))
    ends += np.repeat(begin - (ends - sizes)[first], counts)
    within = ends % PAGE_SIZE
    # No chunk begins so near the end of a page.
    return np.where(within > LAST_CHUNK_START, ends - within + PAGE_SIZE, ends)
