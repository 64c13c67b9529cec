"""Messages for people beside errors, and the form of a statement in a message."""

from __future__ import annotations

import logging
import warnings
from typing import Final

from binlog_protocol.gtid import BinlogState, SlavePosition

_log = logging.getLogger(__name__)

_SHOWN: Final = 200  # letters of a statement


def tell(text: str) -> None:
    """A warning, for those who look at a log and those who look at a screen."""
    _log.warning("%s", text)
    warnings.warn(text, stacklevel=3)


def tell_gap(path: str, start: SlavePosition, oldest: BinlogState) -> None:
    """Warn of groups behind `start` that were purged, for failOnDataLoss=false."""
    lost = []
    for gtid in oldest.position():
        seen = start.get(gtid.domain_id)
        if seen is None or seen.seq_no < gtid.seq_no:
            lost.append(f"behind {'the beginning' if seen is None else seen} up to {gtid}")
    tell(
        f"{path}: groups that are wanted were purged: {', '.join(lost)}; "
        "they are left out, as failOnDataLoss=false says"
    )


def shown(sql: str) -> str:
    """A statement, shortened for a message."""
    return sql if len(sql) <= _SHOWN else sql[:_SHOWN] + "..."
