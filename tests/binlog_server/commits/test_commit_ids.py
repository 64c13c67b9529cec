"""Commit ids: no two groups of one id change the same row, whatever comes, and those that may share one do."""

from __future__ import annotations

import random

import pytest

from binlog_server.commits.commit_ids import CommitIds, Writes


def rows(*keys: bytes, table: int = 7) -> frozenset[tuple[int, bytes]]:
    return frozenset((table, key) for key in keys)


def test_who_shares_an_id() -> None:
    ids = CommitIds()
    a, b, c = rows(b"a"), rows(b"b"), rows(b"c")
    assert ids.next(Writes(a, 1), 1) is None  # the first of a sync
    assert ids.next(Writes(a, 1), 2) == 2  # which a replica finishes before this one
    assert ids.next(Writes(b | c, 1), 3) == 2
    assert ids.next(Writes(rows(b"a", table=8), 1), 4) == 2
    assert ids.next(Writes(c, 1), 5) == 5
    assert ids.next(Writes(a, 1), 6) == 5
    assert ids.next(None, 7) is None  # text
    assert ids.next(Writes(b, 1), 8) is None
    assert ids.next(Writes(b, 1), 9) == 9
    assert ids.next(Writes(a, 2), 10) is None  # another sync


@pytest.mark.parametrize("seed", range(5))
def test_no_two_of_an_id_change_the_same_row(seed: int) -> None:
    rng = random.Random(seed)
    ids = CommitIds()
    groups: dict[int, list[frozenset[tuple[int, bytes]]]] = {}
    last: int | None = None
    ended: set[int] = set()
    sync = 0
    for number in range(1, 2000):
        sync += rng.random() < 0.05
        changed = rows(*[b"%d" % rng.randrange(40) for _ in range(rng.choice([1, 1, 2, 5]))])
        found = ids.next(None if rng.random() < 0.05 else Writes(changed, sync), number)
        if last is not None and found != last:
            ended.add(last)
        last = found
        if found is not None:
            assert found not in ended, "those of an id stand together"
            assert all(changed.isdisjoint(other) for other in groups.setdefault(found, []))
            groups[found].append(changed)
    assert sum(len(group) > 1 for group in groups.values()) > 50
