"""Where ranges of a server's history begin and end, by its binlog state."""

from __future__ import annotations

from typing import Final

from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition

from binlog_pipeline.errors import SourceError
from binlog_pipeline.sources.dump.address import ServerAddress
from binlog_pipeline.sources.dump.beginning import beginning
from binlog_pipeline.telling import tell_gap
from binlog_pipeline.wanted import Wanted, unreached

_CUT_FROM: Final = 50_000
"""Numbers in a range from which on two connections read it: a second one has to pay for its search."""


def without_gap(address: ServerAddress, position: SlavePosition) -> SlavePosition:
    """The position, or the beginning of what the server still has where that is later; it warns then."""
    oldest = beginning(address)
    missed = unreached(oldest, position)
    if missed:
        tell_gap(address.name, position, BinlogState(oldest))
    for gtid in missed:
        position = position.with_gtid(gtid)
    return position


def ends_of(name: str, wanted: Wanted, start: SlavePosition, state: BinlogState) -> list[Gtid]:
    """The end of the dump in each wanted domain: a group that the server has, with all wanted groups up to it.

    Raises `SourceError` if the log ends before what is wanted does.
    """
    stop = state.position() if wanted.gtids.stop is None else wanted.gtids.stop
    found = []
    for end in unreached(stop, start):
        domain_id = end.domain_id
        if wanted.domains is not None and domain_id not in wanted.domains:
            continue
        last = state.last(domain_id)
        if last is None or last.seq_no < end.seq_no:
            raise SourceError(
                f"{name}: groups up to {end} are wanted, but the binlog ends at '{state.position()}'; wait until the "
                "server has them, or name an earlier end"
            )
        # Of a server that has not come so far itself nothing would ever end the dump.
        reached = state.get(domain_id, end.server_id)
        found.append(end if reached is not None and reached >= end.seq_no else last)
    return found


def middle_of(start: list[Gtid], until: list[Gtid], state: BinlogState) -> Gtid | None:
    """The group at which a range is cut for two connections, if that is worth it and sound; else None."""
    if len(until) != 1:
        return None
    (end,) = until
    low = start[0].seq_no if start else 0
    if end.seq_no - low <= _CUT_FROM or has_several_servers(state, {end.domain_id}):
        return None
    return end._replace(seq_no=(low + end.seq_no) // 2)


def has_several_servers(state: BinlogState, domains: set[int]) -> bool:
    """Whether to one of these domains more than one server has written."""
    found = [gtid.domain_id for gtid in state.entries() if gtid.domain_id in domains]
    return len(found) > len(set(found))
