"""A replica whose position was purged here: served from the archive, then from the store, without a seam."""

from __future__ import annotations

import asyncio
import errno
import struct
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from binlog_protocol.gtid import Gtid
from binlog_storage.archive import places, publisher
from binlog_storage.archive.merging import Merger
from binlog_storage.archive.publisher import ArchivePublisher, ObjectShelf
from binlog_storage.binlog.options import StoreOptions
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.classic.options import ClassicOptions
from binlog_storage.classic.store import ClassicEngine
from binlog_storage.engine import BinlogEngine
from binlog_storage.testing.memory_disk import MemoryDisk

from binlog_server.dumps import archive_parts
from tests.binlog_server.lab import WITH_ROOT, Lab, Replica, until
from tests.storage.archive.memory_objects import MemoryObjects
from tests.storage.groups import append_all, group, marker

STORE = StoreOptions(max_binlog_size=1 << 16, slave_connections_needed_for_purge=0)


def ibb() -> BinlogEngine:
    return IbbEngine(MemoryDisk(), STORE)


def traditional() -> BinlogEngine:
    return ClassicEngine(MemoryDisk(), ClassicOptions(slave_connections_needed_for_purge=0))


class SlowObjects(MemoryObjects):
    """Parts come when `gate` is open."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.asked: list[str] = []
        self.pieces_taken = 0

    def _pieces(self, data: bytes) -> Iterator[bytes]:
        for piece in super()._pieces(data):
            for at in range(0, len(piece), 100):
                assert self.gate.wait(30)
                self.pieces_taken += 1
                yield piece[at : at + 100]

    def get(self, name: str) -> Any:
        if name.startswith("part-"):
            self.asked.append(name)
        return super().get(name)


@pytest.fixture
def objects(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowObjects]:
    made = SlowObjects()
    for module in (places, publisher):
        monkeypatch.setattr(module, "open_objects", lambda url: made)
    yield made
    made.gate.set()


class Archived(Lab):
    """A lab in which the test makes the rounds of the archive: each a part. `form`: of all of them."""

    form = "PARQUET"

    def __init__(self, engine: BinlogEngine | None = None, **options: Any) -> None:
        super().__init__(
            engine or ibb(),
            binlog_archive_url=MemoryObjects.where,
            binlog_archive_format=self.form,
            **{"users": WITH_ROOT, **options},
        )
        self.server.rounds = [one for one in self.server.rounds if one.what != "archive"]
        assert self.server.archive_parts is not None
        self.parts = self.server.archive_parts

    async def round(self) -> None:
        hold = self.server.archive_hold
        assert hold is not None
        await asyncio.to_thread(hold.round)

    async def archive(self, *parts: str) -> None:
        """A part for each history, and a new file behind it."""
        for history in parts:
            self.publish(history)
            await self.round()
            self.engine.flush()

    def purge(self) -> None:
        """All that may go."""
        self.engine.purge_to(self.engine.written_end.file_no)


@pytest.fixture(params=["PARQUET", "IBB"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both forms of parts."""
    monkeypatch.setattr(Archived, "form", request.param)


BOTH_FORMS = pytest.mark.usefixtures("form")


async def received(replica: Replica, last: str) -> list[bytes]:
    """The events of groups and start markers, as they come, up to that group."""
    events = list[bytes]()
    gtid = Gtid(0, 0, 0)
    while True:
        event = await replica.event()
        if event[4] == 162:
            seq_no, domain_id = struct.unpack_from("<QI", event, 19)
            gtid = Gtid(domain_id, int.from_bytes(event[5:9], "little"), seq_no)
        # ROTATE, artificial descriptions, GTID_LIST, heartbeats
        if event[4] not in (4, 163, 27) and not (event[4] == 15 and not any(event[:4])):
            events.append(event)
        if event[4] == 16 and str(gtid) == last:
            return events


def groups_in(events: list[bytes]) -> str:
    found = []
    for event in events:
        if event[4] == 162:
            seq_no, domain_id = struct.unpack_from("<QI", event, 19)
            found.append(str(Gtid(domain_id, int.from_bytes(event[5:9], "little"), seq_no)))
        elif event[4] == 15:
            found.append("start")
    return ",".join(found)


@BOTH_FORMS
async def test_into_the_live_stream(objects: SlowObjects) -> None:
    """Each group once, in order; whatever is committed behind the seam comes, too."""
    async with Archived() as lab:
        await lab.archive("0-1-1,0-1-2", "0-1-3", "0-1-4,1-1-1")
        lab.purge()
        lab.publish("0-1-5")
        replica = await lab.replica("0-1-1")
        await replica.opening()
        assert groups_in(await received(replica, "0-1-5")) == "0-1-2,0-1-3,0-1-4,1-1-1,0-1-5"
        lab.publish("0-1-6,1-1-2")
        lab.server.syncer.request()
        assert groups_in(await received(replica, "1-1-2")) == "0-1-6,1-1-2"
        await until(lambda: lab.parts.replicas == 0)
        connection = next(one for one in lab.server.connections if one.dump_server_id)
        assert connection.lag_state == ""


@pytest.mark.by_turns(2)
@BOTH_FORMS
@pytest.mark.parametrize("make", [ibb, traditional])
@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"master_binlog_checksum": "CRC32"},
        {"slave_until_gtid": "0-1-7,1-1-1", "last": "0-1-7"},
        {"rpl_semi_sync_slave": 0, "slave_gtid_strict_mode": 1},
    ],
    ids=str,
)
async def test_as_from_the_store(
    make: Callable[[], BinlogEngine], wanted: dict[str, Any], objects: SlowObjects
) -> None:
    """The same groups and start markers, byte by byte; of traditional files without the places in them."""
    wanted = dict(wanted)
    last = wanted.pop("last", "0-1-8")
    seen = []
    for purge in (False, True):
        objects.objects.clear()
        async with Archived(make()) as lab:
            await lab.archive("0-1-1,0-1-2", "0-1-3,1-1-1,0-1-4")
            append_all(lab.engine, [marker(7)])
            await lab.archive("0-1-5,0-1-6")
            append_all(lab.engine, [marker(8), marker(9)])
            await lab.archive("")
            if purge:
                lab.purge()
            append_all(lab.engine, [marker(10)])
            lab.publish("0-1-7,1-1-2,0-1-8")
            replica = await lab.replica("0-1-1", **wanted)
            events = await received(replica, last)
            if make is traditional:
                events = [
                    without_place(event, "master_binlog_checksum" in wanted)
                    for event in events
                    if event[4] not in (15, 161)  # of which each file has one
                ]
            seen.append(events)
            assert bool(objects.asked) == purge
    assert groups_in(seen[1]) == groups_in(seen[0])
    assert seen[1] == seen[0]


def without_place(event: bytes, has_checksum: bool) -> bytes:
    """Without the end position, and the checksum that goes over it."""
    return event[:13] + bytes(4) + event[17 : len(event) - 4 * has_checksum]


async def test_one_that_comes_before_the_archive_was_seen(objects: SlowObjects) -> None:
    """As behind a start with an object store that is slow: it is looked at for this replica."""
    async with Archived() as lab:
        await lab.archive("0-1-1,0-1-2", "0-1-3", "0-1-4")
        lab.purge()
        hold = lab.server.archive_hold
        assert hold is not None
        hold._archive = None
        replica = await lab.replica("0-1-1")
        await replica.opening()
        assert groups_in(await received(replica, "0-1-4")) == "0-1-2,0-1-3,0-1-4"


@BOTH_FORMS
async def test_several_at_different_places(objects: SlowObjects) -> None:
    """Each part is fetched once, whoever reads it when."""
    async with Archived() as lab:
        await lab.archive(*(f"0-1-{n}" for n in range(1, 9)))
        lab.purge()
        replicas = [
            await lab.replica(f"0-1-{n}" if n else "", server_id=100 + n) for n in (0, 5, 2, 7)
        ]
        for replica, first in zip(replicas, (1, 6, 3, 8), strict=True):
            got = groups_in(await received(replica, "0-1-8"))
            assert got == ",".join(f"0-1-{n}" for n in range(first, 9))
        assert (
            len(objects.asked) == len(set(objects.asked)) == 7
        )  # the last one is in the store, too
        assert lab.parts.fetched == 7


@BOTH_FORMS
@pytest.mark.parametrize("at", [1, 2, 3])
async def test_parts_become_one_while_they_are_read(at: int, objects: SlowObjects) -> None:
    """A replica that reads one of them, and finds the next ones gone, goes on in the one that has them: once each."""
    async with Archived() as lab:
        await lab.archive(*(f"0-1-{n}" for n in range(1, 7)))
        lab.purge()
        lab.publish("0-1-7")
        objects.gate.clear()
        replica = await lab.replica(f"0-1-{at - 1}" if at > 1 else "")
        await until(lambda: bool(objects.asked))
        behind_gate = MemoryObjects()  # the same ones, for another server
        behind_gate.objects, behind_gate._tags = objects.objects, 1000
        other = ArchivePublisher(ObjectShelf(behind_gate))
        assert Merger(1 << 20, 4).step(other)
        assert other.manifest is not None
        for name in (name for one in other.manifest.retired for name in one.names):
            objects.delete(name)  # as after the grace
        other.close()
        objects.gate.set()
        got = groups_in(await received(replica, "0-1-7"))
        assert got == ",".join(f"0-1-{n}" for n in range(at, 8))


async def test_the_cache_is_bounded(objects: SlowObjects) -> None:
    """Parts that nobody reads go, the least recently used first; without any room nothing is fetched ahead."""
    async with Archived(binlog_archive_cache_size=0) as lab:
        await lab.archive(*(f"0-1-{n}" for n in range(1, 5)))
        lab.purge()
        lab.publish("0-1-5")
        for count in (1, 2):
            replica = await lab.replica("")
            await received(replica, "0-1-5")
            await until(lambda: not lab.parts.bytes_here)
            assert len(objects.asked) == 3 * count  # the last one is in the store, too
    assert not list(lab.parts.log._readers.values())


@BOTH_FORMS
async def test_a_large_group(objects: SlowObjects) -> None:
    """It is in the archive, and its pieces come from there."""
    engine = ibb()
    async with Archived(engine) as lab:
        engine.large_group_bytes = 64 << 10
        append_all(engine, [group(Gtid(0, 1, 1), 5 << 20), group(Gtid(0, 1, 2), 5 << 20)])
        await lab.archive("0-1-3")
        lab.purge()
        lab.publish("0-1-4")
        replica = await lab.replica("")
        size = 0
        while True:
            event = await replica.event()
            size += len(event)
            if event[4] == 162 and struct.unpack_from("<Q", event, 19) == (4,):
                break
        assert size > 10 << 20


REFUSED = "Could not find GTID state requested by slave in any binlog files"


async def test_before_the_archive(objects: SlowObjects) -> None:
    async with Archived() as lab:
        lab.publish("0-1-1,0-1-2")
        lab.engine.flush()
        assert lab.server.archive_hold is not None
        lab.server.archive_hold._hold.release()
        lab.purge()
        await lab.archive("0-1-3")
        replica = await lab.replica("0-1-1")
        errno, text = await replica.refused()
        assert errno == 1236
        assert text.startswith(REFUSED), text
        assert "the archive s3://bucket/archive begins at '0-1-2'" in text


async def test_a_gap_behind_the_archive(objects: SlowObjects) -> None:
    """Everything up to there comes first: it is sound."""
    async with Archived() as lab:
        await lab.archive("0-1-1", "0-1-2")
        assert lab.server.archive_hold is not None
        lab.server.archive_hold._hold.release()
        lab.publish("0-1-3")
        lab.engine.flush()
        lab.purge()
        lab.publish("0-1-4")
        replica = await lab.replica("")
        assert groups_in(await received(replica, "0-1-2")) == "0-1-1,0-1-2"
        errno, text = await replica.refused()
        assert errno == 1236
        assert (
            "ends at '0-1-2', and the binlog begins at '0-1-3': what is between is in neither"
            in text
        )


async def test_another_history(objects: SlowObjects) -> None:
    """An archive whose last group is another one than the store's is not read at all."""
    async with Archived() as other:
        append_all(other.engine, [group(Gtid(0, 1, n), 700) for n in (1, 2, 3)])
        await other.archive("")
    async with Archived() as lab:
        lab.publish("0-1-1,0-1-2")
        lab.engine.flush()
        assert lab.server.archive_hold is not None
        lab.server.archive_hold._hold.release()
        lab.purge()
        lab.publish("0-1-3")
        await asyncio.to_thread(lab.server.archive_hold.refresh)
        errno, text = await (await lab.replica("")).refused()
        assert errno == 1236
        assert "it is of another history" in text
        assert not objects.asked


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between tries, none of which is made."""
    pauses = list[float]()

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(archive_parts.ArchiveParts, "pause", staticmethod(sleep))
    return pauses


@pytest.mark.parametrize("fault", ["down", "half"])
async def test_an_object_store_that_fails(
    fault: str, objects: SlowObjects, no_pause: list[float]
) -> None:
    """It is asked again, and when it answers in time nobody notices; else 1236 says why. The next replica asks anew."""
    async with Archived() as lab:
        await lab.archive("0-1-1", "0-1-2")
        lab.purge()
        objects.down, objects.cut = fault == "down", 50 if fault == "half" else None
        errno, text = await (await lab.replica("")).refused()
        assert errno == 1236
        assert "503 Service Unavailable" in text or "the connection was closed" in text
        assert len(no_pause) == 2
        assert lab.parts.failed == 3
        objects.down, objects.cut = False, None
        await received(await lab.replica(""), "0-1-2")


@pytest.mark.parametrize("times", [1, 99])
async def test_a_full_disk_for_parts(
    times: int,
    objects: SlowObjects,
    no_pause: list[float],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What nobody reads makes room; where that is not enough the replica waits, and everything else goes on."""
    real, failed = tempfile.TemporaryFile, 0

    def full(*arguments: Any, **options: Any) -> Any:
        nonlocal failed
        if failed < times:
            failed += 1
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*arguments, **options)

    async with Archived() as lab:
        await lab.archive(*(f"0-1-{n}" for n in range(1, 5)))
        lab.purge()
        lab.publish("0-1-5")
        await received(await lab.replica("0-1-2"), "0-1-5")
        await until(lambda: lab.parts.replicas == 0)
        assert lab.parts.bytes_here
        monkeypatch.setattr(tempfile, "TemporaryFile", full)
        replica = await lab.replica("", server_id=102)
        assert groups_in(await received(replica, "0-1-5")).startswith("0-1-1,0-1-2,0-1-3")
        assert lab.parts.failed == times
        assert max(no_pause) == (2.0 if times == 1 else 60.0)
        (told,) = (line for line in caplog.messages if "No space left on device" in line)
        assert told.endswith("Replicas wait until there is room")
        lab.publish("0-1-6")
        await received(await lab.replica("0-1-5", server_id=103), "0-1-6")


async def test_a_hole(objects: SlowObjects) -> None:
    """A part that is not there: the text names it. What is in front of it has come."""
    async with Archived() as lab:
        await lab.archive("0-1-1", "0-1-2", "0-1-3")
        lab.purge()
        (name,) = (name for name in objects.objects if name.startswith("part-00000002"))
        del objects.objects[name]
        replica = await lab.replica("")
        assert groups_in(await received(replica, "0-1-1")) == "0-1-1"
        errno, text = await replica.refused()
        assert errno == 1236
        assert f"{name} (groups 0-1-2 to 0-1-2): it is missing" in text


async def test_heartbeats_while_a_part_is_fetched(objects: SlowObjects) -> None:
    """In front of the first part as well; the stream has begun then."""
    async with Archived() as lab:
        await lab.archive("0-1-1", "0-1-2")
        lab.purge()
        objects.gate.clear()
        replica = await lab.replica("", master_heartbeat_period=1_000_000)
        await replica.opening()
        assert [(await replica.event())[4] for _ in range(3)] == [27] * 3
        objects.gate.set()
        await received(replica, "0-1-2")


async def test_who_goes_ends_the_fetch(objects: SlowObjects) -> None:
    """Of whoever was the last to want it; the thread ends with the next piece that comes."""
    async with Archived() as lab:
        await lab.archive("0-1-1", "0-1-2")
        lab.purge()
        objects.gate.clear()
        for server_id in (100, 101):
            await lab.replica("", server_id=server_id)
        await until(lambda: [one.wanted for one in lab.parts._fetches.values()] == [2])
        await until(lambda: bool(objects.asked))
        root = await lab.root()
        (fetch,) = lab.parts._fetches.values()
        for left in (1, 0):
            dumps = [c.id for c in lab.server.connections if c.dump_server_id]
            await root.query(f"KILL {dumps[0]}")
            await until(lambda left=left: (lab.parts.replicas, fetch.wanted) == (left, left))  # type: ignore[misc]
        assert not lab.parts._fetches
        taken = objects.pieces_taken
        objects.gate.set()
        assert taken <= objects.pieces_taken <= taken + 1
        await received(await lab.replica(""), "0-1-2")


async def test_semi_sync_behind_the_seam(objects: SlowObjects) -> None:
    """Archived groups are acknowledged to nobody's use; with the store's the replica counts."""
    async with Archived(rpl_semi_sync_master_enabled=True) as lab:
        await lab.archive("0-1-1", "0-1-2")
        lab.purge()
        lab.publish("0-1-3")
        objects.gate.clear()
        await lab.replica("", rpl_semi_sync_slave=1)
        await until(lambda: lab.parts.replicas == 1)
        assert lab.server.semi_sync.clients == 0
        objects.gate.set()
        await until(lambda: lab.server.semi_sync.clients == 1)
        assert lab.parts.fetched == 1


async def test_explain_gtid(objects: SlowObjects) -> None:
    async with Archived() as lab:
        lab.publish("0-1-1")
        lab.engine.flush()
        assert lab.server.archive_hold is not None
        lab.server.archive_hold._hold.release()
        lab.purge()
        await lab.archive("0-1-2", "0-1-3", "0-1-4")
        lab.purge()
        root = await lab.root()
        said = [await root.query(f"EXPLAIN GTID '0-1-{n}'") for n in range(1, 5)]
        assert [row[1] for (row,) in said] == ["purged", "archived", "have", "have"]
        assert "The archive s3://bucket/archive begins at '0-1-1'. It was passed before" in str(
            said[0]
        )


@pytest.mark.timeout(30)
@BOTH_FORMS
@pytest.mark.parametrize("start", ["", "0-1-1", "0-1-3"])
async def test_parts_of_start_markers_alone(start: str, objects: SlowObjects) -> None:
    """The binlog state in front of them and behind them is that behind the part in front: each group comes once."""
    async with Archived() as lab:
        append_all(lab.engine, [marker(6)])
        await lab.archive("0-1-1,0-1-2", "0-1-3")
        for markers in ([marker(7), marker(8)], [marker(9)]):
            append_all(lab.engine, markers)
            await lab.archive("")
        await lab.archive("0-1-4,0-1-5", "0-1-6")
        lab.purge()
        lab.publish("0-1-7")
        assert sum(name.startswith("part-") for name in objects.objects) == 6
        told = groups_in(await received(await lab.replica(start), "0-1-7"))
        groups = [f"0-1-{number}" for number in range(1, 8)]
        first = groups.index(start) + 1 if start else 0
        assert [one for one in told.split(",") if one != "start"] == groups[first:]
