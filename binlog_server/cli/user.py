"""`binlog-server user`: the accounts kept in the store. The server must be stopped: it holds the directory."""

from __future__ import annotations

import argparse
import contextlib
import getpass
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from binlog_protocol.connection.auth import NATIVE_PASSWORD
from binlog_protocol.connection.ed25519 import ED25519
from binlog_storage.classic.encryption import Keys
from binlog_storage.console.arguments import add_dry_run, add_json, number_argument, size_of
from binlog_storage.console.output import show_json, show_table
from binlog_storage.disk.local_path import no_directory, path_argument
from binlog_storage.errors import NotAStore, StorageError
from binlog_storage.ibb.file_names import LOCK_NAME

from binlog_server.accounts.account import ANY_HOST, Require, UserAccount
from binlog_server.accounts.privileges import PRIVILEGES, as_shown, privileges
from binlog_server.accounts.replica_policy import LIMITS, ReplicaPolicy, StreamStyle
from binlog_server.accounts.users import Users
from binlog_server.cli.keys import add_key_options, binlog_keys
from binlog_server.settings.config import ConfigError
from binlog_server.store.store_directory import open_state

_LINE_CHARS_MAX: Final = 4096


class NoAccount(StorageError):
    """The store has no account of that name."""


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser("user", help="add, change, drop or list accounts of a store")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, text in (
        ("add", "add an account or change its password (asked for, or read from standard input)"),
        ("set", "change how the replicas of an account are served"),
        ("drop", "remove an account"),
        ("list", "list the accounts"),
    ):
        action = actions.add_parser(name, help=text)
        if name != "list":
            action.add_argument("name", help="NAME or NAME@HOST; without HOST from anywhere")
        if name == "add":
            action.add_argument(
                "--grant",
                action="append",
                default=[],
                metavar="PRIVILEGE",
                help=f"{', '.join(sorted(PRIVILEGES))}; without one REPLICATION SLAVE; given again it replaces "
                "what was granted before",
            )
            action.add_argument(
                "--plugin",
                choices=[NATIVE_PASSWORD, ED25519],
                default=NATIVE_PASSWORD,
                help="how it proves its password (default mysql_native_password)",
            )
            action.add_argument(
                "--require",
                choices=["SSL", "X509"],
                default="",
                help="let it log in by TLS only, or with a certificate of ssl_ca only",
            )
        if name in ("add", "set"):
            _add_replica_options(action)
        action.add_argument(
            "--directory", required=True, type=path_argument, metavar="DIR", help="the store"
        )
        add_key_options(action)
        if name != "list":
            add_dry_run(action)
        add_json(
            action,
            "one array with an object for each account" if name == "list" else "one JSON object",
        )
    parser.set_defaults(run=run, makes="directory")


def _add_replica_options(action: argparse.ArgumentParser) -> None:
    group = action.add_argument_group("how its replicas are served (docs/replicas.md)")
    styles = [style.value for style in StreamStyle]
    group.add_argument(
        "--stream-style",
        choices=styles,
        help="by GTID (engine), or by files and positions as well (classic)",
    )
    group.add_argument("--server-version", help="that its sessions are told by VERSION()")
    for option, text in (
        ("--max-bytes-per-second", "rate of the stream of each replica, such as 50M; 0: no limit"),
        ("--max-lag-bytes", "drop a replica that is further behind and comes no nearer; 0: never"),
        ("--max-lag-seconds", "the same in seconds"),
    ):
        # The bounds are those of the limit, which says what they mean.
        kind = number_argument(None) if option.endswith("seconds") else _size
        group.add_argument(option, type=kind, metavar="N", help=text)


def _size(text: str) -> int:
    if text.removeprefix("-").isdecimal():
        return int(text)  # its bounds are those of the limit, which says what they mean
    try:
        return size_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _replica_options(arguments: argparse.Namespace) -> dict[str, str | int]:
    """The replica options that the command line has, by name."""
    names = ("stream_style", "server_version", *LIMITS)
    given = {name: getattr(arguments, name) for name in names}
    return {name: value for name, value in given.items() if value is not None}


def run(arguments: argparse.Namespace) -> int:
    """Run the command. Returns the exit code. Raises `ConfigError`, `StorageError`."""
    is_new = arguments.action == "add" and not arguments.directory.exists()
    if not is_new and not arguments.directory.is_dir():
        raise NotAStore(no_directory(arguments.directory))
    keys = binlog_keys(arguments.config, arguments.directory)
    with _store(arguments.directory, keys, as_it_lies=True) as users:
        if arguments.action == "list":
            _show(users.all(), as_json=arguments.json)
            return 0
        if arguments.action == "add":
            _check_privileges(arguments.grant)  # before it asks for a password
            arguments.password = _password()
        _do(arguments, users)  # what cannot be done leaves no trace, the store's lock neither
    if not arguments.dry_run:
        with _store(arguments.directory, keys) as users:
            _do(arguments, users)
    _tell(arguments)
    return 0


@contextlib.contextmanager
def _store(directory: Path, keys: Keys | None, *, as_it_lies: bool = False) -> Iterator[Users]:
    """The accounts of a store. as_it_lies: nothing is changed, and no directory made."""
    with contextlib.ExitStack() as stack:
        if as_it_lies and not directory.exists():
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        elif not directory.exists():
            stack.push(partial(_leave_nothing, directory))
        state, disk = open_state(directory, keys, as_it_lies=as_it_lies)
        stack.callback(disk.close)
        yield Users(state)


def _leave_nothing(made: Path, error: type[BaseException] | None, *_: object) -> None:
    """Where an account could not be kept, as on a full disk, there is no store that looks as if it had some."""
    if error is not None:
        with contextlib.suppress(OSError):
            (made / LOCK_NAME).unlink(missing_ok=True)
            made.rmdir()


def _do(arguments: argparse.Namespace, users: Users) -> None:
    """Raises `ConfigError`, `NoAccount` where it cannot be done."""
    name, host = _account(arguments)
    try:
        if arguments.action == "drop":
            users.drop(name, host)
        elif arguments.action == "set":
            options = _replica_options(arguments)
            if not options:
                raise ConfigError("nothing to set: give at least one option")
            # A bad value is told first, whether there is the account or not.
            ReplicaPolicy().changed(options)
            users.set_replica(name, host, options)
        else:
            policy = ReplicaPolicy().changed(_replica_options(arguments))
            users.add(
                name,
                arguments.password,
                arguments.grant,
                host=host,
                plugin=arguments.plugin,
                require=Require(arguments.require),
                replica=policy,
            )
    except ValueError as error:
        raise ConfigError(str(error)) from None
    except KeyError:
        raise NoAccount(f"there is no account {name!r}@{host!r}") from None


def _check_privileges(names: list[str]) -> None:
    try:
        privileges(names)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _account(arguments: argparse.Namespace) -> tuple[str, str]:
    """Name and host."""
    name, _, host = arguments.name.partition("@")
    return name, host or ANY_HOST


def _tell(arguments: argparse.Namespace) -> None:
    name, host = _account(arguments)
    if arguments.json:
        told = {"account": f"{name}@{host}", "action": arguments.action}
        show_json({**told, "dry_run": arguments.dry_run})
    elif arguments.dry_run:
        print(
            f"{arguments.action} {name}@{host}: nothing is in the way of it, and nothing was done"
        )
    else:
        print(f"{arguments.action} {name}@{host}: done")


def _show(accounts: list[UserAccount], *, as_json: bool) -> None:
    if as_json:
        show_json([_object(account) for account in accounts])
    elif accounts:
        rows = [
            (one.name, as_shown(one.granted), ", ".join(one.replica.words())) for one in accounts
        ]
        show_table(("ACCOUNT", "PRIVILEGES", "REPLICAS"), rows)
    else:
        print("no accounts")


def _object(account: UserAccount) -> dict[str, object]:
    policy = account.replica
    return {
        "account": account.name,
        "privileges": sorted(account.granted),
        "plugin": account.credential.plugin,
        "require": account.require.value,
        "locked": account.locked,
        "stream_style": policy.style.value,
        "server_version": policy.server_version,
        **{name: getattr(policy, name) for name in LIMITS},
    }


def _password() -> str:
    """A password from the terminal or standard input; a command line could be read by every user of the machine.

    Raises `ConfigError` where there is none: an account without a password is asked for by an empty line.
    """
    if sys.stdin.isatty():
        password = getpass.getpass("password: ")
        if getpass.getpass("once more: ") != password:
            raise ConfigError("the two passwords differ: nothing was done")
        return password
    line = sys.stdin.readline(_LINE_CHARS_MAX)
    if not line:
        raise ConfigError("there is no line with a password on standard input: nothing was done")
    return line.rstrip("\n")
