"""One transaction of any size, by one connection: BEGIN, many INSERTs, COMMIT. A process of its own.

    python -m benchmarks.big_writer --port P [--user U] [--password PW] --bytes N [--statement-bytes N] --table T

prints the times of its steps as they come, as `["begin", seconds]` of CLOCK_MONOTONIC: `begin`, `commit` when the
COMMIT goes out, `committed` when it was answered.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Final

from benchmarks.registry import BenchmarkError
from benchmarks.sql_client import execute, log_in, query_packet

STATEMENT_BYTES: Final = 256 << 10
STEPS: Final = ("begin", "commit", "committed")


def statements(size: int, statement_bytes: int) -> list[int]:
    """Values, in bytes, of each INSERT that the transaction is made of; `size` together."""
    whole, rest = divmod(size, statement_bytes)
    return [statement_bytes] * whole + ([rest] if rest else [])


def insert(table: str, size: int) -> bytes:
    """An INSERT with `size` bytes of text, as a packet."""
    return query_packet(f"INSERT INTO {table} VALUES (1,'{'x' * size}')".encode())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.big_writer")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--user", default="root")
    parser.add_argument("--password", default="")
    parser.add_argument("--table", required=True)
    parser.add_argument("--bytes", type=int, required=True)
    parser.add_argument("--statement-bytes", type=int, default=STATEMENT_BYTES)
    given = parser.parse_args()
    sizes = statements(given.bytes, given.statement_bytes)
    packets = {size: insert(given.table, size) for size in sizes}

    def tell(step: str) -> None:
        print(json.dumps([step, time.monotonic()]), flush=True)

    try:
        sock = log_in(given.host, given.port, given.user, given.password)
        tell("begin")
        execute(sock, query_packet(b"BEGIN"))
        for size in sizes:
            execute(sock, packets[size])
        tell("commit")
        execute(sock, query_packet(b"COMMIT"))
        tell("committed")
    except (BenchmarkError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
