"""Which columns of a view are wanted, in which order: what Spark was told by `.schema(...)`, or all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from binlog_pipeline.errors import BadOption


@dataclass(frozen=True, slots=True)
class ColumnSelection:
    """The chosen columns of a schema: their names, in the order in which they are given out."""

    names: tuple[str, ...]

    @classmethod
    def among(cls, schema: pa.Schema, names: Sequence[str]) -> ColumnSelection:
        """Raises `BadOption` for a name that there is not."""
        unknown = [name for name in names if name not in schema.names]
        if unknown:
            raise BadOption(
                f"the view has no column {', '.join(unknown)}; it has {', '.join(schema.names)}"
            )
        return cls(tuple(names))

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with these columns alone."""
        if tuple(batch.schema.names) == self.names:
            return batch
        return batch.select(list(self.names))
