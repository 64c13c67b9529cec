"""The head of a traditional binlog file: who wrote it, and what had been logged before."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.checksum import strip_checksum
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.events.gtid_list import GtidList
from binlog_protocol.events.header import FLAG_ARTIFICIAL, FLAG_IN_USE, FLAGS_OFFSET, TYPE_OFFSET
from binlog_protocol.gtid import BinlogState, Gtid

from binlog_storage.classic.errors import DamagedBinlog, UnreadableBinlog
from binlog_storage.classic.event_reader import EventReader
from binlog_storage.classic.groups import no_gtids, refuse_kind

# What may stand in front of the GTID list, in a file of a server or in one that mariadb-binlog --raw has fetched.
_BEFORE_LIST: Final = frozenset(
    {EventType.START_ENCRYPTION, EventType.BINLOG_CHECKPOINT, EventType.ROTATE}
)


@dataclass(frozen=True, slots=True)
class FileHead:
    """The head of one file; `size` in bytes."""

    path: Path
    size: int
    description: FormatDescription
    gtids: tuple[Gtid, ...]

    @property
    def state(self) -> BinlogState:
        """The GTID binlog state before the file."""
        return BinlogState(self.gtids)

    @property
    def in_use(self) -> bool:
        """Whether its server had not closed it: it was writing it, or was killed."""
        return bool(self.description.flags & FLAG_IN_USE)


def read_head(path: Path) -> FileHead:
    """Raises `UnreadableBinlog` for a file without a GTID list, `DamagedBinlog`, `OSError`."""
    with EventReader(path) as reader:
        event, offset = reader.next(), 4
        try:
            if event is None or event[TYPE_OFFSET] != EventType.FORMAT_DESCRIPTION:
                raise UnreadableBinlog(
                    f"{path} has no format description; if it is the last file, and its server was killed when it "
                    "made it, leave it out"
                )
            refuse_kind(path, event)
            description = FormatDescription.parse(event)
            while True:
                offset = reader.offset
                event = reader.next()
                if event is None:
                    raise UnreadableBinlog(
                        f"{path} ends behind its format description; if it is the last file, leave it out"
                    )
                refuse_kind(path, event)
                is_artificial = event[FLAGS_OFFSET] & FLAG_ARTIFICIAL
                if event[TYPE_OFFSET] == EventType.GTID_LIST and not is_artificial:
                    plain = strip_checksum(event, description.checksum_algorithm)
                    return FileHead(path, reader.size, description, GtidList.parse(plain).gtids)
                if event[TYPE_OFFSET] not in _BEFORE_LIST and not is_artificial:
                    raise no_gtids(path)
        except ProtocolError as error:
            raise DamagedBinlog(path, offset, str(error)) from None
