"""CREATE DATABASE and CREATE TABLE: what is taken, as SHOW CREATE TABLE prints it, and what is refused."""

from __future__ import annotations

import pytest
from binlog_protocol.errors import ServerError
from binlog_protocol.tables.stored_definition import definition_bytes, parse_definition

from binlog_server.tables.cells import normal_default, require_on_update
from binlog_server.tables.definitions import (
    DEFAULT_COLLATION,
    Creation,
    create_database_text,
    create_text,
    read_database,
    read_table,
)
from tests.binlog_server.tables.asking import asker

KEY = "id INT PRIMARY KEY"


def read(text: str) -> Creation:
    session = asker()
    made = read_table(
        text,
        "shop",
        lambda database: DEFAULT_COLLATION,
        lambda column, literal: normal_default(column, literal, session),
    )
    assert isinstance(made, Creation)
    for column in made.table.columns:
        require_on_update(column)
    return made


COLUMNS = {
    "a INT": "`a` int(11) DEFAULT NULL",
    "a INT(3) UNSIGNED NOT NULL": "`a` int(3) unsigned NOT NULL",
    "a INT DEFAULT ((-2))": "`a` int(11) DEFAULT -2",
    "a VARCHAR(9) DEFAULT ('x')": "`a` varchar(9) DEFAULT 'x'",
    "a DATETIME(3) DEFAULT NOW()": "`a` datetime(3) DEFAULT current_timestamp(3)",
    "a INT DEFAULT ( id /* of it */ * `id` )": "`a` int(11) DEFAULT (`id` * `id`)",
    "a DATE DEFAULT NOW()": "`a` date DEFAULT current_timestamp()",
    "a DATETIME DEFAULT (now())": "`a` datetime DEFAULT current_timestamp()",  # as SQLAlchemy says it
    "a BOOL DEFAULT TRUE": "`a` tinyint(1) DEFAULT 1",
    "a BIGINT UNSIGNED DEFAULT '007'": "`a` bigint(20) unsigned DEFAULT 7",
    "a DECIMAL(10,2) DEFAULT 1.255 COMMENT 'it''s'": "`a` decimal(10,2) DEFAULT 1.26 COMMENT 'it''s'",
    "a NUMERIC NOT NULL DEFAULT -5": "`a` decimal(10,0) NOT NULL DEFAULT -5",
    "a DOUBLE PRECISION": "`a` double DEFAULT NULL",
    "a VARCHAR(20) DEFAULT ''": "`a` varchar(20) DEFAULT ''",
    "a VARCHAR(9) COLLATE utf8mb4_bin": "`a` varchar(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT NULL",
    "a CHAR(36) BINARY": "`a` char(36) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT NULL",  # Sequelize's UUID
    "a TEXT BINARY CHARACTER SET utf8mb3": "`a` text CHARACTER SET utf8mb3 COLLATE utf8mb3_bin DEFAULT NULL",
    "a ENUM('a','b') BINARY NOT NULL": "`a` enum('a','b') CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL",
    "a CHAR CHARACTER SET utf8 NOT NULL": "`a` char(1) CHARACTER SET utf8mb3 COLLATE utf8mb3_general_ci NOT NULL",
    "a VARCHAR(9) CHARACTER SET binary": "`a` varbinary(9) DEFAULT NULL",
    "a TEXT": "`a` text DEFAULT NULL",
    "a TEXT(70000)": "`a` mediumtext DEFAULT NULL",
    "a BLOB NOT NULL": "`a` blob NOT NULL",
    "a BINARY(4) DEFAULT 'x'": "`a` binary(4) DEFAULT x'78000000'",
    "a DATE DEFAULT '2026-1-2'": "`a` date DEFAULT '2026-01-02'",
    "a TIME(2) DEFAULT '1:2:3.456'": "`a` time(2) DEFAULT '01:02:03.45'",
    "a DATETIME(3) DEFAULT NOW(3) ON UPDATE CURRENT_TIMESTAMP(3)": "`a` datetime(3) DEFAULT current_timestamp(3) "
    "ON UPDATE current_timestamp(3)",
    "a FLOAT DEFAULT 1.5e-3": "`a` float DEFAULT 0.0015",
    "a FLOAT(6,2) DEFAULT 1.555": "`a` float(6,2) DEFAULT 1.55",
    "a DOUBLE(8,3) UNSIGNED": "`a` double(8,3) unsigned DEFAULT NULL",
    "a YEAR DEFAULT 24": "`a` year(4) DEFAULT 2024",
    "a YEAR NOT NULL DEFAULT 0": "`a` year(4) NOT NULL DEFAULT 0000",
    "a BIT(5) DEFAULT b'0101'": "`a` bit(5) DEFAULT b'101'",
    "a BIT DEFAULT 1": "`a` bit(1) DEFAULT b'1'",
    "a ENUM('b','(a) ','it''s, \\\\') DEFAULT 'B'": "`a` enum('b','(a)','it''s, \\\\') DEFAULT 'b'",
    "a SET('x','y') NOT NULL DEFAULT 'y,x'": "`a` set('x','y') NOT NULL DEFAULT 'x,y'",
    "a INT(6) ZEROFILL DEFAULT 7": "`a` int(6) unsigned zerofill DEFAULT 000007",
    "a DECIMAL(6,2) ZEROFILL DEFAULT 7": "`a` decimal(6,2) unsigned zerofill DEFAULT 0007.00",
    "a JSON NOT NULL DEFAULT '{}'": "`a` longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '{}' "
    "CHECK (json_valid(`a`))",
    "a UUID": "`a` uuid DEFAULT NULL",
    "a INET4 DEFAULT '1.2.3.4'": "`a` inet4 DEFAULT '1.2.3.4'",
    "a INET6 NOT NULL DEFAULT '::0'": "`a` inet6 NOT NULL DEFAULT '::'",
    "a DATE DEFAULT '0000-00-00'": "`a` date DEFAULT '0000-00-00'",
    "a DATETIME DEFAULT 0": "`a` datetime DEFAULT '0000-00-00 00:00:00'",
    "a TIMESTAMP": "`a` timestamp NULL DEFAULT NULL",
    "a TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP": "`a` timestamp NOT NULL DEFAULT current_timestamp()",
}


@pytest.mark.parametrize("said", COLUMNS)
def test_columns(said: str) -> None:
    made = read(f"CREATE TABLE t ({KEY}, {said})").table
    lines = create_text(made).splitlines()
    assert lines[2].strip(" ,") == COLUMNS[said]
    assert parse_definition(definition_bytes(made)) == made
    assert read(create_text(made)).table == made  # what is shown makes the same table
    assert read(create_text(made, database=True)).table == made


TABLES = {
    "CREATE TABLE IF NOT EXISTS `t;1` (a INT AUTO_INCREMENT, b VARCHAR(9), PRIMARY KEY (b, a), KEY (a), INDEX (a), "
    "INDEX c (b(3))) ENGINE=innodb AUTO_INCREMENT=7, DEFAULT CHARSET utf8 COMMENT 'c'": "CREATE TABLE `t;1` (\n"
    "  `a` int(11) NOT NULL AUTO_INCREMENT,\n  `b` varchar(9) NOT NULL,\n  PRIMARY KEY (`b`,`a`),\n"
    "  KEY `a` (`a`),\n  KEY `a_2` (`a`),\n  KEY `c` (`b`(3))\n) ENGINE=InnoDB AUTO_INCREMENT=7 "
    "DEFAULT CHARSET=utf8mb3 COLLATE=utf8mb3_general_ci COMMENT='c'",
    f"CREATE TABLE t ({KEY}, a INT UNIQUE, b VARCHAR(9) NOT NULL, c TEXT, KEY k (a), UNIQUE (c(5)), "
    "CONSTRAINT x UNIQUE (b(3)), CONSTRAINT y UNIQUE KEY z (b, a), UNIQUE INDEX (id, b) USING BTREE)": "CREATE "
    "TABLE `t` (\n  `id` int(11) NOT NULL,\n  `a` int(11) DEFAULT NULL,\n  `b` varchar(9) NOT NULL,\n  `c` text "
    "DEFAULT NULL,\n  PRIMARY KEY (`id`),\n  UNIQUE KEY `id` (`id`,`b`),\n  UNIQUE KEY `x` (`b`(3)),\n"
    "  UNIQUE KEY `a` (`a`),\n  UNIQUE KEY `z` (`b`,`a`),\n  UNIQUE KEY `c` (`c`(5)),\n  KEY `k` (`a`)\n) "
    "ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci",
    "create table d.t (a int key) row_format=dynamic": "CREATE TABLE `t` (\n  `a` int(11) NOT NULL,\n"
    "  PRIMARY KEY (`a`)\n) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_general_ci",
}


@pytest.mark.parametrize("said", TABLES)
def test_tables(said: str) -> None:
    made = read(said)
    assert create_text(made.table, next_number=made.first_number) == TABLES[said]
    assert made.if_not_exists is ("IF NOT EXISTS" in said)


REFUSED = {
    "CREATE TABLE t (a INT)": 1173,
    f"CREATE TABLE t ({KEY}, PRIMARY KEY (id))": 1068,
    f"CREATE TABLE t ({KEY}, ID INT)": 1060,
    f"CREATE TABLE t ({KEY}, KEY (b))": 1072,
    "CREATE TABLE t (id VARCHAR(9) AUTO_INCREMENT PRIMARY KEY)": 1063,
    f"CREATE TABLE t ({KEY}, b INT AUTO_INCREMENT)": 1075,
    f"CREATE TABLE t ({KEY}, b INT DEFAULT 'x')": 1067,
    f"CREATE TABLE t ({KEY}, b TINYINT DEFAULT 300)": 1067,
    f"CREATE TABLE t ({KEY}, b INT NOT NULL DEFAULT NULL)": 1067,
    f"CREATE TABLE t ({KEY}, b DATE DEFAULT '0000-13-00')": 1067,
    f"CREATE TABLE t ({KEY}, b ENUM('a') DEFAULT 'b')": 1067,
    f"CREATE TABLE t ({KEY}, b ENUM('a') DEFAULT 1)": 1067,
    f"CREATE TABLE t ({KEY}, b YEAR DEFAULT 1900)": 1067,
    f"CREATE TABLE t ({KEY}, b BIT(2) DEFAULT 7)": 1067,
    f"CREATE TABLE t ({KEY}, b ENUM('a','A'))": 1291,
    f"CREATE TABLE t ({KEY}, b SET('a,b'))": 1367,
    f"CREATE TABLE t ({KEY}, b BIT(65))": 1439,
    f"CREATE TABLE t ({KEY}, b FLOAT(256,1))": 1439,
    f"CREATE TABLE t ({KEY}, b FLOAT(5,6))": 1427,
    f"CREATE TABLE t ({KEY}, b FLOAT(40,31))": 1425,
    f"CREATE TABLE t ({KEY}, b DATE UNSIGNED)": 1064,
    f"CREATE TABLE t ({KEY}, b CHAR(9) NOT NULL BINARY)": 1235,
    f"CREATE TABLE t ({KEY}, b INT ON UPDATE NOW())": 1294,
    f"CREATE TABLE t ({KEY}, b CHAR(256))": 1074,
    f"CREATE TABLE t ({KEY}, b TEXT COLLATE nonsense)": 1273,
    f"CREATE TABLE t ({KEY}, b TEXT CHARACTER SET nonsense)": 1115,
    f"CREATE TABLE t ({KEY}, b TEXT CHARACTER SET utf8mb3 COLLATE utf8mb4_bin)": 1253,
    f"CREATE TABLE t ({KEY}) ENGINE=nonsense": 1286,
    f"CREATE TABLE t ({KEY}": 1064,
    f"CREATE TABLE t ({KEY},)": 1064,
    "CREATE TABLE t ()": 1064,
    f"CREATE TABLE t ({KEY}) ENGINE=MEMORY": 1235,
    f"CREATE TABLE t ({KEY}) PARTITION BY HASH (id)": 1235,
    f"CREATE TABLE t ({KEY}, b TEXT UNIQUE)": 1235,
    f"CREATE TABLE t ({KEY}, b VARCHAR(800), c BLOB, UNIQUE (b))": 1235,
    f"CREATE TABLE t ({KEY}, b VARCHAR(800), KEY (b))": 1071,
    f"CREATE TABLE t ({KEY}, b INT, UNIQUE (b(2)))": 1089,
    f"CREATE TABLE t ({KEY}, b INT, UNIQUE (b, B))": 1060,
    f"CREATE TABLE t ({KEY}, KEY (id), INDEX id (id))": 1061,
    f"CREATE TABLE t ({KEY}, FOREIGN KEY (id) REFERENCES u (id))": 1235,
    f"CREATE TABLE t ({KEY}, b INT, CHECK (no > 0))": 1054,
    f"CREATE TABLE t ({KEY}, b INT, CHECK (t.b > 0))": 1235,
    f"CREATE TABLE t ({KEY}, b INT, CHECK (b > (SELECT 1)))": 1970,
    f"CREATE TABLE t ({KEY}, b INT AS ((SELECT 1)))": 1901,
    f"CREATE TABLE t ({KEY}, b INT DEFAULT (SELECT 1))": 1901,
    f"CREATE TABLE t ({KEY}, b INT DEFAULT (last_insert_id()))": 1901,
    f"CREATE TABLE t ({KEY}, b INT DEFAULT (b))": 4029,
    f"CREATE TABLE t ({KEY}, b INT DEFAULT (c + 1))": 1054,
    f"CREATE TABLE t ({KEY}, b INT DEFAULT (sleep(1)))": 1901,
    f"CREATE TABLE t ({KEY}, b INT DEFAULT (@a))": 1235,
    f"CREATE TABLE t ({KEY}, b INT, CHECK (b > @a))": 1235,
    f"CREATE TABLE t ({KEY}, b INT, CHECK (b > ?))": 1235,
    f"CREATE TABLE t ({KEY}, b INT, CHECK (b AS c))": 1235,
    f"CREATE TABLE t ({KEY}, b INT, CHECK (b, b))": 1064,
    f"CREATE TABLE t ({KEY}, b INT, CHECK (b FROM t))": 1064,
    f"CREATE TABLE t ({KEY}, b INT, CHECK (DISTINCT b))": 1064,
    f"CREATE TABLE t ({KEY}, b INT, CHECK (COUNT(b)))": 1901,
    f"CREATE TABLE t ({KEY}, b INT, CHECK (b > RAND()))": 1901,
    f"CREATE TABLE t ({KEY}, b INT, CHECK ({'NOT ' * 3000} b))": 1235,
    f"CREATE TABLE t ({KEY}, b INT, CHECK ({'b+' * 1500} b))": 1235,
    f"CREATE TABLE t ({KEY}, b INT, CONSTRAINT b CHECK (b > 0))": 1235,
    f"CREATE TABLE t ({KEY}, b INT, CONSTRAINT c CHECK (b > 0), CONSTRAINT C CHECK (b))": 1826,
    f"CREATE TABLE t ({KEY}, b INT DEFAULT {'(' * 5000}1": 1064,
    f"CREATE TABLE t ({KEY}, b TEXT COLLATE utf8mb4_unicode_ci)": 1235,
    f"CREATE TABLE t ({KEY}, b TEXT COLLATE utf8mb4_uca1400_as_ci)": 1235,
    f"CREATE TABLE t ({KEY}, b TEXT CHARACTER SET latin1)": 1235,
    "CREATE TABLE t (id INT PRIMARY KEY, b TEXT) DEFAULT CHARSET=latin1": 1235,
    **{
        f"CREATE TABLE t ({KEY}, b {kind})": 1235
        for kind in ("POINT", "SERIAL", "TEXT COMPRESSED", "INT INVISIBLE", "YEAR(2)", "ENUM('a') CHARACTER SET binary")
    },
    "CREATE OR REPLACE TABLE IF NOT EXISTS t (a INT PRIMARY KEY)": 1221,
    "CREATE TABLE t (a TEXT, PRIMARY KEY (a))": 1170,
    "CREATE TABLE t (a VARCHAR(9), PRIMARY KEY (a(3)))": 1235,
}  # fmt: skip


@pytest.mark.parametrize("text", REFUSED)
def test_refused(text: str) -> None:
    with pytest.raises(ServerError) as caught:
        read(text)
    assert caught.value.errno == REFUSED[text], caught.value


DATABASES = {
    "CREATE DATABASE d": "CREATE DATABASE `d` CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
    "CREATE SCHEMA IF NOT EXISTS `a b` CHARSET=utf8": "CREATE DATABASE `a b` "
    "CHARACTER SET utf8mb3 COLLATE utf8mb3_general_ci",
    "CREATE DATABASE d DEFAULT COLLATE 'utf8mb4_bin';": "CREATE DATABASE `d` CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    "CREATE DATABASE d COMMENT 'x'": 1235,
    "CREATE OR REPLACE DATABASE d": 1235,
    "CREATE DATABASE `d `": 1102,
    f"CREATE DATABASE {'d' * 65}": 1102,
    "CREATE DATABASE": 1064,
}  # fmt: skip


@pytest.mark.parametrize("text", DATABASES)
def test_databases(text: str) -> None:
    expected = DATABASES[text]
    if isinstance(expected, int):
        with pytest.raises(ServerError) as caught:
            read_database(text)
        assert caught.value.errno == expected
    else:
        assert create_database_text(read_database(text)[0]) == expected
