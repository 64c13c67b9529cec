"""What `verify` finds in a store."""

from __future__ import annotations

from pathlib import Path

from storage.binlog.file_names import file_numbers
from storage.inspection.read_only_disk import ReadOnlyDisk
from storage.inspection.verify import Finding, Verifier


def verified(directory: Path) -> list[Finding]:
    """Everything it says. Groups whose data began in a file that was purged are no damage."""
    findings: list[Finding] = []
    disk = ReadOnlyDisk(directory)
    Verifier(disk, findings.append, lambda _done, _total: None).run()
    first = file_numbers(disk.names())[0]
    return [finding for finding in findings if finding.file_no >= first]
