"""A replica of the simulation: asks by GTID, gets groups, checks each against the model."""

from __future__ import annotations

from collections.abc import Collection

from binlog_protocol.gtid import Gtid, SlavePosition
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.engine import Pin, Position

from tests.storage.groups import gtid_of


class Replica:
    """Has the first `index` groups of the model, of epoch `epoch`.

    Args:
        position: what it has; the next group that it wants is number `index` of the model.
    """

    def __init__(self, name: str, epoch: int, index: int, position: SlavePosition) -> None:
        self.name = name
        self.epoch = epoch
        self.index = index
        self._position = {gtid.domain_id: gtid for gtid in position}
        self._at: Position | None = None
        self._hold: Pin | None = None
        self._waiting: dict[int, Gtid] = {}

    @property
    def connected(self) -> bool:
        """Whether it reads."""
        return self._at is not None

    def behind(self, engine: IbbEngine) -> bool:
        """Whether there is more to read."""
        return self._at is not None and self._at < engine.durable_end

    @property
    def position(self) -> SlavePosition:
        """The last GTID of each domain."""
        return SlavePosition(self._position.values())

    def forget_domains(self, kept: Collection[int]) -> None:
        """What an administrator does to gtid_slave_pos after DELETE_DOMAIN_ID: a domain may come back as another."""
        self._position = {d: gtid for d, gtid in self._position.items() if d in kept}

    def connect(self, engine: IbbEngine) -> None:
        """Find the place. Raises `PositionPurged`."""
        start = engine.find_start(self.position)
        self._at = start.position
        self._hold = engine.hold(self.name, self._at, dump=True)
        self._waiting = {
            g.domain_id: g for g in self._position.values() if start.state.last(g.domain_id) != g
        }

    def disconnect(self) -> None:
        """It comes again by GTID."""
        if self._hold is not None:
            self._hold.release()
        self._hold = self._at = None

    def lost_connection(self) -> None:
        """The store has gone, and all that it held."""
        self._hold = self._at = None

    def read(self, engine: IbbEngine, groups: list[bytes]) -> int:
        """One batch, held against the model's groups. Returns how many groups were new. Raises `PositionPurged`."""
        assert self._at is not None
        assert self._hold is not None
        batch = engine.read(self._at)
        new = 0
        for payload in batch.groups:
            gtid = gtid_of(payload)
            if gtid is not None and self._is_new(gtid):
                self._take(payload, gtid, groups)
                new += 1
        self._at = batch.end
        self._hold.move(self._at.file_no)
        return new

    def _is_new(self, gtid: Gtid) -> bool:
        """The rule of MariaDB's scan: in a domain of the position, everything up to that GTID is passed over."""
        target = self._waiting.get(gtid.domain_id)
        if target is None:
            return True
        if gtid.server_id == target.server_id and gtid.seq_no >= target.seq_no:
            del self._waiting[gtid.domain_id]
            return gtid.seq_no > target.seq_no
        return False

    def _take(self, payload: bytes, gtid: Gtid, groups: list[bytes]) -> None:
        while self.index < len(groups) and gtid_of(groups[self.index]) is None:
            self.index += 1  # a search may jump start markers
        assert self.index < len(groups), f"{self.name} got {gtid}, which was never appended"
        expected = groups[self.index]
        assert payload == expected, (
            f"{self.name} got {gtid} of {len(payload)} bytes; next is group {self.index}, "
            f"{gtid_of(expected)} of {len(expected)} bytes"
        )
        self.index += 1
        self._position[gtid.domain_id] = gtid
