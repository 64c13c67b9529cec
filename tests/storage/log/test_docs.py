"""The program in docs/rows.md runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from binlog_storage.binlog.store import IbbEngine
from binlog_storage.disk.disk import OsDisk

from tests.protocol.events.rows import samples
from tests.storage.groups import settle
from tests.storage.sizes import small

DOCS = Path(__file__).parents[3] / "docs" / "rows.md"


def test_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engine = IbbEngine(OsDisk(tmp_path), small(64))
    for group in samples.groups("118-row-full-metadata"):
        engine.append(group.payload, group.gtid)
    settle(engine)
    engine.close()
    (program,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert "/var/lib/binlog-server" in program
    exec(program.replace("/var/lib/binlog-server", str(tmp_path)), {})
    printed = capsys.readouterr().out
    assert "t ChangeKind.INSERT pyarrow.RecordBatch" in printed
    assert "id: int32" in printed
