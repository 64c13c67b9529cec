from __future__ import annotations

import contextlib

import pytest
from binlog_protocol.errors import ServerError
from binlog_protocol.gtid import BinlogState, Gtid, SlavePosition
from hypothesis import given
from hypothesis import strategies as st

U32 = st.integers(0, 2**32 - 1)
GTIDS = st.builds(Gtid, U32, U32, st.integers(0, 2**64 - 1))
FEW_GTIDS = st.builds(Gtid, st.integers(0, 2), st.integers(1, 3), st.integers(1, 9))


@given(GTIDS)
def test_gtid_text_round_trip(gtid: Gtid) -> None:
    assert Gtid.parse(str(gtid)) == gtid


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "0-1",
        "0-1-",
        "0-1-2-3",
        "a-1-2",
        "-1-1-2",
        "0--1-2",
        "+0-1-2",
        " 0-1-2",
        "0-1-2\n",
        "0 -1-2",
        "4294967296-1-2",
        "0-4294967296-2",
        "0-1-18446744073709551616",
        "0-1-0x2",
        "\u0660-1-2",
        "0-1-" + "9" * 1000,
    ],
)
def test_gtid_text_refused(text: str) -> None:
    with pytest.raises(ServerError, match=r"^1941 ") as caught:
        Gtid.parse(text)
    assert caught.value.message == "Could not parse GTID list"


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("", ""),
        ("  ", ""),
        ("0-1-8", "0-1-8"),
        ("5-1-1,0-1-11,7-77-1", "5-1-1,0-1-11,7-77-1"),
        (" 5-1-1 ,\t0-1-11", "5-1-1,0-1-11"),
        ("4294967295-1-18446744073709551615", "4294967295-1-18446744073709551615"),
    ],
)
def test_position_text(text: str, printed: str) -> None:
    assert str(SlavePosition.parse(text)) == printed


@pytest.mark.parametrize("text", [",", "0-1-1,", ",0-1-1", "0-1-1,,1-1-1", "x", "0-1-1;1-1-1"])
def test_position_text_refused(text: str) -> None:
    with pytest.raises(ServerError, match=r"^1941 "):
        SlavePosition.parse(text)


def test_position_has_one_gtid_per_domain() -> None:
    with pytest.raises(ServerError, match=r"^1943 ") as caught:
        SlavePosition.parse("0-1-2,0-1-3")
    assert caught.value.message == "GTID 0-1-3 and 0-1-2 conflict (duplicate domain id 0)"
    with pytest.raises(ServerError, match=r"^1943 "):
        SlavePosition.parse("0-1-2,0-1-2")


def test_position_as_a_collection() -> None:
    position = SlavePosition.parse("5-1-1,0-1-11")
    assert position.get(0) == Gtid(0, 1, 11)
    assert position.get(1) is None
    assert position.domains() == [5, 0]
    assert list(position) == [Gtid(5, 1, 1), Gtid(0, 1, 11)]
    assert len(position) == 2
    assert position == SlavePosition.parse("0-1-11,5-1-1")
    assert hash(position) == hash(SlavePosition.parse("0-1-11,5-1-1"))
    assert position != SlavePosition.parse("0-1-11")
    moved = position.with_gtid(Gtid(0, 2, 12)).with_gtid(Gtid(9, 2, 1))
    assert str(moved) == "5-1-1,0-2-12,9-2-1"
    assert str(position) == "5-1-1,0-1-11"


def test_a_text_that_is_too_long_is_told_so() -> None:
    text = ",".join(f"{domain_id}-1-1" for domain_id in range(2000))
    with pytest.raises(
        ServerError, match=f"^1941 .*it has {len(text)} bytes, and 16384 are the most"
    ):
        SlavePosition.from_peer(text)


@given(st.text(alphabet="0123456789-, x\t", max_size=40))
def test_list_text_is_read_or_refused(text: str) -> None:
    for parse in (SlavePosition.parse, BinlogState.parse):
        with contextlib.suppress(ServerError):
            parse(text)


def test_state_keeps_the_most_recent_last() -> None:
    state = BinlogState.parse("0-1-5,1-9-2,0-2-6,0-1-7")
    assert state.entries() == [Gtid(0, 2, 6), Gtid(0, 1, 7), Gtid(1, 9, 2)]
    assert str(state) == "0-2-6,0-1-7,1-9-2"
    assert state.get(0, 2) == 6
    assert state.get(0, 3) is None
    assert state.get(8, 3) is None
    assert state.last(0) == Gtid(0, 1, 7)
    assert state.last(8) is None
    assert state.domains() == [0, 1]
    assert len(state) == 3
    assert state.position() == SlavePosition.parse("0-1-7,1-9-2")


def test_state_copies_are_apart() -> None:
    state = BinlogState.parse("0-1-5")
    twin = state.copy()
    assert twin == state
    twin.update(Gtid(0, 1, 6))
    assert state.get(0, 1) == 5
    assert twin != state
    state.clear()
    assert not state.entries()
    assert len(state) == 0
    assert twin.get(0, 1) == 6


@given(st.lists(FEW_GTIDS, max_size=12), st.lists(st.tuples(FEW_GTIDS, st.integers(0, 3))))
def test_states_that_share_are_apart(before: list[Gtid], steps: list[tuple[Gtid, int]]) -> None:
    """Each goes its own way from where it was copied, in whatever order they log."""
    states = [BinlogState(before)]
    logged = [list(before)]
    for gtid, choice in steps:
        at = choice % len(states)
        if choice == 0:
            states.append(states[at].copy())
            logged.append(list(logged[at]))
        elif choice == 3:
            states.append(states[at].of_domain(gtid.domain_id))
            logged.append([g for g in logged[at] if g.domain_id == gtid.domain_id])
        else:
            states[at].update(gtid)
            logged[at].append(gtid)
    for state, gtids in zip(states, logged, strict=True):
        alone = BinlogState(gtids)
        assert state == alone
        assert {g.domain_id: str(state.of_domain(g.domain_id)) for g in gtids} == {
            g.domain_id: ",".join(str(e) for e in alone.entries() if e.domain_id == g.domain_id)
            for g in gtids
        }
        for server_id in range(5):
            others = any(gtid.server_id != server_id for gtid in gtids)
            assert state.has_others_than(server_id) is others


def test_states_differ_by_the_most_recent_server() -> None:
    assert BinlogState.parse("0-1-5,0-2-6") != BinlogState.parse("0-2-6,0-1-5")


@given(st.lists(FEW_GTIDS, max_size=20))
def test_state_text_round_trip(gtids: list[Gtid]) -> None:
    state = BinlogState(gtids)
    assert BinlogState.parse(str(state)) == state
    assert BinlogState(state.entries()) == state
    for gtid in gtids:
        assert state.get(gtid.domain_id, gtid.server_id) is not None


@pytest.mark.parametrize(
    ("state", "position", "before"),
    [
        ("", "", True),
        ("", "0-1-5", True),
        ("0-1-5", "", False),
        ("0-1-5", "0-1-5", True),
        ("0-1-5", "0-1-6", True),
        ("0-1-5", "0-1-4", False),
        ("0-1-5", "0-2-1", True),
        ("0-1-5,0-2-6", "0-1-5", False),
        ("0-2-6,0-1-5", "0-1-5", True),
        ("0-1-5,0-2-6", "0-2-6", True),
        ("0-1-5", "0-1-5,1-1-1", True),
        ("0-1-5,1-1-1", "0-1-5", False),
        ("0-1-5,1-1-1", "0-1-5,1-1-1", True),
        ("0-1-5,1-1-2", "0-1-5,1-1-1", False),
    ],
)
def test_state_before_position(state: str, position: str, before: bool) -> None:
    assert BinlogState.parse(state).is_before(SlavePosition.parse(position)) is before


@given(st.lists(FEW_GTIDS, max_size=12))
def test_own_position_is_never_passed(gtids: list[Gtid]) -> None:
    state = BinlogState(gtids)
    assert state.is_before(state.position())


def test_a_copy_of_one_domain_stays_as_it_is() -> None:
    state = BinlogState([Gtid(0, 1, 5), Gtid(1, 1, 1)])
    state.update(Gtid(0, 1, 6))
    copy = state.of_domain(0)
    state.update(Gtid(0, 1, 7))
    state.update(Gtid(0, 2, 8))
    assert copy == BinlogState([Gtid(0, 1, 6)])
    copy.update(Gtid(0, 3, 9))
    assert [str(gtid) for gtid in state.of_domain(0).entries()] == ["0-1-7", "0-2-8"]


def test_a_state_has_what_its_servers_have_logged() -> None:
    state = BinlogState([Gtid(0, 1, 5), Gtid(0, 2, 9), Gtid(3, 1, 1)])
    wanted = [
        Gtid(0, 1, 4),
        Gtid(0, 1, 5),
        Gtid(0, 1, 6),
        Gtid(0, 3, 1),
        Gtid(3, 1, 1),
        Gtid(4, 1, 1),
    ]
    assert [state.has(gtid) for gtid in wanted] == [True, True, False, False, True, False]
