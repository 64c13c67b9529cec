"""Whatever clients send and whatever lies in the directory: one clear line, and nothing else is harmed."""

from __future__ import annotations

import contextlib
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from binlog_protocol.errors import RemoteError

from binlog_server.testing import rundir
from binlog_server.testing.sql_server import Credentials
from binlog_server.testing.waiting import until
from tests.integration import store_files
from tests.integration.load import assert_equal, insert
from tests.integration.raw_client import RawClient, dump_error
from tests.kit import forks
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB, MakeRelay
from tests.kit.server import BinlogServer

pytestmark = pytest.mark.any_version

PAGE = 16384


def warnings(server: BinlogServer) -> list[str]:
    return [line for line in server.log().splitlines() if " WARNING " in line or " ERROR " in line]


@contextlib.contextmanager
def one_more_line(server: BinlogServer, text: str) -> Iterator[None]:
    """What happens inside makes our server log exactly one line, with that text."""
    before = len(warnings(server))
    yield
    until(lambda: len(warnings(server)) > before, f"a line with {text!r}")
    lines = warnings(server)[before:]
    assert len(lines) == 1, lines
    assert text in lines[0]
    assert "Traceback" not in server.log()


def everything(connection: socket.socket) -> bytes:
    """Until the server closes."""
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(65536):
            data += piece
    return data


def test_half_a_login(binlog_server: MakeBinlogServer) -> None:
    """On a server to which nobody else logs in: 2 s can be short for those who do."""
    server = binlog_server(connect_timeout=2)
    began = time.monotonic()
    with (
        one_more_line(server, "no login within connect_timeout"),
        socket.create_connection((server.host, server.port), 30) as silent,
    ):
        silent.sendall(b"\x50\x00\x00\x01half a login")
        everything(silent)
        assert time.monotonic() - began > 1.5


@pytest.mark.any_version
def test_on_the_wire(backend: object, make_relay: MakeRelay, make_replica: MakeMariaDB) -> None:
    upstream, server = make_relay()
    replica = make_replica().follow(server)
    replica.wait_gtid(insert(upstream))

    def connect() -> socket.socket:
        return socket.create_connection((server.host, server.port), 30)

    with one_more_line(server, "closed"), connect() as garbage:
        garbage.sendall(b"\x85\x01\x00\x05" + b"GET / HTTP/1.1\r\n" * 30)
        everything(garbage)
    with one_more_line(server, "packet of 16777215 bytes, limit 16384"), connect() as huge:
        huge.sendall(b"\xff\xff\xff\x01")
        with contextlib.suppress(ConnectionError):
            for _ in range(1000):
                huge.sendall(bytes(16384))
        assert memory_mb(server) < 200
    with one_more_line(server, "1045 (28000)"), pytest.raises(RemoteError, match="1045"):
        RawClient(server, account=Credentials("repl", "wrong"))

    with RawClient(server) as client, one_more_line(server, "0x5c"):
        client.socket.sendall(b"\x05\x00\x00\x00\x5c\x01\x00\x00\x00")
        answer = client.socket.recv(1000)
        assert answer[4:] == b"\xff\x17\x04#08S01Unknown command"
    with one_more_line(server, "dump refused"):
        assert dump_error(server, "0-1-2,0-1").errno == 1941
    # MySQL's COM_BINLOG_DUMP_GTID with MySQL's binary set of GTIDs: no MariaDB server takes that.
    mysql_set = (1).to_bytes(8, "little") + bytes(range(16)) + b"\x01" + bytes(23)
    with RawClient(server) as client:
        flags, server_id, name_length, position = bytes(2), b"\x07\x00\x00\x00", bytes(4), bytes(8)
        payload = b"\x1e" + flags + server_id + name_length + position
        payload += len(mysql_set).to_bytes(4, "little") + mysql_set
        client.socket.sendall(len(payload).to_bytes(3, "little") + b"\x00" + payload)
        answer = everything(client.socket)
        assert answer[4:7] == b"\xff\xd4\x04"  # 1236
    assert "Traceback" not in server.log()

    insert(upstream)
    assert_equal(upstream, replica)
    assert server.log().count("dump starts") == 1


def memory_mb(server: BinlogServer) -> float:
    for line in Path(f"/proc/{server.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError


def serve(directory: Path, *options: str) -> tuple[int, str]:
    """Exit code and output of a start that is to fail."""
    if not any(option.startswith("--listen") for option in options):
        options = ("--listen=127.0.0.1:0", *options)
    done = forks.run("serve", f"--directory={directory}", *options)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


def test_at_the_start(make_relay: MakeRelay, make_replica: MakeMariaDB) -> None:
    """Starts that fail beside a server that runs."""
    upstream, server = make_relay(max_binlog_size=262144)
    replica = make_replica().follow(server)
    position = insert(upstream)
    replica.wait_gtid(position)
    scratch = rundir.new_dir("bad")

    def fails(code: int, text: str, directory: Path, *options: str) -> None:
        files = store_files.hashes(directory) if directory.is_dir() else {}
        got, said = serve(directory, *options)
        assert got == code, said
        lines = [line for line in said.splitlines() if " INFO " not in line]
        assert len(lines) == 1, said
        assert text in lines[0]
        assert (store_files.hashes(directory) if directory.is_dir() else {}) == files

    with store_files.unchanged(server):
        foreign = scratch / "foreign"
        foreign.mkdir()
        (foreign / "ibdata1").write_bytes(b"not ours")
        fails(1, "is not a binlog store: it holds 'ibdata1'", foreign)
        fails(1, "is no directory", foreign / "ibdata1")
        fails(1, "another process", server.directory)
        code, said = serve(scratch / "new", f"--listen=127.0.0.1:{server.port}")
        assert (code, said.count("Address already in use")) == (1, 1), said
        assert not (scratch / "new").exists()

        config = scratch / "config.toml"
        for text, wanted in (
            ("server_id = \n", "is not TOML"),
            ("no_such_option = 1\n", "unknown option 'no_such_option'"),
            ("server_id = 'one'\n", "server_id"),
            ("server_id = 0\n", "server_id: 0 is not between 1 and"),
            ("max_binlog_size = 1\n", "max_binlog_size"),
        ):
            config.write_text(text)
            fails(2, wanted, scratch / "never", f"--config={config}")
            assert not (scratch / "never").exists()
        fails(2, "nosuch.toml", scratch / "never", f"--config={scratch / 'nosuch.toml'}")
        fails(2, "HOST:PORT", scratch / "never", "--listen=nonsense")
        fails(2, "mariadb://user:password@host:port", scratch / "never", "--upstream=oracle://x")

    insert(upstream)
    assert_equal(upstream, replica)
    assert server.log().count("dump starts") == 1


@pytest.mark.any_version
def test_page_with_a_wrong_checksum(
    backend: object, make_relay: MakeRelay, make_replica: MakeMariaDB
) -> None:
    """It is found when it is read: that replica stops, with file, page and offset; others go on."""
    upstream, server = make_relay(max_binlog_size=262144)
    replica = make_replica().follow(server)
    upstream.script("CREATE TABLE d.big (a MEDIUMTEXT)")
    for _ in range(6):
        upstream.q("INSERT INTO d.big VALUES (REPEAT('x', 100000))")
    replica.wait_gtid(upstream.gtid_binlog_pos)
    server.stop()
    damaged = server.directory / "binlog-000000.ibb"
    whole = damaged.read_bytes()
    offset = 7 * PAGE + 1000
    damaged.write_bytes(whole[:offset] + bytes([whole[offset] ^ 1]) + whole[offset + 1 :])
    hashed = store_files.hashes(server.directory)[damaged.name]

    server.start()
    late = make_replica()
    account = server.account
    late.replicate_from(server.host, server.port, account.user, account.password)
    status = late.wait_stopped()
    assert status["Last_IO_Errno"] == 1236
    assert "binlog-000000.ibb" in status["Last_IO_Error"]
    assert "page 7" in status["Last_IO_Error"]
    insert(upstream)
    assert_equal(upstream, replica)
    assert store_files.hashes(server.directory)[damaged.name] == hashed
    assert sum("page 7" in line for line in warnings(server)) == 1
    assert "Traceback" not in server.log()

    # In the file that is written to, the start finds it, and touches nothing.
    server.stop()
    copy = rundir.new_dir("bad") / "copy"
    shutil.copytree(server.directory, copy)
    last = max(
        path for path in copy.glob("binlog-*.ibb") if any(path.read_bytes())
    )  # one is made ahead
    data = bytearray(last.read_bytes())
    data[PAGE + 5000] ^= 1
    last.write_bytes(data)
    files = store_files.hashes(copy)
    code, said = serve(copy)
    assert code == 1, said
    assert last.name in said
    assert "page 1" in said
    assert store_files.hashes(copy) == files
