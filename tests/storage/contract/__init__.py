"""What every implementation of an interface of `storage` has to keep, whoever implements it."""

import pytest

pytest.register_assert_rewrite(
    "tests.storage.contract.engine_contract", "tests.storage.contract.disk_contract"
)
