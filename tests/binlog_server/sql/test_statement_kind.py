"""What a statement is, by its first words."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from typing import cast

import pytest
from binlog_protocol.compiled_later import repeated
from binlog_protocol.errors import ServerError, SqlSyntaxError
from hypothesis import assume, given
from hypothesis import strategies as st

from binlog_server.sql import statement_kind
from binlog_server.sql.expressions import USER_VARIABLES_MAX
from binlog_server.sql.statement_kind import (
    HEAD_BYTES_MAX,
    Classified,
    Kind,
    Scan,
    classify,
    is_stored_program,
    scan_steps,
    unquoted_name,
)


def scan(text: bytes, *, backslash_escapes: bool = True) -> Scan:
    """All steps of `scan_steps`."""
    steps = scan_steps(text, backslash_escapes=backslash_escapes)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return cast(Scan, end.value)


KINDS = {
    "INSERT INTO t VALUES (1)": Kind.DML,
    "insert into t values (1)": Kind.DML,
    "InSeRt/**/INTO t": Kind.DML,
    "REPLACE t SET a=1": Kind.DML,
    "UPDATE t SET a=1": Kind.DML,
    "DELETE FROM t": Kind.DML,
    "-- a comment\n# another\n/* and this */ DELETE FROM t": Kind.DML,
    "--\nDELETE FROM t": Kind.DML,
    "/*!50003 INSERT INTO t VALUES (1) */": Kind.DML,
    "/*M!100100 INSERT INTO t VALUES (1) */": Kind.DML,
    "INSERTED INTO t": Kind.OTHER,
    "INSERT1": Kind.OTHER,
    "INSERT$": Kind.OTHER,
    "INSERTé": Kind.OTHER,
    "CREATE TABLE t (a INT)": Kind.DDL,
    "GRANT BINLOG MONITOR ON *.* TO r": Kind.DDL,
    "CREATE OR REPLACE BINLOG LEASE a": Kind.OTHER,
    "DROP BINLOG LEASE a": Kind.OTHER,
    "CREATE OR REPLACE TABLE t (a INT)": Kind.DDL,
    "create database d": Kind.DDL,
    "/*!40000 ALTER TABLE `t` DISABLE KEYS */": Kind.DDL,
    "DROP TABLE temporary_things": Kind.DDL,
    "TRUNCATE t": Kind.DDL,
    "RENAME TABLE a TO b": Kind.DDL,
    "GRANT ALL ON *.* TO u@h": Kind.DDL,
    "REVOKE ALL ON *.* FROM u@h": Kind.DDL,
    "ANALYZE TABLE t": Kind.DDL,
    "OPTIMIZE TABLE t": Kind.DDL,
    "REPAIR TABLE t": Kind.DDL,
    "SET PASSWORD FOR u = 'x'": Kind.DDL,
    "SET @a = 1": Kind.OTHER,
    "BEGIN": Kind.BEGIN,
    "begin work;": Kind.BEGIN,
    "START TRANSACTION": Kind.BEGIN,
    "START TRANSACTION WITH CONSISTENT SNAPSHOT": Kind.BEGIN,
    "START SLAVE": Kind.OTHER,
    "COMMIT": Kind.COMMIT,
    "COMMIT WORK;": Kind.COMMIT,
    "ROLLBACK": Kind.ROLLBACK,
    "LOCK TABLES t WRITE": Kind.LOCK_TABLES,
    "UNLOCK TABLES": Kind.UNLOCK_TABLES,
    "SELECT 1": Kind.OTHER,
    "SHOW MASTER STATUS": Kind.OTHER,
    "KILL 1": Kind.OTHER,
    "(SELECT 1)": Kind.OTHER,
    "": Kind.OTHER,
    ";": Kind.OTHER,
    "/* not ended": Kind.OTHER,
    "/* c */": Kind.NOTHING,
    "/*!40100 */;": Kind.NOTHING,
    "/*!999999 INSERT INTO t VALUES (1) */": Kind.NOTHING,
    "/*!50712 DROP TABLE t */ -- MySQL's": Kind.NOTHING,
    "/*!40100 INSERT INTO t VALUES (1) */": Kind.DML,
    "/*M!50712 INSERT INTO t VALUES (1) */": Kind.DML,
    "/*!999999 x /* y */ z */ INSERT INTO t VALUES (1)": Kind.DML,
    "/* a */ ; /* b */": Kind.OTHER,
    "*/ INSERT INTO t VALUES (1)": Kind.OTHER,
    "/*!0 INSERT INTO t VALUES (1) */": Kind.OTHER,
    "/*!401 BEGIN */": Kind.OTHER,
    "use s ; -- d": Kind.USE,
    "--INSERT": Kind.OTHER,
}


@pytest.mark.parametrize("text", KINDS)
def test_kinds(text: str) -> None:
    assert classify(text.encode()).kind is KINDS[text]


READ = {
    "START TRANSACTION READ ONLY": Classified(Kind.BEGIN, b"", read_only=True),
    "start transaction /* a, b */ read -- ,\n only , READ ONLY;": Classified(
        Kind.BEGIN, b"", read_only=True
    ),
    "START TRANSACTION /*!40100 WITH CONSISTENT SNAPSHOT */, READ WRITE": Classified(
        Kind.BEGIN, b"", read_write=True, snapshot=True
    ),
    "COMMIT AND CHAIN": Classified(Kind.COMMIT, b"", chain=True),
    "COMMIT WORK AND NO CHAIN RELEASE": Classified(Kind.COMMIT, b"", chain=False, release=True),
    "ROLLBACK RELEASE": Classified(Kind.ROLLBACK, b"", release=True),
    "ROLLBACK AND CHAIN NO RELEASE": Classified(Kind.ROLLBACK, b"", chain=True, release=False),
    "SAVEPOINT a1": Classified(Kind.SAVEPOINT, b"", b"a1"),
    "SAVEPOINT `a ``b`": Classified(Kind.SAVEPOINT, b"", b"a `b"),
    "ROLLBACK TO s": Classified(Kind.ROLLBACK_TO, b"", b"s"),
    "ROLLBACK TO SAVEPOINT s": Classified(Kind.ROLLBACK_TO, b"", b"s"),
    "rollback work to savepoint `s t`": Classified(Kind.ROLLBACK_TO, b"", b"s t"),
    "RELEASE SAVEPOINT s": Classified(Kind.RELEASE_SAVEPOINT, b"", b"s"),
    "USE d": Classified(Kind.USE, b"", b"d"),
    "use `d-1` ;": Classified(Kind.USE, b"", b"d-1"),
    "USE/**/`é` -- there": Classified(Kind.USE, b"", "é".encode()),
}


@pytest.mark.parametrize("text", READ)
def test_names_and_endings(text: str) -> None:
    wanted = READ[text]
    found = classify(text.encode())
    assert (found.kind, found.name) == (wanted.kind, wanted.name)
    assert (found.read_only, found.chain, found.release) == (
        wanted.read_only,
        wanted.chain,
        wanted.release,
    )


@pytest.mark.parametrize(
    ("text", "kind", "setting"),
    [
        ("SET STATEMENT a=1 FOR INSERT INTO t VALUES (1)", Kind.DML, "SET STATEMENT a=1 FOR"),
        ("set /* x */ statement a='FOR', b=2 for drop table t", Kind.DDL, None),
        ("SET STATEMENT a=1 FOR SELECT 1", Kind.OTHER, ""),
        ("SET STATEMENT a=1 FOR COMMIT", Kind.OTHER, ""),
        ("SET STATEMENT a=1 FOR SET STATEMENT b=1 FOR INSERT INTO t VALUES (1)", Kind.OTHER, ""),
        ("SET STATEMENT a=1", Kind.OTHER, ""),
        ("SET STATEMENT a=1 FOR", Kind.OTHER, ""),
    ],
)
def test_set_statement(text: str, kind: Kind, setting: str | None) -> None:
    found = classify(text.encode())
    assert (found.kind, found.text) == (kind, text.encode())
    assert found.setting.decode() == (text[: text.index("for") + 3] if setting is None else setting)


REFUSED = {
    "CALL p()": 1235,
    "LOAD DATA INFILE 'x' INTO TABLE t": 1235,
    "LOAD DATA LOCAL INFILE 'x' INTO TABLE t": 1235,
    "INSTALL PLUGIN x SONAME 'y'": 1235,
    "SHOW PROFILES": 1235,
    "SHOW CREATE TRIGGER x": 1235,
    "HANDLER t OPEN": 1235,
    "EXPLAIN FORMAT=JSON UPDATE t SET a=1": 1235,
    "DESC UPDATE t SET a=1": 1235,
    "ANALYZE SELECT 1": 1235,
    "ANALYZE FORMAT=JSON SELECT 1": 1235,
    "BEGIN NOT ATOMIC SELECT 1; END": 1235,
    "BEGIN x": 1064,
    "BEGIN */": 1064,
    "/*!40100 BEGIN": 1064,
    "/*!40100 /*!40100 BEGIN */ */": 1064,
    "BEGIN /* not ended": 1064,
    "COMMIT AND CHAIN RELEASE": 1064,
    "COMMIT NO CHAIN": 1064,
    'USE "d"': 1064,
    "COMMIT x": 1064,
    "ROLLBACK TO": 1064,
    "START TRANSACTION nonsense": 1064,
    "START TRANSACTION , READ ONLY": 1064,
    "START TRANSACTION READ ONLY,": 1064,
    "START TRANSACTION READ ONLY READ WRITE": 1064,
    "START TRANSACTION READ WRITE, READ ONLY": 1064,
    "START TRANSACTION READ ONLY = 5": 1064,
    "START TRANSACTION " + "READ ONLY, " * 2000: 1064,
    "SAVEPOINT 5": 1064,
    "SAVEPOINT": 1064,
    "SAVEPOINT a b": 1064,
    "USE": 1064,
    "USE a, b": 1064,
    "RELEASE SAVEPOINT": 1064,
}


@pytest.mark.parametrize("text", REFUSED)
def test_refused(text: str) -> None:
    with pytest.raises(ServerError) as caught:
        classify(text.encode())
    assert caught.value.errno == REFUSED[text]


@pytest.mark.parametrize("around", [b"", b" ", b"\n\t", b"; ;\r\n"])
def test_blanks_and_semicolons_around_are_not_logged(around: bytes) -> None:
    text = b"INSERT INTO t VALUES (';')"
    assert classify(around.replace(b";", b"") + text + around).text == text


SCANNED = {
    "INSERT INTO t VALUES (1)": Scan((), None),
    "INSERT INTO t VALUES (';', \"a;b\", `;`) # ;\n/* ; */ -- ;": Scan((), None),
    "a; b": Scan((), 2),
    "a ;; b": Scan((), 3),
    "a ; -- the end": Scan((), None),
    "a ; /*! b */": Scan((), 3),
    r"VALUES ('\';', 'x')": Scan((), None),
    "VALUES (''';', 'x')": Scan((), None),
    "VALUES (@a, @`b c`, @'d', @@e, '@f', @g.h$)": Scan((b"a", b"`b c`", b"'d'", b"g.h$"), None),
    "not ended ' ; x": Scan((), None),
    "a /*!40100 @b, */ /*!999999 @c; /* ; */ */ @d /*M!110810 ; */": Scan(
        (b"b", b"d"), None, {20: 32, 32: 40, 38: 41, 49: 32}
    ),
    "a ; /*!999999 x */": Scan((), None),
    "a /*!40100 ; */": Scan((), 12),
}


@pytest.mark.parametrize("text", SCANNED)
def test_scan(text: str) -> None:
    assert scan(text.encode()) == SCANNED[text]


def test_scan_without_escapes() -> None:
    text = rb"VALUES ('\'); DROP TABLE t -- ')"
    assert scan(text).second is None
    assert scan(text, backslash_escapes=False).second == text.index(b";") + 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CREATE PROCEDURE p() BEGIN SELECT 1; END", True),
        ("CREATE DEFINER=`u`@`h` TRIGGER t BEFORE INSERT ON x FOR EACH ROW SET @a=1", True),
        ("CREATE OR REPLACE DEFINER = 'u'@'%' AGGREGATE FUNCTION f()", True),
        ("CREATE DEFINER=u@127.0.0.1 EVENT e DO", True),
        ("ALTER DEFINER=CURRENT_USER() EVENT e", True),
        ("CREATE DEFINER=CURRENT_ROLE PACKAGE BODY p AS", True),
        ("/*!50003 CREATE*/ /*!50020 DEFINER=`root`@`%`*/ /*!50003 PROCEDURE `p`() BEGIN */", True),
        ("CREATE DEFINER=`u`@`h` SQL SECURITY DEFINER VIEW v AS SELECT 1", False),
        ("CREATE DEFINER=`procedure`@`function` VIEW v AS SELECT 1", False),
        ("CREATE DEFINER", False),
        ("CREATE TABLE event (a INT)", False),
        ("CREATE TABLE IF NOT EXISTS procedure (a INT)", False),
        ("CREATE OR REPLACE FUNCTION f() RETURNS INT RETURN 1", True),
        ("ALTER EVENT e DO BEGIN END", True),
        ("CREATE TABLE t (a INT)", False),
    ],
)
def test_stored_programs(text: str, expected: bool) -> None:
    assert is_stored_program(text.encode()) is expected


def test_unquoted() -> None:
    assert [unquoted_name(n) for n in (b"a", b"`b``c`", b"'d''e'", b'"f"')] == [
        b"a",
        b"b`c",
        b"d'e",
        b"f",
    ]


@contextlib.contextmanager
def may_be_refused() -> Iterator[None]:
    try:
        yield
    except ServerError as error:
        if error.errno not in (1064, 1235):
            raise


@given(st.binary(max_size=60) | st.text("INSERTbegin commit/*!-#'\"`\\;@ \n5", max_size=60))
def test_any_bytes(text: bytes | str) -> None:
    raw = text if isinstance(text, bytes) else text.encode()
    with may_be_refused():
        scan(raw)
    with may_be_refused():
        assert classify(raw).text in raw


@pytest.mark.parametrize(
    "text",
    [b"/* " * 100_000, b"-- \n" * 100_000, b"'\\" * 100_000, b"@`" * 100_000, b"/*!" * 100_000],
)
def test_hostile_text_takes_linear_time(text: bytes) -> None:
    began = time.thread_time()
    with contextlib.suppress(SqlSyntaxError):
        scan(b"INSERT " + text)
    classify(b"INSERT " + text)
    classify(text)
    assert time.thread_time() - began < 5


_QUOTED = rb"'[^'\\]*(?:(?:\\.|'')[^'\\]*)*(?:'|\\?\Z)"
_PLAIN = re.compile(
    b"|".join(
        (
            _QUOTED,
            _QUOTED.replace(b"'", b'"'),
            rb"`[^`]*(?:``[^`]*)*(?:`|\Z)",
            rb"/\*(?!M?!).*?\*/|--(?=\s|\Z)[^\n]*|#[^\n]*",
            rb"(?P<wrong>/\*|\*/)",
            rb"@@",
            rb"(?P<name>@(?:[0-9A-Za-z_.$\x80-\xff]+))",
            rb"(?P<end>;)",
        )
    ),
    re.DOTALL,
)


_NOTHING = repeated(r"[\s;]|/\*.*?\*/|--(?=\s|\Z)[^\n]*|#[^\n]*").encode()


def scanned_at_once(text: bytes) -> Scan | None:
    """The plain twin: all of it by one expression. None: a comment has no end, or no beginning."""
    names: dict[bytes, None] = {}
    for match in _PLAIN.finditer(text):
        if match["name"]:
            names[match["name"][1:]] = None
        elif match["wrong"]:
            return None
        elif match["end"]:
            ended = re.fullmatch(_NOTHING, text[match.end() :], re.DOTALL)
            return Scan(tuple(names), None if ended else match.end())
    return Scan(tuple(names), None)


def test_a_name_of_a_semicolon_ends_nothing() -> None:
    assert scan(b"SELECT 1;`;`").second == len("SELECT 1;")


_PARTS = rb"""' '' " \ / * /* */ -- # x @a @@ ` 'abcdefgh' ;""".split()


@given(
    st.lists(st.sampled_from([*_PARTS, b" ", b"\n"]), max_size=40).map(b"".join),
    st.integers(4, 9),
    st.integers(2, 9),
)
def test_steps_of_any_size_see_the_same(text: bytes, step: int, string_step: int) -> None:
    expected = scanned_at_once(text)
    assert scan_or_none(text) == expected
    assert in_steps(text, step, string_step) == expected


@given(
    st.lists(
        st.sampled_from([*_PARTS, b" ", b"/*!", b"/*!40100", b"/*!99999", b"/*M!110810", b"9"]),
        max_size=40,
    ).map(b"".join),
    st.integers(16, 24),  # the beginning of a comment fits into a step
    st.integers(2, 9),
)
def test_steps_of_any_size_see_the_same_comments(text: bytes, step: int, string_step: int) -> None:
    assert in_steps(text, step, string_step) == scan_or_none(text)


def scan_or_none(text: bytes) -> Scan | None:
    try:
        return scan(text)
    except SqlSyntaxError:
        return None


def in_steps(text: bytes, step: int, string_step: int) -> Scan | None:
    names = re.findall(rb"@[0-9A-Za-z_.$]+", text)
    assume(all(len(name) < step for name in names))  # longer ones are refused
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(statement_kind, "_STEP_BYTES", step)
        patched.setattr(statement_kind, "_STRING_STEP_BYTES", string_step)
        return scan_or_none(text)


def test_as_many_variables_as_a_session_has() -> None:
    names = b",".join(b"@v%d" % i for i in range(USER_VARIABLES_MAX))
    assert len(scan(b"SELECT " + names + b",@v0").variables) == USER_VARIABLES_MAX
    with pytest.raises(ServerError, match=r"^1235 "):
        scan(b"SELECT " + names + b",@another")


def test_what_a_statement_is_stands_in_its_head() -> None:
    comment = b"/*" + b" " * HEAD_BYTES_MAX + b"*/"
    assert classify(comment + b"INSERT INTO t VALUES (1)").kind is Kind.OTHER
    assert classify(b"INSERT " + comment).kind is Kind.DML
    with pytest.raises(SqlSyntaxError):
        classify(b"COMMIT " + comment)
