"""The groups of one dump, from the command to its end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import numpy as np
from binlog_protocol.errors import ProtocolError
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.gtid_list import GtidList, GtidListFlags
from binlog_protocol.events.header import LENGTH_OFFSET
from binlog_protocol.groups.event_group import EventGroup, Incident, StartMarker
from binlog_protocol.groups.group_runs import GroupRun
from binlog_protocol.groups.group_stream import GroupPart, GroupStream, StreamEnded, StreamEvent
from binlog_protocol.gtid import Gtid, SlavePosition
from binlog_protocol.wire.semi_sync import ReplicaPlace
from binlog_storage.engine import LARGE_GROUP_BYTES

from binlog_pipeline.errors import DataLost
from binlog_pipeline.groups import Groups
from binlog_pipeline.sources.dump.large_group import LargeGroups
from binlog_pipeline.sources.dump.link import ServerLink
from binlog_pipeline.sources.dump.places import file_number, place_of, placed
from binlog_pipeline.sources.dump.refusals import CAUGHT, EndedEarly
from binlog_pipeline.telling import tell

_BATCH_BYTES: Final = 1 << 20
_NO_LIMIT: Final = 1 << 62
# Who follows reads what comes in so many seconds at once, as thousands of commits a second would wake it thousands of
# times; unless more than so many bytes come in them.
_TOGETHER_S: Final = 0.004
_TOGETHER_BYTES: Final = 1 << 16


class _Gathered:
    """Small groups until they are given out."""

    def __init__(self) -> None:
        self.bytes = 0
        self._payloads: list[bytes] = []
        self._files: list[int] = []
        self._offsets: list[int] = []

    def add_run(self, run: GroupRun, file_no: int) -> None:
        data = bytes(run.payloads)
        ends = run.ends.tolist()
        self._payloads += [data[a:b] for a, b in zip([0, *ends], ends, strict=False)]
        self._files += [file_no] * len(ends)
        self._offsets += run.end_positions
        self.bytes += len(data)

    def add(self, payload: bytes, file_no: int, offset: int) -> None:
        self._payloads.append(payload)
        self._files.append(file_no)
        self._offsets.append(offset)
        self.bytes += len(payload)

    def groups(self) -> Groups:
        return placed(
            Groups(self._payloads, np.array(self._files), np.array(self._offsets, np.int64))
        )


class DumpStream:
    """Groups of one connection, on which the dump command was just sent.

    Args:
        file_names: learns the names of binlog files by their numbers.
        position: behind which the dump begins. Numbers must ascend from there in each domain.
        end: where it ends at the latest, if the server was not told. There may be more than that in the last batch.
        eager: what has come is given out when no more is there at the moment, else about a MiB at a time.
    """

    def __init__(
        self,
        link: ServerLink,
        position: SlavePosition,
        checksum_algorithm: int,
        large: LargeGroups,
        file_names: dict[int, str],
        *,
        end: SlavePosition | None = None,
        eager: bool = False,
        passes_incidents: bool = False,
    ) -> None:
        self._link = link
        self._place = ReplicaPlace()
        self._stream = GroupStream(
            link.machine,
            checksum_algorithm,
            group_bytes_max=_NO_LIMIT,
            large_bytes=LARGE_GROUP_BYTES,
            piece_bytes=_BATCH_BYTES,
            place=self._place,
        )
        self._large = large
        self._hangs_up = end is not None
        self._ends = {gtid.domain_id: gtid.seq_no for gtid in end or ()}  # not reached yet
        self._eager = eager
        self._passes_incidents = passes_incidents
        self._gathered = _Gathered()
        self._last = {gtid.domain_id: gtid for gtid in position}
        self._file_no = 0
        self._file_names = file_names
        self._until_reached = False

    def groups(self) -> Iterator[Groups]:
        """Ends where the dump was to end. Raises `RemoteError`, `OSError`, `ProtocolError`, `DataLost`."""
        try:
            yield from self._groups()
            yield from self._give()
        except (*CAUGHT, DataLost):
            yield from self._give()  # what came whole in front of it
            raise
        finally:
            self._large.discard()

    def _groups(self) -> Iterator[Groups]:
        received = 0
        while True:
            match self._stream.next():
                case None:
                    if self._eager and self._gathered.bytes and not self._link.is_readable():
                        yield from self._give()
                    if self._eager and received < _TOGETHER_BYTES:
                        time.sleep(_TOGETHER_S)
                    received = self._link.receive()
                    continue
                case GroupRun() as run:
                    self._check_number(run.gtid(0))
                    self._passed(run.last)
                    self._gathered.add_run(run, self._file_no)
                case EventGroup() as whole:
                    found = self._finish(whole)
                    if found is not None:
                        yield from self._give()
                        yield found
                case GroupPart(events=events):
                    self._large.add(b"".join(events))
                case StreamEvent() as event:
                    self._look_at(event)
                case StartMarker():
                    self._large.discard()
                case Incident() as incident:
                    self._meet(incident)
                case StreamEnded():
                    if self._until_reached:
                        return
                    raise EndedEarly("the server has ended the stream before the end of the range")
            if self._has_ended():
                return
            if self._gathered.bytes >= _BATCH_BYTES:
                yield from self._give()

    def _passed(self, gtid: Gtid) -> None:
        self._last[gtid.domain_id] = gtid
        if self._ends.get(gtid.domain_id, gtid.seq_no + 1) <= gtid.seq_no:
            del self._ends[gtid.domain_id]

    def _has_ended(self) -> bool:
        return self._hangs_up and not self._ends and self._stream.unfinished is None

    def _give(self) -> Iterator[Groups]:
        if self._gathered.bytes:
            gathered, self._gathered = self._gathered, _Gathered()
            yield gathered.groups()

    def _look_at(self, event: StreamEvent) -> None:
        if event.type == EventType.ROTATE:
            self._file_no = file_number(self._place.file)
            self._file_names[self._file_no] = self._place.file
        elif event.type == EventType.GTID_LIST:
            flags = GtidList.parse(event.event).flags
            self._until_reached |= bool(flags & GtidListFlags.UNTIL_REACHED)

    def _meet(self, incident: Incident) -> None:
        behind = SlavePosition(self._last.values())
        text = f"behind '{behind}' changes are missing in the binlog of the server itself: {incident.event}"
        if not self._passes_incidents:
            raise DataLost(
                f"{text}; see what is missing in its error log, and say failOnDataLoss=false to go on behind it"
            )
        tell(text)

    def _finish(self, whole: EventGroup) -> Groups | None:
        """The group, if it is a large one."""
        gtid, payload = whole.gtid, whole.payload
        self._check_number(gtid)
        before = SlavePosition(self._last.values())
        self._passed(gtid)
        end = place_of(gtid, self._file_no, *self._stream.span)
        if not self._large.is_large and len(payload) <= LARGE_GROUP_BYTES:
            self._gathered.add(payload, end.file_no, end.offset)
            return None
        head_size = int.from_bytes(payload[LENGTH_OFFSET : LENGTH_OFFSET + 4], "little")
        self._large.add(payload[head_size:])
        return Groups.of_large(self._large.finish(payload[:head_size], before, gtid, end))

    def _check_number(self, gtid: Gtid) -> None:
        last = self._last.get(gtid.domain_id)
        if last is not None and gtid.seq_no <= last.seq_no:
            raise ProtocolError(
                f"{gtid} comes behind {last}: where numbers go back, a position cannot tell what was read. That is so "
                "where two masters were written to at a time without gtid_strict_mode; read a copy that has them in "
                "order"
            )
