"""Helpers with assertions in them: they explain themselves like those in tests."""

import pytest

pytest.register_assert_rewrite("tests.integration.load")
