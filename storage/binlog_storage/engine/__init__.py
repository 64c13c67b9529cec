"""The interface of a binlog store, and the rules that all its implementations share."""

from binlog_storage.engine.interface import (
    LARGE_GROUP_BYTES,
    BinlogEngine,
    BinlogFile,
    EngineAdmin,
    EngineReader,
    EngineWriter,
    GroupBatch,
    GroupMark,
    GroupWriter,
    Hold,
    LargeGroup,
    Located,
    OpenBinlog,
    PlacedBatch,
    PlacedGroup,
    Stalled,
    StartPoint,
)
from binlog_storage.ibb.chunk import Position
from binlog_storage.ibb.xa import Xid

__all__ = [
    "LARGE_GROUP_BYTES",
    "BinlogEngine",
    "BinlogFile",
    "EngineAdmin",
    "EngineReader",
    "EngineWriter",
    "GroupBatch",
    "GroupMark",
    "GroupWriter",
    "Hold",
    "LargeGroup",
    "Located",
    "OpenBinlog",
    "PlacedBatch",
    "PlacedGroup",
    "Position",
    "Stalled",
    "StartPoint",
    "Xid",
]
