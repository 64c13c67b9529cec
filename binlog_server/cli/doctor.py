"""`binlog-server doctor`: looks at all that a server needs, before it starts or while it runs, and changes nothing.

Configuration, certificate, disk, ports; and of each upstream whether it can be followed with what is configured: login,
rights, log_bin, server_id, the clock, and what rows say of their columns. `--error TEXT` explains a text instead.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import os
import socket
import time
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from binlog_protocol.errors import ProtocolError, RemoteError
from binlog_storage.console.arguments import add_json
from binlog_storage.console.output import show_json_line, shown
from binlog_storage.console.running import EXIT_FAILED, complain, unreachable
from binlog_storage.disk.local_path import (
    free_bytes,
    link_to_nothing,
    nearest_folder,
    no_directory,
    path_argument,
)
from binlog_storage.disk.read_only_disk import ReadOnlyDisk
from binlog_storage.engine.backup import require_prepared
from binlog_storage.errors import BackupRefused, DiskError, NoBinlogKey, NotAStore

from binlog_server.app.app import certificate_of, metrics_tls_of
from binlog_server.cli.troubles import about
from binlog_server.relay.client_link import ClientLink
from binlog_server.settings import config as configuration
from binlog_server.settings.config import Config, ConfigError, parse_listen
from binlog_server.store.store_directory import has_no_store
from binlog_server.upstreams.client_tls import TlsFailed
from binlog_server.upstreams.master_info import MasterInfo
from binlog_server.upstreams.password import PasswordUnavailable

OK, WARNING, ERROR = "ok", "warning", "error"
_TIMEOUT_S: Final = 10.0
_CLOCK_S: Final = 2.0
_DAY_S: Final = 86_400
_CERTIFICATE_DAYS: Final = 14
_MAY_REPLICATE: Final = ("REPLICATION SLAVE", "REPLICATION REPLICA", "ALL PRIVILEGES")
_ASKED: Final = (
    *("log_bin", "server_id", "binlog_format", "binlog_row_metadata", "binlog_row_image"),
    "version",
)


class Diagnosis(NamedTuple):
    """One line of the answer."""

    level: str
    about: str
    text: str


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser(
        "doctor",
        help="look at configuration, disk, ports, certificate and upstreams; explain an error",
        description="Look at all that a server needs. Changes nothing; a server may run meanwhile.",
    )
    parser.add_argument(
        "--config", type=path_argument, metavar="FILE.toml", help="options of the server"
    )
    parser.add_argument("--directory", dest="binlog_directory", help="the binlog store")
    for name in ("--listen", "--metrics-listen"):
        parser.add_argument(name, metavar="HOST:PORT", help="as it will be given to serve")
    parser.add_argument(
        "--error", metavar="TEXT", help="of a replica or of the log: its cause, and what to do"
    )
    add_json(parser, "a line with an object for each thing that was looked at, or for each cause")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command. Returns the exit code: 1 where something is wrong. Raises `ConfigError`."""
    if arguments.error is not None:
        return _explain(arguments.error, as_json=arguments.json)
    given = ("binlog_directory", "listen", "metrics_listen")
    overrides = {name: getattr(arguments, name) for name in given}
    config = configuration.load(arguments.config, overrides, os.environ)
    found = [*_of_the_machine(config), *asyncio.run(_of_the_upstreams(config))]
    for one in found:
        remedies = [trouble.remedy for trouble in about(one.text)] if one.level == ERROR else []
        if arguments.json:
            show_json_line({**one._asdict(), "remedies": remedies})
            continue
        print(f"{one.level:8} {one.about}: {shown(one.text)}")
        for remedy in remedies:
            print(f"{'':8} {remedy}")
    return int(any(one.level == ERROR for one in found))


def _explain(text: str, *, as_json: bool) -> int:
    found = about(text)
    for one in found:
        if as_json:
            show_json_line({"error": one.shown, "cause": one.cause, "remedy": one.remedy})
        else:
            print(f"{one.shown}\n  {one.cause}\n  {one.remedy}")
    if not found:
        text = "this text is not known here; docs/troubleshooting.md has those that are"
        return complain("binlog-server", text, EXIT_FAILED)
    return 0


def _of_the_machine(config: Config) -> Iterator[Diagnosis]:
    doubts = configuration.doubts(config)
    yield from (Diagnosis(WARNING, "configuration", doubt) for doubt in doubts)
    if not doubts:
        yield Diagnosis(OK, "configuration", "nothing is strange in it")
    yield from _certificate(config)
    try:
        config.binlog_keys()
    except NoBinlogKey as error:
        yield Diagnosis(ERROR, "encryption", str(error))
    yield from _disk(config)
    places = {"listen": (config.listen_host, config.listen_port)}
    if config.metrics_listen:
        places["metrics_listen"] = parse_listen(config.metrics_listen, "metrics_listen")
    for name, place in places.items():
        yield _port(name, *place)


def _certificate(config: Config) -> Iterator[Diagnosis]:
    if not config.ssl:
        yield Diagnosis(WARNING, "TLS", "it is off: replicas of 11.4 and newer need MASTER_SSL=0")
        return
    try:
        made = certificate_of(config)
        metrics_tls_of(config)
    except ConfigError as error:
        yield Diagnosis(ERROR, "TLS", str(error))
        return
    days = (made.expires - time.time()) / _DAY_S
    if made.self_signed:
        yield Diagnosis(OK, "TLS", "a certificate is made at each start")
    elif made.doubt():
        yield Diagnosis(ERROR, "TLS", f"the certificate {config.ssl_cert} is not valid now")
    else:
        level = WARNING if days < _CERTIFICATE_DAYS else OK
        yield Diagnosis(level, "TLS", f"the certificate expires in {days:.0f} days")


def _disk(config: Config) -> Iterator[Diagnosis]:
    directory = config.binlog_directory
    there = nearest_folder(directory)
    what = str(directory)
    if not there.is_dir() or link_to_nothing(directory) is not None:
        yield Diagnosis(ERROR, what, no_directory(directory if there.is_dir() else there))
        return
    if not os.access(there, os.W_OK | os.X_OK):
        yield Diagnosis(ERROR, what, f"{there} cannot be written by this user")
    try:
        if not has_no_store(directory):
            require_prepared(ReadOnlyDisk(directory), directory)
    except (NotAStore, BackupRefused, DiskError) as error:
        yield Diagnosis(ERROR, what, str(error))
    free, needed = free_bytes(there), 2 * config.max_binlog_size
    text = f"{free >> 20} MiB are free, two files have {needed >> 20} MiB"
    yield Diagnosis(WARNING if free < needed else OK, what, text)


def _port(name: str, host: str, port: int) -> Diagnosis:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind((host, port))
    except OSError as error:
        text = f"{host}:{port}: {error.strerror or error}"
        if (
            error.errno != errno.EADDRINUSE
        ):  # a name or an address that this machine does not have, a port below 1024
            return Diagnosis(ERROR, name, text)
        return Diagnosis(
            WARNING, name, f"{text}. If this server runs already, that is as it should be"
        )
    return Diagnosis(OK, name, f"{host}:{port} is free")


async def _of_the_upstreams(config: Config) -> list[Diagnosis]:
    found: list[Diagnosis] = []
    if not config.upstream:
        text = "the configuration names none; of one that CHANGE MASTER has made SHOW SLAVE STATUS tells"
        found.append(Diagnosis(OK, "upstreams", text))
    for name, info in config.upstream.items():
        what = f"upstream {name} {info.address}".replace("  ", " ")
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                found += [
                    Diagnosis(level, what, text) for level, text in await _upstream(config, info)
                ]
        except TimeoutError:
            found.append(Diagnosis(ERROR, what, f"it does not answer within {_TIMEOUT_S:.0f} s"))
        except (RemoteError, ProtocolError, PasswordUnavailable, TlsFailed) as error:
            found.append(Diagnosis(ERROR, what, str(error)))
        except OSError as error:
            found.append(Diagnosis(ERROR, what, unreachable(error)))
    return found


async def _upstream(config: Config, info: MasterInfo) -> list[tuple[str, str]]:
    password = await asyncio.to_thread(info.password.read)
    link = await ClientLink.connect(info.host, info.port, info.user, password, _TIMEOUT_S, info.tls)
    try:
        await link.log_in()
        ((now,),) = await link.query("SELECT UNIX_TIMESTAMP()")
        rows = await link.query("SHOW GLOBAL VARIABLES")
        grants = [str(row[0]) for row in await link.query("SHOW GRANTS")]
    finally:
        link.close()
    known = {str(row[0]).lower(): str(row[1]) for row in rows}
    values = {asked: known.get(asked, "") for asked in _ASKED}
    apart_s = abs(time.time() - float(now or 0))
    return list(judged(config, values, grants, apart_s))


def judged(
    config: Config, values: dict[str, str], grants: list[str], apart_s: float
) -> Iterator[tuple[str, str]]:
    """What is to be said of an upstream with these variables.

    Args:
        grants: the rows of SHOW GRANTS.
        apart_s: how many seconds its clock and ours are apart.
    """
    yield OK, f"MariaDB {values['version']} answers"
    if values["log_bin"].upper() not in ("ON", "1"):
        yield ERROR, "it has no binlog: set log_bin there, and restart it"
    if values["server_id"] == str(config.server_id):
        yield ERROR, f"it has our server_id, {config.server_id}: each server needs its own"
    if not any(name in grant.upper() for grant in grants for name in _MAY_REPLICATE):
        yield ERROR, "the account may not replicate: GRANT REPLICATION SLAVE ON *.* there"
    if values["binlog_format"].upper() == "STATEMENT":
        yield WARNING, "binlog_format=STATEMENT: replicas are served; exports of rows see none"
    if values["binlog_row_metadata"].upper() not in ("FULL", ""):
        text = "exports cannot tell names of columns by the binlog alone: set it to FULL there"
        yield WARNING, f"binlog_row_metadata={values['binlog_row_metadata']}: {text}"
    if values["binlog_row_image"].upper() not in ("FULL", "FULL_NODUP", ""):
        text = "rows before and after a change are not whole"
        yield WARNING, f"binlog_row_image={values['binlog_row_image']}: {text}"
    if apart_s > _CLOCK_S:
        yield WARNING, f"its clock and ours are {apart_s:.0f} s apart: lag is told wrong by that"
