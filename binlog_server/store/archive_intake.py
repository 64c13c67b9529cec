"""An archive into the store of a server: what the store lacks of it, behind what it has.

It is taken before the server serves. On a full disk that would take for ever, and PURGE needs a server: then it serves
what there is, and the rest is taken beside it, as far as there is room, to its end. What is in the store until then is
a history that goes on elsewhere: nobody may add to it (`Publisher.missing`).
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

from binlog_protocol.gtid import SlavePosition
from binlog_storage.archive import taking
from binlog_storage.archive.encryption import ArchiveKeys
from binlog_storage.archive.files import ArchiveFiles
from binlog_storage.archive.places import Where
from binlog_storage.defects import Defects
from binlog_storage.errors import DiskFull, StorageError
from binlog_storage.intake.intake import Taken

from binlog_server.process.logs import shortened
from binlog_server.store.store_directory import StoreDirectory

log = logging.getLogger(__name__)

RETRY_S: Final = 60.0  # behind what no room in the store tells of: a manifest, our notes
_LOG_S: Final = 10.0


class _Stopped(Exception):
    """The server is to end."""


class _NoRoom(Exception):
    """Room is missing, and a wait would hold up all others, and those who make room as well."""


class ArchiveIntake:
    """The intake of one archive, in one run of a server: `take`, then `take_rest` if there is more; each in a thread.

    What was taken is durable, also if it is stopped in the middle; the next time it goes on there.

    Args:
        start: begin an empty store with the part in which this position is.
    """

    def __init__(
        self,
        directory: StoreDirectory,
        archive: Where,
        start: SlavePosition | None,
        keys: ArchiveKeys | None = None,
    ) -> None:
        self._engine = directory.engine
        self._state = directory.state
        self._archive = archive
        self._keys = keys
        self._start = start
        self._stopping = threading.Event()
        self._taken = Taken()  # by the try that is under way, or was the last
        self._before = 0  # groups, by those before
        self._is_patient = False
        self.waits = ""
        """The reason for which it waits; empty while nothing is in its way."""
        self.is_whole = False
        """All of the archive is in the store."""
        self._logged = 0.0
        self._defects: Final = Defects()

    @property
    def groups(self) -> int:
        """The number of groups taken; durable between two tries."""
        return self._before + self._taken.groups

    @property
    def missing(self) -> str:
        """The reason for which commits are not accepted yet, and how the intake goes on: a text."""
        why = f" ({shortened(self.waits)})" if self.waits else ""
        if self.is_whole:
            return (
                f"archive {self._archive} is in the store, and what waited for it has not begun yet{why}: commits, and "
                "upstreams. It is tried again by itself"
            )
        return (
            f"archive {self._archive} is not all in the store yet{why}. What there is is served; the rest is taken by "
            "itself when there is room, and then commits are accepted"
        )

    def stop(self) -> None:
        """The server is to end: `take` and `take_rest` return soon. From any thread."""
        self._stopping.set()

    def take(self) -> None:
        """Take all of it; on a full disk as much as there is room for. Raises `DoesNotContinue`, `StorageError`."""
        try:
            self._try()
        except _Stopped:
            pass
        except (_NoRoom, DiskFull) as error:
            self.waits = str(error)
            log.error(
                "archive %(archive)s: %(groups)d groups taken, and what follows is not: %(error)s. What there is is "
                "served, and nothing is committed or taken from an upstream, until there is room for the rest",
                {"archive": self._archive, "groups": self.groups, "error": error},
            )

    def take_rest(self) -> None:
        """Go on, and wait for room as long as it takes. It ends when nothing is missing, or with `stop`.

        What goes wrong is tried again, and logged until it changes.
        """
        self._is_patient = True
        said = ""
        while not self.is_whole and not self._stopping.is_set():
            try:
                self._try()
            except _Stopped:
                return
            except Exception as error:
                known = isinstance(error, StorageError)
                self.waits = str(error) if known else repr(error)
                if self.waits != said:
                    said = self.waits
                    log.error(
                        "archive %(archive)s: what follows is not taken: %(error)s. Trying again every %(seconds)d s",
                        {"archive": self._archive, "error": shortened(said), "seconds": RETRY_S},
                        exc_info=None if known else self._defects.trace(error),
                    )
                self._stopping.wait(RETRY_S)

    def _try(self) -> None:
        self._before, self._taken = self.groups, Taken()
        self._logged = time.monotonic()
        source = ArchiveFiles(self._archive, self._start, self._keys)

        def progress(taken: Taken) -> None:
            self._taken = taken
            if self._stopping.is_set():
                raise _Stopped
            self._look_at_room()
            if time.monotonic() - self._logged >= _LOG_S:
                self._logged = time.monotonic()
                part = 100 * source.bytes_read // source.size
                facts = {"archive": self._archive, "percent": part, "groups": self.groups}
                log.info("archive %(archive)s: %(percent)d %%, %(groups)d groups taken", facts)

        self._taken = taking.take_archive(self._engine, self._state, source, progress)
        self.is_whole = True
        facts = {
            "archive": self._archive,
            "groups": self.groups,
            "gtid": shortened(str(self._engine.binlog_state().position())),
        }
        log.info("archive %(archive)s: %(groups)d groups taken, the store is at '%(gtid)s'", facts)

    def _look_at_room(self) -> None:
        full = (one.why for one in self._engine.stalled() if one.what == "room")
        self.waits = next(full, "")
        if self.waits and not self._is_patient:
            raise _NoRoom(self.waits)
