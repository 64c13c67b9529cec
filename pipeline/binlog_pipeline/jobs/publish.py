"""Publish: the groups of a source as change messages in Kafka, each once.

Messages and the position behind them are one Kafka transaction, by a producer with a name of its own: a run that was
killed leaves nothing half, the next one goes on where the last transaction ended, and one that is still alive beside it
is fenced off. Consumers read with `isolation.level=read_committed`.

The topic PREFIX.position has the positions, in partition 0:

    done        all groups up to here were published
    begin       where to read from: in front of XA transactions that are prepared, whose changes come with their COMMIT
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import ProtocolError, ServerError
from binlog_protocol.event_text.choice import Choice
from binlog_protocol.event_text.debezium_form import DebeziumForm, DebeziumOptions, Message, as_json
from binlog_protocol.events.header import split_pieces
from binlog_protocol.gtid import Gtid, SlavePosition
from binlog_storage.console.progress import Progress
from binlog_storage.disk.given_files import read_given_text

from binlog_pipeline.errors import BadOption, SourceError
from binlog_pipeline.groups import Groups
from binlog_pipeline.sources.source import LogSource

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError

_TRANSACTION_MESSAGES: Final = 10_000
_TRANSACTION_S: Final = 0.5
"""A transaction ends behind a group when it has so many messages, or is so old."""
_TIMEOUT_S: Final = 60.0
_COMMIT_S: Final = 900.0
"""As long as brokers let a transaction be: a large group is on its way still."""
_LOOK_S: Final = 1.0
_REACHED_S: Final = 10.0
"""For a first broker that answers."""
_QUEUE_WAIT_S: Final = 0.1
_ANSWER_S: Final = 5.0
"""For an answer, in front of which no signal is heard."""
_GRACE_S: Final = 4.0
"""For what is on its way when the process is told to end; `docker stop` kills it behind 10 s."""
_LOG_LEVEL: Final = 2
"""Critical, as syslog has it: of librdkafka's own log."""
_FILE_BYTES_MAX: Final = 1 << 20
_LOOKED_BACK: Final = 100
"""Records of the position topic that are looked at first: markers of transactions have numbers of their own."""
_ADVICE: Final = {
    "MSG_SIZE_TOO_LARGE": "; raise message.max.bytes in --kafka-config and at the brokers, or max.message.bytes of "
    "the topic there",
}
"""By names of Kafka's errors."""
_DEFAULTS: Final[Mapping[str, Any]] = {
    "enable.idempotence": True,
    "acks": "all",
    "compression.type": "lz4",
    "linger.ms": 5,
    "partitioner": "murmur2_random",  # as the Java clients do it, so all agree on the partition of a key
    "transaction.timeout.ms": 900_000,  # for one large group; the most that brokers allow
}

_Answer = TypeVar("_Answer")


class Stopped(Exception):
    """A wait was given up, as the process was told to end."""


class Sink(Protocol):
    """Where messages go, in transactions."""

    def position(self) -> tuple[SlavePosition, SlavePosition] | None:
        """`done` and `begin` of the last transaction; None if there was none."""

    def begin(self) -> None:
        """Begin a transaction."""

    def send(self, message: Message) -> None:
        """Add to the transaction."""

    def commit(self, done: SlavePosition, begin: SlavePosition) -> None:
        """End the transaction, with the positions behind it."""

    def abort(self) -> None:
        """Give the transaction up, as far as that is possible."""

    def end_by(self, stopped: Callable[[], bool]) -> None:
        """From here on who waits gives up once this is true, by `Stopped`."""


@dataclass(frozen=True, slots=True)
class Sent:
    """What one run has sent, and where it ended."""

    messages: int
    groups: int
    transactions: int
    position: SlavePosition


class GroupSender:
    """Takes the groups of a source to a sink. One run.

    Args:
        start: where to begin, if the sink has no position.
        heartbeat_s: how often a message says that all is well, while there is nothing to publish; 0 for never.
        clock, monotonic: seconds since 1970; seconds.
    """

    def __init__(
        self,
        source: LogSource,
        sink: Sink,
        choice: Choice,
        options: DebeziumOptions,
        *,
        start: SlavePosition,
        heartbeat_s: float = 10.0,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._sink = sink
        self._prefix = options.prefix
        self._heartbeat_s = heartbeat_s
        self._clock = clock
        self._monotonic = monotonic
        self._form = DebeziumForm(choice, options, clock, version("binlog-server"))
        found = sink.position()
        self._done, self._begin = (start, start) if found is None else found
        self._goes_on = found is not None
        self._read = self._begin
        self._kept = self._done  # by the sink
        # Groups between the two were published before: in each domain up to this one.
        self._passed: dict[int, Gtid] = {
            gtid.domain_id: gtid for gtid in self._done if self._begin.get(gtid.domain_id) != gtid
        }
        self._messages = self._groups = self._kept_groups = self._transactions = 0
        self._size = 0  # messages of the transaction that is open
        self._opened_at: float | None = None
        self._beat_at = monotonic()

    def run(self, *, follow: bool, stopped: Callable[[], bool] = lambda: False) -> Sent:
        """Publish what there is, and with `follow` what comes, until it is `stopped`.

        Raises `DataLost` behind a failover to another history; `SourceError` for a source or a sink that fails:
        nothing of the transaction that was open is published; nor is it where the sink does not answer when it is
        stopped.
        """
        self._sink.end_by(stopped)
        if self._goes_on:
            self._source.has_passed(self._done)
        feed = self._source.feed()
        try:
            while not stopped():
                for groups in feed.after(self._read, 1.0 if follow else 0.0):
                    self._take(groups)
                    if stopped():
                        break
                self._end_transaction()
                if not follow:
                    break
                self._beat()
        except Stopped:
            self._give_up()
        except ProtocolError as error:
            self._give_up()
            raise SourceError(f"{self._source.name}: {error}") from None
        except BaseException:
            self._give_up()
            raise
        finally:
            feed.close()
        return Sent(self._messages, self._kept_groups, self._transactions, self._kept)

    def _take(self, groups: Groups) -> None:
        for i in range(len(groups)):
            gtid = groups.gtid(i)
            messages = self._form.group(
                split_pieces(groups.pieces(i)), str(groups.file[i]), int(groups.offset[i])
            )
            if not self._was_published(gtid):
                self._publish(messages)
                self._done = self._done.with_gtid(gtid)
                self._groups += 1
            else:
                for _ in messages:  # what it prepares is needed, no more
                    pass
            self._read = self._read.with_gtid(gtid)
            if not self._form.has_prepared:
                self._begin = self._done if not self._passed else self._read
            if self._is_due():
                self._end_transaction()

    def _was_published(self, gtid: Gtid) -> bool:
        last = self._passed.get(gtid.domain_id)
        if last == gtid:
            del self._passed[gtid.domain_id]
        return last is not None

    def _publish(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self._open()
            self._sink.send(message)
            self._size += 1

    def _open(self) -> None:
        if self._opened_at is None:
            self._sink.begin()
            self._opened_at = self._monotonic()

    def _is_due(self) -> bool:
        if self._opened_at is None:
            return False
        age = self._monotonic() - self._opened_at
        return self._size >= _TRANSACTION_MESSAGES or age >= _TRANSACTION_S

    def _end_transaction(self) -> None:
        """Make everything so far visible, and the position: groups without messages have moved it on as well."""
        if self._opened_at is None:
            if self._done == self._kept:
                return
            self._open()
        self._sink.commit(self._done, self._begin)
        self._kept, self._kept_groups = self._done, self._groups
        self._opened_at = None
        self._transactions += 1
        self._messages += self._size
        self._size = 0

    def _give_up(self) -> None:
        if self._opened_at is not None:
            self._opened_at = None
            self._sink.abort()

    def _beat(self) -> None:
        """Say that all is well, if it is time."""
        if not self._heartbeat_s or self._monotonic() < self._beat_at + self._heartbeat_s:
            return
        self._beat_at = self._monotonic()
        self._open()
        value = {"ts_ms": int(self._clock() * 1000)}
        topic = f"__debezium-heartbeat.{self._prefix}"
        self._sink.send(Message(topic, {"serverName": self._prefix}, value, {}))
        self._end_transaction()


class KafkaSink:
    """A Kafka cluster, by librdkafka.

    Args:
        brokers: HOST:PORT,...
        prefix: of topics; one publisher at a time has it.
        properties: of librdkafka, such as `security.protocol`; they come before ours.
    """

    def __init__(self, brokers: str, prefix: str, properties: Mapping[str, str]) -> None:
        """Connect, and fence off who had this prefix before. Raises `SourceError`."""
        from confluent_kafka import KafkaException, Producer

        self._failure: type[Exception] = KafkaException
        self._brokers = brokers
        self._topic = f"{prefix}.position"
        # What goes wrong is told here, and not by librdkafka as well, in lines of its own.
        quiet = {"log_level": _LOG_LEVEL}
        self._common: dict[str, Any] = {**quiet, "bootstrap.servers": brokers, **properties}
        ours = {**_DEFAULTS, "transactional.id": f"binlog-publish-{prefix}"}
        self._stopped: Callable[[], bool] = lambda: False
        self._stopped_at: float | None = None
        self._unreached = ""
        """What librdkafka says of brokers, as long as none was reached."""
        with self._explained("cannot be published to"):
            self._producer = Producer({**ours, **self._common, "error_cb": self._note})
            self._connect()

    def _note(self, error: KafkaError) -> None:
        self._unreached = error.str()

    def end_by(self, stopped: Callable[[], bool]) -> None:
        """See `Sink`."""
        self._stopped = stopped

    def _require_going(self) -> None:
        """Raises `Stopped` when it was told to end, and brokers have had some time to answer still."""
        if not self._stopped():
            return
        now = time.monotonic()
        self._stopped_at = self._stopped_at or now
        if self._unreached or now - self._stopped_at >= _GRACE_S:
            raise Stopped

    def _connect(self) -> None:
        """Raises `SourceError` where nobody answers; a cluster that is slow gets more time."""
        began = time.monotonic()

        def require_answer() -> None:
            if self._unreached and time.monotonic() - began > _REACHED_S:
                why = f"{self._unreached}; is Kafka up, and reachable?"
                raise SourceError(f"{self._brokers} cannot be published to: {why}") from None

        self._patiently(self._producer.init_transactions, _TIMEOUT_S, require_answer)

    def _patiently(
        self,
        call: Callable[[float], object],
        most_s: float,
        look: Callable[[], None] = lambda: None,
        each_s: float = _LOOK_S,
    ) -> None:
        """Call it again and again while nobody answers, and say so; librdkafka alone would do that without a word, and
        deaf to signals.
        """
        began = time.monotonic()
        with Progress("publish") as progress:
            while True:
                try:
                    call(each_s)
                    self._unreached = ""
                    return
                except self._failure as failure:
                    past = time.monotonic() - began
                    if not _may_pass(failure.args[0]) or past > most_s:
                        raise
                    self._producer.poll(0)  # calls `_note`
                    look()
                self._require_going()
                self._show(progress)

    def _answered(self, call: Callable[[float], _Answer]) -> _Answer:
        """What is answered to a question, which has to be put again behind each time-out."""
        found: list[_Answer] = []
        self._patiently(lambda s: found.append(call(s)), _TIMEOUT_S, each_s=_ANSWER_S)
        return found[0]

    def _show(self, progress: Progress) -> None:
        progress.show(
            0, 0, lambda: f"waits for {self._brokers}: {self._unreached or 'it does not answer'}"
        )

    def position(self) -> tuple[SlavePosition, SlavePosition] | None:
        """See `Sink`. Raises `SourceError`."""
        with self._explained(f"{self._topic} cannot be read"):
            value = self._last_value()
        if value is None:
            return None
        try:
            kept = json.loads(value)
            return SlavePosition.parse(kept["done"]), SlavePosition.parse(kept["begin"])
        except (ValueError, KeyError, TypeError, ServerError):
            raise SourceError(
                f"{self._brokers}: {self._topic} holds {value[:80]!r}, which is no position: "
                "another program writes there. Choose another --topic-prefix"
            ) from None

    def _last_value(self) -> bytes | None:
        from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

        consumer = Consumer(
            {
                "group.id": self._topic,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                **self._common,
            }
        )
        try:
            there = self._answered(lambda s: consumer.list_topics(self._topic, s))
            if not there.topics[self._topic].partitions:
                return None
            low, high = self._answered(
                lambda s: consumer.get_watermark_offsets(TopicPartition(self._topic, 0), timeout=s)
            )
            for begin in (max(low, high - _LOOKED_BACK), OFFSET_BEGINNING):
                consumer.assign([TopicPartition(self._topic, 0, begin)])
                last = self._read_to_end(consumer)
                if last is not None or begin == low:
                    return last
            return None
        finally:
            consumer.close()

    def _read_to_end(self, consumer: Consumer) -> bytes | None:
        from confluent_kafka import KafkaError, KafkaException

        last: bytes | None = None
        began = time.monotonic()
        while True:
            record = consumer.poll(_LOOK_S)
            if record is None:
                if time.monotonic() - began > _TIMEOUT_S:
                    raise SourceError(
                        f"{self._brokers}: {self._topic} was not read in {_TIMEOUT_S:.0f} s"
                    )
                continue
            began = time.monotonic()
            error = record.error()
            if error is None:
                last = record.value()
            elif error.code() == KafkaError._PARTITION_EOF:
                return last
            elif error.fatal() or not error.retriable():
                raise KafkaException(error)

    def begin(self) -> None:
        with self._explained("takes no transaction"):
            self._producer.begin_transaction()

    def send(self, message: Message) -> None:
        key = None if message.key is None else _bytes(message.key)
        value = None if message.value is None else _bytes(message.value)
        self._produce(message.topic, value, key, headers=[*message.headers.items()])

    def commit(self, done: SlavePosition, begin: SlavePosition) -> None:
        position = {"done": str(done), "begin": str(begin)}
        self._produce(self._topic, _bytes(position), b"position", partition=0)
        with self._explained("did not take the transaction"):
            self._patiently(self._producer.commit_transaction, _COMMIT_S)

    def _produce(self, topic: str, value: bytes | None, key: bytes | None, **more: Any) -> None:
        self._require_going()  # a group may have any number of messages
        with self._explained(f"does not take a message of {len(value or b'')} bytes for {topic}"):
            try:
                self._producer.produce(topic, value, key, **more)
            except BufferError:  # as much as librdkafka holds is on its way
                self._produce_later(topic, value, key, **more)
            self._producer.poll(0)

    def _produce_later(self, *message: Any, **more: Any) -> None:
        with Progress("publish") as progress:
            while True:
                self._producer.poll(_QUEUE_WAIT_S)
                try:
                    self._producer.produce(*message, **more)
                    return
                except BufferError:
                    self._require_going()
                    self._show(progress)

    def abort(self) -> None:
        # Best effort: what is not aborted here is by the brokers, or by the next run, which has the same name.
        with contextlib.suppress(self._failure, Stopped):
            self._producer.purge()
            most_s = _LOOK_S if self._unreached else _TIMEOUT_S
            self._patiently(self._producer.abort_transaction, most_s)

    @contextlib.contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except self._failure as failure:
            error = failure.args[0]
            advice = _ADVICE.get(error.name(), "")
            raise SourceError(
                f"{self._brokers} {what}: {error.str()} ({error.name()}){advice}"
            ) from None


def read_properties(path: Path) -> dict[str, str]:
    """A file of `name=value` lines, as Kafka's tools take it; `#` begins a comment. Raises `BadOption`, `OSError`."""
    found = {}
    for number, line in enumerate(read_given_text(path, _FILE_BYTES_MAX).splitlines(), 1):
        if not (text := line.strip()) or text.startswith("#"):
            continue
        name, is_there, value = text.partition("=")
        if not is_there:
            raise BadOption(
                f"{path}, line {number}: it is name=value, such as security.protocol=SSL"
            )
        found[name.strip()] = value.strip()
    return found


def _may_pass(error: KafkaError) -> bool:
    """Whether nobody has answered yet."""
    return error.retriable() or error.code() in (error._TRANSPORT, error._TIMED_OUT)


def _bytes(value: dict[str, Any]) -> bytes:
    return as_json(value).encode("utf-8", "replace")
