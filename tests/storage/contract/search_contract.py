"""The promises of `binlog_storage.engine.BinlogEngine.find_start`: a part of `EngineContract`."""

from __future__ import annotations

import random

import pytest
from binlog_protocol.gtid import Gtid, SlavePosition
from binlog_storage.errors import PositionPurged

from tests.storage.contract.bench import FILE_BYTES, Bench, expected, filled, position, received
from tests.storage.groups import (
    group,
    history,
    payloads,
    read_from,
    simple,
    state_after,
)


class SearchContract:
    # --- searching ---

    def test_find_start_for_known_positions(self, bench: Bench) -> None:
        groups = simple(400, size=900)
        engine = filled(bench, groups)
        for seq_no in (1, 2, 57, 58, 59, 200, 399, 400):
            at = position(Gtid(0, 1, seq_no))
            assert received(engine, at) == payloads(groups[seq_no:])
        assert received(engine, SlavePosition()) == payloads(groups)
        engine.close()

    def test_find_start_with_large_groups(self, bench: Bench, rng: random.Random) -> None:
        """Large groups, so that the state records lie inside of records."""
        groups = [group(Gtid(0, 1, seq_no), rng.randrange(8000, 32000)) for seq_no in range(1, 90)]
        engine = filled(bench, groups)
        for seq_no in range(1, 90):
            at = position(Gtid(0, 1, seq_no))
            assert received(engine, at) == payloads(groups[seq_no:])
        engine.close()

    def test_find_start_with_several_domains(self, bench: Bench, rng: random.Random) -> None:
        groups = history(rng, 400, size_max=FILE_BYTES, domains=3, servers=2)
        engine = filled(bench, groups)
        for count in (0, 1, 5, 50, 199, 300, 400):
            at = state_after(groups[:count]).position()
            assert received(engine, at) == expected(groups, at)
            assert received(engine, at) == [p for p, g in groups[count:] if g is not None]
        engine.close()

    def test_find_start_for_uneven_positions(self, bench: Bench, rng: random.Random) -> None:
        """Positions that were never a point of this history: each domain somewhere else, or left out."""
        groups = history(rng, 300, size_max=2000, domains=4, servers=1)
        engine = filled(bench, groups)
        for _ in range(25):
            gtids: dict[int, Gtid] = {}
            for _, gtid in rng.sample(groups, 12):
                if gtid is not None and rng.random() < 0.7:
                    gtids[gtid.domain_id] = gtid
            at = SlavePosition(gtids.values())
            assert received(engine, at) == expected(groups, at)
        engine.close()

    def test_find_start_for_a_domain_of_later(self, bench: Bench) -> None:
        groups = simple(300, size=900)
        engine = filled(bench, groups)
        later = Gtid(7, 1, 5)
        assert received(engine, position(Gtid(0, 1, 250), later)) == payloads(groups[250:])
        assert received(engine, position(later)) == payloads(groups)
        engine.close()

    def test_find_start_sees_only_what_is_durable(self, bench: Bench) -> None:
        engine = filled(bench, simple(100, size=900))
        ends = [engine.append(*g) for g in simple(300, first=101, size=900)]
        start = engine.find_start(position(Gtid(0, 1, 400)))
        assert start.position <= engine.durable_end
        assert received(engine, position(Gtid(0, 1, 400))) == []
        visible = 1 + sum(end <= engine.durable_end for end in ends)
        assert visible < 301
        assert received(engine, position(Gtid(0, 1, 99))) == payloads(
            simple(visible, first=100, size=900)
        )
        engine.close()

    def test_the_state_at_the_start_is_what_was_logged_before(
        self, bench: Bench, rng: random.Random
    ) -> None:
        groups = history(rng, 300, size_max=20000)
        engine = filled(bench, groups)
        for count in (0, 40, 150, 290):
            start = engine.find_start(state_after(groups[:count]).position())
            left = len(read_from(engine, start.position))
            gone = groups[: len(groups) - left]
            assert start.state == state_after(gone)
        engine.close()

    def test_purged(self, bench: Bench) -> None:
        groups = simple(400, size=1000)
        filled(bench, groups).close()
        bench.purge()
        engine = bench.open()
        first = engine.first_start()
        assert len(first.state)
        assert engine.find_start(first.state.position()).position >= first.position
        with pytest.raises(PositionPurged):
            engine.find_start(SlavePosition())
        with pytest.raises(PositionPurged):
            engine.find_start(position(Gtid(0, 1, 1)))
        assert received(engine, position(Gtid(0, 1, 390))) == payloads(groups[390:])
        assert engine.binlog_state() == state_after(groups)
        engine.append(*simple(1, first=401)[0])
        engine.sync()
        assert received(engine, position(Gtid(0, 1, 400))) == payloads(simple(1, first=401))
        engine.close()
