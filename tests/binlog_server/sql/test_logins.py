"""The statements that programs send at login, recorded from conversations with a real 11.8: each is taken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pytest

from binlog_server.accounts.users import Account
from tests.binlog_server.lab import Lab

STATEMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "mariadb": ("select @@version_comment limit 1",),
    "mariadb-dump": (
        "/*!40100 SET @@SQL_MODE='' */",
        "/*!40103 SET TIME_ZONE='+00:00' */",
        "/*M!100100 SET @@MAX_STATEMENT_TIME=0.000000 */",
        "/*M!100100 SET WAIT_TIMEOUT=DEFAULT */",
        "SET SESSION character_set_results='binary'",
        "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
        "START TRANSACTION /*!40100 WITH CONSISTENT SNAPSHOT */",
        "SAVEPOINT sp",
        "ROLLBACK TO SAVEPOINT sp",
        "UNLOCK TABLES",
    ),
    "mariadb-binlog": (
        "SELECT VERSION()",
        "SET @master_binlog_checksum='NONE'",
        "SET @mariadb_slave_capability=4",
    ),
    "Connector/J 2.7.6": (
        "set autocommit=1, sql_mode = concat(@@sql_mode,',STRICT_TRANS_TABLES')",
        "SELECT @@max_allowed_packet,@@system_time_zone,@@time_zone,@@auto_increment_increment",
        "SELECT @@tx_isolation",
        "SET @@SQL_SELECT_LIMIT=10",
        "SET STATEMENT max_statement_time=3 FOR SELECT 1",
    ),
    "Connector/J 3.5.9": (
        "set sql_mode=CONCAT(@@sql_mode,',STRICT_TRANS_TABLES'),session_track_system_variables = "
        "CONCAT(@@global.session_track_system_variables,',transaction_isolation')",
        "SET STATEMENT SQL_SELECT_LIMIT=1 FOR SELECT 1",
        "select @@transaction_isolation",
        "select @@read_only",
        "select @@wait_timeout",
    ),
    "Connector/ODBC and pyodbc": (
        "SET SESSION SQL_AUTO_IS_NULL=0",
        "SET autocommit=1",
        "SET session_track_schema= ON",
        "SET session_track_system_variables='autocommit,tx_isolation'",
        "SET autocommit=0",
    ),
    "Connector/Python": ("SET AUTOCOMMIT=0",),
    "PyMySQL, mysqlclient": ("SET NAMES utf8mb4", "SET AUTOCOMMIT = 0"),
    "mysql-connector-python": (
        "SET NAMES 'utf8mb4' COLLATE 'utf8mb4_0900_ai_ci'",
        "SET @@session.autocommit = OFF",
        "set autocommit=0",
        "SELECT @@session.sql_mode",
        "select @@session.autocommit",
        "SET @_p_arg1=5",
    ),
    "SQLAlchemy": (
        "SELECT VERSION()",
        "SELECT DATABASE()",
        "SELECT @@tx_isolation",
        "SELECT @@sql_mode",
        "SELECT @@lower_case_table_names",
    ),
    "zongji": (
        "SELECT VERSION() AS version",
        "select @@GLOBAL.binlog_checksum as checksum",
        "SHOW BINARY LOGS",
        "SELECT @@GLOBAL.gtid_current_pos AS gtidPos",
    ),
    "DBD::MariaDB": (
        "SET NAMES 'utf8mb4'",
        "SET character_set_server = 'utf8mb4'",
        "SET collation_connection = 'utf8mb4_unicode_ci'",
        "SET collation_server = 'utf8mb4_unicode_ci'",
    ),
    "percona-toolkit": (
        "SHOW VARIABLES LIKE 'wait\\_timeout'",
        "SET SESSION wait_timeout=10000",
        "SELECT @@SQL_MODE",
        "SET @@SQL_QUOTE_SHOW_CREATE = 1/*!40101, @@SQL_MODE='NO_AUTO_VALUE_ON_ZERO,"
        "STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_AUTO_CREATE_USER,NO_ENGINE_SUBSTITUTION'*/",
        "SELECT VERSION()",
        "SHOW VARIABLES LIKE 'character_set_server'",
        "SET NAMES 'utf8mb4'",
    ),
    "mysqld_exporter": ("SET lock_wait_timeout=2", "SELECT @@version", "SELECT @@log_bin"),
    "mycli": ("select connection_id()",),
    "python-mysql-replication": (
        "SET NAMES utf8",
        "SET AUTOCOMMIT = 0",
        "SHOW GLOBAL VARIABLES LIKE 'BINLOG_CHECKSUM'",
        "SET @master_binlog_checksum= @@global.binlog_checksum",
        "SET @mariadb_slave_capability=4",
        "SET @slave_connect_state = '0-1-1'",
        "SET @slave_gtid_strict_mode = 0",
        "SET @slave_gtid_ignore_duplicates = 0",
    ),
    "Go's driver": (
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
        "START TRANSACTION READ ONLY",
    ),
    "MySQL's clients and old dumps": (
        "/*!40101 SET @OLD_CHARACTER_SET_CLIENT=@@CHARACTER_SET_CLIENT */",
        "/*!40014 SET @OLD_UNIQUE_CHECKS=@@UNIQUE_CHECKS, UNIQUE_CHECKS=0 */",
        "/*!40111 SET @OLD_SQL_NOTES=@@SQL_NOTES, SQL_NOTES=0 */",
        "/*M!100616 SET @OLD_NOTE_VERBOSITY=@@NOTE_VERBOSITY, NOTE_VERBOSITY=0 */",
    ),
}


@pytest.mark.parametrize("program", STATEMENTS)
async def test_login(program: str) -> None:
    users = {"app": Account("pw", frozenset({"BINLOG MONITOR"}))}
    async with Lab(users=users) as lab:
        client = await lab.connect()
        assert (await client.log_in("app", "pw"))[:1] == b"\0"
        for statement in STATEMENTS[program]:
            await client.query(statement)
