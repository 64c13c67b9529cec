"""An encrypted archive in an object store (moto's server) that fails by chance, of a server that is killed often."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from binlog_protocol.gtid import BinlogState
from binlog_storage.archive.archive import Archive
from binlog_storage.archive.archiver import PART_BYTES
from binlog_storage.archive.encryption import KEY_FILE_VARIABLE
from binlog_storage.archive.merging import Merger
from binlog_storage.archive.part_reader import PartReader
from binlog_storage.archive.publisher import ArchivePublisher, open_shelf
from binlog_storage.errors import NoBinlogKey

from binlog_server.testing.waiting import until
from tests.integration.load import assert_equal
from tests.integration.mixed_load import MixedLoad
from tests.integration.test_archive import PURGE_AT_ONCE, is_purged_to
from tests.integration.test_crash import STRICT
from tests.integration.test_relay_sql import ADMIN
from tests.kit.backends import VERSIONS
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB
from tests.kit.moto import moto_s3, variables
from tests.storage.archive.s3_proxy import FAULTS, S3Proxy, s3_proxy

URL = "s3://bucket/main"
KILLS = 6


@pytest.fixture
def proxy(tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Proxy]:
    with moto_s3(tmp_path) as port, s3_proxy(port, rng) as made:
        for name, value in variables(made.server_address[1]).items():
            monkeypatch.setenv(name, value)
        yield made


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.any_version
def test_an_encrypted_archive_of_a_server_that_is_killed(
    make_upstream: MakeMariaDB,
    make_replica: MakeMariaDB,
    binlog_server: MakeBinlogServer,
    proxy: S3Proxy,
    tmp_path: Path,
    rng: random.Random,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is lost or twice; replicas of both versions have what the master has, most of it out of the archive."""
    keys = tmp_path / "keys.txt"
    keys.write_text(f"1;{rng.randbytes(32).hex()}\n2;{rng.randbytes(32).hex()}\n")
    upstream = make_upstream()
    server = binlog_server(
        upstream=upstream,
        users=ADMIN,
        binlog_archive_url=URL,
        binlog_archive_interval=1,
        binlog_archive_format="IBB",  # who adds to it meanwhile has the other one
        binlog_archive_encryption_key_id=2,
        file_key_management_filename=str(keys),
        **PURGE_AT_ONCE,
    )
    mixed = MixedLoad(upstream, rng, pause_s=0.001, large_every=40)
    proxy.share = 0.1

    def asked(count: int) -> bool:
        return proxy.requests > count

    with mixed.running():
        until(lambda: "and later files stay" in server.log(), "an archive", 60)
        for number in range(KILLS):
            mixed.wait_more(30)
            # In the middle of a round, more often than not.
            until(partial(asked, proxy.requests + rng.randrange(3, 12)), "requests", 60)
            server.kill()
            if number == KILLS // 2:  # another adds to it meanwhile, and merges
                monkeypatch.setenv(KEY_FILE_VARIABLE, str(keys))
                share, proxy.share = proxy.share, 0.0
                publisher = ArchivePublisher(open_shelf(URL))
                while Merger(PART_BYTES, 3).step(publisher):
                    pass
                publisher.close()
                proxy.share = share
            server.start()
        mixed.wait_more(30)
    proxy.share = 0.02
    server.wait_position(upstream.gtid_binlog_pos)
    server.q("FLUSH BINARY LOGS")
    last = server.q("SHOW MASTER STATUS")[0]["File"]
    until(lambda: is_purged_to(server, last), "all is archived", 60)
    first = server.q("SELECT @@gtid_binlog_pos AS p")[0]["p"].split(",")[0].rsplit("-", 1)[0] + "-1"
    assert server.q(f"EXPLAIN GTID '{first}'")[0]["Status"] == "archived"
    replicas = [make_replica(*STRICT, version=version).follow(server) for version in VERSIONS]
    assert_equal(upstream, *replicas, timeout=90)
    until(
        lambda: (
            Archive.open(URL).manifest.state.position()
            == BinlogState.parse(server.q("SELECT @@gtid_binlog_state AS s")[0]["s"]).position()
        ),
        "all of it is archived",
        60,
    )
    server.stop()
    proxy.share = 0.0

    archive = Archive.open(URL)
    assert archive.manifest.retired
    for placed in archive.parts():
        assert placed.part.key_id == 2
        PartReader(archive.place, placed.part).check()
    proxy.share, proxy.kinds = 0.1, FAULTS
    again = binlog_server(
        users=ADMIN,
        arguments=[f"--archive={URL}"],
        file_key_management_filename=str(keys),
        start=False,
    )
    again.start(timeout=120)
    until(lambda: "groups taken, the store is at" in again.log(), "all is taken", 120)
    proxy.share = 0.0
    other = make_replica(*STRICT).follow(again)
    assert_equal(upstream, other, timeout=60)
    again.stop()
    monkeypatch.delenv(KEY_FILE_VARIABLE)
    with pytest.raises(NoBinlogKey, match=KEY_FILE_VARIABLE):
        Archive.open(URL)
