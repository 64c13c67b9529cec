"""Small files that options name: whatever lies under the name, nothing waits and nothing fills the memory."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
from binlog_storage.disk.given_files import (
    load_authorities,
    load_chain,
    open_given,
    read_given,
    read_given_text,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LIMIT: Final = 100


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _loop(path: Path) -> None:
    path.symlink_to(path)


def _device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _terminal(path: Path) -> None:
    path.symlink_to("/dev/tty")


def _large(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


def _without_a_size(path: Path) -> None:
    path.symlink_to("/proc/self/smaps")  # 0 bytes as `stat` has it


BAD: Final[dict[str, tuple[Callable[[Path], None], str]]] = {
    "fifo": (_fifo, "it is a FIFO, not a file"),
    "device": (_device, "it is a device, not a file"),
    "terminal": (_terminal, "it is a device, not a file|No such device"),
    "folder": (Path.mkdir, "it is a folder, not a file"),
    "loop of links": (_loop, "Too many levels of symbolic links"),
    "large": (_large, "it is larger than"),
    "nothing": (lambda path: None, "No such file"),
}


@pytest.mark.parametrize("name", [*BAD, "without a size"])
def test_what_is_no_small_file(name: str, tmp_path: Path) -> None:
    make, text = {**BAD, "without a size": (_without_a_size, "larger than 100 bytes")}[name]
    path = tmp_path / "it"
    make(path)
    with pytest.raises(OSError, match=text) as error:
        read_given(path, LIMIT)
    assert error.value.strerror


@pytest.mark.parametrize("name", ["a\0b", "a\ud800"])
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(OSError, match="it is no name of a file"):
        read_given(name, LIMIT)


def test_a_small_file(tmp_path: Path) -> None:
    path = tmp_path / "it"
    path.write_bytes(b"x" * LIMIT)
    (tmp_path / "link").symlink_to("it")
    assert read_given(tmp_path / "link", LIMIT) == b"x" * LIMIT
    path.write_text("ä")
    assert read_given_text(str(path), LIMIT) == "ä"
    path.write_bytes(b"\xff")
    with pytest.raises(OSError, match="it is not UTF-8 text"):
        read_given_text(path, LIMIT)
    path.write_text("\ufeffx", "utf-8")
    assert read_given_text(path, LIMIT) == "x", "without the mark of an editor"
    path.write_text("x", "utf-16")
    with pytest.raises(OSError, match="it is UTF-16, not UTF-8 text"):
        read_given_text(path, LIMIT)


@pytest.mark.parametrize("name", [name for name in BAD if name != "large"])
def test_a_file_of_any_size(name: str, tmp_path: Path) -> None:
    BAD[name][0](tmp_path / "it")
    with pytest.raises(OSError, match=BAD[name][1]):
        open_given(tmp_path / "it")
    _large(tmp_path / "large")
    with open_given(tmp_path / "large") as file:
        assert file.seek(0, 2) == 1 << 40


class Pem:
    """A key and the certificate of an authority, in files."""

    def __init__(self, folder: Path) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
        now = datetime.now(UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(1)
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, hashes.SHA256())
        )
        revoked = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(name)
            .last_update(now)
            .next_update(now + timedelta(days=1))
            .sign(key, hashes.SHA256())
        )
        pem = serialization.Encoding.PEM
        self.cert, self.key, self.both, self.locked, self.crl = (
            folder / name for name in ("cert", "key", "both", "locked", "crl")
        )
        self.cert.write_bytes(made.public_bytes(pem))
        self.crl.write_bytes(revoked.public_bytes(pem))
        form = serialization.PrivateFormat.PKCS8
        for path, lock in (
            (self.key, serialization.NoEncryption()),
            (self.locked, serialization.BestAvailableEncryption(b"passphrase")),
        ):
            path.write_bytes(key.private_bytes(pem, form, lock))
        self.both.write_bytes(self.cert.read_bytes() + self.key.read_bytes())


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Pem:
    return Pem(tmp_path_factory.mktemp("pem"))


@pytest.fixture
def context() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def test_authorities(pem: Pem, context: ssl.SSLContext, tmp_path: Path) -> None:
    load_authorities(context, str(pem.cert))
    load_authorities(context, str(pem.crl))
    assert context.cert_store_stats() == {"x509": 1, "crl": 1, "x509_ca": 1}
    other = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    (tmp_path / "0123abcd.0").symlink_to(pem.cert)
    (tmp_path / "0123abcd.r0").symlink_to(pem.crl)
    (tmp_path / "README").write_text("not looked at")
    os.mkfifo(tmp_path / "0123abcd.1")
    (tmp_path / "0123abcd.2").write_text("no certificate")
    load_authorities(other, folder=str(tmp_path))
    assert other.cert_store_stats() == {"x509": 1, "crl": 1, "x509_ca": 1}


def test_chains(pem: Pem, context: ssl.SSLContext) -> None:
    load_chain(context, str(pem.cert), str(pem.key))
    load_chain(context, str(pem.both))
    with pytest.raises(OSError, match="encrypted by a passphrase"):  # and nobody is asked for it
        load_chain(context, str(pem.cert), str(pem.locked))


def test_the_file_that_is_wrong_is_named(pem: Pem, context: ssl.SSLContext, tmp_path: Path) -> None:
    cert, key, other, junk = str(pem.cert), str(pem.key), Pem(tmp_path), str(tmp_path / "junk")
    Path(junk).write_text("no PEM")
    for wrong, text, certificate, its_key in (
        (junk, "there is no certificate in it", junk, key),
        (junk, "there is no key in it", cert, junk),
        (cert, "there is no key in it", cert, ""),
        (key, "there is no certificate in it", key, key),
        (str(other.key), f"it is not the key of the certificate {cert}", cert, str(other.key)),
        (str(pem.locked), "encrypted by a passphrase", cert, str(pem.locked)),
    ):
        with pytest.raises(OSError, match=text) as caught:
            load_chain(context, certificate, its_key)
        assert caught.value.filename == wrong
    with pytest.raises(OSError, match="there is no certificate in it") as caught:
        load_authorities(context, junk)
    assert caught.value.filename == junk


@pytest.mark.parametrize("name", BAD)
def test_no_certificates(name: str, pem: Pem, context: ssl.SSLContext, tmp_path: Path) -> None:
    path = tmp_path / "it"
    BAD[name][0](path)
    with pytest.raises(OSError, match=BAD[name][1]):
        load_authorities(context, str(path))
    with pytest.raises(OSError, match=BAD[name][1]):
        load_chain(context, str(path))
    with pytest.raises(OSError, match=BAD[name][1]):
        load_chain(context, str(pem.cert), str(path))
    with pytest.raises(OSError, match=re.escape(str(path))):  # of several it says which one
        load_authorities(context, str(path))
    if name != "folder":
        with pytest.raises(OSError, match=r"."):
            load_authorities(context, folder=str(path))
