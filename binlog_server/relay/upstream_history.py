"""An upstream's history, as the lists in its stream tell it, compared with the store.

A MariaDB master begins each binlog file with the state at its end of the one before (GTID_LIST), and sends such a list
of its own making when it has come to where the replica begins. A stream that was right so far has brought just that:
the last group of each domain there is the last one here. After RESET MASTER it is another one: the master sends nothing
of its new first file to those who are connected, and goes on with the next one, which begins with the new state.

What the lists cannot tell: a new history that has the number, in the same domain and of the same server, from which
a replica wants to go on.
"""

from __future__ import annotations

from binlog_protocol.events.gtid_list import GtidList
from binlog_protocol.events.header import FLAG_ARTIFICIAL
from binlog_protocol.gtid import Gtid
from binlog_storage.engine import EngineReader

from binlog_server.relay.gate import Gate, HistoryBegunAnew


class UpstreamHistory:
    """The history in one connection, from its dump command on. `compare` needs all groups before it in the store."""

    def __init__(self, engine: EngineReader, gate: Gate) -> None:
        self._engine = engine
        self._gate = gate
        self._start = engine.binlog_state()
        # The stream has come to where we began in these; before that it has older groups, which are not sent.
        self._reached: set[int] = set()

    def compare(self, found: GtidList) -> None:
        """The next list of the stream, in any thread. Raises `HistoryBegunAnew`."""
        ours = self._engine.binlog_state()
        made_for_us = bool(found.header_flags & FLAG_ARTIFICIAL)
        for domain_id, theirs in found.lasts().items():
            stored = ours.last(domain_id)
            if stored is not None and self._gate.stores_all_of(domain_id):
                self._compare(domain_id, theirs, stored, made_for_us=made_for_us)

    def _compare(self, domain_id: int, theirs: Gtid, stored: Gtid, *, made_for_us: bool) -> None:
        if theirs == stored:
            self._reached.add(domain_id)
        elif made_for_us:
            return  # of other domains than the one that it is about it may be old
        elif domain_id in self._reached or self._has_come(stored):
            raise HistoryBegunAnew(_difference(theirs, stored))

    def _has_come(self, stored: Gtid) -> bool:
        """Whether the group came on this connection, which has brought all of its domain since it began."""
        domain_id = stored.domain_id
        return self._gate.owns(domain_id) and stored != self._start.last(domain_id)


def _difference(theirs: Gtid, stored: Gtid) -> str:
    return (
        f"a binlog file of it begins behind {theirs}, but {stored} is stored already: its binlog has begun anew, as by "
        "RESET MASTER, and groups may be missing; begin anew here, too: RESET MASTER, SET GLOBAL gtid_slave_pos, "
        "replicas from a backup"
    )
