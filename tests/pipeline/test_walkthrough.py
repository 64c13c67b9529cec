"""docs/spark-walkthrough.md, as its reader does it. BINLOG_UPDATE_WALKTHROUGH=1 writes what comes out into it."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from tests.kit.fixtures import MakeMariaDB
from tests.pipeline.stores import FULL, store_of_upstream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE: Final = Path(__file__).parents[2] / "docs" / "spark-walkthrough.md"
_BLOCK: Final = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A piece of code or output, and where its text lies in the page."""

    kind: str
    text: str
    begin: int
    end: int


def blocks(page: str) -> list[Block]:
    return [Block(m[1], m[2], *m.span(2)) for m in _BLOCK.finditer(page)]


@pytest.mark.spark
@pytest.mark.any_version
@pytest.mark.timeout(240)
def test_what_it_shows_is_what_comes_out(
    backend: object,
    make_upstream: MakeMariaDB,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    upstream = make_upstream(FULL)
    upstream.script("RESET MASTER")
    store, lake = tmp_path / "store", tmp_path / "lake"
    lake.mkdir()
    monkeypatch.setenv("STORE", str(store))
    monkeypatch.setenv("LAKE", str(lake))
    page = PAGE.read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    shown = stored = ""
    outputs: list[tuple[Block, str]] = []
    for block in blocks(page):
        match block.kind:
            case "sql":
                upstream.script(*filter(None, block.text.replace("\n", " ").split("; ")))
                store_of_upstream(store, upstream, stored)
                stored = upstream.gtid_binlog_pos
            case "python":
                with contextlib.redirect_stdout(io.StringIO()) as out:
                    exec(compile(block.text, PAGE.name, "exec"), names)
                shown = out.getvalue().rstrip() + "\n"
            case "sh":
                run(block.text)
            case "text":
                outputs.append((block, shown))
    if os.environ.get("BINLOG_UPDATE_WALKTHROUGH"):
        for block, text in reversed(outputs):
            page = page[: block.begin] + text + page[block.end :]
        PAGE.write_text(page, encoding="utf-8")
        return
    for block, text in outputs:
        assert block.text == text


def run(text: str) -> None:
    """Commands, one a line, as from a shell in the project's environment."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-ec", text],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
