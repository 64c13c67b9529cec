"""Fixtures for tests of others, with a real replica: the example of docs/pytest.md."""

from __future__ import annotations

import pytest

from tests.binlog_server.testing.examples import ExampleTests, examples
from tests.kit import backends

pytestmark = pytest.mark.replica


@pytest.mark.parametrize("example", examples("mariadb_replica"))
def test_the_example_of_the_page(request: pytest.FixtureRequest, example: str) -> None:
    backends.pick()  # where there must be one, it is no skip
    assert ExampleTests(request).run(example) == 1
