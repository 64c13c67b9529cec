"""Whatever stands in a configuration file is taken, or refused in one line: never a traceback, never a password."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import tempfile
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from binlog_storage.console.running import EXIT_USAGE
from binlog_storage.disk.state import StateStore
from binlog_storage.testing.memory_disk import MemoryDisk
from hypothesis import example, given
from hypothesis import strategies as st

from binlog_server.accounts.users import Users
from binlog_server.cli import main
from binlog_server.settings.config import Config, ConfigError, load

SECRET = "s3cr3t"
OPTIONS = sorted({f.name for f in fields(Config)} | {"listen", "log_bin", "sync_binlog", "nothing"})
UPSTREAM = (
    *("host", "port", "user", "password", "password_file", "heartbeat_period", "ssl", "east"),
    *("connect_retry", "do_domain_ids", "candidates", "ssl_ca", "check_last_group"),
)
ACCOUNT = ("password", "grants", "max_lag_seconds", "stream_style", "nothing")

TEXTS = (
    "",
    "a",
    "é",
    "a@b",
    "a'b",
    "x" * 200,
    "\t",
    "\0",
    "\x7f",
    "10.6",
    "٣:٣",
    "h:" + "9" * 5000,
)
texts = st.one_of(st.sampled_from(TEXTS), st.text(st.characters(codec="utf-8"), max_size=12))
numbers = st.sampled_from(
    (
        "0",
        "-1",
        "1",
        "7",
        "65536",
        "9" * 30,
        "9" * 5000,
        "0x7f",
        "nan",
        "inf",
        "-inf",
        "1.5",
        "1e400",
    )
)


def quoted(text: str) -> str:
    """As TOML writes it."""
    plain = "".join(c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08x}" for c in text)
    return f'"{plain}"'


scalars = st.one_of(
    numbers,
    st.sampled_from(("true", "false", "1979-05-27", "07:32:00", "[]", "{}", "[[1]]", '["a", 1]')),
    texts.map(quoted),
)


def tables(keys: tuple[str, ...], values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Inline tables."""
    entry = st.tuples(st.one_of(st.sampled_from(keys), texts), values)
    return st.lists(entry, max_size=4, unique_by=lambda pair: pair[0]).map(
        lambda pairs: "{" + ", ".join(f"{quoted(key)} = {value}" for key, value in pairs) + "}"
    )


upstreams = tables(UPSTREAM, st.one_of(scalars, tables(UPSTREAM, scalars)))
accounts = tables(("repl", "open"), st.one_of(scalars, tables(ACCOUNT, scalars)))


@st.composite
def files(draw: st.DrawFn) -> str:
    """Lines of a file; the names are there once, or it would not be TOML."""
    lines = []
    for name in draw(st.lists(st.sampled_from(OPTIONS), max_size=4, unique=True)):
        kind = {"users": accounts, "upstream": upstreams}.get(name, scalars)
        lines.append(f"{name} = {draw(st.one_of(kind, scalars))}")
    return "\n".join(lines)


def refusal(content: bytes) -> str:
    """What is said of a file; empty if it is taken. Nothing but `ConfigError` comes through."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "c.toml"
        path.write_bytes(content)
        try:
            config = load(path, {"binlog_directory": "/d"})
        except ConfigError as error:
            return str(error)
        Users(StateStore(MemoryDisk()), config.users)  # as the server does at its start
        config.store_options()
        os.fsencode(config.binlog_directory)
        config.listen_host.encode("idna")
        return ""


@given(files())
@example('[users]\n"" = "x"')
@example(f"max_connections = {'9' * 5000}")
@example(f"listen = 'h:{'9' * 5000}'")
def test_any_options(text: str) -> None:
    said = refusal(text.encode())
    assert len(said.splitlines()) <= 1, said


@given(st.binary(max_size=60))
@example(b"\xff")
@example(b"a = " + b"[" * 2000)
@example(b"a = " + b"{a = " * 2000)
@example(b"\xef\xbb\xbfserver_id = 1")
def test_any_bytes(content: bytes) -> None:
    assert len(refusal(content).splitlines()) <= 1


BAD_NAMES = ("", "x" * 129, "a@b", "a'b", 'a"b', "a`b", "a\n", "\0", "@", "%@%")


@pytest.mark.parametrize("name", BAD_NAMES)
@pytest.mark.parametrize("value", [quoted(SECRET), f"{{password = {quoted(SECRET)}}}"])
def test_names_that_cannot_be(
    name: str, value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "c.toml"
    path.write_text(f"[users]\n{quoted(name)} = {value}\n")
    code = main(["serve", "--config", str(path), "--directory", str(tmp_path / "store")])
    said = capsys.readouterr().err
    assert code == EXIT_USAGE
    assert said.startswith(f"binlog-server: users: {name!r} cannot be a user name: ")
    assert len(said.splitlines()) == 1
    assert SECRET not in said
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    "value",
    [
        f'["{SECRET}"]',
        f'{{password = ["{SECRET}"]}}',
        f'{{passwort = "{SECRET}"}}',
        f'{{a = "{SECRET}"}}',
    ],
)
@pytest.mark.parametrize("table", ["users.repl", "upstream.password", "upstream.east"])
def test_no_password_is_told(table: str, value: str) -> None:
    """Not even one that stands in the wrong place."""
    said = refusal(f"{table} = {value}".encode())
    assert said
    assert SECRET not in said


def said_by_the_command(*arguments: str) -> tuple[int, str]:
    err = io.StringIO()
    with contextlib.redirect_stderr(err):
        return main(arguments), err.getvalue()


@functools.cache
def one_wrong_value() -> dict[str, Any]:
    """Of each option that has a default of a plain type, one of another type."""
    return {
        f.name: "1979-05-27"
        for f in fields(Config)
        if isinstance(f.default, int | float | str) and f.name != "ignored_options"
    }


@pytest.mark.parametrize("name", one_wrong_value())
def test_each_option_of_a_wrong_type(name: str, tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(f"{name} = {one_wrong_value()[name]}\n")
    code, said = said_by_the_command(
        "serve", "--config", str(path), "--directory", str(tmp_path / "store")
    )
    assert code == EXIT_USAGE
    assert said.startswith(f"binlog-server: {name}: ")
    assert len(said.splitlines()) == 1
