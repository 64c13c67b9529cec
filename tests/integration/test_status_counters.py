"""SHOW STATUS counts what a MariaDB 11.8 counts: the same statements, said to both."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import pymysql
import pytest
from pymysql.constants import COMMAND

from binlog_server.testing.mariadb import MariaDB
from binlog_server.testing.waiting import until
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB
from tests.kit.server import BinlogServer

# Each of them does not change what the next one counts. Those that one of the two refuses are left out.
STATEMENTS: Final = """
SELECT 1
SELECT * FROM information_schema.SCHEMATA
SELEKT 1
SET @a=1
SET @a=(SELECT 1)
SET NAMES utf8mb4
SET ROLE NONE
SET STATEMENT max_statement_time=10 FOR SELECT 1
SHOW VARIABLES LIKE 'x'
SHOW STATUS LIKE 'x'
SHOW DATABASES
SHOW WARNINGS
SHOW ERRORS
SHOW COUNT(*) WARNINGS
SHOW MASTER STATUS
SHOW BINARY LOGS
SHOW BINLOG EVENTS LIMIT 1
SHOW SLAVE HOSTS
SHOW SLAVE STATUS
SHOW ALL SLAVES STATUS
SHOW FULL PROCESSLIST
SHOW ENGINES
SHOW PRIVILEGES
SHOW ENGINE INNODB STATUS
SHOW ENGINE INNODB MUTEX
SHOW GRANTS
SHOW CREATE USER
SHOW CREATE DATABASE information_schema
SHOW CREATE TABLE none.such
SHOW CREATE PROCEDURE none.such
SHOW CREATE FUNCTION none.such
SHOW TABLES FROM information_schema
SHOW TABLE STATUS FROM information_schema
SHOW OPEN TABLES
SHOW TRIGGERS FROM information_schema
SHOW EVENTS FROM information_schema
DESCRIBE information_schema.SCHEMATA
SHOW INDEX FROM information_schema.SCHEMATA
SHOW COLLATION LIKE 'x'
SHOW CHARACTER SET LIKE 'x'
SHOW PLUGINS
SHOW PROCEDURE STATUS
SHOW FUNCTION STATUS
XA RECOVER
XA COMMIT 'x'
PURGE BINARY LOGS TO 'x'
PURGE BINARY LOGS BEFORE '2000-01-01'
FLUSH BINARY LOGS
FLUSH TABLES
FLUSH HOSTS
FLUSH USER_RESOURCES
KILL 99999
KILL USER nobody
CHANGE MASTER 'x' TO MASTER_USER='x'
START SLAVE 'none'
STOP SLAVE 'none'
START ALL SLAVES
STOP ALL SLAVES
RESET SLAVE 'none'
PREPARE s FROM 'SELECT 1'
EXECUTE s
DEALLOCATE PREPARE s
EXECUTE s
EXECUTE IMMEDIATE 'SELECT 1'
BEGIN
SAVEPOINT a
ROLLBACK TO a
RELEASE SAVEPOINT a
COMMIT
START TRANSACTION
ROLLBACK
CREATE DATABASE counted
USE counted
CREATE TABLE counted.t(a INT PRIMARY KEY, b INT)
LOCK TABLES counted.t WRITE
UNLOCK TABLES
INSERT INTO counted.t VALUES (1,1)
insert counted.t values (2,1),(3,1)
REPLACE INTO counted.t VALUES (1,2)
UPDATE counted.t SET b=2
DELETE FROM counted.t WHERE a=1
SET STATEMENT max_statement_time=10 FOR INSERT INTO counted.t VALUES(99,1)
CREATE UNIQUE INDEX i ON counted.t(b, a)
DROP INDEX i ON counted.t
ALTER TABLE counted.t ADD c INT
RENAME TABLE counted.t TO counted.u
TRUNCATE counted.u
ANALYZE TABLE counted.u
CREATE OR REPLACE DEFINER=CURRENT_USER VIEW counted.v AS SELECT 1
ALTER VIEW counted.v AS SELECT 3
DROP VIEW counted.v
CREATE SEQUENCE counted.s
DROP SEQUENCE counted.s
CREATE DEFINER=CURRENT_USER PROCEDURE counted.p() SELECT 1
DROP PROCEDURE counted.p
DROP TABLE counted.u
ALTER SCHEMA counted CHARACTER SET utf8mb4
DROP SCHEMA counted
CREATE OR REPLACE USER counted IDENTIFIED BY 'x'
ALTER USER counted IDENTIFIED BY 'y'
SET PASSWORD FOR counted=PASSWORD('z')
RENAME USER counted TO counted2
GRANT RELOAD ON *.* TO counted2
REVOKE RELOAD ON *.* FROM counted2
DROP USER counted2
/* nothing */
HELP 'x'
SELECT MASTER_GTID_WAIT('9-9-999', 0.001)
SET STATEMENT max_statement_time=0.01 FOR SELECT SLEEP(1)
SET long_query_time=0
SELECT 1
COMMIT
SELEKT 1
SET long_query_time=10
SELECT 1
RESET MASTER
""".strip().split("\n")
COUNTED: Final = (
    *("Com_", "Questions", "Queries", "Slow_queries", "Prepared_stmt_count"),
    *("Master_gtid_wait_count", "Master_gtid_wait_timeouts", "Max_statement_time_exceeded"),
)
Login = Callable[..., Any]


@pytest.fixture
def logins(make_upstream: MakeMariaDB, binlog_server: MakeBinlogServer) -> list[Login]:
    """To log in as one who may do everything: to a MariaDB, and to ours."""
    real = make_upstream(version="11.8")
    real.script("GRANT ALL ON *.* TO counts@'%' IDENTIFIED BY 'counts' WITH GRANT OPTION")
    ours = binlog_server(users={"counts": {"password": "counts", "grants": ["ALL PRIVILEGES"]}})
    return [_login_of(real), _login_of(ours)]


def _login_of(server: MariaDB | BinlogServer) -> Login:
    def login(**options: Any) -> Any:
        known = {"user": "counts", "password": "counts", "ssl_disabled": True, "autocommit": True}
        return pymysql.connect(host=server.host, port=server.port, **{**known, **options})

    return login


class Counters:
    """What is counted between two looks, without the looks."""

    def __init__(self, login: Login) -> None:
        self._watch = login()
        self._before: dict[str, str] = {}
        self._looks = 0

    def _look(self) -> dict[str, str]:
        cursor = self._watch.cursor()
        cursor.execute("SHOW GLOBAL STATUS")
        return dict(cursor.fetchall())

    def begin(self) -> None:
        self._before = self._look()
        self._looks = 0

    def has_questions(self) -> bool:
        """Whether anybody else has asked something."""
        return "Questions" in self.counted()

    def counted(self) -> dict[str, int]:
        now, found = self._look(), {}
        self._looks += 1
        for name in (name for name in now if name.startswith(COUNTED)):
            own = self._looks if name in ("Com_show_status", "Questions", "Queries") else 0
            found[name] = int(now[name]) - int(self._before[name]) - own
        return {name: value for name, value in found.items() if value}


def _alike(ours: Counters, real: Counters) -> bool:
    return ours.counted() == real.counted()


def test_statements(logins: list[Login]) -> None:
    watched = [(Counters(login), login()) for login in logins]
    for statement in STATEMENTS:
        for counters, client in watched:
            counters.begin()
            with contextlib.suppress(pymysql.MySQLError):
                client.cursor().execute(statement)
        real, ours = (counters for counters, _ in watched)
        # A real server counts a slow query behind its answer.
        with contextlib.suppress(TimeoutError):
            until(partial(_alike, ours, real))
        assert ours.counted() == real.counted(), statement


def _prepare(client: Any, sql: bytes) -> None:
    client._execute_command(COMMAND.COM_STMT_PREPARE, sql)
    client._read_packet()


def _ask(client: Any, code: int, body: bytes = b"") -> None:
    client._execute_command(code, body)
    client._read_packet()


NUMBER: Final = (1).to_bytes(4, "little")
COMMANDS: Final[Mapping[str, Callable[[Any], object]]] = {
    "ping": lambda client: client.ping(reconnect=False),
    "statistics": lambda client: _ask(client, COMMAND.COM_STATISTICS),
    "init db": lambda client: client.select_db("information_schema"),
    "set option": lambda client: _ask(client, COMMAND.COM_SET_OPTION, b"\1\0"),
    "reset connection": lambda client: _ask(client, 0x1F),
    "debug": lambda client: _ask(client, COMMAND.COM_DEBUG),
    "unknown": lambda client: _ask(client, 200),
    "kill": lambda client: _ask(client, COMMAND.COM_PROCESS_KILL, b"\xff\xff\0\0"),
    "prepare": lambda client: _prepare(client, b"DELETE FROM mysql.db WHERE 1=0"),
    "prepare nonsense": lambda client: _prepare(client, b"SELEKT"),
    "reset": lambda client: _ask(client, COMMAND.COM_STMT_RESET, NUMBER),
    "long data": lambda client: client._execute_command(0x18, NUMBER + b"\0\0x"),
    "close": lambda client: client._execute_command(COMMAND.COM_STMT_CLOSE, NUMBER),
    "unknown number": lambda client: _ask(client, COMMAND.COM_STMT_EXECUTE, b"c\0\0\0\0\1\0\0\0"),
    "quit": lambda client: client.close(),
}


def test_commands(logins: list[Login]) -> None:
    watched = [(Counters(login), login()) for login in logins]
    for name, say in COMMANDS.items():
        counted = []
        for counters, client in watched:
            counters.begin()
            with contextlib.suppress(pymysql.MySQLError):
                say(client)
                if name in ("long data", "close"):  # have no answer
                    client.ping(reconnect=False)
            if name == "quit":
                until(counters.has_questions, "the end is counted")
            counted.append(counters.counted())
        assert counted[1] == counted[0], name


def test_ends_of_connections(logins: list[Login]) -> None:
    def drop(login: Login) -> None:
        client = login()
        client._force_close()  # without COM_QUIT

    def kill(login: Login) -> None:
        login().cursor().execute("KILL CONNECTION_ID()")

    def late(login: Login) -> None:
        client = login(init_command="SET wait_timeout=1")
        with contextlib.suppress(ConnectionResetError):
            client._sock.recv(1)

    def wrong(login: Login) -> None:
        login(password="wrong")

    def bare(login: Login) -> None:
        client = login(defer_connect=True)
        socket.create_connection((client.host, client.port)).close()

    for end, name in (
        (drop, "Aborted_clients"),
        (kill, "Aborted_clients"),
        (late, "Aborted_clients"),
        (wrong, "Aborted_connects"),
        (bare, "Aborted_connects"),
    ):
        assert _aborted(logins[1], end, name) == _aborted(logins[0], end, name), end.__name__


def _aborted(login: Login, end: Callable[[Login], None], name: str) -> dict[str, int]:
    """What is counted when a connection ends so; `name` is among it."""
    watch = login()

    def look() -> dict[str, int]:
        cursor = watch.cursor()
        cursor.execute("SHOW GLOBAL STATUS LIKE 'A%e%'")
        found = dict(cursor.fetchall())
        return {n: int(v) for n, v in found.items() if n.startswith(("Aborted", "Access"))}

    before = look()
    with contextlib.suppress(pymysql.MySQLError):
        end(login)
    until(lambda: look()[name] != before[name], f"{end.__name__} is counted")
    return {name: value - before[name] for name, value in look().items()}


def test_of_the_session_and_flushed(logins: list[Login]) -> None:
    """FLUSH STATUS: the session's begin anew, and the server's stay; FLUSH GLOBAL STATUS: those, too."""
    shown = []
    for login in logins:
        client, other = login(), login()
        client.cursor().execute("SELECT 1")
        other.cursor().execute("SELECT 1")
        values: list[int] = []
        before = _selects(client, "GLOBAL")  # a MariaDB has asked itself something when it was made
        for said in ("SELECT 2", "FLUSH STATUS", "FLUSH GLOBAL STATUS", "SELECT 3"):
            client.cursor().execute(said)
            values += [_selects(client, "SESSION"), _selects(other, "SESSION")]
            values.append(_selects(client, "GLOBAL") - before)
            before += values[-1]
        shown.append(values)
        assert _selects(client, "GLOBAL") == 2  # the other session's, and the last
    # How many were forgotten differs.
    forgotten = 3 * 2 + 2
    assert [v for at, v in enumerate(shown[1]) if at != forgotten] == [
        v for at, v in enumerate(shown[0]) if at != forgotten
    ]


def _selects(client: Any, scope: str) -> int:
    cursor = client.cursor()
    cursor.execute(f"SHOW {scope} STATUS LIKE 'Com_select'")
    return int(cursor.fetchone()[1])
