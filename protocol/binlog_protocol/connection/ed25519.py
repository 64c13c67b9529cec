"""ed25519, MariaDB's other authentication plugin (`client_ed25519` at the client's end).

The server sends 32 random bytes, the client signs them, the server verifies by the account's public key. The key pair
is made from the password ::

    (a, prefix) = SHA512(password), a clamped as in RFC 8032        public key A = a * B
    r = SHA512(prefix + message);  R = r * B;  S = r + SHA512(R + A + message) * a      signature = R + S

Plain Ed25519 takes 32 bytes and hashes them to the same pair; here the password, of any length, takes the place of
those 32 bytes. So no library can make the key, while any can verify. A public key is kept as base64 without padding,
43 characters.

The arithmetic is not of constant time: making a key is done by an administrator, signing by an upstream's client.
"""

from __future__ import annotations

import base64
from hashlib import sha512
from typing import Final

ED25519: Final = "ed25519"  # as accounts name it
CLIENT_ED25519: Final = "client_ed25519"  # as the wire does

CHALLENGE_SIZE: Final = 32
PUBLIC_KEY_SIZE: Final = 32
SIGNATURE_SIZE: Final = 64
_TEXT_LENGTH: Final = 43

_P: Final = 2**255 - 19
_ORDER: Final = 2**252 + 27742317777372353535851937790883648493
_D: Final = -121665 * pow(121666, -1, _P) % _P
_BASE_Y: Final = 4 * pow(5, -1, _P) % _P
_BASE_X: Final = 15112221349535400772501151409588531511454012693041857206046113283949847762202
assert (_BASE_Y**2 - _BASE_X**2 - 1 - _D * _BASE_X**2 * _BASE_Y**2) % _P == 0

# Extended coordinates: x = X/Z, y = Y/Z, T = XY/Z.
_Point = tuple[int, int, int, int]
_BASE: Final[_Point] = (_BASE_X, _BASE_Y, 1, _BASE_X * _BASE_Y % _P)
_ZERO: Final[_Point] = (0, 1, 1, 0)


def ed25519_public_key(password: str) -> bytes:
    """The public key that a server stores: 32 bytes."""
    return _encode(_multiply(_secret(password)[0], _BASE))


def ed25519_sign(password: str, message: bytes) -> bytes:
    """The client's answer to a challenge: 64 bytes."""
    scalar, prefix = _secret(password)
    public = _encode(_multiply(scalar, _BASE))
    nonce = _integer(sha512(prefix + message).digest()) % _ORDER
    point = _encode(_multiply(nonce, _BASE))
    factor = _integer(sha512(point + public + message).digest()) % _ORDER
    return point + ((nonce + factor * scalar) % _ORDER).to_bytes(32, "little")


def ed25519_text(public_key: bytes) -> str:
    """The stored key as MariaDB prints it."""
    return base64.b64encode(public_key).decode("ascii").rstrip("=")


def parse_ed25519_text(text: str) -> bytes:
    """The stored key from its text; raises ValueError."""
    try:
        key = base64.b64decode(text + "=", validate=True) if len(text) == _TEXT_LENGTH else b""
    except ValueError:  # binascii.Error is one
        key = b""
    if len(key) != PUBLIC_KEY_SIZE or ed25519_text(key) != text:
        raise ValueError(f"an ed25519 key is {_TEXT_LENGTH} characters of base64")
    return key


def _secret(password: str) -> tuple[int, bytes]:
    digest = sha512(password.encode()).digest()
    scalar = _integer(digest[:32]) & ((1 << 254) - 8) | (1 << 254)
    return scalar, digest[32:]


def _integer(data: bytes) -> int:
    return int.from_bytes(data, "little")


def _add(first: _Point, second: _Point) -> _Point:
    a = (first[1] - first[0]) * (second[1] - second[0]) % _P
    b = (first[1] + first[0]) * (second[1] + second[0]) % _P
    c = 2 * first[3] * second[3] * _D % _P
    d = 2 * first[2] * second[2] % _P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % _P, g * h % _P, f * g % _P, e * h % _P


def _multiply(scalar: int, point: _Point) -> _Point:
    found = _ZERO
    while scalar:
        if scalar & 1:
            found = _add(found, point)
        point = _add(point, point)
        scalar >>= 1
    return found


def _encode(point: _Point) -> bytes:
    inverse = pow(point[2], -1, _P)
    x, y = point[0] * inverse % _P, point[1] * inverse % _P
    return (y | (x & 1) << 255).to_bytes(32, "little")
