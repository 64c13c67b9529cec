"""Who may log in, and the proof of it. Passwords are kept as mysql_native_password hashes, never as they are.

Accounts come from two places: the store's state (`binlog-server user add`), and the `[users]` table of the
configuration file, which wins. Every account may replicate and look; for the rest it needs a privilege, by MariaDB's
name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from protocol.connection.auth import (
    native_password_hash,
    native_password_text,
    native_password_verify,
)
from storage.state import StateStore

BINLOG_REPLAY = "BINLOG REPLAY"  # to commit SQL text, under any GTID
PRIVILEGES = frozenset({BINLOG_REPLAY})

_PREFIX = "user/"
_GRANTS_PREFIX = "grants/"
_HASH_TEXT = re.compile(r"\*[0-9A-Fa-f]{40}")
_NAME = re.compile(r"[^\x00-\x1f'\"`@]{1,128}")
_NOBODY = bytes(20)


@dataclass(frozen=True, slots=True)
class Account:
    """One account of the configuration: its password, or its hash as `*` and 40 hex digits, and its privileges."""

    password: str = field(repr=False)
    grants: frozenset[str] = frozenset()


class Users:
    """The accounts. `configured` maps a name to an account, or to its password alone."""

    def __init__(
        self, state: StateStore, configured: Mapping[str, str | Account] | None = None
    ) -> None:
        self._state = state
        accounts = {
            name: account if isinstance(account, Account) else Account(account)
            for name, account in (configured or {}).items()
        }
        self._configured = {name: _hash(account.password) for name, account in accounts.items()}
        self._grants = {name: account.grants for name, account in accounts.items()}

    def verify(self, name: str, salt: bytes, response: bytes) -> bool:
        """Whether `response` proves the password of `name` for `salt`. As slow for unknown names as for known ones."""
        wanted = self._find(name)
        proved = native_password_verify(salt, response, wanted if wanted is not None else _NOBODY)
        return proved and wanted is not None

    def stored_hash(self, name: str) -> bytes:
        """What is kept of the password; empty without one."""
        return self._find(name) or b""

    def _find(self, name: str) -> bytes | None:
        found = self._configured.get(name)
        if found is None:
            stored = self._state.get(_PREFIX + name)
            found = None if stored is None else _hash(stored)
        return found

    def grants(self, name: str) -> frozenset[str]:
        """The privileges of an account; none for one that there is not."""
        if name in self._configured:
            return self._grants[name]
        return frozenset(self._state.get(_GRANTS_PREFIX + name, []))

    def add(self, name: str, password: str, grants: Iterable[str] = ()) -> None:
        """Add an account to the state, or change its password and privileges. ValueError for an impossible name or
        an unknown privilege."""
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} cannot be a user name: no quotes, no @, 1 to 128 characters"
            )
        granted = sorted(privileges(grants))
        text = native_password_text(native_password_hash(password)) if password else ""
        self._state.update({_PREFIX + name: text, _GRANTS_PREFIX + name: granted or None})

    def drop(self, name: str) -> None:
        """Remove an account from the state. KeyError if there is none."""
        if self._state.get(_PREFIX + name) is None:
            raise KeyError(name)
        self._state.update({_PREFIX + name: None, _GRANTS_PREFIX + name: None})

    def names(self) -> list[str]:
        """All names, sorted."""
        stored = (key.removeprefix(_PREFIX) for key, _ in self._state.items(_PREFIX))
        return sorted({*stored, *self._configured})


def privileges(names: Iterable[str]) -> frozenset[str]:
    """Privileges by name, in any case. ValueError for one that there is not."""
    found = frozenset(" ".join(name.upper().split()) for name in names)
    unknown = sorted(found - PRIVILEGES)
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no privilege here: {', '.join(sorted(PRIVILEGES))}")
    return found


def _hash(text: str) -> bytes:
    if _HASH_TEXT.fullmatch(text):
        return bytes.fromhex(text[1:])
    return native_password_hash(text) if text else b""
