"""Tests that stand in the documents, called as pytest calls tests: all of docs/pytest.md, and some of other pages."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
PAGE = "docs/pytest.md"
OTHERS = ("README.md", "docs/consumer-in-ci.md")
MARKS = ("mariadb_replica", "process=True", "BinlogServerContainer")
"""Words of examples that need more than this process: of several the last one counts, which needs most."""


def examples(mark: str = "") -> list[Any]:
    """Those that need this, or nothing."""
    found = [
        (page, number, text)
        for page in (PAGE, *OTHERS)
        for number, text in enumerate(
            re.findall(r"```python\n(.*?)```", (ROOT / page).read_text("utf-8"), re.DOTALL)
        )
    ]
    chosen = [
        pytest.param(text, id=f"{page}-{number}")
        for page, number, text in found
        if (page == PAGE or "def test_" in text)
        and ["", *(word for word in MARKS if word in text)][-1] == mark
    ]
    assert chosen, mark
    return chosen


class ExampleTests:
    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._request = request

    def run(self, example: str) -> int:
        """Run an example and the tests in it. Returns their number."""
        names: dict[str, Any] = {}
        exec(compile(example, "<a document>", "exec"), names)
        tests = [test for name, test in names.items() if name.startswith("test_")]
        for test in tests:
            wanted = inspect.signature(test).parameters
            test(**{given: self._request.getfixturevalue(given) for given in wanted})
        return len(tests)
