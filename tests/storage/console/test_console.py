"""What commands print: tables and progress on a terminal and behind a pipe, errors, exit codes."""

from __future__ import annotations

import argparse
import errno
import io
import os
from pathlib import Path

import pytest
from binlog_storage.console.arguments import did_you_mean, position_argument
from binlog_storage.console.output import show_table, shown, size_text, text_table
from binlog_storage.console.progress import Progress
from binlog_storage.console.running import run_command
from binlog_storage.errors import DiskError, NotAStore

HOSTILE = "a\x1b]0;owned\x07\x1b[2J\rb"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def patch(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    return monkeypatch


def instead(patch: pytest.MonkeyPatch, made: io.StringIO) -> io.StringIO:
    """In place of standard output and standard error; not in a fixture, as pytest puts its own ones there behind it."""
    for name in ("stdout", "stderr"):
        patch.setattr(f"sys.{name}", made)
    return made


def test_plain_tables() -> None:
    assert list(text_table(("A", "BEE"), [("x", 1), ("long", 1000)])) == [
        "A       BEE",
        "x         1",
        "long  1,000",
    ]
    assert list(text_table(("A", "B"), [])) == ["A  B"]
    assert list(text_table(("", ""), [("x", "y"), ("long", "z")])) == ["x     y", "long  z"]
    assert list(text_table(("A", "B"), [("x", "10"), ("y", "9")], right={1})) == [
        *("A   B", "x  10", "y   9"),
    ]


def test_a_table_behind_a_pipe_is_never_folded(patch: pytest.MonkeyPatch) -> None:
    pipe = instead(patch, io.StringIO())
    show_table(("A", "B"), [("x" * 300, "y")])
    assert pipe.getvalue().splitlines()[1] == f"{'x' * 300}  y"


def test_a_table_on_a_terminal_fits_into_it(patch: pytest.MonkeyPatch) -> None:
    terminal = instead(patch, Terminal())
    show_table(("NAME", "COUNT"), [("[red]x[/red]", 1000), ("y" * 100, 2)])
    lines = terminal.getvalue().splitlines()
    assert len(lines) > 3
    assert all(len(line) <= 60 for line in lines[1:])
    assert "[red]x[/red]" in lines[1]
    assert "1,000" in lines[1]


@pytest.mark.parametrize("made", [Terminal, io.StringIO])
def test_no_text_steers_the_terminal(made: type[io.StringIO], patch: pytest.MonkeyPatch) -> None:
    out = instead(patch, made())
    show_table(("NAME",), [(HOSTILE,)])
    told = out.getvalue()
    assert "\x1b]" not in told
    assert "\x1b[2J" not in told
    assert "\\x1b]0;owned\\x07" in told
    assert shown(HOSTILE) == "a\\x1b]0;owned\\x07\\x1b[2J b"


def test_sizes() -> None:
    assert [size_text(n) for n in (0, 1023, 1024, 1536, 5 << 30)] == [
        *("0 B", "1023 B", "1 KiB", "1.5 KiB", "5 GiB"),
    ]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_progress_behind_a_pipe_is_a_line_every_few_seconds(patch: pytest.MonkeyPatch) -> None:
    pipe = instead(patch, io.StringIO())
    clock = Clock()
    with Progress("import", clock=clock) as progress:
        for second in range(13):
            clock.now = float(second)
            progress.show(second, 20, lambda: f"{clock.now:.0f} groups\x1b")
    assert pipe.getvalue().splitlines() == [
        "import: 25% 5 groups\\x1b, 5 s",
        "import: 50% 10 groups\\x1b, 10 s",
    ]


def test_progress_on_a_terminal_is_gone_in_the_end(patch: pytest.MonkeyPatch) -> None:
    terminal = instead(patch, Terminal())
    clock = Clock()
    with Progress("import", clock=clock) as progress:
        for step in range(30):
            clock.now = step / 16
            progress.show(step, 60, lambda: f"{clock.now * 16:.0f} groups")
        progress.end()
        progress.show(0, 0)
    told = terminal.getvalue()
    assert "28 groups" in told
    assert "47%" in told
    assert "27 groups" not in told  # ten pictures a second are enough
    assert told.count("\x1b[?25l") == told.count("\x1b[?25h")  # the cursor is back


def ran(error: BaseException | None, code: int = 0) -> int:
    def work() -> int:
        if error is not None:
            raise error
        return code

    return run_command("prog", work, {LookupError: 2})


ERRORS = [
    (NotAStore("a\nb"), 1, "prog: a b"),
    (KeyError("x"), 2, "prog: 'x'"),
    (FileNotFoundError(2, "No such file or directory", "/x"), 1, "prog: there is no /x"),
    (FileNotFoundError(2, "No such file", "/none/x/y.new"), 1, "prog: there is no /none"),
    (
        PermissionError(errno.EACCES, "Permission denied", "/x"),
        1,
        "prog: /x: Permission denied: run this as the user whose files they are",
    ),
    (
        OSError(errno.ENOSPC, "No space left on device", "/x"),
        1,
        "prog: /x: No space left on device: make room, and give the command again",
    ),
    (ConnectionRefusedError("h:1 refuses"), 1, "prog: h:1 refuses"),
    (BrokenPipeError(errno.EPIPE, "Broken pipe"), 1, "prog: Broken pipe"),  # of a socket
    (
        ModuleNotFoundError("x", name="pyarrow.parquet"),
        1,
        "prog: pyarrow is needed for that: pip install '.[jobs]'",
    ),
    (
        ModuleNotFoundError("x", name="py4j"),
        1,
        "prog: pyspark is needed for that: pip install '.[spark]'",
    ),
]


@pytest.mark.parametrize(("error", "code", "line"), ERRORS)
def test_errors(error: Exception, code: int, line: str, patch: pytest.MonkeyPatch) -> None:
    pipe = instead(patch, io.StringIO())
    assert ran(error) == code
    assert pipe.getvalue() == f"{line}\n"


def test_an_error_of_a_store_has_the_remedy_too(patch: pytest.MonkeyPatch) -> None:
    pipe = instead(patch, io.StringIO())
    for text in ("cannot list /x: Permission denied", "Permission denied, and what to do"):
        error = DiskError(text)
        error.__cause__ = PermissionError(errno.EACCES, "Permission denied", "/x")
        assert ran(error) == 1
    assert pipe.getvalue().splitlines() == [
        "prog: cannot list /x: Permission denied: run this as the user whose files they are",
        "prog: Permission denied, and what to do",
    ]


def test_done_and_broken_off(patch: pytest.MonkeyPatch) -> None:
    pipe = instead(patch, io.StringIO())
    assert [ran(None), ran(None, 1), ran(KeyboardInterrupt())] == [0, 1, 1]
    with pytest.raises(ZeroDivisionError):
        ran(ZeroDivisionError())  # a mistake of ours is told with its place
    assert pipe.getvalue() == ""


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        ("full", "prog: No space left on device: make room, and give the command again\n"),
        ("gone", ""),
    ],
)
def test_output_that_cannot_be_written(
    kind: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk, or as its reader has gone. Nothing is left for the interpreter to complain about."""
    err = io.StringIO()
    monkeypatch.setattr("sys.stderr", err)
    if kind == "full":
        fd = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, fd = os.pipe()
        os.close(reader)
    with open(fd, "w") as out:
        monkeypatch.setattr("sys.stdout", out)

        def work() -> int:
            out.write("x" * 10)
            return 0

        assert run_command("prog", work, {}) == 1
        out.write("the rest")
    assert err.getvalue() == line


def test_arguments(tmp_path: Path) -> None:
    assert (
        did_you_mean("--diretory", ["--directory", "--listen"]) == ": did you mean '--directory'?"
    )
    assert did_you_mean("--zzz", ["--directory"]) == ""
    assert str(position_argument("0-1-5")) == "0-1-5"
    with pytest.raises(argparse.ArgumentTypeError, match="is no GTID position"):
        position_argument("x")
