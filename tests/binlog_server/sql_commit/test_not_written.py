"""What a client hears when its statement is not written: what passes by itself needs no repair and no restart."""

from __future__ import annotations

import pytest
from binlog_storage.errors import (
    DiskError,
    NoRoom,
    StorageError,
    StoreFailed,
    TooManyOpenFiles,
    WaitGivenUp,
)

from binlog_server.sql_commit.client import not_written


@pytest.mark.parametrize(
    ("error", "errno", "restart"),
    [
        (WaitGivenUp("all others would wait, too"), 1026, False),
        (NoRoom("No space left on device"), 1021, False),
        (TooManyOpenFiles("cannot open"), 1026, False),
        (StoreFailed("an earlier sync failed"), 1026, True),
        (DiskError("Input/output error"), 1026, True),
    ],
)
def test_what_is_advised(error: StorageError, errno: int, restart: bool) -> None:
    told = not_written(error)
    assert told.errno == errno
    assert ("restart" in told.message, "tried again" in told.message) == (restart, not restart)
