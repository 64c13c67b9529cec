"""Following a running server."""

from __future__ import annotations

import pickle
import random
import threading
import time
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from typing import Final

import pytest
from binlog_pipeline.errors import SourceError
from binlog_pipeline.sources.admission import BatchLimits, next_end
from binlog_pipeline.sources.dump.fresh_groups import FreshGroups, FreshSlice
from binlog_pipeline.sources.server import ServerFeed, ServerSlice
from binlog_pipeline.spark.stream_reader import BinlogStreamReader
from binlog_pipeline.views.raw import RawView
from binlog_protocol.events.header import split_events
from binlog_protocol.gtid import SlavePosition

from binlog_server.testing.mariadb import MariaDB
from tests.kit.backends import Backend
from tests.kit.fixtures import MakeBinlogServer, MakeMariaDB

from .sources import address_of, between, numbers, options_of, read, read_all, source_of

DUMPS = "SELECT ID FROM information_schema.PROCESSLIST WHERE COMMAND = 'Binlog Dump'"


PATIENCE_S: Final = 30.0


def table(upstream: MariaDB) -> SlavePosition:
    upstream.script("CREATE DATABASE d", "CREATE TABLE d.t (a INT, b LONGBLOB)")
    return SlavePosition.parse(upstream.gtid_binlog_pos)


@pytest.mark.each_version
@pytest.mark.by_turns(2)
@pytest.mark.parametrize("ours", [False, True], ids=["mariadb", "ours"])
def test_what_comes_is_there_at_once(
    ours: bool, backend: Backend, make_upstream: MakeMariaDB, binlog_server: MakeBinlogServer
) -> None:
    upstream = make_upstream()
    server = binlog_server(upstream=upstream) if ours else upstream
    position = table(upstream)
    feed = ServerFeed(address_of(server))
    if ours:
        server.q("SELECT MASTER_GTID_WAIT(%s, 20)", str(position))
    assert read(feed.after(position, 0.05)) == []
    series: list[list[float]] = []
    # A busy machine may be late sometimes, and for a while. Who only looked from time to time would be late always.
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end and not any(sorted(waits)[5] < 0.1 for waits in series):
        waits = []
        for _ in range(10):
            done: list[float] = []

            def commit(done: list[float] = done) -> None:
                time.sleep(0.02)
                upstream.q("INSERT INTO d.t VALUES (1, '')")
                done.append(time.monotonic())

            thread = threading.Thread(target=commit)
            thread.start()
            found = read(feed.after(position, 20))
            came = time.monotonic()
            thread.join()
            waits.append(came - done[0])
            last = next(iter(position)).seq_no
            assert numbers(found) == [last + 1]
            position = position.with_gtid(found[-1].gtid)
        series.append(waits)
    feed.close()
    assert sorted(series[-1])[5] < 0.1, series


@pytest.mark.each_version
@pytest.mark.by_turns(2)
def test_goes_on_where_a_batch_ended(backend: Backend, make_upstream: MakeMariaDB) -> None:
    """On one connection, wherever that was; and anywhere else on another one."""
    upstream = make_upstream()
    begin = table(upstream)
    upstream.script(
        *("INSERT INTO d.t VALUES (1, '')",) * 10,
        "INSERT INTO d.t SELECT seq, REPEAT('x', 20000) FROM d.seq_1_to_250",  # a large group
        *("INSERT INTO d.t VALUES (1, '')",) * 10,
    )
    source = source_of(upstream)
    feed = source.feed()
    ends = [begin]
    dumps = []
    while ends[-1] != source.latest():
        ends.append(next_end(feed, ends[-1], BatchLimits(transactions=3), 0))
        dumps.append(upstream.q(DUMPS))
    assert len(ends) == 8
    assert all(ids == dumps[0] and len(ids) == 1 for ids in dumps)
    found = [
        group
        for start, stop in pairwise(ends)
        for group in read_all(source, between(str(start), str(stop)))
    ]
    assert numbers(found) == list(range(3, 24))
    for start in (ends[3], ends[0], ends[-2]):
        expected = read_all(source, between(str(start), None))
        assert read(feed.after(start, 0)) == expected
    feed.close()


@pytest.mark.each_version
@pytest.mark.by_turns(2)
def test_batches_begin_at_a_place_in_a_file(
    backend: Backend, make_upstream: MakeMariaDB, rng: random.Random
) -> None:
    """Where the server is slow to find a GTID; and by GTID, if something else is there."""
    upstream = make_upstream()
    position = table(upstream)
    with upstream.connect() as connection, connection.cursor() as cursor:
        for _ in range(40):
            cursor.execute(f"SET SESSION gtid_domain_id = {rng.choice([0, 3])}")
            if rng.random() < 0.15:
                cursor.execute("FLUSH BINARY LOGS")
            cursor.execute("INSERT INTO d.t VALUES (1, '')")
        cursor.execute("INSERT INTO d.t SELECT seq, REPEAT('x', 20000) FROM d.seq_1_to_250")
        cursor.execute("INSERT INTO d.t VALUES (1, '')")
    source = source_of(upstream)
    whole = read_all(source, between(str(position), None))
    feed = source.feed()
    asking = replace(source, fresh=FreshGroups())  # what came to the feed is read once more
    found = []
    places = []
    while position != source.latest():
        end = next_end(feed, position, BatchLimits(transactions=rng.randint(1, 4)), 0)
        (part,) = asking.slices(between(str(position), str(end)), 1)
        assert isinstance(part, ServerSlice)
        found += read(part.read())
        places.append(part.place)
        if part.place is not None:
            for wrong in (
                part.place._replace(offset=part.place.offset + 7),
                part.place._replace(offset=4, gtid=part.place.gtid._replace(seq_no=1)),
                part.place._replace(file="upstream-bin.999999"),
            ):
                again = replace(part, place=wrong)
                assert read(again.read()) == read(part.read())
        position = end
    feed.close()
    assert found == whole
    known = sum(place is not None for place in places)
    if backend.version == "11.8":
        assert known == 0
    else:  # of the first group that was seen it is not known where it begins
        assert len(places) - known in (1, 2)


@pytest.mark.any_version
def test_a_small_batch_has_its_groups_with_it(
    make_upstream: MakeMariaDB, rng: random.Random
) -> None:
    """Those that a dump would give."""
    upstream = make_upstream()
    position = table(upstream)
    with upstream.connect() as connection, connection.cursor() as cursor:
        for _ in range(60):
            cursor.execute(f"SET SESSION gtid_domain_id = {rng.choice([0, 3])}")
            cursor.execute(f"SET SESSION server_id = {rng.choice([1, 7])}")
            if rng.random() < 0.1:
                cursor.execute("FLUSH BINARY LOGS")
            cursor.execute("INSERT INTO d.t VALUES (1, REPEAT('x', %s))", (rng.randrange(9000),))
    source = source_of(upstream)
    asking = replace(source, fresh=FreshGroups())
    with closing(source.feed()) as feed:
        while position != asking.latest():
            end = next_end(feed, position, BatchLimits(transactions=rng.randint(1, 9)), 0)
            wanted = between(str(position), str(end))
            some = replace(wanted, domains=frozenset({3}), servers=frozenset({1}))
            assert feed.latest() == asking.latest()
            for one in (wanted, some, wanted):  # Spark may ask again
                (part,) = source.slices(one, 1)
                assert isinstance(part, FreshSlice)
                expected = [row for other in asking.slices(one, 1) for row in read(other.read())]
                copy = pickle.loads(pickle.dumps(part))
                assert read(copy.read()) == read(part.read()) == expected
            copied = pickle.loads(pickle.dumps(source))
            for other in (copied, replace(source, fresh=FreshGroups())):
                assert not any(isinstance(part, FreshSlice) for part in other.slices(wanted, 1))
            position = end


@pytest.mark.any_version
def test_a_batch_that_is_not_small_or_was_planned_before_is_read_from_the_server(
    make_upstream: MakeMariaDB,
) -> None:
    upstream = make_upstream()
    position = table(upstream)
    source = source_of(upstream)

    def planned(start: SlavePosition, end: SlavePosition) -> type:
        (part,) = source.slices(between(str(start), str(end)), 1)
        found = read(part.read())
        assert found == read_all(
            replace(source, fresh=FreshGroups()), between(str(start), str(end))
        )
        return type(part)

    with closing(source.feed()) as feed:
        upstream.script(*["INSERT INTO d.t VALUES (1, '')"] * 4)
        end = next_end(feed, position, BatchLimits(), 0)
        (inner,) = next_end(feed, position, BatchLimits(transactions=2), 0)
        next_end(feed, position, BatchLimits(), 0)
        assert planned(position, end) is FreshSlice
        assert planned(position, SlavePosition([inner])) is FreshSlice
        assert planned(SlavePosition([inner]), end) is ServerSlice
        upstream.script(*["INSERT INTO d.t VALUES (1, REPEAT('x', 90000))"] * 7)
        last, end = end, next_end(feed, end, BatchLimits(), 0)
        assert planned(last, end) is ServerSlice
        assert planned(position, last) is ServerSlice
        upstream.script("INSERT INTO d.t VALUES (1, REPEAT('x', 9000000))")
        last, end = end, next_end(feed, end, BatchLimits(), 0)
        assert planned(last, end) is ServerSlice


@pytest.mark.any_version
def test_a_batch_makes_no_connections(make_upstream: MakeMariaDB) -> None:
    upstream = make_upstream()
    options = options_of(upstream, view="raw", startingPosition=str(table(upstream)))
    reader = BinlogStreamReader(options, RawView(), RawView().schema.names)
    start = reader.initialOffset()
    counts = []
    for _ in range(4):
        upstream.script("INSERT INTO d.t VALUES (1, '')")
        counts.append(int(upstream.q("SHOW GLOBAL STATUS LIKE 'Connections'")[0]["Value"]))
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        assert reader.reportLatestOffset() == end
        (part,) = reader.partitions(start, end)
        assert sum(batch.num_rows for batch in reader.read(part)) == 1
        start = end
    reader.stop()
    # Those of the statements here; the first batch connects for the stream, and to ask.
    ours = counts[3] - counts[2]
    assert counts[2] - counts[1] == ours
    upstream.script("DO 1")
    plain = int(upstream.q("SHOW GLOBAL STATUS LIKE 'Connections'")[0]["Value"]) - counts[3]
    assert ours == plain


@pytest.mark.each_version
@pytest.mark.by_turns(2)
def test_ends_though_more_and_more_comes(backend: Backend, make_upstream: MakeMariaDB) -> None:
    upstream = make_upstream()
    position = table(upstream)
    feed = source_of(upstream).feed()
    stop = threading.Event()

    def load() -> None:
        with upstream.connect() as connection, connection.cursor() as cursor:
            while not stop.is_set():
                cursor.execute("INSERT INTO d.t VALUES (1, '')")

    thread = threading.Thread(target=load)
    thread.start()
    found = []
    try:
        for _ in range(20):
            some = read(feed.after(position, 5))
            position = position.with_gtid(some[-1].gtid)
            found += numbers(some)
    finally:
        stop.set()
        thread.join()
        feed.close()
    assert found == list(range(3, 3 + len(found)))


@pytest.mark.any_version
def test_a_server_that_starts_again(backend: Backend, make_upstream: MakeMariaDB) -> None:
    upstream = make_upstream()
    position = table(upstream)
    feed = source_of(upstream, connectTimeout="20").feed()
    assert read(feed.after(position, 0)) == []
    # While somebody waits.
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.extend(numbers(read(feed.after(position, 20)))))
    thread.start()
    upstream.wait(DUMPS, lambda rows: rows)
    upstream.restart()
    upstream.q("INSERT INTO d.t VALUES (1, '')")
    thread.join()
    assert found == [3]
    # While nobody does, and for longer than is tried.
    impatient = source_of(upstream, connectTimeout="1").feed()
    assert numbers(read(impatient.after(position, 0))) == [3]
    upstream.stop()
    with pytest.raises(SourceError, match=r"asking where its binlog ends: .*is the server up"):
        read(impatient.after(position, 0))
    upstream.start()
    upstream.q("INSERT INTO d.t VALUES (1, '')")
    assert numbers(read(impatient.after(position, 0))) == [3, 4]
    impatient.close()
    feed.close()


def test_large_groups_are_asked_for_again(make_upstream: MakeMariaDB) -> None:
    upstream = make_upstream()
    position = table(upstream)
    upstream.q("INSERT INTO d.t SELECT seq, REPEAT('x', 20000) FROM d.seq_1_to_1100")
    source = source_of(upstream)
    with closing(source.feed()) as feed:
        (groups,) = feed.after(position, 0)
    assert groups.large is not None
    (event,) = split_events(groups.payloads[0])
    assert len(event) < 100
    (whole,) = read_all(source, between(str(position), None))
    for _ in range(2):
        assert b"".join(groups.pieces(0)) == whole.payload
