"""Every engine under the contract of `contract/engine_contract.py`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.classic.options import ClassicOptions
from binlog_storage.classic.store import ClassicEngine
from binlog_storage.disk.disk import Disk
from binlog_storage.disk.state import StateStore
from binlog_storage.engine import BinlogEngine
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.testing.memory_disk import MemoryDisk
from binlog_storage.testing.memory_engine import MemoryEngine, MemoryHistory

from tests.storage.contract.engine_contract import FILE_BYTES, Bench, EngineContract
from tests.storage.disks import BreakableDisk, MortalDisk
from tests.storage.sizes import small

SMALL = small(FILE_BYTES // PAGE_SIZE)


class IbbBench:
    """An `.ibb` store of the smallest files, on any disk."""

    def __init__(self, new_disk: Callable[[], Disk], crash: Callable[[], None]) -> None:
        self._new_disk = new_disk
        self._crash = crash
        self._disk = BreakableDisk(new_disk())

    def open(self) -> BinlogEngine:
        self._disk = BreakableDisk(self._new_disk())
        return IbbEngine(self._disk, SMALL, facts=StateStore(self._disk))

    def crash(self) -> None:
        self._crash()

    def break_disk(self) -> None:
        self._disk.broken = True

    def purge(self) -> None:
        self._new_disk().unlink("binlog-000000.ibb")


class ClassicBench:
    """A store of traditional files, the smallest that an `.ibb` store has, on any disk."""

    def __init__(self, new_disk: Callable[[], Disk], crash: Callable[[], None]) -> None:
        self._new_disk = new_disk
        self._crash = crash
        self._disk = BreakableDisk(new_disk())

    def open(self) -> BinlogEngine:
        self._disk = BreakableDisk(self._new_disk())
        return ClassicEngine(self._disk, ClassicOptions(max_binlog_size=FILE_BYTES))

    def crash(self) -> None:
        self._crash()

    def break_disk(self) -> None:
        self._disk.broken = True

    def purge(self) -> None:
        self._new_disk().unlink("binlog.000001")


class MemoryBench:
    """The plain twin."""

    def __init__(self) -> None:
        self._history = MemoryHistory()

    def open(self) -> BinlogEngine:
        return MemoryEngine(self._history)

    def crash(self) -> None:
        """An engine that nobody uses any more has left nothing behind but its history."""

    def break_disk(self) -> None:
        self._history.fails = True

    def purge(self) -> None:
        self._history.purge(len(self._history.groups) // 2)


@contextlib.contextmanager
def mortal(tmp_path: Path) -> Iterator[tuple[Callable[[], Disk], Callable[[], None]]]:
    """What makes a disk for a process, and what ends all of them: a process that dies leaves the kernel's pages."""
    disks: list[MortalDisk] = []

    def new_disk() -> Disk:
        disks.append(MortalDisk(tmp_path))
        return disks[-1]

    def crash() -> None:
        for disk in disks:
            disk.die()

    yield new_disk, crash
    crash()


class TestIbbOnMemoryDisk(EngineContract):
    @pytest.fixture
    def bench(self) -> Bench:
        disk = MemoryDisk()
        return IbbBench(lambda: disk, disk.crash)


class TestIbbOnOsDisk(EngineContract):
    @pytest.fixture
    def bench(self, tmp_path: Path) -> Iterator[Bench]:
        with mortal(tmp_path) as (new_disk, crash):
            yield IbbBench(new_disk, crash)


class TestClassicOnMemoryDisk(EngineContract):
    @pytest.fixture
    def bench(self) -> Bench:
        disk = MemoryDisk()
        return ClassicBench(lambda: disk, disk.crash)


class TestClassicOnOsDisk(EngineContract):
    @pytest.fixture
    def bench(self, tmp_path: Path) -> Iterator[Bench]:
        with mortal(tmp_path) as (new_disk, crash):
            yield ClassicBench(new_disk, crash)


class TestMemoryEngine(EngineContract):
    @pytest.fixture
    def bench(self) -> Bench:
        return MemoryBench()
