"""`compare` on stores of both formats, and archives."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from binlog_protocol.gtid import Gtid
from binlog_storage.archive.archiver import StoreArchiver
from binlog_storage.archive.group_files import GroupFile
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.classic.options import ClassicOptions
from binlog_storage.classic.store import ClassicEngine
from binlog_storage.disk.disk import OsDisk
from binlog_storage.engine import BinlogEngine
from binlog_storage.log.groups import OfflineGroup

from tests.binlog_server.cli.command import run
from tests.protocol.statement_groups import transaction_group

NOON = 1_780_000_000
Make = Callable[..., Path]
HISTORY = [Gtid(n % 2, 1, 1000 + n // 2) for n in range(120)]
"""Two domains; each has a border between blocks in its middle."""


def group(gtid: Gtid, text: str = "", xid: int = 7) -> bytes:
    statement = f"INSERT INTO t VALUES ({gtid.seq_no}) {text}"
    return transaction_group(gtid, [statement], xid=xid, database="d", timestamp=NOON)


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def make(
        name: str,
        kind: str,
        gtids: Iterable[Gtid] = HISTORY,
        *,
        other: Gtid | None = None,
        flush_at: Iterable[int] = (30, 61),
        purged: bool = False,
        text: str = "",
        xid: int = 7,
    ) -> Path:
        """A store; `other`: this group has `text`; all have `xid`."""
        path = tmp_path / name
        engine: BinlogEngine
        if kind == "classic":
            engine = ClassicEngine(OsDisk(path), ClassicOptions())
        else:
            engine = IbbEngine(OsDisk(path), StoreOptions(1 << 20))
        for number, gtid in enumerate(gtids):
            if number in flush_at:
                engine.flush()
            engine.append(group(gtid, text if gtid == other else "", xid), gtid)
        engine.sync()
        if purged:
            engine.set_option("slave_connections_needed_for_purge", 0)
            assert engine.purge_to(engine.files()[1].number).delete
        if kind == "archive":
            archiver = StoreArchiver(engine, tmp_path / f"{name}.archive", part_bytes=1500)
            while archiver.step():
                pass
            archiver.close()
            path = tmp_path / f"{name}.archive"
        engine.close()
        return path

    return make


def compared(code: int, *arguments: str | Path) -> dict[int, dict[str, Any]]:
    ran = run("compare", *arguments, "--json")
    assert ran.code == code, (ran.lines, ran.err)
    told = json.loads(ran.out)
    assert told["equal"] == (code == 0)
    return {one.pop("domain"): one for one in told["domains"]}


@pytest.mark.parametrize(
    ("here", "there"), [("ibb", "classic"), ("classic", "archive"), ("archive", "ibb")]
)
def test_equal(make: Make, here: str, there: str) -> None:
    """Whatever the format, the borders of files and the order between domains."""
    by_domain = sorted(HISTORY)
    found = compared(0, make("a", here), make("b", there, by_domain, flush_at=(45,)))
    for domain_id in (0, 1):
        assert found[domain_id] == {
            "first": f"{domain_id}-1-1000",
            "last": f"{domain_id}-1-1059",
            "equal": 60,
            "logged_anew": 0,
            "other_form": 0,
            "differs_at": None,
            "difference": "",
            "only_first": 0,
            "only_second": 0,
        }


@pytest.mark.parametrize("seq_no", [1000, 1024])
def test_a_group_with_other_content(make: Make, seq_no: int) -> None:
    other = Gtid(1, 1, seq_no)
    found = compared(1, make("a", "ibb"), make("b", "classic", other=other, text="/* forged */"))
    assert found[0]["differs_at"] is None
    assert found[1]["differs_at"] == str(other)
    assert found[1]["equal"] == seq_no - 1000
    assert "forged" in found[1]["difference"]
    text = run("compare", make("c", "ibb"), make("d", "ibb", other=other, text="/* forged */"))
    assert text.code == 1
    assert f"DIFFERS at {other}: not the same group" in "\n".join(text.lines)


@pytest.mark.parametrize("seq_no", [1023, 1024])
def test_a_group_that_is_missing(make: Make, seq_no: int) -> None:
    missing = Gtid(0, 1, seq_no)
    without = make("b", "ibb", [gtid for gtid in HISTORY if gtid != missing])
    whole = make("a", "classic")
    found = compared(1, whole, without)[0]
    assert (found["differs_at"], found["equal"]) == (str(missing), seq_no - 1000)
    assert f"{without} lacks it" in found["difference"]
    assert f"{without} lacks it" in compared(1, without, whole)[0]["difference"]


def test_a_number_of_another_server(make: Make) -> None:
    forked = [Gtid(0, 2, 1030) if gtid == Gtid(0, 1, 1030) else gtid for gtid in HISTORY]
    assert compared(1, make("a", "ibb"), make("b", "ibb", forked))[0]["differs_at"] == "0-1-1030"


@pytest.mark.parametrize("kind", ["ibb", "classic"])
def test_where_they_begin_and_end(make: Make, kind: str) -> None:
    """What was purged is not compared; what is behind the end of one is told."""
    purged = make("a", kind, HISTORY[:100], purged=True)
    later = make("b", "ibb", HISTORY[50:])
    found = compared(0, purged, make("c", "archive"))
    assert (found[0]["first"], found[0]["last"], found[0]["only_second"]) == (
        "0-1-1015",
        "0-1-1049",
        10,
    )
    found = compared(0, later, purged)
    assert (found[1]["first"], found[1]["equal"], found[1]["only_first"]) == ("1-1-1025", 25, 10)
    forged = make("d", "ibb", other=Gtid(0, 1, 1016), text="x")
    assert compared(1, purged, forged)[0]["differs_at"] == "0-1-1016"


def test_logged_anew(make: Make) -> None:
    """A replica with log_slave_updates writes the same in bytes of its own."""
    one, other = make("a", "ibb"), make("b", "classic", xid=8)
    found = compared(0, one, other)
    assert (found[0]["equal"], found[0]["logged_anew"]) == (0, 60)
    assert compared(1, one, other, "--exact")[0]["differs_at"] == "0-1-1000"


def test_numbers_that_go_back(make: Make) -> None:
    back = [*HISTORY[:60], *(Gtid(0, 2, n) for n in (5, 2000, 6)), *HISTORY[60:]]
    assert compared(0, make("a", "ibb", back), make("b", "classic", back))[0]["equal"] == 63


SIDE_BY_SIDE = "binlog_storage.archive.history_comparison"


@pytest.fixture
def files_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files whose groups were read."""
    found = []
    groups_of = GroupFile.__init__

    def init(file: GroupFile, *arguments: Any, **named: Any) -> None:
        groups_of(file, *arguments, **named)
        read = file.groups

        def noted() -> Iterator[OfflineGroup]:
            found.append(file.name)
            return read()

        object.__setattr__(file, "groups", noted)

    monkeypatch.setattr(GroupFile, "__init__", init)
    return found


def test_each_file_is_read_twice_at_most(make: Make, files_read: list[str]) -> None:
    """Once for the chains, once side by side: whatever the number of domains."""
    gtids = [Gtid(n % 7, 1, 1 + n // 7) for n in range(210)]
    one, other = make("a", "ibb", gtids), make("b", "classic", sorted(gtids), xid=8)
    found = compared(0, one, other)
    assert sum(each["logged_anew"] for each in found.values()) == 210
    assert max(Counter(files_read).values()) == 2, files_read


def test_domains_in_another_order(
    make: Make, files_read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """More waits than may: a domain is read by itself, and nothing of it is missed."""
    monkeypatch.setattr(f"{SIDE_BY_SIDE}._WAITING_BYTES", 1000)
    gtids = [Gtid(n % 3, 1, 1 + n // 3) for n in range(120)]
    other = Gtid(1, 1, 30)
    one = make("a", "ibb", gtids)
    for kind, order in (("classic", (0, 1, 2)), ("ibb", (2, 1, 0))):
        there = [gtid for domain_id in order for gtid in gtids if gtid.domain_id == domain_id]
        found = compared(1, one, make(f"b {kind}", kind, there, xid=8, other=other, text="x"))
        assert [found[d]["logged_anew"] for d in range(3)] == [40, 29, 40]
        assert found[1]["differs_at"] == str(other)


def test_an_index(make: Make, tmp_path: Path, files_read: list[str]) -> None:
    """Closed files are read once, pairs laid side by side once; what has changed since is seen."""
    index = tmp_path / "index"
    one, anew = make("a", "ibb"), make("b", "classic", xid=8)
    first = compared(0, one, anew, "--index", index)
    assert len(set(files_read)) == 6
    files_read.clear()
    assert compared(0, one, anew, "--index", index) == first
    assert files_read == ["binlog-000002.ibb", "binlog.000003"]  # they are being written
    for path in index.iterdir():
        path.write_bytes(path.read_bytes()[:-5] + b"]]]]]")
    assert compared(0, one, anew, "--index", index) == first
    shutil.rmtree(anew)
    make("b", "classic", xid=8, other=Gtid(0, 1, 1002), text="y")
    assert compared(1, one, anew, "--index", index)[0]["differs_at"] == "0-1-1002"
    assert compared(1, one, anew, "--index", index)[0]["differs_at"] == "0-1-1002"
    compared(0, one, one, "--index", index)
    assert len(list(index.iterdir())) == 3  # what was forgotten is not kept


def test_an_index_when_a_file_in_front_is_purged(make: Make, tmp_path: Path) -> None:
    """The blocks of a file begin elsewhere then, though the file is the same."""
    index = tmp_path / "index"
    one, other = make("a", "ibb"), make("b", "ibb")
    compared(0, one, other, "--index", index)
    engine = IbbEngine(OsDisk(one), StoreOptions(1 << 20))
    engine.set_option("slave_connections_needed_for_purge", 0)
    assert engine.purge_to(engine.files()[1].number).delete
    engine.close()
    found = compared(0, one, other, "--index", index)
    assert (found[0]["first"], found[0]["equal"]) == ("0-1-1015", 45)


def test_what_cannot_be_compared(make: Make, tmp_path: Path) -> None:
    one = make("a", "ibb")
    nothing = run("compare", one, make("b", "ibb", [Gtid(7, 1, 1)], flush_at=()))
    assert (nothing.code, "no group in common" in nothing.err) == (2, True)
    assert run("compare", one, tmp_path / "not-there").code == 2
    damaged = make("c", "ibb")
    first = min(damaged.glob("*.ibb"))
    data = bytearray(first.read_bytes())
    data[16384 + 300] ^= 1
    first.write_bytes(data)
    ran = run("compare", one, damaged)
    assert (ran.code, first.name in ran.err) == (2, True)
