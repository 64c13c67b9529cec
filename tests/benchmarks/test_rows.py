"""The benchmark of row decoding runs, and its numbers are of the rows that were logged."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.benchmarks.test_benchmarks import benchmarks


@pytest.mark.replica
@pytest.mark.timeout(180)
def test_rows() -> None:
    done = benchmarks("rows", "--json", "--rows=2000", "--transactions=50", "--repetitions=1")
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert result["rows"] == {"bulk": 2000, "oltp": 50}
    for name in ("bulk", "oltp"):
        for who in ("mariadb_binlog", "pmr"):
            assert result[f"{name}_vs_{who}"] > 0
