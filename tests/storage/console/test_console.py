"""What commands print: tables and progress on a terminal and behind a pipe, errors, exit codes."""

from __future__ import annotations

import argparse
import contextlib
import errno
import io
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from binlog_storage.console.arguments import (
    amount_argument,
    as_typed,
    did_you_mean,
    number_argument,
    position_argument,
    seconds_argument,
    size_of,
    table_name,
)
from binlog_storage.console.output import counted, show_table, shown, size_text, text_table
from binlog_storage.console.progress import Progress
from binlog_storage.console.running import complain, not_interrupted, run_command, run_program
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


def test_a_long_value_is_not_repeated_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """What was given comes first, what is wrong with it last."""
    assert complain("tool", ValueError(f"{'x' * 3990} is bad"), 2) == 2
    assert len(capsys.readouterr().err) == len("tool: ") + 3990 + len(" is bad\n")
    complain("tool", ValueError(f"listen: '{'x' * 70_000}' is not HOST:PORT"), 2)
    said = capsys.readouterr().err
    assert len(said) < 4100
    assert said.startswith("tool: listen: 'xxx")
    assert said.endswith("xxx' is not HOST:PORT\n")


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
        UnicodeEncodeError("utf-8", "/a\udcff", 2, 3, "surrogates not allowed"),
        1,
        "prog: '/a\\udcff' is no UTF-8 text, which the library that opens it wants of a name",
    ),
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
    (
        ModuleNotFoundError("x", name="confluent_kafka"),
        1,
        "prog: confluent_kafka is needed for that: pip install '.[kafka]'",
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
    assert [ran(None), ran(None, 1)] == [0, 1]
    with pytest.raises(ZeroDivisionError):
        ran(ZeroDivisionError())  # a mistake of ours is told with its place
    assert pipe.getvalue() == ""


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        (
            "full",
            "prog: standard output: No space left on device: make room, and give the command again\n",
        ),
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


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_is_interrupted(number: signal.Signals) -> None:
    """What it was at lets go of what it has; then it ends by the signal, as loops of a shell want it."""
    program = (
        "import signal, sys, time\n"
        "from binlog_storage.console.running import end_by, run_program\n"
        # A shell without jobs starts what it puts into the background deaf to it.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def work():\n"
        "    try:\n"
        "        print('begun', flush=True)\n"
        "        time.sleep(60)\n"
        "    finally:\n"
        "        print('let go', flush=True)\n"
        "sys.exit(end_by(run_program('prog', work)))\n"
    )
    argv = [sys.executable, "-c", program]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as one:
        assert one.stdout is not None
        assert one.stdout.readline() == "begun\n"
        one.send_signal(number)
        out, err = one.communicate(timeout=50)
    said = "Ctrl-C" if number == signal.SIGINT else "SIGTERM"
    assert (one.returncode, out, err) == (-number, "let go\n", f"prog: interrupted by {said}\n")


@pytest.mark.parametrize("swallows", [False, True])
def test_modules_are_loaded_first(swallows: bool, patch: pytest.MonkeyPatch) -> None:
    """A signal that comes meanwhile is heard behind it; and not hidden by a library that has taken it for something."""
    pipe = instead(patch, io.StringIO())
    loaded = []

    def main() -> int:
        with not_interrupted():
            signal.raise_signal(signal.SIGTERM)
            loaded.append(1)
        return 0

    def library() -> int:
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        raise AttributeError("partially initialized module")

    assert run_program("prog", library if swallows else main) == 128 + signal.SIGTERM
    assert pipe.getvalue() == "prog: interrupted by SIGTERM\n"
    assert loaded == [] if swallows else [1]


def test_what_fails_while_it_is_interrupted(patch: pytest.MonkeyPatch) -> None:
    """Is not what is told."""
    pipe = instead(patch, io.StringIO())

    def work() -> int:
        try:
            raise KeyboardInterrupt
        finally:
            raise NotAStore("half of it is gone")

    assert run_program("prog", lambda: run_command("prog", work, {})) == 130
    assert pipe.getvalue() == "prog: interrupted by Ctrl-C\n"


@pytest.mark.long
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("redirect", "code", "said"),
    [
        (">/dev/full", 1, "prog: standard output: No space left on device: make room, and give the command again\n"),
        ("| head -c 1 >/dev/null", 1, ""),
        (">&-", 0, ""),
        (">&- 2>&- <&-", 0, ""),
        (">/dev/null", 0, ""),
    ],
)  # fmt: skip
def test_output_of_a_program(
    unbuffered: str, redirect: str, code: int, said: str, tmp_path: Path
) -> None:
    """Buffered by Python or not; and no file that is opened is taken for a stream that is closed."""
    program = (
        "import sys\n"
        "from binlog_storage.console.running import end_by, run_command, run_program\n"
        "def work():\n"
        f"    with open({str(tmp_path / 'file')!r}, 'wb') as file:\n"
        "        sys.stdout.buffer.writelines([b'x' * 99, b'y' * 9999999])\n"
        "        print('z \\udcff')\n"
        "        sys.stdout.flush()\n"
        "    return 0\n"
        "main = lambda: run_command('prog', work, {})\n"
        "sys.exit(end_by(run_program('prog', main)))\n"
    )
    command = f"set -o pipefail; {shlex.quote(sys.executable)} -c {shlex.quote(program)} {redirect}"
    done = subprocess.run(
        ["bash", "-c", command],
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (code, said)
    assert (tmp_path / "file").read_bytes() == b""


def test_an_error_of_the_disk_while_output_is_sound(patch: pytest.MonkeyPatch) -> None:
    """Of a target without a name in the error, by a library of others."""
    pipe = instead(patch, io.StringIO())

    def work() -> int:
        text = "Error writing bytes to file. Detail: [errno 28] No space left on device"
        raise OSError(errno.ENOSPC, text)

    assert run_command("prog", work, {}, Path("/made"), lambda _: 3 << 20) == 1
    assert pipe.getvalue() == (
        "prog: /made: No space left on device: make room, and give the command again; free there: 3 MiB\n"
    )


def test_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser(prog="prog")
    parser.add_argument("--count", type=number_argument(1, 9))
    parser.add_argument("--most", type=number_argument())
    parser.add_argument("--any", type=number_argument(None))
    parser.add_argument("--rate", type=amount_argument)
    parser.add_argument("--wait", type=seconds_argument)
    good = ["--count=9", "--most=0", "--any=-5", "--rate=0.5", "--wait=2"]
    assert vars(parser.parse_args(good)) == {
        "count": 9,
        "most": 0,
        "any": -5,
        "rate": 0.5,
        "wait": 2,
    }
    for word, said in (
        ("--count=0", "'0' is no whole number from 1 to 9"),
        ("--count=x", "'x' is no whole number from 1 to 9"),
        ("--most=1.5", "'1.5' is no whole number from 0 on"),
        ("--most=-1", "'-1' is no whole number from 0 on"),
        (f"--most={'9' * 5000}", "is no whole number from 0 on"),
        ("--any=", "'' is no whole number"),
        ("--rate=fast", "'fast' is no number from 0 on"),
        ("--rate=inf", "'inf' is no number from 0 on"),
        ("--wait=-1", "'-1' is no number of seconds from 0 on"),
    ):
        with pytest.raises(SystemExit, match="2"):
            parser.parse_args([word])
        flag = word.partition("=")[0]
        line = capsys.readouterr().err.splitlines()[-1]
        assert line.startswith(f"prog: error: argument {flag}: ")
        assert line.endswith(said)


def test_sizes_that_are_given() -> None:
    assert [size_of(text) for text in ("0", "17", "64K", "16m", "1G")] == [
        *(0, 17, 64 << 10, 16 << 20, 1 << 30)
    ]
    for text in ("", "K", "1Q", "-1", "1.5G", "1 G", "٣", "16E", str(1 << 64)):
        with pytest.raises(ValueError, match=f"{text!r} is no size such as 64K, 16M or 1G"):
            size_of(text)


def test_no_more_threads(capsys: pytest.CaptureFixture[str]) -> None:
    def started() -> int:
        raise RuntimeError("can't start new thread")

    assert run_program("prog", started) == 1
    assert capsys.readouterr().err.startswith("prog: can't start new thread: raise the limit of")


def test_numbers_of_things() -> None:
    assert [counted(number, "file") for number in (0, 1, 2)] == ["0 files", "1 file", "2 files"]


def test_names_of_tables() -> None:
    assert table_name("orders") == ("", "orders")
    assert table_name("shop.orders") == ("shop", "orders")
    assert table_name("`a.b`.`c``d`") == ("a.b", "c`d")
    for text in ("a.b.c", "", ".", "a.", ".a", "`a", "a`b"):
        with pytest.raises(ValueError, match="is no table such as"):
            table_name(text)


def test_options_as_they_were_typed() -> None:
    argv = ["serve", "--metrics-listen=x", "--listen", "y"]
    assert as_typed("metrics_listen: 'x' is wrong", argv) == "--metrics-listen: 'x' is wrong"
    assert as_typed("listen: port 0", argv) == "--listen: port 0"
    assert as_typed("server_id: 7 in x.toml", argv) == "server_id: 7 in x.toml"
    assert as_typed(": x", argv) == ": x"


def test_arguments(tmp_path: Path) -> None:
    assert (
        did_you_mean("--diretory", ["--directory", "--listen"]) == ": did you mean '--directory'?"
    )
    assert did_you_mean("--zzz", ["--directory"]) == ""
    assert str(position_argument("0-1-5")) == "0-1-5"
    with pytest.raises(argparse.ArgumentTypeError, match="is no GTID position"):
        position_argument("x")
