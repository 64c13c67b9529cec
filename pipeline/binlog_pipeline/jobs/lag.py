"""How far something that was made of a source is behind it, in numbers of GTIDs."""

from __future__ import annotations

import json
from pathlib import Path

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import ServerError
from binlog_protocol.gtid import SlavePosition
from binlog_storage.archive.archive import is_archive
from binlog_storage.archive.errors import NotAnArchive
from binlog_storage.archive.places import is_remote
from binlog_storage.disk.local_path import local_path

from binlog_pipeline.errors import BadOption, SourceError
from binlog_pipeline.jobs.manifest import ExportManifest
from binlog_pipeline.sources.archive import ArchiveSource
from binlog_pipeline.tables.sinks import position_of_table
from binlog_pipeline.targets import ICEBERG, Target


@dataclass(frozen=True, slots=True)
class DomainLag:
    """The lag in one domain. `behind`: numbers between the two; so many transactions, or fewer where there are gaps."""

    domain: int
    at: str
    latest: str
    behind: int


def lag(latest: SlavePosition, at: SlavePosition) -> list[DomainLag]:
    """The lag of `at` behind `latest` in GTID numbers, for each domain that is in either."""
    found = []
    for domain in sorted({*latest.domains(), *at.domains()}):
        end, here = latest.get(domain), at.get(domain)
        behind = (0 if end is None else end.seq_no) - (0 if here is None else here.seq_no)
        found.append(DomainLag(domain, str(here or "-"), str(end or "-"), behind))
    return found


def position_of(what: str) -> SlavePosition:
    """The position of an export, archive, state table or stream checkpoint; or a GTID position itself.

    Raises `BadOption` for anything else, `SourceError` for one that is damaged, `NotLocal`.
    """
    if what.startswith(ICEBERG):
        return _of_table(what)
    if is_remote(what):
        try:
            return ArchiveSource(what).latest()
        except NotAnArchive:
            return _of_table(what)
    path = local_path(what)
    if not path.is_dir():
        try:
            return SlavePosition.parse(what)
        except ServerError:
            raise BadOption(
                f"{what} is neither a directory nor a GTID position such as 0-1-500"
            ) from None
    if is_archive(path):
        return ArchiveSource(what).latest()
    manifest = ExportManifest.read(path)
    if manifest is not None:
        return manifest.slave_position
    if (path / "offsets").is_dir():
        return _of_checkpoint(path)
    return _of_table(path)


def _of_table(target: Target) -> SlavePosition:
    """Of a target of `state`, `stream`, `load`. Raises `BadOption` if none is there, and as `position_of_table`."""
    found = position_of_table(target)
    if found is None:
        raise BadOption(f"{target} is no export, archive, state table or checkpoint")
    return found


def _of_checkpoint(path: Path) -> SlavePosition:
    """The end of the last batch that was committed; before the first, the beginning of that."""
    done = [int(name.name) for name in (path / "commits").glob("[0-9]*")]
    if not done:
        raise SourceError(f"{path}: no batch of the stream is done yet")
    offsets = path / "offsets" / str(max(done))
    for line in offsets.read_text("utf-8").splitlines():
        try:
            return SlavePosition.parse(json.loads(line)["gtid"])
        except (ValueError, KeyError, TypeError, ServerError):
            continue
    raise SourceError(f"{offsets} has no offset of a source binlog")
