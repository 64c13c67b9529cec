"""LIKE over texts of a collation; tests/integration/compared_tables.sql asks a real server for some of it."""

from __future__ import annotations

import pytest
from binlog_protocol.tables.collation import folded, folded_like

from binlog_server.queries.like import like_matches

UCA1400 = 2304


@pytest.mark.parametrize(
    ("text", "pattern", "is_like"),
    [
        ("\u00e9", "E", True), ("\u00df", "ss", False), ("\u00df", "_", True), ("ab", "\uff21%", True),
        ("a%", "a\\\uff05", True), ("ab", "a\uff05", False), ("a%", "a\uff05", True), ("a\\", "a\\", True),
        ("\u0439", "\u0418\u0306", False), ("a_", "a\\_", True), ("ax", "a\\_", False), ("a", "a\u0301", False),
    ],
)  # fmt: skip
def test_like(text: str, pattern: str, is_like: bool) -> None:
    found = like_matches(folded_like(pattern, UCA1400), folded(text, UCA1400), is_folded=False)
    assert found is is_like
