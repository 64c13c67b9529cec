"""The MariaDB servers that this machine has for tests."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path

from binlog_server.testing import containers
from binlog_server.testing.install import Install, homes
from binlog_server.testing.local import LocalMariaDB
from binlog_server.testing.mariadb import MariaDB

_TREE = "mariadb-"


class NoMariaDB(Exception):
    """There is none of that version here; the text says what was looked for, and how to get one."""


@functools.cache
def install_of(version: str | None = None) -> Install | None:
    """The mariadbd of the system, or of an unpacked tree; of that version (`11.8`), if one is wanted."""
    trees = (Install.tree(folder) for home in homes() for folder in _trees(home, version))
    candidates = (Install.system(), *trees)
    return next((i for i in candidates if i and version in (None, i.version)), None)


def _trees(home: Path, version: str | None) -> list[Path]:
    return sorted(home.glob(f"{_TREE}{version or '*'}"), reverse=True)


def new_mariadb(
    *flags: str, version: str | None = None, server_id: int | None = None, name: str = "replica"
) -> MariaDB:
    """A server that is not started yet: of this machine, or else a container of the official image, or of ours.

    flags: of mariadbd. Raises `NoMariaDB`.
    """
    install = install_of(version)
    if install is not None:
        return LocalMariaDB(install, f"{name}-{install.version}", server_id, flags)
    wanted = version or containers.VERSION
    reasons = []
    for kind in ("official", "docker"):
        image = containers.image(kind, wanted)
        reason = containers.why_no_image(image)
        if reason is None:
            return containers.DockerMariaDB(image, f"{name}-{wanted}", server_id, flags)
        reasons.append(reason)
    raise NoMariaDB(
        f"no MariaDB {version or 'of any version'} here: no mariadbd is installed (Debian, Ubuntu: apt install "
        f"mariadb-server-core), and {'; '.join(dict.fromkeys(reasons))} (docker pull mariadb:{wanted})"
    )


@contextlib.contextmanager
def running_replica(
    *flags: str, version: str | None = None, server_id: int | None = None
) -> Iterator[MariaDB]:
    """A real MariaDB on an empty data directory, until the end of the block; see `MariaDB.follow`.

    flags: of mariadbd, such as "--slave-parallel-threads=4". Raises `NoMariaDB`.
    """
    replica = new_mariadb(*flags, version=version, server_id=server_id)
    try:
        yield replica.start()
    finally:
        replica.discard()
