"""Arguments that most commands have: the source, the part of it, and the engine."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from binlog_storage.console.arguments import BAD_ADDRESS, number_argument

from binlog_pipeline.errors import BadOption

if TYPE_CHECKING:
    from binlog_pipeline.jobs.workers import Engine
    from binlog_pipeline.options import SourceOptions

_SCHEME: Final = "mariadb"
_SERVER: Final = f"a server is written as {_SCHEME}://USER@HOST:PORT"
_CONNECTION: Final = (
    ("--password-file", "FILE", "first line of it is the password"),
    ("--password-env", "NAME", "environment variable that has the password"),
    ("--tls", "MODE", "disabled, preferred, required or verify"),
    ("--tls-ca", "FILE", "certificates of authorities"),
    ("--tls-cert", "FILE", "certificate of this client"),
    ("--tls-key", "FILE", "key of this client"),
    ("--server-id", "N", "server id of this client"),
    ("--connect-timeout", "S", "seconds"),
)
_RANGE: Final = (
    ("--start-gtid", "GTIDS", "only what is behind this position"),
    ("--end-gtid", "GTIDS", "only what is up to this position, and in its domains"),
    ("--start-time", "TIME", "only from this time on; ISO 8601, UTC without a zone"),
    ("--end-time", "TIME", "only before this time"),
    ("--domains", "N,...", "only these GTID domains"),
)
_PARSED: Final = frozenset(flag[2:].replace("-", "_") for flag, _, _ in (*_CONNECTION, *_RANGE)) | {
    "tables",
    "table",
    "partition_bytes",
}


def add_source(parser: argparse.ArgumentParser, flag: str | None = None) -> None:
    """Declare SOURCE, or the option `flag` in its place, and how to connect if it is a server."""
    about = "directory of .ibb files, archive, or mariadb://USER@HOST:PORT"
    if flag is None:
        parser.add_argument("source", metavar="SOURCE", help=about)
    else:
        parser.add_argument(flag, dest="source", metavar="SOURCE", required=True, help=about)
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="any other option of the data source; docs/spark.md has them",
    )
    _add(parser, "the server, if SOURCE is one", _CONNECTION)


def add_range(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments that say which groups are wanted."""
    _add(parser, "which part", _RANGE)


def add_engine(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments that say who does the work."""
    group = parser.add_argument_group("who does the work")
    group.add_argument(
        "--engine",
        choices=("auto", "local", "spark"),
        default="auto",
        help="local: processes of this machine; auto: that, below 2 GiB",
    )
    group.add_argument(
        "--workers",
        type=number_argument(1),
        default=0,
        metavar="N",
        help="processes (default: one a core)",
    )
    group.add_argument(
        "--master",
        default="",
        metavar="URL",
        help="of Spark: local[N], spark://HOST:PORT, sc://HOST:PORT (Spark Connect), ...",
    )


def source_options(arguments: argparse.Namespace, **more: str) -> SourceOptions:
    """The arguments for source and range, as options; `more` are others of `SourceOptions`.

    Raises `BadOption`.
    """
    from binlog_pipeline.options import SourceOptions

    return SourceOptions.parse(spark_options(arguments, **more), _typed(arguments))


def spark_options(arguments: argparse.Namespace, **more: str) -> dict[str, str]:
    """The same, not parsed: for a reader of Spark. Raises `BadOption`."""
    said = {
        name.replace("_", ""): str(value)
        for name, value in vars(arguments).items()
        if name in _PARSED and value is not None
    }
    others = dict(map(_name_and_value, arguments.option))
    found = {**_place(arguments.source), **others, **said, **more}
    if arguments.source.startswith(f"{_SCHEME}://") and not (found["host"] and found["user"]):
        raise BadOption(_SERVER)
    return found


def _typed(arguments: argparse.Namespace) -> dict[str, str]:
    """By the name of each option of a source how it is given here."""
    flags = {"".join(name.split("_")): f"--{name.replace('_', '-')}" for name in vars(arguments)}
    others = {
        name.lower(): f"--option {name}" for name, _ in map(_name_and_value, arguments.option)
    }
    return {
        **flags,
        "path": "SOURCE",
        "host": "SOURCE",
        "user": "SOURCE",
        "port": "SOURCE",
        **others,
    }


def engine(arguments: argparse.Namespace) -> Engine:
    """The engine that the arguments name."""
    from binlog_pipeline.jobs.workers import Engine

    return Engine(arguments.engine, arguments.workers, arguments.master)


def _name_and_value(text: str) -> tuple[str, str]:
    name, is_there, value = text.partition("=")
    if not is_there:
        raise BadOption(f"--option {text}: it is NAME=VALUE, such as nonRow=skip")
    return name, value


def _place(source: str) -> dict[str, str]:
    if not source.startswith(f"{_SCHEME}://"):
        return {"path": source}
    parts = urlsplit(source)
    if parts.password is not None:
        raise BadOption(
            "a password in SOURCE can be seen by all users of this machine: "
            "use --password-file or --password-env"
        )
    if parts.path not in ("", "/") or parts.query:
        raise BadOption(_SERVER)
    place = {"host": parts.hostname or "", "user": unquote(parts.username or "")}
    try:
        return place if parts.port is None else {**place, "port": str(parts.port)}
    except ValueError:
        raise BadOption(BAD_ADDRESS) from None


def _add(
    parser: argparse.ArgumentParser, title: str, flags: tuple[tuple[str, str, str], ...]
) -> None:
    group = parser.add_argument_group(title)
    for flag, metavar, about in flags:
        group.add_argument(flag, metavar=metavar, help=about)
