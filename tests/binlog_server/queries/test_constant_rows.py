"""Rows of constants are cut out of an INSERT, and mean what they would mean in the tree."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any
from unittest import mock

import pytest
from binlog_protocol.errors import ServerError, SqlSyntaxError

from binlog_server.queries import parsing
from binlog_server.queries.constant_rows import LIST_CHARS_MIN, NO_LISTS, cut_lists, cut_out
from binlog_server.queries.parsing import (
    CHANGE_TOKENS_MAX,
    change,
    constant_node,
    question,
)
from tests.binlog_server.queries.test_bounds import run
from tests.binlog_server.queries.test_expressions import asker

CUT = {
    "INSERT INTO t VALUES (1),(2)": ("INSERT INTO t VALUES (2)", 1),
    "insert t(a,`b c`) value(1,'x') , ( 2 , \"y\" ),(NULL,default) ;": (
        "insert t(a,`b c`) value(NULL,default) ;",
        2,
    ),
    "REPLACE LOW_PRIORITY INTO `d`.t VALUES\n(1),\n(2),\n(a+1),(3)": (
        "REPLACE LOW_PRIORITY INTO `d`.t VALUES\n(a+1),(3)",
        2,
    ),
    "INSERT INTO t VALUES (-1.5e-3),(0xaF),(_binary 'a\\'b'),('a''b') ON DUPLICATE KEY UPDATE a=1": (
        "INSERT INTO t VALUES ('a''b') ON DUPLICATE KEY UPDATE a=1",
        3,
    ),
    "INSERT INTO `values` VALUES (1),(2)": ("INSERT INTO `values` VALUES (2)", 1),
    "INSERT INTO t VALUES (1),(2),": ("INSERT INTO t VALUES (2),", 1),
}
LEFT = [
    "INSERT INTO t VALUES (1)",
    "INSERT INTO t VALUES (a),(1),(2)",
    "INSERT INTO t VALUES (),(),()",
    "INSERT INTO t VALUES (1 2),(3)",
    "INSERT INTO t VALUES ('a' 'b'),(3)",
    "INSERT INTO t VALUES (1234567890123456789),(1)",  # might be too large, and is told before a row is changed
    "INSERT INTO t VALUES (1e999),(1)",
    "INSERT INTO t VALUES ('a),(1)",
    "INSERT INTO t VALUES (+1),(1)",
    "INSERT INTO t SELECT * FROM (VALUES (1),(2)) x",
    "INSERT INTO t SET a = 1",
    "INSERT INTO t (a, ) VALUES (1),(2)",
    "UPDATE t SET a = 1",
]


@pytest.mark.parametrize("text", CUT)
def test_what_is_cut_out(text: str) -> None:
    left, rows = cut_out(text)
    assert rows is not None
    assert (left, len(rows)) == CUT[text]
    assert [len(row) for row in rows] == list(rows.widths)


@pytest.mark.parametrize("text", LEFT)
def test_what_stays(text: str) -> None:
    assert cut_out(text) == (text, None)


def nodes(text: str) -> list[list[Any]] | str:
    """What the rows of VALUES are; an error's text."""
    try:
        found = change(text)
    except ServerError as error:
        return str(error)
    rows = [] if found.rows is None else [[constant_node(one) for one in r] for r in found.rows]
    for row in found.tree.expression.expressions:
        parts = [None if one.name.upper() == "DEFAULT" else one for one in row.expressions]
        rows.append(parts)
    return rows


def metas(rows: list[list[Any]]) -> list[list[bool]]:
    """Which hexadecimal digits may be a number."""
    return [[one is not None and bool(one.meta.get("is_number")) for one in row] for row in rows]


def any_text(rng: random.Random) -> str:
    good = [
        "1",
        "-7",
        "- 2",
        "3.25",
        "1e5",
        "-1E-12",
        "0x4a",
        "NULL",
        "null",
        "DEFAULT",
        "'x'",
        '"y"',
        "''",
        "'a''b'",
    ]
    good += [
        "'\\n\\\\\\''",
        "'\\%'",
        '"a""b\'"',
        "_binary 'z'",
        "_BINARY'\\0'",
        "'\u00e4\U0001f600'",
        "000",
        "'(),('",
    ]
    odd = [
        "a",
        "1+1",
        "NOW()",
        "(1)",
        "1 ",
        "''''",
        "'",
        "0x",
        "1e",
        ".5",
        "1.",
        "--1",
        "x'41'",
        "b'1'",
        "*",
        "",
    ]
    blanks = ["", "", " ", "\n", "\t "]
    width = rng.choice([1, 1, 2, 4])
    rows = []
    for _ in range(rng.choice([1, 2, 3, 9])):
        parts = [rng.choice(good if rng.random() < 0.97 else odd) for _ in range(width)]
        rows.append(
            "(" + ",".join(f"{rng.choice(blanks)}{one}{rng.choice(blanks)}" for one in parts) + ")"
        )
    comma = rng.choice([",", " ,\n", ", "])
    end = rng.choice(
        ["", "", ";", " ON DUPLICATE KEY UPDATE a = a + 1", " RETURNING a", ",", " x", ",(?,1)"]
    )
    return f"INSERT INTO t {rng.choice(['', '(a) ', '(`a`, b)'])}VALUES{rng.choice(blanks)}{comma.join(rows)}{end}"


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_it_is_as_in_the_tree(seed: int) -> None:
    rng = random.Random(seed)
    cut = 0
    for _ in range(150):
        text = any_text(rng)
        found = nodes(text)
        cut += cut_out(text)[1] is not None
        with mock.patch.object(parsing, "cut_out", lambda text: (text, None)):
            whole = nodes(text)
        assert isinstance(found, str) == isinstance(whole, str), text
        if not isinstance(found, str):
            assert found == whole, text
            assert metas(found) == metas(whole), text
    assert cut > 50


def test_an_error_behind_them_has_its_line() -> None:
    with pytest.raises(SqlSyntaxError, match="at line 3"):
        change("INSERT INTO t VALUES (1),\n(2),\n(3) )")


def test_long_texts_do_not_go_through_the_tokenizer() -> None:
    """They took a second for each MB, more with escapes."""
    said = "it''s \\'\\n\\%é" * 1000
    text = f"INSERT INTO t SELECT '{said}', _binary'{said}', \"{said}\", 'x' 'y', `{'n' * 2000}`"
    meant = "it's '\n\\%é" * 1000
    plain_tokenize = parsing._Dialect.tokenize
    with mock.patch.object(
        parsing._Dialect, "tokenize", autospec=True, side_effect=plain_tokenize
    ) as tokenize:
        found = change(text)
    assert all(len(call.args[1]) < 3000 for call in tokenize.call_args_list)
    texts = [node.this for node, _ in parsing._nodes(found.tree) if node.key == "literal"]
    assert sorted(texts) == sorted([meant, meant, meant.replace("it's", "it''s"), "x", "y"])
    assert found.held > len(text)
    with pytest.raises(SqlSyntaxError, match=r"near '.*xxxxx"):
        change(f"INSERT INTO t SELECT 1 ) '{'x' * 2000}'")


@pytest.mark.parametrize("word", ["OR", "AND"])
def test_a_chain_of_conditions_is_not_deep(word: str) -> None:
    """Batches of keys: as programs write them where a key has two columns."""
    text = f" {word} ".join(f"(a = {n} AND b = 'x{n}')" for n in range(3000))
    assert change(f"DELETE FROM t WHERE {text}").tables == {(None, "t")}
    with pytest.raises(ServerError, match="nesting so deep"):
        change(f"DELETE FROM t WHERE {' + '.join(map(str, range(3000)))}")


@pytest.mark.long
def test_a_long_list_takes_no_tree() -> None:
    text = "INSERT INTO t VALUES " + "(1,'a')," * (32_768 - 4) + "(1,'a')"
    change("INSERT INTO t VALUES (1)")
    tracemalloc.start()
    try:
        found = change(text)
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()
    assert found.rows is not None
    assert len(found.rows) > 32_000
    assert found.held < 1 << 20


def test_what_is_left_is_bounded_before_it_is_taken_apart() -> None:
    told: list[int] = []
    text = "INSERT INTO t VALUES " + ",".join("(a+1)" for _ in range(CHANGE_TOKENS_MAX // 6 + 1))
    with (
        mock.patch.object(parsing._Dialect, "tokenize", side_effect=AssertionError),
        pytest.raises(ServerError, match="a statement so large"),
    ):
        change(text, told.append)
    assert not told
    change("INSERT INTO t VALUES ('" + "x" * 100_000 + "')", told.append)
    (held,) = told
    assert held < 10_000


KEPT = ",".join(["1234567"] * (LIST_CHARS_MIN // 8 + 1))  # of a list that is cut


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("SELECT 1 IN ({},2,'b',NULL)", "SELECT 1 IN ({})"),
        ("SELECT a FROM t WHERE a in({} ,\n-2.5e3,\n0x41 ) LIMIT 1", "SELECT a FROM t WHERE a in({} \n\n) LIMIT 1"),
        ("SELECT a IN ({},2) OR b NOT IN\t(1,2) OR c IN ({},3)", "SELECT a IN ({}) OR b NOT IN\t(1,2) OR c IN ({})"),
        ("SELECT 'IN ({0},2)', `IN ({0},2)`, a IN ({0},'IN ({0},2)')", "SELECT 'IN ({0},2)', `IN ({0},2)`, a IN ({0})"),
        ("SELECT a IN ({},b)", None),
        ("SELECT a IN ({},DEFAULT)", None),
        ("SELECT a IN ({},1 2)", None),
        ("SELECT a IN ({},", None),
        ("SELECT a IN (b,{},2)", None),
        ("SELECT @in ({},2)", None),
        ("SELECT t.in ({},2)", None),
    ],
)  # fmt: skip
def test_what_is_cut_of_a_list(text: str, left: str | None) -> None:
    said = text.format(KEPT, KEPT)
    assert cut_lists(said)[0] == (said if left is None else left.format(KEPT, KEPT))


def test_a_list_that_no_in_has_is_an_error() -> None:
    text = f"SELECT POSITION('a' IN ({KEPT},2))"
    assert cut_lists(text)[0] != text
    with pytest.raises(SqlSyntaxError):
        question(text)


@pytest.mark.parametrize("form", ["{}", "'{}'", "-{}", "{}.5", "NULL,{}"])
@pytest.mark.parametrize(
    "place", ["n", "s", "n * 1.0", "s COLLATE utf8mb4_bin", "DATE '2026-11-30'"]
)
def test_a_list_means_what_it_means_in_the_tree(form: str, place: str) -> None:
    said = ",".join(form.format(n * 3) for n in range(300))
    for text in (
        f"SELECT COUNT(*) FROM t WHERE {place} IN ({said})",
        f"SELECT {place} NOT IN ({said}) FROM t",
    ):
        asking, other = asker(), asker()
        found = run(text, asking)
        with mock.patch.object(parsing, "cut_lists", lambda text: (text, NO_LISTS)):
            assert run(text, other) == found
        assert [str(one) for one in asking.warnings] == [str(one) for one in other.warnings]
