"""The benchmarks run and print what is promised. Their numbers are no test's business."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from benchmarks import registry

ROOT = Path(__file__).parents[2]
GROUPS = 2000


def benchmarks(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )


def test_lists_them() -> None:
    done = benchmarks()
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ")] == [
        "churn",
        "commit",
        "fanout",
        "idle",
        "large-transaction",
        "latency",
        "recovery",
        "relay",
        "rename",
        "rollback",
        "rows",
        "spark",
        "start",
        "tail",
    ]


def test_unknown_name() -> None:
    done = benchmarks("speed", "--json")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "'speed'" in done.stderr
    assert "  fanout " in done.stderr


@pytest.mark.by_turns(3)
@pytest.mark.parametrize("clients", ["0", "1,", "many"])
def test_wrong_option(clients: str) -> None:
    done = benchmarks("fanout", "--clients", clients)
    assert done.returncode == 2
    assert "--clients" in done.stderr


@pytest.mark.by_turns(2)
@pytest.mark.replica
@pytest.mark.parametrize("tls", [(), ("--tls",)])
def test_fanout(tls: tuple[str, ...]) -> None:
    done = benchmarks("fanout", "--json", f"--groups={GROUPS}", "--rounds=1", "--clients=1,3", *tls)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert result["tls"] is bool(tls)
    keys = ("ours_mb_s", "mariadbd_mb_s", "ratio", "ratio_by_cpu", "of_loopback", "ours_events_s")
    for key in keys:
        assert list(result[key]) == ["1", "3"], key
        assert all(value > 0 for value in result[key].values()), key
    assert result["history"]["groups"] == GROUPS


@pytest.mark.slow
@pytest.mark.replica
def test_latency() -> None:
    done = benchmarks("latency", "--json", "--commits=100", "--interval-ms=1")
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert result["commits"] == 100
    assert result["extra_ms_p99"] >= result["extra_ms_median"]
    for way in ("direct_ms", "relay_ms"):
        assert 0 < result[way]["median"] <= result[way]["p99"]


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.replica
def test_tail() -> None:
    done = benchmarks("tail", "--json", "--rates=200", "--replicas", "1", "3", "--seconds=1")
    assert done.returncode == 0, done.stderr
    results: dict[str, Any] = json.loads(done.stdout)
    for result in (results["200"], results["200_tls"]):
        for key in ("cpu_ratio", "lag_p50_ratio", "lag_p99_ratio", "ours", "mariadbd"):
            assert list(result[key]) == ["1", "3"], key
        assert result["us_per_group"] + result["us_per_group_and_replica"] > 0
        assert result["ours"]["3"]["lag_p99_ms"] >= result["ours"]["3"]["lag_p50_ms"] > 0
    assert list(results["200"]["limit_cpu_ratio"]) == ["1", "3"]
    assert results["200"]["limit"]["3"]["groups_s"] > 0
    assert "limit" not in results["200_tls"]


@pytest.mark.slow
def test_idle() -> None:
    done = benchmarks("idle", "--json", "--clients=20", "--seconds=1.2", "--heartbeat=0.3")
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert result["heartbeats"] >= 20 * 3
    assert result["rss_mb"] > 10
    assert result["cpu_percent"] >= 0


@pytest.mark.slow
def test_churn() -> None:
    done = benchmarks(
        "churn", "--json", "--replicas=5", "--commits-s=50", "--seconds=4", "--lives-s=2"
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    for what in ("rss_mb", "descriptors", "threads"):
        assert result[f"{what}_first"] > 0
        assert result[f"{what}_last"] > 0
    for what in ("commits_s", "logins", "replaced"):
        assert result[what] > 0


ROWS: Final = ("ratio_rows_sync", "ratio_rows_nosync")


@pytest.mark.slow
@pytest.mark.replica
@pytest.mark.timeout(180)
def test_commit_of_rows() -> None:
    few = ("--connections=2", "--rounds=1", "--seconds=0.2")
    done = benchmarks("commit", "--json", "--only=rows", *few)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    for key in ROWS:
        assert list(result[key]) == ["2"], key
        assert result[key]["2"] > 0, key


@pytest.mark.slow
@pytest.mark.replica
@pytest.mark.timeout(180)
def test_commit() -> None:
    done = benchmarks("commit", "--json", "--connections=2", "--rounds=1", "--seconds=0.2")
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    for key in ("ratio_sync", "ratio_nosync", "fsyncs_per_commit_by_committers", *ROWS):
        assert list(result[key]) == ["2"], key
        assert result[key]["2"] > 0, key
    assert 0 < result["fsyncs_per_commit"] < 2
    assert result["write_amplification"] > 1
    assert list(result["in_process"]["append_sync"]) == ["2"]


@pytest.mark.slow
@pytest.mark.replica
@pytest.mark.timeout(180)
def test_large_transaction() -> None:
    done = benchmarks(
        "large-transaction", "--json", "--bytes=3000000", "--window=0.5", "--repetitions=1"
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert result["p99_factor"] > 0
    assert result["memory_growth_mib"] >= 0
    for server in ("ours", "mariadbd"):
        assert [len(result[server][key]) for key in ("baseline", "writing", "commit")] == [3, 3, 3]


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_relay() -> None:
    done = benchmarks("relay", "--json", f"--groups={GROUPS}", "--bytes=8000000", "--repetitions=1")
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    for key in (
        "ratio_small",
        "ratio_large",
        "ratio_large_synced",
        "large_vs_limit",
        "rss_mib",
        "groups_s",
    ):
        assert result[key] > 0, key
    for one in result["large"]["limit"]:
        assert 1 < one["written_mb"] * 1e6 / result["large"]["bytes"] < 1.1


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_recovery() -> None:
    done = benchmarks(
        "recovery", "--json", "--repetitions=1", "--starts=1", f"--log-file-size={8 << 20}"
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert list(result["startup_s"]) == ["10MB", "10GB"]
    assert result["recovery_s"] > 0
    assert result["redo_bytes"] > 4 << 20


@pytest.mark.slow
def test_start(tmp_path: Path) -> None:
    (tmp_path / "before").symlink_to(Path(__file__).parents[2])
    done = benchmarks("start", "--json", "--starts=1", f"--before={tmp_path / 'before'}")
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    for found in (result, result["before"]):
        for key in ("new_s", "existing_s", "master_s"):
            assert found[key] > 0.05, key
        assert found["master_sql_s"] > found["master_s"]
        assert found["master_modules"] > 300


@pytest.mark.slow
def test_rollback() -> None:
    done = benchmarks(
        "rollback", "--json", "--rounds=1", "--rows=40000", f"--log-file-size={2 << 20}"
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert list(result["open_s"]) == ["committed", "background", "synchronous"]
    assert min(result["startup_factor"], result["sync_factor"], result["undo_s"]) > 0
    assert result["stores"]["open"]["snapshots"] > 1


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.replica
@pytest.mark.timeout(600)
def test_spark() -> None:
    small = ["--rows=40000", "--transactions=5000", "--repetitions=1", "--store-bytes=30000000"]
    live = ["--live-rate=200", "--live-warm-seconds=5", "--live-seconds=3"]
    large = ["--transaction-bytes=100000000", "--cost-gib=0.02,0.04", "--plan-files=20"]
    state = ["--state-rows=200000", "--state-changes=5000"]
    done = benchmarks("spark", "--json", "--without-pmr", *small, *live, *large, *state)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    keys = ("bulk_vs_mariadb_binlog", "oltp_vs_mariadb_binlog", "spark_vs_local", "page_crc_gib_s")
    assert all(found[key] > 0 for key in (*keys, "live_p95_ms", "worker_mib_4gib"))
    assert found["worker"]["rows"] > 1_000_000
    assert found["scaling"] > 0
    assert found["plan_files_s"] > 0
    assert found["state_rows_s"] > 0
    assert found["state_vs_spark"] > 0
    assert {*found["state"]["recent"]["rows_s"]} == {"workers", "here", "spark"}
    assert [*found["cost"]["seconds"]] == ["0.02", "0.04"]


@pytest.mark.parametrize(
    ("name", "flag"), [("commit", "connections"), ("fanout", "clients"), ("tail", "replicas")]
)
@pytest.mark.parametrize("words", [["1", "16"], ["1,16"], ["1,", "16"], ["1"], ["0"], ["1,x"]])
def test_one_form_of_lists(
    name: str, flag: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    registry.benchmarks()[name].add_arguments(parser)
    if "0" in words or "1,x" in words or "1," in words:
        with pytest.raises(SystemExit, match="2"):
            parser.parse_args([f"--{flag}", *words])
        assert "is no whole number from 1 on" in capsys.readouterr().err
        return
    found = getattr(parser.parse_args([f"--{flag}", *words]), flag)
    assert found == [1, 16][: len(",".join(words).split(","))]
