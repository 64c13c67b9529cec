"""How little a server does before it listens: told by its own process, in modules, grammars and threads of libuv, which
end the process where they cannot be had; not by a clock."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

LATER = {
    "aiohttp": "the first request of metrics",
    "deltalake": "the pipeline",
    "numpy": "parts of an archive",
    "obstore": "an archive in an object store",
    "pandas": "the pipeline",
    "prometheus_client": "metrics_listen",
    "pyarrow": "parts of an archive",
    "pymysql": "tests of others",
    "rich": "commands that print tables",
    "sqlglot": "the first question about tables",
}
"""Libraries that a server which listens has not loaded, and who loads them."""

SERVE = """
import os, sys
from binlog_server.app.app import Server
from binlog_server.cli import main

listen = Server._listen

def named(thread):
    try:
        return open(f"/proc/self/task/{thread}/comm").read()
    except OSError:
        return "one that has ended since it was listed"

async def listens(self, given):
    await listen(self, given)
    from binlog_server.sql import account_statements, parser, replication_sql
    grammars = parser.MAIN, replication_sql.REPLICATION, account_statements.ACCOUNTS
    built = ["a grammar" for grammar in grammars if "lark" in vars(grammar)]
    pool = ["a thread of libuv" for name in map(named, os.listdir("/proc/self/task")) if "libuv" in name]
    print(*sorted({name for name in sys.argv[2:] if name in sys.modules}), *built, *pool, flush=True)
    os._exit(0)

Server._listen = listens
main(["serve", "--directory", sys.argv[1], "--listen", "127.0.0.1:0"])
"""


@pytest.mark.long
def test_what_a_server_has_loaded_when_it_listens(tmp_path: Path) -> None:
    said = [sys.executable, "-c", SERVE, str(tmp_path / "store"), *LATER, "asyncio"]
    done = subprocess.run(said, capture_output=True, text=True, timeout=50, check=False)
    assert (done.returncode, done.stdout) == (0, "asyncio\n"), done.stderr
