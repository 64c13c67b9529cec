"""Random expressions of CHECK, DEFAULT and generated columns: an 11.8 and a 10.11 take each that is taken here.

A replica stops at a table that is taken here and refused there.
"""

from __future__ import annotations

import random
import re
from typing import Any, Final

import pymysql
import pytest

from tests.integration.test_tables import USERS
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB

COLUMNS: Final = {
    "i": "INT", "iu": "INT UNSIGNED", "bu": "BIGINT UNSIGNED", "dc": "DECIMAL(10,2)", "du": "DECIMAL(10,2) UNSIGNED",
    "f": "FLOAT", "d": "DOUBLE", "bt": "BIT(5)", "y": "YEAR", "da": "DATE", "t": "TIME", "t3": "TIME(3)",
    "dt": "DATETIME", "dt3": "DATETIME(3)", "ts": "TIMESTAMP NULL", "c": "CHAR(5)", "v": "VARCHAR(20)",
    "vg": "VARCHAR(20) COLLATE utf8mb4_general_ci", "tx": "TEXT",
    "j": "JSON", "bi": "BINARY(3)", "vb": "VARBINARY(16)", "bl": "BLOB", "e": "ENUM('a','b')", "s": "SET('a','b')",
    "u": "UUID", "i4": "INET4", "i6": "INET6",
}  # fmt: skip
CONSTANTS: Final = ("2", "1.5", "'x'", "'2026-01-02'", "NULL", "-1", "'10:00:00'")
BINARY: Final = (
    *("=", "<>", "<", "<=>", "+", "-", "*", "/", "DIV", "MOD", "LIKE", "REGEXP", "AND", "OR"),
    "XOR",
)
FUNCTIONS: Final = {
    1: "ABS CHAR_LENGTH FLOOR HEX JSON_VALID LCASE LTRIM MD5 MONTH REVERSE ROUND RTRIM SIGN TO_DAYS UCASE YEAR HOUR "
    "MINUTE SECOND QUARTER ASCII TRIM ISNULL LENGTH",
    2: "CONCAT COALESCE IFNULL NULLIF GREATEST LEAST LEFT RIGHT LOCATE FIND_IN_SET MOD CONCAT_WS FIELD SUBSTR RPAD",
    3: "LPAD RPAD REPLACE IF COALESCE CONCAT SUBSTR LOCATE",
}
RESULTS: Final = (
    *("INT", "DOUBLE", "VARCHAR(90)", "DATETIME", "DECIMAL(20,4)", "DATE", "TIME", "INET6", "UUID"),
    *("BIT(8)", "YEAR", "ENUM('a','b')", "CHAR(20)", "VARBINARY(20)", "DATETIME(6)"),
)
PLACES: Final = (
    *("CHECK ({1})", "g {0} AS ({1}) VIRTUAL", "g {0} AS ({1}) STORED"),
    *("g {0} DEFAULT ({1})", "g {0} AS ({1}) VIRTUAL, KEY (g)"),
)


def expression(rng: random.Random, depth: int) -> str:
    def part() -> str:
        if depth and rng.random() < 0.25:
            return f"({expression(rng, depth - 1)})"
        return rng.choice(list(COLUMNS) if rng.random() < 0.75 else CONSTANTS)

    match rng.randrange(12):
        case 0 | 1 | 2 | 3:
            return f"{part()} {rng.choice(BINARY)} {part()}"
        case 4:
            return f"{part()} BETWEEN {part()} AND {part()}"
        case 5:
            return f"{part()} IN ({part()}, {part()})"
        case 6:
            return f"CASE {part()} WHEN {part()} THEN {part()} ELSE {part()} END"
        case 7:
            return f"-{part()}"
    count = rng.choice((1, 1, 2, 2, 3))
    given = ", ".join(part() for _ in range(count))
    return f"{rng.choice(FUNCTIONS[count].split())}({given})"


def definition(rng: random.Random) -> str:
    said = rng.choice(PLACES).format(rng.choice(RESULTS), expression(rng, rng.choice((0, 0, 1))))
    words = set(re.findall(r"\w+", re.sub(r"'[^']*'", "", said)))
    named = "".join(f"{name} {kind}, " for name, kind in COLUMNS.items() if name in words)
    return f"CREATE OR REPLACE TABLE shop.t (id INT PRIMARY KEY, {named}{said})"


def refusal(cursor: Any, text: str) -> str:
    try:
        cursor.execute(text)
    except pymysql.MySQLError as error:
        return str(error)
    return ""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("version", ["10.11", "11.8"])
def test_each_definition_that_is_taken_here_is_taken_there(
    version: str, make_replica: MakeMariaDB, binlog_server: MakeBinlogServer, rng: random.Random
) -> None:
    real, ours = make_replica(version=version), binlog_server(users=USERS, local_tables=True)
    taken, stopping = 0, {}
    with real.connect(autocommit=True) as there, ours.connect(autocommit=True) as here:
        mine, theirs = here.cursor(), there.cursor()
        for cursor in (mine, theirs):
            cursor.execute("CREATE DATABASE shop COLLATE utf8mb4_uca1400_ai_ci")
        theirs.execute("SET sql_mode=''")  # as for a replica
        for _ in range(3000):
            text = definition(rng)
            if not refusal(mine, text):
                taken += 1
                stops = refusal(
                    theirs, text.replace(" OR REPLACE TABLE", " OR REPLACE TEMPORARY TABLE")
                )
                stopping.update({text: stops} if stops else {})
    assert taken > 1500
    assert not stopping, "\n".join(f"{text}: {said}" for text, said in stopping.items())
