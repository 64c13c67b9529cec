"""`binlog-server compare A B`: whether two stores or archives have the same history, and where they differ."""

from __future__ import annotations

import argparse
import contextlib
from functools import partial
from typing import Any, Final

from binlog_protocol.errors import ProtocolError
from binlog_protocol.gtid import Gtid
from binlog_storage.archive.history_comparison import DomainResult, GroupHistory, compare_histories
from binlog_storage.archive.places import Where
from binlog_storage.archive.remembered_chains import RememberedChains
from binlog_storage.console.arguments import add_json
from binlog_storage.console.output import show_json, shown
from binlog_storage.console.running import complain, words_of
from binlog_storage.disk.local_path import path_argument
from binlog_storage.errors import StorageError

from binlog_server.cli.find import group_files
from binlog_server.cli.keys import add_key_options, archive_keys, binlog_keys
from binlog_server.cli.servers import add_login_options, address_of, history_argument, server_info

EXIT_EQUAL: Final = 0
EXIT_DIFFER: Final = 1
EXIT_UNKNOWN: Final = 2
_EPILOG: Final = """
Each domain is compared on the range that both have: where one begins later, or ends earlier, is told and is no
difference; nor is the order between domains. Both may be written meanwhile. Exit code: 0 equal; 1 they differ, and the
first GTID of each domain that does is told; 2 they cannot be compared. A STORE is a directory of either format, binlog
files, an archive, or a running server, ours or a MariaDB, which is read as a replica does (REPLICATION SLAVE).
docs/compare.md has more.

examples:
  binlog-server compare /var/lib/binlog s3://bucket/main --index /var/cache/compared
  binlog-server compare /var/lib/mysql /var/lib/binlog --json
  binlog-server compare mariadb://repl@db1:3306 mariadb://repl@relay:3306 --password-file pw
"""


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser(
        "compare",
        help="say whether and where two histories differ",
        description="Compare two binlogs, of either format, or archives, group by group, by their hash chains.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for name in ("first", "second"):
        parser.add_argument(
            name,
            type=history_argument,
            metavar="STORE",
            help="a store, files, an archive, a server: see below",
        )
    parser.add_argument("--exact", action="store_true", help="other bytes are a difference")
    add_json(parser)
    parser.add_argument(
        "--index",
        type=path_argument,
        metavar="DIR",
        help="a folder of this pair's own: closed files are read once",
    )
    add_key_options(parser)
    add_login_options(parser)
    parser.set_defaults(run=run, makes="index")


def run(arguments: argparse.Namespace) -> int:
    """Run the command. Returns the exit code. Raises `ConfigError`."""
    names = address_of(arguments.first), address_of(arguments.second)
    try:
        keys = binlog_keys(arguments.config, ".")
        for_archive = archive_keys(arguments.config, ".", arguments.index)
        with contextlib.ExitStack() as stack:

            def history(where: Where) -> GroupHistory:
                found = group_files(
                    [where],
                    stack,
                    keys,
                    for_archive,
                    server=partial(server_info, arguments=arguments),
                    only_whole=True,
                )
                return GroupHistory(address_of(where), found.files, found.begin, remembered)

            remembered = RememberedChains(arguments.index)
            both = history(arguments.first), history(arguments.second)
            results = compare_histories(*both, exact=arguments.exact, remembered=remembered)
            remembered.keep()
    except (StorageError, ProtocolError, OSError) as error:
        return complain(
            "binlog-server", f"they cannot be compared: {words_of(error)}", EXIT_UNKNOWN
        )
    code = _exit_code(results)
    if arguments.json:
        found = {"first": names[0], "second": names[1], "equal": code == EXIT_EQUAL}
        show_json({**found, "domains": [_as_json(one) for one in results]})
    else:
        for one in results:
            print(_as_text(one, names))
    if code == EXIT_UNKNOWN:
        complain("binlog-server", "they have no group in common: nothing is proved", code)
    return code


def _exit_code(results: list[DomainResult]) -> int:
    if any(one.difference for one in results):
        return EXIT_DIFFER
    return EXIT_EQUAL if any(one.compared for one in results) else EXIT_UNKNOWN


def _as_json(result: DomainResult) -> dict[str, Any]:
    return {
        "domain": result.domain_id,
        "first": _text(result.first),
        "last": _text(result.last),
        "equal": result.groups,
        "logged_anew": result.anew,
        "other_form": result.unlike,
        "differs_at": _text(result.gtid),
        "difference": result.difference,
        "only_first": result.only_first,
        "only_second": result.only_second,
    }


def _text(gtid: Gtid | None) -> str | None:
    return None if gtid is None else str(gtid)


def _as_text(result: DomainResult, names: tuple[str, str]) -> str:
    said = []
    if result.compared:
        said.append(f"{result.first} to {result.last}: {result.compared} groups are the same")
    else:
        said.append("no group in common")
    if result.anew:
        said.append(f"{result.anew} of them were logged anew, in bytes of their own")
    if result.unlike:
        said.append(
            f"{result.unlike} of them are in another form, such as rows and statements, and of the same time: what "
            "they say was not compared"
        )
    for count, name in zip((result.only_first, result.only_second), names, strict=True):
        if count:
            said.append(f"{name} has {count} more behind the end of the other")
    if result.difference:
        said.append(f"DIFFERS at {result.gtid}: {shown(result.difference)}")
    return f"domain {result.domain_id}: " + "\n    ".join(said)
