"""Each command with --json: its keys are those of docs/commands.md. And --dry-run, which changes nothing."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from binlog_pipeline import cli as of_pipeline

from binlog_server.app.in_process import running_server
from binlog_server.cli import demo, parser
from tests.binlog_server.cli.command import Ran, run
from tests.binlog_server.lab import ROOT
from tests.kit.commands_page import must_hold, shapes
from tests.storage.classic import binlog_files

SHAPES = shapes("binlog-server")
SMALL = "max_binlog_size = 1048576\ninnodb_log_file_size = 4194304\n"
Args = list[str | Path]
LINES = {"events", "find", "doctor", "doctor --error"}
"""Of which each line is an object."""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "server.toml"
    path.write_text(SMALL)
    return path


@pytest.fixture
def store(config: Path, tmp_path: Path) -> Path:
    paths = binlog_files.write_chain(tmp_path / "of_store", binlog_files.simple(30))
    ran = run("import", "--config", config, "--directory", tmp_path / "store", *paths)
    assert ran.code == 0, ran.err
    return tmp_path / "store"


@pytest.fixture
def traditional(tmp_path: Path) -> list[Path]:
    return binlog_files.write_chain(tmp_path / "files", binlog_files.simple(8))


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    path = tmp_path / "xtra"
    path.mkdir()
    (path / "xtrabackup_binlog_info").write_text("m-bin.000001\t330\t0-1-3\n")
    return path


def files_of(directory: Path) -> dict[str, tuple[int, bytes]]:
    """All that is in a directory, and when it was changed."""
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in directory.rglob("*")
    }


def objects_of(command: str, ran: Ran) -> list[dict[str, Any]]:
    if command in LINES:
        return list(map(json.loads, ran.lines))
    found = json.loads(ran.out)
    return found if isinstance(found, list) else [found]


def holds(command: str, ran: Ran, code: int = 0) -> dict[str, Any]:
    """The first object of what a command has said, which must have the keys of the page."""
    assert ran.code == code, ran.err
    objects = objects_of(command, ran)
    assert objects
    for one in objects:
        must_hold("binlog-server", command, one)
    return objects[0]


def silent(parser: argparse.ArgumentParser, name: str) -> Iterator[str]:
    """Commands, arguments and options that do not say what they are for."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            told = {choice.dest for choice in action._choices_actions if choice.help}
            for inner, command in action.choices.items():
                yield from () if inner in told else [f"{name} {inner}"]
                yield from silent(command, f"{name} {inner}")
        elif not action.help:
            yield f"{name} {' '.join(action.option_strings) or action.dest}"


def test_all_say_what_they_are_for() -> None:
    """In --help, in manual pages, and in completion."""
    both = {"binlog-server": parser()[0], "binlog-spark": of_pipeline.parser()[0]}
    assert [told for name, one in both.items() for told in silent(one, name)] == []
    planted = argparse.ArgumentParser()
    planted.add_argument("--nothing")
    assert list(silent(planted, "x")) == ["x --nothing"]


def test_of_a_store(store: Path, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert holds("verify", run("verify", store, "--json"))["groups"] == 30
    assert holds("ls", run("ls", store, "--json"))["first_gtid"] == "0-1-1"
    found = holds("find", run("find", store, "--gtid", "0-1-7", "--json"))
    assert (found["before"], found["behind"]) == ("0-1-6", "0-1-7")
    assert holds("compare", run("compare", store, store, "--json"))["equal"]
    for line in run("events", store, "--json").lines:
        assert {"file", "offset", "type"} <= set(json.loads(line))
    monkeypatch.setattr("sys.stdin", io.StringIO("pw\n"))
    user: Args = ["user", "add", "repl", "--directory", store, "--json"]
    assert holds("user add", run(*user))["account"] == "repl@%"
    listed = holds("user list", run("user", "list", "--directory", store, "--json"))
    assert listed["privileges"] == ["REPLICATION SLAVE"]


def test_of_configurations(config: Path, tmp_path: Path) -> None:
    directory: Args = ["--config", config, "--directory", tmp_path / "none"]
    told = run("serve", "--check-config", "--json", *directory)
    assert holds("serve --check-config", told)["right"] is True
    ran = run("serve", "--json", *directory)
    assert (ran.code, "--log-format json" in ran.err) == (2, True)
    assert holds("doctor", run("doctor", "--json", *directory))["level"] == "ok"
    error = run("doctor", "--json", "--error", "No space left on device")
    assert "EXPLAIN PURGE" in holds("doctor --error", error)["remedy"]
    rules = holds("monitoring rules", run("monitoring", "rules", "--json"))
    assert {"alert", "expr", "labels", "annotations"} <= set(rules["groups"][0]["rules"][0])
    assert "panels" in json.loads(run("monitoring", "dashboard", "--json").out)


def test_recover(backup: Path, tmp_path: Path) -> None:
    arguments: Args = ["recover", "--backup", backup, "--datadir", tmp_path / "made", "--json"]
    arguments += ["--source", "mariadb://repl@h:3306", "--until", "0-1-9", "--dry-run"]
    told = holds("recover", run(*arguments))
    assert (told["begin"], told["until"], told["dry_run"]) == ("0-1-3", "0-1-9", True)
    assert not (tmp_path / "made").exists()


def test_seed_dry_and_in_earnest(config: Path, tmp_path: Path) -> None:
    directory = tmp_path / "made"
    seed: Args = ["seed", "--config", config, "--directory", directory, "--json"]
    seed += ["--gtid-slave-pos", "0-1-5"]
    assert holds("seed", run(*seed, "--dry-run"))["changed"] is True
    assert not directory.exists()
    assert holds("seed", run(*seed))["dry_run"] is False
    before = files_of(directory)
    assert holds("seed", run(*seed, "--dry-run"))["changed"] is False
    ran = run(*seed[:-1], "0-1-6", "--dry-run")
    assert (ran.code, "the store is at '0-1-5' already" in ran.err) == (1, True)
    assert files_of(directory) == before


def test_import_dry_and_in_earnest(config: Path, traditional: list[Path], tmp_path: Path) -> None:
    """A dry run says what then is done: into no store, into one that has all, into one that has a part."""
    directory = tmp_path / "made"
    base: Args = ["import", "--config", config, "--directory", directory, "--json"]
    for files in (traditional, traditional, binlog_files_of_two(tmp_path)):
        before = files_of(directory) if directory.exists() else {}
        dry = holds("import", run(*base, *files, "--dry-run"))
        assert (files_of(directory) if directory.exists() else {}) == before
        real = holds("import", run(*base, *files))
        for one in (dry, real):
            del one["seconds"], one["dry_run"]
        assert dry == real
    assert real["passed_over"] == 8
    assert real["groups"] == 9


def binlog_files_of_two(tmp_path: Path) -> list[Path]:
    parts = [binlog_files.simple(8), binlog_files.simple(9, first=9)]
    return binlog_files.write_chain(tmp_path / "two", *parts)


def test_convert_dry_and_in_earnest(store: Path, config: Path, tmp_path: Path) -> None:
    source, target = store, tmp_path / "old"
    convert: Args = ["convert", source, target, "--config", config, "--json"]
    before = files_of(source)
    dry = holds("convert", run(*convert, "--dry-run"))
    assert dry["groups"] == 30
    assert not target.exists()
    assert files_of(source) == before
    assert holds("convert", run(*convert))["position"] == dry["position"] == "0-1-30"
    before = files_of(target)
    again = holds("convert", run(*convert, "--dry-run"))
    assert (again["groups"], again["passed_over"]) == (0, 30)
    assert files_of(target) == before
    compared = run("convert", "--verify-only", source, target, "--json")
    assert holds("convert --verify-only", compared)["same"] is True
    out = tmp_path / "out"
    copy: Args = ["convert", "--for-mariadb", source, out, "--json"]
    would = holds("convert --for-mariadb", run(*copy, "--dry-run"))["copied"]
    assert not out.exists()
    assert holds("convert --for-mariadb", run(*copy))["copied"] == would > 0


@pytest.mark.parametrize("action", [["add", "new"], ["drop", "repl"], ["set", "repl"]])
def test_user_dry(
    action: list[str], store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("pw\n" * 4))
    assert run("user", "add", "repl", "--directory", store).code == 0
    before = files_of(store)
    limits = ["--max-lag-seconds", "60"] if action[0] == "set" else []
    ran = run("user", *action, *limits, "--directory", store, "--dry-run", "--json")
    assert holds("user add", ran) == {
        "account": f"{action[1]}@%",
        "action": action[0],
        "dry_run": True,
    }
    ran = run("user", "drop", "nobody", "--directory", store, "--dry-run")
    assert (ran.code, "there is no account 'nobody'" in ran.err) == (1, True)
    none = tmp_path / "none"
    assert run("user", "add", "x", "--directory", none, "--dry-run").code == 0
    assert not none.exists()
    assert files_of(store) == before


def test_backup_and_prepare(tmp_path: Path) -> None:
    sizes = {"max_binlog_size": 1 << 16, "innodb_log_file_size": 4 << 20}
    with running_server(tmp_path / "store", users=ROOT, **sizes) as server:
        server.master.create_database("shop")
        url = f"mariadb://root:pw@127.0.0.1:{server.port}"
        arguments: Args = ["backup", "--server", url, "--json", "--target"]
        told = holds("backup", run(*arguments, tmp_path / "copy"))
        assert told["prepared"] is False
        of_tar = run(*arguments, "-")
        assert json.loads(of_tar.err[of_tar.err.index("{\n") :])["bytes"] > 0
    prepare: Args = ["prepare", tmp_path / "copy", "--json"]
    before = files_of(tmp_path / "copy")
    dry = holds("prepare", run(*prepare, "--dry-run"))
    assert files_of(tmp_path / "copy") == before
    assert dry["position"] == holds("prepare", run(*prepare))["position"] == told["position"]
    ran = run("prepare", tmp_path / "copy", "--skip-binlog", "--dry-run")
    assert (ran.code, "was made without --skip-binlog" in ran.err) == (1, True)


def test_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.asynccontextmanager
    async def no_replica(_: Path) -> AsyncIterator[None]:
        yield None

    monkeypatch.setattr(demo, "running_replica", no_replica)
    told = holds("demo", run("demo", "--seconds", "0", "--json"))
    assert (told["complete"], told["applied"]) == (True, None)
