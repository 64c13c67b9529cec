"""Sources of the servers that tests run, and what is in them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from typing import NamedTuple

from binlog_pipeline.groups import Groups
from binlog_pipeline.options import SourceOptions
from binlog_pipeline.sources.dump.address import ServerAddress
from binlog_pipeline.sources.opening import open_source
from binlog_pipeline.sources.server import ServerSource
from binlog_pipeline.wanted import Wanted
from binlog_protocol.gtid import Gtid, SlavePosition
from binlog_storage.log.ranges import GtidRange

from binlog_server.testing.sql_server import Credentials, Followed


class Read(NamedTuple):
    gtid: Gtid
    payload: bytes
    place: tuple[int, int]


def options_of(
    server: Followed, account: Credentials | None = None, **options: str
) -> SourceOptions:
    account = account or server.account
    given = {
        "host": server.host,
        "port": str(server.port),
        "user": account.user,
        "password": account.password,
        "tls": "disabled",
        **options,
    }
    return SourceOptions.parse(given)


def address_of(
    server: Followed, account: Credentials | None = None, **options: str
) -> ServerAddress:
    return ServerAddress.of(options_of(server, account, **options))


def source_of(server: Followed, account: Credentials | None = None, **options: str) -> ServerSource:
    """Through the options that a user gives."""
    found = open_source(options_of(server, account, **options))
    assert isinstance(found, ServerSource)
    return found


def read(batches: Iterable[Groups]) -> list[Read]:
    """Group by group, large ones too."""
    return [
        Read(groups.gtid(i), b"".join(groups.pieces(i)), groups.place(i))
        for groups in batches
        for i in range(len(groups))
    ]


def read_all(source: ServerSource, wanted: Wanted | None = None) -> list[Read]:
    """By its slices."""
    return [
        group for part in source.slices(wanted or Wanted(), 1 << 20) for group in read(part.read())
    ]


def read_new(source: ServerSource, position: SlavePosition) -> list[Read]:
    """What a feed of its own has now behind the position."""
    with closing(source.feed()) as feed:
        return read(feed.after(position, 0))


def between(start: str | None, stop: str | None) -> Wanted:
    return Wanted(
        GtidRange(
            None if start is None else SlavePosition.parse(start),
            None if stop is None else SlavePosition.parse(stop),
        )
    )


def numbers(groups: Iterable[Read]) -> list[int]:
    return [group.gtid.seq_no for group in groups]
