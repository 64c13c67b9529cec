"""Accounts: where they come from, and the proof of a password."""

from __future__ import annotations

import pytest

from binlog_server.users import Account, Users
from protocol.connection.auth import (
    native_password_hash,
    native_password_scramble,
    native_password_text,
)
from storage.memory_disk import MemoryDisk
from storage.state import StateStore

SALT = b"0123456789abcdefghij"


def proves(users: Users, name: str, password: str) -> bool:
    return users.verify(name, SALT, native_password_scramble(password, SALT))


@pytest.fixture
def state() -> StateStore:
    return StateStore(MemoryDisk())


HASH = native_password_text(native_password_hash("secret"))


@pytest.mark.parametrize("stored", ["secret", HASH, HASH.lower()])
def test_password_or_its_hash(state: StateStore, stored: str) -> None:
    users = Users(state, {"repl": stored})
    assert proves(users, "repl", "secret")
    assert not proves(users, "repl", stored.upper())
    assert not proves(users, "repl", "")
    assert not proves(users, "other", "secret")
    assert not users.verify("repl", SALT, b"short")


@pytest.mark.parametrize("text", ["*" + "g" * 40, "*" + "0" * 39, "*", "*" + "0" * 41])
def test_almost_a_hash_is_a_password(state: StateStore, text: str) -> None:
    assert proves(Users(state, {"a": text}), "a", text)


def test_empty_password(state: StateStore) -> None:
    users = Users(state, {"a": ""})
    users.add("b", "")
    for name in ("a", "b"):
        assert proves(users, name, "")
        assert not proves(users, name, "x")
    assert not proves(users, "nobody", "")


def test_hash_of_zeros_is_not_open(state: StateStore) -> None:
    """It is what an unknown name is compared with."""
    users = Users(state, {"a": "*" + "0" * 40})
    assert not proves(users, "a", "")
    assert not proves(users, "nobody", "")


def test_state_keeps_hashes_only(state: StateStore) -> None:
    users = Users(state)
    users.add("repl", "secret")
    assert state.items("user/") == [("user/repl", HASH)]
    assert proves(Users(state), "repl", "secret")
    users.add("repl", "changed")
    assert proves(users, "repl", "changed")
    assert not proves(users, "repl", "secret")


def test_a_password_that_looks_like_a_hash_is_hashed(state: StateStore) -> None:
    users = Users(state)
    users.add("repl", HASH)
    assert proves(users, "repl", HASH)
    assert not proves(users, "repl", "secret")


def test_configuration_wins(state: StateStore) -> None:
    Users(state).add("repl", "from the state")
    users = Users(state, {"repl": "from the file", "b": "x"})
    assert proves(users, "repl", "from the file")
    assert not proves(users, "repl", "from the state")
    assert users.names() == ["b", "repl"]
    users.drop("repl")
    assert proves(users, "repl", "from the file")


def test_drop(state: StateStore) -> None:
    users = Users(state)
    users.add("repl", "")
    users.drop("repl")
    assert users.names() == []
    assert not proves(users, "repl", "")
    with pytest.raises(KeyError):
        users.drop("repl")


@pytest.mark.parametrize("name", ["", "a'b", 'a"b', "a`b", "a@b", "a\nb", "a\0b", "x" * 129])
def test_impossible_names(state: StateStore, name: str) -> None:
    with pytest.raises(ValueError, match="cannot be a user name"):
        Users(state).add(name, "x")


@pytest.mark.parametrize("name", ["a", "a b", "é", "x" * 128, "user/x"])
def test_possible_names(state: StateStore, name: str) -> None:
    users = Users(state)
    users.add(name, "x")
    assert proves(users, name, "x")
    assert users.names() == [name]


def test_users_of_a_new_process(state: StateStore) -> None:
    disk = MemoryDisk()
    Users(StateStore(disk)).add("repl", "secret")
    disk.crash()
    assert proves(Users(StateStore(disk)), "repl", "secret")


REPLAY = frozenset({"BINLOG REPLAY"})


def test_grants(state: StateStore) -> None:
    users = Users(state, {"a": Account("x", REPLAY), "b": "x"})
    users.add("c", "x", ["binlog replay"])
    users.add("d", "x")
    assert [users.grants(name) for name in "abcde"] == [
        REPLAY,
        frozenset(),
        REPLAY,
        frozenset(),
        frozenset(),
    ]
    users.add("c", "x")
    assert users.grants("c") == frozenset(), "what is granted is said again with the password"
    users.add("c", "x", ["BINLOG REPLAY"])
    users.drop("c")
    users.add("c", "x")
    assert users.grants("c") == frozenset()
    assert users.names() == ["a", "b", "c", "d"]


def test_configuration_wins_with_its_grants(state: StateStore) -> None:
    Users(state).add("a", "x", REPLAY)
    assert Users(state, {"a": "y"}).grants("a") == frozenset()


def test_unknown_privilege(state: StateStore) -> None:
    with pytest.raises(ValueError, match="'ALL' is no privilege here: BINLOG REPLAY"):
        Users(state).add("a", "x", ["ALL"])
    assert Users(state).names() == []


def test_passwords_are_not_shown() -> None:
    assert "hidden" not in repr(Account("hidden"))
