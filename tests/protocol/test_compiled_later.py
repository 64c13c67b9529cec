"""Patterns that are compiled at their first use."""

from __future__ import annotations

import copy
import importlib
import pickle
import re

import pytest
from binlog_protocol.compiled_later import _Later, compiled_later, repeated

from tests.house import product

PATTERNS = 100  # some 140: the test would say nothing if it found none


def test_it_is_a_pattern() -> None:
    plain, later = (
        re.compile(r"(\w)(?P<b>\d)", re.ASCII),
        compiled_later(r"(\w)(?P<b>\d)", re.ASCII),
    )
    assert later.pattern == plain.pattern
    assert later.flags == plain.flags
    assert later.groupindex == plain.groupindex
    for text in ("", "a1", " a1 b2"):
        assert later.findall(text) == plain.findall(text)
        assert later.sub("x", text) == plain.sub("x", text)
        assert bool(later.match(text)) == bool(plain.match(text))
        assert bool(later.fullmatch(text)) == bool(plain.fullmatch(text))
    assert compiled_later(rb"\d").search(b"a1")


def test_what_is_repeated_is_not_given_back() -> None:
    found = re.match(repeated("ab"), "ababa")
    assert found is not None
    assert found[0] == "abab"
    assert re.match(repeated("ab|a") + "b", "aab") is None


@pytest.mark.parametrize(
    ("pattern", "text", "end"),
    [
        (r"/\*" + repeated(r"[^*]|\*(?!/)") + r"\*/", "/* a * b */ c", 11),
        (r"\d+" + repeated(r",\d+"), "1,22,333, 4", 8),
        (r"\d+" + repeated(r",\d+-\d+") + ",", "1,2-2,3-", 6),
    ],
    ids=["look-ahead", "list", "list and more"],
)
def test_a_repetition_that_fails_takes_nothing(pattern: str, text: str, end: int) -> None:
    for one in (re.compile(pattern), re.compile(pattern, re.VERBOSE)):
        match = one.match(text)
        assert match is not None
        assert match.end() == end


def test_it_can_be_copied() -> None:
    later = compiled_later("a+")
    for one in (later, copy.deepcopy(later), pickle.loads(pickle.dumps(later))):
        assert one.match("aa")
    assert pickle.loads(pickle.dumps(later)).match("aa"), "behind its first use"


def test_it_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    compile = re.compile

    def noted(source: str, flags: int) -> re.Pattern[str]:
        compiled.append(source)
        return compile(source, flags)

    monkeypatch.setattr(re, "compile", noted)
    later = compiled_later("a")
    assert not compiled
    assert later.match("a")
    assert later.match("b") is None
    assert later.sub("b", "a") == "b"
    assert compiled == ["a"]


def test_all_of_ours_can_be_compiled() -> None:
    """Else the first session that uses one would tell."""
    count = 0
    for name, module in product().modules.items():
        if "compiled_later" not in module.path.read_text() or name.endswith("__main__"):
            continue
        for value in vars(importlib.import_module(name)).values():
            if isinstance(value, _Later):
                assert value.pattern is not None
                count += 1
    assert count > PATTERNS
