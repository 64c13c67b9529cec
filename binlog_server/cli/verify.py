"""`binlog-server verify`: checks all files of a store of either format, and prints each damage with its place."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from binlog_storage.console.arguments import add_json
from binlog_storage.console.output import counted, show_json
from binlog_storage.console.progress import Progress
from binlog_storage.disk.read_only_disk import ReadOnlyDisk
from binlog_storage.errors import NotAStore
from binlog_storage.ibb.file_names import file_numbers, no_files
from binlog_storage.verify.classic_files import ClassicVerifier, FileFinding
from binlog_storage.verify.verify import Finding, Verifier, VerifyTotals

from binlog_server.cli.given_store import add_store, given_store
from binlog_server.cli.keys import add_key_options, binlog_keys

_EPILOG = """
One line a finding: file, page, byte offset, reason. It goes on behind a damaged page where it can, so one damage may
show in more than one line; a traditional file has no pages, and behind a damaged event nothing of it can be found. Exit
code: 0 sound, perhaps with warnings; 1 damaged. Nothing is changed. Verify a directory that no server is writing: what
is being written would count as damaged.
"""


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    parser = commands.add_parser(
        "verify",
        help="check every page, event, record and reference of a store",
        description="Check every page or event, record, reference and GTID state of a store of either format.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_store(parser)
    add_json(parser)
    add_key_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command. Returns the exit code: 1 if anything is damaged. Raises `ConfigError`, `StorageError`."""
    found: list[Finding | FileFinding] = []
    with Progress("verify") as progress:

        def report(finding: Finding | FileFinding) -> None:
            if arguments.json:
                found.append(finding)
                return
            progress.end()
            print(finding, flush=True)

        totals = _verify(arguments, report, progress.show)
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


def _verify(
    arguments: argparse.Namespace,
    report: Callable[[Finding | FileFinding], None],
    progress: Callable[[int, int], None],
) -> VerifyTotals:
    directory, base = given_store(arguments.directory)
    disk = ReadOnlyDisk(directory)
    if base is not None:
        keys = binlog_keys(arguments.config, directory)
        return ClassicVerifier(disk, base, report, progress, keys).run()
    if not file_numbers(disk.names()):
        raise NotAStore(f"{directory} {no_files(disk.names())}")
    return Verifier(disk, report, progress).run()


def _object(finding: Finding | FileFinding) -> dict[str, object]:
    return {
        "severity": finding.severity.name.lower(),
        "file": finding.file,
        "page": finding.page,
        "offset": finding.offset,
        "reason": finding.reason,
    }
