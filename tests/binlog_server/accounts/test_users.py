"""Accounts: where they come from, and the proof of a password."""

from __future__ import annotations

import pytest
from binlog_protocol.connection.auth import (
    native_password_hash,
    native_password_scramble,
    native_password_text,
)
from binlog_protocol.connection.ed25519 import ed25519_sign
from binlog_storage.disk.state import StateStore
from binlog_storage.testing.memory_disk import MemoryDisk

from binlog_server.accounts.account import UserAccount, host_matches
from binlog_server.accounts.privileges import OF_A_REPLICA
from binlog_server.accounts.users import Account, Users

SALT = b"0123456789abcdefghij"


def proves(users: Users, name: str, password: str) -> bool:
    account = users.find(name, "10.0.0.1")
    answer = native_password_scramble(password, SALT)
    return account is not None and account.credential.verify(SALT, answer)


def names(users: Users) -> list[str]:
    return [account.user for account in users.all()]


def granted(users: Users, name: str) -> frozenset[str]:
    account = users.find(name, "10.0.0.1")
    return frozenset() if account is None else account.granted


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
    (kept,) = state.items("account/")
    assert kept[0] == "account/repl@%"
    assert (kept[1]["plugin"], kept[1]["authentication"]) == ("mysql_native_password", HASH)
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
    assert names(users) == ["b", "repl"]
    users.drop("repl")
    assert proves(users, "repl", "from the file")


def test_drop(state: StateStore) -> None:
    users = Users(state)
    users.add("repl", "")
    users.drop("repl")
    assert names(users) == []
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
    assert names(users) == [name]


def test_users_of_a_new_process(state: StateStore) -> None:
    disk = MemoryDisk()
    Users(StateStore(disk)).add("repl", "secret")
    disk.crash()
    assert proves(Users(StateStore(disk)), "repl", "secret")


REPLAY = frozenset({"BINLOG REPLAY"})
ALONE = OF_A_REPLICA | REPLAY


def test_grants(state: StateStore) -> None:
    users = Users(state, {"a": Account("x", REPLAY), "b": "x"})
    users.add("c", "x", ["binlog replay"])
    users.add("d", "x", ["RELOAD"])
    assert [granted(users, name) for name in "abcde"] == [
        ALONE,
        OF_A_REPLICA,
        ALONE,
        frozenset({"RELOAD"}),
        frozenset(),
    ]
    users.add("c", "x")
    assert granted(users, "c") == OF_A_REPLICA, "what is granted is said again with the password"
    users.drop("c")
    assert granted(users, "c") == frozenset()
    assert names(users) == ["a", "b", "d"]


def test_configuration_wins_with_its_grants(state: StateStore) -> None:
    Users(state).add("a", "x", REPLAY)
    assert granted(Users(state, {"a": "y"}), "a") == OF_A_REPLICA


def test_what_an_account_is_for_is_all_it_may_do(state: StateStore) -> None:
    """Without grants it is a replica's: not one that sets semi-sync, by which every commit waits, for everybody."""
    assert granted(Users(state, {"a": "x"}), "a") == {"REPLICATION SLAVE"}


def test_unknown_privilege(state: StateStore) -> None:
    with pytest.raises(
        ValueError, match="'FLY' is no privilege here: ALL PRIVILEGES, ALTER, BINLOG"
    ):
        Users(state).add("a", "x", ["FLY"])
    assert names(Users(state)) == []


def test_accounts_of_an_older_store(state: StateStore) -> None:
    """They may do what they could, and are changed and dropped like others."""
    state.update({"user/a": HASH, "user/b": "", "user/ab": HASH, "grants/a": ["BINLOG REPLAY"]})
    users = Users(state)
    assert [(a.name, a.granted) for a in users.all()] == [
        ("a@%", ALONE),
        ("ab@%", OF_A_REPLICA),
        ("b@%", OF_A_REPLICA),
    ]
    assert proves(users, "a", "secret")
    assert proves(users, "b", "")
    users.add("a", "new")
    assert proves(users, "a", "new")
    assert state.items("user/a") == [("user/ab", HASH)]
    users.drop("ab")
    users.drop("b")
    assert names(users) == ["a"]


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("10.0.3.4", "10.0.3.4"),
        ("10.0.3.5", "10.0.3.%"),
        ("10.0.4.1", "10.0.%"),
        ("192.168.7.7", "192.168.0.0/255.255.0.0"),
        ("127.0.0.1", "localhost"),
        ("::1", "localhost"),
        ("8.8.8.8", "%"),
    ],
)
def test_the_most_specific_host_wins(state: StateStore, address: str, expected: str) -> None:
    users = Users(state)
    hosts = ["%", "10.0.%", "10.0.3.%", "10.0.3.4", "192.168.0.0/255.255.0.0", "localhost"]
    for host in hosts:
        users.add("a", host, host=host)
    account = users.find("a", address)
    assert account is not None
    assert account.host == expected
    assert account.credential.verify(SALT, native_password_scramble(expected, SALT))


@pytest.mark.parametrize(
    ("pattern", "address", "matches"),
    [
        ("%", "", True),
        ("10.0._.1", "10.0.5.1", True),
        ("10.0._.1", "10.0.55.1", False),
        ("10.0.0.0/24", "10.0.0.9", True),
        ("10.0.0.0/24", "10.0.1.9", False),
        ("10.0.0.0/24", "::1", False),
        ("nonsense/24", "10.0.0.1", False),
        ("FE80::%", "fe80::1", True),
        ("localhost", "127.0.0.2", False),
    ],
)
def test_hosts(pattern: str, address: str, matches: bool) -> None:
    assert host_matches(pattern, address) is matches


def test_ed25519(state: StateStore) -> None:
    users = Users(state)
    users.add("a", "secret", plugin="ed25519")
    account = users.find("a", "")
    assert account is not None
    challenge = bytes(range(32))
    assert account.credential.verify(challenge, ed25519_sign("secret", challenge))
    assert not account.credential.verify(challenge, ed25519_sign("secreT", challenge))
    assert not account.credential.verify(bytes(32), ed25519_sign("secret", challenge))
    for junk in (b"", bytes(63), bytes(64), b"\xff" * 64, bytes(65)):
        assert not account.credential.verify(challenge, junk)


def test_passwords_are_not_shown() -> None:
    assert "hidden" not in repr(Account("hidden"))


@pytest.mark.parametrize("name", ["configured", "stored", "nobody", "sto", "x" * 200])
def test_every_name_is_looked_for_in_the_same_way(
    state: StateStore, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """So that the time does not tell of which names there is an account."""
    Users(state).add("stored", "x")
    users = Users(state, {"configured": "x"})
    made: list[str] = []
    from_json = UserAccount.from_json

    def noted(name: str, kept: dict[str, object]) -> UserAccount:
        made.append(name)
        return from_json(name, kept)

    monkeypatch.setattr(UserAccount, "from_json", noted)
    users.find(name, "10.0.0.1")
    assert len(made) == 1
