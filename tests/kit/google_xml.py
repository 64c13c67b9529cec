"""Google's store as its XML API has it, without signatures, in front of moto's S3, whose words it nearly has.

Objects, lists, parts and copies are the same but for the names of headers. What S3 has not are generations: each write
gives an object a new number, and a write may ask for the number that is to be there, 0 for none. They are counted here,
with one write at a time, so a condition holds exactly if Google's would.

    python -m tests.kit.google_xml PORT_OF_MOTO

prints its port. A process of its own: deltalake waits for its store with the interpreter's lock.
"""

from __future__ import annotations

import http.client
import http.server
import itertools
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

from tests.kit.moto import moto_s3

_TIMEOUT_S: Final = 60
_OF_THE_WAY: Final = frozenset(
    ("authorization", "connection", "content-length", "date", "host", "server", "transfer-encoding")
)
_MATCH: Final = "x-goog-if-generation-match"
_GENERATION: Final = "x-goog-generation"
# Moto looks who asks, not how that is signed.
_SIGNED: Final = "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Store

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        where = urlsplit(self.path)
        query = parse_qs(where.query, keep_blank_values=True)
        makes = self.command == "PUT" and "partNumber" not in query
        makes |= self.command == "POST" and "uploadId" in query
        if not makes and self.command != "DELETE":
            self._answer(*self._ask(body), self.server.generations.get(where.path))
            return
        with self.server.writing:
            there = self.server.generations.get(where.path, 0)
            wanted = self.headers.get(_MATCH)
            if wanted is not None and int(wanted) != there:
                self._answer(412, {}, b"", there)
                return
            status, headers, data = self._ask(body)
            if status < http.client.MULTIPLE_CHOICES:
                if makes:
                    self.server.generations[where.path] = next(self.server.numbers)
                elif "uploadId" not in query:
                    self.server.generations.pop(where.path, None)
            self._answer(status, headers, data, self.server.generations.get(where.path))

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass

    def _ask(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        headers = {
            name.lower().replace("x-goog-", "x-amz-"): value
            for name, value in self.headers.items()
            if name.lower() not in (*_OF_THE_WAY, _MATCH)
        }
        moto = http.client.HTTPConnection("127.0.0.1", self.server.moto, timeout=_TIMEOUT_S)
        try:
            moto.request(self.command, self.path, body, {**headers, "authorization": _SIGNED})
            answer = moto.getresponse()
            data = answer.read()
        finally:
            moto.close()
        size = answer.getheader("content-length") if self.command == "HEAD" else len(data)
        found = {k.lower(): v for k, v in answer.getheaders() if k.lower() not in _OF_THE_WAY}
        return answer.status, {**found, "content-length": str(size or 0)}, data

    def _answer(
        self, status: int, headers: dict[str, str], data: bytes, generation: int | None
    ) -> None:
        self.send_response(status)
        headers.setdefault("content-length", str(len(data)))
        if generation:
            headers[_GENERATION] = str(generation)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


class _Store(http.server.ThreadingHTTPServer):
    """Generations by path; `writing` is held around each write."""

    daemon_threads = True

    def __init__(self, moto: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.moto = moto
        self.generations: dict[str, int] = {}
        self.numbers = itertools.count(1)
        self.writing = threading.Lock()


@contextmanager
def google_xml(folder: Path) -> Iterator[dict[str, str]]:
    """The environment by which obstore and deltalake find it, with a bucket `bucket`. Skips as `moto_s3` does."""
    with (
        moto_s3(folder) as moto,
        subprocess.Popen(
            [sys.executable, "-m", __name__, str(moto)], stdout=subprocess.PIPE, text=True
        ) as process,
    ):
        try:
            assert process.stdout is not None
            account = folder / "service-account.json"
            said = {
                "gcs_base_url": f"http://127.0.0.1:{int(process.stdout.readline())}",
                "disable_oauth": True,
                **dict.fromkeys(("client_email", "private_key", "private_key_id"), ""),
            }
            account.write_text(json.dumps(said))
            yield {"GOOGLE_SERVICE_ACCOUNT": str(account), "GOOGLE_ALLOW_HTTP": "true"}
        finally:
            process.kill()


if __name__ == "__main__":
    with _Store(int(sys.argv[1])) as store:
        print(store.server_address[1], flush=True)
        store.serve_forever()
