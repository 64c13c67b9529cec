"""A start that refuses a store has changed nothing of it; one that does not, serves all of it or says what is wrong."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from binlog_storage.binlog.options import NO_LOG_REDO, StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.errors import StorageError

from tests.storage import damaged_stores
from tests.storage.damaged_stores import DAMAGES, GROUPS, OPTIONS
from tests.storage.groups import payloads, read_all

FORCED = replace(OPTIONS, innodb_force_recovery=NO_LOG_REDO)
HANGS_S = 60
# A start reads the end of the binlog and what says where it is; the files before are met by their readers.
READ_LATER = ("first: ", "middle: ")
OPENS = frozenset(
    {
        *("last: shorter, whole pages", "last: shorter, in a page", "last: longer, zeros"),
        *("last: longer, part of a page", "last: longer, garbage", "last: middle page of zeros"),
        *("last: last page of zeros", "last: bad middle page"),
        *("redo: one bad checkpoint", "redo: other bad checkpoint", "state: missing"),
        *("published: missing", "published: empty", "published: bad", "made ahead: missing"),
        "numbers: swapped",
    }
)
FORCED_OPENS = frozenset(
    {
        *("last: missing", "last: empty", "last: shorter, header only", "last: all zeros"),
        *("last: twin of the one made ahead", "redo: missing", "redo: empty", "redo: shorter"),
        *("redo: longer", "redo: bad header", "redo: bad checkpoints", "redo: shifted"),
        *("redo: nothing in it", "redo: of another store"),
    }
)


@pytest.fixture(autouse=True)
def _nothing_hangs() -> Iterator[None]:
    """Opening a FIFO waits for ever, in the kernel: a signal gets it out."""

    def hangs(*_: object) -> None:
        raise AssertionError("it hangs")

    signal.signal(signal.SIGALRM, hangs)
    signal.alarm(HANGS_S)
    yield
    signal.alarm(0)


def opened_or_refused(store: Path, options: StoreOptions = OPTIONS) -> IbbEngine | None:
    """None, and every byte is as it was, if the store is refused."""
    before = damaged_stores.picture(store)
    try:
        return damaged_stores.opened(store, options)
    except StorageError as error:
        refused = str(error)
    assert damaged_stores.picture(store) == before, refused
    return None


def read_or_refused(engine: IbbEngine) -> str:
    """All groups, or an error that says what is wrong; never fewer without a word."""
    try:
        assert read_all(engine) == payloads(GROUPS)
    except StorageError as error:
        return str(error)
    finally:
        engine.close()
    return ""


@pytest.mark.by_turns(3)
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", ["closed", "killed"])
def test_refused_and_nothing_changed(tmp_path: Path, kind: str, damage: str) -> None:
    store = damaged_stores.make(tmp_path / "store", kind)
    DAMAGES[damage](store)
    for _ in range(2):
        engine = opened_or_refused(store)
        if engine is not None:
            said = read_or_refused(engine)
            assert not said or not damage.startswith(("redo", "state", "published")), said
            return
    damaged_stores.repair(store, kind)
    engine = damaged_stores.opened(store)
    assert read_all(engine) == payloads(GROUPS)
    engine.close()


@pytest.mark.by_turns(3)
@pytest.mark.parametrize("damage", DAMAGES)
def test_refused_with_force_and_nothing_changed(tmp_path: Path, damage: str) -> None:
    """innodb_force_recovery=6 goes on with what the files hold, also behind a start that was refused."""
    store = damaged_stores.make(tmp_path / "store", "killed")
    DAMAGES[damage](store)
    engine = opened_or_refused(store)
    later = damage.startswith(READ_LATER) and damage != "middle: missing"
    assert (engine is not None) is (damage in OPENS or later)
    if engine is not None:
        engine.close()
        return
    engine = opened_or_refused(store, FORCED)
    assert (engine is not None) is (damage in FORCED_OPENS)
    if engine is None:
        return
    if damage.startswith("redo"):
        assert read_all(engine) == payloads(GROUPS), "every group was in the files"
    engine.close()
