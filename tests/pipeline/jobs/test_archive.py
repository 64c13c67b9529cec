"""What is archived is what was in the log: each group once, in its order, byte by byte, whatever came between."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from binlog_pipeline.cli import main
from binlog_pipeline.errors import DataLost, SourceError
from binlog_pipeline.jobs.workers import Engine
from binlog_pipeline.sources.archive import ArchiveSource
from binlog_pipeline.sources.directory import DirectorySource
from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition
from binlog_storage.archive.archive import Archive
from binlog_storage.archive.part_reader import PartReader
from binlog_storage.errors import NotAStore
from binlog_storage.intake.intake import DoesNotContinue

from tests.pipeline.archives import grow, log_of, payloads, replayed, rows, run, stored
from tests.pipeline.stores import leave_half
from tests.storage.groups import Group, group, history, marker, simple, state_after


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "archive"


def later(made: list[Group], count: int, *, domain: int = 0, server: int = 1) -> list[Group]:
    """Groups that go on in a domain."""
    last = state_after(made).last(domain)
    first = 1 if last is None else last.seq_no + 1
    return [group(Gtid(domain, server, n), 200) for n in range(first, first + count)]


def check(out: Path) -> None:
    """Each part is what the manifest says."""
    for placed in Archive.open(out).parts():
        PartReader(out, placed.part).check()


@pytest.mark.by_turns(2)
@pytest.mark.parametrize("workers", [1, 2])
def test_the_same_from_the_archive_and_back_in_a_store(
    store: Path, out: Path, tmp_path: Path, workers: int
) -> None:
    made = history(random.Random(workers), 1500, size_max=60_000)
    made += [group(Gtid(7, 1, 1), 20 << 20), marker(99), *later(made, 5), marker(100)]
    grow(store, made)
    source = DirectorySource(str(store))

    done = run(source, out, engine=Engine("local", workers), is_checked=True)
    assert done.groups == sum(gtid is not None for _, gtid in made)
    assert done.payload_bytes == sum(len(payload) for payload, gtid in made if gtid is not None)
    assert done.parts > 5
    assert done.manifest.state == state_after(made)
    check(out)

    archived = ArchiveSource(str(out))
    assert rows(archived) == rows(source)
    assert log_of(archived) == payloads(made)
    assert (archived.earliest(), archived.latest()) == (source.earliest(), source.latest())

    done_back = replayed(out, tmp_path / "back")
    assert stored(tmp_path / "back") == payloads(made)
    assert done_back.position == source.latest()
    back = DirectorySource(str(tmp_path / "back"))
    assert [row[3] for row in rows(back)] == [row[3] for row in rows(source)]


def test_a_second_run_goes_on_exactly_behind_the_first(store: Path, out: Path) -> None:
    rng = random.Random(5)
    made: list[Group] = []
    for _ in range(8):
        more = history(rng, 60, size_max=40_000)
        # The numbers of all domains go on.
        state = state_after(made)
        moved = []
        for payload, gtid in more:
            if gtid is None:
                moved.append(Group(payload, None))
                continue
            last = state.last(gtid.domain_id)
            new = Gtid(gtid.domain_id, gtid.server_id, 1 if last is None else last.seq_no + 1)
            state.update(new)
            moved.append(group(new, len(payload)))
        made += moved
        grow(store, moved, flush=rng.random() < 0.5)
        run(DirectorySource(str(store)), out, partition_bytes=rng.choice([64, 512, 4096]) << 10)
        assert log_of(ArchiveSource(str(out))) == payloads(made)
    assert run(DirectorySource(str(store)), out).parts == 0
    assert rows(ArchiveSource(str(out))) == rows(DirectorySource(str(store)))


def test_without_the_tail_only_files_that_are_full(store: Path, out: Path) -> None:
    made = simple(20, size=200_000)
    grow(store, made)
    source = DirectorySource(str(store))
    done = run(source, out, tail=False)
    published = source.published()
    assert published is not None
    closed = [row for row in rows(source) if row[1].file_no < published.end.file_no]
    assert 0 < len(closed) < 20
    assert rows(ArchiveSource(str(out))) == closed
    assert run(source, out, tail=False).parts == 0
    assert run(source, out, tail=True).groups == 20 - done.groups
    assert rows(ArchiveSource(str(out))) == rows(source)
    assert run(source, out, tail=False).parts == 0  # it is beyond the files that are full


def test_numbers_that_go_backwards_are_archived_too(store: Path, out: Path) -> None:
    made = simple(10, first=100)
    grow(store, made)
    run(DirectorySource(str(store)), out)
    back = [group(Gtid(0, 2, n)) for n in (50, 51, 120)]
    grow(store, back)
    assert run(DirectorySource(str(store)), out).groups == 3
    assert log_of(ArchiveSource(str(out))) == payloads(made + back)


def test_purged_is_what_was_archived(store: Path, out: Path) -> None:
    made = simple(30, size=200_000)
    grow(store, made)
    run(DirectorySource(str(store)), out)
    more = later(made, 3)
    # The file of the last group is still there.
    grow(store, more, purge=3)
    assert run(DirectorySource(str(store)), out).groups == 3
    # And now it is not: the state at the beginning of the first file is that of the archive.
    grow(store, [], flush=True)
    run(DirectorySource(str(store)), out)
    last = len(list(store.glob("binlog-*.ibb")))
    grow(store, later(made + more, 4), purge=last - 2)
    assert run(DirectorySource(str(store)), out).groups == 4
    whole = [*made, *more, *later(made + more, 4)]
    assert log_of(ArchiveSource(str(out))) == payloads(whole)


def test_a_gap_is_an_error(store: Path, out: Path) -> None:
    made = simple(10, size=200_000)
    grow(store, made)
    run(DirectorySource(str(store)), out)
    lost = later(made, 10)
    grow(store, [group(g.gtid, 200_000) for g in lost if g.gtid is not None], flush=True)
    grow(store, later(made + lost, 2), purge=4)
    with pytest.raises(DataLost, match=r"the archive ends with 0-1-10, at '0-1-10'"):
        run(DirectorySource(str(store)), out)
    assert log_of(ArchiveSource(str(out))) == payloads(made)


@pytest.mark.parametrize("before_commit", [True, False])
@pytest.mark.parametrize("archived_at", ["", "open", "committed"])
def test_a_group_of_which_purge_has_left_a_half(
    store: Path, out: Path, before_commit: bool, archived_at: str
) -> None:
    """It is passed over only if the archive begins behind it, or has it."""
    source = DirectorySource(str(store))

    def look(stage: str) -> None:
        if stage == archived_at:
            run(source, out)

    made = leave_half(store, before_commit=before_commit, look=look)
    if archived_at == "open":
        with pytest.raises(DataLost, match="the archive ends with 0-1-20"):
            run(source, out)
        assert log_of(ArchiveSource(str(out))) == payloads(made[:20])
        return
    assert run(source, out, partition_bytes=1).groups == 20
    archived = log_of(ArchiveSource(str(out)))
    assert archived[-20:] == payloads(made[20:])
    assert len(archived) == (41 if archived_at else 20)
    check(out)
    more = later(made, 3)
    grow(store, more)
    assert run(source, out).groups == 3
    assert run(source, out, tail=False).parts == 0


@pytest.mark.parametrize("before_commit", [True, False])
def test_an_archive_that_was_only_begun_before_a_half_was_left(
    store: Path, out: Path, before_commit: bool
) -> None:
    """It has no group yet to look for, and what it begins with tells what is missing."""

    def look(stage: str) -> None:
        if stage == "open":
            grow(out.parent / "empty", [])
            run(DirectorySource(str(out.parent / "empty")), out)

    leave_half(store, before_commit=before_commit, look=look)
    with pytest.raises(DataLost, match="is not archived, but the store begins behind it"):
        run(DirectorySource(str(store)), out)
    assert log_of(ArchiveSource(str(out))) == []


def test_another_history_is_an_error(store: Path, out: Path, tmp_path: Path) -> None:
    made = simple(10)
    grow(store, made)
    run(DirectorySource(str(store)), out)
    other = [group(Gtid(0, 1, n), 111) for n in range(1, 20)]
    grow(tmp_path / "other", other)
    with pytest.raises(SourceError, match="its group 0-1-10 is another one than the last group"):
        run(DirectorySource(str(tmp_path / "other")), out)
    grow(tmp_path / "behind", made[:5])
    with pytest.raises(DataLost):
        run(DirectorySource(str(tmp_path / "behind")), out)
    assert log_of(ArchiveSource(str(out))) == payloads(made)


def test_a_copy_of_the_history_elsewhere_goes_on_by_gtid(
    store: Path, out: Path, tmp_path: Path
) -> None:
    made = simple(30, size=100_000)
    grow(store, made)
    run(DirectorySource(str(store)), out)
    # The same groups at other places.
    more = later(made, 10)
    grow(tmp_path / "copy", [*made[:3], marker(1), *made[3:], *more])
    run(DirectorySource(str(tmp_path / "copy")), out)
    archived = rows(ArchiveSource(str(out)))
    assert [row[3] for row in archived] == payloads(made + more)
    places = [row[1] for row in archived]
    assert places == sorted(set(places))
    # And from there on by place again.
    last = later(made + more, 2)
    grow(tmp_path / "copy", last)
    assert run(DirectorySource(str(tmp_path / "copy")), out).groups == 2
    assert [row[3] for row in rows(ArchiveSource(str(out)))] == payloads(made + more + last)


def test_a_store_that_begins_with_a_state(store: Path, out: Path, tmp_path: Path) -> None:
    state = BinlogState.parse("0-2-5,0-1-9,3-1-4")
    made = [group(Gtid(0, 1, n)) for n in range(10, 20)]
    grow(store, made, state=state)
    run(DirectorySource(str(store)), out)
    assert Archive.open(out).begin == state
    replayed(out, tmp_path / "back")
    with_state = ArchiveSource(str(out))
    assert with_state.beginning() == DirectorySource(str(tmp_path / "back")).beginning() == state
    assert stored(tmp_path / "back") == stored(store)


def test_an_archive_of_an_archive(store: Path, out: Path, tmp_path: Path) -> None:
    made = history(random.Random(3), 300, size_max=50_000)
    grow(store, made)
    run(DirectorySource(str(store)), out)
    done = run(ArchiveSource(str(out)), tmp_path / "second", partition_bytes=1 << 30)
    assert done.parts == 1
    assert log_of(ArchiveSource(str(tmp_path / "second"))) == payloads(made)
    assert rows(ArchiveSource(str(tmp_path / "second"))) == rows(DirectorySource(str(store)))


def test_nothing_to_archive(store: Path, out: Path) -> None:
    grow(store, [])
    done = run(DirectorySource(str(store)), out)
    assert (done.parts, done.groups, str(done.manifest.state)) == (0, 0, "")
    assert rows(ArchiveSource(str(out))) == []
    assert ArchiveSource(str(out)).latest() == SlavePosition()


def test_a_marker_in_a_file_of_its_own(store: Path, out: Path) -> None:
    made = simple(3)
    grow(store, made, flush=True)
    grow(store, [marker(1)], flush=True)
    more = later(made, 2)
    grow(store, more, flush=True)
    run(DirectorySource(str(store)), out, tail=False, partition_bytes=32 << 10)
    run(DirectorySource(str(store)), out, tail=False)
    assert log_of(ArchiveSource(str(out))) == payloads([*made, marker(1), *more])


def test_replay_goes_on(store: Path, out: Path, tmp_path: Path) -> None:
    made = history(random.Random(11), 200, size_max=30_000)
    grow(store, made)
    run(DirectorySource(str(store)), out)
    back = tmp_path / "back"
    assert replayed(out, back).taken.groups == sum(gtid is not None for _, gtid in made)
    assert replayed(out, back).taken.groups == 0
    more = later(made, 7)
    grow(store, more)
    run(DirectorySource(str(store)), out)
    assert replayed(out, back).taken.groups == 7
    assert stored(back) == payloads(made + more)

    # Only from a position on.
    position = state_after(made).position()
    replayed(out, tmp_path / "late", start=position)
    late = stored(tmp_path / "late")
    assert late == payloads(made + more)[-len(late) :]
    assert 7 <= len(late) < len(made)
    grow(tmp_path / "stranger", [group(Gtid(0, 9, 1))])
    run(DirectorySource(str(tmp_path / "stranger")), tmp_path / "strange")
    replayed(tmp_path / "strange", tmp_path / "other")
    with pytest.raises(DoesNotContinue):
        replayed(out, tmp_path / "other")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "ibdata1").touch()
    with pytest.raises(NotAStore, match="holds something"):
        replayed(out, tmp_path / "foreign")


def test_the_commands(
    store: Path, out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = simple(50, size=20_000)
    grow(store, made)
    archived = ["archive", str(store), str(out), "--include-tail", "--engine", "local"]
    assert main([*archived, "--workers", "1", "--check", "--zstd-level", "3"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("50 groups, 1.0 MiB, in 1 part of ")
    assert said.endswith(f"; {out} is at '0-1-50'\n")
    assert main([*archived, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["added"] == {"parts": 0, "groups": 0, "bytes": 0, "size": 0}
    assert (facts["groups"], facts["bytes"], facts["position"]) == (50, 1_000_000, "0-1-50")
    assert main(archived) == 0
    assert capsys.readouterr().out == f"nothing new: {out} is at '0-1-50'\n"

    back = ["replay", str(out), "--ibb", str(tmp_path / "back"), "--max-binlog-size", "1m"]
    assert main(back) == 0
    assert capsys.readouterr().out.startswith("50 groups, 1.0 MiB, in ")
    assert main(back) == 0
    assert capsys.readouterr().out == f"nothing new: {tmp_path / 'back'} is at '0-1-50'\n"
    assert stored(tmp_path / "back") == payloads(made)

    assert main(["archive", str(store), str(store)]) == 1
    assert "is no archive: it holds 'binlog-000000.ibb'" in capsys.readouterr().err
    assert main(["replay", str(store), "--ibb", str(tmp_path / "x")]) == 1
    assert "is no archive: it has no _archive.json" in capsys.readouterr().err
