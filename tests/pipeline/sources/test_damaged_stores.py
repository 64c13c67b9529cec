"""Whatever stands in the place of a file: who reads the store has all groups, or says what is wrong; nobody hangs."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from binlog_storage.errors import StorageError
from binlog_storage.ibb.file_names import file_name

from tests.binlog_server.cli.command import run
from tests.pipeline.damaged_readers import LIVE, READERS, Seen, dumped
from tests.storage import damaged_stores
from tests.storage.damaged_stores import DAMAGES, FILES, FIRST, GROUPS, LAST, MIDDLE

ALL = [str(group.gtid) for group in GROUPS]
HANGS_S = 60

# Nothing that is read is touched by these.
HARMLESS = [
    *(name for name in DAMAGES if name.startswith("published") and "missing" in name),
    "published: empty",
    "published: bad",
    "made ahead: missing",
    "state: missing",
]


# Of a file that is asked for by its name: MariaDB's words.
UNNAMED = ("purged", "Could not find first log file name in binary log index file")


@pytest.fixture(autouse=True)
def _nothing_hangs() -> Iterator[None]:
    def hangs(*_: object) -> None:
        raise AssertionError("it hangs")

    signal.signal(signal.SIGALRM, hangs)
    signal.alarm(HANGS_S)
    yield
    signal.alarm(0)


def all_or_said(seen: Seen, number: int | None) -> None:
    """All groups; or an error, and what came before it is in order, and nothing is made up."""
    if seen.groups == ALL and not seen.said:
        return
    assert seen.said, f"{len(seen.groups)} of {len(ALL)} groups, and not a word"
    left = iter(ALL)
    assert all(gtid in left for gtid in seen.groups), "in the order of the store"
    if number is not None and not any(words in seen.said for words in UNNAMED):
        neighbours = (max(0, number - 1), number, number + 1)  # where it is noticed
        assert any(file_name(n) in seen.said for n in neighbours), seen.said


@pytest.mark.by_turns(12)
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("damage", DAMAGES)
def test_all_groups_or_an_error(tmp_path: Path, damage: str, reader: str) -> None:
    store = damaged_stores.make(tmp_path / "store", "closed")
    DAMAGES[damage](store)
    seen = READERS[reader](store)
    all_or_said(seen, FILES[damage][0] if damage in FILES else None)
    # What is durable must be published for a job that may read beside a server.
    is_job = reader in ("spark", "archive") and damage.startswith("published")
    assert damage not in HARMLESS or is_job or not seen.said


@pytest.mark.by_turns(12)
@pytest.mark.parametrize("classic", [False, True], ids=["engine", "classic"])
@pytest.mark.parametrize("meanwhile", [False, True], ids=["before", "meanwhile"])
@pytest.mark.parametrize("damage", FILES)
def test_damaged_while_the_server_runs(
    tmp_path: Path, damage: str, meanwhile: bool, classic: bool
) -> None:
    """A replica gets 1236 with the file and the reason, or all groups; never heartbeats for ever."""
    store = damaged_stores.make(tmp_path / "store", "closed")
    seen = dumped(store, LIVE, lambda: DAMAGES[damage](store), classic=classic, meanwhile=meanwhile)
    all_or_said(seen, FILES[damage][0])


@pytest.mark.parametrize("damage", [name for name in FILES if "link to another" in name])
def test_nothing_is_written_through_a_link(tmp_path: Path, damage: str) -> None:
    """What a running server writes into the last file is not written into another one."""
    store = damaged_stores.make(tmp_path / "store", "closed")
    others = [store / file_name(number) for number in (1, 2)]
    before = [path.read_bytes() for path in others]
    dumped(store, LIVE, lambda: DAMAGES[damage](store))
    assert [path.read_bytes() for path in others if not path.is_symlink()] == [
        data for path, data in zip(others, before, strict=True) if not path.is_symlink()
    ]


@pytest.mark.by_turns(12)
@pytest.mark.parametrize("classic", [False, True], ids=["engine", "classic"])
@pytest.mark.parametrize("damage", FILES)
def test_damaged_before_the_server_starts(tmp_path: Path, damage: str, classic: bool) -> None:
    """The same for a replica that stays, if the server starts at all."""
    store = damaged_stores.make(tmp_path / "store", "closed")
    DAMAGES[damage](store)
    all_or_said(dumped(store, LIVE, classic=classic), FILES[damage][0])


_INSIDE = [
    f"middle: {what}"
    for what in (
        "bad middle page",
        "bad page 1",
        "longer, garbage",
        "longer, part of a page",
        "longer, zeros",
        "middle page of zeros",
        "page 1 of zeros",
    )
]
"""Not on the pages that a start looks at."""


@pytest.mark.parametrize("damage", [name for name in FILES if name.startswith("middle")])
def test_a_start_warns(tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    """Of what the first and last pages of a file tell; the file is named."""
    store = damaged_stores.make(tmp_path / "store", "closed")
    DAMAGES[damage](store)
    refusal = ""
    try:
        engine = damaged_stores.opened(store)
        engine.tell_damage()
        engine.close()
    except StorageError as error:
        refusal = str(error)
    assert (damage not in _INSIDE) == (file_name(MIDDLE) in refusal + caplog.text)


@pytest.mark.by_turns(3)
@pytest.mark.parametrize("command", ["verify", "ls"])
@pytest.mark.parametrize("damage", FILES)
def test_seen_by_those_who_look_at_files(tmp_path: Path, damage: str, command: str) -> None:
    """`verify` finds every damage; `ls` looks at a few pages of each file, and says what it meets there."""
    store = damaged_stores.make(tmp_path / "store", "closed")
    DAMAGES[damage](store)
    ran = run(command, store)
    place, what = damage.split(": ")
    if command == "verify" or what in ("fifo", "folder", "bad header", "empty", "bad page 1"):
        assert ran.code == 1, ran.out.decode()
    if place == "middle" and what in ("all zeros", "header of zeros", "twin of the one made ahead"):
        assert ran.code == 1, ran.out.decode()


@pytest.mark.parametrize("damage", [n for n in DAMAGES if n.startswith(("state", "redo"))])
def test_verify_sees_what_a_start_would_refuse(tmp_path: Path, damage: str) -> None:
    store = damaged_stores.make(tmp_path / "store", "closed")
    DAMAGES[damage](store)
    refused = False
    ran = run("verify", store)
    try:
        damaged_stores.opened(store).close()
    except StorageError:
        refused = True
    assert ran.code == int(refused), ran.out.decode() + ran.err


# --- files that were deleted by hand ---


@pytest.mark.parametrize("count", [1, 2])
def test_deleted_at_the_beginning(tmp_path: Path, count: int) -> None:
    """A purge notes where the store begins, so that this is told from one. PURGE says that it may be so."""
    store = damaged_stores.make(tmp_path / "store", "closed")
    for number in range(FIRST, count):
        (store / file_name(number)).unlink()
    words = (
        "binlog-000000.ibb is missing, and was not purged"
        if count == 1
        else "binlog-000000.ibb to binlog-000001.ibb are missing, and were not purged"
    )
    seen = READERS["events"](store)
    assert words in seen.said
    assert not seen.groups, "it is said before anything is applied"
    left = [store / file_name(n) for n in range(count, LAST + 1)]
    assert run("events", *left).out, "who names the files gets what is left"
    for reader in ("spark", "archive"):
        assert words in READERS[reader](store).said
    ran = run("verify", store)
    assert ran.code == 1
    assert words in ran.out.decode()
    assert run("events", store, "--start-position", ALL[-3]).code == 0, "what is asked for is there"
    engine = damaged_stores.opened(store)
    engine.purge_to(count)
    engine.close()
    assert not READERS["events"](store).said
    assert run("verify", store).code == 0


def test_purged_at_the_beginning(tmp_path: Path) -> None:
    store = damaged_stores.make(tmp_path / "store", "closed")
    engine = damaged_stores.opened(store)
    engine.purge_to(MIDDLE)
    engine.close()
    seen = READERS["events"](store)
    assert not seen.said
    assert seen.groups == ALL[-len(seen.groups) :]
    assert run("verify", store).code == 0


@pytest.mark.parametrize("damage", [n for n in FILES if n.startswith("first")])
def test_a_damaged_file_can_be_purged(tmp_path: Path, damage: str) -> None:
    store = damaged_stores.make(tmp_path / "store", "closed")
    DAMAGES[damage](store)
    engine = damaged_stores.opened(store)
    if "folder" in damage:
        (store / file_name(FIRST)).rmdir()
        (store / file_name(FIRST)).touch()
    assert engine.purge_to(LAST).kept is None
    engine.close()
    assert not READERS["dump"](store).groups
    assert run("verify", store).code == 0
