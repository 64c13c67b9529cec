"""Expressions have the values that a real MariaDB gives them, or are refused."""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pymysql
import pytest
from binlog_protocol.errors import ServerError
from pymysql.cursors import Cursor

from tests.binlog_server.queries.test_expressions import answer
from tests.kit.fixtures import MakeMariaDB
from tests.kit.oracle import require_same

COUNT: Final = 1500
PART: Final = 5
REFUSED: Final = (1153, 1235)  # too long a text, which is NULL there; not supported here
CONSTANTS: Final = (
    *("0", "1", "-1", "7", "100", "2147483648", "9223372036854775807", "18446744073709551615"),
    *("0.5", "1.25", "-3.75", "100.001", "1e3", "1.5e-3"),
    *(
        "''",
        "'a'",
        "'B'",
        "'abc'",
        "'Abc '",
        "'12'",
        "'12.5x'",
        "' 3'",
        "'2024-02-29'",
        "'10:11:12'",
    ),
    *("NULL", "TRUE"),
)
OPERATORS: Final = (
    *("+", "-", "*", "/", "DIV", "%", "=", "<>", "<", "<=", ">", "<=>", "AND", "OR", "XOR"),
    *("LIKE", "&", "|", "^"),
)
FUNCTIONS: Final = {
    "CONCAT": 2,
    "IFNULL": 2,
    "COALESCE": 3,
    "NULLIF": 2,
    "IF": 3,
    "LEAST": 2,
    "GREATEST": 2,
    "LOCATE": 2,
    "LEFT": 2,
    "RIGHT": 2,
    "SUBSTRING": 3,
    "SUBSTRING_INDEX": 3,
    "UPPER": 1,
    "LOWER": 1,
    "LENGTH": 1,
    "CHAR_LENGTH": 1,
    "REVERSE": 1,
    "TRIM": 1,
    "HEX": 1,
    "ABS": 1,
    "SIGN": 1,
    "CEIL": 1,
    "FLOOR": 1,
    "ROUND": 1,
    "ISNULL": 1,
    "STRCMP": 2,
    "FIELD": 3,
    "QUOTE": 1,
    "MD5": 1,
    "REPLACE": 3,
    "LPAD": 3,
    "MOD": 2,
}
# What stands in braces is one of the pool of that name.
POOLS: Final = {
    "date": (
        *("'2024-02-29'", "'2023-01-01'", "'2024-12-31 23:59:59'", "'1999-12-27'", "'2000-01-01'"),
        *("'2010-01-03'", "'2024-01-31 10:00:00'", "'x'", "'10:11:12'", "NULL"),
    ),
    "mode": tuple("01234567"),
    "json": (
        *("""'{"a": 1, "b": [1, 2, {"c": "x"}]}'""", """'[1, [2, 3], {"a": null}]'"""),
        *("""'{"a":{"b":{"c":1}}}'""", """'{"a": 1, "a": 2}'""", "' [1 ,2 ] '", "'1.50'", "'true'"),
        *("""'"s"'""", "'x'", "'{}'", "'[]'", "NULL"),
    ),
    "path": (
        *("'$'", "'$.a'", "'$.b[2].c'", "'$[0]'", "'$[1][0]'", "'$.*'", "'$[*]'", "'$[last]'"),
        *("'$.a.b'", "'$[-1]'", "'$.b[*].c'", "'x'", "NULL"),
    ),
    "text": ("'abcabc'", "'aXbXc'", "''", "'foo.bar 12'", "'Äpfel'", r"'a\nb'", "NULL"),
    "pattern": (
        *("'b'", "'[a-c]+'", "'x'", "'^a'", "'c$'", "'(a)(b)'", "'a.*c'", "'a.*?c'", "'ä'", "''"),
        *("'[[:digit:]]+'", r"'\\w+'", r"'\\d'", "'a|c'", "'(x|X)b?'", "'.'", "'b*'", "'[^a]'"),
        *("'^$'", "'(?i)X'", r"'\\bbar'"),
    ),
    "any": CONSTANTS,
    "how": ("<", "<=", ">", ">=", "=", "<>"),
}
TEMPLATES: Final = (
    *("WEEK({date}, {mode})", "YEARWEEK({date}, {mode})", "WEEKOFYEAR({date})", "TIME({date})"),
    *("DATE_FORMAT({date}, '%U %u %V %v %X %x %D %j')", "TO_SECONDS({date})", "TIMESTAMP({date})"),
    *("ADDTIME({date}, '01:30:00')", "SUBTIME({date}, '01:30:00')", "LAST_DAY({date})"),
    *("JSON_EXTRACT({json}, {path})", "JSON_VALUE({json}, {path})", "JSON_QUERY({json}, {path})"),
    *("JSON_LENGTH({json}, {path})", "JSON_LENGTH({json})"),
    *("JSON_KEYS({json})", "JSON_TYPE({json})", "JSON_DEPTH({json})", "JSON_VALID({json})"),
    *("JSON_UNQUOTE(JSON_EXTRACT({json}, {path}))", "JSON_QUOTE({text})"),
    *("JSON_ARRAY({json}, {any}, JSON_EXTRACT({json}, {path}))", "JSON_OBJECT({text}, {any})"),
    *("{text} REGEXP {pattern}", r"REGEXP_REPLACE({text}, {pattern}, '<\\1>')"),
    *("REGEXP_SUBSTR({text}, {pattern})", "REGEXP_INSTR({text}, {pattern})"),
    *("INSERT({text}, {mode}, {mode}, 'zz')", "BIT_COUNT({any})", "NVL2({any}, 1, 2)"),
    *("({any}, {any}) {how} ({any}, {any})", "INET_NTOA({any})", "CAST({any} AS BINARY(3))"),
)
CASTS: Final = ("CHAR", "SIGNED", "UNSIGNED", "DECIMAL(10,2)", "BINARY")


def expression(rng: random.Random, depth: int) -> str:
    """One of many."""
    kind = rng.random()
    if depth == 0 or kind < 0.2:
        return rng.choice(CONSTANTS)
    if kind < 0.5:
        left, right = expression(rng, depth - 1), expression(rng, depth - 1)
        return f"({left} {rng.choice(OPERATORS)} {right})"
    if kind < 0.8:
        name, count = rng.choice(list(FUNCTIONS.items()))
        return f"{name}({', '.join(expression(rng, depth - 1) for _ in range(count))})"
    inner = expression(rng, depth - 1)
    return rng.choice(
        (
            f"CAST({inner} AS {rng.choice(CASTS)})",
            f"({inner} IS NULL)",
            f"(NOT {inner})",
            f"({inner} IN ({expression(rng, 0)}, {expression(rng, 0)}))",
            f"({inner} BETWEEN {expression(rng, 0)} AND {expression(rng, 0)})",
            f"CASE WHEN {inner} THEN {expression(rng, 0)} ELSE {expression(rng, 0)} END",
        )
    )


def filled(rng: random.Random) -> str:
    """A template with something in each place."""
    return re.sub(r"\{(\w+)\}", lambda place: rng.choice(POOLS[place[1]]), rng.choice(TEMPLATES))


def ours(text: str) -> Any:
    try:
        return answer(text)[1]
    except ServerError as error:
        return error.errno


def theirs(cursor: Any, text: str) -> Any:
    try:
        cursor.execute(f"SELECT {text}")
    except pymysql.MySQLError as error:
        return error.args[0]
    ((value,),) = cursor.fetchall()
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


@pytest.fixture
def cursor(make_upstream: MakeMariaDB) -> Iterator[Cursor]:
    with make_upstream(version="11.8").connect() as connection:
        connection.decoders = {}  # texts as they come
        made = connection.cursor(Cursor)
        made.execute("SET NAMES utf8mb4 COLLATE utf8mb4_general_ci, time_zone='+00:00'")
        yield made


def require_none_different(cursor: Cursor, texts: Iterable[str]) -> None:
    """All have the same value here and there."""
    found = {}
    for text in texts:
        here = ours(text)
        if here not in REFUSED and here != (there := theirs(cursor, text)):
            found[text] = here, there
    require_same(theirs(cursor, "VERSION()"), found)


@pytest.mark.by_turns(3)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_as_a_real_server(cursor: Cursor, seed: int) -> None:
    """Of one operator or function: with several within each other MariaDB's texts and numbers have more surprises."""
    rng = random.Random(seed)
    require_none_different(cursor, (expression(rng, 1) for _ in range(COUNT)))


@pytest.mark.parametrize("times", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_times_json_and_regular_expressions(cursor: Cursor, times: int) -> None:
    rng = random.Random(1)
    require_none_different(cursor, (filled(rng) for _ in range(times * COUNT)))


MOMENTS: Final = (
    *(
        "'2026-01-31'",
        "'2026-01-31 10:00:00'",
        "'2026-01-31 10:00:00.5'",
        "'2026-01-31 10:00:00.123456'",
    ),
    *(
        "TIMESTAMP'2026-01-31 10:00:00'",
        "TIMESTAMP'2026-01-31 10:00:00.25'",
        "DATE'2026-01-31'",
        "TIME'10:00:00'",
    ),
    *("20260131", "20260131100000", "20260131100000.25", "20260131.0e0", "'x'"),
)
AMOUNTS: Final = ("5", "-1", "5.5", "5.50", "(4e0 + 1)", "CONCAT(5, '')", "NULL")
UNITS: Final = (
    "MICROSECOND",
    "SECOND",
    "MINUTE",
    "HOUR",
    "DAY",
    "WEEK",
    "MONTH",
    "QUARTER",
    "YEAR",
)


def test_intervals_as_a_real_server(cursor: Cursor) -> None:
    """With as many digits of a second as the time and the amount have. (A literal text is no amount here: sqlglot does
    not tell it from a number.)"""
    found = itertools.product(MOMENTS, AMOUNTS, UNITS)
    require_none_different(cursor, (f"{at} + INTERVAL {n} {unit}" for at, n, unit in found))


REGULAR: Final = (
    *("a{2}{3}", "a**", "a*+", "a?+b", "^*a", r"\b+a", "(?=a)*b", "a{,2}", "a{ 1 , 2 }", "a{2,1}", "{1}", "a{", "a{a}"),
    *("a{65536}", "(", "a)", "[a", "*a", "a|*", "[b-a]", "[[:nope:]]", "a\\", r"(a)\1", r"(a)\2", r"(a\1)", r"\1(a)"),
    *(r"(?<n>a)\k<n>", r"(?P<n>a)(?P=n)", r"(a)\g{-1}", r"(a)\g1", r"\k<q>", "(?<n>a)(?<n>b)", "(?<1a>b)", "(?'n'a)b"),
    *("a(?=b)", "a(?!b)", "(?<=a)b", "(?<!a)b", "(?<=a*)b", "(?<=a|bc)d", "(?>a+)b", "a++b", r"b(?<!ab)", "(?<=(a))b"),
    *(r"\p{L}+", r"\p{Lu}", r"\p{Greek}", r"\pL", r"\P{L}", r"\p{Nope}", r"\p{^L}", r"\R", r"\X", r"\h", r"\H"),
    *(r"\v", r"\N"),
    *(r"a\z", r"a\Z", r"\Aa", r"\Ga", r"a\Kb", r"\Qa.b\E", r"a\Eb", r"\x41", r"\x{e4}", r"\x{zz}"),
    *(r"\x{}", r"\x{110000}"),
    *(r"\o{101}", r"\101", r"\0101", r"\cA", r"\e", r"\y", r"\u", r"\L", r"\t", r"\_", r"\#", r"\<"),
    *("~", "-", "&", "]", "}"),
    *(r"[\d.]+", r"[^\W]", r"[\h]", r"[\b]", r"[\Qa]\E]", "[]a]", "[^]a]", "[a-]"),
    *(r"[a-\d]", r"[\d-z]", "[--/]", "[a-c-e]"),
    *("[[a]", "[&&a]", "[a||b]", "[a~~b]", "[[.a.]]", "[[=a=]]", "[:alpha:]", "[[:<:]]b", "a[[:>:]]", "[", "[]", "[^]"),
    *(r"[\x41-\x43]", r"[\101]", r"[\1]", r"[a\]b]", r"[\-a]", r"[\R]", r"[\B]", r"[\p{L}]"),
    *(r"[^\p{L}]+", "[Ä-Ü]", "[à-ü]"),
    *(f"[[:{name}:]]+" for name in ("alpha", "^alpha", "upper", "lower", "digit", "alnum", "punct", "space", "blank")),
    *(f"[[:{name}:]]+" for name in ("cntrl", "print", "graph", "xdigit", "word", "ascii")),
    *("[^[:upper:]b]", "[[:upper:]b]", "(?i)A", "(?-i)A", "a(?-i)B|C", "a(?i:b)C", "((?-i)A|B)c", "(?m)^b$", "(?s)a.b"),
    *("(?x) a b # (c\nb", "(?x)[ a]", "(?z)a", "(?", "(?<", "(?<n", "(?P", "(?:", "(?#a)b", "(?#a", r"(?|(a)|(b))\1"),
    *("(?(1)a|b)", "(a)?(?(1)b|c)", "(?<n>a)?(?(<n>)b|c)", "(?R)", "(a(?1)?)", "(*COMMIT)a", "^$", "$"),
    *(".", "a.c", ".*?"),
    *("|a", "a|", "()", "(|a)+", "(a|ab)(c|bcd)", "(a*)*", "(a|b)*?c", "x*", "ß", "ss"),
    *("\u017f", "\u03c3", "Ä", "ä", "é", r"\w+", r"\d+"),
    *(r"\s", r"\S+", r"\W", "a{2,}?", "a{0}", r"\d{1,3}\.\d{1,3}", r"\bab\b", r"\Bb", r"(.)(.)\2\1"),
    *("(?m)$", "(?:a|b)*+b"),
)  # fmt: skip
TEXTS: Final = (
    *("", "a", "b", "ab", "aab", "AB", "Abc ab", "a\nb", "b\n", "a.b", "12.5", "_a-1", "ä", "Ä", "ß", "ss"),
    *("\u017f", "\u212a"),
    *("\u03a3\u03c2", "ABab", "a\r\n", "x]-a", "[a", "\t \x0b\x85", "\\", "&~|#", "\u2028\xa0", "é"),
    *("日本", "\u0661", "a\x01{"),
)  # fmt: skip
ATOMS: Final = (
    *("a", "b", ".", "[ab]", "[^a]", "^", "$", r"\b", r"\w", "(?=a)", "(?!b)", "(?<=a)", r"\1", "a|", "[[:alpha:]]"),
    *(r"\d", "(?i)", r"\R", "ä", "Ä", "B", "[[:upper:]]"),
)  # fmt: skip


def pattern(rng: random.Random, depth: int) -> str:
    """One of many. It begins with a group, so that there is one to refer to."""
    if depth == 0:
        return rng.choice(ATOMS)
    one, other = pattern(rng, depth - 1), pattern(rng, depth - 1)
    sign = rng.choice(("*", "+", "?", "*?", "+?", "??", "{1,2}", "*+", "++", "{2}"))
    return rng.choice(
        (
            *(one + other, one + other, f"(?:{one}|{other})", f"({one})", f"({one}|{other})"),
            *(
                f"(?:{one}){sign}",
                f"(?>{one})",
                f"(?={one}){other}",
                f"(?({1})(?:{one})|(?:{other}))",
            ),
        )
    )


def quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def of_pattern(rng: random.Random, text: str, regular: str) -> str:
    """A question."""
    form = rng.choice(
        (
            *("{} REGEXP {}", "BINARY {} RLIKE {}", "{} COLLATE utf8mb4_bin NOT REGEXP {}"),
            *("REGEXP_INSTR({}, {})", "REGEXP_SUBSTR({}, {})", "HEX(REGEXP_SUBSTR(BINARY {}, {}))"),
            r"REGEXP_REPLACE({}, {}, '<\\1\\0>')",
        )
    )
    return form.format(quoted(text), quoted(regular))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("every", [PART, pytest.param(1, marks=pytest.mark.slow)])
def test_regular_expressions_as_a_real_server(cursor: Cursor, every: int) -> None:
    """Of 6,000 pairs of a pattern and a text one in `every`: each pattern, with other texts than its neighbour."""
    rng = random.Random(9)
    pairs = [(text, regular) for regular in REGULAR for text in TEXTS]
    assert math.gcd(len(TEXTS), PART) == 1, "else the same texts with each pattern"
    cases = [of_pattern(rng, text, regular) for text, regular in pairs[::every]]
    for _ in range(COUNT // 4):  # each is compiled on both sides
        text = "".join(rng.choice("abÄcB \n1") for _ in range(rng.randrange(7)))
        cases.append(of_pattern(rng, text, "(a)" + pattern(rng, 3)))
    require_none_different(cursor, cases)
    assert sum(ours(case) in REFUSED for case in cases) < len(cases) // 30
