"""Which server, and how to log in. Travels in slices: a password only if it was given as an option itself."""

from __future__ import annotations

import os
import random
from dataclasses import field, fields
from typing import Final

from binlog_protocol.connection.replica import READER_IDS
from binlog_protocol.dataclass import dataclass
from binlog_storage.disk.given_files import read_given_text

from binlog_pipeline.errors import SourceError
from binlog_pipeline.options import SourceOptions

_PASSWORD_FILE_BYTES_MAX: Final = 4096


def random_server_id() -> int:
    """A server ends the dump of a replica when another one comes with the same id."""
    return random.SystemRandom().choice(READER_IDS)


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """The fields are the options of these names; `connect_timeout` in seconds."""

    host: str
    port: int
    user: str
    password: str = field(default="", repr=False)
    password_file: str = ""
    password_env: str = ""
    server_id: int = 0
    tls: str = "preferred"
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    connect_timeout: int = 10

    @classmethod
    def of(cls, options: SourceOptions) -> ServerAddress:
        return cls(**{one.name: getattr(options, one.name) for one in fields(cls)})

    @property
    def name(self) -> str:
        """`host:port`, for messages."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def read_password(self) -> str:
        """Anew for each connection, so that it may change. Raises `SourceError`."""
        if self.password_file:
            try:
                text = read_given_text(self.password_file, _PASSWORD_FILE_BYTES_MAX)
                return text.rstrip("\r\n")
            except OSError as error:
                raise SourceError(
                    f"{self.name}: the password's file {self.password_file} cannot be read: {error.strerror}; "
                    "each worker must have it"
                ) from None
        if self.password_env:
            try:
                return os.environ[self.password_env]
            except KeyError:
                raise SourceError(
                    f"{self.name}: passwordEnv {self.password_env} is not in the environment; each worker must have it"
                ) from None
        return self.password
