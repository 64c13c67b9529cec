"""Our server over encrypted traditional files: what it says, what replicas get, and what lies on the disk."""

from __future__ import annotations

from pathlib import Path

import pymysql
import pytest

from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB

pytestmark = pytest.mark.any_version

ROOT = {"root": {"password": "pw", "grants": ["BINLOG REPLAY"]}, "repl": "secret"}
SECRET = "no_eye_but_ours"


def test_a_replica_of_encrypted_files(
    make_replica: MakeMariaDB, binlog_server: MakeBinlogServer, tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("1;" + "0f1e2d3c4b5a6978" * 4)
    ours = binlog_server(
        users=ROOT,
        binlog_storage_engine="",
        encrypt_binlog=True,
        file_key_management_filename=str(keys),
        file_key_management_encryption_algorithm="aes_ctr",
        slave_connections_needed_for_purge=0,
    )
    assert ours.q("SELECT @@encrypt_binlog AS e") == [{"e": 1}]
    shown = ours.q("SHOW GLOBAL VARIABLES LIKE 'file_key_management%'")
    assert [row["Value"] for row in shown] == ["aes_ctr", str(keys)], "and no password"
    ours.q("SET GLOBAL binlog_gtid_index_span_min = 1")
    for number in range(30):
        ours.q(f"CREATE DATABASE {SECRET}_{number}")
        if number in (9, 19):
            ours.q("FLUSH BINARY LOGS")
    with pytest.raises(pymysql.Error, match="read only variable"):
        ours.q("SET GLOBAL encrypt_binlog = OFF")
    replica = make_replica()
    replica.q("SET GLOBAL gtid_slave_pos = '0-1-3'")
    replica.follow(ours)
    replica.wait_gtid("0-1-30")
    found = {row["Database"] for row in replica.q("SHOW DATABASES")}
    assert {f"{SECRET}_{number}" for number in range(3, 30)} <= found
    assert f"{SECRET}_0" not in found
    (hit,) = ours.q("SHOW GLOBAL STATUS LIKE 'Binlog_gtid_index_hit'")
    assert int(hit["Value"]) > 0
    ours.stop()
    files = [path for path in ours.directory.iterdir() if path.is_file()]
    assert {"binlog.000001", "binlog.000001.idx"} < {path.name for path in files}
    binlogs = [path for path in files if path.name.startswith("binlog.0")]
    assert not [path.name for path in binlogs if SECRET.encode() in path.read_bytes()]
    keys.write_text("1;" + "00" * 32)
    with pytest.raises(Exception, match="Event decryption failure"):
        ours.start()
