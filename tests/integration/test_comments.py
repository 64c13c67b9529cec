"""Comments of all kinds beside a real 11.8: what is executed, what is committed, and what is refused."""

from __future__ import annotations

from typing import Any, Final

import pymysql
from pymysql.cursors import Cursor

from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB
from tests.kit.oracle import require_same

INSERT: Final = "INSERT INTO s.t VALUES (1)"
TEXTS: Final = [
    f"/*!999999 {INSERT} */",
    f"/*!999999 {INSERT} */ {INSERT}",
    f"{INSERT} */",
    "INSERT INTO s.t VALUES (/*!40100 1 */)",
    "INSERT INTO s.t VALUES (*/ 1)",
    f"{INSERT} /*!40100 */ */",
    f"{INSERT} /*!999999 x",
    f"{INSERT} /* x",
    f"{INSERT} /*!40100 ",
    f"/*!40100 {INSERT}",
    f"/*!40100 {INSERT} */ */",
    "DROP TABLE IF EXISTS s.nope */",
    "CREATE TABLE s.u (a INT) */",
    "CREATE TABLE s.v (a INT) /*!999999 x",
    "*/ SELECT 1",
    "SELECT 1 */",
    "SELECT 1 */ + 2",
    *(
        f"/*{mark}{number} SELECT 1 */"
        for mark in ("!", "M!", "m!")
        for number in (
            *("", "0", "1", "1000", "4010", "12345", "40100", "50699", "50700", "50701", "59999"),
            *("99999", "100000", "110809", "110810", "401001", "999999", "050701", "0507011"),
            *("1000000", "9999990"),
        )
    ),
    "/*!40100SELECT 1*/",
    "/*!40100 SELECT /*!40100 1 */ */",
    "/*!40100 SELECT /*!40100 1 */ */ , 2",
    "/*!40100 SELECT /* in */ 1 */",
    "/*!40100 SELECT 1",
    "/*! SELECT 1",
    "/*!999999 SELECT 1",
    "/* SELECT 1",
    "SELECT 1 /*! */*/",
    "SELECT 1 /*!999999 , 2 /* in */ , 3 */",
    "SELECT /*!999999 /*!999999 1 */ */ 5",
    "SELECT/**/1",
    "SELECT 1 --\t1",
    "SELECT 1 --",
    "/* c */",
    "/*!40100 */",
    "/*!999999 x */",
    "-- c",
    "# c",
    "  -- c\n ",
    "/* c */;",
    "-- c\n;",
    "/*!40100 */;",
    "/* a */ ; /* b */",
    "",
    "  ",
    ";",
    " ; ;",
    "SELECT 1; ;",
    "SELECT 1; /* c */",
    "COMMIT ; /* x */",
    "USE s ; -- d",
    "/*!40100 CHANGE MASTER TO MASTER_DELAY=0 */",
    "/*!999999 x */ STOP SLAVE",
    "STOP SLAVE /*!999999 x */",
    "STOP SLAVE */",
    "/*!999999 x */ SELECT 2",
]


def outcome(connection: Any, text: str) -> tuple[object, ...]:
    """The rows, or the number of the error; and whether something was committed."""
    cursor = connection.cursor(Cursor)

    def position() -> object:
        cursor.execute("SELECT @@gtid_binlog_pos")
        return cursor.fetchall()

    before = position()
    try:
        cursor.execute(text)
        found: object = cursor.fetchall()
    except pymysql.Error as error:
        found = error.args[0]
    return found, position() != before


def test_like_a_real_server(make_upstream: MakeMariaDB, binlog_server: MakeBinlogServer) -> None:
    real = make_upstream(version="11.8")
    ours = binlog_server(users={"root": {"password": "pw", "grants": ["ALL PRIVILEGES"]}})
    with real.connect(autocommit=True) as theirs, ours.connect(autocommit=True) as own:
        for connection in (theirs, own):
            for text in ("CREATE DATABASE s", "CREATE TABLE s.t (a INT)"):
                connection.cursor().execute(text)
        different = {
            text: both
            for text in TEXTS
            if (both := (outcome(own, text), outcome(theirs, text)))[0] != both[1]
        }
    require_same(real.value("SELECT VERSION()"), different)


def test_what_was_not_executed_is_a_comment_in_the_log(
    make_upstream: MakeMariaDB, binlog_server: MakeBinlogServer
) -> None:
    """Or a newer replica would execute it."""
    logged = []
    for server in (
        make_upstream("--binlog-format=STATEMENT", version="11.8"),
        binlog_server(users={"root": {"password": "pw", "grants": ["ALL PRIVILEGES"]}}),
    ):
        with server.connect(autocommit=True) as connection:
            cursor = connection.cursor(Cursor)
            for text in (
                "CREATE DATABASE s",
                "CREATE TABLE s.t (a INT /*!999999 , b INT /* c */ */)",
                "INSERT INTO s.t VALUES (1 /*M!999999 , 2 */ /*!40100 + 1 */)",
                f"INSERT INTO s.t VALUES ({'1' * 5} /*!50700 {'x' * 9000} */)",
            ):
                cursor.execute(text)
            cursor.execute("SHOW BINLOG EVENTS")
            logged.append([row[5] for row in cursor.fetchall() if row[2] == "Query"][-3:])
    assert "/* 999999" in str(logged[0])
    assert logged[0] == logged[1]
