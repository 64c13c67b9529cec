"""kill -9 at random moments of archiving: what is there is a sound beginning of the log, and the next run goes on."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from binlog_pipeline.sources.archive import ArchiveSource
from binlog_pipeline.sources.directory import DirectorySource
from binlog_storage.archive.archive import Archive, is_archive
from binlog_storage.archive.part_reader import PartReader

from binlog_server.testing.waiting import until
from tests.pipeline.archives import SMALL, log_of
from tests.pipeline.stores import make_store
from tests.storage.groups import Group, history, payloads

# Forks for each run, as a fresh interpreter would be most of the time. Parts are published one by one, so that there is
# more to be hit.
PROGRAM = """
import os, sys
from pathlib import Path
from binlog_pipeline.jobs import archive
from binlog_pipeline.jobs.workers import Engine
from binlog_pipeline.sources.directory import DirectorySource

def run(store, out, workers, size):
    archive._PUBLISH_PARTS = 1
    engine = Engine("local", int(workers))
    settings = archive.ArchiveSettings(tail=True, partition_bytes=int(size), engine=engine)
    archive.archive(DirectorySource(store), Path(out), settings)

if __name__ == "__main__":
    for _ in sys.stdin:
        child = os.fork()
        if not child:
            run(*sys.argv[1:])
            os._exit(0)
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Runs:
    """Runs of an archiver, one after the other."""

    def __init__(self, tmp_path: Path, *arguments: object) -> None:
        program = tmp_path / "program.py"
        program.write_text(PROGRAM)
        self._process = subprocess.Popen(
            [sys.executable, str(program), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
            # A process group of its own, so that what is left of it can be looked for.
            start_new_session=True,
        )

    def begin(self) -> int:
        """Returns the process id."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._number()

    def end(self) -> int:
        """Returns how it ended."""
        return self._number()

    def _number(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def close(self) -> int:
        """Returns the process group."""
        self._process.communicate()
        return self._process.pid


@pytest.fixture(scope="module")
def made() -> list[Group]:
    return history(random.Random(17), 2500, size_max=40_000)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, made: list[Group]) -> Path:
    return make_store(tmp_path_factory.mktemp("killed") / "store", made, SMALL)


def killed(tmp_path: Path, store: Path, made: list[Group], rng: random.Random, times: int) -> None:
    out = tmp_path / "archive"
    everything = payloads(made)
    runs = Runs(tmp_path, store, out, 1, 64 << 10)
    kills = 0
    for _ in range(times):
        child = runs.begin()
        time.sleep(rng.uniform(0.0, 0.2))
        kill(child)
        kills += runs.end() == -signal.SIGKILL
        check(out, everything)
    assert kills
    runs.begin()
    assert runs.end() == 0
    runs.close()
    whole(out, store, everything)


def kill(child: int) -> None:
    """It is waited for by the program, which tells its end after that; it may have ended before."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)


def whole(out: Path, store: Path, everything: list[bytes]) -> None:
    """The archive has all of it, and nothing is left over."""
    check(out, everything)
    assert log_of(ArchiveSource(str(out))) == everything
    found = Archive.open(out)
    names = {placed.part.name for placed in found.parts()}
    # Those of a run that was killed late were enough to be merged, and stay for readers for a while.
    retired = {name for one in found.manifest.retired for name in one.names}
    assert {path.name for path in out.iterdir()} == {
        "_archive.json",
        "_archive.lock",
    } | names | retired
    assert ArchiveSource(str(out)).latest() == DirectorySource(str(store)).latest()


def check(out: Path, everything: list[bytes]) -> None:
    if not is_archive(out):
        return
    for placed in Archive.open(out).parts():
        PartReader(out, placed.part).check()
    found = log_of(ArchiveSource(str(out)))
    assert found == everything[: len(found)]


def test_killed_at_random(tmp_path: Path, store: Path, made: list[Group]) -> None:
    killed(tmp_path, store, made, random.Random(1), 4)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_killed_at_random_often(tmp_path: Path, store: Path, made: list[Group]) -> None:
    for number in range(8):
        folder = tmp_path / str(number)
        folder.mkdir()
        killed(folder, store, made, random.Random(100 + number), 12)


def test_killed_with_workers(tmp_path: Path, store: Path, made: list[Group]) -> None:
    out = tmp_path / "archive"
    runs = Runs(tmp_path, store, out, 2, 16 << 10)
    while True:
        child = runs.begin()
        until(lambda: list(out.glob("part-*")), "the workers to be at work", 60)
        kill(child)
        if runs.end() == -signal.SIGKILL:
            break
        shutil.rmtree(out)  # it was done before we got our turn
    check(out, payloads(made))
    group = runs.close()
    until(lambda: not _is_alive(group), "the workers to end with who started them", 60)

    runs = Runs(tmp_path, store, out, 2, 256 << 10)
    runs.begin()
    assert runs.end() == 0
    runs.close()
    whole(out, store, payloads(made))


def _is_alive(group: int) -> bool:
    """Whether the process group has anybody."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
