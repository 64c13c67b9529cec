"""Who may log in, and the proof of it. Passwords are kept as mysql_native_password hashes, never as they are.

Accounts come from two places: the store's state (`binlog-server user add`), and the `[users]` table of the
configuration file, which wins. Every account may replicate.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from protocol.connection.auth import (
    native_password_hash,
    native_password_text,
    native_password_verify,
)
from storage.state import StateStore

_PREFIX = "user/"
_HASH_TEXT = re.compile(r"\*[0-9A-Fa-f]{40}")
_NAME = re.compile(r"[^\x00-\x1f'\"`@]{1,128}")
_NOBODY = bytes(20)


class Users:
    """The accounts. `configured` maps a name to a password, or to its hash as `*` and 40 hex digits."""

    def __init__(self, state: StateStore, configured: Mapping[str, str] | None = None) -> None:
        self._state = state
        self._configured = {name: _hash(text) for name, text in (configured or {}).items()}

    def verify(self, name: str, salt: bytes, response: bytes) -> bool:
        """Whether `response` proves the password of `name` for `salt`. As slow for unknown names as for known ones."""
        wanted = self._configured.get(name)
        if wanted is None:
            stored = self._state.get(_PREFIX + name)
            wanted = None if stored is None else _hash(stored)
        proved = native_password_verify(salt, response, wanted if wanted is not None else _NOBODY)
        return proved and wanted is not None

    def add(self, name: str, password: str) -> None:
        """Add an account to the state, or change its password. ValueError for an impossible name."""
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} cannot be a user name: no quotes, no @, 1 to 128 characters"
            )
        text = native_password_text(native_password_hash(password)) if password else ""
        self._state.set(_PREFIX + name, text)

    def drop(self, name: str) -> None:
        """Remove an account from the state. KeyError if there is none."""
        if self._state.get(_PREFIX + name) is None:
            raise KeyError(name)
        self._state.update({_PREFIX + name: None})

    def names(self) -> list[str]:
        """All names, sorted."""
        stored = (key.removeprefix(_PREFIX) for key, _ in self._state.items(_PREFIX))
        return sorted({*stored, *self._configured})


def _hash(text: str) -> bytes:
    if _HASH_TEXT.fullmatch(text):
        return bytes.fromhex(text[1:])
    return native_password_hash(text) if text else b""
