"""Keys and signatures of MariaDB's ed25519 plugin."""

from __future__ import annotations

import pytest
from binlog_protocol.connection.ed25519 import (
    ed25519_public_key,
    ed25519_sign,
    ed25519_text,
    parse_ed25519_text,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given, settings
from hypothesis import strategies as st

# Of MariaDB: its documentation, and SELECT ed25519_password('...') of 11.8.
KNOWN = {
    "secret": "ZIgUREUg5PVgQ6LskhXmO+eZLS0nC8be6HPjYWR4YJY",
    "foo": "vubFBzIrapbfHct1/J72dnUryz5VS7lA6XHH8sIx4TI",
}


@pytest.mark.parametrize("password", KNOWN)
def test_known_keys(password: str) -> None:
    assert ed25519_text(ed25519_public_key(password)) == KNOWN[password]


@settings(max_examples=20)
@given(st.text(max_size=40), st.binary(min_size=32, max_size=32))
def test_what_is_signed_is_verified_by_a_library(password: str, message: bytes) -> None:
    key = Ed25519PublicKey.from_public_bytes(ed25519_public_key(password))
    key.verify(ed25519_sign(password, message), message)


@given(st.binary(min_size=32, max_size=32))
def test_text_round_trip(key: bytes) -> None:
    text = ed25519_text(key)
    assert len(text) == 43
    assert parse_ed25519_text(text) == key


@pytest.mark.parametrize(
    "text", ["", "x" * 42, "x" * 44, "é" * 43, "*" * 43, KNOWN["foo"] + "=", "x" * 42 + "x"]
)
def test_text_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_ed25519_text(text)
