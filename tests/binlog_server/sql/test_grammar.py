"""Statement by statement: what it means, or the error that MariaDB gives."""

from __future__ import annotations

import errno
import os
import sys
import time
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, cast

import pytest
from binlog_protocol.errors import ServerError, SqlSyntaxError
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lark import Lark

from binlog_server.sql.account_statements import ACCOUNTS
from binlog_server.sql.assignments import Assignment, SetStatement, SetVariables, set_by_driver
from binlog_server.sql.events import ShowBinlogEvents
from binlog_server.sql.explain import ExplainGtid, ExplainPurge
from binlog_server.sql.expressions import (
    Default,
    Expression,
    Function,
    Limit,
    Literal,
    Scope,
    SystemVariable,
    UserVariable,
    Value,
)
from binlog_server.sql.fault_sql import CreateFault, DropAllFaults, DropFault, ShowBinlogFaults
from binlog_server.sql.grammars import CODE_CHARS_MAX, STATEMENT_CHARS_MAX, Grammar
from binlog_server.sql.inquiries import Inquiry, SetComputed
from binlog_server.sql.kills import Kill, KillQueryId, KillUser
from binlog_server.sql.lease_sql import AlterLease, CreateLease, DropLease, ShowBinlogLeases
from binlog_server.sql.maintenance import FlushLogs, FlushNothing, Purge, ResetMaster
from binlog_server.sql.moments import Moment
from binlog_server.sql.parser import MAIN
from binlog_server.sql.parser import parse as parse_text
from binlog_server.sql.replication_sql import REPLICATION
from binlog_server.sql.selects import Select, SelectItem
from binlog_server.sql.shows import (
    Help,
    ShowBinaryLogs,
    ShowBinlogReplicas,
    ShowDatabases,
    ShowDiagnostics,
    ShowEngines,
    ShowMasterStatus,
    ShowPrivileges,
    ShowProcesslist,
    ShowSlaveHosts,
    ShowVariables,
)
from binlog_server.sql.slave_status import ShowAllSlavesStatus, ShowSlaveStatus
from binlog_server.sql.sql_session import SqlSession
from binlog_server.sql.statement import Family, Statement
from binlog_server.sql.view import Unfinished

GLOBAL, SESSION, DEFAULT = Scope.GLOBAL, Scope.SESSION, Scope.DEFAULT


def parse(text: str) -> Statement:
    """The statement in a text, as a whole: of what the grammars do not take the rest is read, too."""
    statement = parse_text(text)
    if type(statement) in (Inquiry, SetComputed):
        left = statement.described(cast(SqlSession, None))  # up to here no session is asked
        assert isinstance(left, Unfinished)
        statement = left.run()
    return statement


def user(name: str, value: Expression | Value) -> Assignment:
    return Assignment(UserVariable(name), of(value))


def system(name: str, value: Expression | Value, scope: Scope = DEFAULT) -> Assignment:
    return Assignment(SystemVariable(scope, name), of(value))


def of(value: Expression | Value) -> Expression:
    return Literal(value) if value is None or isinstance(value, str | int | Decimal) else value


def sets(*assignments: Assignment) -> SetVariables:
    return SetVariables(assignments)


def names(charset: str | Default, *others: Assignment) -> SetVariables:
    three = [f"character_set_{name}" for name in ("client", "connection", "results")]
    return sets(*(system(name, charset, SESSION) for name in three), *others)


def select(*items: tuple[str, Expression], limit: int | None = None) -> Select:
    return Select(tuple(SelectItem(label, value) for label, value in items), limit)


def like(pattern: str, scope: Scope = DEFAULT, *, status: bool = False) -> ShowVariables:
    return ShowVariables(status, pattern, scope)


def at(name: str, scope: Scope = DEFAULT) -> tuple[str, Expression]:
    """A selected system variable, labelled as written."""
    prefix = {GLOBAL: "@@GLOBAL.", SESSION: "@@session.", DEFAULT: "@@"}[scope]
    return prefix + name, SystemVariable(scope, name)


CHECKSUM = sets(user("master_binlog_checksum", SystemVariable(GLOBAL, "binlog_checksum")))

# What replicas of 10.11, 11.8 and 12.3 send, in their order (and what only some send).
REPLICA: dict[str, Statement] = {
    "SET NAMES latin1": names("latin1"),
    "SET NAMES utf8mb4": names("utf8mb4"),
    "SELECT UNIX_TIMESTAMP()": select(("UNIX_TIMESTAMP()", Function("UNIX_TIMESTAMP", ()))),
    "SHOW VARIABLES LIKE 'SERVER_ID'": like("SERVER_ID"),
    "SET @master_heartbeat_period= 30000001024": sets(user("master_heartbeat_period", 30000001024)),
    "SET @master_binlog_checksum= @@global.binlog_checksum": CHECKSUM,
    "SELECT @master_binlog_checksum": select(
        ("@master_binlog_checksum", UserVariable("master_binlog_checksum"))
    ),
    "SET skip_replication=1": sets(system("skip_replication", 1)),
    "SELECT @@GLOBAL.binlog_storage_engine": select(at("binlog_storage_engine", GLOBAL)),
    "SET @mariadb_slave_capability=4": sets(user("mariadb_slave_capability", 4)),
    "SELECT @@GLOBAL.gtid_domain_id": select(at("gtid_domain_id", GLOBAL)),
    "SET @slave_connect_state='0-1-8,5-1-2'": sets(user("slave_connect_state", "0-1-8,5-1-2")),
    "SET @slave_connect_state=''": sets(user("slave_connect_state", "")),
    "SET @slave_gtid_strict_mode=0": sets(user("slave_gtid_strict_mode", 0)),
    "SET @slave_gtid_ignore_duplicates=1": sets(user("slave_gtid_ignore_duplicates", 1)),
    "SET @slave_until_gtid='0-1-5'": sets(user("slave_until_gtid", "0-1-5")),
    "SET @slave_gtid_until_before_gtids=1": sets(user("slave_gtid_until_before_gtids", 1)),
    "SHOW VARIABLES LIKE 'rpl_semi_sync_master_enabled'": like("rpl_semi_sync_master_enabled"),
    "SET @rpl_semi_sync_slave= 1": sets(user("rpl_semi_sync_slave", 1)),
    "SELECT binlog_gtid_pos('m-bin.000001',610)": select(
        (
            "binlog_gtid_pos('m-bin.000001',610)",
            Function("BINLOG_GTID_POS", (Literal("m-bin.000001"), Literal(610))),
        )
    ),
    "KILL 17": Kill(Literal(17)),
}

# What other clients send, and tools.
CLIENTS: dict[str, Statement] = {
    "SELECT VERSION()": select(("VERSION()", Function("VERSION", ()))),
    "SET @master_binlog_checksum='NONE'": sets(user("master_binlog_checksum", "NONE")),
    "SET AUTOCOMMIT = 0": sets(system("autocommit", 0)),
    "SET @@session.autocommit = OFF": sets(system("autocommit", "OFF", SESSION)),
    "SET @@session.autocommit = ON": sets(system("autocommit", "ON", SESSION)),
    "SHOW GLOBAL VARIABLES LIKE 'BINLOG_CHECKSUM'": like("BINLOG_CHECKSUM", GLOBAL),
    "SET @slave_uuid = 'x', @replica_uuid = 'x'": sets(
        user("slave_uuid", "x"), user("replica_uuid", "x")
    ),
    "SET @master_binlog_checksum='NONE', @source_binlog_checksum='NONE'": sets(
        user("master_binlog_checksum", "NONE"), user("source_binlog_checksum", "NONE")
    ),
    "SET @master_heartbeat_period = 5, @source_heartbeat_period = 5": sets(
        user("master_heartbeat_period", 5), user("source_heartbeat_period", 5)
    ),
    "SET @rpl_semi_sync_slave = 1, @rpl_semi_sync_replica = 1;": sets(
        user("rpl_semi_sync_slave", 1), user("rpl_semi_sync_replica", 1)
    ),
    "SET @slave_connect_state = '0-1-2'": sets(user("slave_connect_state", "0-1-2")),
    "SET @mariadb_slave_capability='4'": sets(user("mariadb_slave_capability", "4")),
    "set @slave_uuid=uuid()": sets(user("slave_uuid", Function("UUID", ()))),
    "SHOW VARIABLES LIKE 'BINLOG_ROW_METADATA';": like("BINLOG_ROW_METADATA"),
    "select @@server_id": select(at("server_id")),
    "set net_write_timeout=7200": sets(system("net_write_timeout", 7200)),
    "set wait_timeout=9999999": sets(system("wait_timeout", 9999999)),
    "set names 'binary'": names("binary"),
    "SET NAMES 'utf8mb4' COLLATE 'utf8mb4_0900_ai_ci'": names(
        "utf8mb4", system("collation_connection", "utf8mb4_0900_ai_ci", SESSION)
    ),
    "SET NAMES DEFAULT": names(Default()),
    "SET CHARACTER SET utf8": sets(
        system("character_set_client", "utf8", SESSION),
        system("character_set_results", "utf8", SESSION),
        system("character_set_connection", Default(), SESSION),
    ),
    "select @@version_comment limit 1": select(at("version_comment"), limit=1),
    "SELECT @@gtid_current_pos, @@gtid_binlog_pos;": select(
        at("gtid_current_pos"), at("gtid_binlog_pos")
    ),
    "SELECT @@session.sql_mode AS m, 1 one, NULL": select(
        ("m", SystemVariable(SESSION, "sql_mode")), ("one", Literal(1)), ("NULL", Literal(None))
    ),
    "select DATABASE(), USER() limit 1": select(
        ("DATABASE()", Function("DATABASE", ())), ("USER()", Function("USER", ())), limit=1
    ),
    "SELECT -1, +2, 1.5, 'it''s', \"a\\nb\"": select(
        ("-1", Literal(-1)),
        ("+2", Literal(2)),
        ("1.5", Literal(Decimal("1.5"))),
        ("it's", Literal("it's")),
        ("a\nb", Literal("a\nb")),
    ),
    "/*!40100 SET @@SQL_MODE='' */": sets(system("sql_mode", "")),
    "/*!40103 SET TIME_ZONE='+00:00' */": sets(system("time_zone", "+00:00")),
    "/*M!100100 SET @@MAX_STATEMENT_TIME=0.000000 */": sets(
        system("max_statement_time", Decimal("0.000000"))
    ),
    "/*M!100100 SET WAIT_TIMEOUT=DEFAULT */": sets(system("wait_timeout", Default())),
    "/* My comment */ SET /**/ @a := 1 -- the end": sets(user("a", 1)),
    "# first\nSET @`A b` = 1": sets(user("a b", 1)),
    "SHOW STATUS LIKE 'Uptime'": like("Uptime", status=True),
    "SHOW SESSION STATUS LIKE 'Ssl_version'": like("Ssl_version", SESSION, status=True),
    "SHOW VARIABLES": like("%"),
    "SHOW MASTER STATUS": ShowMasterStatus(),
    "show binlog status": ShowMasterStatus(),
    "SHOW BINARY LOG STATUS": ShowMasterStatus(),
    "SHOW BINARY LOGS": ShowBinaryLogs(),
    "SHOW MASTER LOGS": ShowBinaryLogs(),
    "SHOW SLAVE HOSTS": ShowSlaveHosts(),
    "SHOW REPLICA HOSTS": ShowSlaveHosts(),
    "SHOW PROCESSLIST": ShowProcesslist(),
    "SHOW FULL PROCESSLIST": ShowProcesslist(full=True),
    "SHOW WARNINGS": ShowDiagnostics(),
    "KILL CONNECTION 17": Kill(Literal(17)),
    "KILL QUERY 17": Kill(Literal(17), query_only=True),
    "KILL SOFT CONNECTION 17": Kill(Literal(17)),
}

HOUR_S, DAY_S = 3600, 86400

# What a DBA says.
ADMIN: dict[str, Statement] = {
    "SHOW BINLOG EVENTS": ShowBinlogEvents(),
    "SHOW BINLOG EVENTS IN 'f' FROM 4 LIMIT 3": ShowBinlogEvents("f", 4, Limit(0, 3)),
    "SHOW BINLOG EVENTS LIMIT 2,3": ShowBinlogEvents(limit=Limit(2, 3)),
    "SHOW BINLOG EVENTS LIMIT 3 OFFSET 2": ShowBinlogEvents(limit=Limit(2, 3)),
    "SHOW STORAGE ENGINES": ShowEngines(),
    "SHOW BINLOG REPLICAS": ShowBinlogReplicas(),
    "SHOW BINLOG LEASES": ShowBinlogLeases(),
    "SHOW DATABASES LIKE 'my%'": ShowDatabases("my%"),
    "SHOW SCHEMAS": ShowDatabases(),
    "SHOW ERRORS LIMIT 1": ShowDiagnostics(errors_only=True, limit=Limit(0, 1)),
    "SHOW COUNT(*) WARNINGS": ShowDiagnostics(count=True),
    "SHOW SLAVE STATUS": ShowSlaveStatus(),
    "SHOW REPLICA 'c' STATUS": ShowSlaveStatus("c"),
    "SHOW SLAVE STATUS FOR CHANNEL 'c'": ShowSlaveStatus("c"),
    "SHOW ALL SLAVES STATUS": ShowAllSlavesStatus(),
    "SHOW ALL REPLICAS STATUS": ShowAllSlavesStatus(),
    "SHOW PRIVILEGES": ShowPrivileges(),
    "KILL CONNECTION_ID()": Kill(Function("CONNECTION_ID", ())),
    "KILL HARD QUERY @a": Kill(UserVariable("a"), query_only=True),
    "KILL USER Repl": KillUser("Repl"),
    "KILL QUERY USER 'a'@`H`": KillUser("a", "h", query_only=True),
    "KILL QUERY ID 7": KillQueryId(7),
    "SET STATEMENT max_statement_time=5, sql_mode='' FOR SHOW ALL SLAVES STATUS": SetStatement(
        (system("max_statement_time", 5, SESSION), system("sql_mode", "", SESSION)),
        ShowAllSlavesStatus(),
    ),
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ ONLY": sets(
        system("transaction_isolation", "READ-COMMITTED", SESSION),
        system("transaction_read_only", 1, SESSION),
    ),
    "/*!999999 never */ SHOW BINARY LOGS": ShowBinaryLogs(),
    "/*!50701 never */ SHOW BINARY LOGS": ShowBinaryLogs(),
    "/*M!120000 never */ SHOW BINARY LOGS": ShowBinaryLogs(),
    "/*M!110800 SHOW */ BINARY LOGS": ShowBinaryLogs(),
    "/*!100100 SHOW */ BINARY LOGS": ShowBinaryLogs(),
    "PURGE BINARY LOGS TO 'f'": Purge(to="f"),
    "PURGE MASTER LOGS BEFORE '2026-01-01'": Purge(before=Moment("2026-01-01")),
    "PURGE BINARY LOGS BEFORE 20260101000000": Purge(before=Moment(20260101000000)),
    "PURGE BINARY LOGS BEFORE FROM_UNIXTIME(5)": Purge(before=Moment(5, unix=True)),
    "PURGE BINARY LOGS BEFORE NOW()": Purge(before=Moment()),
    "PURGE BINARY LOGS BEFORE NOW() - INTERVAL 3 DAY": Purge(
        before=Moment(plus_seconds=-3 * DAY_S)
    ),
    "PURGE BINARY LOGS BEFORE CURRENT_TIMESTAMP": Purge(before=Moment()),
    "PURGE BINARY LOGS BEFORE CURDATE()": Purge(before=Moment(today=True)),
    "PURGE BINARY LOGS BEFORE '2026-01-01' + INTERVAL '1' YEAR": Purge(
        before=Moment("2026-01-01", plus_months=12)
    ),
    "PURGE BINARY LOGS BEFORE DATE_SUB(NOW(), INTERVAL 2 MONTH)": Purge(
        before=Moment(plus_months=-2)
    ),
    "EXPLAIN PURGE": ExplainPurge(),
    "EXPLAIN PURGE TO 'f'": ExplainPurge(Purge(to="f")),
    "EXPLAIN PURGE BINARY LOGS BEFORE '2026-01-01'": ExplainPurge(
        Purge(before=Moment("2026-01-01"))
    ),
    "EXPLAIN GTID '0-1-5'": ExplainGtid("0-1-5"),
    "FLUSH LOGS": FlushLogs(),
    "FLUSH BINARY LOGS": FlushLogs(),
    "FLUSH LOCAL BINARY LOGS": FlushLogs(),
    "FLUSH NO_WRITE_TO_BINLOG BINARY LOGS DELETE_DOMAIN_ID=(1,2)": FlushLogs(("1", "2")),
    "FLUSH BINARY LOGS DELETE_DOMAIN_ID=()": FlushLogs(),
    "FLUSH STATUS": FlushNothing((False,)),
    "FLUSH GLOBAL STATUS": FlushNothing((True,)),
    "HELP 'x'": Help(),
    "help select": Help(),
    "RESET MASTER": ResetMaster(),
    "RESET MASTER TO 5": ResetMaster(5),
    "CREATE BINLOG LEASE 'etl'": CreateLease("etl"),
    "CREATE OR REPLACE BINLOG LEASE etl FROM GTID '0-1-5' FOR 2 HOUR MAX_BYTES 9": CreateLease(
        "etl", True, "0-1-5", Moment(for_all=True, plus_seconds=2 * HOUR_S), 9
    ),
    "CREATE BINLOG LEASE `e t` UNTIL '2027-01-01 00:00:00'": CreateLease(
        "e t", until=Moment("2027-01-01 00:00:00")
    ),
    "ALTER BINLOG LEASE etl FROM GTID '0-1-5'": AlterLease("etl", "0-1-5"),
    "ALTER BINLOG LEASE etl MAX_BYTES 9": AlterLease("etl", max_bytes=9),
    "DROP BINLOG LEASE etl": DropLease("etl"),
    "DROP BINLOG LEASE IF EXISTS etl": DropLease("etl", if_exists=True),
    "CREATE BINLOG FAULT torn DO cut GTID='0-1-5' EVENT=3 INSIDE=TRUE": CreateFault(
        "torn", "cut", (("gtid", "0-1-5"), ("event", 3), ("inside", True))
    ),
    "CREATE OR REPLACE BINLOG FAULT 'a b' DO delay ON=login SECONDS=1.5": CreateFault(
        "a b", "delay", (("on", "login"), ("seconds", 1.5)), replace=True
    ),
    "DROP BINLOG FAULT torn": DropFault("torn"),
    "DROP BINLOG FAULT IF EXISTS `a b`": DropFault("a b", if_exists=True),
    "DROP ALL BINLOG FAULTS": DropAllFaults(),
    "SHOW BINLOG FAULTS": ShowBinlogFaults(),
}
ALL = REPLICA | CLIENTS | ADMIN


@pytest.mark.parametrize("text", ALL)
def test_meaning(text: str) -> None:
    assert parse(text) == ALL[text]


@pytest.mark.parametrize("text", ALL)
def test_key_words_in_any_case_and_white_space_anywhere(text: str) -> None:
    expected = ALL[text]
    if text[0] not in "/#" and not isinstance(expected, Select):
        head, _, rest = text.partition(" ")
        assert parse(f"\t {head.lower()} \n {rest} ;; ") == expected
        assert parse(f"{head.upper()} {rest}") == expected


# MariaDB, too, says 1064 to these.
SYNTAX_ERRORS = [
    ("", ""),
    (";", ";"),
    ("SELECT", ""),
    ("SELECT 1,", ""),
    ("SELEC 1", "SELEC 1"),
    ("SHOW REPLICAS", "REPLICAS"),
    ("SHOWMASTERSTATUS", "SHOWMASTERSTATUS"),
    ("KILLQUERY5", "KILLQUERY5"),
    ("SET @a", ""),
    ("SET @a=", ""),
    ("SET @a=1,", ""),
    ("SET @a=1 @b=2", "@b=2"),
    ("SELECT 'unfinished", "'unfinished"),
    ("SELECT 1; SELECT 2", "SELECT 2"),
    ("KILL x", ""),
    ("SELECT 1\0", "\0"),
]


@pytest.mark.parametrize(("text", "near"), SYNTAX_ERRORS)
def test_syntax_errors(text: str, near: str) -> None:
    with pytest.raises(SqlSyntaxError) as caught:
        parse(text)
    assert f"near '{near}' at line 1" in caught.value.message


def test_syntax_error_names_its_line() -> None:
    with pytest.raises(SqlSyntaxError, match="near '' at line 3"):
        parse("SET\n@a=1,\noops")


# Valid in MariaDB, and not served here.
NOT_SERVED = [
    "INSERT INTO t VALUES (1)",
    "FLUSH TABLES FOR EXPORT",
    "SET STATEMENT max_statement_time=1 FOR SET @a=1",
    "SET STATEMENT @a=1 FOR SELECT 1",
    "KILL USER",
]


@pytest.mark.parametrize("text", NOT_SERVED)
def test_not_served(text: str) -> None:
    with pytest.raises(SqlSyntaxError):
        parse(text)


HOSTILE = {
    "long": "SELECT '" + "x" * STATEMENT_CHARS_MAX + "'",
    "many items": "SELECT " + ",".join(["1"] * 30000),
    "many items in little": "SELECT " + ",".join(["''"] * 20000),
    "many assignments": "SET " + ",".join(f"@a{n}=1" for n in range(6000)),
    "a long number": "SELECT " + "9" * 4000,
    "a number too long to convert": "KILL " + "9" * 4000,
    "a long limit": "SELECT 1 LIMIT " + "9" * 4000,
    "parentheses": "SELECT " + "(" * 60000,
    "functions in functions": "SELECT " + "f(" * 20000 + ")" * 20000,
    "quotes": "SELECT '" + "\\'" * 30000,
    "pairs of quotes": "SELECT " + "''" * 30000,
    "comments": "/*" * 30000,
    "stars": "/*" + "*" * 60000,
    "dashes": "-- " * 20000,
    "ends": "SELECT 1" + ";" * 60000,
    "back quotes": "SELECT " + "`" * 60000,
    "white space": " " * 60000 + "x",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_takes_no_long_time(name: str) -> None:
    parse("SELECT 1")  # the grammar is read once
    began = time.thread_time()
    outcome(HOSTILE[name])
    assert time.thread_time() - began < 1.0


def outcome(text: str) -> Statement | int:
    try:
        return parse(text)
    except ServerError as error:
        return error.errno


def test_limits_leave_room_for_what_is_needed() -> None:
    position = ",".join(f"{domain}-4294967295-{2**63}" for domain in range(1500))
    assert len(position) > 8 * CODE_CHARS_MAX
    assert parse(f"SET @slave_connect_state='{position}'") == sets(
        user("slave_connect_state", position)
    )


WORDS = st.sampled_from(
    [
        *"SELECT SHOW SET KILL GLOBAL NULL DEFAULT ON NAMES LIKE WHERE IN VARIABLES".split(),  # noqa: SIM905
        *"STATUS MASTER LIMIT 1 -1 1.5 99999999999999999999999 x 'y' `w` := /*M!100100".split(),  # noqa: SIM905
        *"PURGE BINARY LOGS TO BEFORE NOW INTERVAL DAY FLUSH RESET EXPLAIN GTID CREATE LEASE".split(),  # noqa: SIM905
        *"STATEMENT TRANSACTION READ ONLY USER BETWEEN IS SLAVE ALL SLAVES DUAL CURRENT_USER".split(),  # noqa: SIM905
        *"BINLOG EVENTS FROM OFFSET DROP IF EXISTS FOR UNTIL SECOND MAX_BYTES AND OR NOT COUNT".split(),  # noqa: SIM905
        *("/*", "*/", "/*!", "--", "@@", "\0", "\n", "é", "٣", "\udcff", *".@=,;()'\"`\\#"),
    ]
)


@given(st.lists(WORDS, max_size=30).map(" ".join))
@example("SELECT @@global . x")
@example("SELECT ٣")
@settings(max_examples=300)
def test_random_words(text: str) -> None:
    assert isinstance(outcome(text), Statement | int)


@given(st.text(max_size=200))
@settings(max_examples=200)
def test_random_text(text: str) -> None:
    assert isinstance(outcome(text), Statement | int)


@given(
    st.sampled_from(sorted(ALL)),
    st.integers(0, 60),
    st.integers(0, 5),
    st.text(max_size=3),
)
@settings(max_examples=300)
def test_mutated_statements(text: str, position: int, cut: int, inserted: str) -> None:
    found = outcome(text[:position] + inserted + text[position + cut :])
    # What a name means is looked at, too: 1054 for a column, 1253 for a collation of another character set.
    assert isinstance(found, Statement) or found in (1064, 1054, 1253)


@pytest.mark.parametrize(
    "text",
    [
        "SHOW GLOBAL STATUS LIKE 'Innodb%'",
        " select @@server_id",
        "SET @mariadb_slave_capability=4",
        "SET NAMES utf8mb4",
    ],
)
def test_what_monitoring_and_logins_repeat_is_parsed_once(text: str) -> None:
    assert parse(text) is parse(text)


@pytest.mark.parametrize(
    ("text", "grammar"),
    [
        (f"SELECT '{'x' * 600}'", None),
        ("PURGE BINARY LOGS TO 'x'", None),
        ("SET PASSWORD = PASSWORD('secret')", ACCOUNTS),
    ],
)
def test_long_texts_and_passwords_are_not_kept(text: str, grammar: Grammar | None) -> None:
    assert parse_text(text, grammar) == parse_text(text, grammar)
    assert parse_text(text, grammar) is not parse_text(text, grammar)


# As a real 11.8.9 answers `SELECT 1` with them behind it.
COMMENTS = {
    "/*!99999 , 2 /* in */ , 3 */": 1,
    "/*!99999 ,2 /*! ,3 */ ,4 */ ,5": 2,
    "/*!99999 ,2 /* /* x */ ,3 */": 1,
    "/*!110899 ,2 */": 1,
    "/*!110809 ,2 */": 2,
    "/*!110810 ,2 */": 1,
    "/*M!110899 ,2 */": 1,
    "/*!050700 ,2 */": 1,
    "/*!050699 ,2 */": 2,
    "/*!50699 ,2 */": 2,
    "/*!50700 ,2 */": 1,
    "/*!099999 ,2 */": 1,
    "/*!100000 ,2 */": 2,
    "/*M!50700 ,2 */": 2,
    "/*M!050700 ,2 */": 2,
    "/*!1234567 ,2 */": 1,
    "/*! ,2 /*!99999 ,3 */ ,4 */": 3,
}


@pytest.mark.parametrize("comment", COMMENTS)
def test_versions_of_comments(comment: str) -> None:
    statement = parse(f"SELECT 1 {comment}")
    assert isinstance(statement, Select)
    assert len(statement.items) == COMMENTS[comment]


def test_a_skipped_comment_that_is_not_ended() -> None:
    for text in ("SELECT 1 /*!99999 ,2", "SELECT 1 /*!99999 ,2 /* x */ "):
        with pytest.raises(SqlSyntaxError):
            parse(text)


OF_DRIVERS: Final = (
    *(
        "SET NAMES utf8mb4",
        "set names Latin1",
        "SET NAMES binary",
        "SET NAMES nothing",
        "SET NAMES on",
        "SET NAMES collate",
    ),
    *("SET AUTOCOMMIT = 0", "SET autocommit=1", "set AutoCommit =0"),
)
NEARLY: Final = (
    *(
        "SET NAMES DEFAULT",
        "SET NAMES default",
        "SET NAMES 'utf8'",
        "SET NAMES utf8 COLLATE utf8_bin",
    ),
    *(
        "SET NAMES = 1",
        "SET NAMES",
        "SET AUTOCOMMIT = 2",
        "SET AUTOCOMMIT = ON",
        "SET AUTOCOMMIT = 00",
    ),
    *(
        "SET AUTOCOMMIT := 1",
        "SET @AUTOCOMMIT = 1",
        "SET AUTOCOMMIT = 1, a = 2",
        "SET NAMES utf8;",
        "SET NAMES utf8\n",
    ),
)


@pytest.mark.parametrize("text", OF_DRIVERS)
def test_what_drivers_set_is_what_the_grammar_says(text: str) -> None:
    assert set_by_driver(text) == MAIN.parse(text)


@pytest.mark.parametrize("text", NEARLY)
def test_all_else_is_left_to_the_grammar(text: str) -> None:
    assert set_by_driver(text) is None


class TestKeptTables:
    """What is kept of a grammar beside the compiled modules."""

    @pytest.fixture(autouse=True)
    def kept(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
        monkeypatch.setattr(sys, "dont_write_bytecode", False)
        self.made: list[str] = []

        class Counted(Lark):
            def __init__(this, text: str, **options: Any) -> None:
                self.made.append(text)
                super().__init__(text, **options)

        monkeypatch.setattr("binlog_server.sql.lark_parser.Lark", Counted)
        return tmp_path

    @staticmethod
    def grammar(rules: str = "") -> Grammar:
        families = [*REPLICATION._families, Family((), rules)]
        return Grammar("replication.lark", families, quotes_strings=True)

    def test_they_are_loaded_and_say_the_same(self, kept: Path) -> None:
        first, second = self.grammar(), self.grammar()
        assert first.parse("STOP SLAVE 'a'") == second.parse("STOP SLAVE 'a'")
        assert len(self.made) == 1
        for text in ("STOP SLAVES", "STOP SLAVE 'a' 'b'", "STOP"):
            errors = []
            for grammar in (first, second):
                with pytest.raises(SqlSyntaxError) as caught:
                    grammar.parse(text)
                errors.append(str(caught.value))
            assert errors[0] == errors[1]
        assert [path.suffix for path in kept.rglob("*") if path.is_file()] == [".tables"]

    def test_those_of_another_grammar_are_made_anew(self) -> None:
        assert self.grammar().lark
        assert self.grammar('nothing: "NOTHING"').lark
        assert self.grammar('nothing: "NOTHING"').lark
        assert len(self.made) == 2

    @pytest.mark.parametrize("left", [0, 40, 1000])
    def test_half_of_them_is_none(self, kept: Path, left: int) -> None:
        assert self.grammar().lark
        (path,) = (path for path in kept.rglob("*") if path.is_file())
        path.write_bytes(path.read_bytes()[:left])
        assert self.grammar().parse("STOP SLAVE")
        assert len(self.made) == 2

    @pytest.mark.parametrize("at", [40, -2])
    def test_damaged_ones_are_made_anew(self, kept: Path, at: int) -> None:
        assert self.grammar().lark
        (path,) = (path for path in kept.rglob("*") if path.is_file())
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        path.write_bytes(data)
        assert self.grammar().parse("STOP SLAVE")
        assert len(self.made) == 2

    def test_nobody_else_may_write_them(self, kept: Path) -> None:
        before = os.umask(0)
        try:
            assert self.grammar().lark
        finally:
            os.umask(before)
        (path,) = (path for path in kept.rglob("*") if path.is_file())
        assert not path.stat().st_mode & 0o022

    def test_a_full_disk_leaves_nothing(self, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(path: Path, target: Path) -> Path:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(Path, "replace", full)
        assert self.grammar().lark
        assert not [path for path in kept.rglob("*") if path.is_file()]

    def test_nothing_is_kept_where_python_keeps_nothing(
        self, kept: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        assert self.grammar().lark
        assert not list(kept.iterdir())

    def test_a_folder_that_cannot_be_made(
        self, kept: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (kept / "file").touch()
        monkeypatch.setattr(sys, "pycache_prefix", str(kept / "file"))
        assert self.grammar().lark


@pytest.mark.parametrize(
    ("text", "leaves"),
    [
        ("SET @slave_uuid='x', @master_heartbeat_period=5", True),
        ("SET @master_binlog_checksum=@@global.binlog_checksum", True),
        ("SET @a=1, sql_mode=''", False),
        ("SET @a=CONNECTION_ID()", False),
        ("SET NAMES latin1", False),
    ],
)
def test_settings_are_made_anew_behind_what_may_change_them(text: str, leaves: bool) -> None:
    statement = parse(text)
    assert isinstance(statement, SetVariables)
    assert statement.leaves_settings is leaves


def test_no_terminal_is_slow_to_compile() -> None:
    """A range up to the last character takes 10 ms without regard to case, and each lexer compiles it again: half of
    what the first statement cost.
    """
    folder = Path(sys.modules[Grammar.__module__].__file__ or "").parent
    lines = [line for path in folder.glob("*.lark") for line in path.read_text().splitlines()]
    assert lines
    assert [line for line in lines if r"\U0010ffff" in line and line.rstrip().endswith("/i")] == []
