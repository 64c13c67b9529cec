"""Passwords are in no log, no process list and no error, however badly the statement is written."""

from __future__ import annotations

import logging

import pytest
from binlog_protocol.connection.commands import Query
from binlog_protocol.errors import ServerError, SqlSyntaxError
from hypothesis import example, given
from hypothesis import strategies as st

from binlog_server.accounts.users import Account
from binlog_server.process.logs import JsonFormatter
from binlog_server.sql.account_statements import ACCOUNTS
from binlog_server.sql.parser import parse
from binlog_server.sql.secrets_in_sql import SHOWN_CHARS, hide_strings, shown_error, shown_text
from binlog_server.sql.statement_kind import classify
from tests.binlog_server.lab import Lab

SECRET = "LEAK7"

# What stands before a password; ~ is a gap.
BEFORE = (
    "CREATE~USER~bob~IDENTIFIED~BY~",
    "CREATE~OR~REPLACE~USER~'bob'@'%'~IDENTIFIED~BY~PASSWORD~",
    "CREATE~USER~IF~NOT~EXISTS~bob~IDENTIFIED~VIA~ed25519~USING~PASSWORD(",
    "CREATE~USER~bob~IDENTIFIED~WITH~mysql_native_password~AS~",
    "ALTER~USER~bob~IDENTIFIED~BY~",
    "GRANT~RELOAD~ON~*.*~TO~bob~IDENTIFIED~BY~",
    "SET~PASSWORD~=~",
    "SET~PASSWORD~FOR~bob~=~PASSWORD(",
    "SET~PASSWORD~",
    "CHANGE~MASTER~TO~MASTER_HOST='db1',MASTER_PASSWORD=",
    "CHANGE~MASTER~'east'~TO~MASTER_PASSWORD~=~'x',MASTER_USER=",
    "SELECT~PASSWORD(",
    "SET~STATEMENT~sql_mode=''~FOR~SET~PASSWORD~=~",
    "INSERT~INTO~mysql.user~SET~authentication_string=",
)
# Without a word that says so: these have to be well written.
OF_ACCOUNTS = ("CREATE~USER~bob~", "ALTER~USER~", "GRANT~RELOAD~ON~*.*~TO~bob~")
gaps = st.sampled_from(
    (
        " ",
        "  ",
        "\t",
        "\n",
        "/* a */",
        " /*'*/ ",
        "/*!50000 ",
        "*/",
        "/*M!100100 ",
        "-- x\n",
        '#"\n',
    )
)
quotes = st.sampled_from(("", "'", '"', "`", "\\'", "x'", "''", "'a\\'", '"\\"'))


@st.composite
def statements(draw: st.DrawFn) -> str:
    """With a password, which nothing of the statement's own words is a part of."""
    head = draw(st.sampled_from((*BEFORE, *OF_ACCOUNTS)))
    text = "".join(draw(gaps) if c == "~" else c for c in head)
    if draw(st.booleans()):
        text = "".join(draw(st.sampled_from((c.lower(), c.upper()))) for c in text)
    if head in BEFORE and draw(st.booleans()):  # a letter too few
        at = draw(st.integers(0, len(text) - 1))
        text = text[:at] + text[at + 1 :]
    quote = draw(quotes)
    tail = draw(
        st.sampled_from(("", ";", ")", " REQUIRE SSL", ", b", quote, quote + ")", "\0", "'"))
    )
    return draw(st.sampled_from(("", " ", "/*x*/", ";"))) + text + quote + SECRET + tail


def errors(sql: str) -> list[ServerError]:
    """Of all that read statements."""
    found = []
    for read in (parse, ACCOUNTS.parse, lambda text: classify(text.encode())):
        try:
            read(sql)
        except ServerError as error:
            found.append(error)
    return found


@pytest.mark.long
@given(statements())
@example("CREATE USER bob IDENTIFIED BY LEAK7")
@example("SET PASSWORD = LEAK7")
@example("SET PASSWORD FOR bob = LEAK7")
@example("SET PASWORD = LEAK7")
@example("CHANGE MASTER TO MASTER_PASSWORD = LEAK7")
@example("CREATE USER bob IDENTFIED LEAK7")
@example("/*!50000 CREATE*/ USER bob LEAK7")
def test_no_password_is_shown(sql: str) -> None:
    assert SECRET not in shown_text(sql)
    for error in errors(sql):
        if isinstance(error, SqlSyntaxError):
            assert SECRET not in str(shown_error(error, sql))


@given(st.text(max_size=3000), st.text(max_size=90))
def test_any_text(sql: str, near: str) -> None:
    """Nothing is shown that was not there; a syntax error stays one, on its line."""
    shown = shown_text(sql)
    assert shown == sql or len(shown) <= 3 * SHOWN_CHARS + 3
    error = shown_error(SqlSyntaxError(near, 7), sql)
    assert isinstance(error, SqlSyntaxError)
    assert error.line == 7
    assert error.near in (near, "?") or near.startswith(error.near.removesuffix("..."))


@pytest.mark.parametrize(
    "sql",
    [
        "SHOW GRANTS FOR bob",
        "SHOW MASTER STATUS",
        "SELECT USER(), @@max_user_connections",
        "KILL USER bob",
        "PURGE BINARY LOGS TO 'binlog-000001.ibb'",
        "SELECT a FROM t GROUP BY b ORDER BY c",
        "START ALL SLAVES",
    ],
)
def test_other_statements_are_shown(sql: str) -> None:
    assert shown_text(sql) == sql
    error = SqlSyntaxError(sql[7:])
    assert shown_error(error, sql) is error


def test_what_stands_before_a_password_is_shown() -> None:
    assert shown_text("ALTER USER bob IDENTIFIED BY x") == "ALTER USER..."
    assert shown_text("SET @a = 'b', password = x") == "SET @a = '?', pas..."
    sql = "SHOW x FROM users WHERE password = y"
    assert str(shown_error(SqlSyntaxError("x FROM users WHERE password = y"), sql)).endswith(
        "near 'x FROM users WHERE pas...' at line 1"
    )
    assert "near '?'" in str(shown_error(SqlSyntaxError("y"), sql))


def test_of_a_long_text_the_beginning_is_shown() -> None:
    """Without strings: what comes behind may say that they are passwords."""
    assert shown_text("SELECT 'a'" + " " * SHOWN_CHARS + "x").startswith("SELECT '?' ")
    assert shown_text("x" * (SHOWN_CHARS + 1)) == "x" * SHOWN_CHARS + "..."
    assert shown_text("x" * SHOWN_CHARS) == "x" * SHOWN_CHARS


def test_strings_are_hidden() -> None:
    assert hide_strings("a 'b' \"c\" 'd\\'e' 'f''g' 'h") == "a '?' '?' '?' '?' '?'"


@pytest.mark.parametrize("grant", ["ALL PRIVILEGES", "BINLOG REPLAY", "USAGE"])
async def test_no_password_is_logged_or_told(caplog: pytest.LogCaptureFixture, grant: str) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.handler.setFormatter(JsonFormatter())
    async with Lab(users={"root": Account("pw", frozenset({grant}))}) as lab:
        client = await lab.root()
        answers = [
            await client.ask(Query(head.replace("~", " ") + quote + SECRET).build())
            for head in (*BEFORE, OF_ACCOUNTS[0])
            for quote in ("", "'", "`")
        ]
    assert [answer for answer in answers if SECRET.encode() in answer] == []
    assert SECRET not in caplog.text
    assert "1064" in caplog.text
