"""Following a server: a lasting dump, read ahead in a thread, and a second connection that is asked where the log ends.

Whoever plans a batch looks at each group once, and workers read what was planned by dumps of their own. So what comes
is held only until it was looked at.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import numpy as np
from binlog_protocol.events.rotate import FIRST_EVENT_POSITION
from binlog_protocol.gtid import BinlogState, SlavePosition
from binlog_storage.ibb.chunk import Position
from binlog_storage.log.ranges import GtidRange

from binlog_pipeline.errors import SourceError
from binlog_pipeline.groups import Groups, after
from binlog_pipeline.sources.dump.address import ServerAddress
from binlog_pipeline.sources.dump.file_places import FilePlace, FilePlaces, finds_slowly
from binlog_pipeline.sources.dump.history import check_history, has_several_servers, without_gap
from binlog_pipeline.sources.dump.link import SILENCE_S, ServerLink
from binlog_pipeline.sources.dump.read_ahead import ReadAhead
from binlog_pipeline.sources.dump.reader import DumpReader
from binlog_pipeline.sources.dump.refusals import CAUGHT, may_pass, source_error
from binlog_pipeline.wanted import Wanted

_RETRY_S: Final = 0.1


class ServerFeed:
    """See `Feed`. Goes on where it ended, if that is asked for; otherwise it connects again."""

    def __init__(
        self,
        address: ServerAddress,
        *,
        fail_on_data_loss: bool = True,
        places: FilePlaces | None = None,
    ) -> None:
        """`places`: learns where positions are in files, if the server is slow to find them."""
        self._address = address
        self._places = places
        self._reader: DumpReader | None = None
        self._fail_on_data_loss = fail_on_data_loss
        self._asked: ServerLink | None = None
        self._ahead: ReadAhead | None = None
        # What was given out last, as not all of it may have been taken: the position in front of it, and behind it.
        self._held: Groups | None = None
        self._before = self._behind = SlavePosition()
        # Where the last groups in front of these two end.
        self._place_before: Position | None = None
        self._place_behind: Position | None = None

    def after(self, position: SlavePosition, wait_s: float) -> Iterator[Groups]:
        state = self._state()
        check_history(self._address.name, position, state)
        deadline = time.monotonic() + wait_s
        goal = state.position()
        ahead = self._go_to(position, state)
        held, self._held = self._held, None
        if held is not None:
            yield self._given(held)
        came = held is not None
        while not self._has(goal):
            groups = self._take(ahead, SILENCE_S)
            if groups is None:
                raise SourceError(
                    f"{self._address.name}: the binlog is said to end at '{goal}', but for {SILENCE_S:.0f} s nothing "
                    f"came behind '{self._behind}'; is the server stuck?"
                )
            came = True
            yield self._given(groups)
        if came:
            return
        groups = self._take(ahead, max(deadline - time.monotonic(), 0))
        waiting = ahead.waiting
        while groups is not None:
            yield self._given(groups)
            groups = self._take(ahead, 0) if waiting else None
            waiting -= 1

    def close(self) -> None:
        self._disconnect()
        if self._asked is not None:
            self._asked.close()
            self._asked = None

    def _given(self, groups: Groups) -> Groups:
        self._held = groups
        self._before, self._behind = self._behind, after(self._behind, groups)
        self._place_before, self._place_behind = self._place_behind, groups.place(len(groups) - 1)
        return groups

    def _has(self, goal: SlavePosition) -> bool:
        """Whether all up to there was given out."""
        return all(
            (seen := self._behind.get(gtid.domain_id)) is not None and seen.seq_no >= gtid.seq_no
            for gtid in goal
        )

    def _take(self, ahead: ReadAhead, timeout_s: float) -> Groups | None:
        try:
            return ahead.take(timeout_s)
        except BaseException:
            self._disconnect()
            raise

    def _go_to(self, position: SlavePosition, state: BinlogState) -> ReadAhead:
        """A read-ahead whose next groups are behind the position; `_held` is the held part of them."""
        ahead = self._ahead
        # One that has failed meanwhile, while nobody asked: another one may do better.
        if ahead is not None and not ahead.has_failed and self._seek_held(position):
            return ahead
        self._disconnect()
        self._held = None
        if not self._fail_on_data_loss:
            position = without_gap(self._address, position)
        self._behind = position
        self._place_before = self._place_behind = None
        self._reader = DumpReader(
            self._address,
            position,
            strict=has_several_servers(state, set(position.domains())),
            follows=True,
            server_id=self._address.server_id,
            passes_incidents=not self._fail_on_data_loss,
        )
        self._ahead = ReadAhead(self._reader)
        return self._ahead

    def _seek_held(self, position: SlavePosition) -> bool:
        """Drops of what is held what is not behind the position; False if the position is elsewhere."""
        held = self._held
        if position == self._behind:
            if held is not None:
                self._note_place(position, held, len(held))
            self._held = None
            return True
        if held is None:
            return False
        rest = Wanted(GtidRange(start=position)).mask(held)
        first = int(np.argmax(rest)) if rest.any() else len(held)
        numbers = np.arange(len(held))
        if after(self._before, held.some(numbers < first)) != position:
            return False
        self._note_place(position, held, first)
        self._held = held.some(numbers >= first)
        self._behind = position
        self._place_behind = held.place(first - 1) if first else self._place_before
        return True

    def _note_place(self, position: SlavePosition, held: Groups, first: int) -> None:
        """`position` is in front of the group of that number."""
        if not first or self._places is None or self._reader is None or self._asked is None:
            return
        earlier = held.place(first - 2) if first > 1 else self._place_before
        last = held.place(first - 1)
        name = self._reader.file_names.get(last.file_no)
        if earlier is None or name is None or not finds_slowly(self._asked.version):
            return
        begin = earlier.offset if earlier.file_no == last.file_no else FIRST_EVENT_POSITION
        self._places.put(position, FilePlace(name, begin, held.gtid(first - 1)))

    def _disconnect(self) -> None:
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None

    def _state(self) -> BinlogState:
        """The server's GTID binlog state; asked for again if the connection was lost. Raises `SourceError`."""
        deadline = time.monotonic() + self._address.connect_timeout
        while True:
            try:
                if self._asked is None:
                    self._asked = ServerLink.open(self._address)
                return self._asked.binlog_state()
            except CAUGHT as error:
                if self._asked is not None:
                    self._asked.close()
                    self._asked = None
                if not may_pass(error) or time.monotonic() > deadline:
                    raise source_error(
                        self._address, error, "asking where its binlog ends"
                    ) from None
            time.sleep(_RETRY_S)
