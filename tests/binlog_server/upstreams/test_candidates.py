"""Which of several servers is tried when: no sockets, no time."""

from __future__ import annotations

import pytest

from binlog_server.upstreams.candidates import Address, Ring, parse_candidates


class Rounds:
    """A ring whose clock goes on by the pauses alone."""

    def __init__(self, names: str, followed: str = "", retry_s: float = 60) -> None:
        self.now = 0.0
        addresses = [Address(name) for name in names]
        self.ring = Ring(addresses, followed, retry_s, lambda: self.now)

    def told(self, pause: float) -> str:
        self.now += pause
        return f"{pause:g}{self.ring.current.host}"

    def lost(self, times: int, *, worked: bool = False) -> str:
        found = []
        for _ in range(times):
            found.append(self.told(self.ring.lost(worked=worked)))
            worked = False
        return " ".join(found)

    def passed_over(self, refusal: Exception | None = None) -> str:
        return self.told(self.ring.pass_over(refusal))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("db2", "db2:3306"),
        (" db2:3307 ", "db2:3307"),
        ("10.0.0.7:1", "10.0.0.7:1"),
        ("[::1]:3307", "[::1]:3307"),
        ("[fe80::1%eth0]", "[fe80::1%eth0]:3306"),
    ],
)
def test_addresses(text: str, expected: str) -> None:
    assert parse_candidates([text, "", text]) == (expected,)
    assert str(Address.parse(expected)) == expected


@pytest.mark.parametrize(
    "text", ["db2:", "db2:0", "db2:65536", ":3306", "::1:3306", "[::1", "a b", "a:1:2", "db2:x"]
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not HOST|is not between"):
        parse_candidates([text])


def test_not_too_many() -> None:
    with pytest.raises(ValueError, match="17 candidates; up to 16"):
        parse_candidates(f"db{n}" for n in range(17))


def test_one_alone() -> None:
    assert Rounds("a").lost(9) == "0a 1a 2a 4a 8a 16a 32a 60a 60a"
    assert Rounds("a", retry_s=5).lost(6) == "0a 1a 2a 4a 5a 5a"
    assert Rounds("a", retry_s=0).lost(3) == "0a 1a 1a"


@pytest.mark.parametrize("names", ["a", "ab"])
def test_for_ever(names: str) -> None:
    """A pause that is doubled each time is no number any more after 1,026 times: 17 hours of a master that is away."""
    for rounds in (Rounds(names), Rounds(names, retry_s=4294967)):
        for _ in range(5000):
            assert 0 <= rounds.ring.lost(worked=False) <= 4294967


def test_each_is_tried_and_then_each_once_a_round() -> None:
    rounds = Rounds("abc")
    assert rounds.lost(4) == "0a 1a 2a 0b"
    assert rounds.lost(3) == "1b 2b 0c"
    assert rounds.lost(3) == "1c 2c 4a"
    assert rounds.lost(6) == "0b 0c 8a 0b 0c 16a"


def test_what_worked_is_kept_and_begins_anew() -> None:
    rounds = Rounds("ab")
    assert rounds.lost(5) == "0a 1a 2a 0b 1b"
    assert rounds.lost(5, worked=True) == "0b 1b 2b 0a 1a"


def test_the_one_followed_last_comes_first() -> None:
    rounds = Rounds("abc", "b:3306")
    assert rounds.ring.current.host == "b"
    assert rounds.ring.is_home
    assert Rounds("abc", "gone:3306").ring.current.host == "a"
    assert rounds.passed_over() == "0c"
    assert not rounds.ring.is_home
    rounds.ring.follows()
    assert rounds.ring.is_home


def test_those_behind_are_asked_again_for_ever() -> None:
    rounds = Rounds("ab", retry_s=5)
    for _ in range(20):
        rounds.passed_over()
        assert rounds.ring.hopeless() is None


def test_refusals_count_once_all_have_refused_and_for_long() -> None:
    first, last = ValueError("first"), ValueError("last")
    rounds = Rounds("ab", retry_s=13)
    assert rounds.passed_over(first) == "0b"
    assert rounds.ring.hopeless() is None, "not before the end of the round"
    assert rounds.passed_over(last) == "4a"
    assert rounds.ring.hopeless() is None, "they have had no time"
    rounds.passed_over(first)
    assert rounds.passed_over(last) == "8a"
    assert rounds.ring.hopeless() is None
    rounds.passed_over(first)
    assert rounds.passed_over(last) == "13a"
    assert rounds.ring.hopeless() is last
    assert rounds.ring.current.host == "b", "the one that refused last"


def test_who_is_only_down_is_waited_for() -> None:
    """Promoted b boots for longer than MASTER_CONNECT_RETRY; a, the old master, has a history of its own."""
    refusal = ValueError("1236")
    rounds = Rounds("ab", "b:3306")
    worked = True
    while rounds.now < 3600:
        if rounds.ring.current.host == "b":
            rounds.lost(1, worked=worked)
            worked = False
        else:
            rounds.passed_over(refusal)
        assert rounds.ring.hopeless() is None
    while rounds.ring.current.host != "b":
        rounds.passed_over(refusal)
    rounds.passed_over(refusal)  # now it refuses, too
    while rounds.ring.hopeless() is None:
        rounds.passed_over(refusal)
        assert rounds.now < 3800


def test_refusals_do_not_count_while_one_may_catch_up() -> None:
    refusal = ValueError("no")
    rounds = Rounds("abc", retry_s=1)
    for _ in range(5):
        rounds.passed_over(refusal)
        rounds.passed_over(refusal)
        rounds.passed_over()
        assert rounds.ring.hopeless() is None
    for _ in range(3):
        rounds.passed_over(refusal)
    assert rounds.ring.hopeless() is refusal


def test_success_forgets_refusals() -> None:
    rounds = Rounds("ab", retry_s=1)
    rounds.passed_over(ValueError("no"))
    rounds.lost(1, worked=True)
    assert rounds.lost(10).count("b") > 1
    assert rounds.ring.hopeless() is None
