"""Statements as they are logged: literals in the places of parameters, which a replica reads as what was sent."""

from __future__ import annotations

import pytest
from binlog_protocol.errors import ServerError
from binlog_protocol.events.column_type import ColumnType
from binlog_protocol.sql.tokens import TokenKind, tokens
from binlog_protocol.wire.binary_rows import Indicator, Parameter
from hypothesis import given
from hypothesis import strategies as st

from binlog_server.sql.session_settings import Settings, settings_of
from binlog_server.sql.tokens import unquote
from binlog_server.sql_commit.logged_text import first_statement, result_of, template_of


def settings(**variables: str) -> Settings:
    return settings_of(variables, server_id=1, domain_id=0, thread_id=1, database=b"d")


DEFAULT = settings()
NO_ESCAPES = settings(sql_mode="NO_BACKSLASH_ESCAPES")
SJIS = settings(character_set_client="sjis")


def logged(text: bytes, *values: Parameter, under: Settings = DEFAULT) -> bytes:
    filled, _ = result_of(result_of(template_of(text, under)).filled(iter(values), 1 << 20))
    return bytes(filled)


def string(value: bytes, charset: str = "") -> Parameter:
    return Parameter(ColumnType.VAR_STRING, value, charset=charset)


LITERALS = [
    (Parameter(ColumnType.LONG, -5), b"-5"),
    (Parameter(ColumnType.NULL, None), b"NULL"),
    (Parameter(ColumnType.DOUBLE, 1.5), b"1.5e0"),
    (Parameter(ColumnType.DOUBLE, 1e300), b"1e+300"),
    (Parameter(ColumnType.NEWDECIMAL, "-0.10"), b"-0.10"),
    (string(b"it's \\ \"\n\r\x1a\0"), b"'it\\'s \\\\ \"\\n\\r\\Z\\0'"),
    (string("ü".encode()), "'ü'".encode()),
    (string(b"\xe4", "latin1"), b"_latin1 X'e4'"),
    (Parameter(ColumnType.BLOB, b"\0\xff'"), b"_binary'\\0\xff\\''"),
    (Parameter(ColumnType.DATE, "2024-02-29"), b"DATE'2024-02-29'"),
    (Parameter(ColumnType.DATETIME, "2024-02-29 01:02:03.5"), b"TIMESTAMP'2024-02-29 01:02:03.5'"),
    (Parameter(ColumnType.TIME, "-25:02:03"), b"TIME'-25:02:03'"),
    (Parameter(ColumnType.LONG, Indicator.DEFAULT), b"DEFAULT"),
    (Parameter(ColumnType.LONG, Indicator.IGNORE), b"IGNORE"),
]


@pytest.mark.parametrize(("parameter", "literal"), LITERALS)
def test_literals(parameter: Parameter, literal: bytes) -> None:
    assert logged(b"INSERT INTO t VALUES (?)", parameter) == b"INSERT INTO t VALUES (%b)" % literal


COUNTS = [  # as an 11.8 takes them
    (string(b"2"), b"2"),
    (string(b" 2abc"), b"2"),
    (string(b"abc"), b"0"),
    (string(b"1.9"), b"1"),
    (Parameter(ColumnType.BLOB, b"02"), b"2"),
    (Parameter(ColumnType.NEWDECIMAL, "1.5"), b"2"),
    (Parameter(ColumnType.DOUBLE, 2.5), b"2"),
    (Parameter(ColumnType.NULL, None), b"0"),
    (Parameter(ColumnType.DATE, "2024-01-02"), b"20240102"),
    (Parameter(ColumnType.LONG, 7), b"7"),
]


@pytest.mark.parametrize(("parameter", "count"), COUNTS)
def test_counts_of_a_limit(parameter: Parameter, count: bytes) -> None:
    """Many programs send all as text; a replica stops at LIMIT '2'."""
    text = string(b"x")
    assert logged(b"DELETE FROM t WHERE a=? limit ?", text, parameter) == (
        b"DELETE FROM t WHERE a='x' limit %b" % count
    )
    assert logged(b"INSERT t SELECT 1 FROM u LIMIT ? , ? OFFSET?", *[parameter] * 3) == (
        b"INSERT t SELECT 1 FROM u LIMIT %b , %b OFFSET %b" % (count, count, count)
    )
    assert result_of(template_of(b"DELETE FROM t LIMIT ?", DEFAULT)).plain_pieces() is None
    with pytest.raises(ServerError, match="1210"):
        logged(b"DELETE FROM t LIMIT ?", string(b"-1"))


def test_other_modes_and_character_sets() -> None:
    text = string(b"a'\\\n")
    assert logged(b"SET @a=?", text, under=NO_ESCAPES) == b"SET @a='a''\\\n'"
    assert logged(b"SET @a=?", string(b"\x83\x5c'"), under=SJIS) == b"SET @a=_sjis X'835c27'"
    blob = Parameter(ColumnType.BLOB, b"\x83\x5c")
    assert logged(b"SET @a=?", blob, under=SJIS) == b"SET @a=_binary X'835c'"
    # A question mark behind a character whose second byte is a backslash.
    assert logged(b"SET @a='\x83\x5c', @b=?", Parameter(ColumnType.LONG, 1), under=SJIS).endswith(
        b"@b=1"
    )


PLACES = [
    (b"INSERT INTO t VALUES ('?', \"?\", `?`, ?, /* ? */ ?) -- ?", 2),
    (b"/*!40100 UPDATE t SET a=? */", 1),
    (b"/*!999999 ? */ SELECT ?", 1),
    (b"SELECT '\\'?', ?", 1),
    (b"SELECT 1", 0),
]


@pytest.mark.parametrize(("text", "count"), PLACES)
def test_places(text: bytes, count: int) -> None:
    assert len(result_of(template_of(text, DEFAULT)).places) == count


def test_places_in_another_mode() -> None:
    assert len(result_of(template_of(b"SELECT '\\', ?", NO_ESCAPES)).places) == 1


def test_a_literal_is_a_word_of_its_own() -> None:
    one, minus = Parameter(ColumnType.LONG, 1), Parameter(ColumnType.LONG, -1)
    assert logged(b"SELECT?AND?", one, one) == b"SELECT 1 AND 1"
    assert logged(b"SELECT 1-?", minus) == b"SELECT 1- -1"
    assert logged(b"SELECT'a'?", one) == b"SELECT'a' 1"


def test_too_many_and_two_statements() -> None:
    for text, errno in ((b"SELECT " + b"?," * 65536, 1390), (b"SELECT 1; SELECT 2", 1064)):
        with pytest.raises(ServerError) as caught:
            result_of(template_of(text, DEFAULT))
        assert caught.value.errno == errno


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_no_number(value: float) -> None:
    with pytest.raises(ServerError) as caught:
        logged(b"SET @a=?", Parameter(ColumnType.DOUBLE, value))
    assert caught.value.errno == 1210


@given(st.binary(max_size=60), st.sampled_from((DEFAULT, NO_ESCAPES)))
def test_a_string_is_read_as_it_was(value: bytes, under: Settings) -> None:
    """And what stands behind it is still there: nobody's value ends its string."""
    escapes = under.backslash_escapes
    text = logged(b"(?)", string(value), under=under).decode("latin-1")
    found = list(tokens(text, backslash_escapes=escapes, ansi_quotes=False, is_logged=False))
    assert [token.kind for token in found] == [TokenKind.SIGN, TokenKind.STRING, TokenKind.SIGN]
    if escapes:
        assert unquote(found[1].text).encode("latin-1") == value
    else:
        assert found[1].text[1:-1].replace("''", "'").encode("latin-1") == value


@given(st.binary(max_size=6000), st.sampled_from((DEFAULT, NO_ESCAPES, SJIS)))
def test_long_values_in_pieces_are_the_same(value: bytes, under: Settings) -> None:
    text = logged(b"?", string(value * 40), under=under)
    piece = logged(b"?", string(value), under=under)
    if under is SJIS:
        assert text == b"_sjis X'%b'" % (piece[8:-1] * 40)
    else:
        assert text == b"'%b'" % (piece[1:-1] * 40)


TRIGGER = b"SET @a=1; CREATE TRIGGER x AFTER INSERT ON t FOR EACH ROW BEGIN SET @a=1; END"
STATEMENTS = [
    (b"SELECT 1; SELECT ';'; SELECT 3", [b"SELECT 1;", b" SELECT ';';", b" SELECT 3"]),
    (b"SELECT 1;", [b"SELECT 1;"]),
    (b"SELECT 1; -- the end", [b"SELECT 1; -- the end"]),
    (b"SELECT 1;;SELECT 2", [b"SELECT 1;", b";", b"SELECT 2"]),
    (b"CREATE PROCEDURE p() BEGIN SELECT 1; END", [b"CREATE PROCEDURE p() BEGIN SELECT 1; END"]),
    (TRIGGER, [TRIGGER[:9], TRIGGER[9:]]),
]


@pytest.mark.parametrize(("text", "parts"), STATEMENTS)
@pytest.mark.parametrize("under", [DEFAULT, SJIS])
def test_statements_one_by_one(text: bytes, parts: list[bytes], under: Settings) -> None:
    found, start = [], 0
    while (end := result_of(first_statement(text, start, under))) is not None:
        found.append(text[start:end])
        start = end
    assert [*found, text[start:]] == parts


def test_the_second_byte_of_a_character_ends_no_string() -> None:
    text = b"SELECT '\x83\x5c'; SELECT 2"
    assert result_of(first_statement(text, 0, SJIS)) == len(b"SELECT '\x83\x5c';")


def test_what_grows_beyond_a_packet_is_refused() -> None:
    quotes = Parameter(ColumnType.BLOB, b"'" * 600)
    template = result_of(template_of(b"INSERT INTO t VALUES (?)", DEFAULT))
    with pytest.raises(ServerError, match="max_allowed_packet") as refused:
        result_of(template.filled(iter([quotes]), 1024))
    assert refused.value.errno == 1105
