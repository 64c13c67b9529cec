"""What object stores say, and what to look at then."""

from __future__ import annotations

from pathlib import Path

import pytest
from binlog_pipeline.errors import SourceError
from binlog_pipeline.tables.delta import said_of_delta
from binlog_pipeline.tables.iceberg import said_of_iceberg
from binlog_pipeline.telling import told_by_store


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "Kernel error \x1b[31m↳\x1b[0m 403 Forbidden",
            "Kernel error ↳ 403 Forbidden; are the keys in",
        ),
        ("AWS Error ACCESS_DENIED during HeadObject operation", "may they read and write there?"),
        ("<Code>NoSuchBucket</Code>", "is the bucket there?"),
        ("503 Slow Down", "s3://b/t: 503 Slow Down"),
    ],
)
def test_told_by_store(said: str, told: str) -> None:
    found = told_by_store("s3://b/t", OSError(said))
    assert told in found
    assert "\x1b" not in found
    assert found.startswith("s3://b/t: ")


def test_errors_of_stores_are_ours_and_those_of_disks_are_not() -> None:
    refused, full = OSError("403 Forbidden"), OSError(28, "No space left on device")
    with pytest.raises(SourceError, match="may they read"), said_of_delta("s3://b/t"):
        raise refused
    with pytest.raises(SourceError, match="may they read"), said_of_iceberg("iceberg://lake/d/t"):
        raise refused
    with pytest.raises(OSError, match="No space"), said_of_delta(Path("/lake/t")):
        raise full
    with pytest.raises(OSError, match="No space"), said_of_iceberg("iceberg://lake/d/t"):
        raise full
