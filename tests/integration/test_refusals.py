"""What a replica is refused with: the same numbers and texts that a real master gives it."""

from __future__ import annotations

import pytest
from binlog_protocol.errors import RemoteError

from binlog_server.testing.mariadb import MariaDB
from binlog_server.testing.sql_server import Credentials, Followed, Row
from binlog_server.testing.waiting import until
from tests.integration.load import assert_equal, insert
from tests.integration.raw_client import RawClient, dump_error
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB, MakeRelay

pytestmark = [pytest.mark.each_version, pytest.mark.by_turns(2)]


def refused(replica: MariaDB, source: Followed, position: str, strict: int = 0) -> Row:
    """How the replica's I/O thread ends when it wants to start there."""
    replica.script(
        "STOP SLAVE",
        "RESET SLAVE",
        f"SET GLOBAL gtid_slave_pos='{position}'",
        f"SET GLOBAL gtid_strict_mode={strict}",
    )
    account = source.account
    replica.replicate_from(source.host, source.port, account.user, account.password)
    status = replica.wait_stopped()
    return {key: status[key] for key in ("Last_IO_Errno", "Last_IO_Error", "Slave_IO_Running")}


@pytest.mark.proves("refusals", "holes")
def test_positions_that_are_not_there(
    backend: object, make_relay: MakeRelay, make_replica: MakeMariaDB
) -> None:
    """A replica shows the same whether a real master refuses it or we do; others go on."""
    upstream, server = make_relay(max_binlog_size=262144)
    insert(upstream, 5)
    me = upstream.server_id
    upstream.script("SET SESSION gtid_seq_no=510", "INSERT INTO d.t (a) VALUES ('after a hole')")
    insert(upstream, 5)
    server.wait_position(upstream.gtid_binlog_pos)
    healthy = make_replica().follow(server)
    replica = make_replica(start=True)
    cases = {
        "unknown": (f"0-{me}-9999", 0, "which is not in the master's binlog"),
        "diverged": ("0-33-5", 0, "diverged due to executing extra erroneous"),
        "strict hole": (f"0-{me}-505", 1, "missing the GTID"),
    }
    for name, (position, strict, text) in cases.items():
        wanted = refused(replica, upstream, position, strict)
        assert wanted["Last_IO_Errno"] == 1236, name
        assert text in wanted["Last_IO_Error"]
        assert refused(replica, server, position, strict) == wanted, name
    # A hole is no error without strict mode: it goes on behind it.
    replica.script(
        "STOP SLAVE", "RESET SLAVE", f"SET GLOBAL gtid_slave_pos='0-{me}-505', gtid_strict_mode=0"
    )
    create = str(upstream.q("SHOW CREATE TABLE d.t")[0]["Create Table"])
    replica.script("CREATE DATABASE d", create.replace("`t`", "d.t", 1))
    replica.follow(server)
    replica.wait_gtid(upstream.gtid_binlog_pos)
    assert replica.value("SELECT COUNT(*) FROM d.t") == 6
    insert(upstream)
    assert_equal(upstream, healthy)
    log = server.log()
    assert log.count("dump refused") == len(cases)
    assert "Traceback" not in log


@pytest.mark.proves("purged")
def test_purged_position(backend: object, make_relay: MakeRelay, make_replica: MakeMariaDB) -> None:
    upstream, server = make_relay(max_binlog_size=262144)
    old = insert(upstream, 3)
    insert(upstream, 10, size=190)
    upstream.q("INSERT INTO d.t (a) SELECT a FROM d.t")
    upstream.script("CREATE TABLE d.big (a MEDIUMTEXT)", "FLUSH BINARY LOGS")
    for _ in range(5):
        upstream.q("INSERT INTO d.big VALUES (REPEAT('x', 200000))")
    recent = insert(upstream, 3)
    insert(upstream, 3)
    server.wait_position(upstream.gtid_binlog_pos)
    server.stop()
    (server.directory / "binlog-000000.ibb").unlink()
    server.start()
    newest = upstream.q("SHOW BINARY LOGS")[-1]["Log_name"]

    def purged() -> bool:
        """It leaves out files that a dump is still in, ours."""
        upstream.q(f"PURGE BINARY LOGS TO '{newest}'")
        return len(upstream.q("SHOW BINARY LOGS")) == 1

    until(purged, "old files of the upstream are gone")
    replica = make_replica()
    for position in ("", old):
        wanted = refused(replica, upstream, position)
        assert "required binlog files have been purged" in wanted["Last_IO_Error"]
        assert refused(replica, server, position) == wanted
    # What is still there is served: to a replica that has got that far.
    with RawClient(server) as client:
        assert sum(e[4] == 162 for e in client.dump(recent)) == 3


@pytest.mark.proves("refusals", "logins refused", client="any client")
def test_raw_clients_are_told(make_relay: MakeRelay) -> None:
    upstream, server = make_relay(version="11.8")
    insert(upstream)
    server.wait_position(upstream.gtid_binlog_pos)
    for position in ("0-1-3,0-1-2", "0-1", "x", "0-1-2,,", "0-1-99999999999999999999999", "-1-1-1"):
        wanted = dump_error(upstream, position)
        assert wanted.errno in (1941, 1943), position
        assert str(dump_error(server, position)) == str(wanted)
    error = dump_error(server, None)
    assert (error.errno, error.message) == (  # it has registered
        1236,
        "Slave must enable GTID mode when master uses --binlog-storage-engine: "
        "CHANGE MASTER TO MASTER_USE_GTID=slave_pos",
    )
    for source in (upstream, server):
        with pytest.raises(RemoteError) as refusal:
            RawClient(source, account=Credentials("repl", "wrong"))
        assert str(refusal.value) == (
            "1045 (28000): Access denied for user 'repl'@'127.0.0.1' (using password: YES)"
        )
    with pytest.raises(RemoteError, match=r"1045 .* 'nobody'@'127.0.0.1' \(using password: NO\)"):
        RawClient(server, account=Credentials("nobody", ""))
    assert "Traceback" not in server.log()


@pytest.mark.proves("duplicate server_id")
@pytest.mark.proves("duplicate server_id", client="any client")
def test_a_second_dump_with_the_same_server_id(
    backend: object, make_relay: MakeRelay, make_replica: MakeMariaDB
) -> None:
    upstream, server = make_relay()
    bystander = make_replica().follow(server)
    replica = make_replica().follow(server)
    replica.wait_gtid(insert(upstream))
    with RawClient(server) as first, RawClient(server) as second:
        first.start_dump(server_id=7)
        next(events := first.events())
        second.start_dump(server_id=7)
        with pytest.raises(RemoteError) as ended:
            list(events)
        assert ended.value.errno == 4052
        assert ended.value.message.startswith(
            "A slave with the same server_id is already connected"
        )
        next(second.events())
        # A replica that is pushed out that way comes back by itself.
        with RawClient(server) as impostor:
            impostor.start_dump(server_id=replica.server_id)
            try:
                next(impostor.events())
            except RemoteError as error:
                if error.errno != 4052:  # the replica was back before that was sent
                    raise
            insert(upstream)
            assert_equal(upstream, replica, bystander)
    assert server.log().count(f"server_id {bystander.server_id}, position") == 1
    assert server.log().count(f"server_id {replica.server_id}, position") == 3


@pytest.mark.proves("logins refused")
def test_without_gtid_and_with_a_wrong_password(
    backend: object, make_relay: MakeRelay, make_replica: MakeMariaDB
) -> None:
    upstream, server = make_relay()
    healthy = make_replica().follow(server)
    account = server.account

    by_file = make_replica()
    by_file.replicate_from("127.0.0.1", server.port, account.user, account.password, gtid="no")
    until(lambda: by_file.replica_status()["Slave_IO_Running"] == "No", "a replica that stops")
    assert by_file.replica_status()["Last_IO_Errno"] == 1236
    assert by_file.replica_status()["Last_IO_Error"] == (
        "Got fatal error 1236 from master when reading data from binary log: 'Slave must enable GTID mode when master "
        "uses --binlog-storage-engine: CHANGE MASTER TO MASTER_USE_GTID=slave_pos'"
    )

    stranger = make_replica()
    stranger.replicate_from("127.0.0.1", server.port, account.user, "wrong")
    until(lambda: stranger.replica_status()["Last_IO_Errno"] == 1045, "access denied")
    assert stranger.replica_status()["Slave_IO_Running"] == "Connecting"
    assert (
        "Access denied for user 'repl'@'127.0.0.1' (using password: YES)"
        in (stranger.replica_status()["Last_IO_Error"])
    )
    insert(upstream)
    assert_equal(upstream, healthy)
    # Once it does as it is told, it is served.
    by_file.q("STOP SLAVE")
    by_file.follow(server)
    assert_equal(upstream, healthy, by_file)


@pytest.mark.proves("logins refused")
def test_server_id_of_ours(
    backend: object, make_replica: MakeMariaDB, binlog_server: MakeBinlogServer
) -> None:
    server = binlog_server(server_id=77)
    replica = make_replica(server_id=77)
    account = server.account
    replica.replicate_from("127.0.0.1", server.port, account.user, account.password)
    status = replica.wait_stopped()
    assert status["Last_IO_Errno"] == 1593
    assert "equal MariaDB server ids" in status["Last_IO_Error"]
