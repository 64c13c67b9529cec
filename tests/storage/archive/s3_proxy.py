"""An HTTP proxy in front of an object store, which now and then answers 500 or 503, slowly, by half, or not at all."""

from __future__ import annotations

import http.client
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

FAULTS = ("500", "503", "lost", "half", "slow")
_STEP = 1000  # bytes


class S3Proxy(ThreadingHTTPServer):
    """`share`: of the requests get a fault. `kinds`: which."""

    daemon_threads = True

    def __init__(self, port: int, rng: random.Random) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behind = port
        self.rng = rng
        self.share = 0.0
        self.kinds = FAULTS
        self.requests = 0
        self.given: dict[str, int] = {}
        self.stopping = threading.Event()

    def fault(self) -> str:
        """For the next request; empty for none."""
        self.requests += 1
        if self.rng.random() >= self.share:
            return ""
        kind = self.rng.choice(self.kinds)
        self.given[kind] = self.given.get(kind, 0) + 1
        return kind

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes is no error."""


class _Handler(BaseHTTPRequestHandler):
    server: S3Proxy
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        kind = self.server.fault()
        if kind.isdecimal():
            self._answer(int(kind), [], b"")
            return
        behind = http.client.HTTPConnection("127.0.0.1", self.server.behind, timeout=30)
        try:
            behind.request(self.command, self.path, body, dict(self.headers))
            answer = behind.getresponse()
            data, headers = answer.read(), answer.getheaders()
        finally:
            behind.close()
        if kind == "lost":  # done, and nobody is told
            self.close_connection = True
            return
        self._answer(answer.status, headers, data, kind)

    def _answer(
        self, status: int, headers: list[tuple[str, str]], data: bytes, kind: str = ""
    ) -> None:
        self.send_response_only(status)
        own = {"content-length", "transfer-encoding", "connection"}
        for name, value in headers:
            if name.lower() not in own:
                self.send_header(name, value)
        length = len(data)
        if self.command == "HEAD":
            length = int({k.lower(): v for k, v in headers}.get("content-length", 0))
        self.send_header("content-length", str(length))
        self.end_headers()
        if self.command == "HEAD":
            return
        if kind == "half":
            self.wfile.write(data[: len(data) // 2])
            self.close_connection = True
            return
        for begin in range(0, len(data), _STEP if kind == "slow" else max(len(data), 1)):
            if kind == "slow" and self.server.stopping.wait(0.01):
                return
            self.wfile.write(data[begin : begin + _STEP] if kind == "slow" else data)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve


@contextmanager
def s3_proxy(port: int, rng: random.Random) -> Iterator[S3Proxy]:
    """One that runs in front of that port."""
    proxy = S3Proxy(port, rng)
    thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield proxy
    finally:
        proxy.stopping.set()
        proxy.shutdown()
        thread.join()
        proxy.server_close()
