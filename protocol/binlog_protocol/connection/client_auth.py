"""How a client proves its password by the plugin that the server wants, and what the server must know in return.

=====================  ==============================================  =======================
plugin                 the client's answer                             what the server keeps
=====================  ==============================================  =======================
mysql_native_password  see `auth`                                      SHA1(SHA1(password))
client_ed25519         the challenge, signed: see `ed25519`            the public key
=====================  ==============================================  =======================

Neither tells the password itself, so both may be used before the server's certificate was verified.
"""

from __future__ import annotations

import hmac
from typing import Final

from binlog_protocol.connection.auth import (
    NATIVE_PASSWORD,
    SALT_SIZE,
    certificate_proof,
    native_password_hash,
    native_password_scramble,
)
from binlog_protocol.connection.ed25519 import (
    CHALLENGE_SIZE,
    CLIENT_ED25519,
    ed25519_public_key,
    ed25519_sign,
)
from binlog_protocol.errors import ProtocolError

_CHALLENGE_SIZES: Final = {NATIVE_PASSWORD: SALT_SIZE, CLIENT_ED25519: CHALLENGE_SIZE}


def auth_answer(plugin: str, password: str, challenge: bytes) -> bytes:
    """Raises `ProtocolError` for a plugin that is not known here, or a challenge that is none of it."""
    size = _CHALLENGE_SIZES.get(plugin)
    if size is None:
        known = " and ".join(_CHALLENGE_SIZES)
        raise ProtocolError(
            f"the upstream wants authentication plugin {plugin!r}; only {known} are supported"
        )
    if len(challenge) != size:
        raise ProtocolError(f"{plugin}: a challenge of {len(challenge)} bytes instead of {size}")
    if plugin == CLIENT_ED25519:
        return ed25519_sign(password, challenge)
    return native_password_scramble(password, challenge)


def proves_certificate(
    info: bytes, plugin: str, password: str, salt: bytes, fingerprint: bytes
) -> bool:
    """Whether the info of the login's OK shows that the server knows what it should keep of the password.

    Args:
        plugin: by which the client has logged in.
        salt: of the greeting.
        fingerprint: SHA256 of the certificate that the server has shown.
    """
    if not password:
        return False
    if plugin == CLIENT_ED25519:
        stored = ed25519_public_key(password)
    else:
        stored = native_password_hash(password)
    return hmac.compare_digest(certificate_proof(stored, salt, fingerprint), info)
