"""The catalog of tests of the sink iceberg."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline.tables.lake import configure


@pytest.fixture(autouse=True)
def catalog(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in `tmp_path`, for those whose names have the sink."""
    if "iceberg" in request.node.name:
        configure(monkeypatch, tmp_path)
