"""TLS towards a server: what option `tls` asks for, and whether it was got.

disabled    none
preferred   if the server offers it, not verified
required    always, not verified
verify      always, and the server verified

With tlsCa the certificate must be signed by it and be for the host, wherever TLS is used. Without it, `verify` wants
the server's proof, by the password, that the certificate is its own: MariaDB gives it from 11.4 on, to accounts that
have a password. The proof does not say until when, so the certificate must be of today as well. A proof that is wrong
is refused always: somebody is between.
"""

from __future__ import annotations

import ssl

from binlog_protocol.connection.conversation import TlsPolicy, TlsProblem, TlsRefused, Verify
from binlog_storage.disk.given_files import client_context, handshake_failure, period_failure

from binlog_pipeline.errors import SourceError
from binlog_pipeline.sources.dump.address import ServerAddress


def tls_policy(address: ServerAddress) -> TlsPolicy:
    """The policy that the option `tls` names."""
    verify = Verify.BY_PROOF if address.tls == "verify" else Verify.IF_PROVED
    return TlsPolicy(
        address.tls != "disabled",
        required=address.tls != "preferred",
        verify=Verify.BY_AUTHORITY if address.tls_ca else verify,
    )


def tls_context(address: ServerAddress) -> ssl.SSLContext:
    """The TLS context that the options ask for. Raises `SourceError` for files that are missing or unusable."""
    try:
        return client_context(address.tls_ca, cert=address.tls_cert, key=address.tls_key)
    except OSError as error:  # of which SSLError is one
        reason = error.reason if isinstance(error, ssl.SSLError) else error.strerror
        raise SourceError(
            f"{address.name}: tlsCa, tlsCert or tlsKey cannot be used: {reason or error}"
        ) from None


def require_period(address: ServerAddress, certificate: bytes, now: float) -> None:
    """Raises `SourceError` if the server is to be verified and its certificate (DER) is not valid at that time.

    With tlsCa OpenSSL has looked.
    """
    if address.tls == "verify" and not address.tls_ca:
        failure = period_failure(certificate, now)
        if failure:
            raise SourceError(f"{address.name}: {failure}; tls=required would take it")


def tls_error(address: ServerAddress, error: ssl.SSLError | TlsRefused) -> SourceError:
    """The text for a user whose connection has no TLS as the options want it."""
    if isinstance(error, ssl.SSLError):
        return SourceError(f"{address.name}: no TLS as wanted: {handshake_failure(error)}")
    match error.problem:
        case TlsProblem.NOT_OFFERED:
            text = (
                f"tls={address.tls}, but the server does not offer TLS; give it a certificate "
                "(ssl_cert), or say tls=preferred"
            )
        case TlsProblem.NO_PROOF:
            text = (
                "tls=verify without tlsCa wants a server that proves its certificate by the password, as MariaDB "
                "11.4 and newer do; give tlsCa, or say tls=required"
            )
        case _:
            text = str(error)
    return SourceError(f"{address.name}: {text}")
