"""The cost of 1,000 replicas that are up to date and get a heartbeat every 10 seconds."""

from __future__ import annotations

import argparse
import contextlib
import time
from typing import Final

from benchmarks.child import Child
from benchmarks.registry import Benchmark, BenchmarkError, Result, progress
from benchmarks.servers import Usage
from binlog_server.testing import rundir
from tests.kit.server import BinlogServer

CLIENTS: Final = 1000
HEARTBEAT_S: Final = 10.0
SECONDS: Final = 60.0


def run(options: argparse.Namespace) -> Result:
    """See `Benchmark`."""
    with contextlib.ExitStack() as stack:
        stack.callback(rundir.remove_own)
        server = BinlogServer(server_id=2, max_connections=options.clients + 10)
        stack.callback(server.discard)
        server.start()

        def replicas(count: int) -> Child:
            account = server.account
            return Child(
                "benchmarks.idlers",
                *("--host", server.host, "--port", str(server.port)),
                *("--user", account.user, "--password", account.password),
                *("--clients", str(count), "--heartbeat", str(options.heartbeat)),
            )

        with replicas(1) as first:  # what the server loads for it is not a replica's
            first.line()
            first.finish()
        alone = Usage.of(server.pid)
        idlers = stack.enter_context(replicas(options.clients))
        began = time.monotonic()
        idlers.line()
        progress(f"{options.clients} replicas in {time.monotonic() - began:.1f} s")
        before, began = Usage.of(server.pid), time.monotonic()
        time.sleep(options.seconds)
        after, seconds = Usage.of(server.pid), time.monotonic() - began
        heard = idlers.finish()
    expected = int(seconds / options.heartbeat)
    if heard["least"] < expected - 1:
        raise BenchmarkError(f"a replica got {heard['least']} heartbeats instead of {expected}")
    return {
        "rss_mb": round(after.rss_mb, 1),
        "cpu_percent": round(100 * (after.cpu_s - before.cpu_s) / seconds, 2),
        "rss_mb_alone": round(alone.rss_mb, 1),
        "peak_rss_mb": round(after.peak_rss_mb, 1),
        "kb_per_client": round((after.rss_mb - alone.rss_mb) * 1024 / options.clients, 1),
        "login_cpu_ms": round(1000 * (before.cpu_s - alone.cpu_s) / options.clients, 2),
        "heartbeats": heard["heartbeats"],
        "clients": options.clients,
        "seconds": round(seconds, 1),
    }


def table(result: Result) -> str:
    """See `Benchmark`."""
    return (
        f"{result['clients']} replicas for {result['seconds']} s, {result['heartbeats']} heartbeats: "
        f"{result['rss_mb']} MB resident ({result['rss_mb_alone']} without them), "
        f"{result['cpu_percent']}% of a core; {result['login_cpu_ms']} ms of cpu for a login"
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `Benchmark`."""
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--heartbeat", type=float, default=HEARTBEAT_S, help="seconds")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="that are measured")


BENCHMARK: Final = Benchmark(
    name="idle",
    summary="1,000 replicas that get heartbeats only: memory and processor time",
    add_arguments=add_arguments,
    run=run,
    table=table,
)
