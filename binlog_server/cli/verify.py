"""`binlog-server verify`: checks all files of a binlog directory, and prints each damage with its place."""

from __future__ import annotations

import argparse
from typing import Any

from binlog_storage.archive.places import store_argument
from binlog_storage.console.arguments import add_json
from binlog_storage.console.output import counted, show_json
from binlog_storage.console.progress import Progress
from binlog_storage.disk.read_only_disk import ReadOnlyDisk
from binlog_storage.engine.backup import require_readable
from binlog_storage.errors import NotAStore
from binlog_storage.ibb.file_names import file_name, file_numbers, no_files
from binlog_storage.ibb.page import PAGE_SIZE
from binlog_storage.verify.verify import Finding, Verifier

_EPILOG = """
One line a finding: file, page, byte offset, reason. It goes on behind a damaged page where it can, so one damage may
show in more than one line. Exit code: 0 sound, perhaps with warnings; 1 damaged. Nothing is changed. Verify a directory
that no server is writing: what is being written would count as damaged.
"""


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser(
        "verify",
        help="check every page, record and reference of a store",
        description="Check every page, record, reference and GTID state of a binlog directory.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("directory", type=store_argument, metavar="DIR", help="the store")
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command. Returns the exit code: 1 if anything is damaged. Raises `StorageError`."""
    disk = ReadOnlyDisk(arguments.directory)
    require_readable(disk, arguments.directory)
    if not file_numbers(disk.names()):
        raise NotAStore(f"{arguments.directory} {no_files(disk.names())}")
    found: list[Finding] = []
    with Progress("verify") as progress:

        def report(finding: Finding) -> None:
            if arguments.json:
                found.append(finding)
                return
            progress.end()
            print(finding, flush=True)

        totals = Verifier(disk, report, progress.show).run()
    if arguments.json:
        findings = [_object(finding) for finding in found]
        show_json({"sound": not totals.errors, **totals._asdict(), "findings": findings})
        return 1 if totals.errors else 0
    verdict = "damaged" if totals.errors else "sound"
    print(
        f"{verdict}: {counted(totals.files, 'file')}, {counted(totals.groups, 'group')}, "
        f"{counted(totals.errors, 'error')}, {counted(totals.warnings, 'warning')}"
    )
    return 1 if totals.errors else 0


def _object(finding: Finding) -> dict[str, object]:
    return {
        "severity": finding.severity.name.lower(),
        "file": file_name(finding.file_no),
        "page": finding.offset // PAGE_SIZE,
        "offset": finding.offset,
        "reason": finding.reason,
    }
