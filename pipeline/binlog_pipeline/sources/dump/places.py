"""Places of groups in a server's binlog: file number, and the offset in the file at which a group ends.

A MariaDB with traditional binlog files tells names and positions, and so does our server to accounts of the classic
style: `upstream-bin.000007` is file 7, and the offset is where the last event of the group ends. A group with which its
file grows beyond 4 GiB ends there, too, though positions have 32 bits; positions of what follows it in that file, which
is nothing but groups that were committed together with it, begin at 0 again.

A binlog in the engine tells none. Then the domain takes the place of the file, and the number that of the offset: the
order within each domain is right, and there is no other.
"""

from __future__ import annotations

import re
from typing import Final

from binlog_protocol.gtid import Gtid
from binlog_storage.ibb.chunk import Position

from binlog_pipeline.groups import Groups

_NUMBER: Final = re.compile(r"[0-9]+(?=(?:\.[a-z]+)?$)")
_WRAP: Final = 1 << 32
# Our own server's classic style counts from here in groups that do not fit: `binlog_protocol.dump.classic_positions`.
_UNPLACED: Final = 1 << 31


def file_number(name: str) -> int:
    """The number in the name of a binlog file; 0 for a name without one."""
    found = _NUMBER.search(name)
    return int(found[0]) if found else 0


def placed(groups: Groups) -> Groups:
    """Groups with the file and position that were sent: where that is 0 there is none, and another place is put."""
    unplaced = groups.offset == 0
    if unplaced.any():
        groups.file[unplaced] = groups.domain[unplaced]
        groups.offset[unplaced] = groups.seq[unplaced]
    return groups


def place_of(gtid: Gtid, file_no: int, first_end: int, behind_first: int, end: int) -> Position:
    """The place of one group.

    Args:
        first_end: position of the end of its GTID event, as sent.
        behind_first: bytes of its other events, as sent.
        end: position of the end of its last event, as sent.
    """
    if end == 0:
        return Position(gtid.domain_id, gtid.seq_no)
    if first_end < _UNPLACED:
        end += round((first_end + behind_first - end) / _WRAP) * _WRAP
    return Position(file_no, end)
