"""`binlog-server backup`: a backup of a running server, over a connection. `binlog-server prepare`: a store of it.

BACKUP SERVER gives the bytes of files as rows (`binlog_server/sql/backup_sql.py`); here they become a directory, or a
tar on standard output, whose first and last file is the manifest: one that was cut off says that it is not whole.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import json
import os
import socket
import sys
import tarfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

from binlog_protocol.errors import ProtocolError, RemoteError, SqlSyntaxError
from binlog_protocol.gtid import BinlogState
from binlog_storage.backup.prepare import is_of_a_backup
from binlog_storage.backup.target import BackupTarget, require_empty
from binlog_storage.console.arguments import add_dry_run, add_json, amount_argument
from binlog_storage.console.output import counted, show_json, shown
from binlog_storage.console.progress import Progress
from binlog_storage.console.running import refused, unreachable
from binlog_storage.disk.disk import OsDisk
from binlog_storage.disk.local_path import (
    free_bytes,
    nearest_folder,
    path_argument,
)
from binlog_storage.disk.read_only_disk import ReadOnlyDisk
from binlog_storage.engine.backup import (
    BACKUP_NAME,
    COPYING,
    WHOLE,
    Manifest,
    Piece,
    read_manifest,
)
from binlog_storage.errors import BackupRefused, DiskFull, StorageError

from binlog_server.cli.servers import add_login_options, server_info
from binlog_server.relay.client_link import ClientLink
from binlog_server.settings import config as configuration
from binlog_server.settings.config import ConfigError
from binlog_server.store.store_directory import prepare_backup
from binlog_server.upstreams.client_tls import TlsFailed
from binlog_server.upstreams.master_info import MasterInfo
from binlog_server.upstreams.password import PasswordUnavailable

_EPILOG: Final = """
The server goes on: commits, replicas and the upstream wait for nothing. PURGE BINARY LOGS, FLUSH BINARY LOGS and RESET
MASTER wait until the backup is made. The account needs SUPER. A backup becomes a store by `binlog-server prepare DIR`.

examples:
  binlog-server backup --server mariadb://admin@db1:3306 --password-file pw --target /srv/backup --prepare
  binlog-server backup --server mariadb://admin@db1 --password-file pw --target - | zstd > backup.tar.zst
  binlog-server backup ... --target /srv/monday --incremental-basedir /srv/sunday
  binlog-server prepare /srv/sunday --incremental-dir /srv/monday
"""
TAR: Final = "-"
"""The target that is a tar on standard output."""
_TIMEOUT_S: Final = (
    600.0  # for a snapshot of large tables, and FLUSH or RESET MASTER in front of it
)
_CHUNK_BYTES: Final = 10 << 20  # of --throttle, as mariadb-backup's
_JSON_EVERY_S: Final = 1.0
_TAR_BLOCK: Final = 512
_SPARE_BYTES: Final = 1 << 30
_BYTES_MAX: Final = 1 << 50
_SHOWN_CHARS: Final = 80
_ZEROS: Final = bytes(1 << 20)


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser(
        "backup",
        help="make a backup of a running server",
        description="Make a backup of a running server: binlog, tables, accounts, upstreams, leases.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--server", required=True, metavar="mariadb://USER:PASSWORD@HOST:PORT", help="whose backup"
    )
    add_login_options(parser)
    parser.add_argument(
        "--target",
        required=True,
        type=_target_argument,
        metavar="DIR|-",
        help="an empty directory; -: a tar on standard output",
    )
    parser.add_argument(
        "--no-lock", action="store_true", help="PURGE, FLUSH and RESET MASTER do not wait for it"
    )
    parser.add_argument("--skip-binlog", action="store_true", help="tables and accounts alone")
    since = parser.add_mutually_exclusive_group()
    since.add_argument(
        "--incremental-basedir",
        type=path_argument,
        metavar="DIR",
        help="an earlier backup: only what came since, to be put onto it",
    )
    since.add_argument(
        "--incremental-since-gtid",
        metavar="GTIDS",
        help="binlog files from this position on: to be put onto a backup that has it",
    )
    parser.add_argument(
        "--throttle",
        type=amount_argument,
        default=0.0,
        metavar="N",
        help="chunks of 10 MB per second, at most",
    )
    add_dry_run(parser)
    add_json(parser, "one JSON object; and progress as lines of JSON on standard error")
    parser.add_argument("--prepare", action="store_true", help="prepare it at once")
    _add_config(parser)
    parser.set_defaults(run=run, makes="target")
    _add_prepare(commands)


def _target_argument(text: str) -> Path | str:
    return text if text == TAR else path_argument(text)


def _add_prepare(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser(
        "prepare",
        help="make a store of a backup",
        description="Make a store of a backup: the redo log is applied, and what lies behind its point is cut off.",
    )
    parser.add_argument("directory", type=path_argument, metavar="DIR", help="the backup")
    parser.add_argument(
        "--incremental-dir", type=path_argument, metavar="DIR", help="put this later one onto it"
    )
    parser.add_argument(
        "--skip-binlog",
        action="store_true",
        help="as it was given to backup: the binlog begins there",
    )
    _add_config(parser)
    add_dry_run(parser)
    add_json(parser)
    parser.set_defaults(run=run_prepare, makes="directory")


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config",
        type=path_argument,
        metavar="FILE.toml",
        help="of the server that opens it: sizes",
    )


def run_prepare(arguments: argparse.Namespace) -> int:
    """Run the command. Returns the exit code. Raises `ConfigError`, `StorageError`."""
    directory = arguments.directory
    manifest = _prepare(
        directory,
        arguments,
        arguments.skip_binlog,
        arguments.incremental_dir,
        dry_run=arguments.dry_run,
    )
    position = _position(manifest)
    if arguments.json:
        told = {"directory": str(directory), "position": position}
        show_json({**told, "dry_run": arguments.dry_run})
    else:
        becomes = "would become" if arguments.dry_run else "is"
        print(f"{directory} {becomes} a store at GTID position '{position}'")
    return 0


def _prepare(
    directory: Path,
    arguments: argparse.Namespace,
    skip_binlog: bool,
    incremental: Path | None,
    *,
    dry_run: bool = False,
) -> Manifest:
    config = configuration.load(arguments.config, {"binlog_directory": str(directory)})
    with Progress("prepare") as progress:
        return prepare_backup(
            config,
            skip_binlog=skip_binlog,
            incremental=incremental,
            progress=lambda what: progress.show(0, 0, lambda: what),
            dry_run=dry_run,
        )


def _position(manifest: Manifest) -> str:
    return str(BinlogState.parse(manifest.state).position())


def run(arguments: argparse.Namespace) -> int:
    """Run the command. Returns the exit code. Raises `ConfigError`, `StorageError`, `OSError`."""
    to_tar = arguments.target == TAR
    if to_tar and arguments.prepare:
        raise ConfigError("--prepare needs a directory: a tar is prepared where it is unpacked")
    statement, info = _statement(arguments), server_info(arguments.server, arguments, "--server")
    if arguments.dry_run:
        return _dry_run(arguments, info, statement)
    progress = _Progress(as_json=arguments.json)
    try:
        copied = asyncio.run(_copied(arguments, info, statement, progress))
    except OutputFailed as failed:
        raise failed.error from None
    told = {
        "files": len(copied.sizes),
        "bytes": progress.done,
        "position": _position(copied),
        "notes": list(copied.notes),
        "seconds": round(progress.seconds, 3),
        "prepared": arguments.prepare,
    }
    # Of a tar standard output has the tar.
    with contextlib.redirect_stdout(sys.stderr if to_tar else sys.stdout):
        if not arguments.json:
            for note in copied.notes:
                print(f"binlog-server: {shown(note)}", file=sys.stderr)
            print(
                f"{counted(len(copied.sizes), 'file')}, {progress.done / (1 << 20):.1f} MiB, "
                f"in {progress.seconds:.1f} s; GTID position '{told['position']}'"
            )
        if arguments.prepare:
            directory = arguments.target
            try:
                _prepare(directory, arguments, arguments.skip_binlog, None)
            except StorageError as error:
                raise BackupRefused(
                    f"{error}; the backup is whole, and `binlog-server prepare {directory}` goes on with it"
                ) from error
            if not arguments.json:
                print(f"{directory} is a store")
        if arguments.json:
            show_json(told)
    return 0


def _dry_run(arguments: argparse.Namespace, info: MasterInfo, statement: str) -> int:
    """Begin a backup at the server, and take none of its files: it may be asked for, and the target is empty."""
    target = arguments.target if isinstance(arguments.target, Path) else None
    if target is not None and target.exists():
        require_empty(ReadOnlyDisk(target), str(target))

    async def first(link: ClientLink) -> Manifest:
        async for row in link.rows(statement):
            piece = _piece(row, "")
            if piece.name == BACKUP_NAME:
                return Manifest.parse(piece.data)
        raise ProtocolError("the server has sent no manifest")

    manifest = asyncio.run(_asked(info, first))
    room = None if target is None else free_bytes(nearest_folder(target))
    told = {"target": str(arguments.target), "bytes": manifest.bytes_total, "free": room}
    if arguments.json:
        show_json({**told, "position": _position(manifest), "dry_run": True})
        return 0
    size = f"about {manifest.bytes_total / (1 << 20):.1f} MiB would be copied to {arguments.target}"
    if room is not None:
        size += f", which has room for {room / (1 << 20):.1f} MiB"
    print(f"{size}; GTID position '{_position(manifest)}'")
    return 0


def _statement(arguments: argparse.Namespace) -> str:
    words = ["BACKUP SERVER"]
    words += ["NO_LOCK"] * arguments.no_lock + ["SKIP_BINLOG"] * arguments.skip_binlog
    if arguments.skip_binlog and (
        arguments.incremental_basedir or arguments.incremental_since_gtid
    ):
        raise ConfigError("--skip-binlog leaves nothing that could be incremental")
    if arguments.incremental_since_gtid is not None:
        words.append(f"SINCE GTID {_quoted(arguments.incremental_since_gtid)}")
    if arguments.incremental_basedir is not None:
        base = read_manifest(ReadOnlyDisk(arguments.incremental_basedir))
        if base is None or base.stage == COPYING or base.end is None:
            raise BackupRefused(
                f"{arguments.incremental_basedir} is no backup that another one can go on from: it is not whole, was "
                "made with --skip-binlog, or a server has opened it. Give a whole one, prepared or not"
            )
        words.append(f"SINCE {_quoted(json.dumps(dataclasses.asdict(base.end)))}")
    return " ".join(words)


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


class _Target(Protocol):
    def begin(self, manifest: Manifest) -> None: ...
    def take(self, piece: Piece) -> None: ...
    def finish(self, manifest: Manifest) -> Manifest: ...
    def discard(self) -> None: ...
    def close(self) -> None: ...


def _target(path: Path | str) -> _Target:
    if isinstance(path, str):
        return _Tar(sys.stdout.buffer)
    if path.exists():
        return BackupTarget(OsDisk(path), str(path))
    return _NewTarget(path)


class _NewTarget:
    """A directory that is made when the backup begins: a server that refuses leaves nothing behind."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._made: BackupTarget | None = None

    @property
    def _target(self) -> BackupTarget:
        if self._made is None:
            self._made = BackupTarget(OsDisk(self._path), str(self._path))
        return self._made

    def begin(self, manifest: Manifest) -> None:
        self._target.begin(manifest)

    def take(self, piece: Piece) -> None:
        self._target.take(piece)

    def finish(self, manifest: Manifest) -> Manifest:
        return self._target.finish(manifest)

    def discard(self) -> None:
        if self._made is not None:
            self._made.discard()
            with contextlib.suppress(OSError):
                self._path.rmdir()

    def close(self) -> None:
        if self._made is not None:
            self._made.close()


async def _copied(
    arguments: argparse.Namespace, info: MasterInfo, statement: str, progress: _Progress
) -> Manifest:
    """Make the copy. Returns the manifest of what is whole now. Raises `BackupRefused`, `ConnectionError`."""
    target = _target(arguments.target)
    try:
        return await _asked(
            info,
            lambda link: _take(link.rows(statement), target, progress, arguments.throttle),
        )
    except DiskFull as error:
        target.discard()
        size, total = progress.done / (1 << 20), progress.total / (1 << 20)
        raise DiskFull(f"{error}, behind {size:.1f} MiB of about {total:.1f} MiB") from error
    except BaseException:
        target.discard()
        raise
    finally:
        progress.end()
        target.close()


async def _asked(
    info: MasterInfo, what: Callable[[ClientLink], Coroutine[Any, Any, Manifest]]
) -> Manifest:
    """The result over a connection of its own. Raises `BackupRefused`, `ConnectionError`."""
    try:
        link = await ClientLink.connect(
            info.host, info.port, info.user, info.password.read(), _TIMEOUT_S, info.tls
        )
        try:
            await link.log_in()
            return await what(link)
        finally:
            link.close()
    except RemoteError as error:
        said = refused(error)
        if error.errno == SqlSyntaxError("").errno:
            said += "; it is no binlog-server (mariadb-backup makes backups of a MariaDB)"
        raise BackupRefused(f"{info.address}: {said}") from None
    except (ProtocolError, PasswordUnavailable, TlsFailed) as error:
        raise BackupRefused(f"{info.address}: {error}") from None
    except (ConnectionError, TimeoutError, socket.gaierror) as error:
        raise BackupRefused(f"{info.address}: {unreachable(error)}") from None


async def _take(
    rows: AsyncIterator[list[bytes | None]], target: _Target, progress: _Progress, chunks: float
) -> Manifest:
    began = time.monotonic()
    whole: Manifest | None = None
    log_bin = ""
    has_begun = False
    order = _Order()
    async for row in rows:
        piece = _piece(row, log_bin)
        if piece.name == BACKUP_NAME:
            manifest = Manifest.parse(piece.data)
            if manifest.stage == WHOLE:
                whole = manifest
            else:
                progress.total, log_bin = manifest.bytes_total, manifest.log_bin
                order.expect(manifest.bytes_total)
                target.begin(manifest)
                has_begun = True
            continue
        if not has_begun or whole is not None:
            raise ProtocolError(
                f"this is no row of BACKUP SERVER: {piece.name} outside of a backup"
            )
        order.add(piece)
        target.take(piece)
        progress.took(piece)
        if chunks:
            due = progress.done / (chunks * _CHUNK_BYTES) - (time.monotonic() - began)
            if due > 0:
                await asyncio.sleep(due)
    progress.ended()
    if whole is None:
        raise BackupRefused("the server has sent a part of it only: make another one")
    return target.finish(whole)


def _piece(row: list[bytes | None], log_bin: str) -> Piece:
    """A row of BACKUP SERVER. Raises `ProtocolError`: its names become names of files.

    log_bin: the base name of traditional binlog files.
    """
    try:
        name, size, offset, data = row
        if name is None or size is None or offset is None or data is None:
            raise ValueError("NULL")
        text = os.fsdecode(name)
        if not is_of_a_backup(text, log_bin):
            raise ValueError(ascii(text)[:_SHOWN_CHARS])
        piece = Piece(text, int(size), int(offset), data)
    except ValueError as error:
        raise ProtocolError(f"this is no row of BACKUP SERVER: {error}") from None
    if not 0 <= piece.offset <= piece.offset + len(data) <= piece.size < 1 << 63:
        raise ProtocolError(
            f"this is no row of BACKUP SERVER: bytes {piece.offset} to {piece.offset + len(data)} of {text}, which has "
            f"{piece.size}"
        )
    return piece


class _Order:
    """The pieces of a file come together, and in order: of a tar nothing can be taken back.

    All files together have about as many bytes as was said at first: one piece at the end of a file of 4 EiB would have
    that many zeros in front of it in a tar.
    """

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._name = ""
        self._size = self._end = self._room = 0

    def expect(self, total: int) -> None:
        """So many bytes are to come, about."""
        self._room = min(2 * total + _SPARE_BYTES, _BYTES_MAX)

    def add(self, piece: Piece) -> None:
        """Raises `ProtocolError`."""
        if piece.name != self._name:
            if piece.name in self._seen:
                raise ProtocolError(f"this is no row of BACKUP SERVER: {piece.name} comes again")
            self._seen.add(piece.name)
            self._name, self._size, self._end = piece.name, piece.size, 0
            self._room -= piece.size
            if self._room < 0:
                raise ProtocolError(
                    f"this is no row of BACKUP SERVER: with the {piece.size} bytes of {piece.name} it is far more than "
                    "was to come"
                )
        if piece.size != self._size or piece.offset < self._end:
            raise ProtocolError(f"this is no row of BACKUP SERVER: {piece.name} is not in order")
        self._end = piece.offset + len(piece.data)


class _Progress:
    """Tells on standard error how far it is: a line that changes, or lines of JSON."""

    def __init__(self, *, as_json: bool) -> None:
        self._line = Progress("backup")
        self._as_json = as_json
        self._told_at = 0.0
        self.total = 0
        self._name = ""
        self._size = self._at = self._before = 0

    @property
    def seconds(self) -> float:
        return self._line.seconds

    @property
    def done(self) -> int:
        """Bytes that are there, with the zeros between those that were sent."""
        return self._before + self._at

    def took(self, piece: Piece) -> None:
        if piece.name != self._name:
            self._before += self._size
            self._name, self._size = piece.name, piece.size
        self._at = piece.offset + len(piece.data)
        if not self._as_json:
            total = max(self.total, self.done)
            self._line.show(self.done, total, lambda: f"of {total >> 20} MiB, {piece.name}")
        elif time.monotonic() - self._told_at >= _JSON_EVERY_S:
            self._told_at = time.monotonic()
            self._tell(piece.name)

    def ended(self) -> None:
        """The last file has come."""
        self._at = self._size

    def _tell(self, name: str) -> None:
        told = {"bytes": self.done, "total": self.total, "seconds": round(self.seconds, 1)}
        print(json.dumps({**told, "file": name}), file=sys.stderr, flush=True)

    def end(self) -> None:
        """All has come, or no more does."""
        self._line.end()
        if self._as_json:
            self._tell("")


class OutputFailed(Exception):
    """Standard output cannot be written: an `OSError`, and none of the connection to the server."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


@contextlib.contextmanager
def _output() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputFailed(error) from None


class _Tar:
    """A tar, as it is written. The manifest is its first file, and its last one, which takes the place of the first."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._name = ""
        self._size = self._at = 0
        self._sizes: dict[str, int] = {}

    def begin(self, manifest: Manifest) -> None:
        self._put(BACKUP_NAME, manifest.at(COPYING).build())

    def take(self, piece: Piece) -> None:
        if piece.name != self._name:
            self._end_file()
            self._head(piece.name, piece.size)
            self._sizes[piece.name] = piece.size
        self._zeros(piece.offset - self._at)
        self._write(piece.data)

    def finish(self, manifest: Manifest) -> Manifest:
        self._end_file()
        whole = dataclasses.replace(manifest, sizes=self._sizes)
        self._put(BACKUP_NAME, whole.build())
        with _output():
            self._out.write(bytes(2 * _TAR_BLOCK))
            self._out.flush()
        return whole

    def discard(self) -> None:
        """Nothing: what was written is not whole, which its end does not say."""

    def close(self) -> None:
        """Nothing: standard output is not ours."""

    def _put(self, name: str, data: bytes) -> None:
        self._head(name, len(data))
        self._write(data)
        self._end_file()

    def _head(self, name: str, size: int) -> None:
        head = tarfile.TarInfo(name)
        head.size, head.mode, head.mtime = size, 0o640, int(time.time())
        with _output():
            self._out.write(head.tobuf(tarfile.GNU_FORMAT))
        self._name, self._size, self._at = name, size, 0

    def _write(self, data: bytes) -> None:
        with _output():
            self._out.write(data)
        self._at += len(data)

    def _zeros(self, count: int) -> None:
        while count > 0:
            part = min(count, len(_ZEROS))
            self._write(_ZEROS[:part])
            count -= part

    def _end_file(self) -> None:
        if self._name:
            self._zeros(self._size - self._at)
            with _output():
                self._out.write(bytes(-self._size % _TAR_BLOCK))
            self._name = ""
