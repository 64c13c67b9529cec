"""A scraper: asks over HTTP, and reads what comes with the library's own parser."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from tests.binlog_server.lab import within

Series = tuple[str, frozenset[tuple[str, str]]]


class Answer(NamedTuple):
    """`headers`: names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


async def exchange(port: int, request: bytes, tls: ssl.SSLContext | None = None) -> bytes:
    """All that comes until the listener has said everything."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    try:
        writer.write(request)
        return await within(reader.read(-1), 30)
    finally:
        writer.close()


def answer_of(data: bytes) -> Answer:
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("ascii").split("\r\n")
    version, status, _ = first.split(" ", 2)
    assert version == "HTTP/1.1"
    headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}
    return Answer(int(status), headers, body)


async def get(port: int, path: str, accept: str = "", method: str = "GET") -> Answer:
    request = f"{method} {path} HTTP/1.1\r\nHost: relay\r\nAccept: {accept}\r\n\r\n"
    return answer_of(await exchange(port, request.encode()))


async def metrics(port: int) -> Scrape:
    answer = await get(port, "/metrics")
    assert answer.status == 200, answer.body
    return Scrape(answer.body.decode())


class Scrape:
    """The values of one scrape."""

    def __init__(self, text: str) -> None:
        self.families = list(text_string_to_metric_families(text))
        self._values: dict[Series, float] = {}
        for family in self.families:
            for sample in family.samples:
                key = (sample.name, frozenset(sample.labels.items()))
                assert key not in self._values, f"twice: {key}"
                self._values[key] = sample.value

    def value(self, name: str, /, **labels: str) -> float:
        """Of the series with exactly these labels."""
        return self._values[f"binlog_server_{name}", frozenset(labels.items())]

    def labels(self, name: str) -> list[dict[str, str]]:
        """Of all series of that name."""
        wanted = f"binlog_server_{name}"
        return [dict(labels) for found, labels in self._values if found == wanted]
