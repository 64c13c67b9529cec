"""Kinds, limits, defaults and reaches of system variables are those of a real 11.8, or it says here why not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from binlog_server.settings.option_kinds import Decimals, Kind, Number, Switch, Text, Words
from binlog_server.sql.variables import VARIABLES, Variable
from tests.kit.fixtures import MakeMariaDB

OURS: Final = "MariaDB has no such variable"
UTF8: Final = "statements are UTF-8 here, and there are no tables to compare in"
STATE: Final = "it is what the server is or does, not what was said"
MEMORY: Final = "what the machine has is less"
SYSTEM: Final = "the system takes no more, and a default finds clients that have gone"
# Name: what differs, and why.
DIFFERENT: Final[Mapping[str, tuple[set[str], str]]] = {
    "binlog_archive_directory": ({"name"}, OURS),
    "binlog_directory": ({"name"}, "of 12.3"),
    "binlog_row_metadata": ({"default"}, "replicas need the names of columns"),
    "binlog_storage_engine": ({"name"}, "of 12.3"),
    "character_set_client": ({"kind"}, "a list of character sets is a text here"),
    "character_set_connection": ({"kind"}, "likewise"),
    "character_set_database": ({"kind"}, "likewise"),
    "character_set_filesystem": ({"kind"}, "likewise"),
    "character_set_results": ({"kind"}, "likewise"),
    "character_set_server": ({"kind"}, "likewise"),
    "character_set_system": ({"kind"}, "likewise"),
    "collation_connection": ({"kind", "default"}, UTF8),
    "collation_database": ({"kind", "default"}, UTF8),
    "collation_server": ({"kind", "default"}, UTF8),
    "datadir": ({"default"}, STATE),
    "innodb_binlog_state_interval": ({"name"}, "of 12.3"),
    "innodb_log_file_size": ({"limits"}, "recovery reads all of it"),
    "log_slave_updates": ({"default"}, "this is what a relay is for"),
    "max_binlog_size": ({"limits"}, "a file has four pages or more"),
    "max_connections": ({"default"}, "a connection costs no thread"),
    "max_session_mem_used": ({"default"}, "memory is bounded"),
    "max_total_session_mem_used": ({"name"}, OURS),
    "max_user_connections": (
        {"limits"},
        "-1, which locks out all without SUPER, is not there",
    ),
    "optimizer_switch": ({"default"}, "which switches there are depends on the version"),
    "port": ({"default"}, STATE),
    "query_cache_size": ({"default"}, "there is none"),
    "replica_lag_grace_seconds": ({"name"}, OURS),
    "rpl_semi_sync_master_timeout": ({"limits"}, "49 days: nobody waits longer"),
    "rpl_semi_sync_master_wait_for_slave_count": ({"name"}, "MySQL's"),
    "rpl_semi_sync_slave_wait_for_slave_count": ({"name"}, OURS),
    "sql_mode": ({"default"}, "no mode goes with a statement that its client has not SET"),
    "sql_slave_skip_counter": (
        {"reach"},
        "what differs there is the connection, and it is SET GLOBAL there, too",
    ),
    "tcp_keepalive_interval": ({"limits", "default"}, SYSTEM),
    "tcp_keepalive_probes": ({"limits", "default"}, SYSTEM),
    "tcp_keepalive_time": ({"limits", "default"}, SYSTEM),
}
KINDS: Final[Mapping[str, type]] = {
    "VARCHAR": Text,
    "SET": Text,
    "FLAGSET": Text,
    "ENUM": Words,
    "BOOLEAN": Switch,
    "DOUBLE": Decimals,
}


def limits(kind: Kind) -> Any:
    if isinstance(kind, Number | Decimals):
        return kind.low, kind.high
    return kind.words if isinstance(kind, Words) else None


def real_limits(row: Mapping[str, Any], kind: type) -> Any:
    if kind in (Number, Decimals):
        return tuple(int(float(n)) if "." in n else int(n) for n in _range(row))
    return tuple(row["ENUM_VALUE_LIST"].split(",")) if kind is Words else None


def _range(row: Mapping[str, Any]) -> tuple[str, str]:
    return str(row["NUMERIC_MIN_VALUE"]), str(row["NUMERIC_MAX_VALUE"])


def differences(ours: Variable, real: Mapping[str, Any] | None) -> set[str]:
    if real is None:
        return {"name"}
    found = set()
    if ours.reach.value != real["VARIABLE_SCOPE"]:
        found.add("reach")
    kind = KINDS.get(real["VARIABLE_TYPE"], Number)
    if type(ours.kind) is not kind:
        found.add("kind")
    elif limits(ours.kind) != real_limits(real, kind):
        found.add("limits")
    if real["DEFAULT_VALUE"] not in (None, ours.default):
        found.add("default")
    return found


def test_like_a_real_server(make_upstream: MakeMariaDB) -> None:
    with make_upstream(version="11.8").connect() as connection:
        cursor = connection.cursor()
        cursor.execute("SELECT * FROM information_schema.SYSTEM_VARIABLES")
        rows = {row["VARIABLE_NAME"].lower(): row for row in cursor.fetchall()}
    found = {name: differences(row, rows.get(name)) for name, row in VARIABLES.items()}
    assert {name: what for name, what in found.items() if what} == {
        name: what for name, (what, _) in DIFFERENT.items()
    }
