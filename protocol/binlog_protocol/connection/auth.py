"""mysql_native_password, the authentication plugin of the greeting; and the proof of a certificate.

The server keeps SHA1(SHA1(password)). It sends a salt; the client answers ::

    SHA1(password) XOR SHA1(salt + SHA1(SHA1(password)))

from which the server recovers SHA1(password), hashes it once more and compares. An empty password
is answered by nothing at all. In text (`mysql.global_priv`) the hash is `*` and 40 hex digits.

Since 11.4 a client that cannot verify the server's certificate takes it if the OK of the login holds
a proof that the server knows the account's stored hash, and speaks for that very certificate ::

    01 | upper-case hex of SHA256(stored hash + salt of the greeting + SHA256(certificate in DER))
"""

from __future__ import annotations

import hmac
from hashlib import sha1, sha256
from typing import Final

NATIVE_PASSWORD: Final = "mysql_native_password"

SALT_SIZE: Final = 20
HASH_SIZE: Final = 20
_HASH_TEXT_LENGTH: Final = 1 + 2 * HASH_SIZE


def native_password_hash(password: str) -> bytes:
    """The hash of a password that a server stores: 20 bytes, SHA1(SHA1(password))."""
    return sha1(sha1(password.encode()).digest()).digest()


def native_password_text(password_hash: bytes) -> str:
    """The stored hash as MariaDB prints it: `*` and upper-case hex."""
    return "*" + password_hash.hex().upper()


def parse_native_password_text(text: str) -> bytes:
    """The stored hash from its text; raises ValueError."""
    if len(text) != _HASH_TEXT_LENGTH or not text.startswith("*"):
        raise ValueError("a password hash is '*' and 40 hex digits")
    return bytes.fromhex(text[1:])


def native_password_scramble(password: str, salt: bytes) -> bytes:
    """The client's answer to `salt`; empty for an empty password."""
    if not password:
        return b""
    once = sha1(password.encode()).digest()
    return _xor(once, sha1(salt + sha1(once).digest()).digest())


def native_password_verify(salt: bytes, response: bytes, double_sha1: bytes) -> bool:
    """Whether `response` proves the password of the stored hash; an empty hash has no password."""
    if not double_sha1 or not response:
        return not double_sha1 and not response
    if len(response) != HASH_SIZE:
        return False
    once = _xor(response, sha1(salt + double_sha1).digest())
    return hmac.compare_digest(sha1(once).digest(), double_sha1)


def certificate_proof(stored_hash: bytes, salt: bytes, fingerprint: bytes) -> bytes:
    """The info of the OK packet. `stored_hash`: what the plugin keeps, as bytes; `fingerprint`: SHA256, 32 bytes.

    Empty without a password: nothing could be proved by it.
    """
    if not stored_hash:
        return b""
    return b"\x01" + sha256(stored_hash + salt + fingerprint).hexdigest().upper().encode()


def _xor(left: bytes, right: bytes) -> bytes:
    """Of as many bytes as `left` has, which `right` has, too."""
    number = int.from_bytes(left, "big") ^ int.from_bytes(right, "big")
    return number.to_bytes(len(left), "big")
