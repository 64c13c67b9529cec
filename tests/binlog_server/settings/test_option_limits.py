"""What a value may be is the same in the configuration file and in SET, and is MariaDB's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from binlog_server.settings.config import DEFAULTS, KINDS, Config, ConfigError
from binlog_server.settings.option_kinds import U64_MAX, Decimals, Number
from binlog_server.sql.sql_session import SqlSession
from binlog_server.sql.variables import VARIABLES
from tests.binlog_server.lab import Lab

NUMBERS = {name: kind for name, kind in KINDS.items() if isinstance(kind, Number | Decimals)}
GLOBAL = sorted(n for n in NUMBERS if n in VARIABLES and VARIABLES[n].set_global is not None)


def config(**options: Any) -> Config:
    return Config(Path("/d"), **options)


@pytest.fixture
async def sql() -> AsyncIterator[SqlSession]:
    async with Lab() as lab:
        yield SqlSession(lab.server, 1, "root@localhost", grants=frozenset({"ALL PRIVILEGES"}))


def test_what_is_compared() -> None:
    assert {"max_connections", "binlog_expire_logs_seconds", "max_binlog_size"} <= set(GLOBAL)
    whole = {f.name for f in fields(Config) if type(f.default) in (int, float)}
    assert NUMBERS.keys() == whole, "a number of the configuration says its limits beside its type"


@pytest.mark.parametrize("name", sorted(VARIABLES.keys() & KINDS.keys()))
def test_a_variable_that_is_an_option_is_one(name: str) -> None:
    """Kind and default are those of the configuration."""
    kind = KINDS[name]
    assert VARIABLES[name].kind is kind
    default = DEFAULTS[name]
    assert VARIABLES[name].default == kind.text(default)
    assert default is None or kind.option(kind.text(default)) == default
    if default is not None:
        kind.check(default)


@pytest.mark.parametrize("name", sorted(NUMBERS))
def test_the_file(name: str) -> None:
    low, high = NUMBERS[name].low, NUMBERS[name].high
    for beyond in (low - 1, high + 1):
        with pytest.raises(ConfigError, match=f"{name}: {beyond} is not between {low} and {high}"):
            config(**{name: beyond})


@pytest.mark.parametrize("name", GLOBAL)
async def test_set_global(sql: SqlSession, name: str) -> None:
    """What is beyond is cut to the limits of the file, and taken there."""
    low, high = NUMBERS[name].low, NUMBERS[name].high
    if name == "max_binlog_size":
        low = sql.server.engine.max_binlog_size_min
    # No literal is larger than 64 bits: MariaDB takes half of that for it.
    most = high if high < U64_MAX else U64_MAX >> 1
    cut = most % getattr(NUMBERS[name], "block", 1)  # 11.8 tells of both, too
    most -= cut
    for value, kept in ((low - 1, low), (high + 1, most)):
        assert sql.execute(f"SET GLOBAL {name} = {value}") is None
        assert float(sql.global_value(name)) == float(kept)
        assert sql.warning_count == (2 if cut and value > high else 1)
        config(**{name: kept})
