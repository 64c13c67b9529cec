"""What the page tells about: the features of replicas, the other clients, and which recordings are of which."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from binlog_server.accounts.replica_policy import StreamStyle

from .outcome import Outcome

REPLICAS = ("10.11", "11.8", "12.3", "any client")


def nothing(_: Outcome) -> str:
    return ""


@dataclass(frozen=True)
class Feature:
    """A row of the table of replicas.

    scenarios: of recordings that are about it.
    lacks: why it does not count as served although no answer was wrong.
    remark: how it is served.
    style: of the stream of the account.
    not_in: a version that does not have it.
    """

    name: str
    title: str
    scenarios: tuple[str, ...] = ()
    lacks: Callable[[Outcome], str] = nothing
    remark: Callable[[Outcome], str] = nothing
    style: StreamStyle = StreamStyle.ENGINE
    not_in: str = ""


def negotiates(algorithm: str) -> Callable[[Outcome], str]:
    def lacks(outcome: Outcome) -> str:
        same = outcome.checksum in (algorithm, None)
        return "" if same else f"@master_binlog_checksum is {outcome.checksum}"

    return lacks


def uncompressed(outcome: Outcome) -> str:
    return "" if outcome.compressed else "not offered, goes without"


_CLASSIC = StreamStyle.CLASSIC

FEATURES = [
    Feature("fresh", "from the beginning", ("01-fresh",)),
    Feature("position", "from a GTID position", ("02-pos", "03-uptodate")),
    Feature("several domains", "several domains", ("05-multidomain",)),
    Feature("strict mode", "`gtid_strict_mode`", ("06-strict",)),
    Feature("ignore duplicates", "`gtid_ignore_duplicates`", ("07-ignoredup",)),
    Feature("UNTIL", "`UNTIL master_gtid_pos`", ("12-until",)),
    Feature("SQL_BEFORE_GTIDS", "`UNTIL SQL_BEFORE_GTIDS`", ("12b-until-before",), not_in="10.11"),
    Feature("heartbeats", "heartbeats", ("04-heartbeat",)),
    Feature("no heartbeats", "`MASTER_HEARTBEAT_PERIOD=0`", ("18-hb0",)),
    Feature("parallel", "`slave_parallel_threads`, its modes", ("08-parallel",)),
    Feature(
        "domain filters",
        "`DO_DOMAIN_IDS`, `IGNORE_DOMAIN_IDS`",
        ("09-ignoredomains", "09b-dodomains"),
    ),
    Feature("FILTER_ON_MASTER", "`FILTER_ON_MASTER`", ("17-skiprepl",)),
    Feature("compressed", "`slave_compressed_protocol`", ("11-compressed",), remark=uncompressed),
    Feature("TLS", "TLS"),
    Feature("semi-sync", "semi-sync", ("10-semisync", "10b-semislave-only")),
    Feature("reconnect", "comes back after the master went away", ("24-master-restart",)),
    Feature("cut in a group", "comes back after a cut inside a group"),
    Feature("KILL", "KILL of its connection", ("13-kill",)),
    Feature("duplicate server_id", "a second one with its server_id"),
    Feature("refusals", "positions refused (1236)", ("19-err-future", "19b-err-diverged")),
    Feature("purged", "purged positions refused", ("19d-err-purged", "19d2-err-purged-empty")),
    Feature(
        "holes",
        "holes and unknown domains",
        ("19c-err-unknown-domain", "19e-err-hole-strict", "19f-hole-nonstrict"),
    ),
    Feature(
        "logins refused",
        "wrong password, no privilege, server_id of the master",
        ("20-err-badpass", "21-err-noprivs", "22-err-same-as-master"),
    ),
    Feature("large events", "events of many megabytes", ("23-maxpacket",)),
    Feature("other version", "groups of another version", ("cross",)),
    Feature("two-phase ALTER", "`binlog_alter_two_phase`", ("two-phase", "two-phase-parallel")),
    Feature("checksum NONE", "checksum NONE", ("15-checksum-none",), negotiates("NONE")),
    Feature("NON_BLOCK", "`BINLOG_DUMP_NON_BLOCK`"),
    Feature("engine style", "engine-style stream", ("01-fresh",), negotiates("NONE")),
    Feature("file and position", "engine style, `MASTER_USE_GTID=no`", ("16-filepos",)),
    Feature("classic style", "classic-style stream", ("01-fresh", "02-pos"), style=_CLASSIC),
    Feature(
        "classic by file",
        "classic style, `MASTER_USE_GTID=no`",
        ("16-filepos",),
        style=_CLASSIC,
    ),
    Feature("weaker capability", "classic style, weaker capability by file", style=_CLASSIC),
    Feature(
        "checksum CRC32",
        "classic style, checksum CRC32",
        ("01-fresh",),
        negotiates("CRC32"),
        style=_CLASSIC,
    ),
]

# Scenario: client and what it does.
CLIENT_SCENARIOS = {
    "cl-mariadb-cli": ("mariadb", "batch"),
    "cl-mariadb-cli-db": ("mariadb", "interactive"),
    "show": ("mariadb", "monitoring statements"),
    "cl-binlog-remote-gtidstart": ("mariadb-binlog", "-R --start-position=GTID"),
    "cl-binlog-remote": ("mariadb-binlog", "-R FILE"),
    "cl-binlog-remote-startpos": ("mariadb-binlog", "-R --start-position=OFFSET FILE"),
    "cl-binlog-remote-stopnever": ("mariadb-binlog", "-R --stop-never FILE"),
    "cl-binlog-remote-raw-tolast": ("mariadb-binlog", "-R --raw --to-last-log FILE"),
    "cl-dump-master-data": ("mariadb-dump", "--master-data --gtid --single-transaction"),
    "cl-dump-plain-nogtid": ("mariadb-dump", "--master-data --flush-logs"),
    "cl-pymysql": ("pymysql", "queries"),
    "cl-mysql-connector-pure": ("mysql-connector-python", "queries"),
    "cl-py-replication-mariadb-gtid": ("python-mysql-replication", "GTID stream"),
    "cl-py-replication-mariadb-annotate": ("python-mysql-replication", "GTID stream, annotated"),
    "cl-py-replication-slaveuuid": ("python-mysql-replication", "file mode, slave_uuid"),
    "cl-py-replication-default": ("python-mysql-replication", "file mode"),
    "cl-py-replication-resume": ("python-mysql-replication", "file mode, from a position"),
}
CLIENTS = (
    "mariadb",
    "mariadb-binlog",
    "mariadb-dump",
    "pymysql",
    "mysql-connector-python",
    "MariaDB Connector/Python",
    "Python: mysqlclient",
    "Python: aiomysql and asyncmy",
    "Python: SQLAlchemy",
    "Python: Django and Peewee",
    "Connector/J",
    "Connector/ODBC with pyodbc",
    "Node mariadb and mysql2",
    "Perl DBD::MariaDB and DBD::mysql",
    "PHP mysqli and PDO",
    "Go go-sql-driver/mysql",
    "mysqld_exporter",
    "percona-toolkit",
    "mycli",
    "zongji",
    "python-mysql-replication",
    "go-mysql",
    "mysql-binlog-connector-java",
    "MaxScale binlogrouter",
    "Debezium",
    "canal",
    "Maxwell",
    "Flink CDC",
    "Airbyte",
    "Orchestrator",
    "ProxySQL",
    "MaxScale monitor",
    "replication-manager",
    "mysqld_exporter and PMM",
    "Nagios check_mysql",
    "check_mysql_health",
    "check_mysql_slavestatus",
    "Percona monitoring plugins",
    "mariadb-operator and healthcheck.sh",
)


@dataclass(frozen=True)
class Tried:
    """A version of a program that a live test runs, of a package of Python, Debian or Node; a newer one may run, too.

    recorded: versions whose conversations with a real 11.8 are said to our server.
    """

    program: str
    version: str
    package: str
    of: str = "python"
    recorded: str = ""


TRIED = (
    Tried("PyMySQL", "1.2.4", "PyMySQL", recorded="1.2.4"),
    Tried(
        "mysql-connector-python", "9.7.0", "mysql-connector-python", recorded="9.1 C, 26.10 pure"
    ),
    Tried("MariaDB Connector/Python", "1.1.14", "mariadb", recorded="1.1.14"),
    Tried("mysqlclient", "2.3.1", "mysqlclient", recorded="2.3.1"),
    Tried("aiomysql", "0.3.2", "aiomysql", recorded="0.3.2"),
    Tried("asyncmy", "0.2.18", "asyncmy", recorded="0.2.18"),
    Tried("SQLAlchemy", "2.1.9", "SQLAlchemy", recorded="2.1.9"),
    Tried("pandas", "2.3.3", "pandas"),
    Tried("python-mysql-replication", "1.0.17", "mysql-replication", recorded="1.0.17"),
    Tried("Connector/J", "2.7.6", "libmariadb-java", "debian", "2.7.6, 3.5.9"),
    Tried("Connector/ODBC", "3.1.15", "odbc-mariadb", "debian", "3.1.15"),
    Tried("pyodbc", "5.5.0", "pyodbc", recorded="5.5.0"),
    Tried("Node mariadb", "3.5.4", "mariadb", "node", "3.5.4"),
    Tried("Node mysql2", "3.24.6", "mysql2", "node", "3.24.6, and mysql 2.18.1"),
    Tried("zongji", "0.9.0", "@vlasky/zongji", "node", "0.9.0"),
    Tried("Perl DBD::MariaDB", "1.22", "libdbd-mariadb-perl", "debian", "1.22"),
    Tried("Perl DBD::mysql", "4.050", "libdbd-mysql-perl", "debian", "4.050"),
    Tried("PHP mysqli and PDO", "8.2", "php-mysql", "debian", "8.2"),
    Tried(
        "Go go-sql-driver/mysql",
        "1.5.0",
        "golang-github-go-sql-driver-mysql-dev",
        "debian",
        "1.5.0, 1.7.1",
    ),
    Tried("mysqld_exporter", "0.14.0", "prometheus-mysqld-exporter", "debian", "0.14.0"),
    Tried("percona-toolkit", "3.2.1", "percona-toolkit", "debian", "3.2.1"),
    Tried("mycli", "1.26.1", "mycli", "debian", "1.26.1"),
)
