"""`binlog-server user`: the accounts kept in the store. The server must be stopped: it holds the directory."""

from __future__ import annotations

import argparse
import getpass
import sys
from typing import Any, Final

from binlog_protocol.connection.auth import NATIVE_PASSWORD
from binlog_protocol.connection.ed25519 import ED25519
from binlog_storage.disk.local_path import path_argument

from binlog_server.accounts.account import ANY_HOST, Require, UserAccount
from binlog_server.accounts.privileges import PRIVILEGES, as_shown, privileges
from binlog_server.accounts.replica_policy import LIMITS, ReplicaPolicy, StreamStyle
from binlog_server.accounts.users import Users
from binlog_server.cli.keys import add_key_options, binlog_keys
from binlog_server.settings.config import ConfigError
from binlog_server.store.store_directory import open_state

_LINE_CHARS_MAX: Final = 4096


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser("user", help="add, drop or list accounts of a store")
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
                "--plugin", choices=[NATIVE_PASSWORD, ED25519], default=NATIVE_PASSWORD
            )
            action.add_argument(
                "--require",
                choices=["SSL", "X509"],
                default="",
                help="let it log in by TLS only, or with a certificate of ssl_ca only",
            )
        if name in ("add", "set"):
            _add_replica_options(action)
        action.add_argument("--directory", required=True, type=path_argument)
        add_key_options(action)
    parser.set_defaults(run=run)


def _add_replica_options(action: argparse.ArgumentParser) -> None:
    group = action.add_argument_group("how its replicas are served (docs/replicas.md)")
    styles = [style.value for style in StreamStyle]
    group.add_argument("--stream-style", choices=styles)
    group.add_argument("--server-version", help="that its sessions are told by VERSION()")
    for option, text in (
        ("--max-bytes-per-second", "rate of the stream of each replica; 0 for no limit"),
        ("--max-lag-bytes", "drop a replica that is further behind and comes no nearer; 0: never"),
        ("--max-lag-seconds", "the same in seconds"),
    ):
        group.add_argument(option, type=int, metavar="N", help=text)


def _replica_options(arguments: argparse.Namespace) -> dict[str, str | int]:
    """The replica options that the command line has, by name."""
    names = ("stream_style", "server_version", *LIMITS)
    given = {name: getattr(arguments, name) for name in names}
    return {name: value for name, value in given.items() if value is not None}


def run(arguments: argparse.Namespace) -> int:
    """Run the command. Returns the exit code. Raises `ConfigError`, `StorageError`."""
    if arguments.action != "add" and not arguments.directory.is_dir():
        raise ConfigError(f"there is no directory {arguments.directory}")
    state, disk = open_state(
        arguments.directory, binlog_keys(arguments.config, arguments.directory)
    )
    try:
        users = Users(state)
        if arguments.action == "list":
            print("\n".join(_line(account) for account in users.all()) or "no accounts")
            return 0
        name, _, host = arguments.name.partition("@")
        host = host or ANY_HOST
        if arguments.action == "drop":
            users.drop(name, host)
        elif arguments.action == "set":
            options = _replica_options(arguments)
            if not options:
                raise ConfigError("nothing to set: give at least one option")
            users.set_replica(name, host, options)
        else:
            privileges(arguments.grant)  # checks them before it asks for a password
            policy = ReplicaPolicy().changed(_replica_options(arguments))
            users.add(
                name,
                _password(),
                arguments.grant,
                host=host,
                plugin=arguments.plugin,
                require=Require(arguments.require),
                replica=policy,
            )
    except ValueError as error:
        raise ConfigError(str(error)) from None
    except KeyError:
        raise ConfigError(f"there is no account {arguments.name!r}") from None
    finally:
        disk.close()
    return 0


def _line(account: UserAccount) -> str:
    return "  ".join([account.name, as_shown(account.granted), *account.replica.words()])


def _password() -> str:
    """A password from the terminal or standard input; a command line could be read by every user of the machine."""
    if sys.stdin.isatty():
        return getpass.getpass("password: ")
    return sys.stdin.readline(_LINE_CHARS_MAX).rstrip("\n")
