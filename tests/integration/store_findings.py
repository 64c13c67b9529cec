"""What `verify` finds in a store."""

from __future__ import annotations

from pathlib import Path

from binlog_storage.disk.read_only_disk import ReadOnlyDisk
from binlog_storage.verify.verify import Finding, Severity, Verifier


def verified(directory: Path) -> list[Finding]:
    """The errors that it finds."""
    findings: list[Finding] = []
    Verifier(ReadOnlyDisk(directory), findings.append, lambda _done, _total: None).run()
    return [finding for finding in findings if finding.severity is Severity.ERROR]
