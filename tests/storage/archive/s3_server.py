"""A stand-in for S3 on this machine: the requests that an archive makes, with conditions; it fails as it is told.

It speaks as Google's store does, too: by the generation of an object, in place of its ETag.
"""

from __future__ import annotations

import hashlib
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Fault = Callable[[str, str, int], str]
"""By method, path, number of the request: "", "500", "503", "lost" (done, and no answer), "half" (of the answer).

And "hang": no answer, and the connection stays; "stall": half of one, and it stays; a URL: a redirect to there."""


class S3Server(ThreadingHTTPServer):
    """Objects by path. Signatures are not looked at."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, bytes] = {}
        self.lock = threading.Lock()
        self.generations: dict[str, int] = {}
        self.lists_all = False  # whatever is asked for to begin behind
        self.requests = 0
        self.headers: list[tuple[str, dict[str, str]]] = []  # of each request, with its method
        self.ending = threading.Event()
        self.fault: Fault = lambda method, path, number: ""

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes is no error."""


class _Handler(BaseHTTPRequestHandler):
    server: S3Server
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def _serve(self) -> None:
        path, _, query = self.path.partition("?")
        path = urllib.parse.unquote(path)
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        with self.server.lock:
            self.server.requests += 1
            headers_sent = {name.lower(): value for name, value in self.headers.items()}
            self.server.headers.append((self.command, headers_sent))
            fault = self.server.fault(self.command, path, self.server.requests)
            if fault.isdecimal():
                answer = int(fault), dict[str, str](), b""
            elif fault.startswith("http:"):
                answer = 307, {"location": f"{fault}{self.path}"}, b""
            else:
                answer = self._answer(path, urllib.parse.parse_qs(query), body)
            status, headers, data = answer
        if fault == "hang":
            self.server.ending.wait()
        if fault in ("lost", "hang"):
            self.close_connection = True
            self.connection.close()
            return
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if fault in ("half", "stall"):
            self.wfile.write(data[: len(data) // 2])
            self.wfile.flush()
            if fault == "stall":
                self.server.ending.wait()
            self.close_connection = True
            self.connection.close()
        elif self.command != "HEAD":
            self.wfile.write(data)

    def _answer(
        self, path: str, query: dict[str, list[str]], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        objects = self.server.objects
        found = objects.get(path)
        tag = "" if found is None else _tag(found)
        if self.command == "PUT":
            wanted = self.headers.get("if-match")
            if (wanted is not None and wanted != tag) or (
                self.headers.get("if-none-match") == "*" and found is not None
            ):
                return 412, {}, b"<Error><Code>PreconditionFailed</Code></Error>"
            generation = self.server.generations.get(path, 0)
            if int(self.headers.get("x-goog-if-generation-match", generation)) != generation:
                return 412, {}, b"<Error><Code>PreconditionFailed</Code></Error>"
            objects[path] = body
            self.server.generations[path] = self.server.requests
            return 200, {"etag": _tag(body), **self._generation(path)}, b""
        if self.command == "DELETE":
            objects.pop(path, None)
            self.server.generations.pop(path, None)
            return 204, {}, b""
        if self.command == "POST":
            for name in body.decode().split("<Key>")[1:]:
                objects.pop(f"{path.rstrip('/')}/{name.split('</Key>')[0]}", None)
            return 200, {}, b"<DeleteResult></DeleteResult>"
        if "list-type" in query:
            return 200, {}, self._listed(path.rstrip("/") + "/", query)
        if found is None:
            return 404, {}, b"<Error><Code>NoSuchKey</Code></Error>"
        when = {"last-modified": "Mon, 23 Nov 2026 00:00:00 GMT"}
        return 200, {"etag": tag, **when, **self._generation(path)}, found

    def _generation(self, path: str) -> dict[str, str]:
        return {"x-goog-generation": str(self.server.generations.get(path, 0))}

    def _listed(self, bucket: str, query: dict[str, list[str]]) -> bytes:
        prefix, behind = (query.get(name, [""])[0] for name in ("prefix", "start-after"))
        if self.server.lists_all:
            behind = ""
        rows = [
            f"<Contents><Key>{key}</Key><LastModified>2026-11-23T00:00:00.000Z</LastModified>"
            f"<ETag>{_tag(data)}</ETag><Size>{len(data)}</Size></Contents>"
            for path, data in sorted(self.server.objects.items())
            if (key := path.removeprefix(bucket)).startswith(prefix) and key > behind
        ]
        text = "".join(rows)
        return (
            f"<ListBucketResult><IsTruncated>false</IsTruncated>{text}</ListBucketResult>".encode()
        )

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve


def _tag(data: bytes) -> str:
    return f'"{hashlib.md5(data).hexdigest()}"'


@contextmanager
def s3_server() -> Iterator[tuple[S3Server, dict[str, str]]]:
    """One that runs, and the variables of the environment by which it is found."""
    server = S3Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield (
            server,
            {
                "AWS_ACCESS_KEY_ID": "key",
                "AWS_SECRET_ACCESS_KEY": "secret",
                "AWS_REGION": "us-east-1",
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_address[1]}",
                "AWS_ALLOW_HTTP": "true",
            },
        )
    finally:
        server.ending.set()
        server.shutdown()
        thread.join()
        server.server_close()
