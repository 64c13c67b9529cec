"""Which part of a store is read by whom: a store cut into partitions that can be read side by side."""

from storage.planning.partitions import (
    PARTITION_BYTES,
    Partition,
    partition_batches,
    partition_records,
    plan,
)
from storage.planning.ranges import GtidRange, TimeRange

__all__ = [
    "PARTITION_BYTES",
    "GtidRange",
    "Partition",
    "TimeRange",
    "partition_batches",
    "partition_records",
    "plan",
]
