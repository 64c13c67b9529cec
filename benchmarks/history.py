"""A history to measure with: many small row transactions, all alike, in a real mariadbd.

Each is GTID, ANNOTATE_ROWS, TABLE_MAP, WRITE_ROWS, XID: five events, 350 bytes as our store holds
them, 370 with mariadbd's checksums. A loop in a stored procedure makes them without a round trip
each, some 60,000/s.
"""

from __future__ import annotations

from typing import Final

from binlog_server.testing.mariadb import UPSTREAM, MariaDB

EVENTS_PER_GROUP: Final = 5

FLAGS: Final = (
    *UPSTREAM,
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-log-file-size=512M",  # a small one makes it flush pages all the time
    "--innodb-buffer-pool-size=256M",
    "--max-binlog-size=1G",
)
"""Options of a server that makes a history quickly. None of them matters to serving it."""

_SET_UP: Final = (
    "CREATE DATABASE bench",
    "CREATE TABLE bench.t (id BIGINT AUTO_INCREMENT PRIMARY KEY, a INT NOT NULL,"
    " b VARCHAR(200) NOT NULL) ENGINE=InnoDB",
    "CREATE PROCEDURE bench.fill(wanted INT) BEGIN"
    "  DECLARE done INT DEFAULT 0;"
    "  WHILE done < wanted DO"
    # Nothing of the loop in it: a local variable would show up in the annotation, with its name.
    "    INSERT INTO bench.t (a, b) VALUES (7, REPEAT('x', 123));"
    "    SET done = done + 1;"
    "  END WHILE;"
    "END",
)


def make(server: MariaDB, groups: int) -> None:
    """Gives a fresh server a binlog that holds `groups` groups and nothing else."""
    server.script(*_SET_UP, "RESET MASTER", f"CALL bench.fill({groups})", "FLUSH LOCAL BINARY LOGS")
