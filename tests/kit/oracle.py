"""A real server that says what is right, and the version whose answers are ours.

Debian's point releases bring another MariaDB, with other answers: 11.8.9 has no -0 and another XOR than 11.8.6. Ours
are those of one version, and held to it strictly. Beside another one the tests look for what differs, and are skipped
with it as the reason if there is anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest

OF: Final = "11.8.9"


def require_same(
    version: str, different: Mapping[Any, Any], expected: Mapping[Any, Any] | None = None
) -> None:
    """Fail unless what differs from a server of this version (SELECT VERSION()) is what is expected to, or nothing."""
    found = version.partition("-")[0]
    if found != OF and different != (expected or {}):
        pytest.skip(
            f"our answers are those of {OF}, which is not here: of {found} {different!r}"[:400]
        )
    assert different == (expected or {})
