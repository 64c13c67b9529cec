"""What the tests of tables need of a session: its time, which is that of UTC."""

from __future__ import annotations

import datetime

from binlog_server.queries.terms import Asker

NOW = datetime.datetime(2026, 11, 23, 3, 4, 5, 678901)


def asker() -> Asker:
    def local(seconds: float) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC).replace(tzinfo=None)

    def since(moment: datetime.datetime) -> float:
        return moment.replace(tzinfo=datetime.UTC).timestamp()

    return Asker(since(NOW), local, since, lambda name: None)
