"""An object store in memory; both forms of parts."""

from __future__ import annotations

import pytest
from binlog_storage.archive import places, publisher
from binlog_storage.archive.archiver import StoreArchiver
from binlog_storage.archive.manifest import FORMS, PartFormName
from binlog_storage.archive.merging import Merger

from tests.storage.archive.memory_objects import MemoryObjects


@pytest.fixture
def objects(monkeypatch: pytest.MonkeyPatch) -> MemoryObjects:
    """That of every URL."""
    made = MemoryObjects()
    for module in (places, publisher):
        monkeypatch.setattr(module, "open_objects", lambda url: made)
    return made


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> PartFormName:
    """That of all parts of archivers and mergers that are told none."""
    for one in (StoreArchiver, Merger):
        defaults = one.__init__.__kwdefaults__
        assert defaults is not None
        monkeypatch.setitem(defaults, "form", request.param)
    return request.param  # type: ignore[no-any-return]
