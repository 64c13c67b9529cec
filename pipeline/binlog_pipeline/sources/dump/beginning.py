"""What a server says of its binlog as a whole: where it begins, and its state. Each question has a connection."""

from __future__ import annotations

from typing import Any, Final

from binlog_protocol.connection.beginning import ServerQuestion, answered
from binlog_protocol.connection.beginning import beginning as beginning_of
from binlog_protocol.gtid import BinlogState, SlavePosition

from binlog_pipeline.sources.dump.address import ServerAddress, random_server_id
from binlog_pipeline.sources.dump.link import ServerLink
from binlog_pipeline.sources.dump.refusals import CAUGHT, source_error

_LOOKING: Final = "looking for where its binlog begins"


def beginning(address: ServerAddress) -> SlavePosition:
    """The position at which the log of a server begins. Raises `SourceError`."""

    def ask(question: ServerQuestion) -> Any:
        with ServerLink.open(address) as link:
            return link.ask(question)

    try:
        return answered(beginning_of(random_server_id), ask)
    except CAUGHT as error:
        raise source_error(address, error, _LOOKING) from None


def state_of(address: ServerAddress, doing: str) -> BinlogState:
    """The GTID binlog state of a server. Raises `SourceError`; `doing`: see `source_error`."""
    try:
        with ServerLink.open(address) as link:
            return link.binlog_state()
    except CAUGHT as error:
        raise source_error(address, error, doing) from None
