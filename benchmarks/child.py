"""Programs of this package in processes of their own: what loads a server must not be in the one that measures."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final, Self

from benchmarks.registry import BenchmarkError

ROOT: Final = Path(__file__).parent.parent


class ChildFailed(BenchmarkError):
    """The program ended with an error; the text is what it said."""


class Child:
    """A program that runs until it is done, or until `finish` closes its standard input; it prints JSON lines.

    As a context manager: it does not outlive the block.
    """

    def __init__(self, module: str, *arguments: str) -> None:
        self._module = module
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - `__exit__` closes it
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=ROOT,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            assert stream is not None
            stream.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def line(self) -> Any:
        """The next thing that it prints. Raises `ChildFailed` if it ends instead."""
        assert self._process.stdout is not None
        text = self._process.stdout.readline()
        if not text:
            self._process.wait()
            self._errors.seek(0)
            said = self._errors.read().strip()[-2000:]
            code = self._process.returncode
            raise ChildFailed(f"{self._module}: {said or f'it ended with {code}'}")
        return json.loads(text)

    def tell(self, line: str) -> Any:
        """Give it a line, and return the next thing that it prints. Raises `ChildFailed`."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self.line()

    def finish(self) -> Any:
        """Tell it to end, and return the next thing that it prints. Raises `ChildFailed`."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self.line()

    def wait_killed(self) -> None:
        """Wait until the program has killed itself, as it was asked to. Raises `ChildFailed` if it ended otherwise."""
        if self._process.wait() != -signal.SIGKILL:
            raise ChildFailed(f"{self._module} was to kill itself")


def run_json(module: str, *arguments: str) -> Any:
    """The output of a program, parsed as JSON once it has ended. Raises `ChildFailed`."""
    with Child(module, *arguments) as child:
        return child.finish()
