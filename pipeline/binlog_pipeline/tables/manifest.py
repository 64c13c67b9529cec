"""The manifest of a state target on disk: TARGET/_manifests/000000000012.json. The highest number counts.

    {"format": "binlog-spark state", "version": 1, "table": "shop.orders", "keys": ["id"],
     "begin": "", "position": "0-1-5000", "complete": true, "schema": "<Arrow, base64>",
     "facts": {"is_defined": true, "computed": [], "defaulted": ["state"], "doubt": ""},
     "buckets": [{"file": "data/003-000000000012.parquet", "rows": 410}, null, ...]}

`position`: all changes of the table up to there are in the files. `complete`: so are all other rows, as the table was
made or emptied since `begin`, or a copy was loaded; there is no `doubt`, and no row is of an XA transaction that is
only prepared: see `facts.py` for what else is in `facts`. `logged_as`: the name that the table had at the position, if
that is not `table`: a later RENAME TABLE may give it that one. A manifest is linked into
place when its files are durable, so it is there whole or not at all; two that write at once cannot both have a number.
"""

from __future__ import annotations

import base64
import json
import os
from dataclasses import asdict, field
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa
from binlog_protocol.dataclass import dataclass
from binlog_protocol.gtid import SlavePosition
from binlog_storage.disk.durable_files import sync_folder, synced_file

from binlog_pipeline.errors import PipelineError, SourceError

FOLDER: Final = "_manifests"
_FORMAT: Final = "binlog-spark state"
_VERSION: Final = 1
_DIGITS: Final = 12


@dataclass(frozen=True, slots=True)
class Bucket:
    """A file, named from the target on, with the rows of one part of the keys."""

    file: str
    rows: int


@dataclass(slots=True)
class StateManifest:
    """See the module. `number` is that of its file."""

    table: str
    keys: list[str]
    begin: str
    position: str
    complete: bool
    schema: str
    buckets: list[Bucket | None] = field(default_factory=list)
    number: int = 0
    facts: dict[str, Any] = field(default_factory=dict)
    logged_as: str = ""

    @property
    def slave_position(self) -> SlavePosition:
        return SlavePosition.parse(self.position)

    @property
    def arrow_schema(self) -> pa.Schema:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self.schema)))

    @property
    def files(self) -> list[str]:
        return [bucket.file for bucket in self.buckets if bucket is not None]

    @property
    def rows(self) -> int:
        return sum(bucket.rows for bucket in self.buckets if bucket is not None)

    @classmethod
    def newest(cls, target: Path) -> Self | None:
        """The newest manifest of a target; None without one. Raises `SourceError`."""
        numbers = manifest_numbers(target)
        return cls.read(target, numbers[-1]) if numbers else None

    @classmethod
    def read(cls, target: Path, number: int) -> Self:
        """The manifest of that number. Raises `SourceError`."""
        path = _path(target, number)
        try:
            found = json.loads(path.read_bytes())
            if found.pop("format") != _FORMAT or found.pop("version") != _VERSION:
                raise SourceError(f"{path} is not of a state table that this program knows")
            buckets = [None if b is None else Bucket(**b) for b in found.pop("buckets")]
            return cls(**found, buckets=buckets, number=number)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise SourceError(f"{path} is damaged: {error!r}") from None

    def publish(self, target: Path) -> None:
        """Publish the manifest as the next one. Raises `PipelineError` if another run was faster, OSError."""
        self.number += 1
        folder = target / FOLDER
        folder.mkdir(exist_ok=True)
        content = asdict(self)
        del content["number"]
        staged = folder / f"new-{os.getpid()}"
        with synced_file(staged) as file:
            whole = {"format": _FORMAT, "version": _VERSION, **content}
            file.write(json.dumps(whole, indent=1).encode())
        try:
            # No rename: that would take the place of the manifest of another who was faster.
            os.link(staged, _path(target, self.number))
        except FileExistsError:
            raise PipelineError(f"{target} was changed by somebody else meanwhile") from None
        finally:
            staged.unlink()
        sync_folder(folder)


def encode_schema(schema: pa.Schema) -> str:
    """An Arrow schema as text, for a manifest."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def manifest_numbers(target: Path) -> list[int]:
    """The numbers of the manifests there are, ascending."""
    try:
        names = [path.name for path in (target / FOLDER).iterdir()]
    except FileNotFoundError:
        return []
    return sorted(
        int(n[:_DIGITS]) for n in names if n.endswith(".json") and n[:_DIGITS].isdecimal()
    )


def remove_manifest(target: Path, number: int) -> None:
    """Delete the manifest of that number."""
    _path(target, number).unlink(missing_ok=True)


def _path(target: Path, number: int) -> Path:
    return target / FOLDER / f"{number:0{_DIGITS}}.json"
