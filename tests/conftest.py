"""The fixtures of the whole suite are the kit's: see tests/kit/fixtures.py and docs/testing.md."""

pytest_plugins = ["tests.kit.fixtures"]
