"""What a test can ask for. A test that names `backend` runs on every backend.

    def test_follows(backend, make_upstream, make_replica):
        upstream = make_upstream()
        replica = make_replica().follow(upstream)

Whatever a factory made is discarded after the test; if the test failed, its log is in the report,
and whole in the file that the report names.
"""

from __future__ import annotations

import contextlib
import gc
import os
import random
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from binlog_server.pytest_plugin import Logged, servers_of
from binlog_server.testing import containers, rundir, without_collecting
from binlog_server.testing.mariadb import UPSTREAM, MariaDB
from binlog_server.testing.waiting import until
from tests.kit import backends, mounts, turns, unit
from tests.kit.backends import Backend
from tests.kit.bad_disk import FailingDisk, SmallDisk, ThinDisk
from tests.kit.chaosproxy import ChaosProxy
from tests.kit.cut_disk import CutDisk
from tests.kit.server import BinlogServer

# Before the first import of testcontainers, which reads them then. Its reaper is an image of its
# own that may not be there to pull; `remove_leftovers` does its work. And it takes a machine that
# has a /.dockerenv for a container, whose loopback would not be ours.
os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")
os.environ.setdefault("TESTCONTAINERS_CONNECTION_MODE", "docker_host")

SEED = "BINLOG_TEST_SEED"


class Closed(Protocol):
    def close(self) -> None: ...


class MakeMariaDB(Protocol):
    def __call__(
        self,
        *flags: str,
        backend: Backend | None = None,
        version: str | None = None,
        server_id: int | None = None,
        start: bool = True,
    ) -> MariaDB:
        """A fresh server with these flags. It runs on the test's backend; or on one of that
        `version`, of the same kind if possible; or, in a test without `backend`, on any."""


class MakeRelay(Protocol):
    def __call__(
        self,
        *flags: str,
        version: str | None = None,
        table: str = "d.t",
        kind: str = "VARCHAR(200)",
        **options: Any,
    ) -> tuple[MariaDB, BinlogServer]:
        """An upstream with these flags and, if one is named, the table of `MariaDB.make_table` with that `kind`; our
        server, which follows it, with these options."""


class MakeProxiedRelay(Protocol):
    def __call__(
        self, *flags: str, table: str = "d.t", **options: Any
    ) -> tuple[MariaDB, ChaosProxy, BinlogServer]:
        """As `MakeRelay`, with a network between the two."""


MakeBinlogServer = Callable[..., BinlogServer]
MakeProxy = Callable[..., ChaosProxy]
MakeCutDisk = Callable[..., CutDisk]
MakeSmallDisk = Callable[..., SmallDisk]
MakeThinDisk = Callable[..., ThinDisk]
MakeFailingDisk = Callable[..., FailingDisk]

_FAILED = pytest.StashKey[bool]()
_CLOSED_S = 30.0  # they do it at once, and a machine may be busy


# -- the run ---------------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    # Set before the workers start, so that they inherit it. Hypothesis reads its option after us.
    seed = os.environ.setdefault(SEED, str(random.SystemRandom().randrange(1 << 32)))
    if getattr(config.option, "hypothesis_seed", "absent") is None:
        config.option.hypothesis_seed = seed
    rundir.keep_bytecode()
    # Where tmp_path is: thousands of stores are made there, and each of their syncs would wait for a disk.
    # No folder more than needed: servers have their sockets there, and a path of one has 107 characters at most.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(rundir.base().parent))
    if (
        only_units(config)
        and not config.option.basetemp
        and "PYTEST_XDIST_WORKER" not in os.environ
    ):
        # Of thousands of small stores; what a disk of a real machine does to them is asked elsewhere.
        config.option.basetemp = str(rundir.run_dir() / "unit")  # short: there are sockets below


def only_units(config: pytest.Config) -> bool:
    """Whether `make test-unit` runs."""
    return bool(config.getoption("markexpr") == "unit")


def pytest_report_header(config: pytest.Config) -> list[str]:
    names = ", ".join(map(str, backends.wanted()))
    return [f"seed: {SEED}={os.environ[SEED]}", f"MariaDB backends: {names or 'none'}"]


def pytest_sessionstart(session: pytest.Session) -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ and not session.config.option.collectonly:
        rundir.remove_leftovers(mounts.unmount_below)
        containers.remove_leftovers()


def pytest_sessionfinish(session: pytest.Session) -> None:
    rundir.remove_own(mounts.unmount_below)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "backend" in metafunc.fixturenames:
        chosen = backends.wanted()
        test = metafunc.definition
        any_version = test.get_closest_marker("any_version") is not None
        if (any_version or test.get_closest_marker("each_version")) and not backends.full_matrix():
            chosen = backends.one_kind_each(chosen, test.nodeid)
            if any_version:
                chosen = backends.one(chosen, test.nodeid)
        metafunc.parametrize("backend", chosen, ids=str, indirect=True)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """To read all tests takes as long as to run the unit tests: a stage reads those that may be its own."""
    if collection_path.suffix != ".py":
        return None
    if only_units(config):
        return None if unit.may_have_units(collection_path) else True
    if config.getoption("markexpr").startswith("not unit and "):
        return True if unit.has_units_alone(collection_path) else None
    return None


def leave_slow_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`slow` tests run where `-m` chooses tests, and who names one gets it."""
    if takes_all(config) or config.getoption("markexpr"):
        return
    slow = [item for item in items if item.get_closest_marker("slow") is not None]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in set(slow)]


def takes_all(config: pytest.Config) -> bool:
    """Whether no test is left out that was asked for."""
    return backends.full_matrix() or any("::" in argument for argument in config.args)


def turns_of(item: pytest.Item, *, all_taken: bool) -> int:
    """In how many runs a member of this family runs once."""
    if all_taken:
        is_repeat = "number" in getattr(getattr(item, "callspec", None), "params", ())
        is_slow = item.get_closest_marker("slow") is not None
        return backends.repeats() if is_slow and is_repeat else 1
    mark = item.get_closest_marker("by_turns")
    return mark.args[0] if mark else 1


def keep_those_in_turn(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of families marked `by_turns` the part whose turn it is (tests/kit/turns.py)."""
    all_taken = takes_all(config)
    if all_taken and backends.repeats() == 1:
        return
    families = [(item, turns_of(item, all_taken=all_taken)) for item in items]
    kept = turns.in_turn(families, os.environ[SEED])
    left = set(items).difference(kept)
    if left:
        config.hook.pytest_deselected(items=[item for item in items if item in left])
        items[:] = kept


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, None, None]:
    real = {"backend", "make_replica", "make_upstream", "make_mariadb_replica"}
    for item in items:
        if real & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.replica)
        if unit.is_unit(item):
            item.add_marker(pytest.mark.unit)
    if only_units(config):
        unit.require_units_alone(items)
    yield  # -m chooses here: what is left of a family takes turns
    leave_slow_out(config, items)
    keep_those_in_turn(config, items)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Tests are made by the ten thousand, and all of them stay: a collector of garbage would look in vain."""
    with without_collecting():
        return (yield)


def pytest_collection_finish() -> None:
    """The thousands of tests stay to the end: the collector of garbage need not walk through them again and again."""
    gc.collect()
    gc.freeze()


# Hooks where a fixture of each test would do: ten thousand times a fixture is several seconds.


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A unit test fails if it starts a process or connects to another machine."""
    with unit.alone(item.get_closest_marker("unit") is not None):
        return (yield)


# -- whether a test has failed ----------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        item.stash[_FAILED] = True
    return report


# -- open files ------------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """A test that passes fails if this process has files of its `tmp_path` still open.

    What is not closed here is not closed in a server either, and thousands of them break select() in other tests.
    """
    result = yield
    tmp_path = (getattr(item, "funcargs", None) or {}).get("tmp_path")
    if tmp_path and open_below(tmp_path) and not item.stash.get(_FAILED, False):
        _require_closed(tmp_path)
    return result


def _require_closed(tmp_path: Path) -> None:
    gc.collect()  # files of exceptions that hold their frames
    # pyarrow lets go of a file in a thread of its own, half a second behind its last row where others work, too.
    with contextlib.suppress(TimeoutError):
        until(lambda: not open_below(tmp_path), "files that are closed", _CLOSED_S)
    if left := open_below(tmp_path):
        names = sorted({Path(path).name for path in left})
        pytest.fail(f"{len(left)} files left open: {', '.join(names[:4])}", pytrace=False)


def open_below(folder: Path) -> list[str]:
    """Files below a folder that this process has open."""
    start = f"{folder}{os.sep}"
    return [path for path in map(_open_path, os.listdir("/proc/self/fd")) if path.startswith(start)]


def _open_path(number: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{number}")
    except OSError:
        return ""


# -- disks -----------------------------------------------------------------------------------------


@pytest.fixture
def _disks() -> Iterator[list[Closed]]:
    made: list[Closed] = []
    yield made
    for disk in reversed(made):
        disk.close()


@pytest.fixture
def _made(request: pytest.FixtureRequest, _disks: object) -> Iterator[list[Logged]]:
    # Behind _disks: a server is discarded before the disk that it works on.
    made = servers_of(request.node)
    yield made
    for server in reversed(made):
        server.discard()


# -- for tests -------------------------------------------------------------------------------------


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> Backend:
    """Each of the wanted backends in turn."""
    chosen: Backend = request.param
    chosen.require()
    return chosen


def _factory(
    request: pytest.FixtureRequest, made: list[Logged], role: str, own_flags: tuple[str, ...]
) -> MakeMariaDB:
    here: Backend | None = None
    if "backend" in request.fixturenames:
        here = request.getfixturevalue("backend")

    def make(
        *flags: str,
        backend: Backend | None = None,
        version: str | None = None,
        server_id: int | None = None,
        start: bool = True,
    ) -> MariaDB:
        if backend is not None:
            backend.require()
        elif here is not None and version in (None, here.version):
            backend = here
        else:
            backend = backends.pick(version, like=here)
        server = backend.new(f"{role}-{len(made)}", [*own_flags, *flags], server_id)
        made.append(server)
        return server.start() if start else server

    return make


@pytest.fixture
def make_replica(request: pytest.FixtureRequest, _made: list[Logged]) -> MakeMariaDB:
    """make_replica(*flags, backend=None, version=None, server_id=None, start=True) -> MariaDB"""
    return _factory(request, _made, "replica", ())


@pytest.fixture
def make_upstream(request: pytest.FixtureRequest, _made: list[Logged]) -> MakeMariaDB:
    """Like make_replica; with a binlog (row format) and, if started, a replication account. Its
    binlog is empty: the account is not in it."""
    make = _factory(request, _made, "upstream", UPSTREAM)

    def make_with_account(*flags: str, start: bool = True, **options: Any) -> MariaDB:
        server = make(*flags, start=start, **options)
        if start:
            server.create_account()
        return server

    return make_with_account


@pytest.fixture
def binlog_server(_made: list[Logged]) -> MakeBinlogServer:
    """binlog_server(*, upstream=None, users=None, directory=None, start=True, **options) ->
    BinlogServer, ours, running. Options are lines of its configuration file."""

    def make(*, start: bool = True, **arguments: Any) -> BinlogServer:
        server = BinlogServer(**arguments)
        server.forked = True
        _made.append(server)
        return server.start() if start else server

    return make


@pytest.fixture
def make_relay(make_upstream: MakeMariaDB, binlog_server: MakeBinlogServer) -> MakeRelay:
    """make_relay(*flags, version=None, table="d.t", kind="VARCHAR(200)", **options) -> (MariaDB, BinlogServer)"""

    def make(
        *flags: str,
        version: str | None = None,
        table: str = "d.t",
        kind: str = "VARCHAR(200)",
        **options: Any,
    ) -> tuple[MariaDB, BinlogServer]:
        upstream = make_upstream(*flags, version=version)
        server = binlog_server(upstream=upstream, **options)
        if table:
            upstream.make_table(table, kind)
        return upstream, server

    return make


@pytest.fixture
def chaos_proxy(rng: random.Random) -> Iterator[MakeProxy]:
    """chaos_proxy(source) -> ChaosProxy in front of a MariaDB or of our server, seeded."""
    made: list[ChaosProxy] = []

    def make(source: MariaDB | BinlogServer) -> ChaosProxy:
        proxy = ChaosProxy(
            (source.host, source.port), seed=rng.getrandbits(32), account=source.account
        ).start()
        made.append(proxy)
        return proxy

    yield make
    for proxy in made:
        proxy.stop()


@pytest.fixture
def make_proxied_relay(
    make_upstream: MakeMariaDB, binlog_server: MakeBinlogServer, chaos_proxy: MakeProxy
) -> MakeProxiedRelay:
    """make_proxied_relay(*flags, table="d.t", **options) -> (MariaDB, ChaosProxy, BinlogServer)"""

    def make(
        *flags: str, table: str = "d.t", **options: Any
    ) -> tuple[MariaDB, ChaosProxy, BinlogServer]:
        upstream = make_upstream(*flags)
        if table:
            upstream.make_table(table)
        proxy = chaos_proxy(upstream)
        return upstream, proxy, binlog_server(upstream=proxy, **options)

    return make


@pytest.fixture
def cut_disk(_disks: list[Closed]) -> MakeCutDisk:
    """cut_disk(kind="ext4" or "xfs", size_mb=None) -> CutDisk, whose power can be cut."""
    return _disk_factory(_disks, CutDisk, "ext4")


@pytest.fixture
def small_disk(_disks: list[Closed]) -> MakeSmallDisk:
    """small_disk(kind="tmpfs" or "ext4", size_mb=) -> SmallDisk, which can be filled."""
    return _disk_factory(_disks, SmallDisk, "tmpfs")


@pytest.fixture
def thin_disk(_disks: list[Closed]) -> MakeThinDisk:
    """thin_disk(size_mb=64) -> ThinDisk, whose syncs can be made to fail with ENOSPC."""
    return _disk_factory(_disks, ThinDisk, "ext4")


@pytest.fixture
def failing_disk(_disks: list[Closed]) -> MakeFailingDisk:
    """failing_disk(size_mb=192) -> FailingDisk, whose syncs can be made to fail with EIO."""
    return _disk_factory(_disks, FailingDisk, "ext4")


def _disk_factory(made: list[Closed], make: Callable[..., Any], default: str) -> Callable[..., Any]:
    def new(kind: str = default, **options: Any) -> Any:
        mounts.require(kind)
        disk = make(kind=kind, **options)
        made.append(disk)
        return disk

    return new


@pytest.fixture
def rng(request: pytest.FixtureRequest) -> random.Random:
    """Random numbers of this test: the same again under the same BINLOG_TEST_SEED."""
    return random.Random(f"{os.environ[SEED]} {request.node.nodeid}")
