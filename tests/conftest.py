"""The fixtures of the whole suite are the kit's: see tests/kit/fixtures.py and docs/testing.md."""

import contextlib

import pytest
from hypothesis import HealthCheck, settings

from tests.kit.backends import full_matrix

# The C part of mysql-connector-python, before pyarrow, which leaves no thread-local storage of the process for it.
with contextlib.suppress(ImportError):
    import _mysql_connector  # noqa: F401

# Helpers with assertions in them explain themselves like those in tests.
pytest.register_assert_rewrite("tests.storage.groups")

# A slow machine is not a failure; what must be fast is counted, or measured in processor time. Examples are others with
# each seed, so that many runs try as many as one that takes long.
settings.register_profile(
    "project",
    deadline=None,
    max_examples=200 if full_matrix() else 40,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("project")

# The first is an entry point of what is installed, too: under this name, so that it is taken once.
pytest_plugins = ["binlog_server.pytest_plugin", "tests.kit.fixtures", "pytester"]
