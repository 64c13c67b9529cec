"""Options of a source: case-insensitive names, texts as Spark hands them over, into values that have been checked.

docs/spark.md has the table for users. What is misspelt is an error, not ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import Field, field, fields
from datetime import UTC
from typing import Any, Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.dump.target import seconds_of
from binlog_protocol.errors import ServerError
from binlog_protocol.gtid import SlavePosition
from binlog_storage.archive.places import archive_path
from binlog_storage.console.arguments import did_you_mean, gtid_position, size_of, whole_number
from binlog_storage.disk.local_path import local_path
from binlog_storage.log.ranges import GtidRange, TimeRange

from binlog_pipeline.errors import BadOption
from binlog_pipeline.table_names import parsed_table, table_text
from binlog_pipeline.wanted import Wanted

MIB: Final = 1 << 20
VIEWS: Final = ("events", "transactions", "changes", "ddl", "raw", "files")
SOURCES: Final = ("auto", "directory", "archive", "server")


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Every option of the data source. The names are those of the fields in camelCase."""

    # source
    path: str = ""
    paths: tuple[str, ...] = ()
    source: str = "auto"
    host: str = ""
    port: int = 3306
    user: str = ""
    password: str = field(default="", repr=False)
    password_file: str = ""
    password_env: str = ""
    server_id: int = 0
    tls: str = "preferred"
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    connect_timeout: int = 10
    # what
    view: str = "events"
    table: str = ""
    tables: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    ops: frozenset[str] = frozenset("cud")
    layout: str = "struct"
    # range
    start_gtid: SlavePosition | None = None
    end_gtid: SlavePosition | None = None
    start_time: int | None = None
    end_time: int | None = None
    starting_position: str = "earliest"
    domains: frozenset[int] | None = None
    # size
    partition_bytes: int = 64 * MIB
    batch_rows: int = 16384
    max_bytes_per_trigger: int = 256 * MIB
    max_transactions_per_trigger: int = 0
    long_poll_ms: int = 500
    # safety
    fail_on_data_loss: bool = True
    non_row: str = "fail"
    schema_evolution: str = "restart"
    schema_seed: str = ""
    # types, as `ColumnOptions`
    zero_date: str = "null"
    time: str = "interval"
    unsigned_bigint: str = "decimal"
    bad_text: str = "replace"
    bit1: str = "long"
    set_labels: str = "string"

    @classmethod
    def parse(
        cls, options: Mapping[str, str], typed: Mapping[str, str] | None = None
    ) -> SourceOptions:
        """Options of a source from their texts, checked; names in any case. Raises `BadOption`.

        typed: by names in lower case what stands in their place where the user has typed it, as on a command line.
        """
        typed = typed or {}
        found: dict[str, Any] = {}
        for name, text in options.items():
            known = _BY_NAME.get(name.lower())
            if known is None:
                meant = (
                    did_you_mean(name, map(_as_written, fields(cls)))
                    or "; docs/spark.md has the table of them"
                )
                raise BadOption(f"there is no option {name}{meant}")
            field_name, parse = known
            try:
                found[field_name] = parse(str(text))
            except (ValueError, ServerError) as error:
                told = typed.get(name.lower(), f"option {name}")
                what = f"{_shown(text)!r}"
                why = f"{error}" if str(error).startswith(what) else f"{what} is wrong: {error}"
                raise BadOption(f"{told}: {why}") from None
        made = cls(**found)
        made._check(typed)
        return made

    def _check(self, typed: Mapping[str, str]) -> None:
        def called(name: str) -> str:
            return typed.get(name.lower(), name)

        if self.table and self.tables:
            raise BadOption(
                f"{called('table')} and {called('tables')} exclude each other: one table has its columns, several "
                "come as JSON"
            )
        if bool(self.path) and bool(self.paths):
            raise BadOption("path and paths exclude each other")
        if self.kind != "server" and not self.all_paths:
            raise BadOption(
                "there is nothing to read: give a path, or host, user and passwordFile of a server"
            )
        if self.kind == "server" and not (self.host and self.user):
            raise BadOption("a server is named by host and user, and passwordFile or passwordEnv")
        ways = {
            "password": self.password,
            "passwordFile": self.password_file,
            "passwordEnv": self.password_env,
        }
        given = [called(name) for name, value in ways.items() if value]
        if len(given) > 1:
            raise BadOption(f"{' and '.join(given)} exclude each other")

    @property
    def all_paths(self) -> tuple[str, ...]:
        return (self.path,) if self.path else self.paths

    @property
    def kind(self) -> str:
        """`source`, with `auto` decided as far as the options tell: server, or path."""
        if self.source != "auto":
            return self.source
        return "server" if self.host else "path"

    @property
    def wanted(self) -> Wanted:
        """The groups of the source that the options select."""
        gtids = GtidRange(self.start_gtid, self.end_gtid)
        return Wanted(gtids, TimeRange(self.start_time, self.end_time), self.domains)


def _choice(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in choices:
            raise ValueError(f"it is one of {', '.join(choices)}")
        return text.lower()

    return parse


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("it is true or false")
    return text.lower() == "true"


def _number(least: int = 0, most: int = (1 << 63) - 1) -> Callable[[str], int]:
    return lambda text: whole_number(text, least, most)


def _size(text: str) -> int:
    """Bytes, 1 or more. Raises ValueError."""
    found = size_of(text.strip())
    if not found:
        raise ValueError(f"{text!r} is no size from 1 on")
    return found


def moment(text: str) -> int:
    """Whole seconds since 1970 of an ISO 8601 time; UTC, if no zone is named. Raises ValueError."""
    return int(seconds_of(text.strip(), UTC))


def _list(text: str) -> tuple[str, ...]:
    if text.lstrip().startswith("["):
        return tuple(map(str, json.loads(text)))
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _shown(text: str) -> str:
    """Without what may be a password in a URL."""
    return re.sub(r"//[^/]*@", "//...@", str(text))


def _file(text: str) -> str:
    return str(local_path(text)) if text else ""


def _source(text: str) -> str:
    return str(archive_path(text)) if text else ""


def _sources(text: str) -> tuple[str, ...]:
    return tuple(map(_source, _list(text)))


def _table(text: str) -> str:
    return table_text(parsed_table(text))


def _domains(text: str) -> frozenset[int]:
    return frozenset(map(_number(0, (1 << 32) - 1), _list(text)))


def _ops(text: str) -> frozenset[str]:
    found = frozenset(_list(text))
    if not found or not found <= set("cudrtx"):
        raise ValueError("it is a list of c (INSERT), u (UPDATE), d (DELETE), t and x (statements)")
    return found


def _position(text: str) -> str:
    if text.lower() in ("earliest", "latest"):
        return text.lower()
    return str(SlavePosition.parse(text))


_PARSERS: Final[dict[str, Callable[[str], Any]]] = {
    "source": _choice(*SOURCES),
    "path": _source,
    "paths": _sources,
    "password_file": _file,
    "tls_ca": _file,
    "tls_cert": _file,
    "tls_key": _file,
    "schema_seed": _file,
    "port": _number(1, 65535),
    "server_id": _number(1, (1 << 32) - 1),
    "tls": _choice("disabled", "preferred", "required", "verify"),
    "connect_timeout": _number(1, 3600),
    "view": _choice(*VIEWS),
    "table": _table,
    "tables": _list,
    "columns": _list,
    "ops": _ops,
    "layout": _choice("struct", "flat", "cdf", "debezium"),
    "start_gtid": gtid_position,
    "end_gtid": gtid_position,
    "start_time": moment,
    "end_time": moment,
    "starting_position": _position,
    "domains": _domains,
    "partition_bytes": _size,
    "batch_rows": _number(1, 1 << 20),
    "max_bytes_per_trigger": _size,
    "max_transactions_per_trigger": _number(1),
    "long_poll_ms": _number(0, 60_000),
    "fail_on_data_loss": _boolean,
    "non_row": _choice("fail", "skip"),
    "schema_evolution": _choice("restart", "fail", "ignore"),
    "zero_date": _choice("null", "string", "error"),
    "time": _choice("interval", "micros", "string"),
    "unsigned_bigint": _choice("decimal", "long", "string"),
    "bad_text": _choice("replace", "binary", "error"),
    "bit1": _choice("long", "boolean"),
    "set_labels": _choice("string", "array"),
}


def _as_written(option: Field[Any]) -> str:
    """`long_poll_ms` is longPollMs in documents, and in any case elsewhere."""
    first, *more = option.name.split("_")
    return first + "".join(word.capitalize() for word in more)


_BY_NAME: Final = {
    f.name.replace("_", ""): (f.name, _PARSERS.get(f.name, str)) for f in fields(SourceOptions)
}
