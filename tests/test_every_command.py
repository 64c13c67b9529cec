"""What holds for every command of both programs: words of wrong values, output that cannot be written, --dry-run,
errors with --json, a disk without room, Ctrl-C wherever it comes. A new command is in it by itself, and needs a call in
`tests/kit/every_command.py`.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import multiprocessing
import random
import sys
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.binlog_server.cli.test_json import files_of
from tests.kit import java
from tests.kit.commands_page import dry_runs
from tests.kit.every_command import (
    CALLS,
    COMMANDS,
    DONE,
    MAINS,
    NOT_HERE,
    Ran,
    call,
    copied,
    run,
    sources,
    words,
)

java.set_options()

Main = Callable[[Sequence[str] | None], int]
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([__name__])
TURNS = 1
"""Of Ctrl-C, for each command."""
CHANGE_NOTHING = {
    *(
        "binlog-server user list",
        "binlog-server verify",
        "binlog-server ls",
        "binlog-server doctor",
    ),
    *("binlog-server serve", "binlog-server monitoring", "binlog-server demo"),
    *("binlog-spark lag", "binlog-spark verify", "binlog-spark publish"),
}
"""Commands that leave no file behind, or only what they are told to serve; others say which argument names it."""
DRY = [name for name, is_there in dry_runs().items() if is_there and name in DONE]
MAKES = [name for name in DONE if " TO" in CALLS[name]]
READS = [name for name in DONE if "@store" in CALLS[name]]


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sources(tmp_path_factory.mktemp("every_command"))


@pytest.fixture
def here(at: Path, tmp_path: Path) -> Path:
    """A copy of the sources, which a command may change."""
    return copied(at, tmp_path / "at")


def one_line(program: str, err: str) -> str:
    """What a command that has failed says."""
    assert err.startswith(f"{program}: "), err
    assert err.count("\n") == 1, err
    assert "\x1b" not in err
    return err.removeprefix(f"{program}: ").rstrip()


def test_every_command_has_a_call() -> None:
    assert CALLS.keys() == COMMANDS.keys()
    assert NOT_HERE.keys() <= CALLS.keys()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_value_that_is_none_is_told_in_our_words(name: str) -> None:
    """Not as `invalid int value`, which is what argparse says of a `ValueError`."""
    for action in COMMANDS[name]._actions:
        kind: Any = action.type
        if kind is None:
            continue
        for text in ("no such?", "-7x", ""):
            with contextlib.suppress(argparse.ArgumentTypeError):
                kind(text)
        assert kind not in (int, float, Path)


OF_SOURCES = [
    name for name, one in COMMANDS.items() if "--connect-timeout" in one._option_string_actions
]


@pytest.mark.parametrize("name", OF_SOURCES)
def test_an_option_of_a_source_is_named_as_it_was_typed(
    name: str, at: Path, tmp_path: Path
) -> None:
    """Its value is read where options of Spark are read, too, whose names are others."""
    for flag, value, said in (
        ("--connect-timeout", "soon", "'soon' is no whole number from 1 to 3600"),
        ("--server-id", "0", "'0' is no whole number from 1 to 4294967295"),
        ("--tls", "maybe", "'maybe' is wrong: it is one of disabled, preferred, required, verify"),
    ):
        ran = run(call(name), at, tmp_path / "to", [flag, value, "--json"])
        assert (ran.code, ran.out) == (2, "")
        assert one_line("binlog-spark", ran.err) == f"{flag}: {said}"
    assert not (tmp_path / "to").exists()


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in CHANGE_NOTHING])
def test_a_command_says_which_argument_names_what_it_makes(name: str) -> None:
    made = COMMANDS[name].get_default("makes") or _of_group(name)
    assert made in {action.dest for action in COMMANDS[name]._actions}


def _of_group(name: str) -> str | None:
    """Of `user add` and others `user` says it."""
    return "directory" if name.split()[1] == "user" else None


@pytest.mark.parametrize("name", DONE)
def test_plain_lines_where_it_is_no_terminal(name: str, here: Path, tmp_path: Path) -> None:
    """And --json is JSON alone, in the same run of a copy."""
    for more in ([], ["--json"]):
        to = tmp_path / f"to{len(more)}"
        ran = run(call(name), copied(here, tmp_path / f"at{len(more)}"), to, more)
        assert ran.code == 0, ran
        assert "\x1b" not in ran.out + ran.err
        assert "\r" not in ran.out + ran.err
        if more:
            for text in (
                [ran.out] if ran.out[:1] in "[{" and "\n " in ran.out else ran.out.splitlines()
            ):
                json.loads(text)


@pytest.mark.parametrize("name", DONE)
def test_output_that_cannot_be_written(
    name: str, here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, err = name.split()[0], io.StringIO()
    monkeypatch.setattr("sys.stdin", io.StringIO("secret\n"))
    with Path("/dev/full").open("w") as full, monkeypatch.context() as patch:
        patch.setattr("sys.stdout", full)
        patch.setattr("sys.__stdout__", full)
        patch.setattr("sys.stderr", err)
        code = MAINS[program](words(call(name), here, tmp_path / "to"))
    told = "standard output: No space left on device: make room, and give the command again"
    assert (code, one_line(program, err.getvalue())) == (1, told)


WOULD_MAKE_ONE = {"binlog-server serve", "binlog-server doctor"}
"""Commands for which a store that is not there is a new one."""
HAS_ITS_SERVER = {"binlog-server demo", "binlog-server recover"}
"""Commands that start the server to which they connect."""


@pytest.mark.parametrize("name", [name for name in READS if name not in WOULD_MAKE_ONE])
def test_an_error_with_json_is_the_same_line(name: str, tmp_path: Path) -> None:
    """A store that is not there; and nothing is on standard output, where a program looks for JSON."""
    (tmp_path / "small.toml").write_text("")
    said = [run(call(name), tmp_path, tmp_path / "to", more) for more in ([], ["--json"])]
    assert said[0] == said[1]
    assert said[1].out == ""
    assert said[1].code == (2 if name == "binlog-server compare" else 1)
    assert one_line(name.split()[0], said[1].err).endswith(f"there is no {tmp_path / 'store'}")
    assert not (tmp_path / "to").exists()


def starting(name: str) -> Any:
    """A command as a parameter: one that starts a JVM has the time for that."""
    is_slow = name == "binlog-spark stream"
    return pytest.param(name, marks=[pytest.mark.timeout(java.TIMEOUT_S)] * is_slow)


@pytest.mark.parametrize(
    "name", [starting(name) for name in NOT_HERE if name not in HAS_ITS_SERVER]
)
def test_an_error_of_a_server_with_json_is_the_same_line(
    name: str, at: Path, tmp_path: Path
) -> None:
    said = [run(call(name), at, tmp_path / "to", more) for more in ([], ["--json"])]
    assert said[0].code == said[1].code == 1
    assert said[1].out == ""
    text = one_line(name.split()[0], said[1].err.splitlines(keepends=True)[-1])
    assert text.startswith("127.0.0.1:1: ")
    assert text.endswith("Connection refused; is the server up, and reachable?")
    assert not (tmp_path / "to").exists()


OF_ANYTHING = {"binlog-spark package"}
"""Commands that write over what is there: they make a file."""


@pytest.mark.parametrize("name", [name for name in MAKES if name not in OF_ANYTHING])
@pytest.mark.parametrize("there", ["a file", "below a file", "of others"])
def test_a_target_that_is_taken(name: str, there: str, at: Path, tmp_path: Path) -> None:
    """It stays as it is, without a lock in it; and all say the same of what is no directory."""
    to = tmp_path / "to"
    if there == "of others":
        to.mkdir()
        (to / "data").mkdir()
        (to / "data/mine.parquet").write_text("mine")
    else:
        to.write_text("mine")
    before = files_of(tmp_path)
    ran = run(call(name), at, to / "x" if there == "below a file" else to, ["--json"])
    assert ran.code in (1, 2)
    assert ran.out == ""
    text = one_line(name.split()[0], ran.err)
    assert str(to) in text if there == "of others" else text == f"{to} is no directory"
    assert {path: kept[1] for path, kept in files_of(tmp_path).items()} == {
        path: kept[1] for path, kept in before.items()
    }


@pytest.mark.parametrize("name", DRY)
def test_a_dry_run_changes_nothing(name: str, here: Path, tmp_path: Path) -> None:
    before = files_of(tmp_path)
    ran = run(call(name), here, tmp_path / "to", ["--dry-run", "--json"])
    assert ran.code == 0, ran
    assert files_of(tmp_path) == before
    assert json.loads(ran.out)["dry_run"] is True


class Interrupter:
    """Ctrl-C at one call of a function of ours, in a run of a command; and how many calls there were."""

    def __init__(self, at: int) -> None:
        self.calls = 0
        self._at = at

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or "/binlog_" not in frame.f_code.co_filename:
            return
        if "/console/running.py" in frame.f_code.co_filename:
            return  # where it is caught
        self.calls += 1
        if self.calls == self._at:
            raise KeyboardInterrupt

    def main(self, argv: Sequence[str] | None = None, *, main: Main) -> int:
        sys.setprofile(self)
        try:
            return main(argv)
        finally:
            sys.setprofile(None)


def in_a_process(name: str, at: Path, to: Path, call_no: int, results: Connection) -> None:
    """A command that is interrupted at a call; 0: at none. Sends its end, and the number of calls."""
    interrupter, program = Interrupter(call_no), name.split()[0]
    MAINS[program] = partial(interrupter.main, main=MAINS[program])
    ran = None
    with contextlib.suppress(KeyboardInterrupt):  # in front of the command nobody catches it
        ran = run(call(name), at, to)
    results.send((ran, interrupter.calls))


def interrupted(name: str, at: Path, to: Path, call_no: int) -> tuple[Ran | None, int]:
    """`in_a_process`: its threads and open files go with it."""
    ours, theirs = FORKS.Pipe()
    process = FORKS.Process(target=in_a_process, args=(name, at, to, call_no, theirs))
    process.start()
    theirs.close()
    try:
        found: tuple[Ran | None, int] = ours.recv()
        return found
    finally:
        process.join()
        ours.close()


ONCE = {"binlog-server user drop"}
"""Commands that fail where they have done their work already."""


@pytest.mark.by_turns(6)
@pytest.mark.parametrize("name", DONE)
def test_ctrl_c_anywhere(name: str, at: Path, tmp_path: Path, rng: random.Random) -> None:
    """It says so, and the same command does all of it then: nothing that is half made is taken for whole."""
    done, total = interrupted(name, copied(at, tmp_path / "at"), tmp_path / "to", 0)
    assert done is not None
    assert done.code == 0
    for number in range(TURNS):
        here, to = copied(at, tmp_path / f"at{number}"), tmp_path / f"to{number}"
        ran, _ = interrupted(name, here, to, rng.randint(1, total))
        if ran is not None and ran.code:
            assert ran.code == 130, ran
            assert ran.err.splitlines()[-1] == f"{name.split()[0]}: interrupted by Ctrl-C"
        again, _ = interrupted(name, here, to, 0)
        assert again is not None
        assert again.code == 0 or name in ONCE, (ran, again)
        if not again.code:
            assert len(again.out.splitlines()) == len(done.out.splitlines()), (ran, again)
