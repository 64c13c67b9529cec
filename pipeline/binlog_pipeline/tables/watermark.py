"""Which changes are new to a target: behind its GTID position, domain by domain. So what comes twice counts once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from binlog_protocol.gtid import Gtid, SlavePosition

from binlog_pipeline.groups import Integers


def gtid_columns(changes: pa.Table) -> tuple[Integers, Integers, Integers]:
    """Domain, server and number of the GTIDs of changes."""
    gtids = changes.column("_gtid")
    domain, server, seq = (
        pc.struct_field(gtids, name).to_numpy() for name in ("domain", "server", "seq")
    )
    return domain, server, seq


def behind(changes: pa.Table, position: SlavePosition) -> pa.Table:
    """The changes whose GTIDs are not within `position`."""
    if not len(changes) or not len(position):
        return changes
    domain, _, seq = gtid_columns(changes)
    is_new = np.ones(len(changes), np.bool_)
    for gtid in position:
        is_new &= (domain != gtid.domain_id) | (seq > gtid.seq_no)
    return changes if is_new.all() else changes.filter(pa.array(is_new))


def position_behind(changes: pa.Table, position: SlavePosition) -> SlavePosition:
    """The position with the last GTIDs of the changes."""
    if not len(changes):
        return position
    domain, server, seq = gtid_columns(changes)
    for number in np.unique(domain).tolist():
        here = np.flatnonzero(domain == number)
        last = int(here[np.argmax(seq[here])])
        known = position.get(number)
        if known is None or known.seq_no < int(seq[last]):
            position = position.with_gtid(Gtid(number, int(server[last]), int(seq[last])))
    return position


def gtid_text(changes: pa.Table, i: int) -> str:
    """The GTID of one change."""
    gtid = changes.column("_gtid")[i].as_py()
    return f"{gtid['domain']}-{gtid['server']}-{gtid['seq']}"
