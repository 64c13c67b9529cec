"""Rows of a part, as who reads one gets them, whatever the form of the file."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, Protocol

from binlog_protocol.dataclass import dataclass
from binlog_protocol.gtid import Gtid

from binlog_storage.engine import LargeGroup

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ROW_GROUP_BYTES_MAX: Final = 64 << 20
"""The largest row group, unpacked. Those written here have 8 MiB, and at most one batch of a source more."""


@dataclass(frozen=True, slots=True)
class PartRows:
    """Rows that lie one behind the other: groups, and start markers among them. Or one large group.

    data: the bytes of all.
    ends: of each row, in `data`.
    is_marker: of each row. The numbers of a marker are 0.
    """

    data: memoryview
    ends: NDArray[np.int64]
    domain: NDArray[np.int64]
    server: NDArray[np.int64]
    seq: NDArray[np.int64]
    file: NDArray[np.int64]
    offset: NDArray[np.int64]
    is_marker: NDArray[np.bool_]
    large: LargeGroup | None = None

    def gtid(self, i: int) -> Gtid:
        """The GTID of a row that is no marker."""
        seq = int(self.seq.view("<u8")[i])
        return Gtid(int(self.domain[i]), int(self.server[i]), seq)

    def payloads(self) -> list[bytes]:
        """The payload of each row."""
        ends = self.ends.tolist()
        begins = [0, *ends[:-1]]
        whole = bytes(self.data)
        return [whole[a:b] for a, b in zip(begins, ends, strict=True)]


class PartForm(Protocol):
    """One form of parts."""

    def open(self) -> AbstractContextManager[Any]:
        """What `next_rows` needs. Raises `ArchiveDamaged`."""

    def next_rows(self, file: Any, number: int) -> tuple[PartRows, int] | None:
        """The rows of row group `number`, and the number of the next one; None behind the last. Raises as `open`."""
