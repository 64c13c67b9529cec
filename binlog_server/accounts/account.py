"""One account: whose it is, the proof that it wants, and what it may do."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import Any

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.connection.auth import (
    NATIVE_PASSWORD,
    native_password_hash,
    native_password_text,
    native_password_verify,
    parse_native_password_text,
)
from binlog_protocol.connection.ed25519 import (
    ED25519,
    SIGNATURE_SIZE,
    ed25519_public_key,
    ed25519_text,
    parse_ed25519_text,
)
from binlog_protocol.dataclass import dataclass

from binlog_server.accounts.privileges import effective
from binlog_server.accounts.replica_policy import ReplicaPolicy

ANY_HOST = "%"
NAME_CHARS_MAX = 128
"""Of a user, and of a role: more is 1470."""
_LOOPBACK = frozenset({"127.0.0.1", "::1", ""})
_NAME = compiled_later(r"[^\x00-\x1f'\"`@]{1,128}")
_HOST = compiled_later(r"[0-9A-Za-z_.:%/\-]{1,255}")


class Require(Enum):
    """REQUIRE of an account."""

    NONE = ""
    SSL = "SSL"
    X509 = "X509"


@dataclass(frozen=True, slots=True)
class Credential:
    """A plugin (NATIVE_PASSWORD or ED25519) and what it keeps of a password, as text; empty without a password."""

    plugin: str = NATIVE_PASSWORD
    text: str = field(default="", repr=False)

    @classmethod
    def of(cls, password: str, plugin: str = NATIVE_PASSWORD) -> Credential:
        """The credential of a password. ValueError for an unknown plugin."""
        _check_plugin(plugin)
        if plugin == ED25519:
            return cls(plugin, ed25519_text(ed25519_public_key(password)))
        return cls(plugin, native_password_text(native_password_hash(password)) if password else "")

    @classmethod
    def stored(cls, text: str, plugin: str = NATIVE_PASSWORD) -> Credential:
        """The credential of a stored text. ValueError if the text is none."""
        _check_plugin(plugin)
        if plugin == ED25519:
            parse_ed25519_text(text)
        elif text:
            text = native_password_text(parse_native_password_text(text))
        return cls(plugin, text)

    @property
    def stored_bytes(self) -> bytes:
        """The stored proof, as bytes."""
        if self.plugin == ED25519:
            return parse_ed25519_text(self.text)
        return parse_native_password_text(self.text) if self.text else b""

    def verify(self, challenge: bytes, response: bytes) -> bool:
        """Whether the client's answer to the challenge proves the password."""
        if self.plugin != ED25519:
            return native_password_verify(challenge, response, self.stored_bytes)
        if len(response) != SIGNATURE_SIZE:
            return False
        # Loaded at the first such login: most servers have no account of this kind.
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            Ed25519PublicKey.from_public_bytes(self.stored_bytes).verify(response, challenge)
        except InvalidSignature:
            return False
        return True


def _check_plugin(plugin: str) -> None:
    if plugin not in (NATIVE_PASSWORD, ED25519):
        raise ValueError(f"there is no authentication plugin {plugin!r}")


@dataclass(frozen=True, slots=True)
class UserAccount:
    """`granted`: privileges as they were given; see `privileges.effective`."""

    user: str
    host: str = ANY_HOST
    credential: Credential = Credential()
    granted: frozenset[str] = frozenset()
    require: Require = Require.NONE
    max_user_connections: int = 0
    replica: ReplicaPolicy = field(default_factory=ReplicaPolicy)
    locked: bool = False  # nobody may log in

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.user):
            raise ValueError(
                f"{self.user!r} cannot be a user name: no quotes, no @, 1 to 128 characters"
            )
        if not _HOST.fullmatch(self.host):
            raise ValueError(f"{self.host!r} cannot be a host")

    @property
    def name(self) -> str:
        """user@host, unique among accounts."""
        return f"{self.user}@{self.host}"

    @property
    def quoted(self) -> str:
        """user@host, quoted as SQL prints it."""
        return f"`{self.user}`@`{self.host}`"

    @property
    def grants(self) -> frozenset[str]:
        return effective(self.granted)

    def admits(self, address: str) -> bool:
        """Whether clients from that address may use the account."""
        return host_matches(self.host, address)

    @property
    def rank(self) -> tuple[int, int]:
        """Lower is more specific: an address, a network, then by how much stands before the first wildcard."""
        wild = [at for at in (self.host.find("%"), self.host.find("_")) if at >= 0]
        if wild:
            return 2, -min(wild)
        return (1, 0) if "/" in self.host else (0, 0)

    def to_json(self) -> dict[str, Any]:
        """The account as JSON, for the state."""
        return {
            "plugin": self.credential.plugin,
            "authentication": self.credential.text,
            "grants": sorted(self.granted),
            "require": self.require.value,
            "max_user_connections": self.max_user_connections,
            "replica": self.replica.to_json(),
            "locked": self.locked,
        }

    @classmethod
    def from_json(cls, name: str, kept: Mapping[str, Any]) -> UserAccount:
        """The account from its name and `to_json`."""
        user, _, host = name.partition("@")
        return cls(
            user,
            host,
            Credential.stored(kept["authentication"], kept["plugin"]),
            frozenset(kept["grants"]),
            Require(kept["require"]),
            kept["max_user_connections"],
            ReplicaPolicy.from_json(kept.get("replica", {})),
            kept.get("locked", False),
        )


def host_matches(pattern: str, address: str) -> bool:
    """A MariaDB host pattern and the address of a client. Names are not looked up: only `localhost` is known."""
    pattern = pattern.lower()
    address = address.lower()
    if pattern in (ANY_HOST, address):
        return True
    if pattern == "localhost":
        return address in _LOOPBACK
    if "/" in pattern:
        try:
            return ipaddress.ip_address(address) in ipaddress.ip_network(pattern)
        except ValueError:
            return False
    parts = (".*" if c == "%" else "." if c == "_" else re.escape(c) for c in pattern)
    return re.fullmatch("".join(parts), address) is not None


def plain_address(address: str) -> str:
    """The address of a client; without the IPv6 prefix for an IPv4 client of a socket that takes both."""
    return address.removeprefix("::ffff:")
