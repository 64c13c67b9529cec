"""The main job: a real upstream, our server, real replicas with the same tables."""

from __future__ import annotations

from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB


def test_smoke(
    backend: object,
    make_upstream: MakeMariaDB,
    make_replica: MakeMariaDB,
    binlog_server: MakeBinlogServer,
) -> None:
    upstream = make_upstream()
    server = binlog_server(upstream=upstream, server_id=99, max_binlog_size=262144)
    upstream.script(
        "create database d", "create table d.t(a int primary key auto_increment, b varchar(100))"
    )
    for i in range(50):
        upstream.q("insert into d.t(b) values(%s)", f"row {i}" * 10)
    replica = make_replica().follow(server)
    replica.wait_gtid(upstream.gtid_binlog_pos)
    upstream.q("insert into d.t(b) select b from d.t")
    replica.wait_gtid(upstream.gtid_binlog_pos)
    assert replica.checksum(["d.t"]) == upstream.checksum(["d.t"])
    assert server.stop() is None
