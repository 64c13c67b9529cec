"""Which MariaDB servers the tests run on. docs/testing.md has the options in words."""

from __future__ import annotations

import functools
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import pytest

from binlog_server.testing import containers
from binlog_server.testing.found import install_of
from binlog_server.testing.local import LocalMariaDB
from binlog_server.testing.mariadb import MariaDB

VERSIONS = ("10.11", "11.8")
VERSIONS_BY_TURNS = [pytest.param(version, marks=pytest.mark.by_turns(2)) for version in VERSIONS]
"""As the values of a parameter: one of them, by the seed; both in the slow suite."""
KINDS = ("local", "docker", "official")
_ORDINARY = tuple(f"{kind}:{version}" for kind in ("local", "docker") for version in VERSIONS)


@dataclass(frozen=True)
class Backend:
    kind: str
    """local: mariadbd of this machine. docker: our images. official: the `mariadb` images."""
    version: str
    """Such as 11.8."""

    def __str__(self) -> str:
        return f"{self.kind}:{self.version}"

    @staticmethod
    def parse(text: str) -> Backend:
        kind, _, version = text.partition(":")
        if kind not in KINDS or not version:
            raise pytest.UsageError(f"no such backend: {text!r} (kind:version, kind of {KINDS})")
        return Backend(kind, version)

    def why_not(self) -> str | None:
        """None if it can be used, else the reason."""
        return _why_not(self)

    def require(self) -> None:
        """Skips the test if the backend is not here, or fails it where it must be."""
        if reason := self.why_not():
            _missing(f"{self}: {reason} (make test sets it up)", required=self in required())

    def new(self, name: str, flags: Sequence[str] = (), server_id: int | None = None) -> MariaDB:
        """A server that is not started yet; `name` is what its log is printed under."""
        name = f"{self.kind}-{self.version}-{name}"
        if self.kind == "local":
            install = install_of(self.version)
            assert install is not None
            return LocalMariaDB(install, name, server_id, flags)
        return containers.DockerMariaDB(
            containers.image(self.kind, self.version), name, server_id, flags
        )


def _missing(reason: str, *, required: bool) -> NoReturn:
    if required:
        pytest.fail(f"required, but missing: {reason}", pytrace=False)
    pytest.skip(reason)


@functools.cache
def _why_not(backend: Backend) -> str | None:
    if backend.kind == "local":
        return None if install_of(backend.version) else f"no mariadbd {backend.version} here"
    return containers.why_no_image(containers.image(backend.kind, backend.version))


def _listed(variable: str) -> list[str]:
    return [word for word in os.environ.get(variable, "").replace(" ", "").split(",") if word]


@functools.cache
def wanted() -> tuple[Backend, ...]:
    """What the tests are parametrised over. From the environment alone, so that all workers agree;
    what is missing is found when a test asks for it."""
    known = [*_ORDINARY, *(f"official:{v}" for v in _listed("BINLOG_TEST_OFFICIAL_IMAGES"))]
    chosen = _listed("BINLOG_TEST_BACKENDS") or list(KINDS)
    names: list[str] = []
    for word in chosen:
        names += [n for n in known if word in (n, *n.split(":"))] if ":" not in word else [word]
    return tuple(Backend.parse(n) for n in dict.fromkeys(names))


def full_matrix() -> bool:
    """BINLOG_TEST_MATRIX=full: every test on every backend, as `make test-slow` does."""
    return os.environ.get("BINLOG_TEST_MATRIX") == "full"


def repeats() -> int:
    """BINLOG_TEST_REPEATS=n: of a slow test that is repeated by `number` with other seeds, one in n; 1 without it."""
    return int(os.environ.get("BINLOG_TEST_REPEATS") or 1)


def one_kind_each(chosen: Sequence[Backend], test: str) -> tuple[Backend, ...]:
    """Each version once; on this machine, but for a twelfth of them: a container holds the same programs, and costs
    several times as much to start. Which ones is the tests' luck, but always the same: over all tests each kind gets
    its share of each version."""
    luck = zlib.crc32(test.encode())
    by_version: dict[str, list[Backend]] = {}
    for backend in sorted(chosen, key=lambda b: KINDS.index(b.kind)):
        by_version.setdefault(backend.version, []).append(backend)
    in_container = luck % (6 * len(by_version)) if by_version else 0
    return tuple(
        kinds[1 + luck // 7 % (len(kinds) - 1)]
        if number == in_container and len(kinds) > 1
        else kinds[0]
        for number, kinds in enumerate(by_version.values())
    )


def one(chosen: Sequence[Backend], test: str) -> tuple[Backend, ...]:
    """Any of them, always the same for a test."""
    return (chosen[zlib.crc32(test.encode()) // 77 % len(chosen)],) if chosen else ()


@functools.cache
def required() -> frozenset[Backend]:
    """What must be there: by BINLOG_TEST_REQUIRE, or in CI everything that is wanted."""
    if "BINLOG_TEST_REQUIRE" in os.environ:
        return frozenset(Backend.parse(n) for n in _listed("BINLOG_TEST_REQUIRE"))
    return frozenset(wanted()) if os.environ.get("CI") == "true" else frozenset()


def pick(version: str | None = None, like: Backend | None = None) -> Backend:
    """A usable backend for a test's second server: of that version, and of the same kind as `like`
    if it can be. Skips (or fails) the test if there is none."""
    kind = like.kind if like else "local"
    candidates = sorted(
        (b for b in wanted() if version in (None, b.version)),
        key=lambda b: (b.kind != kind, KINDS.index(b.kind)),
    )
    for backend in candidates:
        if backend.why_not() is None:
            return backend
    reasons = "; ".join(f"{b}: {b.why_not()}" for b in candidates) or "not among the backends"
    _missing(
        f"MariaDB {version or 'of any version'}: {reasons}",
        required=any(b in required() for b in candidates),
    )
