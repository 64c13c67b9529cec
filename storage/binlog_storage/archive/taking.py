"""An archive into a store: what the store lacks of it, exactly behind what it has."""

from __future__ import annotations

from collections.abc import Callable

from binlog_storage.archive.files import ArchiveFiles
from binlog_storage.disk.state import StoreFacts
from binlog_storage.engine import BinlogEngine
from binlog_storage.intake.intake import Intake, Taken
from binlog_storage.intake.server_version import note_server_version


def take_archive(
    engine: BinlogEngine,
    state: StoreFacts,
    source: ArchiveFiles,
    progress: Callable[[Taken], None] = lambda taken: None,
) -> Taken:
    """Take groups of an archive into a store. All taken is durable, also if this raises; the next call goes on there.

    Raises `DoesNotContinue`, `StorageError`, and what `progress` raises.

    Args:
        state: learns the version of the server that wrote the groups.
        progress: is called again and again.
    """

    def went_on(taken: Taken) -> None:
        note_server_version(state, source.server_version)
        progress(taken)

    return Intake(engine, source, went_on).run()
