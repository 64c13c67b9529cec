"""What reading a part needs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from binlog_storage.archive.errors import PyarrowMissing
from binlog_storage.archive.part_reader import PartReader

from tests.storage.archive.test_publisher import part


def test_without_pyarrow_it_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "pyarrow"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(PyarrowMissing, match=r"pip install 'binlog-server\[jobs\]'"):
        PartReader(tmp_path, part(1))
