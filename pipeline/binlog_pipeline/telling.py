"""Messages for people beside errors, and the forms of statements and texts in messages."""

from __future__ import annotations

import logging
import re
import warnings
from typing import Final

from binlog_protocol.gtid import BinlogState, SlavePosition

from binlog_pipeline.wanted import unreached

_log = logging.getLogger(__name__)

LOG_ROWS: Final = (
    "set binlog_format=ROW on the server (tables that are versioned by transaction ids are logged as text "
    "all the same)"
)
"""What makes a server log rows. Tried with 10.11 and 11.8."""
_SHOWN: Final = 200  # letters of a statement
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]*m")
_REFUSED: Final = re.compile(
    r"\b40[13] |access.?denied|InvalidAccessKeyId|SignatureDoesNot", re.IGNORECASE
)
_NO_BUCKET: Final = re.compile(r"no.?such.?bucket|bucket does not exist", re.IGNORECASE)


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


def told_by_store(where: object, error: Exception) -> str:
    """What a library says of an object store, and what to look at."""
    text = f"{where}: {_COLOURS.sub('', str(error))}"
    if _NO_BUCKET.search(text):
        return f"{text}; is the bucket there? It is not made here"
    if _REFUSED.search(text):
        return (
            f"{text}; are the keys in the environment (AWS_ACCESS_KEY_ID ...), or in the catalog's configuration, "
            "those of that store, and may they read and write there?"
        )
    return text


def shown(sql: str) -> str:
    """A statement, shortened for a message."""
    return sql if len(sql) <= _SHOWN else sql[:_SHOWN] + "..."


def doubted(gtid: str, sql: str, why: str) -> str:
    """A doubt about what is behind a statement."""
    return f"{gtid}: {shown(sql)}: {why}"


def readable(text: str) -> str:
    """A text of the log with U+FFFD for bytes that are no UTF-8, as neither Arrow nor JSON takes surrogates."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
