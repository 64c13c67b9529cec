"""What a question may take: time and memory, whatever it asks; and that no call of C holds all threads meanwhile."""

from __future__ import annotations

import gc
import logging
import random
import time
import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest
from binlog_protocol.errors import ServerError, SqlSyntaxError

from binlog_server.queries import like, order, terms, types, values
from binlog_server.queries.binding import bind
from binlog_server.queries.like import like_matches
from binlog_server.queries.parsing import question
from binlog_server.queries.terms import Asker, Budget, constant
from binlog_server.queries.types import Type
from tests.binlog_server.queries.test_expressions import asker

ROWS: Final = 2000
MADE, TEXT, SECONDS = 1 << 20, 1 << 16, 0.5
MEMORY: Final = 16 * MADE  # in Python's objects, of which `MADE` counts what it must


def column(name: str, kind: Type) -> Type:
    return replace(kind, column=replace(kind.wire(name), original_name=name))


@dataclass(frozen=True)
class Numbers:
    """A table of numbers, each with a text."""

    name: str = "t"
    is_view: bool = False
    columns: Sequence[Type] = (column("n", types.integer(9)), column("s", types.text(20)))

    def rows(self) -> Sequence[Sequence[Any]]:
        return [(n, f"row {n}") for n in range(ROWS)]


def run(text: str, asking: Asker | None = None) -> Sequence[Sequence[Any]]:
    asking = asking or asker()
    asking.budget.begin(SECONDS)
    return bind(question(text), asking, lambda schema, name: Numbers()).run()


@pytest.mark.parametrize("times", [-1, -(1 << 63), -(10**20)])
def test_fewer_times_than_none(times: int) -> None:
    assert run(f"SELECT REPEAT('a', {times}), SPACE({times})") == [("", "")]


LONG: Final = f"(SELECT REPEAT('é', {TEXT}) x) l"
HOSTILE: Final = {
    "quotes that double": "SELECT LENGTH(" + "QUOTE(" * 12 + "REPEAT('\\\\', 60000)" + ")" * 13,
    "a separator": f"SELECT LENGTH(GROUP_CONCAT('' SEPARATOR '{'x' * 10_000}')) FROM t, t u",
    "DISTINCT": f"SELECT COUNT(*) FROM (SELECT DISTINCT n, x FROM t, {LONG}) d",
    "GROUP BY": f"SELECT COUNT(*) FROM (SELECT 1 FROM t, {LONG} GROUP BY n, x) d",
    "COUNT(DISTINCT)": f"SELECT COUNT(DISTINCT n, x) FROM t, {LONG}",
    "ORDER BY": f"SELECT n FROM t, {LONG} ORDER BY x",
    "ORDER BY of GROUP_CONCAT": f"SELECT GROUP_CONCAT(n ORDER BY x) FROM t, {LONG}",
    "UNION": f"SELECT n, x FROM t, {LONG} UNION SELECT 1, 'a'",
    "EXCEPT": f"SELECT 1, 'a' EXCEPT SELECT n, x FROM t, {LONG}",
    "pieces of LIKE": f"SELECT s LIKE REPEAT('%a', {TEXT // 2}) FROM t",
    "LIKE with _": f"SELECT x LIKE CONCAT('%', REPEAT('_', 4000), 'a%') FROM t, {LONG}",
    "a long piece of LIKE": f"SELECT x LIKE CONCAT('%', REPEAT('_', 40000), 'a%') FROM {LONG}",
    "TRIM of each row": "SELECT MAX(LENGTH(TRIM('ab' FROM y))) FROM t, "
    f"(SELECT REPEAT('ab', {TEXT // 2}) y) l",
    "FIND_IN_SET of each row": "SELECT MAX(FIND_IN_SET('x', y)) FROM t, "
    f"(SELECT REPEAT(',', {TEXT}) y) l",
    "comparisons": f"SELECT {'+'.join(['(x = x)'] * 700)} FROM {LONG}",
    "a list": f"SELECT x IN ({','.join(['x'] * 2500)}) FROM {LONG}",
    "arrays of JSON": f"SELECT LENGTH(JSON_ARRAY({','.join(['x'] * 900)})) FROM {LONG}",
    "objects of JSON": f"SELECT LENGTH(JSON_OBJECT({','.join(['x'] * 900)})) FROM {LONG}",
    "paths of JSON": "SELECT JSON_EXTRACT(CONCAT('[', REPEAT('[],', 20000), '1]'), "
    f"{','.join(['$[*]'.join(chr(39) * 2)] * 50)})",
    "deep paths of JSON": "SELECT JSON_EXTRACT(CONCAT(REPEAT('[', 30), REPEAT(']', 30)), "
    f"'${'**[0]' * 12}.a')",
    "columns": f"SELECT 1 FROM (SELECT {','.join(['t.*'] * 2000)} FROM t) a, "
    f"(SELECT {','.join(['t.*'] * 2000)} FROM t) b",
    "rows": "SELECT COUNT(*) FROM t a, t b, t c",
    "rows that are kept": "SELECT COUNT(*) FROM (SELECT a.n FROM t a, t b) d",
    "subqueries": "SELECT COUNT(*) FROM t a WHERE EXISTS (SELECT 1 FROM t b WHERE b.n + a.n < 0)",
}


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits, lowered: the same at a sixteenth of the cost."""
    monkeypatch.setattr(terms, "MADE_BYTES_MAX", MADE)
    monkeypatch.setattr(terms, "TEXT_CHARS_MAX", TEXT)


@pytest.mark.by_turns(5)
@pytest.mark.usefixtures("little")
@pytest.mark.parametrize("name", HOSTILE)
def test_time_is_bounded(name: str) -> None:
    began = time.thread_time()
    error = end(HOSTILE[name])
    assert time.thread_time() - began < 4 * SECONDS
    assert error is None or (error.errno in (1105, 1235, 1969) and not error.fatal)


@pytest.mark.parametrize(
    "joined",
    [
        "t a JOIN t b ON a.n = 1 AND b.n = 2",
        "t a JOIN t b ON (a.n = 1 AND b.n = 2)",
        "t a JOIN t b ON ((a.n = 1) AND (b.n = 2))",
        "t a JOIN t b ON (b.n = 2) WHERE (a.n = 1)",
        "t a LEFT JOIN t b ON (b.n = 2) WHERE (a.n = 1)",
        "t c JOIN t b ON (c.n = 3 AND b.n = 2) JOIN t a ON (c.n > 2 AND a.n = 1)",
    ],
)
def test_conditions_of_a_join_are_looked_at_where_they_can_be_first(joined: str) -> None:
    """Each about one side: nobody goes through pairs. A monitor of MaxScale asks so, in brackets."""
    asking = asker()
    assert run(f"SELECT a.n, b.n FROM {joined}", asking) == [(1, 2)]
    assert asking.budget._ticks < 10 * ROWS


@pytest.mark.by_turns(5)
@pytest.mark.usefixtures("little")
@pytest.mark.parametrize("name", HOSTILE)
def test_memory_is_bounded(name: str) -> None:
    run("SELECT COUNT(*) FROM t")
    tracemalloc.start()
    try:
        end(HOSTILE[name])
        assert tracemalloc.get_traced_memory()[1] < MEMORY
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < MADE  # nothing of it is kept
    finally:
        tracemalloc.stop()


def end(text: str) -> ServerError | None:
    """By an answer or an error."""
    try:
        run(text)
    except ServerError as error:
        return error.with_traceback(None)
    return None


@pytest.mark.parametrize(
    "text",
    [
        "SELECT " + "DATE(" * 23 + "1" + ")" * 23,
        "SELECT 1 FROM " + " JOIN ".join(f"t t{n}" for n in range(40)),
        "SELECT " + "ENUM(" * 20 + "1" + ",1)" * 20,
    ],
    ids=lambda text: text[:20],
)
def test_no_text_is_read_in_ever_more_ways(text: str) -> None:
    """sqlglot tries two ways at each of their levels."""
    began = time.thread_time()
    with pytest.raises(ServerError) as caught:
        question(text)
    assert caught.value.errno in (1064, 1235)
    assert time.thread_time() - began < 1.0


@pytest.mark.parametrize("behind", ["SHOW FIELDS FROM v", "SET PASSWORD = PASSWORD('secret')", "x"])
def test_a_second_statement_is_not_read(behind: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(SqlSyntaxError) as caught:
        question(f"SELECT 1;; {behind};")
    assert caught.value.near == f"{behind};"
    assert not caplog.records
    assert question("SELECT 1;;").text == "SELECT 1;;"


@pytest.mark.parametrize("is_down", [False, True])
@pytest.mark.parametrize("kind", [types.integer(5), types.text(5)], ids=["numbers", "texts"])
def test_order_of_many_rows(
    kind: Type, is_down: bool, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one sort of all gives it: stable, NULL first."""
    monkeypatch.setattr(order, "_RUN", 7)
    numbers = [rng.choice([None, *range(20)]) for _ in range(500)]
    found = [n if n is None or kind.is_number else f"{n:c<3}" for n in numbers]
    pairs: list[order.Pair] = [(at, (value,)) for at, value in enumerate(found)]
    expected = sorted(
        pairs, key=lambda pair: (pair[1][0] is not None, pair[1][0] or 0), reverse=is_down
    )
    if not kind.is_number:
        expected = sorted(
            pairs, key=lambda pair: (pair[1][0] is not None, pair[1][0] or ""), reverse=is_down
        )
    budget = Budget()
    assert order.ordered(pairs, [(constant(kind, None), is_down)], budget) == expected
    assert budget.made == 0


def test_texts_that_are_compared_often_are_kept_only_if_short() -> None:
    values._folded_before.cache_clear()
    assert values.collated("é" * 100) == "E" * 100
    assert values._folded_before.cache_info().currsize == 0
    assert values.collated("é") == "E"
    assert values._folded_before.cache_info().currsize == 1


def test_long_texts_are_converted_in_parts() -> None:
    text = "aé" * values._PART_CHARS
    assert values.upper(text) == text.upper()
    assert values.lower(text.upper()) == text
    assert values.upper("") == ""


def test_patterns_of_like_are_kept_only_if_short() -> None:
    like._long_before.cache_clear()
    assert not like_matches("%a" * like._KEPT_CHARS_MAX, "b")
    assert like._long_before.cache_info().currsize == 0
    for count in (1000, 2000):
        assert not like_matches("%aaaaaaa" * count, "b")
    assert like._long_before.cache_info().currsize == 1


def test_a_search_of_like_can_be_ended() -> None:
    budget = Budget()
    pattern = f"%{'_' * 8000}a%"
    assert not like_matches(pattern, "b" * 10_000, budget=budget)
    budget.cancel()
    with pytest.raises(ServerError, match="1317"):
        like_matches(pattern, "b" * 10_000, budget=budget)


def test_names_of_variables() -> None:
    """Only these are taken from the session."""
    assert question("SELECT @A, @b := @`c d`, @@x").user_variables == {"a", "b", "c d"}
