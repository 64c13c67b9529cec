"""Replication events: one module per format, the public names here."""

from binlog_protocol.events.checksum import (
    CHECKSUM_SIZE,
    ChecksumAlgorithm,
    EventChecksumError,
    append_checksum,
    normal_form,
    strip_checksum,
    verify_checksum,
)
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.format_description import FormatDescription
from binlog_protocol.events.gtid import GtidEvent, GtidExtraFlags, GtidFlags, XaId, gtid_of
from binlog_protocol.events.gtid_list import GtidList, GtidListFlags
from binlog_protocol.events.header import HEADER_SIZE, EventHeader, build_event
from binlog_protocol.events.heartbeat import HeartbeatEvent
from binlog_protocol.events.query import QueryEvent
from binlog_protocol.events.rotate import RotateEvent
from binlog_protocol.events.xa_prepare import XaPrepareEvent
from binlog_protocol.events.xid import XidEvent

__all__ = [
    "CHECKSUM_SIZE",
    "HEADER_SIZE",
    "ChecksumAlgorithm",
    "EventChecksumError",
    "EventHeader",
    "EventType",
    "FormatDescription",
    "GtidEvent",
    "GtidExtraFlags",
    "GtidFlags",
    "GtidList",
    "GtidListFlags",
    "HeartbeatEvent",
    "QueryEvent",
    "RotateEvent",
    "XaId",
    "XaPrepareEvent",
    "XidEvent",
    "append_checksum",
    "build_event",
    "gtid_of",
    "normal_form",
    "strip_checksum",
    "verify_checksum",
]
