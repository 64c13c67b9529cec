"""All that looks into a group of a store: replicas of any age, SHOW BINLOG EVENTS, scripts, objects, Spark's rows.

A door has let the group in, so that every replica must be able to get it; what is inside its events may be anything,
about which the others may say so, in an error of ours.
"""

from __future__ import annotations

import contextlib
import itertools
import json
from typing import Final

from binlog_protocol.dump.weaker_clients import SlaveCapability
from binlog_protocol.errors import ProtocolError
from binlog_protocol.event_text.choice import Choice
from binlog_protocol.event_text.info import event_info, event_type_name
from binlog_protocol.event_text.json_form import JsonForm
from binlog_protocol.event_text.sql_form import SqlForm
from binlog_protocol.events.header import split_events
from binlog_protocol.groups.group_content import GroupContent
from binlog_protocol.row_columns import RowCounter, RowDecoder, UnrepresentableValue
from binlog_storage.disk.read_only_disk import ReadableDisk
from binlog_storage.engine import PlacedGroup, Position
from binlog_storage.verify.verify import Finding, Severity, Verifier

from binlog_server.dumps.frame_style import ClassicStyle, EngineStyle
from tests.fuzz.target import Wrong

_BEGIN: Final = Position(0, 1 << 20)
_END: Final = Position(0, 1 << 21)
_STYLES: Final = [
    (ClassicStyle if classic else EngineStyle)(
        annotate, skip, checksum=checksum, capability=capability
    )
    for annotate, skip, classic, checksum in itertools.product((True, False), repeat=4)
    for capability in (SlaveCapability if classic else (SlaveCapability.GTID,))
]


def read_by_all(group: bytes) -> None:
    """A whole group in normal form, behind its GTID event."""
    for style in _STYLES:
        style.some(_BEGIN, [PlacedGroup(group, _END)])
    events = list(split_events(group))
    content = GroupContent()
    for event in events:
        event_type_name(event)
        with contextlib.suppress(ProtocolError):
            event_info(event)
        content.add(event)
    content.finish()
    everything = Choice()
    for verbose in (0, 2):
        with contextlib.suppress(ProtocolError):
            script = SqlForm(
                everything, verbose=verbose, save_file=lambda number, data, first: b"/file"
            )
            b"".join([script.head(), *script.group(events, "here"), script.tail()])
    with contextlib.suppress(ProtocolError):
        for found in JsonForm(everything).group(events):
            json.dumps(found, ensure_ascii=False, default=str).encode("utf-8", "replace")
    for decoder in (RowDecoder(), RowCounter()):
        with contextlib.suppress(ProtocolError, UnrepresentableValue):
            decoder.add([group])
            decoder.take()


def require_sound(disk: ReadableDisk) -> None:
    """`verify` finds no damage in the store. Raises `Wrong`."""
    found: list[Finding] = []
    Verifier(disk, found.append).run()
    damage = [str(one) for one in found if one.severity is Severity.ERROR]
    if damage:
        raise Wrong(f"the store is damaged: {damage[:3]}")
