"""Offsets of a stream: GTID positions. What Spark writes into a checkpoint is this, as JSON.

    {"v": 1, "gtid": "0-1-5000,5-2-12"}

A GTID position means the same in every copy of a history, so a checkpoint outlives the directory, the server or the
archive that it was made with.
"""

from __future__ import annotations

from typing import Any, Final

from binlog_protocol.errors import ServerError
from binlog_protocol.gtid import SlavePosition

from binlog_pipeline.errors import SourceError

_VERSION: Final = 1


def to_offset(position: SlavePosition) -> dict[str, Any]:
    """A GTID position as an offset of Spark, with the domains in order: Spark compares offsets as text."""
    return {"v": _VERSION, "gtid": ",".join(map(str, sorted(position)))}


def from_offset(offset: dict[str, Any]) -> SlavePosition:
    """A GTID position from an offset of Spark. Raises `SourceError`."""
    try:
        if offset["v"] != _VERSION:
            raise SourceError(
                f"the checkpoint is of version {offset['v']}; this program reads {_VERSION}"
            )
        return SlavePosition.parse(offset["gtid"])
    except (KeyError, TypeError, ServerError):
        raise SourceError(
            f"{offset!r} in the checkpoint is no offset of the source binlog"
        ) from None
