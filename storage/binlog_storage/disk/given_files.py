"""Small files that somebody names in an option or a statement: passwords, keys, certificates, configurations.

What lies under such a name may be anything: a FIFO that nobody writes to, a device without an end, a folder, a link to
itself. Here a file is opened without waiting for anybody, must be a regular one, and may not be larger than a limit;
the rest is an `OSError` whose `strerror` says so. A library that opens files by itself gets the name of a descriptor
that was looked at so.

A disk that does not answer may still keep a call for ever.
"""

from __future__ import annotations

import codecs
import errno
import os
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import Final

from binlog_protocol.compiled_later import compiled_later

from binlog_storage.disk.disk import open_regular

UTF16_MARKS: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
PEM_BYTES_MAX: Final = 4 << 20  # all authorities of a system are a tenth of it
_FOLDER_FILES_MAX: Final = 4096
_HASHED: Final = compiled_later(
    r"[0-9a-f]{8}\.r?[0-9]{1,4}"
)  # of certificates and lists of revoked ones


def read_given(path: str | Path, bytes_max: int) -> bytes:
    """All of the file. Raises `OSError`."""
    with _opened(path, bytes_max) as fd:
        data = b""
        while len(data) <= bytes_max and (part := os.read(fd, bytes_max + 1 - len(data))):
            data += part
    if len(data) > bytes_max:  # it has grown, or has no size, as in /proc
        raise _too_large(path, bytes_max)
    return data


def open_given(path: str | Path) -> BufferedReader:
    """A regular file of any size, to read. Raises `OSError`."""
    with _opened(path) as fd:
        return os.fdopen(os.dup(fd), "rb")


def read_given_text(path: str | Path, bytes_max: int) -> str:
    """The same of a file in UTF-8, without the mark that editors put in front of it. Raises `OSError`, also for what is
    no text.
    """
    data = read_given(path, bytes_max)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        kind = "UTF-16, not UTF-8" if data.startswith(UTF16_MARKS) else "not UTF-8"
        raise OSError(errno.EILSEQ, f"it is {kind} text", str(path)) from None


def client_context(
    ca: str = "",
    capath: str = "",
    *,
    cert: str = "",
    key: str = "",
    crl: str = "",
    crlpath: str = "",
    cipher: str = "",
) -> ssl.SSLContext:
    """The TLS context of a client. Raises `OSError`, of which `ssl.SSLError` is one.

    Args:
        ca, capath: with authorities, one of them must have signed the server's certificate, which must be for its host.
        cert, key: what the client shows.
        crl, crlpath: certificates that were revoked.
        cipher: a list of ciphers, in OpenSSL's form.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca or capath:
        load_authorities(context, ca, capath)
    else:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if crl or crlpath:
        load_authorities(context, crl, crlpath)
        context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
    if cert:
        load_chain(context, cert, key)
    if cipher:
        try:
            context.set_ciphers(cipher)
        except ssl.SSLError:  # without a reason of OpenSSL's
            raise OSError(
                errno.EINVAL, "no cipher is in it, as OpenSSL names those up to TLS 1.2", cipher
            ) from None
    return context


def handshake_failure(error: ssl.SSLError) -> str:
    """Why a TLS handshake has failed: the certificate's fault, if it has one."""
    return str(
        getattr(error, "verify_message", "")
        or getattr(error, "reason", "")
        or "the handshake failed"
    )


def load_authorities(context: ssl.SSLContext, path: str = "", folder: str = "") -> None:
    """Certificates, or lists of revoked ones, of a PEM file; and of a folder, by the names that OpenSSL looks for.

    Files of the folder that cannot be used are left out, as OpenSSL does when it needs one. Raises `OSError`.
    """
    if path:
        with _name_of(path) as name:
            try:
                context.load_verify_locations(name)
            except ssl.SSLError:
                raise _not_pem(path, "certificate") from None
    if not folder:
        return
    with os.scandir(_checked(folder)) as entries:
        names = sorted(entry.name for entry in entries if _HASHED.fullmatch(entry.name))
    if len(names) > _FOLDER_FILES_MAX:
        raise OSError(errno.EFBIG, f"more than {_FOLDER_FILES_MAX} certificates", folder)
    for file in names:
        try:
            with _name_of(str(Path(folder, file))) as name:
                context.load_verify_locations(name)
        except OSError:
            continue


def load_chain(context: ssl.SSLContext, cert: str, key: str = "") -> None:
    """A certificate with those of its issuers, and its key, which may lie in the same file. Raises `OSError`."""
    with _name_of(cert) as cert_name, _name_of(key or cert) as key_name:
        try:
            context.load_cert_chain(cert_name, key_name, partial(_no_passphrase, key or cert))
        except ssl.SSLError as error:
            raise _named(error, cert, cert_name, key or cert) from None


def _named(error: ssl.SSLError, cert: str, cert_name: str, key: str) -> OSError:
    """OpenSSL says which of the two files it dislikes by no word."""
    if error.reason == "KEY_VALUES_MISMATCH":
        return OSError(errno.EINVAL, f"it is not the key of the certificate {cert}", key)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cert_name)
    except ssl.SSLError:
        return _not_pem(cert, "certificate")
    if error.reason and error.reason != "PEM_LIB":
        return OSError(errno.EINVAL, error.reason, cert)  # such as EE_KEY_TOO_SMALL
    return _not_pem(key, "key")


def _not_pem(path: str, what: str) -> OSError:
    return OSError(errno.EINVAL, f"there is no {what} in it, as PEM", path)


def _no_passphrase(key: str) -> str:
    """OpenSSL would ask at the terminal, and wait."""
    raise OSError(errno.EACCES, "the key is encrypted by a passphrase; give one without", key)


@contextmanager
def _name_of(path: str) -> Iterator[str]:
    with ExitStack() as stack:
        try:
            fd = stack.enter_context(_opened(path, PEM_BYTES_MAX))
        except OSError as error:
            if error.filename is not None:
                raise
            raise OSError(error.errno, error.strerror, path) from None  # a folder, a device
        yield f"/dev/fd/{fd}"


@contextmanager
def _opened(path: str | Path, bytes_max: int | None = None) -> Iterator[int]:
    fd = open_regular(Path(_checked(path)), os.O_RDONLY)
    try:
        found = os.fstat(fd)
        if bytes_max is not None and found.st_size > bytes_max:
            raise _too_large(path, bytes_max)
        yield fd
    finally:
        os.close(fd)


def _checked(path: str | Path) -> str | Path:
    """A name that the operating system can be asked for."""
    try:
        if b"\0" not in os.fsencode(path):
            return path
    except UnicodeEncodeError:
        pass
    raise OSError(errno.EINVAL, "it is no name of a file", ascii(path))


def _too_large(path: str | Path, bytes_max: int) -> OSError:
    return OSError(errno.EFBIG, f"it is larger than {bytes_max} bytes", str(path))


def validity(der: bytes) -> tuple[float, float]:
    """When a certificate in DER becomes valid, and when it ends, in seconds since 1970. Raises `ValueError`."""
    from cryptography import x509  # takes long, and who has no TLS needs none of it

    found = x509.load_der_x509_certificate(der)
    return found.not_valid_before_utc.timestamp(), found.not_valid_after_utc.timestamp()


def period_failure(der: bytes, now: float) -> str:
    """Why a certificate in DER is not valid at that time, in OpenSSL's words; empty if it is."""
    try:
        begin, end = validity(der)
    except ValueError as error:
        return f"certificate cannot be read: {error}"
    if now < begin:
        return "certificate is not yet valid"
    return "certificate has expired" if now > end else ""
