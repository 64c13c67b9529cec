"""The search for the beginning of a server's binlog, by what the server refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from binlog_protocol.connection import beginning as search
from binlog_protocol.connection.beginning import (
    AcceptsQuestion,
    FirstListQuestion,
    ServerQuestion,
    StateQuestion,
    answered,
    beginning,
)
from binlog_protocol.connection.replica import UpstreamRefused
from binlog_protocol.errors import AccessDenied, EngineBinlogNeedsGtid, RemoteError
from binlog_protocol.events.gtid_list import GtidList
from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition
from hypothesis import example, given
from hypothesis import strategies as st


def server_id() -> int:
    return 77


def engine_with(
    state: BinlogState, accepts: Callable[[SlavePosition], bool]
) -> Callable[[ServerQuestion], Any]:
    """A server with its binlog in the engine."""

    def ask(question: ServerQuestion) -> Any:
        match question:
            case FirstListQuestion():
                raise RemoteError(EngineBinlogNeedsGtid.errno, "42000", "not without GTID")
            case StateQuestion():
                return state
            case AcceptsQuestion(position, 77):
                return accepts(position)
        raise AssertionError(question)

    return ask


@given(st.integers(1, 10_000), st.integers(0, 10_000))
def test_of_one_server(first: int, above: int) -> None:
    asked = []

    def accepts(position: SlavePosition) -> bool:
        (number,) = [gtid.seq_no for gtid in position] or [0]
        asked.append(number)
        return number >= first

    state = BinlogState([Gtid(0, 1, first + above)])
    found = answered(beginning(server_id), engine_with(state, accepts))
    assert found == SlavePosition([Gtid(0, 1, first)])
    assert len(asked) <= 17
    assert all(0 <= number < first + above for number in asked)


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(1, 3)), min_size=1, max_size=40),
    st.integers(0, 40),
)
@example([(0, 1), (0, 2), (0, 3), (0, 1)], 1)  # three that cannot be told apart
def test_whoever_has_written_to_a_domain(history: list[tuple[int, int]], kept: int) -> None:
    """It is found, or it is said that it cannot be."""
    numbers_of: dict[int, int] = {}
    logged = []
    for domain, server in history:
        numbers_of[domain] = numbers_of.get(domain, 0) + 1
        logged.append(Gtid(domain, server, numbers_of[domain]))
    purged, state = BinlogState(logged[:kept]), BinlogState(logged)
    found, told = None, ""
    try:
        found = answered(beginning(server_id), engine_with(state, purged.is_before))
    except UpstreamRefused as error:
        told = error.message
    if found is None:
        assert "cannot be told apart" in told
        assert any(str(gtid) in told for gtid in purged.position())
    else:
        assert found == purged.position()


@pytest.mark.parametrize("domains", [3, 50])
def test_a_server_with_endless_domains(domains: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many positions are tried is not its choice."""
    monkeypatch.setattr(search, "DUMPS_MAX", 40)
    state = BinlogState(Gtid(domain, 1, 1 << 62) for domain in range(domains))
    asked = []

    def accepts(position: SlavePosition) -> bool:
        asked.append(position)
        return False

    with pytest.raises(UpstreamRefused, match=f"{domains} domains, .* begin at a GTID"):
        answered(beginning(server_id), engine_with(state, accepts))
    assert len(asked) == (40 if domains == 3 else 0)


def test_of_traditional_files() -> None:
    """The list of the first file says it; without one the server is too old."""
    purged = [Gtid(0, 2, 5), Gtid(0, 1, 7), Gtid(3, 1, 1)]
    found = answered(beginning(server_id), lambda _: GtidList(tuple(purged), 1))
    assert found == SlavePosition.parse("0-1-7,3-1-1")
    with pytest.raises(UpstreamRefused, match="no GTID list"):
        answered(beginning(server_id), lambda _: None)


def test_what_the_server_refuses_otherwise() -> None:
    def ask(_: ServerQuestion) -> Any:
        raise RemoteError(AccessDenied.errno, "28000", "no")

    with pytest.raises(RemoteError, match="no"):
        answered(beginning(server_id), ask)
