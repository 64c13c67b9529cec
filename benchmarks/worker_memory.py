"""The memory of a worker for a table's rows: the peak of a process that reads all of a store as view changes.

    python -m benchmarks.worker_memory DIRECTORY TABLE

prints {"rows": ..., "mib": ..., "before_mib": ...}: rows read, peak of the resident set, and that before reading.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from binlog_pipeline.options import SourceOptions
from binlog_pipeline.sources.opening import open_source
from binlog_pipeline.views import open_view


def main(directory: str, table: str) -> None:
    options = SourceOptions.parse({"path": directory, "view": "changes", "table": table})
    source = open_source(options)
    view = open_view(options, source)
    before = _peak_mib()
    rows = 0
    for part in source.slices(options.wanted, options.partition_bytes):
        for batch in view.batches(part.read()):
            rows += batch.num_rows
    print(json.dumps({"rows": rows, "mib": _peak_mib(), "before_mib": before}))


def _peak_mib() -> float:
    """The peak by the kernel's status: `getrusage` begins with the memory of the parent."""
    lines = Path("/proc/self/status").read_text().splitlines()
    kib = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    return round(kib / 1024, 1)


if __name__ == "__main__":
    main(*sys.argv[1:])
