"""`binlog-server verify`: checks all files of a binlog directory, and prints each damage with its place."""

from __future__ import annotations

import argparse
from typing import Any

from binlog_storage.disk.local_path import path_argument
from binlog_storage.disk.read_only_disk import ReadOnlyDisk
from binlog_storage.errors import NotAStore
from binlog_storage.ibb.file_names import file_numbers, no_files
from binlog_storage.verify.verify import Finding, Verifier

from binlog_server.cli.progress_line import ProgressLine

_EPILOG = """
One line a finding: file, page, byte offset, reason. It goes on behind a damaged page where it can, so one damage may
show in more than one line. Exit code: 0 sound, perhaps with warnings; 1 damaged. Nothing is changed. Verify a directory
that no server is writing: what is being written would count as damaged.
"""
_BAR_CELLS = 30


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser(
        "verify",
        help="check every page, record and reference of a store",
        description="Check every page, record, reference and GTID state of a binlog directory.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("directory", type=path_argument, metavar="DIR")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command. Returns the exit code: 1 if anything is damaged. Raises `StorageError`."""
    disk = ReadOnlyDisk(arguments.directory)
    if not file_numbers(disk.names()):
        raise NotAStore(f"{arguments.directory} {no_files(disk.names())}")
    line = ProgressLine()

    def report(finding: Finding) -> None:
        line.end()
        print(finding, flush=True)

    def checked(done: int, total: int) -> None:
        line.show(lambda: _bar(done / total if total else 1.0))

    totals = Verifier(disk, report, checked).run()
    line.end()
    verdict = "damaged" if totals.errors else "sound"
    print(
        f"{verdict}: {_count(totals.files, 'file')}, {_count(totals.groups, 'group')}, "
        f"{_count(totals.errors, 'error')}, {_count(totals.warnings, 'warning')}"
    )
    return 1 if totals.errors else 0


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _bar(part: float) -> str:
    return f"[{'#' * int(part * _BAR_CELLS):<{_BAR_CELLS}}] {part:4.0%}"
