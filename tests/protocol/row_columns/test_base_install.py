"""The base install has neither pyarrow nor numpy."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import importlib, pkgutil, sys
for name in ("numpy", "pyarrow", "pyspark"):
    sys.modules[name] = None  # importing it is an ImportError from here on
import binlog_protocol, binlog_server, binlog_storage
for package in (binlog_server, binlog_protocol, binlog_storage):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        of_columns = module.name.startswith((
            "binlog_protocol.row_columns",
            "binlog_storage.archive.part_writer",
            "binlog_storage.archive.ibb_part_writer",
        ))
        if not of_columns and not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except ImportError as error:
                if str(error) != "BINLOG_SERVER_PURE is set":  # the loops in C, which are left out then
                    raise
            print(module.name)
"""


def test_server_runs_without_them() -> None:
    """Every module but the row columns and the writers of parts can be imported."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert {"binlog_server.app.app", "binlog_protocol.events.rows", "binlog_storage.engine"} <= set(
        done.stdout.split()
    )
