"""What statements give: rows, columns and errors; what they change."""

from __future__ import annotations

import time
import zoneinfo
from collections.abc import Iterator
from pathlib import Path
from sys import getsizeof

import pytest
from binlog_protocol.errors import ServerError
from binlog_protocol.events.charsets import decode_text
from binlog_protocol.wire.results import Column, Value
from binlog_storage.errors import StorageError
from hypothesis import given, settings
from hypothesis import strategies as st

from binlog_server.app.app import Server
from binlog_server.queries.like import like_matches
from binlog_server.settings.option_kinds import Switch
from binlog_server.sql.expressions import USER_VARIABLES_MAX
from binlog_server.sql.maintenance import server_error
from binlog_server.sql.selects import ROW_CHARS_MAX
from binlog_server.sql.sql_session import DECODED_BYTES_MAX, SqlSession
from binlog_server.sql.variables import VARIABLES
from binlog_server.sql.view import Computed, Deed, ResultSet, RowStream, Wait, Work
from binlog_server.upstreams.master_info import MasterInfo
from tests.binlog_server.lab import REPLICA_AND_WATCHER, Lab

TEXT, BIGINT, INTEGER, DOUBLE = 253, 8, 3, 5
SQL_MODE = VARIABLES["sql_mode"].default


@pytest.fixture
def server() -> Iterator[Server]:
    """Not started: SQL needs no socket."""
    lab = Lab(server_id=7, gtid_domain_id=3)
    lab.publish("0-1-1,5-2-8,0-1-2")
    yield lab.server
    lab.directory.close()


@pytest.fixture
def sql(server: Server) -> SqlSession:
    return SqlSession(server, 42, "repl@localhost", grants=REPLICA_AND_WATCHER)


def run(sql: SqlSession, text: str) -> ResultSet | None:
    """The result; what takes long is done here and now, and what fails is told as a conversation tells it."""
    try:
        return _run(sql, text)
    except ServerError as error:
        sql.failed(error)
        raise
    except StorageError as error:
        told = server_error(error)
        sql.failed(told)
        raise told from error


def _run(sql: SqlSession, text: str) -> ResultSet | None:
    result = sql.execute(text)
    if isinstance(result, Work):
        try:
            return result.run()
        finally:
            result.done()
    if isinstance(result, RowStream):
        return ResultSet(result.columns, [row for batch in result.batches for row in batch])
    if isinstance(result, Computed):
        found = result.run()
        result.done()
        return found
    assert not isinstance(result, Wait | Deed)
    return result


def rows(sql: SqlSession, text: str) -> list[tuple[Value, ...]]:
    result = run(sql, text)
    assert result is not None
    return [tuple(row) for row in result.rows]


def value(sql: SqlSession, text: str) -> Value:
    ((found,),) = rows(sql, text)
    return found


def errno(sql: SqlSession, text: str) -> int:
    with pytest.raises(ServerError) as caught:
        run(sql, text)
    return caught.value.errno


COLUMNS = {
    "SHOW MASTER STATUS": [
        ("File", TEXT),
        ("Position", BIGINT),
        ("Binlog_Do_DB", TEXT),
        ("Binlog_Ignore_DB", TEXT),
        ("Gtid_Binlog_Pos", TEXT),
    ],
    "SHOW BINARY LOGS": [("Log_name", TEXT), ("File_size", BIGINT)],
    "SHOW SLAVE HOSTS": [
        ("Server_id", INTEGER),
        ("Host", TEXT),
        ("Port", INTEGER),
        ("Master_id", INTEGER),
    ],
    "SHOW PROCESSLIST": [
        ("Id", BIGINT),
        ("User", TEXT),
        ("Host", TEXT),
        ("db", TEXT),
        ("Command", TEXT),
        ("Time", INTEGER),
        ("State", TEXT),
        ("Info", TEXT),
        ("Progress", DOUBLE),
    ],
    "SHOW WARNINGS": [("Level", TEXT), ("Code", INTEGER), ("Message", TEXT)],
    "SHOW VARIABLES": [("Variable_name", TEXT), ("Value", TEXT)],
    "SHOW STATUS": [("Variable_name", TEXT), ("Value", TEXT)],
    "SELECT UNIX_TIMESTAMP()": [("UNIX_TIMESTAMP()", BIGINT)],
    "SELECT @@version, @@server_id AS id": [("@@version", TEXT), ("id", BIGINT)],
}


@pytest.mark.parametrize("text", COLUMNS)
def test_columns(sql: SqlSession, text: str) -> None:
    result = run(sql, text)
    assert result is not None
    assert [(column.name, column.type) for column in result.columns] == COLUMNS[text]
    for column in result.columns:
        assert Column.parse(column.build()) == column


def test_rows_of_show(sql: SqlSession, server: Server) -> None:
    ((name, size),) = rows(sql, "SHOW BINARY LOGS")
    assert name == "binlog-000000.ibb"
    assert size == 1 << 20
    ((file, position, do, ignore, gtid_binlog_pos),) = rows(sql, "SHOW MASTER STATUS")
    assert file == name
    assert position == server.engine.written_end.offset
    assert (do, ignore) == ("", "")
    assert set(str(gtid_binlog_pos).split(",")) == {"0-1-2", "5-2-8"}
    assert rows(sql, "SHOW WARNINGS") == []
    assert rows(sql, "SHOW SLAVE HOSTS") == []
    assert rows(sql, "SHOW STATUS LIKE 'uptime'") == [("Uptime", "0")]
    assert rows(sql, "SHOW STATUS LIKE 'binlog_snapshot_%'") == []


SELECTED: dict[str, Value] = {
    "@@server_id": 7,
    "@@global.gtid_domain_id": 3,
    "@@GLOBAL.binlog_storage_engine": "innodb",
    "@@binlog_checksum": "NONE",
    "@@log_bin": 1,
    "@@read_only": 0,
    "@@performance_schema": 0,
    "@@gtid_strict_mode": 0,
    "@@sql_mode": SQL_MODE,
    "@@max_statement_time": "0.000000",
    "@@gtid_slave_pos": "0-1-2,5-2-8",
    "VERSION()": "11.8.9-MariaDB-binlog-server",
    "CONNECTION_ID()": 42,
    "CURRENT_USER()": "repl@localhost",
    "DATABASE()": None,
    "@never_set": None,
    "NULL": None,
    "1": 1,
    "'a'": "a",
    "18446744073709551615": 2**64 - 1,
    "123456789012345678901": "123456789012345678901",
}


@pytest.mark.parametrize("text", SELECTED)
def test_select(sql: SqlSession, text: str) -> None:
    found = value(sql, f"SELECT {text}")
    assert found == SELECTED[text]
    assert type(found) is type(SELECTED[text])


def test_who_the_session_is(sql: SqlSession) -> None:
    """As MariaDB since 11.7: the account is that of SESSION_USER(), the address that of the others."""
    sql.account, sql.current_user = "repl@10.1.2.3", "repl@%"
    asked = "SELECT USER(), SYSTEM_USER(), SESSION_USER(), CURRENT_USER()"
    assert rows(sql, asked) == [("repl@10.1.2.3", "repl@10.1.2.3", "repl@%", "repl@%")]


def test_select_of_several(sql: SqlSession) -> None:
    sql.execute("SET @a='x'")
    text = "SELECT @@server_id, @a, 5, @@global.version_comment, @b LIMIT 1"
    assert rows(sql, text) == [(7, "x", 5, "binlog-server", None)]
    assert rows(sql, "SELECT 1 LIMIT 0") == []


OF_A_PLUGIN = {"file_key_management_encryption_algorithm", "file_key_management_filename"}
"""Unknown, as in a MariaDB, where the plugin of their names is not used: tests/integration/test_encrypted_server.py."""


@pytest.mark.by_turns(8)
@pytest.mark.parametrize("name", sorted(VARIABLES.keys() - OF_A_PLUGIN))
def test_each_variable_can_be_selected_and_shown(sql: SqlSession, name: str) -> None:
    sql.execute("SET timestamp=5")  # else it goes on
    selected = value(sql, f"SELECT @@{name}")
    if not VARIABLES[name].is_shown:  # of 10.11
        assert rows(sql, f"SHOW VARIABLES LIKE '{name}'") == []
        return
    found = rows(sql, f"SHOW VARIABLES LIKE '{name.upper()}'")
    (shown,) = (text for shown_name, text in found if shown_name == name)
    if selected is None:
        assert shown == ""
    elif isinstance(VARIABLES[name].kind, Switch):
        assert (selected, shown) in ((1, "ON"), (0, "OFF"))
    else:
        assert str(selected) == shown


ERRORS = {
    "SELECT @@no_such": 1193,
    "SELECT @@GLOBAL.server_uuid": 1193,
    "SELECT @@gtid_mode": 1193,
    "SELECT @@a, 1, @@b": 1193,
    "SET no_such=1": 1193,
    "SET GLOBAL no_such=1": 1193,
    "SET @@session.no_such=1": 1193,
    "SET @a=@@no_such": 1193,
    "SET version='x'": 1238,
    "SET log_bin=0": 1238,
    "SET GLOBAL server_uid='x'": 1238,
    "SET GLOBAL net_write_timeout=5": 1227,
    "SET @@global.sql_mode=''": 1227,
    "SET autocommit=2": 1231,
    "SET autocommit='maybe'": 1231,
    "SET skip_replication=NULL": 1231,
    "SET sql_mode=NULL": 1231,
    "SET net_write_timeout='soon'": 1232,
    "SET net_write_timeout=''": 1232,
    "SET wait_timeout=@unset": 1232,
    "SET GLOBAL gtid_seq_no=5": 1228,
    "SET GLOBAL timestamp=5": 1228,
    "SET max_statement_time='x'": 1232,
    "SET tx_isolation='x'": 1231,
    "SET transaction_isolation=7": 1231,
    "SET time_zone='+13:01'": 1298,
    "SET time_zone='-13:00'": 1298,
    "SET time_zone='+1'": 1298,
    "SET time_zone='nowhere'": 1298,
    "SET TRANSACTION READ ONLY, READ WRITE": 1064,
    "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE, ISOLATION LEVEL READ COMMITTED": 1064,
    "SET time_zone='zone.tab'": 1298,
    "SET time_zone='05:00'": 1298,
    "SET time_zone=''": 1298,
    "SET time_zone=5": 1232,
    "SET net_write_timeout='7'": 1232,
    "SET net_write_timeout=7.0": 1232,
    "SET timestamp='100'": 1232,
    "SET max_statement_time='1'": 1232,
    "SET insert_id='5'": 1232,
    "SET autocommit='1'": 1231,
    "SET autocommit='true'": 1231,
    "SET autocommit=1.0": 1232,
    "SET tx_isolation=1.0": 1232,
    "SET sql_mode='4'": 1231,
    "SET sql_mode=' ansi'": 1231,
    "SET sql_mode='ansi, oracle'": 1231,
    "SET sql_mode=34359738368": 1231,
    "SET sql_mode=-1": 1231,
    "SET sql_mode=1.5": 1232,
    "SET collation_connection=1.5": 1232,
    "SET character_set_client=1.5": 1232,
    "SET default_master_connection=5": 1232,
    "SET optimizer_switch='x'": 1231,
    "SET optimizer_switch='index_merge=1'": 1231,
    "SET optimizer_switch='mrr=on, mrr_sort_keys=off'": 1231,
    "SET NAMES utf8mb4 COLLATE latin1_swedish_ci": 1253,
    "SELECT @@session.port": 1238,
    "SELECT @@global.gtid_seq_no": 1238,
    "SELECT nothing": 1054,
    "SET STATEMENT autocommit=0 FOR SELECT 1": 1971,
    "SET STATEMENT max_connections=5 FOR SELECT 1": 1229,
    "SET STATEMENT no_such=1 FOR SELECT 1": 1193,
    "SET STATEMENT max_statement_time='x' FOR SELECT 1": 1232,
    "SHOW SLAVE 'x' STATUS": 1617,
    "KILL 'x'": 1094,
    "KILL NULL": 1094,
    "KILL QUERY ID 5": 1957,
    "SET @a=DEFAULT": 1064,
    "SELECT no_such_function()": 1305,
    "SELECT BINLOG_GTID_POS('binlog-000000.ibb', 4)": 4247,
    "KILL 99": 1094,
}


@pytest.mark.parametrize("text", ERRORS)
def test_errors(sql: SqlSession, text: str) -> None:
    assert errno(sql, text) == ERRORS[text]


LOOSE = {
    "SET @a=1": 1,
    "set   @A  =  1 ;": 1,
    "SET @a:=1": 1,
    "SET @a='1'": "1",
    'SET @a="x"': "x",
    "SET @a=-5": -5,
    "SET @b=2, @a=3": 3,
    "SET @a = @@global.binlog_checksum": "NONE",
    "SET @a = @@server_id": 7,
    "SET @a=NULL": None,
    "SET @a=TRUE": 1,
    "SET NAMES utf8, @a=4": 4,
    "SET @source_heartbeat_period=9, @a=9": 9,
    "/*!50000 SET @a=6 */": 6,
}


@pytest.mark.parametrize("text", LOOSE)
def test_set_loosely(sql: SqlSession, text: str) -> None:
    assert sql.execute(text) is None
    assert value(sql, "SELECT @a") == LOOSE[text]


def test_set_uuid(sql: SqlSession) -> None:
    sql.execute("set @slave_uuid=uuid()")
    found = value(sql, "SELECT @slave_uuid")
    assert isinstance(found, str)
    assert len(found) == 36


@pytest.mark.parametrize(
    "text", [t for t in ERRORS if t.startswith("SET") and not t.startswith("SET STATEMENT")]
)
def test_failed_set_sets_nothing(sql: SqlSession, text: str) -> None:
    rest = text.removeprefix("SET ").removeprefix("GLOBAL ")
    failing = text.replace("SET ", "SET @x=1, autocommit=0, ", 1)
    assert rest
    assert errno(sql, failing) == ERRORS[text]
    assert value(sql, "SELECT @x") is None
    assert value(sql, "SELECT @@autocommit") == 1


def test_values_are_those_before_the_statement(sql: SqlSession) -> None:
    sql.execute("SET @a=1, @b=@a")
    assert rows(sql, "SELECT @a, @b") == [(1, None)]


def test_each_variable_that_is_kept_can_be_set_and_put_back(sql: SqlSession) -> None:
    """In a session, and for sessions that log in later; the values of all are bounded."""
    sql.grants = frozenset({"ALL PRIVILEGES"})
    kept = [v for v in VARIABLES.values() if v.is_kept and v.is_shown]
    assert len(kept) > 400
    for variable in kept:
        name = variable.name
        if variable.set_session is not None:
            before = value(sql, f"SELECT @@session.{name}")
            if before is not None:
                sql.execute(f"SET SESSION {name} = @@session.{name}")
                assert value(sql, f"SELECT @@session.{name}") == before, name
            if variable.has_default:
                sql.execute(f"SET SESSION {name} = DEFAULT")
                assert value(sql, f"SELECT @@session.{name}") == before, name
        if variable.set_global is not None and value(sql, f"SELECT @@global.{name}") is not None:
            before = value(sql, f"SELECT @@global.{name}")
            if name not in ("innodb_lru_flush_size", "innodb_buffer_pool_size_auto_min"):
                sql.execute(f"SET GLOBAL {name} = @@global.{name}")
                assert value(sql, f"SELECT @@global.{name}") == before, name
            sql.execute(f"SET GLOBAL {name} = DEFAULT")
            assert value(sql, f"SELECT @@global.{name}") == before, name
    assert sql.variable_bytes < 100_000


def test_new_sessions_begin_with_global_values(sql: SqlSession, server: Server) -> None:
    """The others keep theirs, also those of which nothing was SET; DEFAULT is the global value of now."""
    sql.grants = frozenset({"SUPER"})
    sql.execute("SET GLOBAL group_concat_max_len=77, GLOBAL sql_mode='ANSI_QUOTES'")
    assert rows(sql, "SELECT @@group_concat_max_len, @@sql_mode") == [(1048576, SQL_MODE)]
    later = SqlSession(server, 43, "x@localhost")
    asked = "SELECT @@group_concat_max_len, @@sql_mode"
    assert rows(later, asked) == [(77, "ANSI_QUOTES")]
    later.execute("SET group_concat_max_len=5, sql_mode=''")
    sql.execute("SET GLOBAL group_concat_max_len=78")
    later.execute("SET group_concat_max_len=DEFAULT")
    assert rows(later, asked) == [(78, "")]
    later.reset()
    assert rows(later, asked) == [(78, "ANSI_QUOTES")]
    sql.execute("SET GLOBAL innodb_io_capacity=300")
    ((level, code, text),) = rows(sql, "SHOW WARNINGS")
    assert (level, code) == ("Note", 1105)
    assert "no effect here" in str(text)


def test_what_would_promise_what_does_not_happen(sql: SqlSession) -> None:
    sql.grants = frozenset({"ALL PRIVILEGES"})
    for text in (
        *("SET GLOBAL replicate_do_db='a'", "SET GLOBAL init_connect='SET @a=1'"),
        "SET character_set_collations='utf8mb4=utf8mb4_bin'",
    ):
        assert errno(sql, text) == 1235
    sql.execute("SET GLOBAL replicate_do_db='', GLOBAL init_connect=DEFAULT")


def test_a_scope_holds_for_what_follows(sql: SqlSession) -> None:
    """Asked from a real 11.8. Not for @@x."""
    sql.grants = frozenset({"SUPER"})
    sql.execute(
        "SET SESSION net_write_timeout=9, GLOBAL net_read_timeout=8, net_write_timeout=6, "
        "@@net_read_timeout=3, @x=1, lock_wait_timeout=44"
    )
    names = ("net_write_timeout", "net_read_timeout", "lock_wait_timeout")
    asked = ", ".join(f"@@global.{name}, @@session.{name}" for name in names)
    assert rows(sql, f"SELECT {asked}") == [(6, 9, 8, 3, 44, 86400)]


def test_session_and_global(sql: SqlSession, server: Server) -> None:
    sql.execute("SET SESSION net_write_timeout=5")
    assert value(sql, "SELECT @@net_write_timeout") == 5
    assert value(sql, "SELECT @@session.net_write_timeout") == 5
    assert value(sql, "SELECT @@global.net_write_timeout") == 60
    like = "VARIABLES LIKE 'net_write_timeout'"
    assert rows(sql, f"SHOW {like}") == [("net_write_timeout", "5")]
    assert rows(sql, f"SHOW SESSION {like}") == [("net_write_timeout", "5")]
    assert rows(sql, f"SHOW GLOBAL {like}") == [("net_write_timeout", "60")]
    other = SqlSession(server, 43, "repl@localhost", grants=REPLICA_AND_WATCHER)
    assert value(other, "SELECT @@net_write_timeout") == 60
    sql.execute("SET net_write_timeout=DEFAULT")
    assert value(sql, "SELECT @@net_write_timeout") == 60


@pytest.mark.parametrize(
    ("given", "kept"), [("0", 1), ("-3", 1), ("7", 7), ("99999999999999999", 31536000)]
)
def test_timeouts_are_cut_to_their_range(sql: SqlSession, given: str, kept: int) -> None:
    sql.execute(f"SET net_write_timeout={given}")
    assert value(sql, "SELECT @@net_write_timeout") == kept


@pytest.mark.parametrize(
    ("given", "cut"), [("99999999999999999999", 2**63 - 1), ("-99999999999999999999", -(2**63))]
)
def test_numbers_beyond_64_bits(sql: SqlSession, given: str, cut: int) -> None:
    sql.execute(f"SET net_write_timeout={given}")
    assert rows(sql, "SHOW WARNINGS") == [
        ("Warning", 1916, f"Got overflow when converting '{given}' to INT. Value truncated"),
        ("Warning", 1292, f"Truncated incorrect net_write_timeout value: '{cut}'"),
    ]


def test_numbers_from_variables(sql: SqlSession) -> None:
    """Their type goes with them: what was a number may be set again, what was a text is none."""
    sql.execute("SET max_statement_time=1.5, timestamp=1.1234567, default_master_connection='5'")
    assert value(sql, "SELECT @@timestamp") == "1.123456"
    sql.execute("SET @m=@@max_statement_time, @c=@@default_master_connection, @n='5', @y=TRUE")
    sql.execute("SET max_statement_time=@m, default_master_connection=@c")
    sql.execute("SET max_statement_time=@@max_statement_time, net_write_timeout=@y")
    sql.execute("SET net_write_timeout=TRUE, autocommit=FALSE")
    assert value(sql, "SELECT @@max_statement_time") == "1.500000"
    assert value(sql, "SELECT @@autocommit") == 0
    assert errno(sql, "SET net_write_timeout=@n") == 1232
    assert errno(sql, "SET net_write_timeout=@c") == 1232


def test_sql_mode_is_shown_as_it_is_meant(sql: SqlSession) -> None:
    """As 10.11 and 11.8 show them: in their own order, with all that they stand for."""
    ansi = "REAL_AS_FLOAT,PIPES_AS_CONCAT,ANSI_QUOTES,IGNORE_SPACE,ANSI"
    other = "PIPES_AS_CONCAT,ANSI_QUOTES,IGNORE_SPACE,{},NO_KEY_OPTIONS,NO_TABLE_OPTIONS,NO_FIELD_OPTIONS"
    for said, shown in {
        "'ansi'": ansi,
        "262144": ansi,
        "'ansi ,,strict_all_tables'": f"{ansi},STRICT_ALL_TABLES",
        "'ansi_quotes,real_as_float'": "REAL_AS_FLOAT,ANSI_QUOTES",
        "5": "REAL_AS_FLOAT,ANSI_QUOTES",
        "256": other.format("POSTGRESQL"),
        "'mssql'": other.format("MSSQL"),
        "'db2'": other.format("DB2"),
        "'maxdb'": other.format("MAXDB") + ",NO_AUTO_CREATE_USER",
        "'mysql40'": "MYSQL40,HIGH_NOT_PRECEDENCE",
        "0": "",
        "17179869184": "TIME_ROUND_FRACTIONAL",
    }.items():
        sql.execute(f"SET sql_mode={said}")
        assert value(sql, "SELECT @@sql_mode") == shown
        sql.execute("SET @m=@@sql_mode, sql_mode=''")
        sql.execute("SET sql_mode=@m")
        assert value(sql, "SELECT @@sql_mode") == shown


def test_time_zones(sql: SqlSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zoneinfo, "TZPATH", (str(tmp_path / "none"), str(tmp_path)))
    (tmp_path / "Middle/Of").mkdir(parents=True)
    (tmp_path / "Middle/Of/No_Where").write_bytes(b"TZif2")
    (tmp_path / "Middle/readme").write_bytes(b"A text")
    (tmp_path / "Middle/back").symlink_to(tmp_path)
    for name in ("middle/of/NO_where", "system", "+05:30"):
        sql.execute(f"SET time_zone='{name}'")
        kept = "SYSTEM" if name == "system" else name
        assert value(sql, "SELECT @@time_zone") == kept
    for name in ("Middle", "Middle/Of", "Middle/readme", "../Middle", "Of/No_Where", "a/" * 30):
        assert errno(sql, f"SET time_zone='{name}'") == 1298


@pytest.mark.parametrize(
    ("given", "kept"),
    [("+2:0", "+02:00"), ("-0:0", "+00:00"), ("+002:5", "+02:05"), ("-12:59", "-12:59")],
)
def test_offsets_are_kept_in_one_form(sql: SqlSession, given: str, kept: str) -> None:
    """As an 11.8 shows and logs them."""
    sql.execute(f"SET time_zone='{given}'")
    assert value(sql, "SELECT @@time_zone") == kept


def test_folders_of_time_zones_are_listed_once(
    sql: SqlSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One statement may name 300, on the loop."""
    sql.execute("SET time_zone='America/Argentina/San_Luis'")
    assert errno(sql, "SET time_zone='America/Argentina/Elsewhere'") == 1298

    def never(path: Path) -> None:
        raise AssertionError(f"{path} is read")

    monkeypatch.setattr(Path, "iterdir", never)
    monkeypatch.setattr(Path, "open", never)
    sql.execute("SET " + ",".join(["time_zone='America/argentina/San_Luis'"] * 300))
    assert errno(sql, "SET time_zone='America/Argentina/Nowhere'") == 1298


def test_booleans(sql: SqlSession) -> None:
    for text, shown in (("0", "OFF"), ("1", "ON"), ("off", "OFF"), ("'On'", "ON"), ("OFF", "OFF")):
        sql.execute(f"SET skip_replication={text}")
        assert rows(sql, "SHOW VARIABLES LIKE 'skip_replication'") == [("skip_replication", shown)]
        assert value(sql, "SELECT @@skip_replication") == int(shown == "ON")


def test_text_that_looks_like_a_number(sql: SqlSession) -> None:
    for text in ("9" * 5000, "٣", "1e9", "0x5", "nan"):
        assert errno(sql, f"SET max_statement_time='{text}'") == 1232


def test_values_beyond_the_range_are_cut_with_a_warning(sql: SqlSession) -> None:
    sql.execute("SET wait_timeout=0, auto_increment_increment=99999, max_statement_time=-1")
    assert rows(sql, "SHOW WARNINGS") == [
        ("Warning", 1292, f"Truncated incorrect {name} value: '{value}'")
        for name, value in (
            ("wait_timeout", 0),
            ("auto_increment_increment", 99999),
            ("max_statement_time", -1),
        )
    ]
    assert rows(sql, "SELECT @@wait_timeout, @@max_statement_time") == [(1, "0.000000")]


def test_two_names_of_one_variable(sql: SqlSession) -> None:
    sql.execute("SET tx_isolation=1")
    assert value(sql, "SELECT @@transaction_isolation") == "READ-COMMITTED"
    sql.execute("SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY")
    assert rows(sql, "SELECT @@tx_isolation, @@tx_read_only") == [("SERIALIZABLE", 1)]
    sql.execute("SET transaction_isolation=DEFAULT")
    assert value(sql, "SELECT @@tx_isolation") == "REPEATABLE-READ"


def test_results_need_no_character_set(sql: SqlSession) -> None:
    sql.execute("SET character_set_results=NULL")
    assert value(sql, "SELECT @@character_set_results") is None
    assert rows(sql, "SHOW VARIABLES LIKE 'character_set_results'") == [
        ("character_set_results", "")
    ]


def test_set_statement(sql: SqlSession) -> None:
    sql.execute("SET sql_mode='ANSI'")
    text = "SET STATEMENT sql_mode='', max_statement_time=5 FOR SELECT @@sql_mode"
    assert value(sql, text) == ""
    assert errno(sql, "SET STATEMENT sql_mode='' FOR SELECT @@no_such") == 1193
    assert str(value(sql, "SELECT @@sql_mode")).endswith(",ANSI")


def test_set_statement_needs_what_its_statement_needs(server: Server) -> None:
    nobody = SqlSession(server, 42, "nobody@localhost", grants=frozenset())
    assert errno(nobody, "SET STATEMENT sql_mode='' FOR SHOW MASTER STATUS") == 1227
    assert errno(nobody, "SET STATEMENT sql_mode='' FOR SHOW ALL SLAVES STATUS") == 1227


def test_reset(sql: SqlSession) -> None:
    sql.execute("SET @a=1, autocommit=0")
    sql.reset()
    assert rows(sql, "SELECT @a, @@autocommit") == [(None, 1)]


def test_show_variables_filters(sql: SqlSession) -> None:
    text = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('SERVER_ID', 'port', 'nonsense')"
    assert [name for name, _ in rows(sql, text)] == ["port", "server_id"]
    assert rows(sql, "SHOW VARIABLES WHERE Variable_name = 'Server_Id'") == [("server_id", "7")]
    text = "SHOW VARIABLES LIKE 'rpl_semi_sync_master_enabled'"
    assert rows(sql, text) == [("rpl_semi_sync_master_enabled", "OFF")]
    found = [name for name, _ in rows(sql, "SHOW VARIABLES LIKE 'gtid\\_%'")]
    assert "gtid_binlog_pos" in found
    assert all(str(name).startswith("gtid_") for name in found)
    everything = [str(name) for name, _ in rows(sql, "SHOW VARIABLES")]
    assert everything == sorted(everything)
    assert set(everything) == {n for n, v in VARIABLES.items() if v.is_shown} - OF_A_PLUGIN


CONDITIONS = {
    "Variable_name = 'NET_WRITE_TIMEOUT'": True,
    "Variable_name='net_write_timeout' AND NOT (Value <> 60)": True,
    "Variable_name='net_write_timeout' && Value >= 60 && Value <= 60": True,
    "Variable_name='net_write_timeout' AND (Value < 60 OR Value > 60)": False,
    "Variable_name='net_write_timeout' AND !(Value = '60')": False,
    "Variable_name='net_write_timeout' AND Value < '9'": True,
    "Variable_name='net_write_timeout' AND Value < 9": False,
    "Variable_name <=> 'net_write_timeout'": True,
    "Variable_name BETWEEN 'net_write' AND 'net_write_timeout'": True,
    "Variable_name NOT BETWEEN 'net_write' AND 'net_write_timeout'": False,
    "Variable_name='x' || `variable_name` IN ('net_write_timeout', 'y')": True,
    "Variable_name='net_write_timeout' AND Value IS NOT NULL": True,
    "Value IS NULL": False,
}


@pytest.mark.parametrize("text", CONDITIONS)
def test_conditions(sql: SqlSession, text: str) -> None:
    """As 11.8 answers them."""
    names = [name for name, _ in rows(sql, f"SHOW VARIABLES WHERE {text}")]
    assert ("net_write_timeout" in names) is CONDITIONS[text]


def test_unknown_column(sql: SqlSession) -> None:
    assert errno(sql, "SHOW VARIABLES WHERE NOT (Value=1 OR nothing=2)") == 1054


LIKE = [
    ("server_id", "server_id", True),
    ("SERVER_ID", "server_id", True),
    ("server\\_id", "server_id", True),
    ("server\\_id", "serverxid", False),
    ("serverxid", "server_id", False),
    ("server_id", "serverxid", True),
    ("%", "", True),
    ("", "", True),
    ("", "x", False),
    ("_", "", False),
    ("%id", "server_id", True),
    ("%id", "server_ids", False),
    ("ser%er%d", "server_id", True),
    ("%e%e%e%", "server_id", False),
    ("a%b_c", "aXbbbYc", True),
    ("100\\%", "100%", True),
    ("100\\%", "1000", False),
    ("x\\", "x\\", True),
    ("any text", "any text", True),
    (".*", "abc", False),
    ("%" * 1000 + "x", "y" * 1000, False),
    ("%_" * 200 + "x", "y" * 1000, False),
]


def like_step_by_step(pattern: str, text: str) -> bool:
    """As its definition says."""
    if not pattern:
        return not text
    head, tail = pattern[0], pattern[1:]
    if head == "%":
        return like_step_by_step(tail, text) or (
            bool(text) and like_step_by_step(pattern, text[1:])
        )
    if head == "\\" and tail:
        head, tail = tail[0], tail[1:]
    elif head == "_" and text:
        head = text[0]
    return text[:1].lower() == head.lower() and like_step_by_step(tail, text[1:])


@given(st.text(alphabet="abA%_\\", max_size=8), st.text(alphabet="abB%\\", max_size=8))
@settings(max_examples=300)
def test_like_is_as_defined(pattern: str, text: str) -> None:
    assert like_matches(pattern, text) is like_step_by_step(pattern, text)


@pytest.mark.parametrize(
    "pattern", ["%a" * 30_000, "a" * 60_000, "_" * 60_000, "%" + "_1" * 30_000 + "%", "%1" * 30_000]
)
def test_no_like_takes_the_product_of_both(pattern: str) -> None:
    began = time.thread_time()
    like_matches(pattern, "1-1-1," * 20_000)
    assert time.thread_time() - began < 5  # and not 10^9 steps


@pytest.mark.parametrize(("pattern", "name", "matches"), LIKE)
def test_like(pattern: str, name: str, matches: bool) -> None:
    assert like_matches(pattern, name) is matches


def test_user_variables_are_limited(sql: SqlSession) -> None:
    for number in range(USER_VARIABLES_MAX):
        sql.execute(f"SET @v{number}=1")
    assert errno(sql, "SET @one_more=1") == 1231
    sql.execute("SET @v1=2")
    sql.reset()
    many = ", ".join(f"@v{number}=1" for number in range(USER_VARIABLES_MAX + 1))
    assert errno(sql, f"SET {many}") == 1231
    assert value(sql, "SELECT @v0") is None


def test_row_is_limited(sql: SqlSession) -> None:
    sql.execute(f"SET @a='{'x' * 60_000}'")
    count = ROW_CHARS_MAX // 60_000
    assert len(rows(sql, "SELECT " + ",".join(["@a"] * count))[0]) == count
    assert errno(sql, "SELECT " + ",".join(["@a"] * (count + 1))) == 1105


def test_a_text_in_another_character_set_is_decoded_once(
    sql: SqlSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statement is short, however often it names the text; what it decodes is bounded."""
    decoded = []

    def noted(raw: bytes, collation: int) -> object:
        decoded.append(len(raw))
        return decode_text(raw, collation)

    monkeypatch.setattr("binlog_server.sql.sql_session.decode_text", noted)
    sql.execute("SET NAMES cp932")
    sql.execute("SET @a='" + "я" * 1_000 + "', @b='" + "я" * 20_000 + "'")
    sql.execute("SET NAMES utf8mb4")
    for _ in range(2):
        decoded.clear()
        assert len(rows(sql, "SELECT " + ",".join(["@a"] * 256))[0]) == 256
        assert len(decoded) == 1  # of each statement: nothing is kept between them
    decoded.clear()
    sql.execute("SET NAMES cp932")
    sql.execute("SET @c='" + "ж" * 20_000 + "'")
    sql.execute("SET NAMES utf8mb4")
    assert errno(sql, "SELECT @a, @b, @c") == 1105
    assert sum(decoded) <= DECODED_BYTES_MAX
    assert len(rows(sql, "SELECT @a, @b")[0]) == 2


@pytest.mark.parametrize("last", ["x", "ä", "\u20ac", "\U0001f600"])
def test_room_of_variables_is_counted_in_memory(sql: SqlSession, last: str) -> None:
    """One character decides how many bytes each beside it takes."""
    limit = sql.server.config.max_session_mem_used
    filled = (f"SET @v{number}='{'x' * 60_000}{last}'" for number in range(USER_VARIABLES_MAX))
    with pytest.raises(ServerError, match="max-session-mem-used"):
        list(map(sql.execute, filled))
    taken = sum(getsizeof(held.value) for held in sql.user_variables.values())
    assert limit - 300_000 < taken <= sql.variable_bytes <= limit


def test_gtid_positions(sql: SqlSession) -> None:
    assert set(str(value(sql, "SELECT @@gtid_binlog_pos")).split(",")) == {"0-1-2", "5-2-8"}
    assert value(sql, "SELECT @@gtid_binlog_state") == value(sql, "SELECT @@gtid_current_pos")


def test_slave_pos_is_what_was_set() -> None:
    """Also where its GTID is as if it were made here; what is made here later is no slave's."""
    lab = Lab(server_id=7)
    sql = SqlSession(lab.server, 1, "", grants=frozenset({"SUPER"}))
    work = sql.execute("SET GLOBAL gtid_slave_pos='0-7-1'")
    assert isinstance(work, Work)
    work.run()
    work.done()
    assert value(sql, "SELECT @@gtid_slave_pos") == "0-7-1"
    assert rows(sql, "SHOW VARIABLES LIKE 'gtid_slave_pos'") == [("gtid_slave_pos", "0-7-1")]
    assert errno(sql, "SET GLOBAL gtid_slave_pos=NULL") == 1231
    lab.publish("0-7-2")
    assert value(sql, "SELECT @@gtid_slave_pos") == ""
    lab.directory.close()


def test_slave_pos_is_that_of_a_relay() -> None:
    lab = Lab(upstream={"": MasterInfo("h", 3306, "u")})
    lab.publish("0-1-4")
    assert value(SqlSession(lab.server, 1, ""), "SELECT @@gtid_slave_pos") == "0-1-4"
