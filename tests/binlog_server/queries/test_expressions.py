"""Expressions have the values and the columns of a real 11.8."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pytest
from binlog_protocol.errors import ServerError
from binlog_protocol.wire.binary_rows import BinaryRows
from binlog_protocol.wire.results import Column, ResultCharset
from hypothesis import given, settings
from hypothesis import strategies as st

from binlog_server.queries import types
from binlog_server.queries.binding import bind
from binlog_server.queries.parsing import question
from binlog_server.queries.terms import Asker
from binlog_server.queries.values import as_text
from binlog_server.sql.inquiries import in_zone

RECORDED: Final = json.loads(Path(__file__).with_name("expressions.json").read_text())["rows"]
UTF8MB4: Final = ResultCharset(224, 4)
# Of the server, not of expressions: see test_inquiries.py, or not here at all.
OF_THE_SERVER: Final = frozenset(
    {
        *("USER()", "CURRENT_USER()", "VERSION()", "CONNECTION_ID()", "UUID()", "DATABASE()"),
        *("LAST_INSERT_ID()", "ROW_COUNT()", "FOUND_ROWS()", "JSON_OBJECT('a',1)"),
        *("MASTER_POS_WAIT('x',4,0)", "MASTER_GTID_WAIT('0-1-1',0)", "BINLOG_GTID_POS('none',4)"),
        *("GET_LOCK('a',0)", "RELEASE_LOCK('a')", "IS_FREE_LOCK('a')"),
    }
)
# Whose values are never the same.
OF_THE_MOMENT: Final = ("NOW", "CUR", "UTC", "UNIX", "RAND")


def asker(**more: Any) -> Asker:
    """A session at a moment of 2026, in UTC."""
    return Asker(
        now=1795340230.342,
        local=lambda seconds: datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None),
        seconds=lambda local: local.replace(tzinfo=UTC).timestamp(),
        in_zone=in_zone,
        **more,
    )


def answer(expression: str, asking: Asker | None = None) -> tuple[Column, Any]:
    """The column of an expression, and its value as a text."""

    def no_table(schema: str | None, name: str) -> Any:
        raise AssertionError(name)

    plan = bind(question(f"SELECT {expression}"), asking or asker(), no_table)
    ((value,),) = plan.run()
    (output,) = plan.outputs
    shown = as_text(value, output.kind) if value is not None else None
    return output.kind.wire(output.name).sent_in(UTF8MB4), shown


EXPRESSIONS: Final = {
    row[0]: row[1:] for row in RECORDED if row[0] not in OF_THE_SERVER and "@@" not in row[0]
}


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_as_of_a_real_server(expression: str) -> None:
    *column, text = EXPRESSIONS[expression]
    found, value = answer(expression)
    assert [
        found.name,
        found.type,
        found.length,
        found.charset,
        found.flags,
        found.decimals,
    ] == column
    if not expression.startswith(OF_THE_MOMENT):
        shown = None if value is None else value.encode("utf-8", "surrogateescape").hex()
        assert shown == text


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1/3*3", "1.0000"),
        ("1" + " + 1" * 590, "591"),
        ("REPEAT('a', 2000000)", None),
        ("REPEAT('', 1e18 * 10)", ""),
        (f"CEILING({'9' * 64})", "9" * 64),
        (f"FLOOR({'9' * 30}.5) + 1", "1" + "0" * 30),
        ("COALESCE(CEIL(12345678901234567890123.5), 1.5)", "12345678901234567890124.0"),
        ("-(9223372036854775808)", "-9223372036854775808"),
        ("REPEAT('b', 10000) LIKE CONCAT('%', REPEAT('_', 5000), 'b%')", "1"),
        ("REPEAT('b', 10000) LIKE CONCAT('%', REPEAT('_', 5000), 'a%')", "0"),
        ("LENGTH(REPEAT('ab', 524288))", "1048576"),
        ("CONCAT(REPEAT('a', 1048576), 'b')", None),
        ("QUOTE(REPEAT('a', 1048575))", None),
        ("CHAR_LENGTH(UPPER(REPEAT('ß', 1000000)))", "1000000"),
        ("LENGTH(UPPER(REPEAT('é', 100000)))", "200000"),
        ("LAST_DAY('9999-12-31')", "9999-12-31"),
        ("'2024-01-01' + INTERVAL '²' DAY", "2024-01-01"),
        ("'2024-01-01' + INTERVAL '--5' DAY", "2024-01-01"),
        ("CAST('abc' AS CHAR(²))", "abc"),
        ("BIN('1e400')", "1"),
        ("'1e400' + 0", "1.7976931348623157e308"),
        ("FROM_BASE64('é')", None),
        ("INET_ATON(REPEAT('.', 1000))", None),
        ("SUBSTRING_INDEX('a.b.c', '.', 2)", "a.b"),
        ("SUBSTRING_INDEX('a.b.c', '.', 9)", "a.b.c"),
        ("SUBSTRING_INDEX('a.b.c', '.', -1)", "c"),
        ("SUBSTRING_INDEX('aaa', 'aa', -1)", ""),
        ("SUBSTRING_INDEX('a', '', 1)", ""),
        ("FIND_IN_SET('B', 'a,b,c')", "2"),
        ("HEX(JSON_UNQUOTE('\"\\\\ud800\"'))", "EFBFBD"),
        ("HEX(JSON_VALUE('[\"\\\\udc80\"]', '$[0]'))", "EFBFBD"),
        ("HEX(JSON_UNQUOTE('\"\\\\ud83d\\\\ude00\"'))", "F09F9880"),
        ("JSON_ARRAY(1, 'a', NULL)", '[1, "a", null]'),
        ("JSON_OBJECT('a', 1, NULL, 2)", '{"a": 1, "": 2}'),
        ("JSON_ARRAY()", "[]"),
        ("JSON_ARRAY(REPEAT('a', 600000), REPEAT('b', 600000))", None),
        ("FIND_IN_SET('c', 'a,b,c')", "3"),
        ("FIND_IN_SET('', 'a,')", "2"),
        ("FIND_IN_SET('', '')", "0"),
        ("FIND_IN_SET('x', 'a,b')", "0"),
        ("TRIM(BOTH 'x' FROM 'xxaxx')", "a"),
        ("TRIM(TRAILING 'xy' FROM 'axyxy')", "a"),
        ("'     12' + 1", "13"),
        ("CAST('   7 ' AS SIGNED)", "7"),
        ("YEAR('   2024-01-02')", "2024"),
        ("CONCAT(REPEAT(' ', 1000), '5') + 1", "6"),
        ("10 DIV 3", "3"),
        ("ABS(-12345678901234567890123456789.5)", "12345678901234567890123456789.5"),
        ("-(12345678901234567890123456789.5)", "-12345678901234567890123456789.5"),
        ("-(0 + 12345678901234567890123456789.5)", "-12345678901234567890123456789.5"),
        ("x'3132' + 1", "13"),
        ("0x3132 + 1", "12595"),
        ("b'101' + 0", "5"),
        ("0 / -3.75", "0.0000"),
        ("-1 % 0.5", "-0.0"),
        ("9223372036854775807 DIV '10:11:12'", "922337203685477580"),
        ("ROUND('12.5x')", "12"),
        ("LEAST(100, ' 3')", "3"),
        ("FIELD('B', 1.5, '')", "2"),
        ("100 XOR 0.001", "0"),
        ("'2024' BETWEEN 0.5 AND 'a'", "0"),
        ("CAST(-3.75 AS UNSIGNED)", "0"),
        ("CAST(0 AS DATE)", "0000-00-00"),
        ("QUOTE(NULL)", "NULL"),
        ("HEX(TRIM(BINARY ' a'))", "61"),
        ("1e300 + INTERVAL 1 DAY", None),
        ("NOW() + INTERVAL 1e300 YEAR", None),
        ("-7 % 3", "-1"),
        ("1/0", None),
        ("NULL + 1", None),
        ("0.1 + 0.2", "0.3"),
        ("1e300 * 10", "1e301"),
        ("'abc' = 'ABC '", "1"),
        ("'ä' = 'a'", "1"),
        ("BINARY 'a' = 'A'", "0"),
        ("'a' COLLATE utf8mb4_bin = 'A'", "0"),
        ("'10' = 10.0", "1"),
        ("'x' = 0", "1"),
        ("NULL = NULL", None),
        ("NULL <=> NULL", "1"),
        ("NULL AND 0", "0"),
        ("NULL OR 1", "1"),
        ("NOT NULL", None),
        ("1 IN (2, NULL)", None),
        ("2 BETWEEN 1 AND 3", "1"),
        ("'a_c' LIKE 'a|_c' ESCAPE '|'", "1"),
        ("'abc' LIKE 'A%'", "1"),
        ("CONCAT('a', NULL)", None),
        ("CONCAT_WS(',', 'a', NULL, 'b')", "a,b"),
        ("SUBSTRING_INDEX('a:b:c', ':', -2)", "b:c"),
        ("LOCATE('b', 'abcb', 3)", "4"),
        ("LEFT('abc', 2)", "ab"),
        ("LEAST(3, 1, 2)", "1"),
        ("GREATEST('a', 'b')", "b"),
        ("QUOTE('it''s')", r"'it\'s'"),
        ("TRIM(LEADING 'x' FROM 'xxaxx')", "axx"),
        ("LPAD('5', 3, '0')", "005"),
        ("ROUND(1.255, 2)", "1.26"),
        ("ROUND(-0.4)", "0"),
        ("0 * -1.5", "0.0"),
        ("-0.0", "0.0"),
        ("CAST(1e20 AS SIGNED)", "9223372036854775807"),
        ("ROUND(3e0, 1)", "3.0"),
        ("ROUND(1.005e0, 30)", "1.005000000000000000000000000000"),
        ("ROUND(1e20, 31)", "1e20"),
        ("TRUNCATE(-1.99, 1)", "-1.9"),
        ("POW(2, 10)", "1024"),
        ("CONV('ff', 16, 10)", "255"),
        ("CAST('2024-02-30' AS DATE)", None),
        ("CAST('12abc' AS SIGNED)", "12"),
        ("CAST(-1 AS UNSIGNED)", "18446744073709551615"),
        ("CAST(1.5 AS SIGNED)", "2"),
        ("CONVERT('a' USING utf8mb4)", "a"),
        ("CASE 2 WHEN 1 THEN 'a' WHEN 2 THEN 'b' END", "b"),
        ("CASE WHEN NULL THEN 1 END", None),
        ("IF(0, 'a', 5)", "5"),
        ("COALESCE(NULL, NULL, 3)", "3"),
        ("NULLIF(1, 1)", None),
        ("DATE_ADD('2024-01-31', INTERVAL 1 MONTH)", "2024-02-29"),
        ("DATE'2024-02-29' + INTERVAL 1 YEAR", "2025-02-28"),
        ("TIMESTAMPDIFF(MONTH, '2024-01-31', '2024-02-29')", "0"),
        ("DATEDIFF('2024-03-01', '2024-02-01')", "29"),
        ("TIMEDIFF('10:00:00', '09:30:00')", "00:30:00"),
        ("TIMEDIFF('2024-01-02 00:00:00', '2024-01-01 01:00:00')", "23:00:00"),
        ("TIMEDIFF(TIME'10:00:00', NOW())", None),
        ("'2024-01-31 10:00:00' + INTERVAL 1 HOUR", "2024-01-31 11:00:00"),
        ("'2024-01-31 10:00:00.5' + INTERVAL 1 DAY", "2024-02-01 10:00:00.5"),
        ("'2024-01-31' + INTERVAL 1.50 SECOND", "2024-01-31 00:00:01.50"),
        ("'2024-01-31' + INTERVAL 1.5 MICROSECOND", "2024-01-31 00:00:00.000002"),
        ("TIME'10:00:00' + INTERVAL 25 HOUR", "35:00:00"),
        ("TIME'10:00:00' + INTERVAL 1 MONTH", None),
        ("COALESCE(TIME'-01:00:00', NOW())", "2026-11-21 23:00:00"),
        (
            "(SELECT TIME'25:00:00' UNION SELECT NOW() ORDER BY 1 DESC LIMIT 1)",
            "2026-11-23 01:00:00",
        ),
        ("NOW() < TIME'25:00:00'", "1"),
        ("TIME'01:00:00' IN (SELECT TIMESTAMP(CURDATE(), '01:00:00'))", "1"),
        ("TIMESTAMP(CURDATE(), '01:00:00') = ANY (SELECT TIME'01:00:00')", "1"),
        ("(1, TIME'01:00:00') = (1, TIMESTAMP(CURDATE(), '01:00:00'))", "1"),
        ("(1, TIME'01:00:00') IN ((1, TIMESTAMP(CURDATE(), '01:00:00')))", "1"),
        ("SEC_TO_TIME(99999999)", "838:59:59"),
        ("UNIX_TIMESTAMP('2200-01-01')", None),
        ("DATE_FORMAT('2024-02-29 13:05:09', '%Y/%m/%d %h:%i:%s %p')", "2024/02/29 01:05:09 PM"),
        ("EXTRACT(YEAR FROM '2024-02-29')", "2024"),
        ("EXTRACT(MICROSECOND FROM '10:00:00.5')", "500000"),
        ("EXTRACT(HOUR FROM '2024-02-29 10:00:00')", "10"),
        ("FROM_UNIXTIME(0)", "1970-01-01 00:00:00"),
        ("UNIX_TIMESTAMP('1970-01-02')", "86400"),  # digits as the text has them
        ("UNIX_TIMESTAMP('1970-01-02 00:00:00.50')", "86400.50"),
        ("UNIX_TIMESTAMP(19700102)", "86400"),
        ("MID('abc', 2)", "bc"),
        ("UNIX_TIMESTAMP(CONCAT('1970-01-02'))", "86400.000000"),
        ("LEFT(NOW() - INTERVAL 612 SECOND, 16)", "2026-11-22 09:26"),
        ("(SELECT 1 UNION SELECT 2 ORDER BY 1 DESC LIMIT 1)", "2"),
        ("EXISTS (SELECT 1 FROM DUAL WHERE 1=0)", "0"),
        ("3 IN (SELECT 1 UNION SELECT 3)", "1"),
        ("(1, 2) = (1, 2)", "1"),
        ("5 & 3 | 8", "9"),
        ("~0", "18446744073709551615"),
        ("1 << 3", "8"),
        ("GROUP_CONCAT('a', 'b')", "ab"),
        ("COUNT(NULL)", "0"),
        ("@x := 5", "5"),
        ("1e0+1", "2"),
        ("'ß' = 's'", "1"),
        ("(1, 2) < (1, 3)", "1"),
        ("ROW(1, 2) <> (1, NULL)", None),
        ("1 = ANY (SELECT 1)", "1"),
        ("1 > ALL (SELECT 0 UNION SELECT 2)", "0"),
        ("1 > ALL (SELECT 1 FROM DUAL WHERE 0)", "1"),
        ("2 <> ALL (SELECT NULL)", None),
        ("(WITH c(x) AS (SELECT 1), d AS (SELECT x + 1 AS y FROM c) SELECT x + y FROM c, d)", "3"),
        (
            "(WITH c AS (SELECT 1 AS a) SELECT (WITH c AS (SELECT 2 AS a) SELECT a FROM c) FROM c)",
            "2",
        ),
        ("GROUP_CONCAT(a, '-', b) FROM (SELECT 1 a) t RIGHT JOIN (SELECT 1 b) u ON a = b", "1-1"),
        ("COUNT(a) FROM (SELECT 1 a) t RIGHT JOIN (SELECT 2 b) u ON a = b", "0"),
        ("b FROM (SELECT 1 a) t NATURAL JOIN (SELECT 1 a, 2 b) u", "2"),
        ("COUNT(*) FROM (SELECT 1 a) t NATURAL LEFT JOIN (SELECT 2 a) u", "1"),
        ("1 FETCH FIRST ROW ONLY", "1"),
        ("'abc' REGEXP '^A'", "1"),
        ("BINARY 'abc' RLIKE '^A'", "0"),
        ("NULL REGEXP 'a'", None),
        ("REGEXP_REPLACE('abcabc', '(b)(c)', '\\\\2\\\\1')", "acbacb"),
        ("REGEXP_REPLACE('aaa', 'a*', 'x')", "x"),
        ("REGEXP_REPLACE('baaa', 'a*', 'x')", "baaa"),
        ("REGEXP_INSTR('abc', 'c')", "3"),
        ("REGEXP_REPLACE('abcb', 'b(?=c)', '\\\\0\\\\0')", "abbcb"),
        ("REGEXP_REPLACE('abc', 'b', '\\\\')", "ac"),
        ("BINARY 'ä' REGEXP '^..$'", "1"),
        ("HEX(REGEXP_SUBSTR(BINARY 'äb', '.'))", "C3"),
        ("CHARSET(REGEXP_REPLACE(BINARY 'a', 'a', 'b'))", "binary"),
        ("REGEXP_SUBSTR('abc12', '[0-9]+')", "12"),
        (
            r"""JSON_OBJECT('a', JSON_ARRAY(1, TRUE, NULL, 'x"'))""",
            r'{"a": [1, true, null, "x\""]}',
        ),
        ("JSON_EXTRACT('{\"a\": [1,2,  3]}', '$.a')", "[1, 2, 3]"),
        (r"""JSON_UNQUOTE(JSON_EXTRACT('{"a": "\\u00e4"}', '$.a'))""", "ä"),
        ("JSON_VALUE('{\"a\": [1]}', '$.a')", None),
        ("JSON_QUERY('{\"a\": [1,2]}', '$.a')", "[1,2]"),
        ("JSON_LENGTH('[1, [2]]')", "2"),
        ("JSON_CONTAINS_PATH('{\"a\": {\"b\": 1}}', 'all', '$.a', '$**.b')", "1"),
        ("JSON_CONTAINS_PATH('{\"a\": 1}', 'one', '$.c', '$.b')", "0"),
        ("JSON_CONTAINS_PATH('{}', 'one', '$.a', NULL)", None),
        ("JSON_VALID('{')", "0"),
        ("JSON_TYPE('1.5')", "DOUBLE"),
        ('JSON_KEYS(\'{"a": 1, "b": 2}\')', '["a", "b"]'),
        ("LAST_INSERT_ID()", "0"),
        ("RAND(1)", "0.40540353712197724"),
        ("WEEK('2024-02-29', 3)", "9"),
        ("YEARWEEK('2023-01-01', 1)", "202252"),
        ("DATE_FORMAT('2024-02-29', '%D %U %u %V %v %X %x')", "29th 08 09 08 09 2024 2024"),
        ("ADDTIME('2024-01-01 23:00:00', '02:00:00')", "2024-01-02 01:00:00"),
        ("TIMESTAMP('2024-01-01', '10:00:00')", "2024-01-01 10:00:00"),
        ("INSERT('abc', 2, 1, 'xx')", "axxc"),
        ("INET6_NTOA(INET6_ATON('::1'))", "::1"),
        ("CHARSET('a')", "utf8mb4"),
        ("SLEEP(-1)", "0"),
        ("HEX(CAST('a' AS BINARY(3)))", "610000"),
        ("'a' 'b'", "ab"),
        ("CAST(TIME'00:00:04.9995' AS SIGNED)", "4"),
        ("CAST(TIME'-00:00:04.9995' AS SIGNED)", "-4"),
        ("CAST(TIMESTAMP'2024-01-02 03:04:05.6' AS UNSIGNED)", "20240102030405"),
        ("LEFT('abcdefgh', TIME'00:00:04.9')", "abcd"),
        ("CAST(TIME'00:00:04.9995' AS DECIMAL(9,1))", "5.0"),
        # a letter for each letter, whatever Python makes of it
        ("UPPER('Straße ŉ ﬁ ǰ ΐ ẖ')", "STRAßE ŉ ﬁ ǰ ΐ ẖ"),
        ("HEX(UPPER('aÿµ'))", "41C5B8CE9C"),
        ("UPPER('ᾀᾳ')", "ᾈᾼ"),
        ("LOWER('ÅİIKẞ')", "åiikß"),
        ("LOWER('ΌΔΟΣ')", "όδοσ"),
    ],
)
def test_values(expression: str, value: str | None) -> None:
    assert answer(expression)[1] == value


@pytest.mark.parametrize(
    ("expression", "errno"),
    [
        ("nonsense", 1054),
        ("t.a", 1054),
        ("nonsense()", 1305),
        ("IFNULL(1)", 1582),
        ("(SELECT 1, 2)", 1241),
        ("(SELECT 1 UNION SELECT 2)", 1242),
        ("(SELECT 1 UNION SELECT 2, 3)", 1222),
        ("9223372036854775807 + 1", 1690),
        ("1e308 * 10", 1690),
        ("SUM(COUNT(*))", 1111),
        ("1 +", 1064),
        ("1 FROM (SELECT 1)", 1248),
        ("RANK() OVER ()", 1235),
        ("1e400", 1367),
        ("-(18446744073709551615)", 1690),
        (":name", 1064),
        ("1 + :1", 1064),
        ("-1e400", 1367),
        ("1e308 + 1e308 - 1e308", 1690),
        (f"{'*'.join(['9' * 65] * 4)}", 1690),
        (f"FLOOR({'*'.join(['9' * 65] * 150)})", 1690),
        ("1 + 1; SELECT 2", 1064),
        ("'a' LIKE REPEAT('%a', 500000)", 1105),
        ("DATE'2024-02-30'", 1525),
        ("* ", 1096),
        ("'a' COLLATE nonsense", 1273),
        ("'a' COLLATE latin1_bin", 1253),
        ("'a' LIKE 'a' ESCAPE 'xx'", 1210),
        ("1 LIMIT -1", 1064),
        ("'a' REGEXP '('", 1139),
        ("'a' REGEXP '(?R)'", 1235),
        ("SOUNDEX('a')", 1235),
        ("(WITH RECURSIVE r AS (SELECT 1 n UNION SELECT n + 1 FROM r) SELECT 1 FROM r)", 1235),
        ("(WITH c(x, y) AS (SELECT 1) SELECT 1 FROM c)", 4002),
        ("1 FROM (SELECT 1 a) t JOIN (SELECT 1 b) u RIGHT JOIN (SELECT 1 c) v ON a = c", 1235),
    ],
)
def test_errors(expression: str, errno: int) -> None:
    with pytest.raises(ServerError) as caught:
        answer(expression)
    assert caught.value.errno == errno


NUMBERS: Final = st.integers(-2, 2)
CONDITIONS: Final = st.recursive(
    st.builds(
        "{} {} {}".format,
        st.sampled_from(["@a", "@b"]),
        st.sampled_from(["=", "<=>", "<>", "!=", "<", ">", "<=", ">="]),
        NUMBERS,
    ),
    lambda part: (
        st.builds("({} {} {})".format, part, st.sampled_from(["AND", "OR", "&&", "||"]), part)
        | st.builds("{}({})".format, st.sampled_from(["NOT ", "!", ""]), part)
    ),
    max_leaves=12,
)
IN_PYTHON: Final = {
    "=": "==",
    "<=>": "==",
    "<>": "!=",
    "!": "not ",
    "NOT": "not ",
    "@": "",
    "&&": "and",
    "||": "or",
    "AND": "and",
    "OR": "or",
}


@pytest.mark.long
@given(CONDITIONS, NUMBERS, NUMBERS)
@settings(max_examples=300)
def test_conditions_hold_as_they_would_in_python(condition: str, a: int, b: int) -> None:
    asking = asker(user_variables={"a": (types.integer(1), a), "b": (types.integer(1), b)})
    words = re.sub(
        r"<=>|<>|!=|<=|>=|&&|\|\||AND|OR|NOT|=|!|@",
        lambda found: IN_PYTHON.get(found[0], found[0]),
        condition,
    )
    assert answer(condition, asking)[1] == str(int(eval(words, {"a": a, "b": b})))


@pytest.mark.parametrize(
    "expression",
    [
        *("CAST(-1 AS UNSIGNED)", "CAST('-1' AS UNSIGNED)", "CAST(1e10 AS SIGNED)"),
        *("CAST(1e10 AS UNSIGNED)", "CAST(0x7FFFFFFFFF AS SIGNED)", "CAST(1+1 AS UNSIGNED)"),
        *("CAST('12345678901' AS SIGNED)", "CAST(b'1' AS SIGNED)", "CAST('' AS SIGNED)"),
    ],
)
def test_a_cast_to_an_integer_is_declared_as_large_as_it_may_be(expression: str) -> None:
    """The binary protocol has four bytes for what is an INT."""
    column, value = answer(expression)
    assert value is not None
    assert BinaryRows([column]).payload([int(value)])


def test_variables() -> None:
    asking = asker(
        user_variables={"a": (types.text(1), "x")},
        system_variables={("GLOBAL", "version"): (types.text(5), "11.8")},
    )
    assert answer("CONCAT(@A, @@GLOBAL.version, @b := 7)", asking)[1] == "x11.87"
    assert asking.assigned["b"][1] == 7


def test_parameters_are_counted_as_they_stand() -> None:
    asking = asker(parameters=((types.text(1), "x"), (types.decimal(2, 1), Decimal("1.5"))))
    assert answer("CONCAT(?, '-', ?) FROM DUAL WHERE 1", asking)[1] == "x-1.5"


def test_a_sleep_is_left_to_others() -> None:
    asking = asker()
    assert answer("SLEEP(1000)", asking)[1] == "0"
    assert asking.sleeps_s == 1000


@pytest.mark.parametrize(
    ("said", "modes", "value"),
    [
        ("'0000-00-00'", "", "0000-00-00"),
        ("'0000-00-00'", "NO_ZERO_IN_DATE", "0000-00-00"),
        ("'0000-00-00'", "NO_ZERO_DATE", None),
        ("0", "", "0000-00-00"),
        ("0", "NO_ZERO_DATE", None),
        ("'00-00-00'", "", "0000-00-00"),
        ("'0000-00-00 10:00:00'", "NO_ZERO_DATE", "0000-00-00"),
        ("'0000-00-00 10:00:00'", "NO_ZERO_IN_DATE", None),
        ("'2024-00-10'", "NO_ZERO_DATE", "2024-00-10"),
        ("'2024-05-00'", "NO_ZERO_IN_DATE", None),
        ("'2024-02-30'", "", None),
        ("'2024-02-30'", "ALLOW_INVALID_DATES", "2024-02-30"),
        ("'2024-02-32'", "ALLOW_INVALID_DATES", None),
        ("'2024-13-01'", "ALLOW_INVALID_DATES", None),
        ("'0000-01-01'", "NO_ZERO_DATE", "0000-01-01"),
        ("'0000-02-29'", "", None),
    ],
)
def test_days_that_are_in_no_calendar(said: str, modes: str, value: str | None) -> None:
    asking = asker(modes=frozenset(modes.split(",")))
    assert answer(f"CAST({said} AS DATE)", asking)[1] == value
    assert answer(f"DATE({said})", asking)[1] == value
    assert bool(asking.warnings) is (value is None)


@pytest.mark.parametrize(
    ("expression", "number", "text"),
    [
        ("'abc' + 1", 1292, "Truncated incorrect DOUBLE value: 'abc'"),
        ("'1x' = 1", 1292, "Truncated incorrect DECIMAL value: '1x'"),
        ("'x' OR 1 = 0", 1292, "Truncated incorrect DOUBLE value: 'x'"),
        ("-'x'", 1292, "Truncated incorrect DOUBLE value: 'x'"),
        ("IF('x', 1, 0)", 1292, "Truncated incorrect DOUBLE value: 'x'"),
        ("CAST('12abc' AS SIGNED)", 1292, "Truncated incorrect INTEGER value: '12abc'"),
        ("CAST('2024-02-30' AS DATE)", 1292, "Incorrect datetime value: '2024-02-30'"),
        ("CAST('x' AS TIME)", 1292, "Incorrect time value: 'x'"),
        ("1 / 0", 1365, "Division by 0"),
        (
            "JSON_EXTRACT('x', '$.a')",
            4038,
            "Syntax error in JSON text in argument 1 to function 'json_extract' at position 1",
        ),
        (
            "JSON_LENGTH('1', 'x')",
            4042,
            "Syntax error in JSON path in argument 2 to function 'json_length' at position 1",
        ),
    ],
)
def test_warnings(expression: str, number: int, text: str) -> None:
    asking = asker()
    answer(expression, asking)
    assert [(told.errno, told.message) for told in asking.warnings] == [(number, text)]


def test_what_a_session_says_of_names_and_weeks() -> None:
    asking = asker(names_in="de_DE", week_mode=3)
    assert answer("WEEK('2024-01-01')", asking)[1] == "1"
    assert answer("WEEK('2024-01-01', 0)", asking)[1] == "0"
    assert answer("DATE_FORMAT('2024-01-01', '%d.%m.%Y')", asking)[1] == "01.01.2024"
    of_names = ("DAYNAME(NOW())", "MONTHNAME(NOW())", "DATE_FORMAT(NOW(), '%W')")
    for expression in (*of_names, "DATE_FORMAT(NOW(), CONCAT('%a'))"):
        with pytest.raises(ServerError, match="lc_time_names=de_DE"):
            answer(expression, asking)
        assert answer(expression, asker(names_in="en_GB"))[1]


@pytest.mark.parametrize("expression", ["1 / 3", "2 * (1 / 3) + 1", "AVG(1)", "STDDEV(1)"])
def test_quotients_have_the_digits_that_the_session_wants_or_none(expression: str) -> None:
    assert answer(expression, asker(quotient_digits=4))[1] is not None
    with pytest.raises(ServerError, match="div_precision_increment=10"):
        answer(expression, asker(quotient_digits=10))
    assert answer("7 DIV 2 + 7 % 2", asker(quotient_digits=10))[1] == "4"


def test_sysdate_is_the_time_of_the_call() -> None:
    found = datetime.fromisoformat(str(answer("SYSDATE(6)")[1])).replace(tzinfo=UTC)
    assert abs(found - datetime.now(UTC)) < timedelta(hours=1)


def test_no_warnings_of_what_is_right() -> None:
    asking = asker()
    answer("'1 ' + ' 2.5e1' = 26 AND CAST(' 7' AS SIGNED) = '7' AND '12' = 12.0", asking)
    assert asking.warnings == []
