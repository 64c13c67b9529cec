"""Archives and tables at Azure and Google, and in catalogs of Glue and of REST, by programs of others."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from binlog_pipeline.cli import main as spark_main
from binlog_pipeline.errors import TargetChanged
from binlog_pipeline.sources.archive import ArchiveSource
from binlog_pipeline.sources.directory import DirectorySource
from binlog_pipeline.tables.sinks import open_sink, published
from binlog_protocol.gtid import SlavePosition

from binlog_server.cli import main as server_main
from tests.kit.fixtures import MakeMariaDB
from tests.kit.google_xml import google_xml
from tests.kit.moto import moto_s3, variables
from tests.kit.object_stores import ACCOUNT, BUCKET, KEY, azurite, google, rest_catalog
from tests.pipeline.archives import grow, log_of, rows, stored
from tests.pipeline.stores import FULL
from tests.pipeline.tables.changes import History, in_order
from tests.pipeline.tables.lake import configure, rows_of
from tests.storage.archive.test_objects import grow_by_turns
from tests.storage.groups import simple

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
TARGET: Final = "iceberg://lake/bronze/shop/orders"
TABLE, KEYS, START = "shop.orders", ["id"], SlavePosition()


@pytest.fixture
def azure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of Azurite; obstore finds it by the environment."""
    with azurite(tmp_path) as address:
        said = {
            "ACCOUNT_NAME": ACCOUNT,
            "ACCOUNT_KEY": KEY,
            "ENDPOINT": f"http://{address}/{ACCOUNT}",
        }
        for name, value in said.items():
            monkeypatch.setenv(f"AZURE_STORAGE_{name}", value)
        monkeypatch.setenv("AZURE_ALLOW_HTTP", "true")
        yield address


@pytest.fixture
def at_google(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Google's XML API; obstore and deltalake find it by the environment."""
    with google_xml(tmp_path) as said:
        for name, value in said.items():
            monkeypatch.setenv(name, value)
        yield


@pytest.fixture(params=["az azure", "gs at_google"])
def for_archives(request: pytest.FixtureRequest) -> str:
    """The bucket of a cloud, which is there, as obstore is told of it."""
    return bucket_of(request)


@pytest.fixture(params=["az azure_lake", "gs at_google"])
def for_deltas(request: pytest.FixtureRequest) -> str:
    """Likewise, as deltalake is told of it."""
    return bucket_of(request)


def bucket_of(request: pytest.FixtureRequest) -> str:
    scheme, cloud = request.param.split()
    request.getfixturevalue(cloud)
    return f"{scheme}://{BUCKET}"


def test_an_archive(for_archives: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"{for_archives}/main"
    store = tmp_path / "store"
    for count in (200, 400):
        grow(store, simple(count, size=4000)[count - 200 :])
        assert spark_main(["archive", str(store), url, "--include-tail", "--check"]) == 0
        assert rows(ArchiveSource(url)) == rows(DirectorySource(str(store)))
    assert spark_main(["lag", str(store), url]) == 0
    assert server_main(["import", "--directory", str(tmp_path / "back"), url]) == 0
    assert stored(tmp_path / "back") == log_of(DirectorySource(str(store)))
    capsys.readouterr()


def test_full_lists(for_archives: str) -> None:
    """Azurite lists all names, also those of parts that lists have, which nobody has left over."""
    grow_by_turns(f"{for_archives}/lists", 7)


@pytest.fixture
def azure_lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """deltalake is told that this is an emulator: it takes lists from their beginning then, as Azurite gives them."""
    with azurite(tmp_path) as address:
        said = {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": KEY,
            "AZURE_STORAGE_USE_EMULATOR": "true",
            "AZURITE_BLOB_STORAGE_URL": f"http://{address}",
        }
        for name, value in said.items():
            monkeypatch.setenv(name, value)
        yield


@pytest.mark.any_version
def test_delta(
    for_deltas: str,
    make_upstream: MakeMariaDB,
    tmp_path: Path,
    rng: random.Random,
    capsys: pytest.CaptureFixture[str],
) -> None:
    upstream = make_upstream(FULL)
    upstream.script(
        "CREATE DATABASE shop",
        "CREATE TABLE shop.orders (id INT PRIMARY KEY, a VARCHAR(9))",
        "INSERT INTO shop.orders VALUES (1, 'x'), (2, 'y')",
    )
    source = f"mariadb://root@{upstream.host}:{upstream.port}"
    place, target = f"{for_deltas}/lake", f"{for_deltas}/lake/shop/orders"
    load = ("load", source, "--target", place, "--staging", str(tmp_path / "staging"))
    kept_once(f"{for_deltas}/once", rng, "delta")
    assert spark_main([*load, "--tables", TABLE, "--sink", "delta"]) == 0
    for number in range(12):  # commits beyond a checkpoint of Delta
        upstream.q(f"INSERT INTO shop.orders VALUES ({number + 10}, 'z')")
        assert spark_main(["state", source, target, "--sink", "delta", "--table", TABLE]) == 0
    upstream.q("UPDATE shop.orders SET a = 'again'")
    assert spark_main([*load, "--again", TABLE, "--sink", "delta"]) == 0
    rows = sorted(rows_of("delta", target).to_pylist(), key=lambda row: row["id"])
    assert rows == upstream.q("SELECT * FROM shop.orders ORDER BY id")
    capsys.readouterr()


@pytest.fixture(params=["azure", "google", "rest"])
def catalog(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """A catalog with a warehouse there, configured as users do it."""
    with ExitStack() as stack:
        if request.param == "azure":
            address = stack.enter_context(azurite(tmp_path))
            more = {
                "warehouse": f"abfss://{BUCKET}/warehouse",
                "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO",
                "adls__account-name": ACCOUNT,
                "adls__account-key": KEY,
                "adls__blob-storage-authority": address,
                "adls__dfs-storage-authority": address,
                "adls__blob-storage-scheme": "http",
                "adls__dfs-storage-scheme": "http",
            }
        elif request.param == "google":
            more = {
                "warehouse": f"gs://{BUCKET}/warehouse",
                "gcs__service__host": stack.enter_context(google(tmp_path)),
                "gcs__oauth2__token": "anon",
                "gcs__oauth2__token-expires-at": "4102444800000",
            }
        else:
            more = {**stack.enter_context(rest_catalog(tmp_path)), "warehouse": ""}
        configure(monkeypatch, tmp_path, more)
        yield


def test_a_table_of_a_catalog(catalog: None, rng: random.Random) -> None:
    kept_once(TARGET, rng)


@pytest.mark.spark
@pytest.mark.any_version
def test_commands(
    catalog: None,
    make_upstream: MakeMariaDB,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """load, state and stream, as users call them."""
    upstream = make_upstream(FULL)
    upstream.script(
        "CREATE DATABASE shop",
        "CREATE TABLE shop.orders (id INT PRIMARY KEY, a VARCHAR(9))",
        "INSERT INTO shop.orders VALUES (1, 'x'), (2, 'y')",
    )
    source = f"mariadb://root@{upstream.host}:{upstream.port}"
    place = TARGET.removesuffix("/shop/orders")
    of_table = ("--sink", "iceberg", "--table", TABLE)
    staging = str(tmp_path / "staging")
    load = ("load", source, "--tables", TABLE, "--target", place, "--staging", staging)
    assert spark_main([*load, "--sink", "iceberg"]) == 0
    upstream.script(
        "INSERT INTO shop.orders VALUES (3, 'z')",
        "ALTER TABLE shop.orders ADD b VARCHAR(5) DEFAULT 'q'",
    )
    assert spark_main(["state", source, TARGET, *of_table]) == 0
    upstream.script("UPDATE shop.orders SET b = 'r' WHERE id = 2")
    checkpoint = str(tmp_path / "checkpoint")
    stream = ("stream", "--from", source, "--to", TARGET, "--checkpoint", checkpoint)
    # In a process of its own: it ends Spark.
    argv = [
        str(Path(sys.executable).with_name("binlog-spark")),
        *stream,
        *of_table,
        "--available-now",
    ]
    assert subprocess.run(argv, check=False, stdin=subprocess.DEVNULL, timeout=300).returncode == 0
    rows = sorted(rows_of("iceberg", TARGET).to_pylist(), key=lambda row: row["id"])
    assert rows == upstream.q("SELECT * FROM shop.orders ORDER BY id")
    capsys.readouterr()


def test_a_table_in_glue(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no namespaces in namespaces."""
    pytest.importorskip("boto3")
    with moto_s3(tmp_path) as port:
        said = variables(port)
        for name, value in said.items():
            monkeypatch.setenv(name, value)
        endpoint = said["AWS_ENDPOINT_URL"]
        more = {
            "type": "glue",
            "uri": endpoint,
            "glue__endpoint": endpoint,
            "glue__region": "us-east-1",
            "warehouse": f"s3://{BUCKET}/warehouse",
            "s3__endpoint": endpoint,
            "s3__region": "us-east-1",
        }
        configure(monkeypatch, tmp_path, more)
        kept_once("iceberg://lake/shop/orders", rng)


def kept_once(target: str, rng: random.Random, sink: str = "iceberg") -> None:
    """Batch by batch, each change once; of two writers one is told."""
    history = History(rng)
    for _ in range(6):
        batch = history.batch(30)
        for _ in range(2):  # the second time it has no effect
            with open_sink(sink, target, TABLE, KEYS, START) as kept:
                kept.add(batch, history.position)
        assert in_order(rows_of(sink, target)) == history.table()
        assert published(sink, target, TABLE) == history.position
    first, at_first = history.batch(30), history.position
    there = history.table()
    second, at_second = history.batch(30), history.position

    def at_once() -> None:
        with open_sink(sink, target, TABLE, KEYS, START) as slow:
            with open_sink(sink, target, TABLE, KEYS, START) as fast:
                fast.add(first, at_first)
            slow.add(second, at_second)

    with pytest.raises(TargetChanged):
        at_once()
    assert in_order(rows_of(sink, target)) == there
