"""Which part of a store is read by whom: a store cut into partitions that can be read side by side."""

from storage.planning.log_pages import LogPages
from storage.planning.partitions import (
    PARTITION_BYTES,
    Partition,
    Stretch,
    batches_from,
    first_times,
    partition_batches,
    partition_records,
    plan,
    state_of,
    stretches,
)
from storage.planning.ranges import GtidRange, TimeRange

__all__ = [
    "PARTITION_BYTES",
    "GtidRange",
    "LogPages",
    "Partition",
    "Stretch",
    "TimeRange",
    "batches_from",
    "first_times",
    "partition_batches",
    "partition_records",
    "plan",
    "state_of",
    "stretches",
]
