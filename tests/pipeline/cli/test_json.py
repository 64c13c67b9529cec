"""Each command with --json: its keys are those of docs/commands.md. And --dry-run, which changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from binlog_pipeline.cli import main
from binlog_pipeline.cli.outcome import told
from binlog_pipeline.jobs.state import Kept
from binlog_pipeline.targets import SINKS
from binlog_protocol.gtid import SlavePosition

from binlog_server.app.in_process import running_server
from tests.binlog_server.cli.test_json import files_of
from tests.kit.commands_page import must_hold

ONE = ["--workers", "1"]
Json = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with two layouts."""
    path = tmp_path_factory.mktemp("of_json") / "store"
    with running_server(path, max_binlog_size=1 << 20, innodb_log_file_size=4 << 20) as server:
        master = server.master
        master.create_database("shop")
        master.create_table("shop.t", {"id": "INT PRIMARY KEY", "a": "VARCHAR(50)"})
        for number in range(20):
            with master.transaction() as t:
                t.insert("shop.t", {"id": number, "a": str(number)})
    return path


@pytest.fixture
def holds(capsys: pytest.CaptureFixture[str]) -> Json:
    """Run a command: its first object, which must have the keys of the page."""

    def run(shape: str, *more: str | Path, code: int = 0) -> dict[str, Any]:
        command, *flags = shape.split()
        assert main([command, *map(str, more), *flags, "--json"]) == code, capsys.readouterr().err
        found = json.loads(capsys.readouterr().out)
        objects = found if isinstance(found, list) else [found]
        for one in objects:
            must_hold("binlog-spark", shape, one)
        first: dict[str, Any] = objects[0]
        return first

    return run


def test_of_a_store(holds: Json, store: Path, tmp_path: Path) -> None:
    assert holds("stats", store, *ONE)["rows"] == 20
    assert holds("verify", store, *ONE)["sound"] is True
    assert holds("lag", store, "0-1-1")["behind"] > 20
    assert holds("schema", store, "--table", "shop.t", *ONE)["columns"]
    assert holds("package", tmp_path / "code.zip")["bytes"] > 1000


def test_ddl_seed(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seed = tmp_path / "seed.json"
    assert main(["schema", str(store), "--seed-from-ddl", str(seed), "--json", *ONE]) == 0
    must_hold("binlog-spark", "schema --seed-from-ddl", json.loads(capsys.readouterr().out))


def test_of_targets_dry(
    holds: Json, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a run does, a dry one has said; and it makes nothing, not even a lock."""
    out = tmp_path / "out"
    runs: list[tuple[str, Path, list[str], Callable[[], dict[str, Any]]]] = [
        ("export", out, [], lambda: holds("export --dry-run", store, out))
    ]
    for sink in SINKS:
        if sink != "iceberg":
            place, more = tmp_path / sink, ["--table", "shop.t", "--sink", sink]
            state = partial(holds, "state --dry-run", store, place, *more)
            runs.append(("state", place, more, state))
    for job, target, more, dry_run in runs:
        arguments = [store, target, *more]
        dry = dry_run()
        assert not target.exists()
        assert dry["new"] is True
        assert dry["bytes"] > 0
        assert main([job, *map(str, arguments), "--dry-run"]) == 0
        assert f"would be made from '{dry['begin']}' to '{dry['end']}'" in capsys.readouterr().out
        real = holds(job, *arguments, *(ONE if job == "export" else []))
        assert real["position"] == dry["end"]
        there = files_of(target)
        again = dry_run()
        assert (again["new"], again["begin"], again["bytes"]) == (False, dry["end"], 0)
        assert main([job, *map(str, arguments), "--dry-run"]) == 0
        assert "nothing new" in capsys.readouterr().out
        assert files_of(target) == there


def test_a_target_of_others_is_refused_dry_as_in_earnest(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    kept = tmp_path / "kept"
    assert main(["state", str(store), str(kept), "--table", "shop.t"]) == 0
    for arguments in (
        ["export", str(store), str(tmp_path)],
        ["state", str(store), str(kept), "--table", "shop.u"],
    ):
        said = []
        for more in (["--dry-run"], []):
            capsys.readouterr()
            assert main([*arguments, *more]) == 2
            said.append(capsys.readouterr().err)
        assert said[0] == said[1]


def test_of_targets(holds: Json, store: Path, tmp_path: Path) -> None:
    exported = holds("export", store, tmp_path / "out", *ONE)
    assert (exported["rows"], exported["complete"]) == (20, True)
    kept = holds("state", store, tmp_path / "state", "--table", "shop.t")
    assert (kept["changes"], kept["complete"]) == (21, True)  # and the CREATE TABLE


def test_of_a_stream(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without Spark: what it says at its end."""
    kept = Kept(SlavePosition.parse("0-1-5"), 3, False, "a doubt")
    assert told(tmp_path, kept, is_strict=True, facts={}) == 1
    found = json.loads(capsys.readouterr().out)
    must_hold("binlog-spark", "stream", found)
    assert found["doubt"] == "a doubt"


def test_archive_and_replay_dry_and_in_earnest(holds: Json, store: Path, tmp_path: Path) -> None:
    target, made = tmp_path / "archive", tmp_path / "made"
    archive = [store, target, "--include-tail", *ONE]
    dry = holds("archive --dry-run", *archive)
    assert not target.exists()
    real = holds("archive", *archive)
    assert (dry["parts"], dry["end"]) == (real["added"]["parts"], real["position"])
    before = files_of(target)
    assert holds("archive --dry-run", *archive)["parts"] == 0
    replay = ["--ibb", made, "--max-binlog-size", "1m"]
    would = holds("replay", target, *replay, "--dry-run")
    assert not made.exists()
    did = holds("replay", target, *replay)
    there = files_of(made)
    again = holds("replay", target, *replay, "--dry-run")
    assert files_of(made) == there
    assert files_of(target) == before
    assert (would["groups"], would["position"]) == (did["groups"], did["position"])
    assert (again["groups"], again["position"]) == (0, did["position"])


def test_an_archive_of_others(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    said = []
    for more in ([], ["--dry-run"]):
        assert main(["archive", str(store), str(tmp_path), *more]) == 1
        said.append(capsys.readouterr().err)
    assert said[0] == said[1]


def test_an_archive_whose_key_is_not_there(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = []
    for more in (["--dry-run"], []):
        target = str(tmp_path / "archive")
        assert main(["archive", str(store), target, "--encryption-key-id", "2", *more]) == 1
        said.append(capsys.readouterr().err)
    assert said[0] == said[1]
    assert "is encrypted with key 2: give the key file" in said[0]
