"""How the replicas of an account are served: said by SQL, by the command line and in the configuration file."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from binlog_protocol.errors import RemoteError, SqlSyntaxError
from binlog_storage.tables.facts import OfflineFacts
from binlog_storage.testing.memory_disk import MemoryDisk
from hypothesis import given
from hypothesis import strategies as st

from binlog_server.accounts.account import UserAccount
from binlog_server.accounts.replica_policy import LIMITS, ReplicaPolicy, StreamStyle
from binlog_server.cli import main
from binlog_server.settings.config import ConfigError, load
from binlog_server.sql.account_statements import ACCOUNTS
from tests.binlog_server.accounts.test_accounts import errno, shown
from tests.binlog_server.lab import ROOT, Lab

ALL = "STREAM_STYLE CLASSIC MAX_BYTES_PER_SECOND 10000000 MAX_LAG_BYTES 1073741824 MAX_LAG_SECONDS 600"
ALL_POLICY = ReplicaPolicy(StreamStyle.CLASSIC, 10_000_000, 1 << 30, 600)
WRONG: dict[str, list[Any]] = {
    "max_bytes_per_second": [-1, 1, 1023, 2**60, "many", 1.5, True],
    "max_lag_bytes": [-1, 1, 1000, 2**60, None],
    "max_lag_seconds": [-1, 31_536_001, "x"],
    "stream_style": ["fast", "", 1],
    "max_lag": [1],
}


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with Lab(users=ROOT) as running:
        yield running


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, values in WRONG.items() for v in values])
def test_nonsense_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        ReplicaPolicy().changed({name: value})


@given(
    style=st.sampled_from(StreamStyle),
    limits=st.fixed_dictionaries(
        {
            **{name: st.just(0) | st.integers(*bounds) for name, bounds in LIMITS.items()},
            "server_version": st.sampled_from(("", "10.11.16-MariaDB", "11.8.6-MariaDB-log")),
        }
    ),
)
def test_is_kept_as_it_was(style: StreamStyle, limits: dict[str, Any]) -> None:
    policy = ReplicaPolicy(style, **limits)
    assert ReplicaPolicy.from_json(policy.to_json()) == policy
    assert ReplicaPolicy().changed({"stream_style": style.value, **limits}) == policy


def test_an_account_of_an_older_store_has_no_limits() -> None:
    kept = UserAccount("a").to_json()
    del kept["replica"]
    assert UserAccount.from_json("a@%", kept).replica == ReplicaPolicy()


# --- SQL ---


@pytest.mark.long
async def test_sql_sets_and_shows(lab: Lab) -> None:
    client = await lab.root()
    await client.query(f"CREATE USER a REQUIRE SSL WITH MAX_USER_CONNECTIONS 3 {ALL}")
    assert await shown(client, "SHOW CREATE USER a") == (
        f"CREATE USER `a`@`%` REQUIRE SSL WITH MAX_USER_CONNECTIONS 3 {ALL}"
    )
    assert await shown(client, "SHOW GRANTS FOR a") == (
        f"GRANT USAGE ON *.* TO `a`@`%` REQUIRE SSL WITH MAX_USER_CONNECTIONS 3 {ALL}"
    )
    await client.query("ALTER USER a WITH stream_style engine max_lag_seconds 0 MAX_LAG_BYTES 0")
    assert (await shown(client, "SHOW CREATE USER a")).endswith(
        "WITH MAX_USER_CONNECTIONS 3 MAX_BYTES_PER_SECOND 10000000"
    )
    await client.query("GRANT REPLICATION SLAVE ON *.* TO a WITH MAX_LAG_SECONDS 7")
    assert (await shown(client, "SHOW GRANTS FOR a")).endswith(
        "MAX_BYTES_PER_SECOND 10000000 MAX_LAG_SECONDS 7"
    )
    await client.query("CREATE OR REPLACE USER a")
    assert await shown(client, "SHOW CREATE USER a") == "CREATE USER `a`@`%`"


async def test_what_is_shown_can_be_said_again(lab: Lab) -> None:
    client = await lab.root()
    await client.query(f"CREATE USER a WITH {ALL}")
    before = await shown(client, "SHOW CREATE USER a")
    await client.query("DROP USER a")
    await client.query(before)
    assert await shown(client, "SHOW CREATE USER a") == before


@pytest.mark.parametrize(
    ("limits", "number"),
    [
        ("MAX_BYTES_PER_SECOND 5", 1105),
        ("MAX_LAG_BYTES 5", 1105),
        ("MAX_LAG_SECONDS 99999999999", 1105),
        ("STREAM_STYLE fast", 1105),
        ("STREAM_STYLE", 1064),
        ("MAX_LAG_SECONDS -1", 1064),
        ("MAX_LAG_SECONDS 1.5", 1064),
        ("MAX_LAG_SECONDS 9999999999999999999", 1064),
        ("MAX_LAG 1", 1064),
        ("MAX_LAG_SECONDSS 1", 1064),
        ("MAX_USER_CONNECTIONS 2147483648", 1064),
    ],
)
async def test_sql_refuses_and_changes_nothing(lab: Lab, limits: str, number: int) -> None:
    client = await lab.root()
    await client.query(f"CREATE USER a WITH {ALL}")
    before = await shown(client, "SHOW CREATE USER a")
    assert await errno(client, f"ALTER USER a WITH MAX_LAG_SECONDS 1 {limits}") == number
    assert await shown(client, "SHOW CREATE USER a") == before


async def test_the_error_says_what_would_do(lab: Lab) -> None:
    client = await lab.root()
    with pytest.raises(RemoteError, match=r"from 1024 to \d+, not 5"):
        await client.query("CREATE USER a WITH MAX_BYTES_PER_SECOND 5")
    with pytest.raises(RemoteError, match="engine or classic, not 'fast'"):
        await client.query("CREATE USER a WITH STREAM_STYLE fast")


async def test_sql_needs_create_user(lab: Lab) -> None:
    client = await lab.root()
    await client.query("CREATE USER plain IDENTIFIED BY 'pw'")
    plain = await lab.client("plain", "pw")
    assert await errno(plain, "ALTER USER plain WITH MAX_BYTES_PER_SECOND 0") == 1227
    assert await errno(client, "ALTER USER root WITH MAX_LAG_SECONDS 5") == 1290


WORDS = [
    *(name.upper() for name in LIMITS),
    "STREAM_STYLE",
    "CLASSIC",
    "WITH",
    "MAX_USER_CONNECTIONS",
]
WORDS += ["0", "1048576", "99999999999999999999", "-", "'x'", ",", "GRANT OPTION", "\0"]


@given(st.lists(st.sampled_from(WORDS), max_size=12))
def test_any_words_are_options_or_a_syntax_error(words: list[str]) -> None:
    try:
        statement = ACCOUNTS.parse(f"ALTER USER a WITH {' '.join(words)}")
    except SqlSyntaxError:
        return
    with contextlib.suppress(ValueError):
        ReplicaPolicy().changed(statement.replica)


# --- configuration file ---


def configured(tmp_path: Path, entry: str) -> Any:
    file = tmp_path / "server.toml"
    file.write_text(f'binlog_directory = "/x"\n[users]\nrepl = {entry}\n')
    return load(file, {}).users["repl"]


def test_toml(tmp_path: Path) -> None:
    entry = (
        '{password = "x", stream_style = "classic", max_bytes_per_second = 10_000_000, '
        "max_lag_bytes = 1073741824, max_lag_seconds = 600}"
    )
    account = configured(tmp_path, entry)
    assert account.replica == ALL_POLICY
    assert configured(tmp_path, '{password = "x"}').replica == ReplicaPolicy()


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("max_lag_seconds = -1", "repl: max_lag_seconds is 0 for no limit, or from 1"),
        ('max_lag_seconds = "1"', "max_lag_seconds is a number"),
        ("max_lag_seconds = true", "max_lag_seconds is a number"),
        ('stream_style = "x"', "stream_style is engine or classic"),
        ("max_lag = 1", "unknown option 'max_lag': did you mean 'max_lag_bytes'"),
    ],
)
def test_toml_refuses(tmp_path: Path, option: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        configured(tmp_path, f'{{password = "x", {option}}}')


# --- command line ---


def user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *arguments: str) -> int:
    monkeypatch.setattr("sys.stdin", io.StringIO("secret\n"))
    return main(["user", *arguments, "--directory", str(tmp_path / "store")])


def test_command_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--stream-style", "classic", "--max-bytes-per-second", "10000000"]
    assert user(monkeypatch, tmp_path, "add", "repl@10.%", "--max-lag-seconds=60", *options) == 0
    assert user(monkeypatch, tmp_path, "set", "repl@10.%", "--max-lag-seconds", "0") == 0
    capsys.readouterr()
    assert user(monkeypatch, tmp_path, "list") == 0
    titles, line = capsys.readouterr().out.splitlines()
    assert titles.split() == ["ACCOUNT", "PRIVILEGES", "REPLICAS"]
    limits = "STREAM_STYLE CLASSIC, MAX_BYTES_PER_SECOND 10000000"
    assert line == f"repl@10.%  REPLICATION SLAVE  {limits}"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["add", "b", "--max-lag-bytes", "7"],
            "--max-lag-bytes is 0 for no limit, or from 1048576",
        ),
        (["set", "a", "--max-bytes-per-second", "-1"], "--max-bytes-per-second is 0 for no limit"),
        (["set", "a"], "nothing to set"),
    ],
)
def test_command_line_refuses(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    assert user(monkeypatch, tmp_path, "add", "a") == 0
    assert user(monkeypatch, tmp_path, *arguments) == 2
    assert said in capsys.readouterr().err


def test_command_line_changes_nothing_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    add = ["add", "a", "--grant", "BINLOG REPLAY", "--require", "SSL"]
    assert user(monkeypatch, tmp_path, *add) == 0
    before = kept(tmp_path)
    assert user(monkeypatch, tmp_path, "set", "a", "--max-lag-seconds", "5") == 0
    after = kept(tmp_path)
    assert after["replica"].pop("max_lag_seconds") == 5
    assert before["replica"].pop("max_lag_seconds") == 0
    assert after == before


def kept(tmp_path: Path) -> dict[str, Any]:
    disk = MemoryDisk()
    for file in (tmp_path / "store").glob("*.state"):
        disk.open(file.name, create=True).pwrite(file.read_bytes(), 0)
    value: dict[str, Any] = OfflineFacts(disk).get("account/a@%")
    return value


# --- docs/replicas.md ---

PAGE = (Path(__file__).parents[3] / "docs" / "replicas.md").read_text()
EXAMPLES = [
    line.strip() for line in PAGE.splitlines() if line.startswith(("    ", "binlog-server "))
]


async def test_the_sql_of_the_page_runs(lab: Lab) -> None:
    client = await lab.root()
    lab.publish("0-1-4711,0-1-9000")
    await client.query("CREATE BINLOG LEASE etl")
    said = [text.partition(" --")[0] for text in EXAMPLES if re.match("[A-Z]{4,} ", text)]
    assert len(said) >= 7
    for text in said:
        await client.query(text)


def test_the_table_of_the_page_is_taken(tmp_path: Path) -> None:
    (entry,) = [text for text in EXAMPLES if text.startswith("branch = ")]
    account = configured(tmp_path, entry.partition("= ")[2])
    assert account.replica == ReplicaPolicy(max_bytes_per_second=10**7, max_lag_seconds=86400)


def test_the_command_of_the_page_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (command,) = [text for text in EXAMPLES if text.startswith("binlog-server ")]
    assert user(monkeypatch, tmp_path, "add", "branch@10.%") == 0
    words = command.partition(" --directory")[0].split()[2:]
    assert user(monkeypatch, tmp_path, *words) == 0


def test_the_limits_of_the_page_are_those() -> None:
    for name in LIMITS:
        assert f"| `{name.upper()} n` | `{name}`, `--{name.replace('_', '-')}` |" in PAGE
    assert "from 1024" in PAGE
    assert LIMITS["max_bytes_per_second"][0] == 1024
    assert LIMITS["max_lag_bytes"][0] == 1 << 20
