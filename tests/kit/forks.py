"""Our server, forked by a process that has imported it and has built its grammars: `binlog_server/testing/forks.py`.

python -m tests.kit.forks    that process
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from binlog_server.testing import rundir
from binlog_server.testing.forks import Forked, fork, fork_for_others

MODULE: Final = "binlog_server"
"""What a child becomes, if it is not another module that runs it in its own way."""
PROGRAM: Final = (sys.executable, "-m", "tests.kit.forks")


def run(
    *arguments: str | Path, said: str = "", timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """`binlog-server ARGUMENTS`, with `said` to its standard input; to its end."""
    argv = [str(argument) for argument in arguments]
    folder = rundir.new_dir("run")
    said_to, out, error = (folder / name for name in ("in", "out", "error"))
    said_to.write_text(said)
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    forked = fork(PROGRAM, MODULE, argv, (said_to, out, error), environment)
    if forked is None:
        whole = [sys.executable, "-m", MODULE, *argv]
        return subprocess.run(
            whole, input=said, capture_output=True, text=True, timeout=timeout, check=False
        )
    try:
        code = forked.wait(timeout)
    finally:
        forked.kill()
    return subprocess.CompletedProcess(argv, code, out.read_text(), error.read_text())


def start(
    arguments: Sequence[str], log: Path, environment: Mapping[str, str], module: str = MODULE
) -> Forked | None:
    """`python -m MODULE`, its output appended to `log`; None where it cannot be had so."""
    return fork(PROGRAM, module, arguments, (Path(os.devnull), log, log), environment)


def main() -> None:
    """Import what all load at their start, and fork."""
    import binlog_server.cli.serve
    import binlog_server.connections.certificate  # noqa: F401 - which loads a large library
    from binlog_server.app.app import load_later
    from binlog_server.settings.config import load

    load_later()
    load(None, {"binlog_directory": os.curdir})
    fork_for_others()


if __name__ == "__main__":
    main()
