"""The privileges of accounts, by MariaDB's names.

=========================  =======================================================================
REPLICATION SLAVE          dump: replicate from here
BINLOG MONITOR             SHOW MASTER STATUS, SHOW BINARY LOGS, ...
BINLOG ADMIN               PURGE, and SET GLOBAL of the binlog's variables
REPLICATION MASTER ADMIN   SHOW SLAVE HOSTS, SHOW BINLOG REPLICAS, SET GLOBAL of semi-sync and of gtid_binlog_state
CONNECTION ADMIN           KILL of others, SET GLOBAL connect_timeout and max_connections, which does not keep it out
SUPER                      most of these, as in MariaDB 10.11, and SET GLOBAL of the other variables of connections
PROCESS                    all of SHOW PROCESSLIST, not only one's own
RELOAD                     FLUSH, RESET
READ_ONLY ADMIN            SET GLOBAL read_only
REPLICATION SLAVE ADMIN    CHANGE MASTER, START SLAVE, STOP SLAVE, SET GLOBAL gtid_slave_pos
SLAVE MONITOR              SHOW SLAVE STATUS
CREATE USER                accounts by SQL
SELECT, INSERT, UPDATE,
DELETE, CREATE, DROP       of tables that are here
BINLOG REPLAY              SQL text that is committed, under any GTID; and the rest, but for CREATE USER, dumps, faults
BINLOG FAULT               CREATE BINLOG FAULT and what belongs to it, where the server allows that at all: for tests
ALL PRIVILEGES             all of these
USAGE                      none
=========================  =======================================================================
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

from binlog_storage.console.arguments import did_you_mean

ALL_PRIVILEGES = "ALL PRIVILEGES"
BINLOG_FAULT = "BINLOG FAULT"
BINLOG_REPLAY = "BINLOG REPLAY"
CREATE_USER = "CREATE USER"
GRANT_OPTION = "GRANT OPTION"  # in GRANT and REVOKE: CREATE USER, which it is here
RELOAD = "RELOAD"
REPLICATION_SLAVE = "REPLICATION SLAVE"
SHUTDOWN = "SHUTDOWN"
USAGE = "USAGE"

# Of tables that are here: of all of them.
_OF_ROWS = ("SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "DROP")
_OF_DEFINITIONS = ("INDEX", "ALTER")
CREATE_TEMPORARY = "CREATE TEMPORARY TABLES"
OF_TABLES = (*_OF_ROWS, *_OF_DEFINITIONS, CREATE_TEMPORARY)
# Each by itself; in the order in which SHOW GRANTS prints them.
SINGLE = (
    *_OF_ROWS,
    RELOAD,
    SHUTDOWN,
    "PROCESS",
    *_OF_DEFINITIONS,
    "SUPER",
    CREATE_TEMPORARY,
    REPLICATION_SLAVE,
    "BINLOG MONITOR",
    CREATE_USER,
    "BINLOG ADMIN",
    BINLOG_REPLAY,
    BINLOG_FAULT,
    "CONNECTION ADMIN",
    "READ_ONLY ADMIN",
    "REPLICATION SLAVE ADMIN",
    "REPLICATION MASTER ADMIN",
    "SLAVE MONITOR",
)
PRIVILEGES = frozenset({*SINGLE, ALL_PRIVILEGES, USAGE})
_OTHER_NAMES = {
    "ALL": ALL_PRIVILEGES,
    "REPLICATION CLIENT": "BINLOG MONITOR",
    "REPLICATION REPLICA": REPLICATION_SLAVE,
    "REPLICATION REPLICA ADMIN": "REPLICATION SLAVE ADMIN",
    "REPLICA MONITOR": "SLAVE MONITOR",
}

# MariaDB's others, of tables, programs and files that there are not here.
OF_WHAT_IS_NOT_HERE = frozenset(
    {
        "REFERENCES",
        *("LOCK TABLES", "CREATE VIEW", "SHOW VIEW", "TRIGGER", "EVENT"),
        *("DELETE HISTORY", "DELETE VERSIONING ROWS", "CREATE ROUTINE", "ALTER ROUTINE", "EXECUTE"),
        *("SHOW CREATE ROUTINE", "SHOW DATABASES", "CREATE TABLESPACE", "FILE"),
        *("FEDERATED ADMIN", "SET USER"),
    }
)

# What a replica needs, and all that any of the recorded ones asked for. Accounts of the configuration file and of the
# command line to which nothing, or only BINLOG REPLAY, was granted are replicas' accounts.
OF_A_REPLICA = frozenset({REPLICATION_SLAVE})
_NOT_BY_REPLAY = frozenset({BINLOG_FAULT, CREATE_USER, REPLICATION_SLAVE, SHUTDOWN})


def in_one_way(name: str) -> str:
    """A name as it is written here: case and white space do not matter."""
    return " ".join(name.upper().split())


def privileges(names: Iterable[str]) -> frozenset[str]:
    """Privileges by name, in any case. ValueError for one that there is not."""
    found = {_OTHER_NAMES.get(name, name) for name in map(in_one_way, names)}
    unknown = sorted(found - PRIVILEGES)
    if unknown:
        known = sorted(PRIVILEGES)
        meant = did_you_mean(unknown[0], [*known, *_OTHER_NAMES]) or f": {', '.join(known)}"
        raise ValueError(f"{unknown[0]!r} is no privilege here{meant}")
    return frozenset(found)


@functools.lru_cache(maxsize=256)  # each session has it; an own one takes 216 bytes and more
def effective(granted: frozenset[str]) -> frozenset[str]:
    """The privileges of an account with these grants: ALL PRIVILEGES is each of them."""
    return granted | frozenset(SINGLE) if ALL_PRIVILEGES in granted else granted - {USAGE}


def suffices(grants: frozenset[str], needed: Iterable[str]) -> bool:
    """Whether an account with `grants` may do what any of `needed` allows; nothing needed is allowed to everybody.

    Who may commit under any GTID has the history in its hands, and may do everything else, too.
    """
    wanted = frozenset(needed)
    if not wanted:
        return True
    replay = frozenset() if wanted <= _NOT_BY_REPLAY else frozenset({BINLOG_REPLAY})
    return not grants.isdisjoint(wanted | replay | {ALL_PRIVILEGES})


def without_grants(granted: frozenset[str]) -> frozenset[str]:
    """The privileges of an account that was made without SQL; see `OF_A_REPLICA`."""
    return OF_A_REPLICA | granted if granted <= {BINLOG_REPLAY} else granted


def as_shown(granted: frozenset[str]) -> str:
    """The privileges as SHOW GRANTS lists them."""
    if ALL_PRIVILEGES in granted:
        return ALL_PRIVILEGES
    return ", ".join(name for name in SINGLE if name in granted) or USAGE
