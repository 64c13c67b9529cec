"""The fixtures of the whole suite are the kit's: see tests/kit/fixtures.py and docs/testing.md."""

import contextlib

# The C part of mysql-connector-python, before pyarrow, which leaves no thread-local storage of the process for it.
with contextlib.suppress(ImportError):
    import _mysql_connector  # noqa: F401

pytest_plugins = ["tests.kit.fixtures"]
