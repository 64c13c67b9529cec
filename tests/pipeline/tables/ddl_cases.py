"""Statements about a table t, in a database {db} of its own, and what a state of it is to be behind them."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

SAME, REFUSED, DOUBT = "same", "refused", "doubt"
"""As the server has it; an error; there, but told to be in doubt."""
AS_LOGGED = "same or refused"
"""Servers log the column (10.11), or they do not (11.8.9)."""


class Case(NamedTuple):
    """See the module."""

    want: str
    statements: tuple[str, ...]


_TEXT: Final = """
# Columns

add_plain: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    ALTER TABLE t ADD COLUMN b INT
    INSERT INTO t VALUES (3,3,3)
    UPDATE t SET b=8 WHERE id=1

add_plain_first: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    ALTER TABLE t ADD b VARCHAR(9) CHARACTER SET latin1 COLLATE latin1_bin NULL DEFAULT NULL COMMENT 'x, DEFAULT
        5' FIRST
    INSERT INTO t VALUES ('x',3,3)

add_two: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    ALTER TABLE t ADD (b INT, c DECIMAL(9,2) UNSIGNED)
    INSERT INTO t VALUES (3,3,3,3)

add_nothing_behind: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    ALTER TABLE t ADD b INT DEFAULT 5

add_default: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    ALTER TABLE t ADD b INT NOT NULL DEFAULT 5
    INSERT INTO t VALUES (3,3,3)

add_not_null: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    ALTER TABLE t ADD b INT NOT NULL
    INSERT INTO t VALUES (3,3,3)

add_default_of_all_digits: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    ALTER TABLE t ADD b DECIMAL(65,30) DEFAULT 1.5, ADD c DECIMAL(65,30) NOT NULL, ADD d DECIMAL(38,20) DEFAULT -7
    ALTER TABLE t ADD e DECIMAL(65,0) DEFAULT -99999999999999999999999999999999999999999999999999999999999999999
    INSERT INTO t VALUES (3,3,3,3,3,3)

add_default_time: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    ALTER TABLE t ADD b DATETIME DEFAULT '2020-01-01'
    INSERT INTO t VALUES (3,3,'2021-01-01')

add_timestamp: refused
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    SET explicit_defaults_for_timestamp=0
    ALTER TABLE t ADD b TIMESTAMP
    INSERT INTO t (id,a) VALUES (3,3)

add_stored: refused
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    ALTER TABLE t ADD b INT AS (a*10) PERSISTENT
    INSERT INTO t (id,a) VALUES (3,3)

add_virtual: refused
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    ALTER TABLE t ADD b INT GENERATED ALWAYS AS (a*10)
    INSERT INTO t (id,a) VALUES (3,3)

add_auto: refused
    CREATE TABLE t (a INT)
    INSERT INTO t VALUES (5),(6)
    ALTER TABLE t ADD COLUMN id INT AUTO_INCREMENT PRIMARY KEY
    INSERT INTO t (a) VALUES (7)

add_serial: refused
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    ALTER TABLE t ADD b SERIAL
    INSERT INTO t (id) VALUES (7)

rename_column: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    ALTER TABLE t RENAME COLUMN a TO z
    INSERT INTO t VALUES (3,3)

change: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    ALTER TABLE t CHANGE a z BIGINT
    INSERT INTO t VALUES (3,3)

rename_case: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    ALTER TABLE t RENAME COLUMN a TO A
    INSERT INTO t VALUES (3,3)

change_case: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    ALTER TABLE t CHANGE a A INT
    INSERT INTO t VALUES (3,3)

modify_wider: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    ALTER TABLE t MODIFY a BIGINT
    INSERT INTO t VALUES (3,3)

modify_decimal_of_all_digits: same
    CREATE TABLE t (id INT PRIMARY KEY, a DECIMAL(65,30), b DECIMAL(65,30), c DECIMAL(65,0), d INT, e DECIMAL(38,0),
        f VARCHAR(90), g DECIMAL(65,30), h DECIMAL(65,30), i DECIMAL(60,30))
    SET @n = '-12345678901234567890123456789012345.123456789012345678901234567895'
    INSERT INTO t VALUES (1,@n,'1.5',9,7,7,'1.5',@n,'-0.0001',5)
    INSERT INTO t VALUES (2,NULL,NULL,REPEAT(9,65),NULL,REPEAT(9,38),@n,NULL,1.25,0)
    ALTER TABLE t MODIFY a DECIMAL(65,29), MODIFY b DECIMAL(20,3), MODIFY c BIGINT UNSIGNED
    ALTER TABLE t MODIFY d DECIMAL(65,30), MODIFY e DECIMAL(40,2), MODIFY f DECIMAL(65,30)
    ALTER TABLE t MODIFY g VARCHAR(90), MODIFY h DECIMAL(60,2), MODIFY i INT
    INSERT INTO t (id) VALUES (3)

modify_text: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    ALTER TABLE t MODIFY a VARCHAR(10)
    INSERT INTO t VALUES (3,'x')

modify_not_null: refused
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,NULL)
    SET sql_mode=''
    ALTER IGNORE TABLE t MODIFY a INT NOT NULL
    INSERT INTO t VALUES (3,3)

modify_enum: same
    CREATE TABLE t (id INT PRIMARY KEY, a ENUM('a','b'))
    INSERT INTO t VALUES (1,'a'),(2,'b')
    ALTER TABLE t MODIFY a ENUM('b','a','c')
    INSERT INTO t VALUES (3,'c')

convert: same
    CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(9)) CHARSET latin1
    INSERT INTO t VALUES (1,'x')
    ALTER TABLE t CONVERT TO CHARACTER SET ascii
    INSERT INTO t VALUES (2,'y')

default_charset: same
    CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(9)) CHARSET latin1
    INSERT INTO t VALUES (1,'x')
    ALTER TABLE t DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin
    INSERT INTO t VALUES (2,'y')

drop: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)
    INSERT INTO t VALUES (1,1,1),(2,2,2)
    ALTER TABLE t DROP COLUMN a
    INSERT INTO t VALUES (3,3)

drop_nothing_behind: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)
    INSERT INTO t VALUES (1,1,1),(2,2,2)
    ALTER TABLE t DROP COLUMN a

drop_add: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)
    INSERT INTO t VALUES (1,1,1),(2,2,2)
    ALTER TABLE t DROP COLUMN a
    ALTER TABLE t ADD COLUMN a INT
    INSERT INTO t VALUES (3,3,3)

drop_add_at_once: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)
    INSERT INTO t VALUES (1,1,1),(2,2,2)
    ALTER TABLE t DROP a, ADD a INT
    INSERT INTO t VALUES (3,3,3)

drop_add_other_case: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)
    INSERT INTO t VALUES (1,1,1),(2,2,2)
    ALTER TABLE t DROP a, ADD A INT
    INSERT INTO t VALUES (3,3,3)

set_default: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    ALTER TABLE t ALTER a SET DEFAULT 7
    INSERT INTO t (id) VALUES (3)
    ALTER TABLE t ALTER COLUMN a DROP DEFAULT
    INSERT INTO t VALUES (4,4)

altered_while_empty: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    ALTER TABLE t ADD b INT NOT NULL DEFAULT 5, RENAME COLUMN a TO c
    ALTER TABLE t MODIFY c BIGINT
    INSERT INTO t (id) VALUES (1)

altered_when_emptied: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    TRUNCATE t
    ALTER TABLE t DROP a
    ALTER TABLE t ADD a INT
    INSERT INTO t VALUES (3,3)

altered_between: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    ALTER TABLE t ADD b INT DEFAULT 5
    INSERT INTO t VALUES (1,1,1)
    ALTER TABLE t ADD c INT DEFAULT 5

filled_by_rename: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    CREATE TABLE o (id INT PRIMARY KEY, a INT)
    INSERT INTO o VALUES (1,1)
    DROP TABLE t
    ALTER TABLE o RENAME TO t
    INSERT INTO t VALUES (3,3)

# Statements that the log does not have

unlogged_add: refused
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    SET sql_log_bin=0
    ALTER TABLE t ADD b INT DEFAULT 5
    SET sql_log_bin=1
    INSERT INTO t VALUES (3,3,3)

unlogged_rename: refused
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    SET sql_log_bin=0
    ALTER TABLE t RENAME COLUMN a TO b
    SET sql_log_bin=1
    INSERT INTO t VALUES (3,3)

unlogged_index: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    SET sql_log_bin=0
    ALTER TABLE t ADD KEY (a)
    SET sql_log_bin=1
    INSERT INTO t VALUES (3,3)

# Indexes, options: rows stay

indexes: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)
    INSERT INTO t VALUES (1,1,1),(2,2,2)
    CREATE INDEX i ON t (a)
    ALTER TABLE t ADD KEY j (b), ADD UNIQUE KEY u (a, b)
    ALTER TABLE t RENAME INDEX j TO k, ALGORITHM=INPLACE, LOCK=NONE
    DROP INDEX i ON t
    ALTER TABLE t DROP INDEX u, COMMENT='x, DROP COLUMN a' ROW_FORMAT=DYNAMIC
    ALTER TABLE t FORCE
    ALTER TABLE t ENGINE=InnoDB
    OPTIMIZE TABLE t
    ANALYZE TABLE t
    INSERT INTO t VALUES (3,3,3)

check: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    ALTER TABLE t ADD CONSTRAINT c CHECK (a < 100)
    INSERT INTO t VALUES (3,3)
    ALTER TABLE t DROP CONSTRAINT c

view_of_it: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    CREATE VIEW v AS SELECT id FROM t UNION SELECT a FROM t
    INSERT INTO t VALUES (3,3)
    DROP VIEW v

trigger: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    CREATE TRIGGER x BEFORE INSERT ON t FOR EACH ROW SET NEW.a = NEW.a + 1
    INSERT INTO t VALUES (3,3)

primary_key: same
    CREATE TABLE t (id INT PRIMARY KEY, u INT UNIQUE NOT NULL, a INT)
    INSERT INTO t VALUES (1,11,1),(2,12,2)
    ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (u)
    INSERT INTO t VALUES (3,13,3)
    UPDATE t SET a=9 WHERE u=11

primary_key_of_a_place: refused
    CREATE TABLE t (id INT PRIMARY KEY, p POINT NOT NULL)
    INSERT INTO t VALUES (1,POINT(1,2)),(2,POINT(3,4))
    ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (p)
    INSERT INTO t VALUES (3,POINT(5,6))

primary_key_becomes_a_place: refused
    CREATE TABLE t (p VARBINARY(60) PRIMARY KEY, a INT)
    INSERT INTO t VALUES (POINT(1,2),1),(POINT(3,4),2)
    ALTER TABLE t MODIFY p POINT NOT NULL
    INSERT INTO t VALUES (POINT(5,6),3)

primary_key_later: same
    CREATE TABLE t (id INT PRIMARY KEY, u INT UNIQUE NOT NULL, a INT)
    INSERT INTO t VALUES (1,11,1),(2,12,2)
    ALTER TABLE t DROP PRIMARY KEY
    ALTER TABLE t ADD PRIMARY KEY (u)
    INSERT INTO t VALUES (2,13,3)

primary_key_gone: refused
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1)
    ALTER TABLE t DROP PRIMARY KEY
    DELETE FROM t
    INSERT INTO t VALUES (2,1),(2,2)

blackhole: refused
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    ALTER TABLE t ENGINE=BLACKHOLE
    INSERT INTO t VALUES (3,3)

made_blackhole: refused
    CREATE TABLE t (id INT PRIMARY KEY, a INT) ENGINE=BLACKHOLE
    INSERT INTO t VALUES (1,1),(2,2)
    ALTER TABLE t ENGINE=InnoDB
    INSERT INTO t VALUES (3,3)

merge: refused
    CREATE TABLE t (id INT PRIMARY KEY, a INT) ENGINE=MyISAM
    INSERT INTO t VALUES (1,1),(2,2)
    CREATE TABLE m (id INT PRIMARY KEY, a INT) ENGINE=MERGE UNION=(t) INSERT_METHOD=LAST
    INSERT INTO m VALUES (3,3)

# Partitions

partition_add: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10))
    INSERT INTO t VALUES (1,1),(2,2)
    ALTER TABLE t ADD PARTITION (PARTITION p1 VALUES LESS THAN (100))
    INSERT INTO t VALUES (30,3)

partition_drop: refused
    CREATE TABLE t (id INT PRIMARY KEY, a INT) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10),
        PARTITION p1 VALUES LESS THAN MAXVALUE)
    INSERT INTO t VALUES (1,1),(20,2)
    ALTER TABLE t DROP PARTITION p0
    INSERT INTO t VALUES (30,3)

partition_truncate: refused
    CREATE TABLE t (id INT PRIMARY KEY, a INT) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10),
        PARTITION p1 VALUES LESS THAN MAXVALUE)
    INSERT INTO t VALUES (1,1),(20,2)
    ALTER TABLE t TRUNCATE PARTITION p0
    INSERT INTO t VALUES (30,3)

partition_exchange: refused
    CREATE TABLE t (id INT PRIMARY KEY, a INT) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10),
        PARTITION p1 VALUES LESS THAN MAXVALUE)
    INSERT INTO t VALUES (1,1),(20,2)
    CREATE TABLE o (id INT PRIMARY KEY, a INT)
    INSERT INTO o VALUES (5,5)
    ALTER TABLE t EXCHANGE PARTITION p0 WITH TABLE o
    INSERT INTO t VALUES (30,3)

exchanged_in: refused
    CREATE TABLE o (id INT PRIMARY KEY, a INT) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10),
        PARTITION p1 VALUES LESS THAN MAXVALUE)
    INSERT INTO o VALUES (1,1)
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1)
    ALTER TABLE o EXCHANGE PARTITION p0 WITH TABLE t
    INSERT INTO t VALUES (3,3)

partition_reorganize: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10),
        PARTITION p1 VALUES LESS THAN MAXVALUE)
    INSERT INTO t VALUES (1,1),(20,2)
    ALTER TABLE t REORGANIZE PARTITION p0 INTO (PARTITION a VALUES LESS THAN (5), PARTITION b VALUES LESS THAN (10))
    INSERT INTO t VALUES (30,3)

partition_by: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(20,2)
    ALTER TABLE t PARTITION BY HASH (id) PARTITIONS 4
    ALTER TABLE t COALESCE PARTITION 2
    INSERT INTO t VALUES (30,3)
    ALTER TABLE t COMMENT='x', DROP COLUMN IF EXISTS z PARTITION BY KEY (id)
    DELETE FROM t WHERE id=1

partition_remove: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT) PARTITION BY HASH (id) PARTITIONS 4
    INSERT INTO t VALUES (1,1),(20,2)
    ALTER TABLE t REMOVE PARTITIONING
    ALTER TABLE t PARTITION BY HASH (id) PARTITIONS 2
    ALTER TABLE t ADD b INT DEFAULT 5, ENGINE=Aria REMOVE PARTITIONING
    ALTER TABLE t ADD c INT DEFAULT 6 PARTITION BY HASH (id)
    INSERT INTO t VALUES (30,3,3,3)

partition_versions: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT) WITH SYSTEM VERSIONING PARTITION BY SYSTEM_TIME (PARTITION h HISTORY,
        PARTITION n CURRENT)
    INSERT INTO t VALUES (1,1),(20,2)
    UPDATE t SET a=3 WHERE id=1
    ALTER TABLE t ADD PARTITION (PARTITION h2 HISTORY)
    ALTER TABLE t REMOVE PARTITIONING
    DELETE FROM t WHERE id=1

partition_loses: refused
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(20,2)
    ALTER IGNORE TABLE t PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10))
    INSERT INTO t VALUES (3,3)

partition_convert: refused
    CREATE TABLE t (id INT PRIMARY KEY, a INT) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10),
        PARTITION p1 VALUES LESS THAN MAXVALUE)
    INSERT INTO t VALUES (1,1),(20,2)
    ALTER TABLE t CONVERT PARTITION p0 TO TABLE o
    INSERT INTO t VALUES (30,3)

partition_hidden: refused
    CREATE TABLE t (id INT PRIMARY KEY, a INT) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10),
        PARTITION p1 VALUES LESS THAN MAXVALUE)
    INSERT INTO t VALUES (1,1),(20,2)
    ALTER /*!50100 TABLE t DROP */ PARTITION p0
    INSERT INTO t VALUES (30,3)

# Keys that are hashes: each brings a column that no statement can name

hash_create: same
    CREATE TABLE t (id INT PRIMARY KEY, a TEXT UNIQUE, b BLOB UNIQUE, c INT, UNIQUE (c, a), UNIQUE (c) USING HASH)
    INSERT INTO t VALUES (1,'x','y',1),(2,NULL,NULL,NULL),(3,'z','z',3)
    UPDATE t SET a='w' WHERE id=2
    DELETE FROM t WHERE id=3

hash_minimal: same
    CREATE TABLE t (id INT PRIMARY KEY, a TEXT UNIQUE, b INT)
    SET binlog_row_image=MINIMAL
    INSERT INTO t VALUES (1,'x',1),(2,'y',2)
    UPDATE t SET a='z' WHERE id=1
    UPDATE t SET b=7 WHERE id=2

hash_add: same
    CREATE TABLE t (id INT PRIMARY KEY, a TEXT, b BLOB)
    INSERT INTO t VALUES (1,'x','y'),(2,'z','z')
    ALTER TABLE t ADD UNIQUE u (a)
    UPDATE t SET b='w' WHERE id=1
    ALTER TABLE t ADD c INT, ADD UNIQUE (b)
    INSERT INTO t VALUES (3,'v','v',3)

hash_drop: same
    CREATE TABLE t (id INT PRIMARY KEY, a TEXT, b BLOB, UNIQUE u (a), UNIQUE v (b))
    INSERT INTO t VALUES (1,'x','y'),(2,'z','z')
    ALTER TABLE t DROP KEY u
    UPDATE t SET b='w' WHERE id=1
    DROP INDEX v ON t
    UPDATE t SET a='w' WHERE id=2
    CREATE UNIQUE INDEX v ON t (b)
    INSERT INTO t VALUES (3,'v','v')

hash_number_for_number: same
    CREATE TABLE t (id INT PRIMARY KEY, a TEXT, UNIQUE u (a))
    INSERT INTO t VALUES (1,'x'),(2,'z')
    ALTER TABLE t DROP KEY u, ADD b BIGINT UNSIGNED
    INSERT INTO t VALUES (3,'v',3)
    UPDATE t SET b=5 WHERE id=1

hash_modify: same
    CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(9) CHARACTER SET latin1 UNIQUE)
    INSERT INTO t VALUES (1,'x'),(2,'z')
    ALTER TABLE t MODIFY a TEXT CHARACTER SET latin1
    UPDATE t SET a='w' WHERE id=1
    INSERT INTO t VALUES (3,'v')

hash_versioned: same
    CREATE TABLE t (id INT PRIMARY KEY, a TEXT UNIQUE) WITH SYSTEM VERSIONING
    INSERT INTO t VALUES (1,'x'),(2,'z')

hash_names: same
    CREATE TABLE t (id INT PRIMARY KEY, DB_ROW_HASH_1 BIGINT UNSIGNED, a TEXT UNIQUE)
    INSERT INTO t VALUES (1,1,'x'),(2,2,'z')
    UPDATE t SET DB_ROW_HASH_1=7 WHERE id=1

# The table itself

rename: same
    CREATE TABLE o (id INT PRIMARY KEY, a INT)
    INSERT INTO o VALUES (1,1)
    RENAME TABLE o TO t
    INSERT INTO t VALUES (3,3)

rename_if: refused
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    CREATE TABLE n (id INT PRIMARY KEY, a INT)
    INSERT INTO n VALUES (1,7)
    RENAME TABLE IF EXISTS t TO o, n TO t
    INSERT INTO t VALUES (3,3)

swap: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    CREATE TABLE _t_gho LIKE t
    ALTER TABLE _t_gho ADD b INT DEFAULT 7
    INSERT INTO _t_gho (id,a) SELECT id,a*10 FROM t
    RENAME TABLE t TO _t_del, _t_gho TO t
    INSERT INTO t VALUES (3,3,3)

ghost_twice: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    CREATE TABLE _t_gho LIKE t
    ALTER TABLE _t_gho ADD b INT DEFAULT 7
    INSERT INTO _t_gho (id,a) SELECT id,a FROM t
    CREATE TABLE _t_del (id INT PRIMARY KEY)
    DROP TABLE _t_del
    RENAME TABLE t TO _t_del, _t_gho TO t
    INSERT INTO t VALUES (3,3,3)
    DROP TABLE IF EXISTS _t_del, _t_gho
    CREATE TABLE _t_gho LIKE t
    ALTER TABLE _t_gho MODIFY a BIGINT
    INSERT INTO _t_gho SELECT * FROM t
    CREATE TABLE _t_del (id INT PRIMARY KEY)
    DROP TABLE _t_del
    RENAME TABLE t TO _t_del, _t_gho TO t
    INSERT INTO t VALUES (4,4,4)

swap_chain: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    CREATE TABLE n LIKE t
    INSERT INTO n VALUES (7,7)
    RENAME TABLE t TO x, n TO y, y TO t
    INSERT INTO t VALUES (3,3)

swap_databases: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    CREATE DATABASE IF NOT EXISTS other
    CREATE OR REPLACE TABLE other.n LIKE t
    INSERT INTO other.n VALUES (7,7)
    RENAME TABLE t TO other.o
    RENAME TABLE other.n TO t
    INSERT INTO t VALUES (3,3)
    DROP TABLE other.o

alter_rename: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    ALTER TABLE t RENAME TO o
    CREATE TABLE n (id INT PRIMARY KEY, a INT)
    INSERT INTO n VALUES (7,7)
    ALTER TABLE n RENAME t
    INSERT INTO t VALUES (3,3)

rename_back: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    RENAME TABLE t TO o
    INSERT INTO o VALUES (5,5)
    RENAME TABLE o TO t
    INSERT INTO t VALUES (3,3)

truncate: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    TRUNCATE TABLE t
    INSERT INTO t VALUES (3,3)

truncate_heals: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    ALTER TABLE t ADD b INT DEFAULT 5
    TRUNCATE t
    INSERT INTO t VALUES (3,3,3)

replaced: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    CREATE OR REPLACE TABLE t (id INT PRIMARY KEY, z INT DEFAULT 5)
    INSERT INTO t VALUES (3,3)

dropped_and_made: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    DROP TABLE t
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (3,3)

dropped_heals: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    ALTER TABLE t CHANGE a z INT
    DROP TABLE IF EXISTS t, nothing
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (3,3)

database_dropped: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    DROP DATABASE {db}
    CREATE DATABASE {db}
    USE {db}
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (3,3)

database_replaced: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    CREATE OR REPLACE DATABASE {db}
    USE {db}
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (3,3)

made_like: same
    CREATE TABLE o (id INT PRIMARY KEY, a INT)
    INSERT INTO o VALUES (5,5)
    CREATE TABLE t LIKE o
    INSERT INTO t VALUES (3,3)

made_of_query: same
    CREATE TABLE o (id INT PRIMARY KEY, a INT)
    INSERT INTO o VALUES (5,5)
    CREATE TABLE t (PRIMARY KEY (id)) AS SELECT * FROM o
    INSERT INTO t VALUES (3,3)

made_if: same
    CREATE TABLE IF NOT EXISTS t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    CREATE TABLE IF NOT EXISTS t (id INT PRIMARY KEY, a INT)
    CREATE TABLE o (x INT)
    CREATE TABLE IF NOT EXISTS t LIKE o
    INSERT INTO t VALUES (3,3)

create_select_text: refused
    CREATE TABLE o (id INT PRIMARY KEY, a INT)
    INSERT INTO o VALUES (5,5)
    SET binlog_format=STATEMENT
    CREATE TABLE t (PRIMARY KEY (id)) SELECT * FROM o
    SET binlog_format=ROW
    INSERT INTO t VALUES (3,3)

quoted: same
    SET sql_mode='ANSI_QUOTES'
    CREATE TABLE "t" (id INT PRIMARY KEY, "a" INT)
    INSERT INTO t VALUES (1,1),(2,2)
    ALTER TABLE {db}."t" ADD "x.y`z" INT
    INSERT INTO t VALUES (3,3,3)

quoted_default: same
    SET sql_mode='ANSI_QUOTES'
    CREATE TABLE "t" (id INT PRIMARY KEY, "a" INT)
    INSERT INTO t VALUES (1,1),(2,2)
    ALTER TABLE `{db}` . "t" ADD "b" INT DEFAULT 6
    INSERT INTO t VALUES (3,3,3)

other_database: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    USE mysql
    ALTER TABLE {db}.t ADD b INT DEFAULT 6
    INSERT INTO {db}.t VALUES (3,3,3)

other_table: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    CREATE TABLE o (id INT, a INT)
    ALTER TABLE o CHANGE a t INT
    DROP TABLE o
    INSERT INTO t VALUES (3,3)

other_of_same_name: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    CREATE DATABASE IF NOT EXISTS other
    USE other
    CREATE OR REPLACE TABLE t (id INT)
    ALTER TABLE t ADD x INT DEFAULT 5
    TRUNCATE t
    USE {db}
    INSERT INTO t VALUES (3,3)

comment: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    /* DROP TABLE t */ ALTER /* CHANGE */ TABLE t -- RENAME{newline} ADD b INT # DEFAULT 5
    INSERT INTO t VALUES (3,3,3)

set_statement: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    SET STATEMENT max_statement_time=60 FOR ALTER TABLE t ADD b INT DEFAULT 5
    INSERT INTO t VALUES (3,3,3)

# Versions

versioned: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT) WITH SYSTEM VERSIONING
    INSERT INTO t VALUES (1,1),(2,2)
    UPDATE t SET a=5 WHERE id=1
    DELETE FROM t WHERE id=2

versioning_added: refused
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    ALTER TABLE t ADD SYSTEM VERSIONING
    UPDATE t SET a=5 WHERE id=1

versioning_dropped: refused
    CREATE TABLE t (id INT PRIMARY KEY, a INT) WITH SYSTEM VERSIONING
    INSERT INTO t VALUES (1,1),(2,2)
    UPDATE t SET a=5 WHERE id=1
    ALTER TABLE t DROP SYSTEM VERSIONING
    INSERT INTO t VALUES (3,3)

# Rows that are not in the log

tablespace: refused
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    INSERT INTO t VALUES (3,3)
    ALTER TABLE t DISCARD TABLESPACE

text: refused
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    SET binlog_format=STATEMENT
    UPDATE t SET a = a + 1
    SET binlog_format=ROW
    INSERT INTO t VALUES (3,3)

trigger_elsewhere: doubt
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1)
    CREATE OR REPLACE DATABASE other
    CREATE TABLE other.s (id INT)
    CREATE TRIGGER other.g AFTER INSERT ON other.s FOR EACH ROW INSERT INTO {db}.t VALUES (NEW.id, 9)
    USE other
    SET binlog_format=STATEMENT
    INSERT INTO s VALUES (2)

view_elsewhere: doubt
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1)
    CREATE OR REPLACE DATABASE other
    CREATE VIEW other.v AS SELECT * FROM t
    USE other
    SET binlog_format=STATEMENT
    INSERT INTO v VALUES (2, 2)

function_elsewhere: doubt
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1)
    CREATE OR REPLACE DATABASE other
    CREATE FUNCTION other.f() RETURNS INT DETERMINISTIC BEGIN UPDATE {db}.t SET a = 9; RETURN 1; END
    USE other
    SET binlog_format=STATEMENT
    DO f()

text_elsewhere_healed: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1)
    CREATE OR REPLACE DATABASE other
    CREATE TABLE other.s (id INT)
    CREATE TRIGGER other.g AFTER INSERT ON other.s FOR EACH ROW INSERT INTO {db}.t VALUES (NEW.id, 9)
    USE other
    SET binlog_format=STATEMENT
    INSERT INTO s VALUES (2)
    SET binlog_format=ROW
    CREATE OR REPLACE TABLE {db}.t (id INT PRIMARY KEY, a INT)
    INSERT INTO s VALUES (3)

rows_elsewhere: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1)
    CREATE OR REPLACE DATABASE other
    CREATE TABLE other.s (id INT)
    CREATE TRIGGER other.g AFTER INSERT ON other.s FOR EACH ROW INSERT INTO {db}.t VALUES (NEW.id, 9)
    USE other
    SET binlog_format=MIXED
    CREATE TEMPORARY TABLE x (id INT)
    SET binlog_format=ROW
    INSERT INTO s VALUES (2)

cascade: doubt
    CREATE TABLE p (id INT PRIMARY KEY)
    INSERT INTO p VALUES (1),(2)
    CREATE TABLE t (id INT PRIMARY KEY, p INT REFERENCES p(id) ON DELETE CASCADE)
    INSERT INTO t VALUES (1,1),(2,2)
    DELETE FROM p WHERE id=1

cascade_added: doubt
    CREATE TABLE p (id INT PRIMARY KEY)
    INSERT INTO p VALUES (1),(2)
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    ALTER TABLE t ADD FOREIGN KEY (a) REFERENCES p(id) ON UPDATE SET NULL
    UPDATE p SET id=9 WHERE id=2

reference: same
    CREATE TABLE p (id INT PRIMARY KEY)
    INSERT INTO p VALUES (1),(2)
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    ALTER TABLE t ADD FOREIGN KEY (a) REFERENCES p(id) ON UPDATE RESTRICT

# Temporary tables

temporary_truncated: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    SET binlog_format=MIXED
    CREATE TEMPORARY TABLE t (z INT)
    TRUNCATE TABLE t
    CREATE INDEX i ON t (z)
    DROP TABLE t

temporary_in_rows: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    CREATE TEMPORARY TABLE t (z INT)
    INSERT INTO t VALUES (5)
    TRUNCATE TABLE t
    ALTER TABLE t ADD y INT DEFAULT 5
    DROP TABLE t
    INSERT INTO t VALUES (3,3)

temporary_renamed: refused
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    CREATE TEMPORARY TABLE t (z INT)
    RENAME TABLE t TO o
    INSERT INTO t VALUES (3,3)

truncated_beside: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    SET binlog_format=MIXED
    CREATE TEMPORARY TABLE o (z INT)
    TRUNCATE TABLE t
    SET binlog_format=ROW
    INSERT INTO t VALUES (3,3)

# Characters that a set has twice, or not

backslash_of_sjis_to_bytes: refused
    CREATE TABLE t (id INT PRIMARY KEY, c VARCHAR(9) CHARACTER SET sjis)
    INSERT INTO t VALUES (1, _sjis x'5c'), (2, _sjis x'8341')
    ALTER TABLE t MODIFY c VARBINARY(9)
    INSERT INTO t VALUES (3, 'a')

union_of_cp932_to_bytes: refused
    CREATE TABLE t (id INT PRIMARY KEY, c VARCHAR(9) CHARACTER SET cp932)
    INSERT INTO t VALUES (1, _cp932 x'81be'), (2, _cp932 x'879c')
    ALTER TABLE t CONVERT TO CHARACTER SET binary
    INSERT INTO t VALUES (3, 'a')

sign_of_armscii8_to_bytes: refused
    CREATE TABLE t (id INT PRIMARY KEY, c VARCHAR(9) CHARACTER SET armscii8)
    INSERT INTO t VALUES (1, _armscii8 x'a5'), (2, _armscii8 x'28')
    ALTER TABLE t MODIFY c BLOB
    INSERT INTO t VALUES (3, 'a')

katakana_of_sjis_to_bytes: same
    CREATE TABLE t (id INT PRIMARY KEY, c VARCHAR(9) CHARACTER SET sjis)
    INSERT INTO t VALUES (1, 'a'), (2, _sjis x'8341'), (4, NULL)
    ALTER TABLE t MODIFY c VARBINARY(9)
    INSERT INTO t VALUES (3, 'a')

brace_to_swe7: refused
    SET sql_mode=''
    CREATE TABLE t (id INT PRIMARY KEY, c VARCHAR(9) CHARACTER SET latin1)
    INSERT INTO t VALUES (1, 'a{')
    ALTER TABLE t MODIFY c VARCHAR(9) CHARACTER SET swe7
    INSERT INTO t VALUES (3, 'a')

letters_to_swe7: same
    CREATE TABLE t (id INT PRIMARY KEY, c VARCHAR(9) CHARACTER SET latin1)
    INSERT INTO t VALUES (1, 'ab'), (2, 'Ä')
    ALTER TABLE t MODIFY c VARCHAR(9) CHARACTER SET swe7
    INSERT INTO t VALUES (3, 'a')

# What types and values mean by the sql_mode

char_padded_by_the_mode: refused
    CREATE TABLE t (id INT PRIMARY KEY, c CHAR(4))
    INSERT INTO t VALUES (1,'a'),(2,'')
    SET sql_mode='PAD_CHAR_TO_FULL_LENGTH'
    ALTER TABLE t MODIFY c VARCHAR(9)
    INSERT INTO t VALUES (3,'b')

char_padded_to_bytes: refused
    CREATE TABLE t (id INT PRIMARY KEY, c CHAR(4) CHARACTER SET latin1) CHARSET=latin1
    INSERT INTO t VALUES (1,'a'),(2,'')
    SET sql_mode='PAD_CHAR_TO_FULL_LENGTH'
    ALTER TABLE t CONVERT TO CHARACTER SET binary
    INSERT INTO t VALUES (3,'b')

char_stays_in_that_mode: same
    CREATE TABLE t (id INT PRIMARY KEY, c CHAR(4), d VARCHAR(4))
    INSERT INTO t VALUES (1,'a','a'),(2,'','')
    SET sql_mode='PAD_CHAR_TO_FULL_LENGTH'
    ALTER TABLE t MODIFY c CHAR(9), MODIFY d VARCHAR(9)
    INSERT INTO t VALUES (3,'b','')

empty_text_is_null: refused
    CREATE TABLE t (id INT PRIMARY KEY)
    INSERT INTO t VALUES (1)
    SET sql_mode='EMPTY_STRING_IS_NULL'
    ALTER TABLE t ADD c VARCHAR(9) DEFAULT ''
    INSERT INTO t (id) VALUES (2)

date_of_oracle: refused
    CREATE TABLE t (id INT PRIMARY KEY)
    INSERT INTO t VALUES (1)
    SET sql_mode='ORACLE'
    ALTER TABLE t ADD c DATE DEFAULT '2020-01-02'
    INSERT INTO t (id) VALUES (2)

real_is_float: refused
    CREATE TABLE t (id INT PRIMARY KEY)
    INSERT INTO t VALUES (1)
    SET sql_mode='REAL_AS_FLOAT'
    ALTER TABLE t ADD c REAL NOT NULL
    INSERT INTO t VALUES (2,0.1)

# Columns that are logged before their rows get a number

virtual_of_number: doubt
    CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, a INT, g INT AS (`id` + 1) VIRTUAL)
    INSERT INTO t (a) VALUES (1),(2)

virtual_of_virtual_of_number: doubt
    CREATE TABLE t (id SERIAL, a INT, g INT GENERATED ALWAYS AS (ID + 1), h INT AS (g * 2))
    INSERT INTO t (a) VALUES (1),(2)

virtual_beside_number: same
    CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, a INT, g INT AS (a + 1) VIRTUAL) AUTO_INCREMENT=7
    INSERT INTO t (a) VALUES (1),(2)

virtual_of_key: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT, g INT AS (id + 1) VIRTUAL)
    INSERT INTO t (id) VALUES (1),(2)

virtual_of_number_added: doubt
    CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, a INT)
    ALTER TABLE t ADD g INT AS (id + 1)
    INSERT INTO t (a) VALUES (1),(2)

virtual_of_number_truncated: doubt
    CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, a INT)
    INSERT INTO t (a) VALUES (1),(2)
    ALTER TABLE t ADD g INT AS (id + 1)
    TRUNCATE t
    INSERT INTO t (a) VALUES (1),(2)

number_came_later: doubt
    CREATE TABLE t (id INT PRIMARY KEY, a INT, g INT AS (id + 1))
    ALTER TABLE t MODIFY id INT AUTO_INCREMENT
    INSERT INTO t (a) VALUES (1),(2)

virtual_added_without_a_number: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    ALTER TABLE t ADD g INT AS (a + 1), ADD h INT AS (a * 2) STORED
    INSERT INTO t (id, a) VALUES (1,1),(2,2)

number_added_where_nothing_is_computed: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    ALTER TABLE t ADD n INT AUTO_INCREMENT UNIQUE
    INSERT INTO t (id, a) VALUES (1,1),(2,2)

number_and_virtual_come_one_by_one: doubt
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    ALTER TABLE t MODIFY id INT AUTO_INCREMENT
    ALTER TABLE t ADD g INT AS (id + 1)
    INSERT INTO t (a) VALUES (1),(2)

like_virtual_of_number: doubt
    CREATE TABLE o (id INT AUTO_INCREMENT PRIMARY KEY, a INT, g INT AS (id + 1) VIRTUAL)
    CREATE INDEX i ON o (a)
    CREATE TABLE t LIKE o
    INSERT INTO t (a) VALUES (1),(2)

like_like_virtual_of_number: doubt
    CREATE TABLE o (id INT AUTO_INCREMENT PRIMARY KEY, a INT, g INT AS (id + 1) VIRTUAL)
    CREATE TABLE p (LIKE o)
    DROP TABLE o
    CREATE TABLE t LIKE p
    INSERT INTO t (a) VALUES (1),(2)

like_what_is_not_of_number_any_more: same
    CREATE TABLE o (id INT AUTO_INCREMENT PRIMARY KEY, a INT, g INT AS (id + 1) VIRTUAL)
    CREATE OR REPLACE TABLE o (id INT AUTO_INCREMENT PRIMARY KEY, a INT)
    CREATE TABLE t LIKE o
    INSERT INTO t (a) VALUES (1),(2)

# Images that are not whole

minimal: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    SET binlog_row_image=MINIMAL
    INSERT INTO t VALUES (1,1),(2,2)
    INSERT INTO t (id) VALUES (3)
    UPDATE t SET a=7 WHERE id=1
    DELETE FROM t WHERE id=2

minimal_virtual: refused
    CREATE TABLE t (id INT PRIMARY KEY, a INT, g INT AS (a*2) VIRTUAL)
    INSERT INTO t (id,a) VALUES (1,1)
    SET binlog_row_image=MINIMAL
    UPDATE t SET a=5

minimal_virtual_insert: refused
    CREATE TABLE t (id INT PRIMARY KEY, a INT, g INT AS (a*2))
    SET binlog_row_image=MINIMAL
    INSERT INTO t (id,a) VALUES (1,1)

nodup_virtual: refused
    CREATE TABLE t (id INT PRIMARY KEY, a INT, g INT AS (a*2))
    INSERT INTO t (id,a) VALUES (1,1)
    SET binlog_row_image=FULL_NODUP
    UPDATE t SET a=5

full_virtual: same or refused
    CREATE TABLE t (id INT PRIMARY KEY, a INT, g INT AS (a*2), s INT AS (a*3) STORED)
    INSERT INTO t (id,a) VALUES (1,1)
    UPDATE t SET a=5

minimal_stored: same or refused
    CREATE TABLE t (id INT PRIMARY KEY, a INT, s INT AS (a*3) STORED)
    SET binlog_row_image=MINIMAL
    INSERT INTO t (id,a) VALUES (1,1)
    UPDATE t SET a=5

full_stored: same or refused
    CREATE TABLE t (id INT PRIMARY KEY, a INT, s INT AS (a*3) STORED, u INT AS (s+1) STORED)
    INSERT INTO t (id,a) VALUES (1,1)
    UPDATE t SET a=5

nodup_stored: same or refused
    CREATE TABLE t (id INT PRIMARY KEY, a INT, s INT AS (a*3) STORED)
    INSERT INTO t (id,a) VALUES (1,1)
    SET binlog_row_image=FULL_NODUP
    UPDATE t SET a=5

replaced_stored: same or refused
    CREATE TABLE t (id INT PRIMARY KEY, a INT, s INT AS (a*3) STORED)
    INSERT INTO t (id,a) VALUES (1,1)
    REPLACE INTO t (id,a) VALUES (1,7)

full_computed_of_others: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT, b TEXT, g INT AS (a*2), s INT AS (a*3) STORED, n INT DEFAULT 4)
    INSERT INTO t (id,a) VALUES (1,1),(2,NULL)
    UPDATE t SET b='x', n=n+1
    REPLACE INTO t (id,a,b) VALUES (1,1,'y')

minimal_computed_of_others: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT, b TEXT, s INT AS (a*3) STORED)
    INSERT INTO t (id,a) VALUES (1,1),(2,NULL)
    SET binlog_row_image=MINIMAL
    UPDATE t SET b='x'

minimal_default: refused
    CREATE TABLE t (id INT PRIMARY KEY, a INT DEFAULT 5)
    SET binlog_row_image=MINIMAL
    INSERT INTO t (id) VALUES (1)

minimal_default_given: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT DEFAULT 5, n INT NOT NULL)
    SET binlog_row_image=MINIMAL
    INSERT INTO t VALUES (1,1,1)
    UPDATE t SET a=DEFAULT

minimal_altered_while_empty: doubt
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    ALTER TABLE t ADD b INT DEFAULT 5
    SET binlog_row_image=MINIMAL
    INSERT INTO t (id) VALUES (1)

minimal_like: doubt
    CREATE TABLE o (id INT PRIMARY KEY, a INT DEFAULT 5)
    CREATE TABLE t LIKE o
    SET binlog_row_image=MINIMAL
    INSERT INTO t (id) VALUES (1)

minimal_set_default: refused
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    ALTER TABLE t ALTER a SET DEFAULT 5
    SET binlog_row_image=MINIMAL
    INSERT INTO t (id) VALUES (1)

noblob: same
    CREATE TABLE t (id INT PRIMARY KEY, a TEXT, g INT AS (id*2))
    SET binlog_row_image=NOBLOB
    INSERT INTO t (id,a) VALUES (1,'x'),(2,NULL)
    UPDATE t SET a='y' WHERE id=2

nodup_key: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)
    INSERT INTO t VALUES (1,1,1),(2,2,2)
    SET binlog_row_image=FULL_NODUP
    UPDATE t SET id=12 WHERE id=2
    UPDATE t SET id=13, b=7 WHERE id=12
    UPDATE t SET a=NULL WHERE id=1

minimal_replace: doubt
    CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)
    INSERT INTO t VALUES (1,1,1),(2,2,2)
    SET binlog_row_image=MINIMAL
    REPLACE INTO t (id) VALUES (1)

minimal_replace_value: doubt
    CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT) ENGINE=Aria
    INSERT INTO t VALUES (1,1,1),(2,2,2)
    SET binlog_row_image=MINIMAL
    REPLACE INTO t (id,a) VALUES (2,7)

minimal_on_duplicate: doubt
    CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)
    INSERT INTO t VALUES (1,1,1),(2,2,2)
    SET binlog_row_image=MINIMAL
    INSERT INTO t (id) VALUES (1) ON DUPLICATE KEY UPDATE a=5

noblob_replace: doubt
    CREATE TABLE t (id INT PRIMARY KEY, a INT, b TEXT)
    INSERT INTO t VALUES (1,1,1),(2,2,2)
    SET binlog_row_image=NOBLOB
    REPLACE INTO t (id) VALUES (1)

nodup_replace: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT, b TEXT)
    INSERT INTO t VALUES (1,1,1),(2,2,2)
    SET binlog_row_image=FULL_NODUP
    REPLACE INTO t (id) VALUES (1)
    INSERT INTO t (id) VALUES (2) ON DUPLICATE KEY UPDATE a=5

full_replace: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT, b TEXT)
    INSERT INTO t VALUES (1,1,1),(2,2,2)
    REPLACE INTO t (id) VALUES (1)
    INSERT INTO t (id) VALUES (2) ON DUPLICATE KEY UPDATE a=5

minimal_key: refused
    CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)
    INSERT INTO t VALUES (1,1,1),(2,2,2)
    UPDATE t SET id=11 WHERE id=1
    SET binlog_row_image=MINIMAL
    UPDATE t SET id=12 WHERE id=2

# XA transactions: their rows are logged where they are prepared

xa_committed: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    XA START '{db}'
    UPDATE t SET a=7 WHERE id=1
    XA END '{db}'
    XA PREPARE '{db}'
    XA COMMIT '{db}'
    INSERT INTO t VALUES (3,3)

xa_one_phase: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    XA START '{db}'
    INSERT INTO t VALUES (1,1)
    XA END '{db}'
    XA COMMIT '{db}' ONE PHASE

xa_rolled_back: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1),(2,2)
    XA START '{db}'
    UPDATE t SET a=7 WHERE id=1
    DELETE FROM t WHERE id=2
    INSERT INTO t VALUES (3,3)
    XA END '{db}'
    XA PREPARE '{db}'
    XA ROLLBACK '{db}'
    INSERT INTO t VALUES (3,4)

xa_rolled_back_unprepared: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1)
    XA START '{db}'
    INSERT INTO t VALUES (2,2)
    XA END '{db}'
    XA ROLLBACK '{db}'

xa_again: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    XA START '{db}'
    INSERT INTO t VALUES (1,1)
    XA END '{db}'
    XA PREPARE '{db}'
    XA ROLLBACK '{db}'
    XA START '{db}'
    INSERT INTO t VALUES (1,2)
    XA END '{db}'
    XA PREPARE '{db}'
    XA COMMIT '{db}'

xa_prepared: doubt
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    INSERT INTO t VALUES (1,1)
    XA START '{db}'
    INSERT INTO t VALUES (9,9)
    XA END '{db}'
    XA PREPARE '{db}'

xa_prepared_elsewhere: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    CREATE TABLE u (id INT PRIMARY KEY)
    INSERT INTO t VALUES (1,1)
    XA START '{db}'
    INSERT INTO u VALUES (9)
    XA END '{db}'
    XA PREPARE '{db}'

xa_rolled_back_elsewhere: same
    CREATE TABLE t (id INT PRIMARY KEY, a INT)
    CREATE TABLE u (id INT PRIMARY KEY)
    INSERT INTO t VALUES (1,1)
    XA START '{db}'
    INSERT INTO u VALUES (9)
    XA END '{db}'
    XA PREPARE '{db}'
    XA ROLLBACK '{db}'
    INSERT INTO t VALUES (2,2)
"""


def _parsed() -> dict[str, Case]:
    """A statement a line; what stands further in goes on with it."""
    found = {}
    for block in re.split(r"\n\n", re.sub(r"\n {8,}", " ", _TEXT)):
        head, *statements = [
            line for line in block.strip().split("\n") if not line.startswith("#")
        ] or [""]
        if head:
            name, want = head.split(": ")
            found[name] = Case(
                want, tuple(text.strip().replace("{newline}", "\n") for text in statements)
            )
    return found


CASES: Final = _parsed()
