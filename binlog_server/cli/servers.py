"""Servers as arguments of commands: `mariadb://USER:PASSWORD@HOST:PORT`, and what logging in there needs."""

from __future__ import annotations

import argparse
import dataclasses
import re
from collections.abc import Sequence
from typing import Final

from binlog_protocol.compiled_later import compiled_later
from binlog_storage.archive.places import Where, archive_argument
from binlog_storage.disk.local_path import path_argument

from binlog_server.settings.config import ConfigError
from binlog_server.upstreams.master_info import MasterInfo
from binlog_server.upstreams.password import Password

_SERVER: Final = compiled_later(r"(?:mariadb|mysql)://", re.I)


def add_login_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how to log in."""
    parser.add_argument(
        "--password-file", type=path_argument, metavar="FILE", help="its first line is the password"
    )
    parser.add_argument("--ssl-ca", default="", metavar="FILE", help="authorities of the server")
    parser.add_argument(
        "--skip-ssl-verify-server-cert", action="store_true", help="any certificate will do"
    )


def is_server(where: Where) -> bool:
    """Whether it names a server, and no directory or archive."""
    return isinstance(where, str) and _SERVER.match(where) is not None


def sole_server(paths: Sequence[Where]) -> str | None:
    """The server that is given; None if files are. Raises `ConfigError` if there is anything beside it."""
    server = next((path for path in paths if is_server(path)), None)
    if server is None:
        return None
    if len(paths) > 1:
        raise ConfigError("a server stands alone: nothing can be looked through beside it")
    return str(server)


def history_argument(text: str) -> Where:
    """A directory, binlog files, an archive, or a server: the type of an argument."""
    return text if is_server(text) else archive_argument(text)


def server_info(url: str, arguments: argparse.Namespace, option: str = "") -> MasterInfo:
    """The server of a URL, by the login options. `option`: the name of the one that has the URL.

    Raises `ConfigError`.
    """
    try:
        info = MasterInfo.from_url(url)
    except ValueError as error:
        raise ConfigError(f"{option}: {error}" if option else str(error)) from None
    password = info.password
    if arguments.password_file is not None:
        password = Password(file=str(arguments.password_file))
    return dataclasses.replace(
        info,
        password=password,
        ssl_ca=arguments.ssl_ca,
        ssl_verify_server_cert=not arguments.skip_ssl_verify_server_cert,
    )


def address_of(where: Where) -> str:
    """The place for people: of a server without its account."""
    return re.sub(r"(?<=://).*@", "", str(where)) if is_server(where) else str(where)
