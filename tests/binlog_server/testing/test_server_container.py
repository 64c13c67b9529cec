"""How options reach a container: each as a variable whose text the server reads as it was meant."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from binlog_server.testing.server_container import _toml


@pytest.mark.parametrize(
    "value",
    [
        7,
        1.5,
        True,
        [],
        ["a", "b"],
        {"repl": {"password": 'a "b\\', "grants": ["ALL"]}},
        {"ключ 😀": "пароль 😀"},
    ],
    ids=repr,
)
def test_a_value_is_the_same_behind_toml(value: Any) -> None:
    assert tomllib.loads(f"x = {_toml(value)}")["x"] == value
