"""Groups with the places where they end, as they are written into a part. They need numpy when they are written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from binlog_protocol.groups.stored_group import HEAD_BYTES, HEAD_FIELDS, group_gtid
from binlog_protocol.gtid import BinlogState, Gtid

from binlog_storage.archive.encryption import ArchiveKey
from binlog_storage.archive.errors import PyarrowMissing
from binlog_storage.engine import LargeGroup, Position

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from binlog_storage.archive.part_writer import PartFacts


class PlacedGroups:
    """See `part_writer.PartGroups`."""

    def __init__(
        self,
        placed: Sequence[tuple[bytes, Position]],
        markers: Sequence[tuple[int, bytes]],
        large: LargeGroup | None = None,
    ) -> None:
        self.payloads: Final = [payload for payload, _ in placed]
        self.markers: Final = markers
        self.large: Final = large
        self._ends: Final = [end for _, end in placed]

    def __len__(self) -> int:
        return len(self.payloads)

    @cached_property
    def columns(self) -> tuple[NDArray[np.int64], ...]:
        """Domain, server, seq, file, offset, timestamp."""
        import numpy as np

        heads = np.frombuffer(
            b"".join(p[:HEAD_BYTES] for p in self.payloads), np.dtype(HEAD_FIELDS)
        )
        places = np.array(self._ends, np.int64).reshape(-1, 2)
        domain, server, seq, timestamp = (
            heads[name].astype(np.int64) for name in ("domain", "server", "seq", "timestamp")
        )
        return domain, server, seq, places[:, 0], places[:, 1], timestamp

    def gtid(self, i: int) -> Gtid:
        """The GTID of group `i`."""
        found = group_gtid(self.payloads[i])
        assert found is not None
        return found

    def place(self, i: int) -> Position:
        """The end of group `i`."""
        return self._ends[i]

    def pieces(self, i: int) -> Iterator[bytes]:
        """The bytes of one group, piece by piece."""
        return iter((self.payloads[i],)) if self.large is None else self.large.pieces()


def part_writer() -> Callable[
    [Path, Iterable[PlacedGroups], int, ArchiveKey | None, BinlogState], PartFacts | None
]:
    """`part_writer.write_part`. Raises `PyarrowMissing`."""
    try:
        from binlog_storage.archive.part_writer import write_part
    except ModuleNotFoundError:
        raise PyarrowMissing(
            "parts of archives: pyarrow and numpy are needed to write them; pip install '.[archive]'"
        ) from None
    return write_part
