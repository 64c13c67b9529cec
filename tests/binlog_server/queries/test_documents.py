"""JSON texts: places in them, by a path."""

from __future__ import annotations

import json
from typing import Any

import pytest
from binlog_protocol.errors import ServerError
from hypothesis import given
from hypothesis import strategies as st

from binlog_server.queries import documents

TEXT = '{"a": [1, {"b": "x"}, [2, 3]], "a b": null, "c": {"b": true}}'


def values(text: str, path: str) -> list[str]:
    within, steps = documents.bounds(text), documents.path(path)
    assert within is not None
    assert steps is not None
    return [text[slice(*span)] for span in documents.found(text, within, steps)]


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("$", [TEXT]),
        ("$.a[0]", ["1"]),
        ("$.a[last]", ["[2, 3]"]),
        ("$.a[last-1].b", ['"x"']),
        ("$.a[-1][0]", ["2"]),
        ('$."a b"', ["null"]),
        ("$.a[*]", ["1", '{"b": "x"}', "[2, 3]"]),
        ("$.*.b", ["true"]),
        ("$**.b", ['"x"', "true"]),
        ("$.c[0].b", ["true"]),
        ("$.c[1]", []),
        ("$.nothing.b", []),
        ("$.a[9]", []),
    ],
)
def test_paths(path: str, found: list[str]) -> None:
    assert values(TEXT, path) == found


@pytest.mark.parametrize("path", ["", "a", "$.", "$[", "$[x]", "$..a", "$**", "$.a b"])
def test_no_paths(path: str) -> None:
    assert documents.path(path) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1,]",
        "{'a': 1}",
        "NaN",
        "[Infinity]",
        "1 2",
        "nul",
        '{"a" 1}',
        "[" * 40 + "]" * 40,
    ],
)
def test_no_json(text: str) -> None:
    assert documents.bounds(text) is None


def test_a_long_one_is_refused() -> None:
    with pytest.raises(ServerError, match="JSON of more than"):
        documents.bounds("[" + "1," * documents.CHARS_MAX + "1]")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(JSON, st.sampled_from([None, 1]))
def test_every_member_is_found(value: Any, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    within = documents.bounds(text)
    assert within is not None
    if not isinstance(value, list | dict):
        return
    found = [json.loads(text[start:end]) for _, start, end in documents.members(text, within[0])]
    assert found == list(value.values() if isinstance(value, dict) else value)


@given(JSON)
def test_loose_is_the_same_value(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    assert documents.loose(text) == json.dumps(value, ensure_ascii=False)
    assert documents.loose(json.dumps(value, ensure_ascii=False, indent=2)) == documents.loose(text)


@given(st.text(alphabet='{}[]",:\\ 1ae.-', max_size=30))
def test_nothing_breaks_it(text: str) -> None:
    if (within := documents.bounds(text)) is not None:
        json.loads(text)
        documents.kind_of(text, within[0])
        documents.depth_of(text, within[0])


@pytest.mark.parametrize(
    ("text", "kind", "at"),
    [
        ("", "ENDS", 0),
        ('{"a":1,', "ENDS", 7),
        ("tru", "ENDS", 3),
        ('"abc', "ENDS", 4),
        ("x", "SYNTAX", 1),
        ("1 2", "SYNTAX", 3),
        ("truex", "SYNTAX", 5),
        ("-", "SYNTAX", 1),
        ("1e+", "SYNTAX", 3),
        ("01", "SYNTAX", 2),
        ("1.5.2", "SYNTAX", 4),
        ('"a\\u12"', "SYNTAX", 6),
        ("{1:2}", "SYNTAX", 2),
        ('{"a" 1}', "SYNTAX", 5),
        ('{"a":1,}', "SYNTAX", 8),
        ("[1,]", "SYNTAX", 4),
        ("[}", "SYNTAX", 2),
        ("[tru, 1]", "SYNTAX", 4),
        ('["é",é]', "SYNTAX", 8),
        ('{"a":[1,{"b":x}]}', "SYNTAX", 14),
        ('"\t"', "CHARACTER", 2),
        ("[" * 40, "DEPTH", 32),
    ],
)
def test_where_the_fault_is(text: str, kind: str, at: int) -> None:
    """As 11.8 says it; `compared_statements.sql` asks a real one."""
    assert documents.bounds(text) is None
    found = documents.fault(text)
    assert (found.kind.name, found.at) == (kind, at)


@given(st.text('{}[],:"ab1-.e tn\\u', max_size=12))
def test_a_fault_lies_within(text: str) -> None:
    if documents.bounds(text) is None:
        assert 0 <= documents.fault(text).at <= max(1, len(text.encode()))
