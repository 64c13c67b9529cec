"""Replication events: one module per format, the public names here."""

from protocol.events.checksum import (
    CHECKSUM_SIZE,
    ChecksumAlgorithm,
    EventChecksumError,
    append_checksum,
    normal_form,
    strip_checksum,
    verify_checksum,
)
from protocol.events.event_type import EventType
from protocol.events.format_description import FormatDescription
from protocol.events.gtid import GtidEvent, GtidExtraFlags, GtidFlags, XaId, gtid_of
from protocol.events.gtid_list import GtidList, GtidListFlags
from protocol.events.header import HEADER_SIZE, EventHeader, build_event
from protocol.events.heartbeat import HeartbeatEvent
from protocol.events.query import QueryEvent
from protocol.events.rotate import RotateEvent
from protocol.events.xa_prepare import XaPrepareEvent
from protocol.events.xid import XidEvent

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
