"""TLS towards a server: what option `tls` asks for, and whether it was got.

disabled    none
preferred   if the server offers it, not verified
required    always, not verified
verify      always, and the server verified

With tlsCa the certificate must be signed by it and be for the host, wherever TLS is used. Without it, `verify` wants
the server's proof, by the password, that the certificate is its own: MariaDB gives it from 11.4 on, to accounts that
have a password. A proof that is wrong is refused always: somebody is between.
"""

from __future__ import annotations

import ssl
from hashlib import sha256

from binlog_protocol.connection.client import ClientConnection
from binlog_storage.disk.given_files import load_authorities, load_chain

from binlog_pipeline.errors import SourceError
from binlog_pipeline.sources.dump.address import ServerAddress


def tls_context(address: ServerAddress) -> ssl.SSLContext:
    """Raises `SourceError` for files that are missing or no good."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not address.tls_ca:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    try:
        if address.tls_ca:
            load_authorities(context, address.tls_ca)
        if address.tls_cert:
            load_chain(context, address.tls_cert, address.tls_key)
    except OSError as error:  # of which SSLError is one
        reason = error.reason if isinstance(error, ssl.SSLError) else error.strerror
        raise SourceError(
            f"{address.name}: tlsCa, tlsCert or tlsKey cannot be used: {reason or error}"
        ) from None
    return context


def wants_tls(address: ServerAddress, *, offered: bool) -> bool:
    """Raises `SourceError` if it must be and cannot."""
    if address.tls == "disabled":
        return False
    if not offered and address.tls != "preferred":
        raise SourceError(
            f"{address.name}: tls={address.tls}, but the server does not offer TLS; give it a certificate "
            "(ssl_cert), or say tls=preferred"
        )
    return offered


def check_proof(address: ServerAddress, machine: ClientConnection, certificate: bytes) -> None:
    """After the login, with the certificate that the server has shown. Raises `SourceError`."""
    if address.tls_ca or machine.proves_certificate(sha256(certificate).digest()):
        return
    if machine.has_proof:
        raise SourceError(
            f"{address.name}: the server's proof of its certificate is wrong: somebody is between"
        )
    if address.tls == "verify":
        raise SourceError(
            f"{address.name}: tls=verify without tlsCa wants a server that proves its certificate by the password, as "
            "MariaDB 11.4 and newer do; give tlsCa, or say tls=required"
        )
