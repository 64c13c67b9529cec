"""What watches, steers and reads servers: monitors, checks, probes and connectors, by the statements of their sources.

Each step says what the program does with the answer, in its `then`. An answer is one that the program can go on with:
that of a master, or the refusal that a real MariaDB gives, or a server without tables has to give; then the step
names it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from .answers import Answer
from .scripts import (
    BEHIND_POSITION,
    GTID_DUMP_AT_0,
    JAVA,
    OF_12_3,
    OF_ANY,
    OF_PROGRAMS,
    OK,
    PING,
    POSITION,
    REGISTER,
    ROW,
    ROWS,
    Expected,
    Script,
    Step,
    any_of,
    value,
)

_STATISTICS: Final = b"\x09"
_NOTHING: Final = Expected("no rows", lambda a: a.kind == "rows" and not a.rows)


def asks(statement: str | bytes, expected: Expected, then: str) -> Step:
    """A step. `then`: what the program does with the answer."""
    return statement, replace(expected, then=then)


def one_of(*names: str) -> Expected:
    """Rows whose first column has all these names."""
    return Expected(
        f"rows of {', '.join(names)}", lambda a: set(names) <= {str(row[0]) for row in a.rows}
    )


def refused(errno: int, why: str) -> Expected:
    """An error, and who would give it, too."""
    return Expected(f"error {errno}: {why}", lambda a: a.errno == errno)


def columns(*names: str) -> Expected:
    """A result set that has these columns."""
    return Expected(f"columns {', '.join(names)}", lambda a: set(names) <= set(a.columns))


def number_of(name: str) -> Expected:
    """SHOW STATUS or VARIABLES of one name: a row with a number."""

    def check(answer: Answer) -> bool:
        rows = answer.rows
        return len(rows) == 1 and rows[0][0] == name and (rows[0][1] or "").isdecimal()

    return Expected(f"a number of {name}", check)


def numbers_of(*names: str) -> Expected:
    """SHOW STATUS with a number for each name."""

    def check(answer: Answer) -> bool:
        found = {row[0]: row[1] or "" for row in answer.rows}
        return all(found.get(name, "").isdecimal() for name in names)

    return Expected(f"numbers of {', '.join(names)}", check)


_REAL = "a real MariaDB says so, too"
_NO_TABLES = "a server without tables: the upstream has them"
_SLAVE_COLUMNS = columns(
    *("Slave_IO_Running", "Slave_SQL_Running", "Seconds_Behind_Master", "Master_Host"),
    *("Master_Port", "Master_Log_File", "Read_Master_Log_Pos", "Relay_Master_Log_File"),
    *("Exec_Master_Log_Pos", "Last_IO_Errno", "Last_IO_Error", "Last_SQL_Errno", "Last_SQL_Error"),
    *("Using_Gtid", "Gtid_IO_Pos", "Master_Server_Id", "Relay_Log_Pos", "SQL_Delay"),
)
_ALL_SLAVE_COLUMNS = columns(
    *("Connection_name", "Slave_received_heartbeats", "Slave_heartbeat_period", "Using_Gtid"),
    *("Gtid_IO_Pos", "Master_Host", "Master_Port", "Slave_IO_Running", "Slave_SQL_Running"),
    *("Master_Server_Id", "Last_IO_Errno", "Last_IO_Error", "Last_SQL_Error"),
    "Seconds_Behind_Master",
)

# -- steering: Orchestrator, ProxySQL, MaxScale, replication-manager ---------------------------------------------------

# go/inst/instance_dao.go, instance_topology_dao.go
ORCHESTRATOR: tuple[Step, ...] = (
    asks(
        "select @@session.sql_mode", ROW, "sets it back when a transaction of its own needs another"
    ),
    asks("show variables like 'maxscale%'", _NOTHING, "no row: it is no MaxScale"),
    asks("show global status like 'Uptime'", number_of("Uptime"), "the instance's uptime"),
    asks(
        "select @@global.hostname, ifnull(@@global.report_host, ''), @@global.server_id, @@global.version, "
        "@@global.version_comment, @@global.read_only, @@global.binlog_format, @@global.log_bin, "
        "@@global.log_slave_updates",
        Expected("nine values", lambda a: len(a.rows) == 1 and None not in a.rows[0]),
        "the instance: a master by log_bin and read_only; NULL would end the discovery",
    ),
    asks("show master status", columns("File", "Position"), "the instance's own coordinates"),
    asks(
        "show global variables like 'rpl_semi_sync_%'",
        one_of("rpl_semi_sync_master_enabled", "rpl_semi_sync_slave_enabled"),
        "whether it has semi-sync",
    ),
    asks(
        "show global status like 'rpl_semi_sync_%'",
        one_of("Rpl_semi_sync_master_status", "Rpl_semi_sync_master_clients"),
        "whether semi-sync works, with how many",
    ),
    asks("show slave status", _SLAVE_COLUMNS, "its master, threads and lag; no row: a master"),
    asks("show slave hosts", columns("Server_id", "Host", "Port"), "replicas to be discovered"),
    asks(
        "select\n substring_index(host, ':', 1) as slave_hostname\n from\n information_schema.processlist\n"
        " where\n command IN ('Binlog Dump', 'Binlog Dump GTID')\n",
        ROWS,
        "replicas to be discovered, where they do not report their hosts",
    ),
    asks(
        "select count(*) > 0 and MAX(User_name) != '' from mysql.slave_master_info",
        refused(1146, _REAL),
        "minds no error: no credentials can be read",
    ),
    asks(
        "show grants for current_user()",
        ROWS,
        "looks for ALL PRIVILEGES before it changes anything",
    ),
    asks("show binary logs", columns("Log_name", "File_size"), "files to look for events in"),
    asks(
        "show binlog events limit 1", columns("Log_name", "Pos", "Event_type"), "the oldest event"
    ),
)

# lib/MySQL_Monitor.cpp
PROXYSQL: tuple[Step, ...] = (
    asks("SET wait_timeout=600", OK, "the monitor's connection stays for so long"),
    asks(PING, OK, "the ping check: without OK the server is shunned"),
    asks("SELECT @@global.read_only read_only", ROW, "1: a reader's hostgroup, 0: the writer's"),
    asks("SELECT @@global.innodb_read_only read_only", value("0"), "the same by another check"),
    asks(
        "SELECT @@global.super_read_only read_only",
        refused(1193, _REAL),
        "a check for MySQL: the log has the error",
    ),
    asks("SELECT @@global.read_only&@@global.innodb_read_only read_only", value("0"), "as above"),
    asks("SELECT @@global.read_only|@@global.innodb_read_only read_only", ROW, "as above"),
    asks("SHOW SLAVE STATUS", _SLAVE_COLUMNS, "Seconds_Behind_Master; no row: no lag to look at"),
    asks(
        "SELECT (SELECT VARIABLE_VALUE FROM INFORMATION_SCHEMA.GLOBAL_STATUS WHERE VARIABLE_NAME="
        "'WSREP_LOCAL_STATE') wsrep_local_state, @@read_only read_only",
        Expected("NULL", lambda a: a.rows[0][0] is None),
        "no Galera: only asked for hostgroups of Galera",
    ),
    asks("KILL CONNECTION 4711", refused(1094, _REAL), "of a client that has gone: only logged"),
)

# server/modules/monitor/mariadbmon/mariadbserver.cc, maxutils/maxsql, server/modules/protocol/MariaDB
MAXSCALE_MONITOR: tuple[Step, ...] = (
    asks("SET SQL_MODE='';", OK, "the connection's first statement: without OK there is none"),
    asks(PING, OK, "the connection is alive"),
    asks("SHOW SLAVE STATUS;", _SLAVE_COLUMNS, "tests the monitor's grants"),
    asks(
        "SELECT @@global.server_id, @@read_only, @@global.gtid_domain_id;",
        Expected(
            "three numbers", lambda a: [len(r) for r in a.rows] == [3] and a.rows[0][0] == "1"
        ),
        "tells servers apart by server_id; read_only decides who may be the master",
    ),
    asks("SHOW ALL SLAVES STATUS;", _ALL_SLAVE_COLUMNS, "the topology; at least 42 columns"),
    asks(
        "SELECT @@gtid_current_pos, @@gtid_binlog_pos;",
        Expected("two positions", lambda a: a.rows[0] == ("0-1-5,5-1-2,7-77-1",) * 2),
        "who is furthest, for failover",
    ),
    asks(
        "SELECT @@gtid_strict_mode, @@log_bin, @@log_slave_updates;",
        ROW,
        "whether it may be promoted",
    ),
    asks(
        "SELECT c.VARIABLE_VALUE, s.VARIABLE_VALUE FROM INFORMATION_SCHEMA.GLOBAL_VARIABLES c JOIN "
        "INFORMATION_SCHEMA.GLOBAL_STATUS s ON(c.VARIABLE_NAME = 'rpl_semi_sync_master_enabled' AND "
        "s.VARIABLE_NAME = 'rpl_semi_sync_master_status')",
        Expected("OFF, OFF", lambda a: a.rows == (("OFF", "OFF"),)),
        "warns when semi-sync stops; without a row it says that the server is buggy",
    ),
    asks(
        "SELECT Event_schema, Event_name FROM information_schema.EVENTS WHERE Status = 'ENABLED';",
        _NOTHING,
        "events to disable on replicas: none",
    ),
    asks(
        "SELECT IS_USED_LOCK('maxscale_mariadbmonitor'), IS_USED_LOCK('maxscale_mariadbmonitor_master');",
        Expected("NULL, NULL", lambda a: a.rows == ((None, None),)),
        "cooperative_monitoring_locks: no other MaxScale monitors this server",
    ),
    asks("SET @@session.wait_timeout=60;", OK, "while it has locks"),
    asks(
        "SELECT GET_LOCK('maxscale_mariadbmonitor', 0);",
        value("1"),
        "it is the one that may fail over",
    ),
    asks("SELECT RELEASE_LOCK('maxscale_mariadbmonitor')", value("1"), "at its end"),
    asks("SHOW GRANTS;", ROWS, "warns without READ_ONLY ADMIN, SUPER or ALL PRIVILEGES"),
    asks(
        "SELECT Disk, Path, Total, Used, Available FROM information_schema.disks",
        refused(1109, "a real MariaDB without the plugin DISKS says so, too"),
        "gives up watching the disk space of this server, after one line of its log",
    ),
    asks(
        "SELECT ID, FULL_COLLATION_NAME FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY "
        "ORDER BY ID",
        ROWS,
        "names of collations, for its listeners",
    ),
    asks("SELECT @@datadir;", ROW, "for backups that it is asked for"),
    asks("SET GLOBAL read_only=1;", OK, "a demoted master; enforce_read_only_slaves"),
    asks("SET STATEMENT max_statement_time=10 FOR FLUSH TABLES;", OK, "switchover, step by step"),
    asks("FLUSH LOGS;", OK, "switchover: what is in the log is told apart by files"),
)

_WITHOUT_LOCKS = "SET STATEMENT LOCK_WAIT_TIMEOUT=0 FOR "
# utils/dbhelper, of the branches for MariaDB
REPLICATION_MANAGER: tuple[Step, ...] = (
    asks("SELECT version()", ROW, "MariaDB, and which one"),
    asks("SELECT @@version_comment", ROW, "the flavour"),
    asks("select user()", ROW, "who it is"),
    asks(
        "SELECT COALESCE(MAX(Select_priv),'N') as Select_priv, COALESCE(MAX(Process_priv),'N') as Process_priv, "
        "COALESCE(MAX(Super_priv),'N') as Super_priv, COALESCE(MAX(Repl_slave_priv),'N') as Repl_slave_priv, "
        "COALESCE(MAX(Repl_client_priv),'N') as Repl_client_priv, COALESCE(MAX(Reload_priv),'N') as Reload_priv "
        "FROM mysql.user WHERE user = 'repl'",
        Expected("Y", lambda a: [set(row) for row in a.rows] == [{"Y"}]),
        "warns of privileges that it lacks",
    ),
    asks(
        "SELECT /*replication-manager*/ UPPER(Variable_name) AS variable_name, UPPER(Variable_Value) AS value "
        "FROM information_schema.global_variables",
        one_of("SERVER_ID", "LOG_BIN", "GTID_BINLOG_POS", "READ_ONLY"),
        "the server's state",
    ),
    asks(
        "SELECT /*replication-manager*/ UPPER(Variable_name) AS variable_name, UPPER(Variable_Value) AS value "
        "FROM information_schema.global_status",
        one_of(
            "UPTIME", "THREADS_RUNNING", "RPL_SEMI_SYNC_MASTER_STATUS", "COM_SELECT", "QUESTIONS"
        ),
        "its metrics; questions a second are those of two looks",
    ),
    asks(
        "SELECT Id, User, Host, `Db` AS `db`, Command, Time_ms as Time, State, "
        "SUBSTRING(COALESCE(INFO_BINARY,''),1,1000) as Info, CASE WHEN Max_Stage < 2 THEN Progress ELSE "
        "(Stage-1)/Max_Stage*100+Progress/Max_Stage END AS Progress FROM INFORMATION_SCHEMA.PROCESSLIST "
        "WHERE command='query' ORDER BY TIME_MS DESC LIMIT 50",
        ROWS,
        "what runs for long",
    ),
    asks("SHOW FULL PROCESSLIST", ROWS, "the same"),
    asks("SHOW MASTER STATUS", ROW, "the binlog's place; no row would mean log_bin=OFF"),
    asks("SHOW BINARY LOGS", ROWS, "the oldest file, and how much there is"),
    asks("SHOW ALL SLAVES STATUS", _ALL_SLAVE_COLUMNS, "the topology"),
    asks("SHOW SLAVE HOSTS", columns("Server_id", "Host", "Port", "Master_id"), "replicas"),
    asks(
        "select host from information_schema.processlist where command ='binlog dump'",
        ROWS,
        "replicas by their dumps",
    ),
    asks(
        "SELECT COUNT(*) AS n FROM INFORMATION_SCHEMA.PROCESSLIST WHERE command LIKE 'binlog dump%'",
        value("0"),
        "waits until no replica is connected",
    ),
    asks("SHOW ENGINE INNODB STATUS", ROW, "a text, parsed line by line"),
    asks("SHOW PLUGINS", ROWS, "what is there"),
    asks(
        _WITHOUT_LOCKS
        + "SELECT SCHEMA_NAME from information_schema.SCHEMATA WHERE SCHEMA_NAME NOT IN"
        "('information_schema','mysql','performance_schema', 'sys') AND SCHEMA_NAME NOT LIKE '#%'",
        _NOTHING,
        "databases to back up: none",
    ),
    asks(
        "SELECT user, host, password, CONV(LEFT(MD5(concat(user,host)), 16), 16, 10)    FROM mysql.user "
        "where host<>'localhost' ",
        one_of("repl"),
        "accounts, compared with those of the master",
    ),
    asks(
        "SET STATEMENT max_statement_time=10 FOR FLUSH NO_WRITE_TO_BINLOG TABLES",
        OK,
        "switchover, its first step",
    ),
)

# -- watching: exporters, agents, checks, probes -----------------------------------------------------------------------

_COUNTERS = (
    *("Uptime", "Questions", "Queries", "Connections", "Threads_connected", "Threads_running"),
    *("Threads_created", "Threads_cached", "Slow_queries", "Aborted_clients", "Aborted_connects"),
    *("Com_select", "Com_insert", "Com_update", "Com_delete", "Com_commit", "Com_rollback"),
    *("Bytes_sent", "Bytes_received", "Max_used_connections", "Slaves_connected", "Open_tables"),
    *("Opened_tables", "Table_locks_waited", "Created_tmp_tables", "Handler_read_rnd_next"),
    *("Innodb_buffer_pool_pages_total", "Innodb_buffer_pool_read_requests", "Qcache_hits"),
    *("Innodb_row_lock_waits", "Uptime_since_flush_status", "Prepared_stmt_count"),
)
_EVERY_PROGRAM = "a default collector: a metric for each number"
# prometheus/mysqld_exporter and percona's: collector/*.go; pmm: agent/connectionchecker, agent/queryanalytics
EXPORTERS: tuple[Step, ...] = (
    asks("SET lock_wait_timeout=2", OK, "on each connection: an error is mysql_up 0"),
    asks(
        "SET log_slow_filter='tmp_table_on_disk,filesort_on_disk'",
        OK,
        "keeps its own out of the slow log",
    ),
    asks(
        "SELECT /* agent='connectionchecker' */ 'pmm-agent'",
        value("pmm-agent"),
        "pmm-admin add: it answers",
    ),
    asks("SELECT @@version;", ROW, "what it may ask"),
    asks("SELECT @@version, @@version_comment", ROW, "the flavour"),
    asks("SHOW GLOBAL STATUS", numbers_of(*_COUNTERS), _EVERY_PROGRAM),
    asks(
        "SHOW GLOBAL VARIABLES",
        one_of("version", "server_id", "max_connections", "read_only", "gtid_binlog_pos"),
        _EVERY_PROGRAM,
    ),
    asks("SHOW ALL SLAVES STATUS", _ALL_SLAVE_COLUMNS, "mysql_slave_status_*, by connection"),
    asks("SHOW SLAVE HOSTS", columns("Server_id", "Host", "Port"), "mysql_heartbeat of replicas"),
    asks("SELECT @@log_bin", value("1"), "0: does not ask for files"),
    asks("SHOW BINARY LOGS", columns("Log_name", "File_size"), "number and size of files"),
    asks("SELECT @@query_response_time_stats", refused(1193, _REAL), "leaves that collector out"),
    asks(
        "SHOW GLOBAL VARIABLES WHERE Variable_Name='userstat'\nOR Variable_Name='userstat_running'",
        ROW,
        "OFF: leaves them out",
    ),
    asks("SHOW ENGINE INNODB STATUS", ROW, "reads what lines it knows"),
    asks("SHOW ENGINE TOKUDB STATUS", refused(1286, _REAL), "leaves that collector out"),
    asks(
        "SELECT page_size, compress_ops, compress_ops_ok, compress_time, uncompress_ops, uncompress_time FROM "
        "information_schema.innodb_cmp",
        _NOTHING,
        "no metrics: nothing is compressed",
    ),
    asks(
        "SELECT user, SUBSTRING_INDEX(host, ':', 1) AS host, COALESCE(command, '') AS command, "
        "COALESCE(state, '') AS state, COUNT(*) AS processes, SUM(time) AS seconds FROM "
        "information_schema.processlist WHERE ID != connection_id() AND TIME >= 0 GROUP BY user, host, command, state",
        ROWS,
        "processes by state",
    ),
    asks(
        "SELECT SERVER_ID , if(SESSION_ID='MASTER_SESSION_ID','writer','reader') AS ROLE , CPU FROM "
        "information_schema.replica_host_status",
        refused(1109, "Aurora's; " + _REAL),
        "leaves that collector out",
    ),
    asks(
        "SELECT user, host, Select_priv, Insert_priv, Reload_priv, Process_priv, Super_priv, Repl_slave_priv, "
        "max_questions, max_connections, max_user_connections FROM mysql.user",
        ROWS,
        "mysql_mysql_max_user_connections and the like",
    ),
    asks(
        "SELECT ifnull(SCHEMA_NAME, 'NONE') as SCHEMA_NAME, DIGEST, LEFT(DIGEST_TEXT, 120) as DIGEST_TEXT, COUNT_STAR, "
        "SUM_TIMER_WAIT, SUM_ERRORS, SUM_NO_INDEX_USED FROM ( SELECT * FROM "
        "performance_schema.events_statements_summary_by_digest WHERE SCHEMA_NAME NOT IN ('mysql', "
        "'performance_schema', 'information_schema') AND LAST_SEEN > DATE_SUB(NOW(), INTERVAL 86400 SECOND) ORDER BY "
        "LAST_SEEN DESC )Q GROUP BY Q.SCHEMA_NAME, Q.DIGEST, Q.DIGEST_TEXT, Q.COUNT_STAR ORDER BY SUM_TIMER_WAIT DESC "
        "LIMIT 250",
        _NOTHING,
        "performance_schema is OFF: no statements by digest, as on a MariaDB by default",
    ),
    asks(
        "SELECT EVENT_NAME, SUM_NUMBER_OF_BYTES_ALLOC, SUM_NUMBER_OF_BYTES_FREE, CURRENT_NUMBER_OF_BYTES_USED FROM "
        "performance_schema.memory_summary_global_by_event_name where COUNT_ALLOC > 0",
        _NOTHING,
        "the same",
    ),
    asks(
        "SELECT OBJECT_SCHEMA, OBJECT_NAME, COUNT_FETCH, COUNT_INSERT, COUNT_UPDATE, COUNT_DELETE, SUM_TIMER_FETCH "
        "FROM performance_schema.table_io_waits_summary_by_table WHERE OBJECT_SCHEMA NOT IN ('mysql', "
        "'performance_schema')",
        _NOTHING,
        "the same",
    ),
    asks(
        "SELECT EVENT_NAME, COUNT_STAR, SUM_TIMER_WAIT FROM "
        "performance_schema.events_waits_summary_global_by_event_name",
        _NOTHING,
        "the same",
    ),
    asks(
        "SELECT * FROM performance_schema.replication_group_members",
        refused(1146, "MySQL's; " + _REAL),
        "leaves that collector out",
    ),
    asks("SELECT @@performance_schema", value("0"), "statements by digest are not asked for"),
    asks("SELECT @@slow_query_log", value("0"), "neither is the slow log"),
    asks(
        "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, ifnull(ENGINE, 'NONE') as ENGINE, ifnull(TABLE_ROWS, '0') as "
        "TABLE_ROWS, ifnull(DATA_LENGTH, '0') as DATA_LENGTH FROM information_schema.tables WHERE "
        "TABLE_SCHEMA = 'shop'",
        _NOTHING,
        "sizes of tables: there are none",
    ),
    asks(
        "SELECT SCHEMA_NAME FROM information_schema.schemata WHERE SCHEMA_NAME NOT IN ('mysql', 'performance_schema', "
        "'information_schema', 'sys')",
        _NOTHING,
        "databases to look at: none",
    ),
    asks(
        "SELECT UNIX_TIMESTAMP(ts), UNIX_TIMESTAMP(NOW(6)), server_id from `heartbeat`.`heartbeat`",
        refused(1235, _NO_TABLES),
        "only with --collect.heartbeat: that collector fails, the others do not",
    ),
)

# plugins/check_mysql.c
CHECK_MYSQL: tuple[Step, ...] = (
    asks(
        _STATISTICS,
        Expected(
            "Uptime, Threads, Questions, Slow queries",
            lambda a: all(
                f"{word}: " in a.said for word in ("Uptime", "Threads", "Questions", "Slow queries")
            ),
        ),
        "the line that it prints",
    ),
    asks(
        "show global status",
        numbers_of(
            *("Open_tables", "Qcache_free_memory", "Qcache_queries_in_cache", "Threads_connected"),
            *("Threads_running", "Connections", "Qcache_hits", "Qcache_inserts"),
            *("Qcache_lowmem_prunes", "Qcache_not_cached", "Queries", "Questions"),
            *("Table_locks_waited", "Uptime"),
        ),
        "performance data; Open_files is not counted here and is left out of them",
    ),
    asks(
        "show slave status",
        _SLAVE_COLUMNS,
        "-S: Slave_IO_Running and Slave_SQL_Running have to be Yes",
    ),
)

# check_mysql_health: plugins-scripts/Nagios/DBD/MySQL/Server
_HEALTH_STATUS = (
    *("Threads_connected", "Threads_created", "Threads_running", "Threads_cached"),
    *("Aborted_connects", "Aborted_clients", "Connections", "Qcache_inserts", "Qcache_not_cached"),
    *("Com_select", "Qcache_hits", "Qcache_lowmem_prunes", "Slow_queries", "Open_tables"),
    *("Opened_tables", "Table_locks_waited", "Table_locks_immediate", "Handler_read_first"),
    *("Handler_read_key", "Handler_read_next", "Handler_read_prev", "Handler_read_rnd"),
    *("Handler_read_rnd_next", "Created_tmp_tables", "Created_tmp_disk_tables"),
    *("Innodb_buffer_pool_reads", "Innodb_buffer_pool_read_requests"),
    *("Innodb_buffer_pool_wait_free", "Innodb_log_waits", "Key_reads", "Key_read_requests"),
)
CHECK_MYSQL_HEALTH: tuple[Step, ...] = (
    asks(" SHOW VARIABLES LIKE 'version' ", ROW, "which statements it may use"),
    asks(" SHOW STATUS LIKE 'Uptime' ", number_of("Uptime"), "mode uptime"),
    asks(" SELECT 42 FROM dual", value("42"), "mode connection-time"),
    *(
        asks(
            f"SHOW /*!50000 global */ STATUS LIKE '{name}'",
            number_of(name),
            "rates of two looks, by its mode",
        )
        for name in _HEALTH_STATUS
    ),
    *(
        asks(f"SHOW VARIABLES LIKE '{name}'", number_of(name), "a limit, for a rate")
        for name in ("query_cache_size", "table_open_cache", "open_files_limit", "max_connections")
    ),
    asks("SHOW VARIABLES LIKE 'have_query_cache'", ROW, "whether there is one"),
    asks(
        "SHOW PROCESSLIST",
        columns("Id", "User", "Command", "Time", "State"),
        "mode long-running-procs",
    ),
    asks(
        "SHOW /*!50000 global */ STATUS LIKE 'Open_files'",
        _NOTHING,
        "mode open-files fails: files of pages are not counted, and no number is better than a wrong one",
    ),
    asks(
        "SELECT ENGINE, SUPPORT FROM INFORMATION_SCHEMA.ENGINES WHERE ENGINE='InnoDB'",
        Expected("DEFAULT", lambda a: a.rows == (("InnoDB", "DEFAULT"),)),
        "the modes of InnoDB may be asked",
    ),
    asks(
        "SHOW SLAVE STATUS", _SLAVE_COLUMNS, "modes slave-lag, slave-io-running, slave-sql-running"
    ),
)

# check_mysql_slavestatus.sh, on a relay the row is that of its upstream
CHECK_SLAVESTATUS: tuple[Step, ...] = (
    asks(
        "show slave status",
        _SLAVE_COLUMNS,
        "without the text Slave_IO_State it is CRITICAL: so it is on a master",
    ),
    asks("show slave 'none' status", refused(1617, _REAL), "CRITICAL: there is no such connection"),
)

# percona-monitoring-plugins: nagios/bin/pmp-check-mysql-*, cacti/scripts/ss_get_mysql_stats.php
PERCONA_PLUGINS: tuple[Step, ...] = (
    asks(
        "SHOW /*!50000 GLOBAL*/ STATUS",
        numbers_of(*_COUNTERS),
        "pmp-check-mysql-status: any of them",
    ),
    asks(
        "SHOW /*!40101 GLOBAL*/ VARIABLES",
        one_of("max_connections", "pid_file", "datadir"),
        "the same",
    ),
    asks("SHOW SLAVE STATUS NONBLOCKING", refused(1064, _REAL), "asks in the next form"),
    asks("SHOW SLAVE STATUS NOLOCK", refused(1064, _REAL), "asks in the next form"),
    asks("SHOW SLAVE STATUS", _SLAVE_COLUMNS, "pmp-check-mysql-replication-running, -delay"),
    asks(
        "SHOW PROCESSLIST",
        columns("Id", "User", "State"),
        "pmp-check-mysql-processlist counts states",
    ),
    asks("SELECT @@max_user_connections", ROW, "the limit, beside the connections of each user"),
    asks("SELECT @@tmpdir", ROW, "deleted files in there"),
    asks(
        "SELECT IF(@@datadir LIKE '/%', @@datadir, CONCAT(@@basedir, @@datadir))",
        ROW,
        "whose files it looks at",
    ),
    asks(
        "SELECT MAX(COALESCE(p.time, 0)) AS idle_in_trx, p.id, CONCAT(p.user, '@', p.host) AS userhost FROM "
        "INFORMATION_SCHEMA.INNODB_LOCK_WAITS AS w INNER JOIN INFORMATION_SCHEMA.INNODB_TRX AS b ON b.trx_id = "
        "w.blocking_trx_id INNER JOIN INFORMATION_SCHEMA.INNODB_TRX AS r ON r.trx_id = w.requesting_trx_id LEFT JOIN "
        "INFORMATION_SCHEMA.PROCESSLIST AS p ON p.id = b.trx_mysql_thread_id AND p.command = 'Sleep' GROUP BY p.id, "
        "p.user, p.host ORDER BY idle_in_trx DESC LIMIT 1",
        _NOTHING,
        "pmp-check-mysql-innodb: no transaction waits for another: OK",
    ),
    asks(
        "SELECT COUNT(DISTINCT REQUESTING_TRX_ID) AS cnt FROM INFORMATION_SCHEMA.INNODB_LOCK_WAITS AS w",
        value("0"),
        "the same",
    ),
    asks("SET @@time_zone='SYSTEM'", OK, "before it computes ages"),
    asks(
        "SELECT UNIX_TIMESTAMP() - UNIX_TIMESTAMP(t.trx_started), p.id, CONCAT(p.user, '@', p.host) FROM "
        "INFORMATION_SCHEMA.INNODB_TRX AS t JOIN INFORMATION_SCHEMA.PROCESSLIST AS p ON p.id = t.trx_mysql_thread_id "
        "ORDER BY t.trx_started LIMIT 1",
        _NOTHING,
        "no transaction is old: OK",
    ),
    asks("SHOW MASTER LOGS", columns("Log_name", "File_size"), "cacti: the binlog's size"),
    asks("SHOW ENGINES", ROWS, "whether InnoDB is there"),
    asks("SHOW /*!50000 ENGINE*/ INNODB STATUS", ROW, "a text, parsed line by line"),
)

# docker-library's healthcheck.sh (MariaDB/mariadb-docker), mariadb-operator (pkg/sql, pkg/agent), a Kubernetes probe
PROBES: tuple[Step, ...] = (
    asks("select 1", value("1"), "healthcheck.sh --connect"),
    asks(
        'select 1 from information_schema.ENGINES WHERE engine="innodb" AND support in ("YES", "DEFAULT", '
        '"ENABLED")',
        value("1"),
        "healthcheck.sh --innodb_initialized: healthy",
    ),
    asks(
        "select VARIABLE_VALUE from information_schema.GLOBAL_STATUS WHERE "
        'VARIABLE_NAME="Innodb_buffer_pool_load_status"',
        ROW,
        "healthcheck.sh --innodb_buffer_pool_loaded wants 'load completed': nothing is dumped and loaded here, so "
        "it stays unhealthy; leave it out",
    ),
    asks(
        'select VARIABLE_VALUE from information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME="WSREP_LOCAL_STATE"',
        _NOTHING,
        "healthcheck.sh --galera_online: no Galera",
    ),
    asks("SHOW REPLICA STATUS", _SLAVE_COLUMNS, "healthcheck.sh --replication: threads and lag"),
    asks("SHOW all REPLICAS STATUS", _ALL_SLAVE_COLUMNS, "healthcheck.sh --replication_all"),
    asks("SELECT 1;", value("1"), "mariadb-operator: the probe of the container"),
    asks(
        "SHOW REPLICA 'mariadb-operator' STATUS",
        refused(1617, _REAL),
        "mariadb-operator: no replica",
    ),
    asks(
        "SHOW REPLICA  STATUS", _SLAVE_COLUMNS, "mariadb-operator: liveness; no row: not a replica"
    ),
    asks("SHOW MASTER STATUS", ROW, "mariadb-operator: a row, so it is a primary: ready"),
    asks("SELECT @@global.gtid_current_pos;", ROW, "mariadb-operator: the status of the resource"),
    asks("SELECT @@global.gtid_binlog_pos;", ROW, "the same"),
    asks("SELECT @@global.gtid_domain_id;", ROW, "the same"),
    asks("SELECT @@global.read_only;", ROW, "mariadb-operator: which one is writable"),
    asks("SELECT @@global.log_bin_index;", ROW, "mariadb-operator: where the list of files is"),
    asks("SELECT @@global.wsrep_on;", value("0"), "mariadb-operator: no Galera"),
    asks(
        "SHOW PROCESSLIST",
        columns("Id", "Command", "Time"),
        "mariadb-operator: counts 'Binlog Dump'",
    ),
    asks(
        "SELECT variable_value FROM information_schema.global_status WHERE variable_name='wsrep_cluster_status'",
        ROWS,
        "mariadb-operator: only of clusters",
    ),
    asks(
        "SELECT COUNT(*) FROM mysql.user WHERE user='repl' AND host='%'",
        value("1"),
        "mariadb-operator: is it there?",
    ),
    asks(
        "SELECT EXISTS (SELECT 1 FROM INFORMATION_SCHEMA.SCHEMATA WHERE SCHEMA_NAME = 'shop')",
        value("0"),
        "mariadb-operator: a database that it would make",
    ),
    asks(
        "SELECT MASTER_GTID_WAIT('0-1-5', 30);",
        value("0"),
        "mariadb-operator: switchover waits for it",
    ),
    asks(PING, OK, "mariadb-admin ping"),
    asks("SHOW STATUS LIKE 'wsrep_local_state'", _NOTHING, "clustercheck: no Galera"),
    asks("SHOW GLOBAL VARIABLES LIKE 'read_only'", ROW, "which one is writable"),
)

# -- reading: connectors of change data --------------------------------------------------------------------------------

_CONNECTOR_J_MARIADB = asks(
    "set autocommit=1, session_track_schema=1, sql_mode = concat(@@sql_mode,',STRICT_TRANS_TABLES')",
    OK,
    "MariaDB Connector/J at its login: an error is no connection",
)
# MySQL Connector/J 8, at its login
_CONNECTOR_J_MYSQL: tuple[Step, ...] = (
    asks(
        "/* mysql-connector-j-8.4.0 */SELECT  @@session.auto_increment_increment AS auto_increment_increment, "
        "@@character_set_client AS character_set_client, @@character_set_connection AS character_set_connection, "
        "@@character_set_results AS character_set_results, @@character_set_server AS character_set_server, "
        "@@collation_server AS collation_server, @@collation_connection AS collation_connection, @@init_connect AS "
        "init_connect, @@interactive_timeout AS interactive_timeout, @@license AS license, @@lower_case_table_names AS "
        "lower_case_table_names, @@max_allowed_packet AS max_allowed_packet, @@net_write_timeout AS net_write_timeout, "
        "@@performance_schema AS performance_schema, @@sql_mode AS sql_mode, @@system_time_zone AS system_time_zone, "
        "@@time_zone AS time_zone, @@transaction_isolation AS transaction_isolation, @@wait_timeout AS wait_timeout",
        ROW,
        "the session's facts: an error is no connection",
    ),
    asks("SHOW WARNINGS", ROWS, "only looked at"),
    asks("SET character_set_results = NULL", OK, "an error is no connection"),
    asks("SET autocommit=1", OK, "an error is no connection"),
    asks("SET sql_mode='STRICT_TRANS_TABLES'", OK, "an error is no connection"),
)
_SNAPSHOT: tuple[Step, ...] = (
    asks("SET SESSION lock_wait_timeout=10", OK, "an error would end the snapshot"),
    asks("SET SESSION innodb_lock_wait_timeout=10", OK, "an error would only be logged"),
    asks(
        "FLUSH TABLES WITH READ LOCK",
        OK,
        "snapshot.locking.mode=minimal: OK with a warning, commits go on here: it holds no tables",
    ),
    asks("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", OK, "an error would end the snapshot"),
)
_TABLES_OF_MINE: tuple[Step, ...] = (
    asks(
        "SHOW DATABASES",
        one_of("information_schema", "performance_schema"),
        "whose tables it lists; built-in ones are left out behind",
    ),
    asks(
        "SHOW FULL TABLES IN `performance_schema` where Table_Type = 'BASE TABLE'",
        Expected("tables", lambda a: len(a.rows) > 50 and {r[1] for r in a.rows} == {"BASE TABLE"}),
        "left out: built-in. No table is left to take a snapshot of",
    ),
)
_NO_TABLE = asks(
    "SHOW CREATE TABLE `shop`.`orders`",
    refused(1146, _NO_TABLES),
    "its schema comes from the upstream: point the snapshot there, or stream with a schema history; "
    "binlog_row_metadata=FULL has names",
)

# debezium-connector-binlog, debezium-connector-mariadb; the stream is mysql-binlog-connector-java's
DEBEZIUM: tuple[Step, ...] = (
    _CONNECTOR_J_MARIADB,
    asks("SELECT version()", ROW, "the configuration is valid: it answers"),
    asks(
        "SHOW GLOBAL VARIABLES LIKE 'binlog_format'",
        value("ROW"),
        "anything else ends the connector",
    ),
    asks(
        "SHOW GLOBAL VARIABLES LIKE 'binlog_row_image'",
        value("FULL"),
        "anything else ends the connector",
    ),
    asks("SHOW GRANTS FOR CURRENT_USER", ROWS, "which lock it may take"),
    asks("SHOW VARIABLES", ROWS, "logged"),
    asks("SHOW VARIABLES WHERE Variable_name = 'sql_mode'", ROW, "how DDL is parsed"),
    asks(
        "SHOW VARIABLES WHERE Variable_name IN ('character_set_server','collation_server')",
        Expected("two rows", lambda a: len(a.rows) == 2),
        "the defaults of DDL",
    ),
    asks("SHOW SESSION STATUS LIKE 'Ssl_version'", ROW, "whether database.ssl.mode is kept"),
    asks(
        "SHOW BINARY LOGS",
        columns("Log_name", "File_size"),
        "whether an offset's file is still there",
    ),
    asks("SELECT 1", value("1"), "the connection is alive"),
    asks(
        "SELECT schema_name, default_character_set_name, default_collation_name FROM information_schema.schemata",
        ROWS,
        "character sets of databases",
    ),
    asks(
        "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
        OK,
        "an error would end the snapshot",
    ),
    asks("set autocommit=0", OK, "an error would end the snapshot"),
    *_SNAPSHOT,
    asks(
        "START TRANSACTION WITH CONSISTENT SNAPSHOT",
        OK,
        "OK with warning 1105: a real one without InnoDB says so, too",
    ),
    asks(
        "SHOW MASTER STATUS",
        columns("File", "Position"),
        "the snapshot's offset; no row would end it",
    ),
    asks("SHOW GLOBAL VARIABLES LIKE 'GTID_BINLOG_POS'", value("0-1-5,5-1-2,7-77-1"), "its GTIDs"),
    *_TABLES_OF_MINE,
    _NO_TABLE,
    asks("UNLOCK TABLES", OK, "the lock's end"),
    asks("COMMIT", OK, "the snapshot's end"),
    *JAVA,
)

# flink-connector-mysql-cdc: MySqlValidator, DebeziumUtils, MySqlSchema, TableDiscoveryUtils
FLINK: tuple[Step, ...] = (
    *_CONNECTOR_J_MYSQL,
    asks("SELECT VERSION()", ROW, "5.6 at least, by its first two numbers"),
    asks("SHOW GLOBAL VARIABLES LIKE 'binlog_format'", value("ROW"), "anything else ends the job"),
    asks(
        "SHOW GLOBAL VARIABLES LIKE 'binlog_row_image'", value("FULL"), "anything else ends the job"
    ),
    asks(
        "SHOW GLOBAL VARIABLES LIKE 'binlog_row_value_options'", _NOTHING, "no row: no partial JSON"
    ),
    asks(
        "SELECT TIME_TO_SEC(TIMEDIFF(NOW(), UTC_TIMESTAMP()))",
        ROW,
        "compared with server-time-zone",
    ),
    asks("SHOW VARIABLES", ROWS, "names are lower case or not"),
    asks(
        "SHOW GLOBAL VARIABLES LIKE 'GTID_MODE'",
        _NOTHING,
        "no GTIDs of MySQL: it reads by file and offset",
    ),
    asks("SHOW MASTER STATUS", columns("File", "Position"), "where reading begins"),
    asks(
        "SHOW BINARY LOGS",
        columns("Log_name", "File_size"),
        "whether an offset's file is still there",
    ),
    *_TABLES_OF_MINE,
    asks("USE `shop`;", OK, "before it asks for the table's size"),
    asks(
        "SHOW TABLE STATUS LIKE 'orders';",
        _NOTHING,
        "no result is an error there: a snapshot cannot be cut into chunks: scan.startup.mode=latest-offset",
    ),
    _NO_TABLE,
)

# com.alibaba.otter.canal.parse.inbound.mysql: MysqlConnection, MysqlEventParser, TableMetaCache
CANAL_LOOKS: tuple[Step, ...] = (
    asks("SHOW STATUS LIKE 'Ssl_version'", ROW, "logged"),
    asks("SHOW STATUS LIKE 'Ssl_cipher'", ROW, "logged"),
    asks("show variables like 'server_id'", value("1"), "whether the server is another one now"),
    asks("show master status", columns("File", "Position"), "where it begins without a position"),
    asks("SELECT @@global.gtid_binlog_pos", value("0-1-5,5-1-2,7-77-1"), "the same with gtid=true"),
    asks("show binlog events limit 1", columns("Log_name", "Pos"), "the oldest place"),
    asks("show slave status", _SLAVE_COLUMNS, "the place of a standby"),
    asks("show global variables  like 'rds\\_%'", _NOTHING, "no RDS"),
    asks("show global variables  like 'polarx\\_%'", _NOTHING, "no PolarDB-X"),
    *_TABLES_OF_MINE,
    asks(
        "show create table `shop`.`orders`",
        refused(1146, _NO_TABLES),
        "no columns of the table: canal.instance.tsdb.enable with a schema of its own",
    ),
    asks("KILL CONNECTION 4711", refused(1094, _REAL), "of its last dump: only logged"),
)
CANAL: tuple[Step, ...] = (
    *CANAL_LOOKS,
    ("set wait_timeout=9999999", OK),
    ("set net_write_timeout=7200", OK),
    ("set net_read_timeout=7200", OK),
    ("set names 'binary'", OK),
    ("set @master_binlog_checksum= @@global.binlog_checksum", OK),
    ("set @slave_uuid=uuid()", OK),
    ("SET @mariadb_slave_capability='4'", OK),
    ("SET @master_heartbeat_period=100000000", OK),
    asks("show variables like 'binlog_format'", value("ROW"), "anything else ends it"),
    asks("show variables like 'binlog_row_image'", value("FULL"), "anything else ends it"),
    ("select @@global.binlog_checksum", any_of("NONE", "CRC32")),
    asks("select @@version_comment", ROW, "MariaDB by this text"),
    ("show variables like 'server_id'", value("1")),
    (REGISTER, OK),
    (f"SET @slave_connect_state = '{POSITION}'", OK),
    ("SET @slave_gtid_strict_mode = 0", OK),
    ("SET @slave_gtid_ignore_duplicates = 0", OK),
)

# airbyte-integrations/connectors/source-mysql: MySqlSourceMetadataQuerier, MySqlSourceDebeziumOperations
AIRBYTE: tuple[Step, ...] = (
    *_CONNECTOR_J_MYSQL,
    asks(
        "show variables where Variable_name = 'log_bin'",
        value("ON"),
        "its check of CDC fails otherwise",
    ),
    asks(
        "show variables where Variable_name = 'binlog_format'",
        value("ROW"),
        "its check of CDC fails otherwise",
    ),
    asks(
        "show variables where Variable_name = 'binlog_row_image'",
        value("FULL"),
        "its check of CDC fails otherwise",
    ),
    asks(
        "SHOW MASTER STATUS",
        columns("File", "Position"),
        "an error would be the lack of REPLICATION CLIENT",
    ),
    asks(
        "SHOW BINARY LOGS",
        columns("Log_name", "File_size"),
        "whether the saved file is still there",
    ),
    asks("SELECT @@gtid_purged", refused(1193, _REAL), "not asked without GTIDs of MySQL"),
    asks(
        "SELECT table_schema, table_name, column_name, ordinal_position, constraint_name FROM "
        "information_schema.key_column_usage WHERE table_schema IN ('shop') AND constraint_name = 'PRIMARY';",
        _NOTHING,
        "no tables: a connection without streams. Discover on the upstream",
    ),
)

# com.zendesk.maxwell: MaxwellMysqlStatus, MaxwellContext, SchemaCapturer, SchemaStoreSchema, Recovery
MAXWELL: tuple[Step, ...] = (
    _CONNECTOR_J_MARIADB,
    *(
        asks(f"SHOW VARIABLES LIKE '{name}'", value(said), "anything else ends it")
        for name, said in (
            ("server_id", "1"),
            ("log_bin", "ON"),
            ("binlog_format", "ROW"),
            ("binlog_row_image", "FULL"),
        )
    ),
    asks("SELECT @@server_id as server_id", value("1"), "whose positions they are"),
    asks("SHOW BINLOG STATUS", columns("File", "Position"), "where it begins"),
    asks(
        "SHOW BINARY LOGS",
        columns("Log_name", "File_size"),
        "where it looks for its heartbeat after a failover",
    ),
    asks("select @@lower_case_table_names", value("0"), "how names are compared"),
    asks("select @@character_set_server", ROW, "the default of DDL"),
    asks(
        "show databases like 'maxwell'",
        _NOTHING,
        "its own database is missing, and it is not made here: --host is the upstream, --replication_host this server",
    ),
    asks(
        "SELECT SCHEMA_NAME, DEFAULT_CHARACTER_SET_NAME FROM INFORMATION_SCHEMA.SCHEMATA ORDER BY SCHEMA_NAME",
        one_of("information_schema"),
        "databases; with --schema_host of the upstream it asks there",
    ),
    asks(
        "SELECT TABLES.TABLE_NAME, CCSA.CHARACTER_SET_NAME FROM INFORMATION_SCHEMA.TABLES LEFT JOIN "
        "information_schema.COLLATION_CHARACTER_SET_APPLICABILITY AS CCSA ON TABLES.TABLE_COLLATION = "
        "CCSA.COLLATION_NAME WHERE TABLES.TABLE_SCHEMA = 'shop' ",
        _NOTHING,
        "no tables here: see above",
    ),
    asks(
        "SELECT TABLE_NAME,COLUMN_NAME, DATA_TYPE, CHARACTER_SET_NAME, ORDINAL_POSITION, COLUMN_TYPE, "
        "DATETIME_PRECISION, COLUMN_KEY FROM `information_schema`.`COLUMNS` WHERE TABLE_SCHEMA = 'shop' "
        "ORDER BY TABLE_NAME, ORDINAL_POSITION",
        _NOTHING,
        "the same",
    ),
    asks(
        "SELECT TABLE_NAME, COLUMN_NAME, ORDINAL_POSITION FROM information_schema.KEY_COLUMN_USAGE WHERE "
        "CONSTRAINT_NAME = 'PRIMARY' AND TABLE_SCHEMA = 'shop' ORDER BY TABLE_NAME, ORDINAL_POSITION",
        _NOTHING,
        "the same",
    ),
    asks(
        "SELECT CONSTRAINT_SCHEMA, TABLE_NAME, CONSTRAINT_NAME, CHECK_CLAUSE FROM "
        "INFORMATION_SCHEMA.CHECK_CONSTRAINTS WHERE CONSTRAINT_SCHEMA = 'shop'",
        _NOTHING,
        "the same: columns of JSON",
    ),
    *JAVA,
)

# The settings that its documentation demands of a source; its source is not public.
DMS: tuple[Step, ...] = (
    asks("SHOW VARIABLES LIKE 'server_id'", value("1"), "1 or more"),
    asks("SHOW VARIABLES LIKE 'log_bin'", value("ON"), "a task of changes needs it"),
    asks("SHOW VARIABLES LIKE 'binlog_format'", value("ROW"), "a task of changes needs it"),
    asks("SHOW VARIABLES LIKE 'binlog_row_image'", value("FULL"), "a task of changes needs it"),
    asks("SHOW VARIABLES LIKE 'log_slave_updates'", value("ON"), "where the source is a replica"),
    asks("SHOW VARIABLES LIKE 'log_bin_compress'", value("OFF"), "compressed events are not read"),
    asks("SHOW VARIABLES LIKE 'binlog_checksum'", ROW, "NONE, for older ones"),
    asks("SHOW VARIABLES LIKE 'binlog_expire_logs_seconds'", ROW, "files have to stay long enough"),
    asks("SHOW VARIABLES LIKE 'max_statement_time'", ROW, "0: questions are not ended"),
    asks("SHOW VARIABLES LIKE '%timeout%'", ROWS, "long enough"),
    asks("SHOW GRANTS FOR CURRENT_USER()", ROWS, "REPLICATION CLIENT and SLAVE"),
    asks("SHOW BINARY LOGS", columns("Log_name", "File_size"), "where it begins"),
)

# -- frameworks: as they asked a real 11.8, on a connection to an empty database ------------------------------------

# Django 5.2, django/db/backends/mysql: base.py, introspection.py
DJANGO: tuple[Step, ...] = (
    asks("SET NAMES utf8mb4", OK, "the driver's; an error ends the connection"),
    asks(
        "SELECT VERSION(), @@sql_mode, @@default_storage_engine, @@sql_auto_is_null, @@lower_case_table_names, "
        "CONVERT_TZ('2001-01-01 01:00:00', 'UTC', 'UTC') IS NOT NULL",
        Expected("six values", lambda a: len(a.rows) == 1 and len(a.rows[0]) == 6),
        "what the server can; an error ends the connection",
    ),
    asks("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED", OK, "its isolation level"),
    asks(
        "SELECT table_name, table_type, table_comment FROM information_schema.tables "
        "WHERE table_schema = DATABASE()",
        _NOTHING,
        "no migration has run yet",
    ),
    asks("SET autocommit=0", OK, "atomic()"),
    asks("SAVEPOINT `s1_x1`", OK, "atomic() within atomic()"),
    asks("RELEASE SAVEPOINT `s1_x1`", OK, "its end"),
)
# peewee.py, MySQLDatabase
PEEWEE: tuple[Step, ...] = (
    asks("USE app", OK, "the database of its connection"),
    asks(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = COALESCE(NULL, DATABASE()) "
        "AND table_type != 'VIEW' ORDER BY table_name",
        _NOTHING,
        "the tables are to be made",
    ),
    asks("SHOW INDEX FROM `m`", refused(1146, _NO_TABLES), "ProgrammingError of get_indexes()"),
    asks(
        "SELECT kcu.column_name, kcu.referenced_table_name, kcu.referenced_column_name, kcu.constraint_name, "
        "rc.delete_rule, rc.update_rule FROM information_schema.key_column_usage AS kcu INNER JOIN "
        "information_schema.referential_constraints AS rc ON (rc.constraint_schema = kcu.constraint_schema AND "
        "rc.constraint_name = kcu.constraint_name AND rc.table_name = kcu.table_name) WHERE kcu.table_name = 'm' "
        "AND kcu.table_schema = COALESCE(NULL, DATABASE()) AND kcu.referenced_table_name IS NOT NULL AND "
        "kcu.referenced_column_name IS NOT NULL",
        _NOTHING,
        "no foreign keys",
    ),
    asks(
        "SELECT table_name, view_definition FROM information_schema.views WHERE table_schema = "
        "COALESCE(NULL, DATABASE()) ORDER BY table_name",
        _NOTHING,
        "no views",
    ),
)

FLEET: Final = [
    Script("Orchestrator", ("discovery",), ORCHESTRATOR),
    Script("ProxySQL", ("monitor",), PROXYSQL),
    Script("MaxScale monitor", ("monitoring",), MAXSCALE_MONITOR),
    Script("replication-manager", ("monitor",), REPLICATION_MANAGER),
    Script("mysqld_exporter and PMM", ("all collectors",), EXPORTERS),
    Script("Nagios check_mysql", ("check",), CHECK_MYSQL),
    Script("check_mysql_health", ("all modes",), CHECK_MYSQL_HEALTH),
    Script("check_mysql_slavestatus", ("check",), CHECK_SLAVESTATUS),
    Script("Percona monitoring plugins", ("checks",), PERCONA_PLUGINS),
    Script("mariadb-operator and healthcheck.sh", ("probes",), PROBES),
    Script(
        "Debezium",
        ("start-up, snapshot, GTID stream",),
        DEBEZIUM,
        GTID_DUMP_AT_0,
        PING,
        BEHIND_POSITION,
        heartbeats=1,
    ),
    Script("Flink CDC", ("start-up queries",), FLINK),
    Script(
        "canal",
        ("start-up, GTID stream",),
        CANAL,
        GTID_DUMP_AT_0,
        gets=BEHIND_POSITION,
        heartbeats=1,
    ),
    Script("Python: Django and Peewee", ("Django: start-up queries",), DJANGO),
    Script("Python: Django and Peewee", ("Peewee: introspection",), PEEWEE),
    Script("Airbyte", ("check, start-up queries",), AIRBYTE),
    Script(
        "Maxwell",
        ("start-up, GTID stream",),
        MAXWELL,
        GTID_DUMP_AT_0,
        gets=BEHIND_POSITION,
        heartbeats=1,
    ),
]
# On no page: what the documentation says, not the source.
OF_HABIT: Final = [Script("AWS DMS", ("its demands",), DMS)]

SCRIPTS: Final = {s.name: s for s in (*OF_12_3, *OF_ANY, *OF_PROGRAMS, *FLEET)}
