"""TLS of connections that we make: what the options of an upstream ask for.

As a client of MariaDB 11.8: TLS is used and the server verified unless told otherwise. With certificates of
authorities (CA) the server's must be signed by one and be for that host. Without, the server proves by the password
that the certificate is its own (see `binlog_protocol.connection.auth`), which nobody between can do; this machine's own
addresses need no proof. Either way the certificate must be of today.
"""

from __future__ import annotations

import ssl
from typing import Final, Self

from binlog_protocol.connection.conversation import TlsPolicy, TlsProblem, TlsRefused, Verify
from binlog_protocol.dataclass import dataclass
from binlog_storage.disk.given_files import client_context, handshake_failure, period_failure

LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})

_REASONS: Final = {
    TlsProblem.NOT_OFFERED: (
        "SSL is required, but the server does not support it; MASTER_SSL=0 of a connection, and "
        "--skip-ssl-verify-server-cert of a command, do without TLS"
    ),
    TlsProblem.NO_PROOF: (
        "certificate verify failed: without MASTER_SSL_CA the server must prove its certificate by the password, "
        "as MariaDB 11.4 and newer do for accounts with one; give MASTER_SSL_CA, or MASTER_SSL_VERIFY_SERVER_CERT=0"
    ),
}


class TlsFailed(ConnectionError):
    """Error 2026 of MariaDB's clients: TLS is wanted and cannot be had as wanted."""

    errno = 2026

    def __init__(self, reason: str) -> None:
        super().__init__(f"SSL connection error: {reason}")

    @classmethod
    def of(cls, error: ssl.SSLError | TlsRefused) -> Self:
        """The error of the client for a handshake or login that has failed."""
        if isinstance(error, TlsRefused):
            return cls(_REASONS.get(error.problem, str(error)))
        return cls(handshake_failure(error))


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

    def policy(self, host: str) -> TlsPolicy:
        """Towards a server at this address."""
        return TlsPolicy(self.enabled, required=self.verify is True, verify=self._verify(host))

    def _verify(self, host: str) -> Verify:
        if self.verify is False:
            return Verify.NOT
        if self.ca or self.capath:
            return Verify.BY_AUTHORITY
        if self.verify is None or host.lower() in LOCAL_HOSTS:
            return Verify.IF_PROVED
        return Verify.BY_PROOF

    def check_period(self, certificate: bytes, now: float) -> None:
        """Raises `TlsFailed` if the server is to be verified and its certificate (DER) is not valid at that time.

        With authorities OpenSSL has looked.
        """
        if self.verify and not (self.ca or self.capath):
            failure = period_failure(certificate, now)
            if failure:
                raise TlsFailed(f"{failure}; MASTER_SSL_VERIFY_SERVER_CERT=0 would take it")

    def context(self) -> ssl.SSLContext:
        """Reads files. Raises `TlsFailed` for those that are missing or no good."""
        verifies = self.verify is not False
        try:
            return client_context(
                self.ca if verifies else "",
                self.capath if verifies else "",
                cert=self.cert or self.key,
                key=self.key,
                crl=self.crl,
                crlpath=self.crlpath,
                cipher=self.cipher,
            )
        except OSError as error:
            if self.cipher and error.filename == self.cipher:
                raise TlsFailed(f"{error.strerror}: MASTER_SSL_CIPHER {self.cipher!r}") from None
            paths = (self.ca, self.capath, self.cert, self.key, self.crl, self.crlpath)
            raise TlsFailed(f"{error.strerror}: one of {', '.join(filter(None, paths))}") from None
