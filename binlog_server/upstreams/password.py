"""The password for an upstream: a text, or where to read it at each connection. It is never shown and never logged.

A text that was given by SQL is kept in the store's state encrypted (Fernet: AES-128-CBC with HMAC-SHA256), by a key in
a file of its own. A copy of the store without that file does not tell it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from binlog_protocol.dataclass import dataclass
from binlog_storage.disk.durable_files import replace_file
from binlog_storage.disk.given_files import read_given

from binlog_server.loop.apart import apart

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

KEY_NAME = (
    "binlog-server.key"  # in the store's directory, unless master_info_key_file says otherwise
)
FILE_BYTES_MAX = 4096
_MODE = 0o600


class PasswordUnavailable(Exception):
    """A password that cannot be had, with the reason; nothing of it is in the text."""


@dataclass(frozen=True, slots=True)
class Password:
    """A text, a file or a variable; none is an empty password. `file`: its first line; `env`: the variable's name."""

    text: str = field(default="", repr=False)
    file: str = ""
    env: str = ""

    def read(self) -> str:
        """Raises `PasswordUnavailable`. Reads a file."""
        if self.file:
            return _first_line(self.file)
        if self.env:
            try:
                return os.environ[self.env]
            except KeyError:
                raise PasswordUnavailable(
                    f"the environment variable {self.env} of the password is not set; set it and restart the server"
                ) from None
        return self.text

    async def read_apart(self, timeout_s: float) -> str:
        """The password, see `read`, without waiting for a disk on the loop."""
        if not self.file:
            return self.read()
        try:
            async with asyncio.timeout(timeout_s):
                return await apart(self, self.read)
        except TimeoutError:
            raise PasswordUnavailable(
                f"the password's file {self.file} cannot be read: its disk has not answered for {timeout_s:g} s"
            ) from None


def _first_line(path: str) -> str:
    try:
        data = read_given(path, FILE_BYTES_MAX)
        return data.partition(b"\n")[0].removesuffix(b"\r").decode("utf-8-sig")
    except OSError as error:
        raise PasswordUnavailable(
            f"the password's file {path} cannot be read: {error.strerror}"
        ) from None
    except ValueError:
        raise PasswordUnavailable(f"the password's file {path} is not UTF-8 text") from None


class KeyFile:
    """The key by which passwords are encrypted; made when the first one is."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def seal(self, password: Password) -> dict[str, str]:
        """The password in a form for the store's state. Raises `PasswordUnavailable` without a key."""
        if password.file:
            return {"file": password.file}
        if password.env:
            return {"env": password.env}
        if not password.text:
            return {}
        return {"sealed": self._cipher(make=True).encrypt(password.text.encode()).decode()}

    def open(self, kept: Mapping[str, str]) -> Password:
        """The password from the store's state. Raises `PasswordUnavailable` for another key, or none."""
        if "sealed" not in kept:
            return Password(file=kept.get("file", ""), env=kept.get("env", ""))
        from cryptography.fernet import InvalidToken

        try:
            return Password(self._cipher().decrypt(kept["sealed"].encode()).decode())
        except InvalidToken:
            raise PasswordUnavailable(
                f"the password was encrypted by another key than that in {self._path}; put the right file back, or say "
                "CHANGE MASTER TO MASTER_PASSWORD again"
            ) from None

    def _cipher(self, *, make: bool = False) -> Fernet:
        # Loaded here and in `open`: a server without upstreams, or with their passwords elsewhere, needs none of it.
        from cryptography.fernet import Fernet

        try:
            if make and not self._path.exists():
                # Whole or not at all: what is encrypted by it must not be lost.
                replace_file(self._path, Fernet.generate_key() + b"\n", _MODE)
            return Fernet(read_given(self._path, FILE_BYTES_MAX).strip())
        except OSError as error:
            raise PasswordUnavailable(
                f"the key file {self._path} of passwords cannot be used: {error.strerror} (option master_info_key_file)"
            ) from None
        except ValueError:
            raise PasswordUnavailable(f"the key file {self._path} does not hold a key") from None
