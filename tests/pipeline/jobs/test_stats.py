"""Statistics: against what a server was told to do, and the same however the source is cut."""

from __future__ import annotations

import json
import random
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from binlog_pipeline.cli import main
from binlog_pipeline.cli.stats import as_object
from binlog_pipeline.jobs.amounts import Amount, Rates, Sizes
from binlog_pipeline.jobs.stats import (
    DomainNumbers,
    Gap,
    LogStatistics,
    slice_statistics,
    statistics,
)
from binlog_pipeline.jobs.workers import Engine
from binlog_pipeline.options import SourceOptions
from binlog_pipeline.sources.opening import open_source
from binlog_pipeline.wanted import Wanted
from binlog_protocol.gtid import Gtid
from hypothesis import given
from hypothesis import strategies as st

from tests.kit.backends import Backend
from tests.kit.fixtures import MakeMariaDB
from tests.pipeline.stores import make_store, store_of_upstream
from tests.storage.groups import group

HERE = Engine("local", 1)
START = 1_700_000_000


def stats_of(store: Path, engine: Engine = HERE, **options: str) -> LogStatistics:
    return statistics(SourceOptions.parse({"path": str(store), **options}), engine)


@pytest.mark.each_version
@pytest.mark.by_turns(2)
def test_what_a_server_was_told_to_do(
    backend: Backend, tmp_path: Path, make_upstream: MakeMariaDB
) -> None:
    upstream = make_upstream("--binlog-row-metadata=FULL")
    upstream.script(
        "CREATE DATABASE s",
        "CREATE TABLE s.a (id INT PRIMARY KEY, v TEXT)",
        "CREATE TABLE s.b (id INT PRIMARY KEY) ENGINE=InnoDB",
        f"SET SESSION timestamp={START}",
        "INSERT INTO s.a SELECT seq, REPEAT('x', 100) FROM s.seq_1_to_1000",
        f"SET SESSION timestamp={START + 3}",
        "UPDATE s.a SET v = 'y' WHERE id <= 10",
        "SET SESSION gtid_domain_id=5",
        "SET SESSION gtid_seq_no=50",
        "INSERT INTO s.b VALUES (1), (2)",
        "SET SESSION gtid_seq_no=60",
        "DELETE FROM s.b",
        "SET SESSION gtid_domain_id=0",
        "BEGIN",
        "INSERT INTO s.b VALUES (7)",
        "DELETE FROM s.a WHERE id = 7",
        "COMMIT",
    )
    found = stats_of(store_of_upstream(tmp_path / "store", upstream))
    assert found.groups == 8
    assert found.ddl == 3
    assert found.operations == {"inserts": 1003, "updates": 10, "deletes": 3}
    assert {name: (a.transactions, a.rows) for name, a in found.tables.items()} == {
        "s.a": (3, 1011),
        "s.b": (3, 5),
    }
    assert 100_000 < found.tables["s.a"].bytes < 120_000
    assert list(found.writers) == [upstream.server_id]
    assert found.writers[upstream.server_id].rows == 1016
    other = found.domains[5]
    assert (other.first.seq_no, other.last.seq_no, other.count, other.missing) == (50, 60, 2, 9)
    assert [gap.missing for gap in other.gaps] == [9]
    assert found.domains[0].gap_count == 0
    largest = found.largest[0]
    assert largest.bytes == found.sizes.largest > 100_000
    assert (largest.rows, largest.tables, largest.timestamp) == (1000, ("s.a",), START)
    rows = {begin: amount.rows for begin, amount in found.rates.amounts.items() if amount.rows}
    assert rows == {START: 1000, START + 3: 16}


def random_history(rng: random.Random) -> list[tuple[bytes, Gtid | None]]:
    """Groups of three domains and two servers, numbers with gaps."""
    made: list[tuple[bytes, Gtid | None]] = []
    numbers = Counter[int]()
    for _ in range(2000):
        domain = rng.randrange(3)
        numbers[domain] += 1 if rng.random() < 0.95 else rng.randrange(2, 9)
        made.append(
            group(Gtid(domain, rng.randrange(1, 3), numbers[domain]), rng.randrange(60, 3000))
        )
    return made


def test_however_it_is_cut(tmp_path: Path, rng: random.Random) -> None:
    history = random_history(rng)
    store = make_store(tmp_path / "store", history)
    source = open_source(SourceOptions.parse({"path": str(store)}))
    whole = LogStatistics()
    for part in source.slices(Wanted(), 1 << 30):
        whole.merge(slice_statistics(part))
    assert whole.groups == len(history)
    assert whole.bytes == sum(len(payload) for payload, _ in history)
    assert max(len(payload) for payload, _ in history) == whole.sizes.largest
    for domain, numbers in whole.domains.items():
        seqs = [gtid.seq_no for _, gtid in history if gtid is not None and gtid.domain_id == domain]
        assert numbers.count == len(seqs)
        assert numbers.missing == seqs[-1] - seqs[0] + 1 - len(seqs)
        assert numbers.gap_count == sum(b - a > 1 for a, b in pairwise(seqs))
    for size in (16384, 16384 * 7):
        total = LogStatistics()
        for part in source.slices(Wanted(), size):
            total.merge(slice_statistics(part))
        assert total == whole


def test_processes_give_the_same(tmp_path: Path, rng: random.Random) -> None:
    store = make_store(tmp_path / "store", random_history(rng))
    assert stats_of(store, Engine("local", 2)) == stats_of(store)


@given(st.lists(st.lists(st.integers(1, 1 << 40), max_size=30), max_size=5))
def test_sizes(parts: list[list[int]]) -> None:
    sizes = Sizes()
    for part in parts:
        more = Sizes()
        more.add(np.array(part, np.int64))
        sizes.merge(more)
    everything = sorted(size for part in parts for size in part)
    assert sizes.largest == max(everything, default=0)
    assert sum(count for _, count in sizes.buckets()) == len(everything)
    for least, count in sizes.buckets():
        assert count == sum(least <= size < max(2 * least, 1) for size in everything)
    for percent in (50, 95, 99, 100):
        at = max(-(-len(everything) * percent // 100) - 1, 0)
        exact = everything[at] if everything else 0
        assert exact * 0.998 <= sizes.percentile(percent) <= exact


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 9000), st.integers(0, 9), st.integers(40, 99))),
        max_size=4,
    ),
    st.sampled_from([1, 60, 3600]),
)
def test_rates(parts: list[list[tuple[int, int, int]]], step: int) -> None:
    rates = Rates()
    for part in parts:
        more = Rates()
        more.add(*np.array(part, np.int64).reshape(-1, 3).T)
        rates.merge(more)
    expected: dict[int, Amount] = {}
    for second, rows, size in (one for part in parts for one in part):
        expected.setdefault(second - second % step, Amount()).add(Amount(1, rows, size))
    assert rates.by(step).amounts == expected
    series = dict(rates.by(step).series())
    assert {begin: amount for begin, amount in series.items() if amount.transactions} == expected


def test_many_times_become_longer_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("binlog_pipeline.jobs.amounts._TIMES_MAX", 100)
    rates = Rates()
    times = np.arange(0, 100_000, 7)
    rates.add(times, np.ones_like(times), times)
    assert rates.step == 3600
    assert len(rates.amounts) == 28
    assert sum(amount.rows for amount in rates.amounts.values()) == len(times)


def test_numbers_that_go_back() -> None:
    numbers = DomainNumbers.of(0, np.array([1, 1, 2]), np.array([5, 9, 3]))
    numbers.merge(DomainNumbers.of(0, np.array([2]), np.array([4])))
    assert numbers.gaps == [
        Gap(Gtid(0, 1, 5), Gtid(0, 1, 9)),
        Gap(Gtid(0, 1, 9), Gtid(0, 2, 3)),
    ]
    assert [gap.missing for gap in numbers.gaps] == [3, -6]
    assert (numbers.missing, numbers.count, numbers.last) == (3, 4, Gtid(0, 2, 4))


def test_the_command(
    tmp_path: Path, rng: random.Random, capsys: pytest.CaptureFixture[str]
) -> None:
    store = str(make_store(tmp_path / "store", random_history(rng)))
    assert main(["stats", store, "--workers", "1", "--top", "3"]) == 0
    text = capsys.readouterr().out
    assert "2,000 transactions" in text
    assert "SIZE OF TRANSACTIONS: p50 " in text
    assert main(["stats", store, "--workers", "1", "--top", "3", "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert found == as_object(stats_of(Path(store)), 3)
    assert len(found["largest"]) == 3
    assert len(found["domains"]) == 3
    assert main(["stats", store, "--workers", "1", "--end-gtid", "9-9-9"]) == 0
    assert "nothing" in capsys.readouterr().out


def test_the_picture(
    tmp_path: Path, rng: random.Random, capsys: pytest.CaptureFixture[str]
) -> None:
    store = str(make_store(tmp_path / "store", random_history(rng)))
    for name in ("a.png", "a.html"):
        assert main(["stats", store, "--workers", "1", "--plot", str(tmp_path / name)]) == 0
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "a.html").read_text()
    assert "data:image/png;base64," in page
    assert "://" not in page  # nor can base64 have it: it has no colon
    assert main(["stats", store, "--plot", str(tmp_path / "a.gif")]) == 2
    assert ".png or .html" in capsys.readouterr().err
