"""Backups of a relay under load, with real servers at both ends: served, replicated and followed on without a gap."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from binlog_server.testing.sql_server import url
from tests.integration.load import assert_equal, insert
from tests.integration.mixed_load import MixedLoad
from tests.integration.test_crash import STRICT
from tests.integration.test_relay_sql import ADMIN
from tests.integration.test_seeding import MAX_BINLOG_SIZE, command, follow_upstream, run
from tests.kit.backends import VERSIONS
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB
from tests.kit.server import BinlogServer

KINDS: dict[str, dict[str, Any]] = {
    "ibb": {},
    "traditional": {"binlog_storage_engine": "", "log_bin": "mariadb-bin"},
}


def backup(server: BinlogServer, target: Path, *more: str | Path) -> str:
    done = command("backup", "--server", server.url, f"--target={target}", *more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("version", VERSIONS)
def test_under_load(
    version: str,
    kind: str,
    make_upstream: MakeMariaDB,
    make_replica: MakeMariaDB,
    binlog_server: MakeBinlogServer,
    tmp_path: Path,
    rng: random.Random,
) -> None:
    """A full one, an incremental one, and one without the binlog. New relays go on from them; so do replicas."""
    upstream = make_upstream(version=version)
    relay = binlog_server(
        users=ADMIN, max_binlog_size=MAX_BINLOG_SIZE, upstream=upstream, **KINDS[kind]
    )
    replica = make_replica(*STRICT, version=VERSIONS[0]).follow(relay)
    mixed = MixedLoad(upstream, rng, pause_s=0.001, large_every=20)
    base, later, bare = tmp_path / "base", tmp_path / "later", tmp_path / "bare"
    with mixed.running():
        mixed.wait_more(60)
        backup(relay, base)
        mixed.wait_more(40)
        backup(relay, later, "--incremental-basedir", base)
        run("prepare", base, "--incremental-dir", later)
        said = backup(relay, bare, "--skip-binlog", "--prepare")
        mixed.wait_more(20)
        restored = binlog_server(
            directory=base, users=ADMIN, max_binlog_size=MAX_BINLOG_SIZE, server_id=2
        )
        anew = [make_replica(*STRICT, version=other).follow(restored) for other in VERSIONS]
        follow_upstream(restored, upstream)
        mixed.wait_more(20)
        # It begins at the point of the backup, and its upstream goes on there.
        begins = binlog_server(
            directory=bare,
            users=ADMIN,
            max_binlog_size=MAX_BINLOG_SIZE,
            upstream=upstream,
            server_id=3,
        )
    insert(upstream, 5, "d.t0")
    begins.wait_position(upstream.gtid_binlog_pos)
    restored.wait_position(upstream.gtid_binlog_pos)
    assert begins.q("SELECT @@binlog_gtid_begin AS gtids")[0]["gtids"] in said
    relay.stop()  # its replica goes on at the copy
    replica.script("STOP SLAVE")
    replica.follow(restored)
    assert_equal(upstream, replica, *anew)


@pytest.mark.any_version
def test_of_a_mariadb_there_is_none(
    backend: object, make_upstream: MakeMariaDB, tmp_path: Path
) -> None:
    upstream, target = make_upstream(), f"--target={tmp_path / 'b'}"
    tls = "--skip-ssl-verify-server-cert"
    done = command("backup", "--server", url(upstream), target, tls)
    assert done.returncode == 1
    assert "it is no binlog-server (mariadb-backup makes backups of a MariaDB)" in done.stderr
