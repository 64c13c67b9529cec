"""Row events, and one plain decoder and encoder per value of them.

=====================================  ======================================================================
column                                 Python value (NULL is None)
=====================================  ======================================================================
TINYINT .. BIGINT, YEAR, BIT           int; an integer whose signedness was not logged is taken as signed
FLOAT, DOUBLE                          float; a FLOAT is the double that equals it, not its shortest decimal
DECIMAL                                decimal.Decimal with the scale of the column
DATE                                   datetime.date; `ZeroDate` for zero and partial dates
DATETIME                               datetime.datetime without zone; `ZeroDate`
TIMESTAMP                              datetime.datetime in UTC; `ZeroDate` for 0000-00-00 00:00:00
TIME                                   datetime.timedelta
CHAR, VARCHAR, TEXT, JSON              str; `UndecodedText` where Python has no codec or the bytes are invalid;
                                       bytes when no collation was logged
BINARY, VARBINARY, BLOB                bytes; the zeros that the log leaves out of a BINARY are put back
ENUM                                   str, bytes if its character set is binary, `UndecodedText`; `EnumIndex` when
                                       no labels were logged; "" for the error value
SET                                    the same, members joined by commas; `SetBits` when no labels were logged, and
                                       for members that are no text in their character set
GEOMETRY                               `Geometry`: SRID and WKB
column of `ColumnKind` UUID, INET4, INET6    uuid.UUID, ipaddress.IPv4Address, ipaddress.IPv6Address (bytes without it)
column of `ColumnKind` VECTOR                tuple of float (bytes without it)
COMPRESSED columns                     as the plain type
=====================================  ======================================================================
"""

from binlog_protocol.events.rows.rows_event import (
    ABSENT,
    ROWS_TYPES,
    Absent,
    ChangeKind,
    Image,
    RowChange,
    RowsEvent,
    RowsFlags,
    RowsHead,
)
from binlog_protocol.events.rows.strings import EnumIndex, Geometry, SetBits
from binlog_protocol.events.rows.temporal import ZeroDate
from binlog_protocol.events.rows.value import Value, read_value, value_size, write_value

__all__ = [
    "ABSENT",
    "ROWS_TYPES",
    "Absent",
    "ChangeKind",
    "EnumIndex",
    "Geometry",
    "Image",
    "RowChange",
    "RowsEvent",
    "RowsFlags",
    "RowsHead",
    "SetBits",
    "Value",
    "ZeroDate",
    "read_value",
    "value_size",
    "write_value",
]
