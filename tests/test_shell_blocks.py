"""Every block of shell commands in the documents is run by a test, or says why not; and what it calls is there."""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from binlog_pipeline import cli as of_pipeline

from binlog_server import cli as of_server
from tests.shell_blocks import ROOT, Block, blocks, calls, hidden, pages

ALL = [block for page in pages() for block in blocks(page)]


@functools.cache
def parsers() -> dict[str, argparse.ArgumentParser]:
    return {"binlog-server": of_server.parser()[0], "binlog-spark": of_pipeline.parser()[0]}


def unmarked(block: Block, root: Path = ROOT) -> Iterator[str]:
    match block.mark:
        case "run by":
            if not (root / block.said).is_file():
                yield f"{block}: there is no {block.said}"
            elif Path(block.page).name not in (root / block.said).read_text("utf-8"):
                yield f"{block}: {block.said} does not name the page"
        case "not run":
            if len(block.said) < 8:
                yield f"{block}: why not?"
        case "":
            yield f"{block}: a comment above it says who runs it, or why nobody does (tests/shell_blocks.py)"


def test_every_block_is_run_or_says_why_not() -> None:
    assert [said for block in ALL for said in unmarked(block)] == []


def test_no_commands_hide_elsewhere() -> None:
    assert [said for page in pages() for said in hidden(page)] == []


def test_most_are_run() -> None:
    """So that `not run` stays the exception."""
    assert len(ALL) > 60
    told = [block for block in ALL if block.mark != "usage"]
    assert sum(block.mark == "not run" for block in told) < 0.4 * len(told)


@pytest.mark.parametrize("block", [b for b in ALL if b.mark != "usage"], ids=str)
def test_our_commands_are_called_as_they_want_to_be(block: Block) -> None:
    for name, *arguments in calls(block.text):
        if "..." in arguments or "COMMAND" in arguments or "--help" in arguments:
            continue
        with contextlib.redirect_stderr(io.StringIO()) as told:
            try:
                parsers()[name].parse_args(arguments)
            except SystemExit:
                pytest.fail(f"{block}: {name} {' '.join(arguments)}: {told.getvalue()}")


@pytest.mark.parametrize("block", [b for b in ALL if b.mark == "usage"], ids=str)
def test_usages_have_options_that_are_there(block: Block) -> None:
    found = re.search(r"(binlog-server|binlog-spark) (?:[a-z]+|COMMAND)", block.text)
    assert found is not None, str(block)
    for name, command in re.findall(r"(binlog-server|binlog-spark) ([a-z]+)", block.text):
        for action in parsers()[name]._actions:
            if isinstance(action, argparse._SubParsersAction):
                assert command in action.choices, str(block)
    options = {
        option
        for action in parsers()[found[1]]._actions
        if isinstance(action, argparse._SubParsersAction)
        for one in action.choices.values()
        for option in one._option_string_actions
    }
    assert set(re.findall(r"(?<![\w-])--[a-z-]+", block.text)) <= options


def test_calls_are_told_apart_where_the_shell_does() -> None:
    line = "binlog-server find a --sql 'x | y; z' 2>&1 | jq '.a | .b'"
    line += ' && binlog-spark lag "p|q">out; binlog-server ls d &'
    assert list(calls(line)) == [
        ["binlog-server", "find", "a", "--sql", "x | y; z"],
        ["binlog-spark", "lag", "p|q"],
        ["binlog-server", "ls", "d"],
    ]


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("```sh\nmake\n```\n", "says who runs it"),
        ("<!-- not run: no -->\n```sh\nmake\n```\n", "why not?"),
        ("<!-- run by tests/nowhere.py -->\n```sh\nmake\n```\n", "there is no tests/nowhere.py"),
        ("<!-- run by tests/other.py -->\n```sh\nmake\n```\n", "does not name the page"),
        (
            "<!-- all run by tests/nowhere.py -->\n\n```sh x\nmake\n```\n",
            "there is no tests/nowhere.py",
        ),
        ("<!-- run -->\n\n```sh\nmake\n```\n", "says who runs it"),
        ("    binlog-server ls DIR\n", "write it in a fence"),
        ("```\n.venv/bin/pip install .\n```\n", "write it in a fence"),
    ],
)
def test_a_breach_is_found(tmp_path: Path, page: str, said: str) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/other.py").write_text("")
    (tmp_path / "docs/a.md").write_text(page)
    (name,) = pages(tmp_path)
    found = [*hidden(name, tmp_path)]
    for block in blocks(name, tmp_path):
        found += unmarked(block, tmp_path)
    assert any(said in one for one in found), found
