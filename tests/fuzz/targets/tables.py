"""Statements about tables that are here: who has no rights changes no row."""

from __future__ import annotations

import importlib
import random
import re
from typing import Final

from binlog_storage.binlog.store import IbbEngine

from tests.fuzz import frames
from tests.fuzz.mutation import mutated
from tests.fuzz.targets.sessions import Sql

assert importlib.import_module("binlog_server.queries.binding")  # the first question imports it

OF_TABLES: Final = tuple(
    line.encode()
    for line in """
INSERT INTO t (a,n,x) VALUES ('c',4,1.25), ('d',NULL,'x')
INSERT INTO d.t SET a='q', n=5
INSERT INTO t (a) SELECT CONCAT(a,'x') FROM t WHERE id<3
REPLACE INTO t VALUES (1,'z',2,3)
INSERT INTO t (id,n) VALUES (1,1) ON DUPLICATE KEY UPDATE n=n+VALUES(n), a='u'
INSERT IGNORE INTO t VALUES (1,'',1,1)
INSERT INTO t (a) VALUES ('r') RETURNING id, a, (SELECT MAX(n) FROM d.t)
UPDATE t SET a='x', n=n+1 WHERE id=1
UPDATE t SET x=x*1.5, a=NULL WHERE n BETWEEN 1 AND 3 ORDER BY id DESC LIMIT 2
UPDATE IGNORE t SET n=1
DELETE FROM t WHERE id IN (7,8,9) OR a LIKE 'x%'
DELETE FROM t ORDER BY n LIMIT 1 RETURNING *
TRUNCATE t
SELECT * FROM t
SELECT COUNT(*), MAX(x) FROM t GROUP BY a HAVING COUNT(*)>0 ORDER BY 1
SELECT * FROM t WHERE id=2 FOR UPDATE
SELECT a.id FROM t a JOIN t b ON a.id=b.n LEFT JOIN t c USING (id)
SELECT * FROM t LOCK IN SHARE MODE NOWAIT
SELECT id FROM t WHERE a REGEXP '^[a-c]+$' UNION SELECT 1 ORDER BY 1 LIMIT 3 OFFSET 1
SHOW CREATE TABLE t
DESCRIBE t
SHOW INDEX FROM t
SHOW TABLE STATUS
SELECT * FROM information_schema.COLUMNS WHERE TABLE_SCHEMA='d'
CHECKSUM TABLE t
CREATE TABLE u (id INT PRIMARY KEY, e ENUM('a','b'), s SET('x','y'), j JSON, k TEXT, UNIQUE (k(9)), KEY (e)) COMMENT 'c'
CREATE TABLE IF NOT EXISTS u (a DATETIME(3) DEFAULT NOW(3) ON UPDATE NOW(3), id BIGINT PRIMARY KEY) ENGINE=MyISAM
ALTER TABLE t ADD COLUMN y TIMESTAMP NULL AFTER a, DROP COLUMN x
ALTER TABLE t MODIFY a VARCHAR(5), ADD UNIQUE (a), RENAME TO v
ALTER TABLE t CHANGE n m BIGINT NOT NULL DEFAULT 7, ALTER a SET DEFAULT 'q'
ALTER TABLE t CONVERT TO CHARACTER SET utf8mb3
RENAME TABLE t TO u, u TO t
DROP TABLE IF EXISTS u, v
CREATE INDEX i ON t (a, n)
DROP INDEX n ON t
CREATE DATABASE e
DROP DATABASE e
BEGIN
COMMIT
ROLLBACK
SAVEPOINT s
ROLLBACK TO s
RELEASE SAVEPOINT s
SET autocommit=0
START TRANSACTION WITH CONSISTENT SNAPSHOT
SET sql_mode='ANSI,NO_BACKSLASH_ESCAPES'
SET NAMES latin1
SET @a=1
SELECT @a
XA START 'x'
XA END 'x'
XA PREPARE 'x'
XA COMMIT 'x'
XA ROLLBACK 'x'
XA RECOVER
SET tx_isolation='REPEATABLE-READ'
PREPARE p FROM 'UPDATE t SET a=? WHERE id=?'
SET @v='x'
EXECUTE p USING @v, @v
DEALLOCATE PREPARE p
SET innodb_lock_wait_timeout=0
SET STATEMENT sql_mode='' FOR INSERT INTO t (n) VALUES ('zz')
LOCK TABLES t WRITE
UNLOCK TABLES
CREATE TABLE w LIKE t
CREATE TABLE w (id INT PRIMARY KEY) SELECT id FROM t
CREATE OR REPLACE TABLE t (id INT PRIMARY KEY, a VARCHAR(40), n INT)
CREATE TEMPORARY TABLE t (id INT PRIMARY KEY)
SET binlog_format=STATEMENT
""".strip().splitlines()
)
"""Each form that tables here know."""


class SqlOfTables(Sql):
    """One behind the other, in a database that is here."""

    name = "tables"
    told = (
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id INT AUTO_INCREMENT PRIMARY KEY, a VARCHAR(40), n INT UNIQUE, x DECIMAL(9,2))",
        "INSERT INTO d.t VALUES (1,'a',1,1), (2,'b',2,2.5), (3,NULL,NULL,NULL)",
    )

    def __init__(self) -> None:
        super().__init__()
        self._seeds = sorted({*OF_TABLES, *self._seeds[::10]})
        words = {w for s in OF_TABLES for w in re.findall(rb"[A-Za-z_@]+|\d+|[^\sA-Za-z_\d]", s)}
        self._words = sorted(words)

    def make(self, rng: random.Random) -> bytes:
        texts = [b"USE d"]
        for _ in range(rng.randrange(1, 7)):
            text = rng.choice(OF_TABLES)
            if rng.random() < 0.6:
                text = self._other_words(text, rng)
            if rng.random() < 0.2:
                text = mutated(text, rng, self._seeds, 3)
            texts.append(text)
        return frames.joined([bytes([rng.randrange(256)]), *texts])

    def _facts(self) -> tuple[object, ...]:
        engine = self._lab.engine
        assert isinstance(engine, IbbEngine)
        store = engine.tables
        with store.view() as view:
            held = {number: dict(store.scan(number, view=view)) for number in store.tables(view)}
        return (*super()._facts(), held)
