"""Messages for people beside errors, and the forms of statements and texts in messages."""

from __future__ import annotations

import logging
import warnings
from typing import Final

from binlog_protocol.gtid import BinlogState, SlavePosition

from binlog_pipeline.wanted import unreached

_log = logging.getLogger(__name__)

_SHOWN: Final = 200  # letters of a statement


def tell(text: str) -> None:
    """A warning, for those who look at a log and those who look at a screen."""
    _log.warning("%s", text)
    warnings.warn(text, stacklevel=3)


def tell_gap(path: str, start: SlavePosition, oldest: BinlogState) -> None:
    """Warn of groups behind `start` that were purged, for failOnDataLoss=false."""
    lost = [
        f"behind {start.get(gtid.domain_id) or 'the beginning'} up to {gtid}"
        for gtid in unreached(oldest.position(), start)
    ]
    tell(
        f"{path}: groups that are wanted were purged: {', '.join(lost)}; "
        "they are left out, as failOnDataLoss=false says"
    )


def shown(sql: str) -> str:
    """A statement, shortened for a message."""
    return sql if len(sql) <= _SHOWN else sql[:_SHOWN] + "..."


def doubted(gtid: str, sql: str, why: str) -> str:
    """A doubt about what is behind a statement."""
    return f"{gtid}: {shown(sql)}: {why}"


def readable(text: str) -> str:
    """A text of the log with U+FFFD for bytes that are no UTF-8, as neither Arrow nor JSON takes surrogates."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
