"""Whether positions are of a log's history. They are compared by number, which another history has as well.

Behind a failover to a server that had not got the last groups of the old one their numbers are those of other groups.
A binlog state tells: it has the last number of each server that has written. Where the old server has written again
since, what has the number tells. What neither can tell is that a server which had lost its own last groups gave their
GTIDs to others: positions know nothing of what groups say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition
from binlog_storage.log.ranges import GtidRange

from binlog_pipeline.errors import DataLost
from binlog_pipeline.groups import Groups
from binlog_pipeline.wanted import Numbers, Wanted, unreached


def require_had(name: str, log: str, position: SlavePosition, state: BinlogState) -> None:
    """Whether the log, which has come to `state`, has been at the position. Raises `DataLost`.

    Domains that the log does not know may have been deleted there (FLUSH BINARY LOGS DELETE_DOMAIN_ID), but not all.

    Args:
        log: what it is, for the message.
    """
    known = {*state.domains()}
    there = [gtid for gtid in position if gtid.domain_id in known]
    lacking = [gtid for gtid in there if not state.has(gtid)] if there else [*position]
    # Of what it has not come to yet, another number tells nothing.
    for gtid in _reached(lacking, state):
        raise replaced(name, log, gtid, state)
    if lacking:
        raise DataLost(
            f"{name}: what is behind {lacking[0]} is wanted, but that is not in the {log}, which has come to "
            f"'{state}': it is another one, is behind, or has begun anew (RESET MASTER); wait until it has caught up, "
            "name the right one, or begin with a new checkpoint"
        )


def has_passed(name: str, log: str, position: SlavePosition, state: BinlogState) -> bool:
    """Whether the log, which has come to `state`, has come as far as the position.

    Raises `DataLost` if it did, without having been there.
    """
    known = {*state.domains()}
    if unreached([gtid for gtid in position if gtid.domain_id in known], state.position()):
        return False
    require_had(name, log, position, state)
    return True


def require_there(
    name: str,
    read: Callable[[Wanted], Iterable[Groups]],
    log: str,
    position: SlavePosition,
    *,
    before: BinlogState,
    state: BinlogState,
) -> None:
    """Whether the numbers of the position are those of its groups, where several servers have written to a domain.

    A number that no group has, and groups in front of the beginning, are let through. Raises `DataLost`, and as `read`.

    Args:
        read: reads some of the log, for each such domain.
        before: the binlog state in front of the first group that is there.
    """
    for gtid in _reached(position, state):
        domain_id, _, number = gtid
        first = before.last(domain_id)
        if len(state.seq_nos[domain_id]) == 1 or (first is not None and first.seq_no > number):
            continue
        if first is not None and first.seq_no == number:
            found = [first]
        else:
            begin = GtidRange(position.with_gtid(gtid._replace(seq_no=number - 1)))
            only = Wanted(begin, domains=frozenset([domain_id]), numbers=Numbers(number, number))
            found = [groups.gtid(i) for groups in read(only) for i in range(len(groups))]
        if found and gtid not in found:
            raise replaced(name, log, gtid, state)


def in_place_of(position: SlavePosition, groups: Groups) -> Gtid | None:
    """A GTID of the position whose number is that of a group of another server."""
    for gtid in position:
        same = (groups.domain == gtid.domain_id) & (groups.seq == gtid.seq_no)
        if (same & (groups.server != gtid.server_id)).any():
            return gtid
    return None


def replaced(name: str, log: str, gtid: Gtid, state: BinlogState) -> DataLost:
    """The error for a GTID whose number is that of another group."""
    return DataLost(
        f"{name}: {gtid} was read before, or is named, but the {log} has never had that, and has come to '{state}': "
        "it has another history, as behind a failover to a server that had not got the last changes of the old one. "
        "Name a source that has it, or make anew what was made of it: binlog-spark load --again, another target, "
        "another --topic-prefix, a new checkpoint"
    )


def _reached(gtids: Iterable[Gtid], state: BinlogState) -> list[Gtid]:
    """Those whose numbers the log has come to."""
    end = state.position()
    return [gtid for gtid in gtids if not unreached([gtid], end)]
