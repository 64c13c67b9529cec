"""An archive into the store of a server that is about to serve: what the store lacks of it, behind what it has."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from binlog_protocol.gtid import SlavePosition
from binlog_storage.archive import taking
from binlog_storage.archive.files import ArchiveFiles
from binlog_storage.errors import DiskFull
from binlog_storage.intake.intake import Taken

from binlog_server.store_directory import StoreDirectory

log = logging.getLogger(__name__)

_LOG_S: Final = 10.0


class _Stopped(Exception):
    """The server is to end."""


class _NoRoom(Exception):
    """It would wait, and with it everybody: who makes the room, too."""


def take_archive(
    directory: StoreDirectory,
    archive: Path,
    start: SlavePosition | None,
    is_stopping: Callable[[], bool],
) -> None:
    """What was taken is durable, also if it is stopped in the middle; the next time it goes on there.

    On a full disk it ends, so that what there is is served, and room can be made.

    Raises `DoesNotContinue`, `StorageError`.

    Args:
        start: begin an empty store with the part in which this position is.
        is_stopping: asked again and again; True ends it.
    """
    source = ArchiveFiles(archive, start)
    engine = directory.engine
    last_log, last_taken = time.monotonic(), Taken()

    def progress(taken: Taken) -> None:
        nonlocal last_log, last_taken
        last_taken = taken
        if is_stopping():
            raise _Stopped
        if not engine.has_room:
            for stalled in engine.stalled():
                if stalled.what == "room":
                    raise _NoRoom(stalled.why)
        if time.monotonic() - last_log >= _LOG_S:
            last_log = time.monotonic()
            part = 100 * source.bytes_read // source.size
            facts = {"archive": archive, "percent": part, "groups": taken.groups}
            log.info("archive %(archive)s: %(percent)d %%, %(groups)d groups taken", facts)

    try:
        taken = taking.take_archive(engine, directory.state, source, progress)
    except _Stopped:
        return
    except (_NoRoom, DiskFull) as error:
        log.error(
            "archive %(archive)s: %(groups)d groups taken, and what follows is not: %(error)s. What there is is "
            "served. Make room, and start again",
            {"archive": archive, "groups": last_taken.groups, "error": error},
        )
        return
    facts = {
        "archive": archive,
        "groups": taken.groups,
        "gtid": engine.binlog_state().position(),
    }
    log.info("archive %(archive)s: %(groups)d groups taken, the store is at '%(gtid)s'", facts)
