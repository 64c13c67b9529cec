"""TLS of connections that we make: what is wanted, and what was got.

As a client of MariaDB 11.8: TLS is used and the server verified unless told otherwise. With certificates of
authorities (CA) the server's must be signed by one and be for that host. Without, the server proves by the password
that the certificate is its own (see `binlog_protocol.connection.auth`), which nobody between can do; this machine's own
addresses need no proof.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from hashlib import sha256

from binlog_protocol.connection.client import ClientConnection
from binlog_storage.disk.given_files import load_authorities, load_chain

LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})


class TlsFailed(ConnectionError):
    """Error 2026 of MariaDB's clients: TLS is wanted and cannot be had as wanted."""

    errno = 2026

    def __init__(self, reason: str) -> None:
        super().__init__(f"SSL connection error: {reason}")


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """All but the first two are paths of PEM files and folders, and a list of ciphers in OpenSSL's form.

    enabled: False is no TLS at all.
    verify: False is TLS if the server offers it; None the same, but a proof that is given must be right.
    """

    enabled: bool = True
    verify: bool | None = True
    ca: str = ""
    capath: str = ""
    cert: str = ""
    key: str = ""
    crl: str = ""
    crlpath: str = ""
    cipher: str = ""

    @property
    def has_authorities(self) -> bool:
        """Whether there is something to verify a certificate by."""
        return bool(self.ca or self.capath)

    def context(self) -> ssl.SSLContext:
        """Reads files. Raises `TlsFailed` for those that are missing or no good."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        by_authority = self.verify is not False and self.has_authorities
        if not by_authority:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        try:
            if by_authority:
                load_authorities(context, self.ca, self.capath)
            if self.crl or self.crlpath:
                load_authorities(context, self.crl, self.crlpath)
                context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
            if self.cert or self.key:
                load_chain(context, self.cert or self.key, self.key)
            if self.cipher:
                context.set_ciphers(self.cipher)
        except ssl.SSLError as error:
            raise TlsFailed(
                f"{error.reason or error} in MASTER_SSL_CA, _CAPATH, _CERT, _KEY, _CRL, _CRLPATH or _CIPHER"
            ) from None
        except OSError as error:
            paths = (self.ca, self.capath, self.cert, self.key, self.crl, self.crlpath)
            raise TlsFailed(f"{error.strerror}: one of {', '.join(filter(None, paths))}") from None
        return context

    def check(self, host: str, machine: ClientConnection, session: ssl.SSLObject | None) -> str:
        """After the login: how the connection is protected, for the log. Raises `TlsFailed` if not as wanted."""
        if session is None:
            return "without TLS"
        if self.verify is False:
            return "TLS, not verified"
        if self.has_authorities:
            return "TLS, verified by its CA"
        certificate = session.getpeercert(binary_form=True) or b""
        if machine.proves_certificate(sha256(certificate).digest()):
            return "TLS, verified by the password"
        if machine.has_proof:
            raise TlsFailed("the server's proof of its certificate is wrong: somebody is between")
        if self.verify is None or host.lower() in LOCAL_HOSTS:
            return "TLS, not verified"
        raise TlsFailed(
            "certificate verify failed: without MASTER_SSL_CA the server must prove its certificate by the password, "
            "as MariaDB 11.4 and newer do for accounts with one; give MASTER_SSL_CA, or MASTER_SSL_VERIFY_SERVER_CERT=0"
        )
