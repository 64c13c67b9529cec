"""Archiving: what of a source is not archived yet, as Parquet parts that are published in their order.

Parts are made by workers, side by side, under names that do not count; here they are published, each only when all
before it are. So the archive is a beginning of the history at any time, whoever is killed.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import field, replace
from typing import Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.gtid import BinlogState
from binlog_storage.archive.manifest import ArchiveManifest
from binlog_storage.archive.merging import Merger
from binlog_storage.archive.places import Where, is_remote
from binlog_storage.archive.publisher import (
    STAGED_PREFIX,
    ArchivePublisher,
    StagedPart,
    manifest_there,
    open_shelf,
)
from binlog_storage.disk.local_path import local_path
from binlog_storage.log.partitions import PARTITION_BYTES

from binlog_pipeline.errors import BadOption, DataLost
from binlog_pipeline.jobs.archive_part import WritePart, WrittenPart
from binlog_pipeline.jobs.archive_plan import ArchivePlan, beginning, plan_archive
from binlog_pipeline.jobs.workers import Engine, open_workers
from binlog_pipeline.sources.source import LogSource

_PUBLISH_PARTS: Final = 64
_PUBLISH_S: Final = 2.0
_SPARK_ITEMS: Final = 256  # their results come together


@dataclass(frozen=True, slots=True)
class ArchiveSettings:
    """How an archive is made.

    tail: also what is in the file that is being written, up to what is durable.
    partition_bytes: of the source, for a part.
    level: of zstd.
    is_checked: parts are read back before they are published.
    key_id: parts are encrypted with that key; 0: with the one that the manifest names, if it does.
    """

    tail: bool = False
    partition_bytes: int = PARTITION_BYTES
    level: int = 1
    is_checked: bool = False
    key_id: int = 0
    engine: Engine = field(default_factory=Engine)


@dataclass(frozen=True, slots=True)
class Archived:
    """The manifest behind a run, and the parts, groups and bytes that it has added."""

    manifest: ArchiveManifest
    parts: int = 0
    groups: int = 0
    payload_bytes: int = 0
    size: int = 0


def archive(
    source: LogSource,
    target: Where,
    settings: ArchiveSettings,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Archived:
    """Add what is new. What was published is durable, also if this raises.

    Raises `BadOption`, `SourceError`, `DataLost`, `WorkFailed`, `StorageError`, OSError.

    Args:
        progress: is called with how many slices are done, of how many.
    """
    begin = None
    if is_remote(target):
        if settings.engine.name == "spark" or settings.engine.master:
            raise BadOption(
                f"{target}: parts for an object store are written by processes of this machine: without --engine "
                "spark and --master"
            )
        settings = replace(settings, engine=replace(settings.engine, name="local"))
    elif not local_path(target).exists():
        begin = beginning(source)  # a source that cannot be read leaves no empty target
    publisher = ArchivePublisher(open_shelf(target), key_id=settings.key_id)
    try:
        if publisher.manifest is None:
            begin = beginning(source) if begin is None else begin
            publisher.begin(begin, {"kind": _kind(source), "name": source.name})
        assert publisher.manifest is not None
        plan = plan_archive(
            source, publisher.manifest, settings.partition_bytes, tail=settings.tail
        )
        run = _Run(publisher, settings)
        run.work(plan, progress)
        if plan.end is not None:
            _require_whole(source, publisher.manifest.state, plan.end)
        merger = Merger(settings.partition_bytes)
        while merger.step(publisher):
            pass
        return replace(run.added, manifest=publisher.manifest)
    finally:
        publisher.close()


@dataclass(frozen=True, slots=True)
class Lacking:
    """What an archive lacks of its source: parts, about how many bytes, and the GTID positions around them."""

    parts: int
    size: int
    begin: str
    end: str


def what_lacks(source: LogSource, target: Where, settings: ArchiveSettings) -> Lacking:
    """What `archive` would add. Nothing is written, nor made. Raises as `archive`."""
    manifest = manifest_there(target, settings.key_id)
    if manifest is None:
        manifest = ArchiveManifest(str(beginning(source)), {})
    plan = plan_archive(source, manifest, settings.partition_bytes, tail=settings.tail)
    begin = manifest.state.position()
    end = source.latest() if plan.end is None else plan.end.position()
    if not plan.items or end == begin:  # then there are markers alone
        return Lacking(0, 0, str(begin), str(begin))
    return Lacking(len(plan.items), plan.size, str(begin), str(end))


class _Run:
    """One run of the workers."""

    def __init__(self, publisher: ArchivePublisher, settings: ArchiveSettings) -> None:
        assert publisher.manifest is not None
        self._publisher = publisher
        self._settings = settings
        self._name = uuid.uuid4().hex[:8]
        self._task = WritePart(
            str(publisher.staging.absolute()),
            self._name,
            settings.level,
            settings.is_checked,
            publisher.keys,
            publisher.key_id,
        )
        self._ready: list[WrittenPart] = []
        self._published_at = time.monotonic()
        self.added = Archived(publisher.manifest)

    def work(self, plan: ArchivePlan, progress: Callable[[int, int], None]) -> None:
        done, following = 0, 0
        waiting: dict[int, WrittenPart | None] = {}
        progress(0, len(plan.items))
        try:
            for number, written in self._written(plan):
                waiting[number] = written
                while following in waiting:
                    part = waiting.pop(following)
                    following += 1
                    self._ready += [] if part is None else [part]
                is_time = time.monotonic() - self._published_at > _PUBLISH_S
                if len(self._ready) >= _PUBLISH_PARTS or is_time:
                    self._publish()
                done += 1
                progress(done, len(plan.items))
        finally:
            self._publish()
            self._publisher.discard_staged(f"{STAGED_PREFIX}{self._name}")

    def _written(self, plan: ArchivePlan) -> Iterator[tuple[int, WrittenPart | None]]:
        if not plan.items:
            return
        engine = self._settings.engine
        at_once = _SPARK_ITEMS if engine.is_spark(plan.size) else len(plan.items)
        with open_workers(engine, plan.size) as workers:
            for begin in range(0, len(plan.items), at_once):
                items = plan.items[begin : begin + at_once]
                for number, written in workers.map(self._task, items):
                    yield begin + number, written

    def _publish(self) -> None:
        self._published_at = time.monotonic()
        if not self._ready:
            return
        assert self._publisher.manifest is not None
        parts = self._publisher.publish(list(_growing(self._publisher.manifest, self._ready)))
        self._ready = []
        self.added = Archived(
            self._publisher.manifest,
            self.added.parts + len(parts),
            self.added.groups + sum(part.groups for part in parts),
            self.added.payload_bytes + sum(part.payload_bytes for part in parts),
            self.added.size + sum(part.size for part in parts),
        )


def _growing(manifest: ArchiveManifest, written: list[WrittenPart]) -> Iterator[StagedPart]:
    """Parts whose places come behind those of the parts before, also where the source is another one now."""
    for one in written:
        part = manifest.grown(one.staged.part, one.first_place)
        manifest = replace(manifest, parts=(*manifest.parts, part))
        yield StagedPart(one.staged.staged, part)


def _require_whole(source: LogSource, archived: BinlogState, end: BinlogState) -> None:
    """Check that nothing was left out, as groups found by number are where numbers go backwards. Raises `DataLost`."""
    if any((archived.get(g.domain_id, g.server_id) or -1) < g.seq_no for g in end.entries()):
        raise DataLost(
            f"{source.name} ends at '{end}', but what was archived at '{archived}': numbers go backwards in it, so "
            "it cannot be told what is new. Begin another archive"
        )


def _kind(source: LogSource) -> str:
    return type(source).__name__.removesuffix("Source").lower()
