"""Encrypted binlog files beside real servers with the same key file: each goes on in a directory of the other."""

from __future__ import annotations

import dataclasses
import re
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from binlog_protocol.gtid import BinlogState
from binlog_storage.classic.encryption import encryption_start
from binlog_storage.classic.store import ClassicEngine
from binlog_storage.disk.disk import OsDisk
from binlog_storage.errors import NoBinlogKey

from binlog_server.testing.local import LocalMariaDB
from tests.integration.load import insert
from tests.integration.test_classic_store import Ours
from tests.kit.backends import VERSIONS, Backend
from tests.kit.fixtures import MakeMariaDB
from tests.storage.groups import read_from

PASSWORD = "the password of the key file"


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Encrypted, as the manual of MariaDB says."""
    folder = tmp_path_factory.mktemp("keys")
    plain, path = folder / "plain", folder / "keys.enc"
    plain.write_text("# ours\n1;" + "0f1e2d3c4b5a6978" * 4 + "\n2;" + "77" * 16 + "\n")
    command = f"openssl enc -aes-256-cbc -md sha1 -in {plain} -out {path} -pass stdin"
    subprocess.run(command.split(), input=PASSWORD.encode(), check=True, stderr=subprocess.DEVNULL)
    return path


def encrypted(path: Path) -> bool:
    with closing(OsDisk(path.parent).open(path.name)) as file:
        return encryption_start(file) is not None


@pytest.mark.parametrize(
    ("version", "algorithm"), list(zip(VERSIONS, ("aes_cbc", "aes_ctr"), strict=True))
)
def test_to_and_fro(
    version: str,
    algorithm: str,
    key_file: Path,
    make_upstream: MakeMariaDB,
    make_replica: MakeMariaDB,
) -> None:
    flags = [
        "--plugin-load-add=file_key_management",
        f"--file-key-management-filename={key_file}",
        f"--file-key-management-filekey={PASSWORD}",
        f"--file-key-management-encryption-algorithm={algorithm}",
    ]
    server = make_upstream("--encrypt-binlog", *flags, backend=Backend("local", version))
    assert isinstance(server, LocalMariaDB)
    server.make_table()
    insert(server, 5)
    server.q("INSERT INTO d.t (a) VALUES (REPEAT('y', 150))")
    store = Ours(server, max_binlog_size=8192)
    keyed = dataclasses.replace(
        store.options,
        encrypt_binlog=True,
        file_key_management_filename=str(key_file),
        file_key_management_filekey=PASSWORD,
        file_key_management_encryption_algorithm=algorithm,
    )
    # The last turn: the option is off, and files of both kinds follow one another.
    for kill, sealed in ((False, True), (True, True), (True, False)):
        state = BinlogState.parse(server.gtid_binlog_state)
        (server.kill if kill else server.stop)()
        store.options = dataclasses.replace(keyed, encrypt_binlog=sealed)
        engine = store.open()
        assert engine.binlog_state() == state
        before = len(read_from(engine, engine.first_start().position))
        store.write(engine, 20, size=777)
        store.write(engine, 1, size=300_000)
        state = engine.binlog_state()
        groups = read_from(engine, engine.first_start().position)
        assert len(groups) == before + 21
        last = server.datadir / engine.file_name(engine.files()[-1].number)
        assert encrypted(last) is sealed
        assert (b"REPEAT('x', 777)" in last.read_bytes()) is not sealed
        if kill:
            store.disk.die()
        else:
            engine.close()
        server.start()
        assert BinlogState.parse(server.gtid_binlog_state) == state
        insert(server, 3)
    assert shown(server) > 3 * len(groups) - 10
    log = server.log()
    assert "Error in Log_event" not in log
    assert not re.search(r"\[ERROR\].*binlog", log)

    # From the remote server: decrypted by the server, as we decrypt them ourselves.
    said = server.run(
        "mariadb-binlog",
        "--no-defaults",
        "--skip-ssl",
        "--read-from-remote-server",
        "--host=127.0.0.1",
        f"--port={server.port}",
        f"--user={server.account.user}",
        f"--password={server.account.password}",
        "--to-last-log",
        "upstream-bin.000001",
    )
    assert said.count("REPEAT('x', 777)") == 60 - 1
    for other in VERSIONS:
        replica = make_replica(version=other).follow(server)
        replica.wait_gtid(server.gtid_binlog_pos)
        assert replica.value("SELECT COUNT(*) FROM d.ours") == store.seq_no - 1
        replica.stop()

    # With another key nothing is opened, and nothing changed.
    server.stop()
    wrong = key_file.with_name("wrong")
    wrong.write_text("1;" + "0f" * 32)
    for changed, text in (
        ({"file_key_management_filename": str(wrong)}, "Event decryption failure"),
        ({"file_key_management_filekey": "no"}, r"Cannot decrypt .*Wrong key\?"),
    ):
        server.datadir.joinpath("upstream-bin.state").unlink(missing_ok=True)
        kept = {path: path.read_bytes() for path in server.datadir.glob("upstream-bin.*")}
        with pytest.raises(NoBinlogKey, match=text):
            ClassicEngine(
                OsDisk(server.datadir),
                dataclasses.replace(keyed, **changed),  # type: ignore[arg-type]
            )
        assert {p: p.read_bytes() for p in server.datadir.glob("upstream-bin.*")} == kept


def shown(server: LocalMariaDB) -> int:
    """The events that SHOW BINLOG EVENTS has of all files: each is read, and its checksum looked at."""
    rows = server.q("SHOW BINARY LOGS")
    return sum(len(server.q(f"SHOW BINLOG EVENTS IN '{row['Log_name']}'")) for row in rows)
