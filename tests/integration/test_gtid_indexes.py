"""GTID indexes of traditional binlog files beside those of a real 11.8: the same bytes, and each uses the other's."""

from __future__ import annotations

import dataclasses
import random
from contextlib import closing

from binlog_protocol.gtid import BinlogState, parse_gtid_list
from binlog_storage.classic.options import ClassicOptions
from binlog_storage.classic.store import ClassicEngine
from binlog_storage.disk.disk import OsDisk
from binlog_storage.engine import Position

from binlog_server.testing.local import LocalMariaDB
from tests.kit.backends import Backend
from tests.kit.fixtures import MakeMariaDB
from tests.storage.classic.index_files import groups_of, index_of, state_behind, taken_apart

VERSION = "11.8"
# Size of a page, bytes between records, domains, servers, groups.
FILES = [
    (64, 1, 1, 1, 60),
    (65, 500, 3, 2, 120),
    (512, 1, 1, 1, 120),
    (512, 1, 12, 3, 200),
    (1000, 700, 40, 4, 150),
    (4096, 1, 200, 1, 250),
]


def status(server: LocalMariaDB) -> tuple[int, int]:
    rows = server.q("SHOW GLOBAL STATUS LIKE 'Binlog_gtid_index%'")
    hit, miss = (int(row["Value"]) for row in rows)
    return hit, miss


def write(server: LocalMariaDB, rng: random.Random) -> None:
    """One file for each of `FILES`."""
    seq_no = 10
    for page_size, span_min, domains, servers, groups in FILES:
        server.q(f"SET GLOBAL binlog_gtid_index_page_size = {page_size}")
        server.q(f"SET GLOBAL binlog_gtid_index_span_min = {span_min}")
        server.q("FLUSH BINARY LOGS")
        with server.connect() as connection, connection.cursor() as cursor:
            for _ in range(groups):
                seq_no += 1
                cursor.execute(
                    f"SET SESSION gtid_domain_id = {rng.randrange(domains)}, gtid_seq_no = {seq_no}, "
                    f"server_id = {rng.randrange(1, servers + 1)}"
                )
                cursor.execute("INSERT INTO d.t (a) VALUES ('x')")
    server.q("FLUSH BINARY LOGS")


def test_beside_a_real_server(make_upstream: MakeMariaDB, rng: random.Random) -> None:
    server = make_upstream(
        "--slave-connections-needed-for-purge=0", backend=Backend("local", VERSION)
    )
    assert isinstance(server, LocalMariaDB)
    server.make_table()
    write(server, rng)
    last = server.q("SHOW MASTER STATUS")[0]["File"]
    server.stop()
    files = [server.datadir / f"upstream-bin.{number:06}" for number in range(2, 2 + len(FILES))]
    assert files[-1].name < last
    theirs = {path: path.with_name(f"{path.name}.idx").read_bytes() for path in files}
    for path, (page_size, span_min, *_) in zip(files, FILES, strict=True):
        ours = index_of(path, page_size, span_min)
        assert len(ours) == len(theirs[path])
        # The order of GTIDs inside a record is that of MariaDB's hash tables.
        assert taken_apart(ours) == taken_apart(theirs[path])
    assert index_of(files[0], 64, 1) == theirs[files[0]]  # one domain, one server

    # We use theirs.
    options = ClassicOptions("upstream-bin", slave_connections_needed_for_purge=0)
    expected: dict[Position, BinlogState] = {}
    for path in files:
        for offset, _ in rng.sample(groups_of(path), 5):
            place = Position(int(path.suffix[1:]), offset)
            expected[place] = state_behind(path, offset)
    with closing(ClassicEngine(OsDisk(server.datadir), options)) as engine:
        for place, state in expected.items():
            assert engine.state_at(place) == state
        told = engine.counters()
        assert told["Binlog_gtid_index_miss"] == 0
        assert told["Binlog_gtid_index_hit"] == len(expected)

    # They use ours: made again of each file, and of one that we have written.
    for path in files:
        path.with_name(f"{path.name}.idx").unlink()
    small = dataclasses.replace(
        options, binlog_gtid_index_page_size=128, binlog_gtid_index_span_min=1
    )
    with closing(ClassicEngine(OsDisk(server.datadir), small)) as engine:
        for place, state in expected.items():
            assert engine.state_at(place) == state
        for _ in files:
            engine.step()
    server.start()
    hit, miss = status(server)
    for place, state in expected.items():
        name = f"upstream-bin.{place.file_no:06}"
        said = server.value(f"SELECT BINLOG_GTID_POS('{name}', {place.offset})")
        assert set(parse_gtid_list(said)) == set(state.position())
    assert status(server) == (hit + len(expected), miss)
    assert "Error reading binlog GTID index" not in server.log()
