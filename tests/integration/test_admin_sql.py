"""Admin statements side by side with a real server: the same columns and types, errors and warnings."""

from __future__ import annotations

from typing import Any

import pymysql
import pytest

from binlog_server.testing.waiting import until
from tests.integration.load import insert
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB, MakeRelay

pytestmark = [pytest.mark.each_version, pytest.mark.by_turns(2)]

ROOT = {"root": {"password": "pw", "grants": ["BINLOG REPLAY"]}, "repl": "secret"}

Outcome = tuple[str, Any]


def outcome(cursor: Any, text: str) -> Outcome:
    """The error; or the columns with their types, and how many warnings there are."""
    try:
        cursor.execute(text)
        cursor.fetchall()
    except pymysql.Error as error:
        return "error", error.args
    return "columns", [(d[0], d[1]) for d in cursor.description or ()]


# The two have nothing to do with each other's history: only what does not depend on it is compared.
SAME = [
    "SHOW BINARY LOGS",
    "SHOW MASTER LOGS",
    "SHOW BINLOG EVENTS LIMIT 1",
    "SHOW BINLOG EVENTS IN 'nope'",
    "SHOW SLAVE HOSTS",
    "SHOW REPLICA HOSTS",
    "SHOW PROCESSLIST",
    "SHOW ENGINES",
    "SHOW STORAGE ENGINES",
    "SHOW DATABASES",
    "SHOW DATABASES LIKE 'my%'",
    "SHOW WARNINGS",
    "SHOW WARNINGS LIMIT 1",
    "SHOW ERRORS",
    "SHOW COUNT(*) WARNINGS",
    "SHOW COUNT(*) ERRORS",
    "SHOW VARIABLES LIKE 'port'",
    "SHOW VARIABLES WHERE Variable_name = 'port' AND Value > 5",
    "SHOW VARIABLES WHERE `Variable_name` IN ('port', 'hostname') OR Value = 'OFF'",
    "SHOW GLOBAL STATUS LIKE 'Threads_c%'",
    "SELECT @@warning_count, @@error_count",
    "SELECT MASTER_GTID_WAIT('0-1-5555555', 0.01)",
    "SELECT MASTER_GTID_WAIT('nonsense', 0.01)",
    "SELECT BINLOG_GTID_POS('x')",
    "PURGE BINARY LOGS TO 'nope'",
    "PURGE BINARY LOGS BEFORE '1999-01-01'",
    "PURGE BINARY LOGS BEFORE 'garbage'",
    "PURGE MASTER LOGS BEFORE 19990101000000",
    "PURGE BINARY LOGS BEFORE NOW() - INTERVAL 3 DAY",
    "PURGE BINARY LOGS",
    "FLUSH BINARY LOGS",
    "FLUSH LOCAL BINARY LOGS",
    "FLUSH NO_WRITE_TO_BINLOG BINARY LOGS DELETE_DOMAIN_ID=(4711)",
    "FLUSH BINARY LOGS DELETE_DOMAIN_ID=()",
    "FLUSH BINARY LOGS DELETE_DOMAIN_ID=(99999999999)",
    "FLUSH BINARY LOGS DELETE_DOMAIN_ID=(0)",
    "FLUSH LOGS",
    "FLUSH STATUS",
    "SET GLOBAL gtid_binlog_state='0-1-5'",
    "SET gtid_binlog_state='0-1-5'",
    "SET max_binlog_size=65536",
    "SET GLOBAL max_binlog_size=99999999999",
    "SET GLOBAL max_binlog_size='x'",
    "SET GLOBAL wait_timeout=0",
    "SET GLOBAL net_write_timeout=-1",
    "SET GLOBAL binlog_expire_logs_seconds=99999999999",
    "SET GLOBAL expire_logs_days=1.5",
    "SET GLOBAL slave_connections_needed_for_purge=-1",
    "SET GLOBAL innodb_flush_log_at_trx_commit=7",
    "SET GLOBAL innodb_flush_log_at_trx_commit=1",
    "SET GLOBAL gtid_strict_mode=2",
    "SET SESSION gtid_strict_mode=1",
    "SET GLOBAL log_bin=1",
    "SET GLOBAL sync_binlog=1",
    "SET GLOBAL encrypt_binlog=1",
    "SET GLOBAL tc_heuristic_recover=1",
    "SET GLOBAL init_rpl_role=1",
    "SHOW REPLICAS",
    "/* nothing */",
    "/*!40100 */;",
    "/*!999999 DROP TABLE nope */",
    "/*!50712 DROP TABLE nope */",
    "/*!40100 SHOW WARNINGS */",
    "SHOW WARNINGS /*!40100 LIMIT 1 */ -- x",
    "SELECT /*!999999 /*!999999 1 */ */ 5",
    ";",
    "SHOW SLAVE 'x' STATUS",
    "SHOW SLAVE STATUS FOR CHANNEL 'x'",
    "SHOW ALL SLAVES STATUS WHERE 1",
    "SHOW PRIVILEGES",
    "SHOW MASTER STATUS LIMIT 1",
    "SHOW VARIABLES WHERE (Variable_name='port' OR Value='x') AND NOT Value <> 'y'",
    "SHOW VARIABLES WHERE Variable_name BETWEEN 'port' AND 'port' || Value IS NULL",
    "SHOW VARIABLES WHERE nope = 1 OR Value = 2",
    "SHOW GLOBAL VARIABLES WHERE VARIABLE_NAME IN ('gtid_strict_mode', 'read_only')",
    "SELECT 1, -1, 999999999, 1000000000, 18446744073709551615, NULL, 'it''s', TRUE",
    "SELECT 1 FROM DUAL LIMIT 1",
    "SELECT /*!40001 SQL_NO_CACHE */ @a, @@port AS p",
    "SELECT CURRENT_USER, CURRENT_USER(), USER(), VERSION(), DATABASE(), UNIX_TIMESTAMP()",
    "SELECT @@max_statement_time, @@timestamp, @@expire_logs_days, @@tx_read_only",
    "SELECT @@session.port",
    "SELECT @@global.gtid_seq_no",
    "SELECT @@server_uuid",
    "SELECT @@gtid_mode",
    # What MaxScale's monitor says.
    "SELECT @@gtid_current_pos, @@gtid_binlog_pos",
    "SELECT @@global.server_id, @@read_only, @@global.gtid_domain_id",
    "SELECT @@gtid_strict_mode, @@log_bin, @@log_slave_updates",
    "SHOW STATUS LIKE 'Uptime'",
    "SET STATEMENT max_statement_time=5 FOR SELECT @@gtid_binlog_pos",
    "SET STATEMENT max_statement_time='x' FOR SELECT 1",
    "SET STATEMENT autocommit=0 FOR SELECT 1",
    "SET STATEMENT nope=5 FOR SELECT 1",
    "SET wait_timeout='x'",
    "SET wait_timeout=NULL",
    "SET wait_timeout=99999999999",
    "SET net_write_timeout=0",
    "SET max_statement_time=-1",
    "SET timestamp='x'",
    "SET timestamp=-1",
    "SET timestamp=DEFAULT",
    "SET auto_increment_increment=0",
    "SET server_id=0",
    "SET server_id='x'",
    "SET gtid_domain_id=-1",
    "SET gtid_domain_id=DEFAULT",
    "SET GLOBAL gtid_seq_no=5",
    "SET sql_mode='nope'",
    "SET time_zone='+99:00'",
    "SET time_zone='+13:00'",
    "SET character_set_results=NULL",
    "SET NAMES utf8mb4 COLLATE latin1_swedish_ci",
    "SET NAMES utf8mb4",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE",
    "SET rpl_semi_sync_master_enabled=1",
    "SET GLOBAL rpl_semi_sync_master_enabled='x'",
    "SET GLOBAL rpl_semi_sync_master_wait_point='x'",
    "SET GLOBAL rpl_semi_sync_master_wait_point=AFTER_COMMIT",
    "/*!999999 SELECT 1 */ SELECT 2",
    "/*!50701 SELECT 1 */ SELECT 2",
    "/*M!100100 SELECT 1 */",
    "PURGE BINARY LOGS BEFORE DATE_SUB(NOW(), INTERVAL 3 MONTH)",
    "PURGE BINARY LOGS BEFORE CURDATE() - INTERVAL '2' YEAR",
    "FLUSH TABLES",
    "FLUSH PRIVILEGES",
    "FLUSH HOSTS",
    "KILL USER nobody@localhost",
    "KILL QUERY ID 4294967295",
    "KILL QUERY CONNECTION_ID()",
    "SELECT @@max_binlog_size, @@binlog_expire_logs_seconds",
    "KILL 4294967295",
    "KILL QUERY 4294967295",
]


def test_like_a_real_server(
    backend: object, make_upstream: MakeMariaDB, binlog_server: MakeBinlogServer
) -> None:
    real = make_upstream()
    ours = binlog_server(users=ROOT)
    with real.connect() as theirs, ours.connect() as own:
        there, here = theirs.cursor(), own.cursor()
        here.execute("CREATE DATABASE d")
        there.execute("CREATE DATABASE d")
        for text in SAME:
            expected, got = outcome(there, text), outcome(here, text)
            if expected[1][:1] == (1193,) and got[1][:1] != (1193,):
                continue  # a variable that this version does not have yet
            assert got == expected, text
            if expected[0] == "error" or not text.startswith(("SHOW", "SELECT")):
                there.execute("SHOW WARNINGS")
                here.execute("SHOW WARNINGS")
                # What has no effect here is told by a note of our own.
                told = [row for row in here.fetchall() if row["Code"] != 1105]
                # A real server keeps the list until another statement has something to say.
                if told:
                    assert told == there.fetchall(), text


ABOUT_ACCOUNTS = [
    "CREATE USER aa, bb",
    "RENAME USER aa TO cc, bb TO dd@localhost",
    "RENAME USER cc TO dd@localhost",
    "RENAME USER nobody TO x",
    "SHOW GRANTS FOR cc",
    "SHOW CREATE USER dd@localhost",
    "SHOW CREATE USER nobody",
    "SET PASSWORD FOR nobody = PASSWORD('x')",
    "SET PASSWORD FOR cc = 'x'",
    "GRANT RELOAD ON *.* TO nobody",
    "REVOKE ALL PRIVILEGES, GRANT OPTION FROM nobody",
    "REVOKE ALL PRIVILEGES, GRANT OPTION FROM cc",
    "DROP USER cc, dd@localhost",
    "DROP USER cc",
    "KILL CONNECTION_ID()",
]


def test_accounts_like_a_real_server(
    backend: object, make_upstream: MakeMariaDB, binlog_server: MakeBinlogServer
) -> None:
    real = make_upstream()
    ours = binlog_server(users={"root": {"password": "pw", "grants": ["ALL PRIVILEGES"]}})
    with real.connect() as theirs, ours.connect() as own:
        for text in ABOUT_ACCOUNTS:
            assert outcome(own.cursor(), text) == outcome(theirs.cursor(), text), text


def names(cursor: Any, text: str) -> list[str]:
    cursor.execute(text)
    return [d[0] for d in cursor.description]


SLAVE_STATUS = [
    "SHOW SLAVE STATUS",
    "SHOW REPLICA STATUS",
    "SHOW ALL SLAVES STATUS",
    "SET STATEMENT max_statement_time=5 FOR SHOW ALL REPLICAS STATUS",
]


def test_slave_status_has_the_columns_of_a_real_server(
    backend: object, make_upstream: MakeMariaDB, binlog_server: MakeBinlogServer
) -> None:
    """Their names: types are those of 11.8, which has three columns more in SHOW ALL SLAVES STATUS."""
    with make_upstream().connect() as theirs, binlog_server(users=ROOT).connect() as own:
        for text in SLAVE_STATUS:
            expected = names(theirs.cursor(), text)
            assert names(own.cursor(), text)[: len(expected)] == expected


def test_events_like_a_real_server(backend: object, make_relay: MakeRelay) -> None:
    upstream, ours = make_relay(users=ROOT)
    insert(upstream)
    upstream.script(
        "SET SESSION binlog_format=STATEMENT",
        "CREATE DATABASE e",
        "CREATE TABLE e.t (a INT AUTO_INCREMENT PRIMARY KEY, b INT)",
        "INSERT INTO e.t (b) VALUES (7)",
    )
    position = upstream.gtid_binlog_pos
    ours.q(f"SELECT MASTER_GTID_WAIT('{position}', 10)")
    skipped = {"Format_desc", "Gtid_list", "Binlog_checkpoint", "Rotate"}

    def events(rows: list[Any]) -> list[tuple[Any, ...]]:
        return [
            (row["Event_type"], row["Server_id"], row["Info"])
            for row in rows
            if row["Event_type"] not in skipped
        ]

    expected = events(upstream.q("SHOW BINLOG EVENTS"))
    assert len(expected) > 10
    assert events(ours.q("SHOW BINLOG EVENTS")) == expected
    name = ours.q("SHOW BINARY LOGS")[0]["Log_name"]
    assert len(ours.q(f"SHOW BINLOG EVENTS IN '{name}' LIMIT 2, 3")) == 3


@pytest.mark.any_version
def test_purge_with_a_replica(
    backend: object, make_replica: MakeMariaDB, binlog_server: MakeBinlogServer
) -> None:
    ours = binlog_server(users=ROOT, max_binlog_size=65536, replica_slot_seconds=0)
    ours.q("FLUSH BINARY LOGS")
    with pytest.raises(pymysql.Error, match="1378"):
        ours.q("PURGE BINARY LOGS TO 'binlog-000001.ibb'")
    ours.q("CREATE DATABASE d")
    replica = make_replica().follow(ours)
    replica.wait_gtid("0-1-1")
    (row,) = ours.q("SHOW BINLOG REPLICAS")
    assert row["Server_id"] == replica.server_id
    assert row["Sent_gtid"] == row["Durable_gtid"] == "0-1-1"
    assert (row["Gap_bytes"], row["Gap_ms"], row["Acknowledged_gtid"]) == (0, 0, None)
    with pytest.raises(pymysql.Error, match=r"4243.*in use by a connected slave"):
        ours.q("RESET MASTER")
    ours.q("CREATE BINLOG LEASE backup FOR 1 HOUR")
    held = ours.q("EXPLAIN PURGE TO 'binlog-000001.ibb'")
    assert held[0]["Purged"] == "NO"
    assert "the lease 'backup'" in held[0]["Held_back_by"]
    ours.restart()
    assert [lease["Name"] for lease in ours.q("SHOW BINLOG LEASES")] == ["backup"]
    ours.q("DROP BINLOG LEASE backup")
    # Here, too: a replica says that it runs before it has asked for the binlog, and for a moment after it was lost.
    until(lambda: ours.q("SHOW BINLOG REPLICAS"), "the replica is back")
    explain = "EXPLAIN PURGE TO 'binlog-000001.ibb'"
    until(lambda: ours.q(explain)[0]["Purged"] == "YES", "its dump has left the file")
    ours.q("PURGE BINARY LOGS TO 'binlog-000001.ibb'")
    ours.q("CREATE DATABASE e")
    replica.wait_gtid("0-1-2")
