"""Numbers have the same limits in the configuration file and in SET."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from binlog_server.config import Config, ConfigError
from binlog_server.option_limits import LIMITS
from binlog_server.sql.global_variables import GLOBALS
from binlog_server.sql.sql_session import SqlSession
from binlog_server.sql.variables import RANGES

from .lab import Lab

OPTIONS = {f.name for f in fields(Config)}
NUMBERS = {name for name, variable in GLOBALS.items() if variable.number or variable.decimals}
BOTH = sorted((NUMBERS | RANGES.keys()) & OPTIONS)
GLOBAL = sorted(NUMBERS & OPTIONS)


def config(**options: Any) -> Config:
    return Config(Path("/d"), **options)


@pytest.fixture
async def sql() -> AsyncIterator[SqlSession]:
    async with Lab() as lab:
        yield SqlSession(lab.server, 1, "root@localhost", grants=frozenset({"ALL PRIVILEGES"}))


def test_what_is_compared() -> None:
    assert {"max_connections", "binlog_expire_logs_seconds", "server_id"} <= set(BOTH)
    assert LIMITS.keys() >= NUMBERS, "a number that SET GLOBAL takes has its limits there"
    whole = {f.name for f in fields(Config) if isinstance(f.default, int | float)}
    booleans = {f.name for f in fields(Config) if isinstance(f.default, bool)}
    checked_by_the_store = {"innodb_binlog_state_interval"}
    assert whole - booleans - LIMITS.keys() == checked_by_the_store


@pytest.mark.parametrize("name", BOTH)
def test_the_session_has_the_limits_of_the_file(name: str) -> None:
    assert RANGES.get(name, LIMITS[name]) == LIMITS[name]


@pytest.mark.parametrize("name", sorted(LIMITS.keys() & OPTIONS))
def test_the_file(name: str) -> None:
    low, high = LIMITS[name]
    for beyond in (low - 1, high + 1):
        with pytest.raises(ConfigError, match=f"{name}: {beyond} is not between {low} and {high}"):
            config(**{name: beyond})


@pytest.mark.parametrize("name", GLOBAL)
async def test_set_global(sql: SqlSession, name: str) -> None:
    """What is beyond is cut to the limits of the file, and taken there."""
    low, high = LIMITS[name]
    if name == "max_binlog_size":
        low = sql.server.engine.max_binlog_size_min
    for value, kept in ((low - 1, low), (high + 1, high)):
        assert sql.execute(f"SET GLOBAL {name} = {value}") is None
        assert float(sql.global_value(name)) == kept
        assert sql.warning_count == 1
        config(**{name: kept})
