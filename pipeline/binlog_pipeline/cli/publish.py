"""Publish row changes to Kafka, as the messages of Debezium's connector for MariaDB.

Each change once: messages and the position behind them are one Kafka transaction, and a run goes on where the last one
ended, however it ended. Consumers read with isolation.level=read_committed. One publisher at a time has a
--topic-prefix: another one that begins ends it.
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from binlog_protocol.gtid import SlavePosition
from binlog_storage.console.arguments import (
    add_json,
    gtid_position,
    seconds_argument,
    table_argument,
)
from binlog_storage.console.message_options import add_message_options, message_options
from binlog_storage.console.output import counted, show_json
from binlog_storage.console.running import told_to_stop
from binlog_storage.disk.local_path import path_argument

from binlog_pipeline.cli.arguments import add_source, source_options
from binlog_pipeline.errors import BadOption

if TYPE_CHECKING:
    from binlog_pipeline.sources.source import LogSource


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source(parser)
    add = parser.add_argument
    add("--kafka", required=True, metavar="HOST:PORT,...", help="brokers to begin with")
    add(
        "--kafka-config",
        type=path_argument,
        metavar="FILE",
        help="properties of librdkafka, a line each: security.protocol=SASL_SSL, sasl.password=...",
    )
    add("--follow", action="store_true", help="go on with what comes")
    add(
        "--start-position",
        default="earliest",
        metavar="GTIDS",
        help="where the first run begins: behind these, earliest or latest (default: earliest)",
    )
    named: dict[str, Any] = {"action": "append", "default": []}
    add("--database", metavar="NAME", help="only rows of tables in it; repeatable", **named)
    table = {"type": table_argument, "metavar": "DB.TABLE", "dest": "chosen", **named}
    add("--table", help="only rows of it; repeatable", **table)
    add(
        "--heartbeat-interval",
        type=seconds_argument,
        default=10.0,
        metavar="S",
        help="with --follow: how often a message says that all is well; 0 for never (default: 10)",
    )
    add_json(parser, "one JSON object, when it ends")
    add_message_options(parser, path_argument)


def run(arguments: argparse.Namespace) -> int:
    try:
        options = message_options(arguments)
    except ValueError as error:
        raise BadOption(str(error)) from None
    from binlog_protocol.event_text.choice import Choice

    from binlog_pipeline.jobs.publish import GroupSender, KafkaSink, read_properties
    from binlog_pipeline.sources.opening import open_source

    source = open_source(source_options(arguments))
    start = _start(arguments.start_position, source)
    config = arguments.kafka_config
    properties = {} if config is None else read_properties(config)
    sink = KafkaSink(arguments.kafka, options.prefix, properties)
    choice = Choice(frozenset(arguments.database), frozenset(arguments.chosen))
    publisher = GroupSender(
        source, sink, choice, options, start=start, heartbeat_s=arguments.heartbeat_interval
    )
    began = time.monotonic()
    done = publisher.run(follow=arguments.follow, stopped=told_to_stop())
    if arguments.json:
        show_json(
            {
                "messages": done.messages,
                "groups": done.groups,
                "transactions": done.transactions,
                "position": str(done.position),
                "seconds": round(time.monotonic() - began, 3),
            }
        )
    else:
        print(
            f"{counted(done.messages, 'message')} of {counted(done.groups, 'group')}; "
            f"{arguments.kafka} is at '{done.position}'"
        )
    return 0


def _start(text: str, source: LogSource) -> SlavePosition:
    """Where a first run begins. Raises `BadOption`, `SourceError`."""
    if text in ("earliest", "latest"):
        return source.earliest() if text == "earliest" else source.latest()
    try:
        return gtid_position(text)
    except ValueError as error:
        raise BadOption(f"--start-position: {error}") from None
