"""View changes of a running server: as of the directory that has the same groups, but for places."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from binlog_server.testing.mariadb import MariaDB
from tests.kit.backends import Backend
from tests.kit.fixtures import MakeMariaDB
from tests.pipeline.stores import FULL, store_of_upstream
from tests.pipeline.view_rows import rows_of, table_of

PLACES = ["_order", "_order_key"]


def address(upstream: MariaDB) -> dict[str, str]:
    account = upstream.account
    return {
        "path": "",
        "host": upstream.host,
        "port": str(upstream.port),
        "user": account.user,
        "password": account.password,
        "tls": "disabled",
    }


@pytest.mark.each_version
@pytest.mark.by_turns(2)
def test_the_same_rows(backend: Backend, make_upstream: MakeMariaDB, tmp_path: Path) -> None:
    upstream = make_upstream(FULL)
    upstream.script(
        "CREATE DATABASE d",
        "CREATE TABLE d.t (id INT PRIMARY KEY, v VARCHAR(300))",
        "CREATE TABLE d.u (id INT PRIMARY KEY)",
        "INSERT INTO d.t SELECT seq, REPEAT('v', 250) FROM d.seq_1_to_40000",  # 10 MB: a large group
        "UPDATE d.t SET v = 'w' WHERE id % 5 = 0",
        "ALTER TABLE d.t ADD n INT FIRST",
        "INSERT INTO d.t VALUES (5, -1, 'x')",
        "SET gtid_domain_id=3",
        "BEGIN NOT ATOMIC FOR i IN 1..1200 DO INSERT INTO d.u VALUES (i); END FOR; END",
        "DELETE FROM d.t WHERE id < 100",
    )
    store = store_of_upstream(tmp_path / "store", upstream)
    wanted = table_of(store, table="d.t").drop_columns(PLACES)
    found = table_of(store, table="d.t", **address(upstream))
    keys = found.column("_order_key").to_pylist()
    assert keys == sorted(set(keys))
    assert found.drop_columns(PLACES).equals(wanted)
    assert wanted.num_rows == 48_101
    some: dict[str, Any] = {"tables": "d.u", "startGtid": "3-" + str(upstream.server_id) + "-1100"}
    assert len(rows_of(store, **some, **address(upstream))) == len(rows_of(store, **some)) == 100
