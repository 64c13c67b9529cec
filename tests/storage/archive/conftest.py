"""An object store in memory."""

from __future__ import annotations

import pytest
from binlog_storage.archive import places, publisher

from tests.storage.archive.memory_objects import MemoryObjects


@pytest.fixture
def objects(monkeypatch: pytest.MonkeyPatch) -> MemoryObjects:
    """That of every URL."""
    made = MemoryObjects()
    for module in (places, publisher):
        monkeypatch.setattr(module, "open_objects", lambda url: made)
    return made
