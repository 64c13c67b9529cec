"""What clients of all kinds SET before they begin, beside a real server: accepted by both, or the same error."""

from __future__ import annotations

from typing import Any

import pymysql

from tests.integration.clients.programs import Relay

STATEMENTS = [
    # python-mysql-replication, go-mysql, mysql-binlog-connector-java, canal, MaxScale
    "SET @master_binlog_checksum= @@global.binlog_checksum",
    "SET @master_binlog_checksum='NONE', @source_binlog_checksum='NONE'",
    "set @master_heartbeat_period=1000000000;",
    "SET @master_heartbeat_period = 1000000000, @source_heartbeat_period = 1000000000",
    "SET @slave_uuid = 'x', @replica_uuid = 'x'",
    "set @slave_uuid=uuid()",
    "SET @mariadb_slave_capability='4'",
    "SET @slave_connect_state = '0-1-2', @slave_gtid_strict_mode:=1",
    "SET @rpl_semi_sync_slave = 1, @rpl_semi_sync_replica = 1;",
    "set wait_timeout=9999999, net_write_timeout=7200, net_read_timeout=7200",
    "set names 'binary'",
    # connectors, JDBC drivers, tools
    "SET NAMES 'utf8mb4' COLLATE 'utf8mb4_general_ci'",
    "SET @@session.autocommit = OFF",
    "SET AUTOCOMMIT = 0",
    "SET character_set_results = NULL",
    "SET SESSION sql_mode = 'STRICT_TRANS_TABLES', time_zone = '+00:00'",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SET SESSION TRANSACTION READ ONLY",
    "SET @`a name` = 1, @'another' = NULL, @third = @`a name`",
    "SET @OLD_SQL_MODE=@@SQL_MODE, SQL_MODE='NO_AUTO_VALUE_ON_ZERO'",
    "/*!40101 SET NAMES utf8mb4 */",
    "/*M!100100 SET WAIT_TIMEOUT=DEFAULT */",
    "SET STATEMENT max_statement_time=5 FOR SELECT 1",
    # of MySQL, or of nobody
    "SET no_such_variable = 1",
    "SET @a = 1, SESSION no_such_variable = 'x'",
    "SET @@global.no_such_variable = DEFAULT",
    "SET @b = @@gtid_mode",
    "SELECT @@server_uuid",
    "SET GLOBAL gtid_purged = ''",
    "SET",
    "SET @a",
]


def outcome(cursor: Any, text: str) -> object:
    try:
        cursor.execute(text)
        return len(cursor.fetchall())
    except pymysql.Error as error:
        return error.args[0]


def test_what_clients_set(relay: Relay) -> None:
    with relay.upstream.connect() as theirs, relay.server.connect() as ours:
        there, here = theirs.cursor(), ours.cursor()
        different = {
            text: (wanted, got)
            for text in STATEMENTS
            if (got := outcome(here, text)) != (wanted := outcome(there, text))
        }
    assert different == {}
