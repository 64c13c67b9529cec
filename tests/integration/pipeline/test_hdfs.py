"""Archives and tables in HDFS, and checkpoints there: a NameNode and a DataNode of Hadoop."""

from __future__ import annotations

import contextlib
import itertools
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from binlog_pipeline.cli import main as spark_main
from binlog_pipeline.sources.archive import ArchiveSource
from binlog_pipeline.sources.directory import DirectorySource
from binlog_pipeline.tables.sinks import open_sink
from binlog_protocol.gtid import SlavePosition
from binlog_storage.archive import hdfs_objects
from binlog_storage.archive.archive import Archive, read_manifest
from binlog_storage.archive.errors import ArchiveUnreachable, ObjectChanged
from binlog_storage.archive.hdfs_objects import HdfsObjects
from binlog_storage.archive.manifest import MANIFEST_NAME
from binlog_storage.archive.places import ObjectPlace, open_objects

from binlog_server.cli import main as server_main
from tests.integration.pipeline.test_other_clouds import kept_once
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB
from tests.kit.hdfs import Hdfs, hdfs
from tests.pipeline.archives import grow, log_of, rows, stored
from tests.pipeline.spark.test_stream_killed import MERGING, ROOT, follow_and_kill, running
from tests.pipeline.stores import FULL
from tests.pipeline.tables.changes import History, in_order
from tests.pipeline.tables.lake import configure, rows_of
from tests.storage.archive import test_objects
from tests.storage.archive.memory_objects import Killed
from tests.storage.archive.test_objects import add_all, content, grow_by_turns
from tests.storage.groups import simple

hdfs_native = pytest.importorskip("hdfs_native", exc_type=ImportError)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
CHANGES: Final = ("create", "rename", "delete", "set_times")
_NUMBERS: Final = itertools.count(1)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    with hdfs(tmp_path_factory.mktemp("hdfs")) as made:
        yield made


@pytest.fixture
def place(cluster: Hdfs, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a folder that is not there yet, for a user who is nobody there."""
    monkeypatch.setenv("HADOOP_USER_NAME", "alice")
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    monkeypatch.delenv("HADOOP_HOME", raising=False)
    return f"{cluster.url}/all/{next(_NUMBERS)}"


class Faulty:
    """In the place of the library: `fault` is called before and after each change, with its number; it may raise."""

    def __init__(self, fault: Callable[[int, str, str], None]) -> None:
        self.calls = 0
        self.fault: Final = fault

    def Client(self, *arguments: Any) -> Any:
        real = hdfs_native.Client(*arguments)
        made = _Wrapped(real)
        for name in CHANGES:
            setattr(made, name, self._changing(name, getattr(real, name)))
        return made

    def _changing(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def changing(*arguments: Any) -> Any:
            self.calls += 1
            number = self.calls
            self.fault(number, "before", name)
            done = call(*arguments)
            self.fault(number, "after", name)
            return done

        return changing


class _Wrapped:
    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def opened(url: str, library: Any = hdfs_native, **said: Any) -> HdfsObjects:
    """Impatient."""
    return HdfsObjects(library, url, **{"patience_s": 0.2, **said})


def test_what_objects_promise(place: str, tmp_path: Path) -> None:
    test_objects.test_what_objects_promise(open_objects(place), tmp_path)


def test_lists_that_grow(place: str) -> None:
    grow_by_turns(place, 7)


def test_an_archive(place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All that reads one, as users call it."""
    store = tmp_path / "store"
    for count in (200, 400):
        grow(store, simple(count, size=4000)[count - 200 :])
        assert spark_main(["archive", str(store), place, "--include-tail", "--check"]) == 0
        assert rows(ArchiveSource(place)) == rows(DirectorySource(str(store)))
    assert spark_main(["lag", str(store), place]) == 0
    assert spark_main(["verify", place]) == 0
    assert spark_main(["stats", place]) == 0
    assert spark_main(["replay", place, "--ibb", str(tmp_path / "replayed")]) == 0
    assert server_main(["import", "--directory", str(tmp_path / "back"), place]) == 0
    assert stored(tmp_path / "back") == log_of(DirectorySource(str(store)))
    assert stored(tmp_path / "replayed") == log_of(DirectorySource(str(store)))
    assert spark_main(["archive", place, f"{place}-again", "--include-tail"]) == 0
    assert rows(ArchiveSource(f"{place}-again")) == rows(DirectorySource(str(store)))
    capsys.readouterr()


def parts_of(url: str) -> int:
    """How many parts a reader finds, each whole."""
    place = ObjectPlace(opened(url))
    manifest = read_manifest(place)
    if manifest is None:
        return 0
    for placed in Archive(place, manifest).parts():
        with place.open(placed.part.name, placed.part.size) as file:
            assert file.read() == content(placed.number, "one")
    return manifest.count


def left_over(url: str) -> list[str]:
    objects = opened(url)
    found = objects._client.list_status(f"{objects._folder}/{hdfs_objects._NEW}", True)
    return [one.path for one in found]


@pytest.mark.parametrize(("how", "when"), [(Killed, "before"), (ConnectionResetError, "after")])
def test_a_stop_at_any_step(how: type[BaseException], when: str, place: str) -> None:
    """A kill in front of each change; the loss of its answer. The next one goes on to the same end, and clears up."""
    whole = Faulty(lambda number, at, name: None)
    add_all(opened(f"{place}/whole", whole), 3)
    names = set(opened(f"{place}/whole").names("", ""))
    assert whole.calls > 20
    for step in range(1, whole.calls + 1):
        url = f"{place}/{step}"

        def fault(number: int, at: str, name: str, step: int = step) -> None:
            if (number, at) == (step, when):
                raise how("injected")

        with contextlib.suppress(Killed, ArchiveUnreachable):
            add_all(opened(url, Faulty(fault)), 3)
        assert parts_of(url) <= 3
        add_all(opened(url), 3)
        assert parts_of(url) == 3
        add_all(opened(url, left_over_ms=0), 4)  # what is left over is old at once
        assert left_over(url) == [], step
        assert names <= set(opened(url).names("", "")), step


def test_one_that_is_paused(place: str) -> None:
    """Wherever it stands in the way, another one goes on; it has changed nothing when it comes back."""
    for name, which in itertools.product(("rename", "create"), range(1, 4)):
        url = f"{place}/{name}-{which}"
        objects = opened(url)
        tag = objects.put("m", b"first", None)
        seen = itertools.count(1)

        def fault(
            number: int,
            at: str,
            call: str,
            seen: Iterator[int] = seen,
            url: str = url,
            tag: str = tag,
            want: tuple[str, int] = (name, which),
        ) -> None:
            if at == "before" and call == want[0] and next(seen) == want[1]:
                opened(url).put("m", b"other", tag)

        try:
            opened(url, Faulty(fault)).put("m", b"late", tag)
            assert next(seen) <= which  # it has no such step
            expected = b"late"
        except ObjectChanged:
            expected = b"other"
        found = objects.get("m")
        assert found is not None
        assert b"".join(found.pieces) == expected, url


def test_many_who_count(place: str) -> None:
    """Each adds one to a number; they take the turn from each other all the time. No count is lost, none is twice."""
    opened(place).put("n", b"0", None)
    won: list[int] = []

    def count() -> None:
        objects = opened(place, patience_s=0.0)
        for _ in range(15):
            found = objects.get("n")
            assert found is not None
            number = int(b"".join(found.pieces)) + 1
            try:
                objects.put("n", b"%d" % number, found.tag)
            except ObjectChanged:
                continue
            won.append(number)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    found = opened(place).get("n")
    assert found is not None
    assert sorted(won) == list(range(1, int(b"".join(found.pieces)) + 1))
    print(f"{len(won)} of 60 counted")
    assert won


def test_a_clock_that_was_set_back(place: str) -> None:
    """Two versions never have the same tag."""
    objects = opened(place)
    tag = objects.put("m", b"0", None)
    later = 1 << 43
    objects._client.set_times(f"{objects._folder}/m", later, later)
    tag = f"{later} 1"
    for number in (1, 2):
        tag = objects.put("m", b"%d" % number, tag)
        assert tag == f"{later + number} 1"
        found = objects.get("m")
        assert found is not None
        assert (found.tag, [*found.pieces]) == (tag, [b"%d" % number])


def test_a_name_of_a_service(
    place: str, cluster: Hdfs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of HADOOP_CONF_DIR, whose first NameNode is not there; and the file system that it says is meant."""
    monkeypatch.setenv("HADOOP_CONF_DIR", str(cluster.conf))
    path = place.removeprefix(cluster.url)
    test_objects.test_what_objects_promise(open_objects(f"hdfs://lake{path}"), tmp_path)
    add_all(opened(f"hdfs://lake{path}/x"), 2)
    assert parts_of(f"{place}/x") == parts_of(f"hdfs://{path}/x") == 2


# --- what does not answer, or refuses ---


def is_refused(url: str, said: str) -> str:
    with pytest.raises(ArchiveUnreachable, match=said) as error:
        opened(url, silence_s=3.0).put("other", b"x" * 100_000, None)
    text = str(error.value)
    assert text.startswith(f"{url}/other: ")
    assert "\tat " not in text
    return text


def test_safe_mode(place: str, cluster: Hdfs) -> None:
    """It is read, and not written."""
    add_all(opened(place), 2)
    cluster.admin("-safemode", "enter")
    try:
        assert is_refused(place, "in safe mode") == is_refused(place, "in safe mode")
        assert parts_of(place) == 2
    finally:
        cluster.admin("-safemode", "leave")
    add_all(opened(place), 3)
    assert parts_of(place) == 3


def test_who_may_not(place: str, cluster: Hdfs, monkeypatch: pytest.MonkeyPatch) -> None:
    add_all(opened(place), 1)
    monkeypatch.setenv("HADOOP_USER_NAME", "bob")
    is_refused(place, "Permission denied: user=bob, access=WRITE")
    assert parts_of(place) == 1
    cluster.shell("-chmod", "700", place)
    with pytest.raises(ArchiveUnreachable, match="Permission denied: user=bob, access=EXECUTE"):
        parts_of(place)
    with pytest.raises(ArchiveUnreachable, match="user=bob"):
        opened(place).delete(MANIFEST_NAME)


def test_a_full_one(place: str, cluster: Hdfs) -> None:
    add_all(opened(place), 1)
    cluster.admin("-setSpaceQuota", "1000", place)
    is_refused(place, "quota .* is exceeded")
    cluster.admin("-clrSpaceQuota", place)
    add_all(opened(place, left_over_ms=0), 2)
    assert parts_of(place) == 2
    assert left_over(place) == []


def test_a_file_in_the_way(place: str, cluster: Hdfs) -> None:
    opened(place).put("file", b"x", None)
    is_refused(f"{place}/file", "not a directory|Permission denied: user=alice, access=EXECUTE")


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_namenode_that_is_away(how: str, place: str, cluster: Hdfs) -> None:
    add_all(opened(place), 1)
    objects = opened(place, silence_s=3.0)
    if how == "killed":
        cluster.kill("namenode")
    else:
        cluster.signal("namenode", signal.SIGSTOP)
    try:
        is_refused(place, "refused|no answer within 3 s")
        with pytest.raises(ArchiveUnreachable, match=r"refused|reset|closed|no answer within 3 s"):
            objects.get("m")
    finally:
        if how == "killed":
            cluster.start("namenode")
            cluster.wait()
        else:
            cluster.signal("namenode", signal.SIGCONT)
    add_all(objects, 2)
    assert parts_of(place) == 2


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_datanode_that_is_away(how: str, place: str, cluster: Hdfs) -> None:
    add_all(opened(place), 1)
    objects = opened(place, silence_s=3.0)
    away = r"DataNodes failed: 127\.|no answer within 3 s|refused"
    if how == "killed":
        cluster.kill("datanode")
    else:
        cluster.signal("datanode", signal.SIGSTOP)
    try:
        is_refused(place, away)
        with pytest.raises(ArchiveUnreachable, match=away):
            read_manifest(ObjectPlace(objects))
    finally:
        if how == "killed":
            cluster.start("datanode")
        else:
            cluster.signal("datanode", signal.SIGCONT)
        cluster.wait()
    add_all(objects, 2)
    assert parts_of(place) == 2


# --- tables, and checkpoints of Spark ---


@pytest.fixture
def lake(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A catalog whose warehouse is there; the URL of the folder."""
    configure(monkeypatch, tmp_path, {"warehouse": f"{place}/warehouse"})
    return place


def target_of(sink: str, lake: str) -> str:
    return "iceberg://lake/shop/orders" if sink == "iceberg" else f"{lake}/lake/shop/orders"


SINKS: Final = ("delta", "iceberg")


@pytest.mark.parametrize("sink", SINKS)
def test_a_table(sink: str, lake: str, rng: random.Random) -> None:
    kept_once(target_of(sink, lake), rng, sink)


def test_names_that_are_no_paths(lake: str) -> None:
    """Of tables: what is behind a `#` or `?` of one is not taken away."""
    rows = {}
    for name in ("a%23x", "a%23y", "a%3Fx", "a b", "a%25"):
        target = f"iceberg://lake/shop/{name}"
        history = History(random.Random(name))
        with open_sink("iceberg", target, "shop.orders", ["id"], SlavePosition()) as kept:
            kept.add(history.batch(20), history.position)
        rows[target] = history.table()
    for target, expected in rows.items():
        assert in_order(rows_of("iceberg", target)) == expected, target


@pytest.mark.spark
@pytest.mark.parametrize("sink", SINKS)
def test_executors_write_a_table(sink: str, lake: str, tmp_path: Path, rng: random.Random) -> None:
    """A cluster of two workers, which have the driver's environment."""
    seed, batches = rng.randrange(1 << 30), 6
    history = History(random.Random(seed))
    for _ in range(batches):
        history.batch(30)
    target = target_of(sink, lake)
    cluster = {"SPARK_WORKER_DIR": str(tmp_path / "work"), "PYTHONPATH": str(ROOT)}
    with running(MERGING, sink, target, str(seed), str(batches), **cluster) as job:
        assert job.stdout is not None
        assert len(job.stdout.readlines()) == batches
        assert job.wait(60) == 0
    assert in_order(rows_of(sink, target)) == history.table()


@pytest.mark.spark
@pytest.mark.any_version
@pytest.mark.parametrize("sink", SINKS)
def test_commands(
    sink: str,
    lake: str,
    make_upstream: MakeMariaDB,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """load, state, lag and stream, as users call them; the checkpoint is there as well."""
    upstream = make_upstream(FULL)
    upstream.script(
        "CREATE DATABASE shop",
        "CREATE TABLE shop.orders (id INT PRIMARY KEY, a VARCHAR(9))",
        "INSERT INTO shop.orders VALUES (1, 'x'), (2, 'y')",
    )
    source = f"mariadb://root@{upstream.host}:{upstream.port}"
    target = target_of(sink, lake)
    place = target.removesuffix("/shop/orders")
    of_table = ("--sink", sink, "--table", "shop.orders")
    load = ("load", source, "--tables", "shop.orders", "--target", place, "--sink", sink)
    assert spark_main([*load, "--staging", str(tmp_path / "staging")]) == 0
    upstream.script(
        "INSERT INTO shop.orders VALUES (3, 'z')",
        "ALTER TABLE shop.orders ADD b VARCHAR(5) DEFAULT 'q'",
    )
    assert spark_main(["state", source, target, *of_table]) == 0
    assert spark_main(["lag", source, target]) == 0
    stream = ("stream", "--from", source, "--to", target, "--checkpoint", f"{lake}/checkpoint")
    argv = [str(Path(sys.executable).with_name("binlog-spark")), *stream, *of_table]
    for number in range(2):
        upstream.script(f"UPDATE shop.orders SET b = 'r{number}' WHERE id = {number + 1}")
        # In a process of its own: it ends Spark.
        done = subprocess.run(
            [*argv, "--available-now"], check=False, stdin=subprocess.DEVNULL, timeout=300
        )
        assert done.returncode == 0
        rows = sorted(rows_of(sink, target).to_pylist(), key=lambda row: row["id"])
        assert rows == upstream.q("SELECT * FROM shop.orders ORDER BY id")
    assert "commits" in {
        one.path.rpartition("/")[2]
        for one in opened(lake)._client.list_status(f"{opened(lake)._folder}/checkpoint")
    }
    capsys.readouterr()


@pytest.mark.spark
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("sink", SINKS)
def test_a_stream_that_is_killed(
    sink: str,
    lake: str,
    make_upstream: MakeMariaDB,
    binlog_server: MakeBinlogServer,
    tmp_path: Path,
    rng: random.Random,
) -> None:
    """With its checkpoint there: each change once."""
    upstream = make_upstream(FULL)
    server = binlog_server(upstream=upstream, directory=tmp_path / "store")
    target = target_of(sink, lake)
    follow_and_kill(sink, upstream, server, target, f"{lake}/checkpoint", rng, 6)
