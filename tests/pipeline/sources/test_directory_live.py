"""A store is read while it is written, and after its writer was killed: never more than is durable, nothing twice."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from binlog_pipeline.errors import SourceError
from binlog_pipeline.groups import Groups, after
from binlog_pipeline.sources.directory import DirectorySource
from binlog_pipeline.wanted import Wanted
from binlog_protocol.gtid import SlavePosition
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.log.ranges import GtidRange

from tests.pipeline.live_writer import live_group

ROOT = Path(__file__).parents[3]


def started(directory: Path, count: int) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-m", "tests.pipeline.live_writer", str(directory), str(count)]
    return subprocess.Popen(argv, cwd=ROOT)


class Reader:
    """Follows, and knows what must come next."""

    def __init__(self, directory: Path) -> None:
        self.source = DirectorySource(str(directory))
        self.position = SlavePosition()
        self.number = 0
        self.polls = 0
        self._feed = self.source.feed()

    def poll(self, wait_s: float = 0.0) -> None:
        self.polls += 1
        for groups in self._feed.after(self.position, wait_s):
            self.take(groups)
            self.position = after(self.position, groups)

    def take(self, groups: Groups) -> None:
        for i in range(len(groups)):
            self.number += 1
            assert b"".join(groups.pieces(i)) == live_group(self.number).payload

    def read_again(self, rng: random.Random) -> None:
        """Any range of what was followed, in slices."""
        start, stop = sorted(rng.randrange(self.number + 1) for _ in range(2))
        wanted = Wanted(GtidRange(_position(start), _position(stop)))
        size = rng.choice((1, 9, 100)) * PAGE_SIZE
        parts = self.source.slices(wanted, size) if stop > start else []
        found = [
            b"".join(groups.pieces(i))
            for part in parts
            for groups in part.read()
            for i in range(len(groups))
        ]
        assert found == [live_group(n).payload for n in range(start + 1, stop + 1)]

    def close(self) -> None:
        self._feed.close()


def _position(number: int) -> SlavePosition:
    return SlavePosition.parse(f"0-1-{number}" if number else "")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    path.mkdir()
    return path


def begun(directory: Path, writer: subprocess.Popen[bytes]) -> Reader:
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline:
        reader = Reader(directory)
        try:
            reader.source.latest()
        except SourceError:
            assert writer.poll() is None
            time.sleep(0.01)
        else:
            return reader
    raise AssertionError("the writer has published nothing")


def test_read_while_it_is_written(directory: Path, rng: random.Random) -> None:
    count = 0
    reader = None
    # A machine that is busy may give the reader few turns beside one writer.
    while reader is None or reader.polls <= 20:
        count += 1500
        writer = started(directory, count)
        try:
            reader = reader or begun(directory, writer)
            while writer.poll() is None:
                reader.poll(rng.choice((0.0, 0.02)))
                if rng.random() < 0.02:
                    reader.read_again(rng)
        finally:
            writer.kill()
            writer.wait()
        assert writer.returncode == 0
    reader.poll()
    assert reader.number == count
    reader.read_again(rng)
    reader.close()


def test_a_writer_that_is_killed(directory: Path, rng: random.Random) -> None:
    """What was read before a kill -9 is there after it, and goes on."""
    count = 1200
    writer = started(directory, count)
    reader = begun(directory, writer)
    kills = 0
    while True:
        enough = reader.number + rng.randrange(1, 500)
        while writer.poll() is None and reader.number < enough:
            reader.poll(0.005)
        done = writer.poll() is not None
        writer.kill()
        writer.wait()
        reader.poll()
        if done:
            break
        kills += 1
        reader.read_again(rng)
        writer = started(directory, count)
    assert writer.returncode == 0
    assert kills > 0
    assert reader.number == count
    reader.close()
