"""The upstreams of the configuration file: a URL, or tables.

upstream = "mariadb://repl:secret@primary:3306"     # one, with the defaults

[upstream]                                          # the default connection
host = "primary"
user = "repl"
password_file = "/run/secrets/repl"

[upstream.east]                                     # one with a name
host = "db2"
...
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from binlog_server.upstreams.master_info import NAME_CHARS_MAX, MasterInfo


def upstreams(value: Any) -> dict[str, MasterInfo]:
    """The connections by name; "" is the default one. Raises ValueError."""
    if isinstance(value, str):
        return {"": MasterInfo.from_url(value)}
    if not isinstance(value, Mapping):
        raise ValueError(
            "write mariadb://user:password@host:port, or tables [upstream], [upstream.NAME]"
        )
    tables = {name: table for name, table in value.items() if isinstance(table, Mapping)}
    options = {name: option for name, option in value.items() if name not in tables}
    if options:
        tables = {"": options, **tables}
    found: dict[str, MasterInfo] = {}
    for name, table in tables.items():
        if len(name) > NAME_CHARS_MAX or not name.isprintable():
            raise ValueError(f"a name is printable text of up to {NAME_CHARS_MAX} characters")
        if name.lower() in map(str.lower, found):
            raise ValueError(f"{name!r} is there twice; names are compared without case")
        try:
            found[name] = MasterInfo.from_table(table)
        except ValueError as error:
            raise ValueError(f"{name}: {error}" if name else str(error)) from None
    return found
