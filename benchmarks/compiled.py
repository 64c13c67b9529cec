"""Programs in C that are the limit of what is measured, compiled when they are needed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from benchmarks.registry import BenchmarkError


def compiled(source: Path, directory: Path) -> Path:
    """The program of that source, in `directory`. Raises `BenchmarkError`."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise BenchmarkError("no C compiler: the limit is measured by a program in C: install gcc")
    program = directory / source.stem
    command = [compiler, "-O2", "-std=gnu11", "-pthread", str(source), "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchmarkError(f"{source.name} does not compile:\n{done.stderr[-2000:]}")
    return program
