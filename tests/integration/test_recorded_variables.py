"""`binlog_server/sql/mariadb_variables.tsv` is what real servers say. `BINLOG_TEST_WRITE=1` writes it anew."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pymysql

from binlog_server.sql.recorded_variables import FILE, HEAD
from binlog_server.testing.mariadb import MariaDB
from tests.binlog_server.rights.mariadb import NOBODY, NOTHING, UNKNOWN, needed
from tests.kit.fixtures import MakeMariaDB
from tests.kit.oracle import require_same

REACHES: Final = {"GLOBAL": "G", "SESSION": "B", "SESSION ONLY": "S"}
TYPES: Final = {
    "BOOLEAN": "switch",
    "DOUBLE": "double",
    "ENUM": "word",
    "FLAGSET": "flags",
    "SET": "words",
    "VARCHAR": "text",
}
# What the machine or this run of the server has made of the default.
_NOT_COMPILED_IN: Final = ("AUTO", "COMMAND-LINE", "CONFIG")
_SESSION_IS_READ_ONLY, _NO_SET_STATEMENT = 1621, 1971
_NO_DEFAULT: Final = 1230
_DEPRECATED: Final = (1287, 4200)
_WAITS_FOR_ITSELF: Final = "gtid_binlog_state"  # SET GLOBAL x = @@GLOBAL.x: for ever
# What another run, or another machine, says otherwise.
_OF_THE_RUN: Final = frozenset(
    {
        *("general_log_file", "hostname", "log_slow_query_file", "server_uid"),
        *("slow_query_log_file", "version_ssl_library", "wsrep_node_name"),
        *("gtid_binlog_pos", "gtid_binlog_state", "gtid_current_pos", "gtid_slave_pos"),
        *("relay_log_basename", "relay_log_index", "slave_load_tmpdir", "tmpdir"),
    }
)
_LOCALES: Final = ("lc_messages", "lc_time_names")


def rows_of(server: MariaDB) -> Mapping[str, Mapping[str, Any]]:
    rows = server.q("SELECT * FROM information_schema.SYSTEM_VARIABLES")
    return {row["VARIABLE_NAME"].lower(): row for row in rows}


def errno(connection: Any, *statements: str) -> tuple[int, str]:
    """The first error."""
    try:
        for statement in statements:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                cursor.fetchall()
    except pymysql.Error as error:
        return int(error.args[0]), str(error.args[1])
    return 0, ""


def told(connection: Any, statement: str) -> str:
    """The warning that comes with every SET: number and text."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT 1 FROM mysql.user LIMIT 0"
        )  # a SET does not forget what was told before
        if errno(connection, statement)[0]:
            return ""
        cursor.execute("SHOW WARNINGS")
        rows = [row for row in cursor.fetchall() if row["Code"] in _DEPRECATED]
    return f"{rows[0]['Code']} {rows[0]['Message']}" if rows else ""


def privileges(connection: Any, scope: str, name: str) -> str:
    """For some variables they are looked at only where a value is given."""
    for value in ("DEFAULT", f"@@{scope}.{name}"):
        named = needed(*errno(connection, f"SET {scope} {name} = {value}"))
        if named not in (NOTHING, UNKNOWN) and not named.startswith("error"):
            return named
    return ""


def locales(connection: Any) -> str:
    """Their names, by number."""
    found: list[str] = []
    while not errno(connection, f"SET lc_time_names = {len(found)}")[0]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT @@lc_time_names AS name")
            found.append(cursor.fetchone()["name"])
    return ",".join(found)


def lines(
    server: MariaDB, rows: Mapping[str, Mapping[str, Any]], more_flags: str = ""
) -> Iterator[str]:
    """The lines of the file for these rows. Sets each variable to its default, in sessions of its own."""
    shown_names = {
        row["Variable_name"].lower(): row["Variable_name"] for row in server.q("SHOW VARIABLES")
    }
    server.q(f"CREATE USER IF NOT EXISTS {NOBODY} IDENTIFIED BY 'x'")
    with server.connect(user=NOBODY, password="x") as nobody, server.connect() as root:
        for name, row in sorted(rows.items()):
            reach, is_read_only = REACHES[row["VARIABLE_SCOPE"]], row["READ_ONLY"] == "YES"
            scope = "SESSION" if reach == "S" else "GLOBAL"
            shown = row["SESSION_VALUE"] if reach == "S" else row["GLOBAL_VALUE"]
            by_run = reach == "S" or row["GLOBAL_VALUE_ORIGIN"] in _NOT_COMPILED_IN
            default = row["DEFAULT_VALUE"]
            if default is None or not by_run:
                default = shown
            if name in _OF_THE_RUN or str(default).startswith("/"):
                default = ""
            kind = TYPES.get(row["VARIABLE_TYPE"], "")
            values = "" if kind == "switch" else row["ENUM_VALUE_LIST"] or ""
            values = locales(root) if name in _LOCALES else values
            if not kind or kind == "double":
                numbers = ("NUMERIC_MIN_VALUE", "NUMERIC_MAX_VALUE", "NUMERIC_BLOCK_SIZE")
                values = " ".join(str(row[key] or 0) for key in numbers)
            if not kind:
                kind = "number" if "UNSIGNED" in row["VARIABLE_TYPE"] else "signed"
                kind += "" if "BIGINT" in row["VARIABLE_TYPE"] else "32"
            flags = "r" * is_read_only + more_flags
            of_global = of_session = warning = ""
            with root.cursor() as cursor:
                cursor.execute(f"SELECT @@{scope}.{name} AS value")
                flags += "0" * (cursor.fetchone()["value"] is None)
            if not is_read_only:
                if name != _WAITS_FOR_ITSELF:
                    warning = told(root, f"SET {scope} {name} = @@{scope}.{name}")
                if reach != "S":
                    of_global = privileges(nobody, "GLOBAL", name)
                if reach != "G":
                    of_session = privileges(nobody, "SESSION", name)
                    number, _ = errno(root, f"SET SESSION {name} = DEFAULT")
                    flags += "R" * (number == _SESSION_IS_READ_ONLY)
                    flags += "d" * (number == _NO_DEFAULT)
                    number, _ = errno(root, f"SET STATEMENT {name} = DEFAULT FOR SELECT 1")
                    flags += "s" * (number == _NO_SET_STATEMENT)
                    if kind in ("text", "word", "words", "flags"):
                        number, _ = errno(
                            root, f"SET SESSION {name} = NULL", f"SET SESSION {name} = DEFAULT"
                        )
                        flags += "N" * (not number)
            yield "\t".join(
                (
                    shown_names[name],
                    reach,
                    kind,
                    default or "",
                    values,
                    flags,
                    of_global,
                    of_session,
                    warning,
                )
            )


def test_what_real_servers_say(make_upstream: MakeMariaDB) -> None:
    new = make_upstream(version="11.8")
    known = rows_of(new)
    found = list(lines(new, known))
    old = make_upstream(version="10.11")
    found += lines(old, {n: row for n, row in rows_of(old).items() if n not in known}, "o")
    text = HEAD + "".join(f"{line}\n" for line in sorted(found))
    if os.environ.get("BINLOG_TEST_WRITE"):
        FILE.write_text(text, encoding="utf-8")
    recorded = FILE.read_text(encoding="utf-8")
    lines_of = [set(which.splitlines()) for which in (text, recorded)]
    require_same(
        new.value("SELECT VERSION()"), dict.fromkeys(sorted(lines_of[0] ^ lines_of[1]), "")
    )
