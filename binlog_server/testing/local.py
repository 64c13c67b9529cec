"""MariaDB as a process of this machine."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from binlog_server.testing import process
from binlog_server.testing.install import Install
from binlog_server.testing.mariadb import MariaDB


class LocalMariaDB(MariaDB):
    """mariadbd as a child of the test process."""

    def __init__(
        self, install: Install, name: str, server_id: int | None = None, flags: Sequence[str] = ()
    ) -> None:
        super().__init__(name, server_id, flags)
        self.install = install
        self._process: subprocess.Popen[bytes] | None = None
        self._tmpdir: str | None = None

    @property
    def datadir(self) -> Path:
        return self.dir / "data"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def _start(self) -> None:
        assert not self.alive(), f"{self} runs already"
        if not self.datadir.exists():
            shutil.copytree(self.install.template(), self.datadir)
        if self._tmpdir is None:
            # Its own: a server that starts removes the temporary tables that it finds there, also those of others.
            self._tmpdir = tempfile.mkdtemp(prefix="mariadbd-")
        argv = [
            *self.install.mariadbd,
            f"--datadir={self.datadir}",
            f"--socket={self.dir / 'socket'}",
            f"--pid-file={self.dir / 'pid'}",
            f"--tmpdir={self._tmpdir}",
            *self._arguments(),
        ]
        self._process = process.spawn(argv, self.dir / "error.log")

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        return process.read_log(self.dir / "error.log")

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def run(self, program: str, *arguments: str) -> str:
        argv = [*self.install.program(program), *arguments]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        output = done.stdout + done.stderr
        if done.returncode:
            raise subprocess.CalledProcessError(done.returncode, argv, output)
        return output

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._signal(number)
            self._process.wait(30)

    def _discard(self) -> None:
        self.kill()
        if self._tmpdir is not None:
            shutil.rmtree(self._tmpdir, ignore_errors=True)
            self._tmpdir = None

    def _content(self, path: str) -> bytes:
        return Path(path).read_bytes()
