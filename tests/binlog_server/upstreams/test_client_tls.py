"""Certificates of servers, at times at which they are valid and at others. As recorded from replicas of 11.8."""

from __future__ import annotations

import ssl

import pytest
from binlog_storage.disk.given_files import validity

from binlog_server.connections.certificate import self_signed
from binlog_server.upstreams.client_tls import TlsFailed, TlsOptions

CERTIFICATE = ssl.PEM_cert_to_DER_cert(self_signed()[1].decode("ascii"))
BEGIN, END = validity(CERTIFICATE)


@pytest.mark.parametrize(
    ("certificate", "now", "text"),
    [
        (CERTIFICATE, BEGIN - 1, "SSL connection error: certificate is not yet valid; "),
        (CERTIFICATE, BEGIN + 1, ""),
        (CERTIFICATE, END - 1, ""),
        (CERTIFICATE, END + 1, "SSL connection error: certificate has expired; "),
        (CERTIFICATE[:50], BEGIN + 1, "SSL connection error: certificate cannot be read: "),
    ],
    ids=["too early", "at first", "at last", "too late", "cut short"],
)
def test_the_period_of_a_certificate(certificate: bytes, now: float, text: str) -> None:
    if not text:
        TlsOptions().check_period(certificate, now)
        return
    with pytest.raises(TlsFailed) as caught:
        TlsOptions().check_period(certificate, now)
    assert str(caught.value).startswith(text)
    assert "MASTER_SSL_VERIFY_SERVER_CERT=0" in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [TlsOptions(verify=False), TlsOptions(verify=None), TlsOptions(ca="ca.pem")],
    ids=["not verified", "if it can be", "OpenSSL has looked"],
)
def test_who_does_not_ask(options: TlsOptions) -> None:
    options.check_period(CERTIFICATE, END + 1)
