"""`publish`: each change once, wherever a run ends; and Kafka's own client, against librdkafka's mock brokers.

The mock brokers take transactions, but show what was aborted to all readers, and do not fence an older producer off:
these are promises of Kafka, which are not tested here.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from binlog_pipeline.cli import main
from binlog_pipeline.errors import SourceError
from binlog_pipeline.jobs import publish
from binlog_pipeline.jobs.publish import GroupSender, KafkaSink, Sent
from binlog_pipeline.sources.directory import DirectorySource
from binlog_protocol.event_text.choice import Choice
from binlog_protocol.event_text.debezium_form import DebeziumOptions, Message
from binlog_protocol.events.gtid import GtidEvent, GtidFlags, XaId
from binlog_protocol.events.rows.rows_event import ChangeKind
from binlog_protocol.events.xa_prepare import XaPrepareEvent
from binlog_protocol.events.xid import XidEvent
from binlog_protocol.gtid import Gtid, SlavePosition
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.disk import OsDisk
from confluent_kafka import Consumer, Producer, TopicPartition

from binlog_server.testing.waiting import until
from tests.kit.commands_page import must_hold
from tests.protocol.event_text.test_debezium import rows, text
from tests.storage.sizes import small

SMALL = small(4)
TOPIC = "p.shop.orders"


class Store:
    """Groups of two domains: one row each, and XA transactions that end some groups later."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._engine: IbbEngine | None = None
        self.position = SlavePosition()
        self._last = {0: 0, 1: 0}
        self._id = 0
        self._prepared: list[tuple[XaId, int]] = []
        self.committed: list[int] = []

    def _append(self, domain: int, flags: int, *events: bytes, xa_id: XaId | None = None) -> None:
        self._last[domain] += 1
        gtid = Gtid(domain, 1, self._last[domain])
        begin = GtidEvent(gtid, flags, xa_id=xa_id).build()
        if self._engine is None:
            self._engine = IbbEngine(OsDisk(self.path), SMALL)
        self._engine.append(b"".join((begin, *events)), gtid)
        self.position = self.position.with_gtid(gtid)

    def _row(self) -> list[bytes]:
        self._id += 1
        return rows(ChangeKind.INSERT, (self._id, "a@b", self._id))

    def row(self, domain: int = 0) -> None:
        self._append(domain, GtidFlags.TRANSACTIONAL, *self._row(), XidEvent(9, 1).build())
        self.committed.append(self._id)

    def prepare(self, domain: int = 0) -> None:
        xa_id = XaId(1, b"x%d" % self._id, b"")
        sql = (text(f"XA START {xa_id.sql}"), *self._row(), text(f"XA END {xa_id.sql}"))
        self._append(
            domain, GtidFlags.PREPARED_XA, *sql, XaPrepareEvent(xa_id, 1).build(), xa_id=xa_id
        )
        self._prepared.append((xa_id, self._id))

    def settle(self, rng: random.Random, domain: int = 0) -> None:
        if self._prepared:
            xa_id, number = self._prepared.pop(rng.randrange(len(self._prepared)))
            end = rng.choice(("COMMIT", "ROLLBACK"))
            self._append(domain, GtidFlags.COMPLETED_XA, text(f"XA {end} {xa_id.sql}"), xa_id=xa_id)
            if end == "COMMIT":
                self.committed.append(number)

    def some(self, rng: random.Random, count: int) -> None:
        for _ in range(count):
            kind = rng.randrange(6)
            domain = rng.randrange(2)
            if kind == 0:
                self.prepare(0)
            elif kind == 1:
                self.settle(rng)
            else:
                self.row(domain)

    def close(self) -> None:
        """For a reader: all of it is durable then."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / "store")
    yield made
    made.close()


class Killed(Exception):
    pass


class MemorySink:
    """What is durable after a kill: whole transactions."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.kept: tuple[SlavePosition, SlavePosition] | None = None
        self.steps = -1  # until it is killed
        self._open: list[Message] | None = None

    def _step(self) -> None:
        if self.steps == 0:
            raise Killed
        self.steps -= 1

    def position(self) -> tuple[SlavePosition, SlavePosition] | None:
        self._open = None
        return self.kept

    def begin(self) -> None:
        self._step()
        assert self._open is None
        self._open = []

    def send(self, message: Message) -> None:
        self._step()
        assert self._open is not None
        self._open.append(message)

    def commit(self, done: SlavePosition, begin: SlavePosition) -> None:
        self._step()
        assert self._open is not None
        self.messages += self._open
        self.kept = done, begin
        self._open = None
        self._step()  # killed behind it, before anybody knows

    def abort(self) -> None:
        self._open = None

    def end_by(self, stopped: Callable[[], bool]) -> None:
        """It never waits."""


def run(store: Store, sink: MemorySink, **more: Any) -> Sent:
    store.close()
    source = DirectorySource(str(store.path))
    options = DebeziumOptions(prefix="p", transactions=True)
    start = more.pop("start", source.earliest())
    return GroupSender(source, sink, Choice(), options, start=start, **more).run(follow=False)


def ids(messages: list[Message]) -> list[int]:
    return [m.value["after"]["id"] for m in messages if m.topic == TOPIC and m.value]


def by_domain(messages: list[Message]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for message in messages:
        if message.topic == TOPIC:
            domain, _, number = message.headers["gtid"].split("-")
            found.setdefault(domain, []).append(int(number))
    return found


def test_each_change_once_wherever_it_is_killed(
    store: Store, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With transactions of a few messages; groups come between the runs."""
    monkeypatch.setattr(publish, "_TRANSACTION_MESSAGES", 5)
    sink = MemorySink()
    kills = 0
    store.row()
    for _ in range(30):
        store.some(rng, rng.randrange(8))
        sink.steps = rng.choice((-1, rng.randrange(40)))
        try:
            run(store, sink)
        except Killed:
            kills += 1
    sink.steps = -1
    run(store, sink)
    assert kills
    assert sorted(ids(sink.messages)) == sorted(store.committed)
    for numbers in by_domain(sink.messages).values():
        assert numbers == sorted(numbers)  # and in the order of the log
    ends = [m for m in sink.messages if m.topic == "p.transaction"]
    assert [m.value["status"] for m in ends if m.value] == ["BEGIN", "END"] * (len(ends) // 2)
    assert sink.kept is not None
    assert sink.kept[0] == store.position
    assert run(store, sink).messages == 0


def test_the_position_stays_in_front_of_what_is_prepared(store: Store, rng: random.Random) -> None:
    store.row()
    store.prepare()
    store.row()
    sink = MemorySink()
    assert run(store, sink).position == SlavePosition.parse("0-1-3")
    assert sink.kept == (SlavePosition.parse("0-1-3"), SlavePosition.parse("0-1-1"))
    while not store.committed[2:]:
        store.settle(rng)
        store.prepare()
    assert ids(sink.messages) == store.committed[:2]
    run(store, sink)
    assert sorted(ids(sink.messages)) == sorted(store.committed)


def test_groups_without_messages_move_the_position_on(store: Store) -> None:
    store.row()
    store.close()
    sink = MemorySink()
    source = DirectorySource(str(store.path))
    other = Choice(tables=frozenset(("shop.other",)))
    options = DebeziumOptions(prefix="p")
    done = GroupSender(source, sink, other, options, start=source.earliest()).run(follow=False)
    assert (done.messages, done.groups) == (0, 1)
    assert sink.kept is not None
    assert sink.kept[0] == store.position


def test_heartbeats(store: Store) -> None:
    """One at each interval, and none while there is something to publish; the position goes with them."""
    now = 0.0
    stops = iter([False, False, False, False, True])

    def stopped() -> bool:
        nonlocal now
        now += 6
        return next(stops)

    store.row()
    store.close()
    sink = MemorySink()
    source = DirectorySource(str(store.path))
    options = DebeziumOptions(prefix="p")
    publisher = GroupSender(
        source,
        sink,
        Choice(),
        options,
        start=source.earliest(),
        clock=lambda: 1.5,
        monotonic=lambda: now,
    )
    publisher.run(follow=True, stopped=stopped)
    row, *beats = sink.messages
    assert row.topic == TOPIC
    assert {m.topic for m in beats} == {"__debezium-heartbeat.p"}
    assert len(beats) == 2  # at 12 and 24 of 10
    assert beats[0].value == {"ts_ms": 1500}


def test_what_has_no_form_ends_it_with_what_to_do(store: Store) -> None:
    store.row()
    store._append(
        0, GtidFlags.TRANSACTIONAL, text("INSERT INTO t VALUES (1)"), XidEvent(9, 1).build()
    )
    sink = MemorySink()
    with pytest.raises(SourceError, match=r"0-1-2: a statement changes rows .*--skip-statements"):
        run(store, sink)
    assert sink.messages == []


# --- Kafka ---


def mock_brokers(mock: Producer) -> str:
    """The address of those that this producer has made, which are there as long as it is."""
    (broker,) = mock.list_topics(timeout=10).brokers.values()
    return f"{broker.host}:{broker.port}"


@pytest.fixture(scope="module")
def brokers() -> Iterator[str]:
    mock = Producer({"bootstrap.servers": "mock:1", "test.mock.num.brokers": 1, "log_level": 0})
    yield mock_brokers(mock)
    mock.flush(1)


def _headers(given: Any) -> dict[str, str]:
    return {name: value.decode() for name, value in given or ()}


def consumed(brokers: str, topic: str) -> list[tuple[Any, Any, dict[str, str]]]:
    """Key, value and headers of all records, in the order of each partition."""
    settings = {"group.id": "test", "enable.partition.eof": True, "log_level": 0}
    consumer = Consumer({"bootstrap.servers": brokers, **settings})
    partitions = [*consumer.list_topics(topic, 10).topics[topic].partitions]
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    found = []
    while partitions:
        record = consumer.poll(10)
        assert record is not None
        if record.error() is not None:
            partitions.pop()
            continue
        key, value = (
            None if raw is None else json.loads(raw) for raw in (record.key(), record.value())
        )
        found.append((key, value, _headers(record.headers())))
    consumer.close()
    return found


def published(
    capsys: pytest.CaptureFixture[str], store: Store, brokers: str, *more: str
) -> dict[str, Any]:
    store.close()
    arguments = ["publish", str(store.path), "--kafka", brokers, *more, "--json"]
    code = main(arguments)
    said = capsys.readouterr()
    assert code == 0, said.err
    found: dict[str, Any] = json.loads(said.out)
    must_hold("binlog-spark", "publish", found)
    return found


def test_to_kafka(store: Store, brokers: str, capsys: pytest.CaptureFixture[str]) -> None:
    prefix = ("--topic-prefix", "once")
    store.row()
    store.row(1)
    first = published(capsys, store, brokers, *prefix)
    assert (first["messages"], first["groups"]) == (2, 2)
    assert first["position"] == "0-1-1,1-1-1"
    assert published(capsys, store, brokers, *prefix)["messages"] == 0
    store.row()
    assert published(capsys, store, brokers, *prefix)["groups"] == 1
    found = consumed(brokers, "once.shop.orders")
    assert sorted(value["after"]["id"] for _, value, _ in found) == [1, 2, 3]
    for key, value, headers in found:
        assert key == {"id": value["after"]["id"]}
        assert headers["gtid"] == value["source"]["gtid"]


def test_where_a_first_run_begins(
    store: Store, brokers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store.row()
    store.row()
    behind = ("--topic-prefix", "behind", "--start-position", "0-1-1")
    assert published(capsys, store, brokers, *behind)["messages"] == 1
    latest = ("--topic-prefix", "latest", "--start-position", "latest")
    assert published(capsys, store, brokers, *latest)["messages"] == 0


def test_the_next_one_has_the_position_of_the_last_transaction(brokers: str) -> None:
    first = KafkaSink(brokers, "two", {})
    assert first.position() is None
    for seq_no in (5, 7):
        first.begin()
        first.send(Message("two.t", None, {"a": seq_no}, {}))
        first.commit(SlavePosition.parse(f"0-1-{seq_no}"), SlavePosition.parse("0-1-4"))
    first.begin()
    first.abort()
    second = KafkaSink(brokers, "two", {})
    assert second.position() == (SlavePosition.parse("0-1-7"), SlavePosition.parse("0-1-4"))


@pytest.mark.long
def test_followed_until_it_is_told_to_end(store: Store, brokers: str) -> None:
    """A process of its own; what came while it ran is there, too."""
    store.row()
    store.close()
    program = (
        sys.executable,
        "-c",
        "import sys; from binlog_pipeline.cli import main; sys.exit(main())",
    )
    arguments = ("publish", str(store.path), "--kafka", brokers, "--topic-prefix", "live")
    with subprocess.Popen(
        (*program, *arguments, "--follow", "--json"), stdout=subprocess.PIPE, text=True
    ) as running:
        while len(consumed(brokers, "live.shop.orders")) < 1:
            assert running.poll() is None
        store.row()
        store.close()
        while len(consumed(brokers, "live.shop.orders")) < 2:
            assert running.poll() is None
        running.terminate()
        said, _ = running.communicate(timeout=30)
    assert running.returncode == 0
    assert json.loads(said)["messages"] == 2


def test_a_topic_of_another_program(store: Store, brokers: str) -> None:
    other = Producer({"bootstrap.servers": brokers, "log_level": 0})
    other.produce("taken.position", b"[1]", partition=0)
    other.flush(10)
    with pytest.raises(SourceError, match=r"taken\.position holds b'\[1\]', which is no position"):
        KafkaSink(brokers, "taken", {}).position()


def test_brokers_that_are_not_there(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(publish, "_TIMEOUT_S", 0.2)
    store.row()
    store.close()
    assert main(["publish", str(store.path), "--kafka", "127.0.0.1:1"]) == 1
    assert "127.0.0.1:1 cannot be published to: " in capsys.readouterr().err


def test_brokers_that_refuse(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not for as long as a slow cluster gets: what the matter is is known at once."""
    monkeypatch.setattr("binlog_storage.console.progress._LINE_S", 0.0)
    show = KafkaSink._show

    def shown(sink: KafkaSink, progress: Any) -> None:
        show(sink, progress)
        monkeypatch.setattr(publish, "_REACHED_S", 0.0)  # the time is over behind a first line

    monkeypatch.setattr(KafkaSink, "_show", shown)
    store.row()
    store.close()
    assert main(["publish", str(store.path), "--kafka", "127.0.0.1:1"]) == 1
    *before, last = capsys.readouterr().err.splitlines()
    assert any(line.startswith("publish: waits for 127.0.0.1:1: ") for line in before)
    assert last.startswith("binlog-spark: 127.0.0.1:1 cannot be published to: ")
    assert "Connection refused" in last
    assert last.endswith("; is Kafka up, and reachable?")


def test_brokers_that_go_away(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """In a transaction: it says what it waits for, nobody else does; and it ends when brokers would have given up."""
    monkeypatch.setattr(publish, "_COMMIT_S", 4.0)
    monkeypatch.setattr("binlog_storage.console.progress._LINE_S", 0.0)
    mock = Producer({"bootstrap.servers": "mock:1", "test.mock.num.brokers": 1, "log_level": 0})
    address = mock_brokers(mock)
    sink = KafkaSink(address, "gone", {})
    sink.begin()
    sink.send(Message("gone.t", None, {"a": 1}, {}))
    del mock
    place = SlavePosition.parse("0-1-1")
    with pytest.raises(SourceError, match=f"{address} did not take the transaction: "):
        sink.commit(place, place)
    lines = capfd.readouterr().err.splitlines()
    assert lines
    assert all(line.startswith(f"publish: waits for {address}: ") for line in lines), lines


def test_a_message_that_is_too_large(brokers: str) -> None:
    """What to do about it is said: librdkafka's own limit is the first, and its text blames the broker."""
    large = Message("large.t", None, {"a": "x" * 2_000_000}, {})
    sink = KafkaSink(brokers, "large", {})
    sink.begin()
    said = r"a message of 2000008 bytes for large.t: .*too large.*; raise message\.max\.bytes in --kafka-config"
    with pytest.raises(SourceError, match=said):
        sink.send(large)
    sink = KafkaSink(brokers, "large", {"message.max.bytes": "3000000"})
    sink.begin()
    sink.send(large)
    place = SlavePosition.parse("0-1-1")
    sink.commit(place, place)


MOCK = """
import sys
from confluent_kafka import Producer
mock = Producer({"bootstrap.servers": "mock:1", "test.mock.num.brokers": 1, "log_level": 0})
(broker,) = mock.list_topics(timeout=10).brokers.values()
print(f"{broker.host}:{broker.port}", flush=True)
sys.stdin.read()
"""
MAIN = (
    "import sys; from binlog_pipeline.cli import main; from binlog_storage.console.running import end_by; "
    "sys.exit(end_by(main()))"
)


@pytest.mark.long
@pytest.mark.by_turns(3)
@pytest.mark.parametrize(
    ("when", "how", "kind"),
    [
        ("connecting", "silent", signal.SIGTERM),
        ("publishing", "gone", signal.SIGTERM),
        ("publishing", "silent", signal.SIGINT),
    ],
)
def test_told_to_end_while_brokers_do_not_answer(
    store: Store, tmp_path: Path, when: str, how: str, kind: signal.Signals
) -> None:
    """In a bounded time, whatever it waits for; once it publishes with what was taken."""
    store.row()
    store.close()
    errors = tmp_path / "errors"
    with (
        subprocess.Popen(
            (sys.executable, "-c", MOCK), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as mock,
        errors.open("w") as file,
    ):
        assert mock.stdout is not None
        brokers = mock.stdout.readline().strip()
        command = ("publish", str(store.path), "--kafka", brokers, "--follow", "--json")
        end = mock.kill if how == "gone" else partial(mock.send_signal, signal.SIGSTOP)
        if when == "connecting":
            end()
        with subprocess.Popen(
            (sys.executable, "-c", MAIN, *command), stdout=subprocess.PIPE, stderr=file, text=True
        ) as running:
            try:
                if when == "publishing":
                    while len(consumed(brokers, "binlog.shop.orders")) < 1:
                        assert running.poll() is None
                    end()
                    store.row()
                    store.close()
                until(lambda: "waits for" in errors.read_text(), "it says that it waits", 30)
                running.send_signal(kind)
                said, _ = running.communicate(timeout=20)
            finally:
                running.kill()
                mock.kill()
    if when == "connecting":
        assert running.returncode == -kind
        return
    assert running.returncode == 0, errors.read_text()
    assert json.loads(said)["messages"] == 1
    assert json.loads(said)["position"] == "0-1-1"


@pytest.mark.parametrize(
    ("line", "said"),
    [("linger.ms", "line 2: it is name=value"), ("no.such=1", "no.such")],
)
def test_properties(
    store: Store, tmp_path: Path, line: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    store.row()
    store.close()
    config = tmp_path / "kafka.properties"
    config.write_text(f"# of ours\n{line}\n")
    arguments = ["publish", str(store.path), "--kafka", "x:1", "--kafka-config", str(config)]
    assert main(arguments) != 0
    assert said in capsys.readouterr().err
