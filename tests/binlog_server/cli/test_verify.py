"""`verify`: sound sets are sound, each of the 50 damaged ones is named, and it goes on behind the damage."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from binlog_protocol.gtid import Gtid
from binlog_storage.binlog.appender import OpenGroup
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.disk import OsDisk
from binlog_storage.disk.read_only_disk import ReadOnlyDisk
from binlog_storage.ibb.page import PAGE_SIZE, seal
from binlog_storage.ibb.xa import Xid
from binlog_storage.testing.memory_disk import MemoryDisk, MemoryFile
from binlog_storage.verify.verify import Finding, Severity, Verifier, VerifyTotals

from tests.binlog_server.cli.command import copy_to, run
from tests.protocol.statement_groups import transaction_group
from tests.storage import vectors
from tests.storage.log.test_corrupt_vectors import DETECTED
from tests.storage.sizes import small

SETS = [pytest.param(v, id=v["name"]) for v in vectors.sets()]
CORRUPT = [pytest.param(v, id=v["name"]) for v in vectors.corrupt_sets()]
BACKWARDS = "GTID 0-7-13 comes after 0-7-16: not ascending"  # in the set that the damaged ones were made from

# name: (file, offset, words) of one finding, where it is not what the plain reader says
ALSO = {
    "corrupt_flip_zero_page": (1, 49152, "Page corruption"),
    "corrupt_interval_0": (0, 40, "GTID state interval 0"),
    "corrupt_stray_cont_first": (0, 16389, "starts with continuation chunk"),
    "corrupt_trunc_at_page": (0, 25029, "a part is missing"),
    "corrupt_trunc_only": (0, 25029, "the data end inside this record"),
    "corrupt_missing_next": (0, 65332, "the data end inside this record"),
    "corrupt_trunc_page_mid": (1, 16384, "ends inside a page"),
    "corrupt_trunc_header": (0, 0, "ends inside a page"),
    "corrupt_gap": (1, 0, "the file is missing, but there is binlog-000002.ibb"),
    "corrupt_chunk_len_plus1": (0, 17325, "a group ends inside an event"),
    "corrupt_header_crc": (0, 508, "Invalid checksum on first page"),
    "corrupt_header_minor9": (0, 12, "minor version 9"),
}


def verify(disk: MemoryDisk) -> tuple[VerifyTotals, list[Finding]]:
    found: list[Finding] = []
    totals = Verifier(disk, found.append).run()
    assert totals.errors == sum(f.severity is Severity.ERROR for f in found)
    assert totals.warnings == sum(f.severity is Severity.WARNING for f in found)
    return totals, found


@pytest.mark.parametrize("vector", SETS)
def test_sound_sets(vector: dict[str, Any]) -> None:
    totals, found = verify(vectors.unpack(vector))
    assert totals.groups == sum(one.gtid is not None for one in vectors.groups_of(vector)), (
        "start markers are none"
    )
    assert totals.files == len(vector["files"])
    expected = {"tol_wrong_n_first": 1, "corrupt_base": 1}.get(vector["name"], 0)
    assert [f.severity for f in found] == [Severity.WARNING] * expected, list(map(str, found))


@pytest.mark.parametrize("vector", CORRUPT)
def test_damaged_sets(vector: dict[str, Any]) -> None:
    name = vector["name"]
    totals, found = verify(vectors.unpack(vector))
    told = [f for f in found if f.reason != BACKWARDS]
    assert told
    if name in ALSO:
        file_no, offset, words = ALSO[name]
        assert any(
            (f.file_no, f.offset) == (file_no, offset) and words in f.reason for f in told
        ), told
    else:
        reason = DETECTED[name][1]
        assert any(reason in f.reason for f in told), list(map(str, told))
    # A newer minor version is to be readable.
    assert bool(totals.errors) == (name != "corrupt_header_minor9")
    assert all(re.match(r"binlog-\d{6}\.ibb page \d+ offset \d+: ", str(f)) for f in told)


def test_lists_are_whole() -> None:
    names = {v["name"] for v in vectors.corrupt_sets()}
    assert set(ALSO) <= names
    assert names <= set(ALSO) | set(DETECTED)


def test_goes_on_behind_each_damage() -> None:
    """Three pages in three files: three findings, and the groups of all other pages."""
    disk = vectors.unpack(vectors.sound_set("small_i2"))
    sound, _ = verify(disk)
    for name in ("binlog-000000.ibb", "binlog-000001.ibb", "binlog-000002.ibb"):
        file = disk.open(name)
        file.pwrite(b"\xa5", 3 * PAGE_SIZE + 4000)
    totals, found = verify(disk)
    errors = [f for f in found if f.severity is Severity.ERROR]
    assert [(f.file_no, f.offset // PAGE_SIZE) for f in errors] == [(0, 3), (1, 3), (2, 3)]
    assert sound.groups * 0.7 < totals.groups < sound.groups


def test_states_are_held_against_the_groups() -> None:
    """A state record that was changed, its page sealed again: only the walk can tell."""
    disk = vectors.unpack(vectors.sound_set("small_i2"))
    file = disk.open("binlog-000001.ibb")
    page = bytearray(file.pread(PAGE_SIZE, PAGE_SIZE))
    page[page[1] + 2] ^= 0x08  # the last integer of the record
    file.pwrite(seal(page), PAGE_SIZE)
    _, found = verify(disk)
    finding = found[0]
    assert (finding.file_no, finding.offset) == (1, PAGE_SIZE)
    assert "the groups before it give" in finding.reason


def test_flipped_bytes_are_found_and_nothing_else_happens(rng: random.Random) -> None:
    names = ["small_i2", "oob_far", "xa", "restarts"]
    for round_ in range(12):
        disk = vectors.unpack(vectors.sound_set(names[round_ % len(names)]))
        files = [n for n in disk.names() if disk.open(n).pread(4, 0) != bytes(4)]
        name = rng.choice(files)
        file = disk.open(name)
        offset = rng.randrange(file.size())
        byte = file.pread(1, offset)[0]
        file.pwrite(bytes((byte ^ (1 << rng.randrange(8)),)), offset)
        began = time.thread_time()
        totals, found = verify(disk)
        assert time.thread_time() - began < 10
        assert totals.errors, (name, offset)
        assert found[0].offset // PAGE_SIZE == offset // PAGE_SIZE


def test_resealed_damage_ends_in_findings_or_nothing(rng: random.Random) -> None:
    """With checksums that are right again anything may stand there; the walk must still end."""
    for round_ in range(24):
        disk = vectors.unpack(vectors.sound_set(("oob_1_40", "edges", "dual")[round_ % 3]))
        name = rng.choice([n for n in disk.names() if disk.open(n).pread(4, 0) != bytes(4)])
        file = disk.open(name)
        page_no = rng.randrange(1, file.size() // PAGE_SIZE)
        page = bytearray(file.pread(PAGE_SIZE, page_no * PAGE_SIZE))
        for _ in range(rng.randrange(1, 6)):
            page[rng.randrange(PAGE_SIZE - 4)] = rng.choice(
                (0, 0xFF, 0x41, 0xC1, 0x43, rng.randrange(256))
            )
        file.pwrite(seal(page), page_no * PAGE_SIZE)
        began = time.thread_time()
        verify(disk)
        assert time.thread_time() - began < 10


def test_command(tmp_path: Path) -> None:
    sound = copy_to(vectors.unpack(vectors.sound_set("small_i2")), tmp_path / "sound")
    ran = run("verify", sound)
    assert (ran.code, ran.err) == (0, "")
    assert ran.lines[-1].startswith("sound: 4 files, ")
    damaged_set = next(v for v in vectors.corrupt_sets() if v["name"] == "corrupt_flip_data")
    damaged = copy_to(vectors.unpack(damaged_set), tmp_path / "damaged")
    before = {path.name: path.read_bytes() for path in damaged.iterdir()}
    ran = run("verify", damaged)
    assert ran.code == 1
    assert "binlog-000000.ibb page 2 offset 32768: Page corruption" in ran.lines[0]
    assert ran.lines[-1].startswith("damaged: 2 files, ")
    assert {path.name: path.read_bytes() for path in damaged.iterdir()} == before
    nothing = tmp_path / "nothing"
    nothing.mkdir()
    assert run("verify", nothing).code == 1
    assert "has neither .ibb files nor" in run("verify", nothing).err
    assert run("verify", tmp_path / "not there").code == 1
    assert not (tmp_path / "not there").exists()


def test_bar_on_a_terminal(tmp_path: Path) -> None:
    """`script` gives the command a terminal; into a file no bar is written."""
    directory = copy_to(vectors.unpack(vectors.sound_set("small_i2")), tmp_path)
    command = f"{sys.executable} -m binlog_server verify {directory}"
    argv = ["script", "-qec", command, "/dev/null"]
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0
    assert "verify " in done.stdout
    assert "━" in done.stdout
    assert "sound: " in done.stdout


def test_stores_that_the_engine_writes(rng: random.Random, tmp_path: Path) -> None:
    """Groups of all sizes, opened and closed in between: nothing to find."""
    for round_ in range(2):
        directory = tmp_path / str(round_)
        interval = 1 << rng.choice((15, 16, 17))
        size_max = rng.choice((1 << 16, 1 << 18, 1 << 20))
        options = StoreOptions(max_binlog_size=size_max, innodb_binlog_state_interval=interval)
        seq_no = 0
        for _ in range(3):
            engine = IbbEngine(OsDisk(directory), options)
            for _ in range(rng.randrange(20, 200)):
                seq_no += 1
                gtid = Gtid(rng.randrange(3), rng.randrange(1, 3), seq_no)
                size = rng.choice(
                    (10, 300, 16384, 16300 + rng.randrange(100), rng.randrange(300_000))
                )
                engine.append(transaction_group(gtid, ["x" * size], xid=seq_no, timestamp=1), gtid)
            engine.close()
        found: list[Finding] = []
        totals = Verifier(ReadOnlyDisk(directory), found.append).run()
        assert found == [], list(map(str, found))
        assert totals.groups == seq_no


def test_stores_with_everything_in_them(rng: random.Random, tmp_path: Path) -> None:
    """Groups written in pieces, rolled back, prepared and decided later, over flushes and restarts."""
    options = StoreOptions(max_binlog_size=1 << 17, innodb_binlog_state_interval=1 << 15)
    seq_no = committed = 0
    prepared: list[tuple[Xid, bytes, Gtid]] = []
    for _ in range(3):
        engine = IbbEngine(OsDisk(tmp_path), options)
        opened: list[tuple[OpenGroup, bytes, Gtid]] = []
        for _ in range(150):
            seq_no += 1
            gtid = Gtid(seq_no, 1, 1)  # a domain each: no order among them
            payload = transaction_group(
                gtid, ["x" * rng.choice((10, 3000, 40000))], xid=seq_no, timestamp=1
            )
            head = int.from_bytes(payload[9:13], "little")
            action = rng.choice(
                ("append", "append", "begin", "begin", "end", "prepare", "decide", "flush")
            )
            if action == "append":
                engine.append(payload, gtid)
                committed += 1
            elif action == "begin":
                group = engine.begin()
                group.spill(payload[head:])
                opened.append((group, payload[:head], gtid))
            elif action == "flush":
                engine.flush()
            elif action == "prepare" and opened:
                group, event, own = opened.pop(rng.randrange(len(opened)))
                xid = Xid(1, b"%d" % seq_no)
                group.prepare(xid)
                prepared.append((xid, event, own))
            elif action == "decide" and prepared:
                xid, event, own = prepared.pop(0)
                if rng.random() < 0.5:
                    engine.rollback_prepared(xid)
                else:
                    engine.commit_prepared(xid, event, own)
                    committed += 1
            elif action == "end" and opened:
                group, event, own = opened.pop(0)
                if rng.random() < 0.5:
                    group.rollback()
                else:
                    group.commit(event, own)
                    committed += 1
        for group, _event, _gtid in opened:
            group.rollback()
        engine.close()
    found: list[Finding] = []
    totals = Verifier(ReadOnlyDisk(tmp_path), found.append).run()
    assert found == [], list(map(str, found))
    assert totals.groups == committed


def test_the_empty_tail_of_a_file_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by recovery nor by `verify`: files of a gigabyte are made ahead. But for what is read ahead."""
    disk, options = MemoryDisk(), small(512)
    engine = IbbEngine(disk, options)
    engine.append(transaction_group(Gtid(0, 1, 1), ["x"], xid=1, timestamp=1), Gtid(0, 1, 1))
    engine.sync()
    disk.kill()
    reads: list[tuple[str, int]] = []
    read = MemoryFile.pread

    def pread(file: MemoryFile, size: int, offset: int) -> bytes:
        reads.append((file._name, (offset + size) // PAGE_SIZE))
        return read(file, size, offset)

    monkeypatch.setattr(MemoryFile, "pread", pread)
    engine = IbbEngine(disk, options)
    assert max(end for name, end in reads if name.endswith(".ibb")) <= 2
    engine.close()
    reads.clear()
    totals, found = verify(disk)
    assert (totals.groups, found) == (1, [])
    assert max(end for name, end in reads if name.endswith(".ibb")) <= 16
    assert len(reads) < 40
