"""A master for tests, and real replicas: docs/pytest.md. Importing this imports nothing of it.

from binlog_server.testing import running_master
with running_master() as master:
    master.sql("CREATE DATABASE shop")
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from binlog_protocol.errors import BadValue

    from binlog_server.faults.faults import BadFault
    from binlog_server.testing.found import NoMariaDB, running_replica
    from binlog_server.testing.mariadb import MariaDB, ReplicationStopped
    from binlog_server.testing.master import BinlogMaster
    from binlog_server.testing.random_histories import random_history
    from binlog_server.testing.running import new_master as new_master
    from binlog_server.testing.running import running_master
    from binlog_server.testing.server_container import BinlogServerContainer

__all__ = [
    "BadFault",
    "BadValue",
    "BinlogMaster",
    "BinlogServerContainer",
    "MariaDB",
    "NoMariaDB",
    "ReplicationStopped",
    "random_history",
    "running_master",
    "running_replica",
]
_HERE = "binlog_server.testing"
_MODULES = {
    "BadFault": "binlog_server.faults.faults",
    "BadValue": "binlog_protocol.errors",
    "BinlogMaster": f"{_HERE}.master",
    "BinlogServerContainer": f"{_HERE}.server_container",
    "MariaDB": f"{_HERE}.mariadb",
    "new_master": f"{_HERE}.running",
    "NoMariaDB": f"{_HERE}.found",
    "ReplicationStopped": f"{_HERE}.mariadb",
    "random_history": f"{_HERE}.random_histories",
    "running_master": f"{_HERE}.running",
    "running_replica": f"{_HERE}.found",
}


@contextmanager
def without_collecting() -> Iterator[None]:
    """For imports: no module that is imported is garbage, and to look for some takes a tenth of the time: now, or in
    the next search for young garbage, which would go through all of them. So they count as old behind it, as does all
    else that is there. Not in a program that has frozen objects itself: `unfreeze` would bring these back.
    """
    import gc

    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects and not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()
        if collects:
            gc.enable()


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        from importlib import import_module

        with without_collecting():
            return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'binlog_server.testing' has no attribute {name!r}")
