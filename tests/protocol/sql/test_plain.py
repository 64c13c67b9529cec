"""Comments and the ways to quote: what is left of a statement for a grammar, and what tokens there are."""

from __future__ import annotations

import itertools

import pytest
from binlog_protocol.errors import SqlSyntaxError
from binlog_protocol.sql.plain import plain
from binlog_protocol.sql.tokens import TokenKind, first_words, tokens
from hypothesis import given
from hypothesis import strategies as st

PLAIN = {
    "SELECT 1": "SELECT 1",
    "a /* b */ c": "a         c",
    "a -- b\nc # d\n": "a     \nc    \n",
    "a -- b": "a     ",
    "a --b": "a --b",
    "/* a\n*/ b": "    \n   b",
    "/*!40100 a */ b": "         a    b",
    "/*M!110809a */": "          a   ",
    "/*!110810 a */ b": "               b",
    "/*!50700 a */ b": "              b",
    "/*M!50700 a */ b": "          a    b",
    "/*!0507011 a */ b": "                b",
    "/*!1000000 a */": "         0 a   ",
    "/*!1000 a */": "   1000 a   ",
    "/*!999999 /* a */ b */ c": "                       c",
    "/*!40100 /* a */ b */ c": "                 b    c",
    "/*!40100 /*!40100 a */ */": "                  a    */",
    "a */ b": "a */ b",
    "a /* b": "a /* b",
    "a /*!999999 b": "a /*!999999 b",
    "'/* a' \"-- b\" `#c`": "'/* a' \"-- b\" `#c`",
    "'a\\' /* b */'": "'a\\' /* b */'",
    "'a /* b": "'a /* b",
}


@pytest.mark.parametrize("text", PLAIN)
def test_comments_are_blanks(text: str) -> None:
    assert plain(text) == PLAIN[text]


@pytest.mark.parametrize(
    "text", ["1----", "1--/* a */1", "1--#\n1", "1--/*!40100 1*/", "/*!40100 1--*/1"]
)
def test_two_signs_become_no_comment(text: str) -> None:
    with pytest.raises(SqlSyntaxError):
        plain(text)


@pytest.mark.parametrize("text", ["/*!40100 a", "/*! a", "/*M! /* b */"])
def test_a_beginning_without_an_end(text: str) -> None:
    with pytest.raises(SqlSyntaxError):
        plain(text)


def test_other_modes() -> None:
    text = r"""SELECT 'a\' /* b */ , "c\" -- '"""
    assert plain(text, backslash_escapes=False) == r"""SELECT 'a\\'         , "c\\"     """
    assert plain('"a""b`" /* c */ \'\\\'\'', ansi_quotes=True) == "`a\"b```         '\\''"
    with pytest.raises(SqlSyntaxError):
        plain("'a", ansi_quotes=True)


@given(st.text("ab'\"`/*!M-# \n\\40159;", max_size=40))
def test_nothing_moves_and_nothing_is_left_to_do(text: str) -> None:
    try:
        found = plain(text)
    except SqlSyntaxError:
        return
    assert len(found) == len(text)
    assert plain(found) == found
    of_both = [list(tokens(x, is_logged=False)) for x in (text, found)]
    assert of_both[0] == of_both[1]


def test_first_words() -> None:
    assert first_words("/* a */ create /*!40100 or replace*/ user 'x'") == [
        "CREATE",
        "OR",
        "REPLACE",
        "USER",
    ]
    assert first_words("/*!999999 insert */") == []
    assert first_words("*/ insert") == []
    assert first_words("a b c", 2) == ["A", "B"]
    assert first_words("insert\xa0into") == ["INSERT\xa0INTO"]


def words_of_tokens(sql: str) -> list[str]:
    """The plain twin of `first_words`."""
    found = itertools.takewhile(lambda t: t.kind is TokenKind.WORD, tokens(sql, is_logged=False))
    return [token.text.upper() for token in found]


@given(
    st.lists(
        st.sampled_from(
            [*"a \n-#/*`'\"\xa0ß;", "--", "-- ", "/*", "*/", "/*!", "/*!40100", "/*!999999", "\v"]
        ),
        max_size=20,
    ).map("".join)
)
def test_first_words_are_those_of_the_tokens(sql: str) -> None:
    for most in (1, 2, 30):
        assert first_words(sql, most) == words_of_tokens(sql)[:most]
