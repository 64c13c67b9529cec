"""What is left behind by a test of the pipeline."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def no_reader_is_left() -> Iterator[None]:
    """A reader goes on until it is closed, and connects to whatever server comes to its port: that of another test."""
    yield
    assert not [one for one in threading.enumerate() if one.name == "binlog-read-ahead"]
