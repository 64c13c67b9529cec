"""A server says that its directory is gone, while nothing that it does would."""

from __future__ import annotations

from pathlib import Path

import pytest
from binlog_storage.errors import FileMissing

from binlog_server.store.whereabouts import Whereabouts


def test_a_directory_that_goes_and_comes_back(tmp_path: Path) -> None:
    store, aside = tmp_path / "store", tmp_path / "aside"
    store.mkdir()
    here = Whereabouts(lambda: store)
    here.look()
    here.look()
    store.rename(aside)
    with pytest.raises(FileMissing, match="store is gone: what is committed is lost"):
        here.look()
    store.mkdir()  # as a backup that is restored while the server runs
    with pytest.raises(FileMissing, match="store is another directory now"):
        here.look()
    store.rmdir()
    aside.rename(store)
    here.look()


def test_the_store_goes_on_elsewhere(tmp_path: Path) -> None:
    """By ALTER BINLOG CONVERT, behind which the old directory may go."""
    paths = [tmp_path / "old", tmp_path / "new"]
    for path in paths:
        path.mkdir()
    now = paths[0]
    here = Whereabouts(lambda: now)
    here.look()
    now = paths[1]
    here.look()
    paths[0].rmdir()
    here.look()
    paths[1].rmdir()
    with pytest.raises(FileMissing, match="new is gone"):
        here.look()
