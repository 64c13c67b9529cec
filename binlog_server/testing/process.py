"""Child processes that never outlive the test run."""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


@functools.cache
def _dies_with_us() -> tuple[str, ...]:
    # PR_SET_PDEATHSIG, set between fork and exec by util-linux: a preexec_fn is not safe in a
    # process that has threads. It follows the *thread* that starts the child: start them in the main one.
    setpriv = shutil.which("setpriv")
    return (setpriv, "--pdeathsig", "KILL", "--") if setpriv else ()


def spawn(
    argv: Sequence[str],
    log: Path,
    env: Mapping[str, str] | None = None,
    stdin: int = subprocess.DEVNULL,
    pass_fds: Sequence[int] = (),
    folder: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Starts `argv` with its output appended to `log`, in `folder`. Its pid is the program's own."""
    with log.open("ab") as out:
        return subprocess.Popen(
            [*_dies_with_us(), *argv],
            stdin=stdin,
            stdout=out,
            stderr=out,
            env=env,
            cwd=folder,
            pass_fds=pass_fds,
            start_new_session=True,  # Ctrl-C is for the test run, which then cleans up
        )


def read_log(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""
