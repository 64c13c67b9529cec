"""A self-signed certificate and its key, for a server without configured ones: made at each start, never on disk.

As MariaDB does since 11.4. Nobody can verify such a certificate by its issuer; clients of 11.4 and newer take it by
the proof in the OK packet (`binlog_protocol.connection.auth.certificate_proof`).
"""

from __future__ import annotations

import os
import ssl
from datetime import UTC, datetime, timedelta
from typing import IO

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

# Long, because a client's clock may be behind ours, and the server may run for years.
_BEFORE = timedelta(days=1)
_LIFETIME = timedelta(days=3650)


def self_signed() -> tuple[bytes, bytes]:
    """A new P-256 key and a certificate for it, both PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "binlog-server")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    key_pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return key_pem, certificate.public_bytes(serialization.Encoding.PEM)


def use_self_signed(context: ssl.SSLContext) -> bytes:
    """Let `context` serve with a new key and certificate; returns the certificate in PEM.

    Python's `ssl` takes files only: these two lie in memory, without a name, and are gone on return.
    """
    key, certificate = self_signed()
    with _in_memory(certificate) as first, _in_memory(key) as second:
        context.load_cert_chain(
            f"/proc/self/fd/{first.fileno()}", f"/proc/self/fd/{second.fileno()}"
        )
    return certificate


def _in_memory(data: bytes) -> IO[bytes]:
    file = os.fdopen(os.memfd_create("pem"), "wb")
    file.write(data)
    file.flush()
    return file
