"""The examples of docs/pytest.md, called as pytest calls tests."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "pytest.md"
MARKS = ("mariadb_replica", "process=True", "BinlogServerContainer")
"""Words of examples that need more than this process."""


def examples(mark: str = "") -> list[Any]:
    """Those with this mark, or with none."""
    found = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    chosen = [
        pytest.param(text, id=str(number))
        for number, text in enumerate(found)
        if (mark in text if mark else not any(word in text for word in MARKS))
    ]
    assert chosen, mark
    return chosen


class ExampleTests:
    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._request = request

    def run(self, example: str) -> int:
        """Run an example and the tests in it. Returns their number."""
        names: dict[str, Any] = {}
        exec(compile(example, str(PAGE), "exec"), names)
        tests = [test for name, test in names.items() if name.startswith("test_")]
        for test in tests:
            wanted = inspect.signature(test).parameters
            test(**{given: self._request.getfixturevalue(given) for given in wanted})
        return len(tests)
