"""Masters that run: in a thread of this process, or in a process of their own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from binlog_server.testing.master import BinlogMaster

if TYPE_CHECKING:
    from binlog_server.testing.served import Served


class InProcessMaster(BinlogMaster):
    """In a thread of this process, with its own event loop: quick to start; its log is this process'."""

    _served: Served | None = None

    def start(self) -> Self:
        assert self._served is None, f"{self} runs already"
        from binlog_server.testing import without_collecting

        with without_collecting():
            from binlog_server.testing.served import Served
        self._served = Served(self.directory, self._all_options())
        return self

    def stop(self) -> None:
        served, self._served = self._served, None
        if served is not None:
            served.close()

    def alive(self) -> bool:
        return self._served is not None

    def _call(self, name: str, *arguments: Any) -> Any:
        if self._served is None:
            raise self._stopped()
        return getattr(self._served, name)(*arguments)


def new_master(
    *, process: bool = False, directory: Path | str | None = None, **options: Any
) -> BinlogMaster:
    """A master that is not started yet; see `running_master`."""
    if not process:
        return InProcessMaster(directory=directory, **options)
    # Processes and their pipes are loaded where there is one.
    from binlog_server.testing.master_process import MasterProcess

    return MasterProcess(directory=directory, **options)


@contextlib.contextmanager
def running_master(
    *, process: bool = False, directory: Path | str | None = None, **options: Any
) -> Iterator[BinlogMaster]:
    """A master until the end of the block.

    Args:
        process: in a process of its own, which can be killed and paused (`MasterProcess`); otherwise in a thread.
        directory: of its store, which then stays; by default a new one in memory, if there is room, which goes.
        options: those of the configuration file (docs/options.md): server_id=7, local_tables=False, ...
    """
    master = new_master(process=process, directory=directory, **options)
    try:
        yield master.start()
    finally:
        master.discard()
