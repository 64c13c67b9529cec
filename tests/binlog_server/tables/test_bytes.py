"""Bytes, BIT, years and times beside values of other types are what they are in a MariaDB: 10.11 and 11.8 answer so."""

from __future__ import annotations

from tests.binlog_server.lab import ROOT
from tests.binlog_server.tables.scene import lab_with
from tests.binlog_server.tables.test_sessions import errno

TABLE = (
    "CREATE TABLE shop.b (id INT PRIMARY KEY, bn VARBINARY(8), fb BINARY(3), c VARCHAR(5), "
    "vb VARCHAR(5) COLLATE utf8mb4_bin, b BIT(16), e ENUM('a','B')) COLLATE utf8mb4_general_ci"
)  # fmt: skip
ROWS = (
    "INSERT INTO shop.b VALUES (1,'a','a','a','a',5,'a'), (2,'a ','A','A','A',65,'B'), (3,'','','','',0,NULL), "
    "(4,x'FF','5','5','5',53,'a'), (5,' ','ä','ä','ä',1,'a')"
)
# For which rows a condition holds.
HOLDS = {
    # blanks at the end count in bytes
    "bn = 'a'": "1",
    "bn = 'a '": "2",
    "bn = ''": "3",
    "bn IN ('a ', ' ')": "2,5",
    "bn > 'a'": "2,4",
    "bn = c": "1,3",
    "fb = 'a'": "",
    "BINARY c = 'a '": "",
    "STRCMP(bn, 'a ') = 0": "2",
    "NULLIF(bn, 'a ') IS NULL": "2",
    # what is said in hexadecimal digits is a text beside one
    "c = x'41'": "1,2,5",
    "c = 0x61": "1,2,5",
    "c <=> b'1000001'": "1,2,5",
    "c IN (0x41, '5')": "1,2,4,5",
    "c BETWEEN x'41' AND x'42'": "1,2,5",
    "c LIKE x'41'": "1,2,5",
    "x'41' IN (c, '7')": "1,2,5",
    "CASE c WHEN x'41' THEN 1 END": "1,2,5",
    "NULLIF(c, x'41') IS NULL": "1,2,5",
    "STRCMP(c, x'41') = 0": "1,2,5",
    "vb = x'41'": "2",
    "vb = x'4120'": "2",
    "bn = x'61'": "1",
    "e = x'41'": "1,4,5",
    "c > b'101'": "1,2,3,4,5",
    # BIT is a number
    "b = '65'": "2",
    "b IN ('65', '1')": "2,5",
    "b BETWEEN '0' AND '5'": "1,3,5",
    "b = bn": "3",
    "b = 0x41": "2",
    "b = e": "5",
    # what is made of bytes is bytes
    "COALESCE(bn, 'x') = 'a '": "2",
    "HEX(CONCAT(bn, c)) = 'FF35'": "4",
    "IFNULL(bn, '') IN (SELECT bn FROM shop.b UNION SELECT 'a  ') AND LENGTH(bn) < 2": "1,3,4,5",
}  # fmt: skip
YEARS = {
    "'0000-00-00'": "2000",
    "'000'": "2000",
    "'0000'": "0000",
    "'  00'": "0000",
    "'0.4'": "2000",
    "''": "0000",
    "'abc'": "0000",
    "0": "0000",
    "1.5e0": "2001",
    "1.5": "2002",
    "2001.9e0": "2001",
    "2155.9e0": "0000",
}


async def test_what_holds() -> None:
    found = {}
    async with lab_with(
        "SET NAMES utf8mb4", "CREATE DATABASE shop", TABLE, ROWS, users=ROOT
    ) as lab:
        client = await lab.root()
        for condition in HOLDS:
            rows = await client.query(f"SELECT id FROM shop.b WHERE {condition} ORDER BY id")
            found[condition] = ",".join(str(row[0]) for row in rows)
        assert await errno(client, "DELETE FROM shop.b WHERE c = 0xFF") == 1300
    assert found == HOLDS


async def test_texts_as_years() -> None:
    found = {}
    async with lab_with(
        "CREATE DATABASE shop", "CREATE TABLE shop.y (y YEAR, id INT PRIMARY KEY)", users=ROOT
    ) as lab:
        client = await lab.root()
        await client.query("SET sql_mode = ''")
        for said in YEARS:
            await client.query(f"REPLACE INTO shop.y VALUES ({said}, 1)")
            ((year,),) = await client.query("SELECT y FROM shop.y")
            found[said] = year
    assert found == YEARS


async def test_times_as_integers() -> None:
    """The fraction is cut off: 11.8 rounds it in DECIMAL columns alone."""
    texts = (
        "CREATE DATABASE shop",
        "CREATE TABLE shop.n (id INT PRIMARY KEY, b BIGINT, u BIGINT UNSIGNED, d DECIMAL(20,0), f DOUBLE)",
        "INSERT INTO shop.n SELECT 1, t, t, t, t FROM (SELECT TIME'00:00:04.9995' t) x",
        "INSERT INTO shop.n SELECT 2, t, t, t, t FROM (SELECT TIMESTAMP'2024-01-02 03:04:05.6' t) x",
    )
    async with lab_with(*texts, users=ROOT) as lab:
        client = await lab.root()
        assert await client.query("SELECT b, u, d, f FROM shop.n ORDER BY id") == [
            ["4", "4", "5", "4.9995"],
            ["20240102030405", "20240102030405", "20240102030406", "20240102030405.6"],
        ]
