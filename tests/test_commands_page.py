"""docs/commands.md beside the parsers of both programs: each command with `--json` and `--dry-run`, or why not."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import pytest
from binlog_pipeline import cli as of_pipeline

from binlog_server import cli as of_server
from tests.kit.commands_page import commands, dry_runs, must_hold, shapes

ROOT = Path(__file__).parent.parent
PARSERS = {"binlog-server": of_server.parser()[0], "binlog-spark": of_pipeline.parser()[0]}
COMMANDS = {one.prog: one for parser in PARSERS.values() for one in commands(parser)}
SHAPES = [f"{program} {shape}" for program in PARSERS for shape in shapes(program)]
ALIKE = {"binlog-server user set": "binlog-server user add"}
ALIKE["binlog-server user drop"] = ALIKE["binlog-server user set"]
"""Commands that have the shape of another one: the page says so there."""
WITHOUT_KEYS = {"binlog-server events"}
"""Their keys are those of an event: docs/inspecting.md."""
RUN_BY = {
    "binlog-server": "tests/binlog_server/cli/test_json.py",
    "binlog-spark": "tests/pipeline/cli/test_json.py",
    "binlog-server backup --dry-run": "tests/binlog_server/cli/test_backup.py",
    "binlog-spark load --dry-run": "tests/integration/pipeline/test_load.py",
    "binlog-spark load": "tests/integration/pipeline/test_load.py",
    "binlog-spark publish": "tests/pipeline/jobs/test_publish.py",
    "binlog-spark stream": "tests/pipeline/spark/test_stream_cli.py",
}
"""Where a command is run with `--json`, and what it has printed is held against the page."""


def has(command: argparse.ArgumentParser, option: str) -> bool:
    return option in command._option_string_actions


def test_there_are_commands() -> None:
    assert len(COMMANDS) > 30


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_json_and_a_shape(name: str) -> None:
    assert has(COMMANDS[name], "--json")
    shown = ALIKE.get(name, name)
    assert any(shape == shown or shape.startswith(f"{shown} ") for shape in SHAPES)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_a_dry_run_or_says_why_not(name: str) -> None:
    assert dry_runs().get(name) is has(COMMANDS[name], "--dry-run")


def test_the_page_has_no_other_commands() -> None:
    assert dry_runs().keys() == COMMANDS.keys()
    assert [s for s in SHAPES if not any(f"{s} ".startswith(f"{name} ") for name in COMMANDS)] == []


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_is_that_of_a_real_output(shape: str) -> None:
    program, words = shape.split(" ", 1)
    assert shapes(program)[words] or shape in WITHOUT_KEYS
    text = (ROOT / RUN_BY.get(shape, RUN_BY[program])).read_text("utf-8")
    if shape in WITHOUT_KEYS:
        assert f'run("{words}"' in text
    else:
        assert re.search(rf'holds(?:\(|, )"{words}"|must_hold\("{program}", "{words}"', text)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"damage": None}, ""),
        ({"file": None}, "may not be null"),
        ({"more": 1}, "another key"),
    ],
)
def test_a_breach_is_found(changed: dict[str, object], why: str) -> None:
    one = {**dict.fromkeys(shapes("binlog-server")["ls"], "x"), **changed}
    if not why:
        must_hold("binlog-server", "ls", one)
        return
    with pytest.raises(AssertionError):
        must_hold("binlog-server", "ls", one)


def test_objects_in_objects_are_held_too() -> None:
    one = {**dict.fromkeys(shapes("binlog-server")["verify"], 0), "findings": [{"severity": "x"}]}
    with pytest.raises(AssertionError, match="findings"):
        must_hold("binlog-server", "verify", one)
