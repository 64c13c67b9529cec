"""Builds the optional speed-ups in C along with the wheel (hatchling's custom build hook).

They are built when there is a C compiler and Python's headers; otherwise the wheel is pure Python, which does the
same and is slower. `BINLOG_SERVER_PURE=1` leaves them out, `BINLOG_SERVER_SPEEDUPS=1` makes it an error when they
cannot be built.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = (
    "protocol/binlog_protocol/events/_group_runs.c",
    "protocol/binlog_protocol/row_columns/_speedups.c",
    "protocol/binlog_protocol/wire/_speedups.c",
    "storage/binlog_storage/ibb/_speedups.c",
)
SUFFIX = ".abi3.so"
ABI = "cp311-abi3"  # what Py_LIMITED_API says in the sources
# No debug information, nothing of this machine's processor: the wheel may travel.
FLAGS = ("-O2", "-std=c11", "-Wall", "-Wextra", "-fPIC", "-shared", "-fvisibility=hidden")


def is_set(name: str) -> bool:
    return os.environ.get(name, "0") not in ("", "0")


def compilers() -> list[list[str]]:
    """To try one after the other: what the user says, what Python was built with, the usual name."""
    named = os.environ.get("CC")
    if named:
        return [shlex.split(named)]
    return [shlex.split(sysconfig.get_config_var("CC") or "cc")[:1], ["cc"]]


def compile_one(source: Path) -> str:
    """Makes the library beside its source. Returns what went wrong, or nothing."""
    target = source.with_suffix(SUFFIX)
    includes = {sysconfig.get_path("include"), sysconfig.get_path("platinclude")}
    error = ""
    for compiler in compilers():
        # First beside it, then by rename: a server that runs from this tree keeps the one that it has.
        with tempfile.TemporaryDirectory(dir=source.parent, prefix=".build-") as directory:
            made = Path(directory) / target.name
            argv = [*compiler, *FLAGS, *(f"-I{i}" for i in sorted(includes)), str(source)]
            try:
                done = subprocess.run(
                    [*argv, "-o", str(made)], capture_output=True, text=True, check=False
                )
            except OSError as reason:
                error = str(reason)
                continue
            if done.returncode == 0:
                made.replace(target)
                return ""
            error = done.stderr.strip()
    return error or "no compiler"


class SpeedupsHook(BuildHookInterface[Any]):
    """See `hatchling.builders.hooks.plugin.interface`."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Before a wheel, also an editable one, is put together."""
        if self.target_name != "wheel":
            return
        sources = [Path(self.root, name) for name in SOURCES]
        error = "BINLOG_SERVER_PURE is set"
        if not is_set("BINLOG_SERVER_PURE"):
            error = next(filter(None, map(compile_one, sources)), "")
            if error and is_set("BINLOG_SERVER_SPEEDUPS"):
                raise RuntimeError(f"the speed-ups in C cannot be built: {error}")
        if error:
            print(f"binlog-server: pure Python, without speed-ups in C: {error}", file=sys.stderr)
            # Nor what an earlier build left here; a wheel takes only what is named below.
            if version == "editable":
                for source in sources:
                    source.with_suffix(SUFFIX).unlink(missing_ok=True)
            return
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"{ABI}-{platform}"
        build_data["artifacts"] += [name.replace(".c", SUFFIX) for name in SOURCES]
