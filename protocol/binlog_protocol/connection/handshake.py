"""The packets before the login is done: greeting, login request, switch of the plugin.

Greeting (server, sequence 0) ::

    0A | server version NUL | connection id u32 | salt 8 bytes | 00 | capabilities low u16
    | charset u8 | status u16 | capabilities high u16 | salt length + 1, u8 | 6 zeros
    | MariaDB capabilities u32 | salt 12 bytes | 00 | plugin NUL

Login request (client, sequence 1) ::

    capabilities u32 | largest packet u32 | charset u8 | 19 zeros | MariaDB capabilities u32
    | user NUL | answer to the salt | [database NUL] | [plugin NUL] | [attributes]

A client that wants TLS sends the first 32 bytes of that alone, with the capability SSL, then does the
TLS handshake, and sends the whole login inside (sequence 2).

The answer to the salt has a lenenc, a one-byte length or ends at a NUL, as the capabilities say.
Attributes: lenenc total, then pairs of lenenc strings.

Auth switch request (server) and its answer (client) ::

    FE | plugin NUL | salt 20 bytes | 00          answer: the bytes of the plugin alone
    FE | client_ed25519 NUL | challenge 32 bytes  without a NUL: the client wants exactly 32

A greeting whose capabilities lack bit 0 comes from MariaDB: only then the MariaDB capabilities in it
have a meaning, and a client that knows them leaves bit 0 out of its login, too.
"""

from __future__ import annotations

import struct
from dataclasses import field
from enum import IntFlag
from typing import Final

from binlog_protocol.connection.auth import NATIVE_PASSWORD, SALT_SIZE
from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import BadHandshake, ProtocolError
from binlog_protocol.limits import CONNECT_ATTRIBUTES_MAX
from binlog_protocol.values import Cursor, lenenc_bytes, nul_terminated
from binlog_protocol.wire.results import EOF_MARK, STATUS_AUTOCOMMIT


class Capability(IntFlag):
    """Capability bits of greeting and login; MariaDB's names without CLIENT_."""

    MYSQL = 1 << 0  # in a login the same bit is LONG_PASSWORD
    FOUND_ROWS = 1 << 1
    LONG_FLAG = 1 << 2
    CONNECT_WITH_DB = 1 << 3
    NO_SCHEMA = 1 << 4
    COMPRESS = 1 << 5
    ODBC = 1 << 6
    LOCAL_FILES = 1 << 7
    IGNORE_SPACE = 1 << 8
    PROTOCOL_41 = 1 << 9
    INTERACTIVE = 1 << 10
    SSL = 1 << 11
    IGNORE_SIGPIPE = 1 << 12
    TRANSACTIONS = 1 << 13
    RESERVED = 1 << 14
    SECURE_CONNECTION = 1 << 15
    MULTI_STATEMENTS = 1 << 16
    MULTI_RESULTS = 1 << 17
    PS_MULTI_RESULTS = 1 << 18
    PLUGIN_AUTH = 1 << 19
    CONNECT_ATTRS = 1 << 20
    PLUGIN_AUTH_LENENC_DATA = 1 << 21
    CAN_HANDLE_EXPIRED_PASSWORDS = 1 << 22
    SESSION_TRACK = 1 << 23
    DEPRECATE_EOF = 1 << 24
    REMEMBER_OPTIONS = 1 << 31


class MariadbCapability(IntFlag):
    """Capability bits that only MariaDB has; its names without MARIADB_CLIENT_."""

    PROGRESS = 1 << 0
    STMT_BULK_OPERATIONS = 1 << 2
    EXTENDED_METADATA = 1 << 3
    CACHE_METADATA = 1 << 4
    BULK_UNIT_RESULTS = 1 << 5


# What MariaDB 10.11 and 11.8 offer, without TLS, which a server adds if it has a certificate (`Capability.SSL`).
SERVER_CAPABILITIES: Final = 0x81FFF7FE & ~int(Capability.SSL)
# The same of MariaDB's own; without PROGRESS, as no statement here tells of its progress.
MARIADB_CAPABILITIES: Final = int(
    MariadbCapability.STMT_BULK_OPERATIONS
    | MariadbCapability.EXTENDED_METADATA
    | MariadbCapability.CACHE_METADATA
    | MariadbCapability.BULK_UNIT_RESULTS
)

# What a replica of 10.11 and 11.8 asks for when it logs in.
REPLICA_CAPABILITIES: Final = 0x8038A205

_PROTOCOL_VERSION: Final = 10
_SALT_HEAD_SIZE: Final = 8
_SALT_TAIL_SIZE: Final = SALT_SIZE - _SALT_HEAD_SIZE
_GREETING_FILLER_SIZE: Final = 6
_LOGIN_FILLER_SIZE: Final = 19

_LOGIN_FIXED: Final = struct.Struct(f"<IIB{_LOGIN_FILLER_SIZE}xI")
assert _LOGIN_FIXED.size == 32

CHARSET_UTF8: Final = 8


@dataclass(frozen=True, slots=True)
class Greeting:
    """The first packet of a server. `salt` has 20 bytes, none of them NUL."""

    server_version: str
    connection_id: int
    salt: bytes
    capabilities: int = SERVER_CAPABILITIES
    mariadb_capabilities: int = 0
    charset: int = CHARSET_UTF8
    status: int = STATUS_AUTOCOMMIT
    plugin: str = NATIVE_PASSWORD

    def __post_init__(self) -> None:
        if len(self.salt) != SALT_SIZE or b"\0" in self.salt:
            raise ValueError(f"a salt has {SALT_SIZE} bytes, none of them NUL")

    def build(self) -> bytes:
        return b"".join(
            (
                bytes((_PROTOCOL_VERSION,)),
                nul_terminated(self.server_version.encode()),
                self.connection_id.to_bytes(4, "little"),
                self.salt[:_SALT_HEAD_SIZE],
                b"\0",
                (self.capabilities & 0xFFFF).to_bytes(2, "little"),
                bytes((self.charset,)),
                self.status.to_bytes(2, "little"),
                (self.capabilities >> 16).to_bytes(2, "little"),
                bytes((SALT_SIZE + 1,)),
                bytes(_GREETING_FILLER_SIZE),
                self.mariadb_capabilities.to_bytes(4, "little"),
                self.salt[_SALT_HEAD_SIZE:],
                b"\0",
                nul_terminated(self.plugin.encode()),
            )
        )

    @classmethod
    def parse(cls, payload: bytes) -> Greeting:
        """Raises `ProtocolError` also for servers older than the plugin protocol (before 5.5)."""
        cursor = Cursor(payload, "greeting")
        version = cursor.integer(1)
        if version != _PROTOCOL_VERSION:
            raise ProtocolError(f"greeting of protocol version {version}")
        server_version = cursor.nul_terminated().decode("utf-8", "replace")
        connection_id = cursor.integer(4)
        salt = cursor.take(_SALT_HEAD_SIZE)
        cursor.skip(1)
        capabilities = cursor.integer(2)
        charset = cursor.integer(1)
        status = cursor.integer(2)
        capabilities |= cursor.integer(2) << 16
        wanted = Capability.PROTOCOL_41 | Capability.SECURE_CONNECTION | Capability.PLUGIN_AUTH
        if capabilities & wanted != wanted:
            raise ProtocolError(f"greeting with capabilities {capabilities:#x}")
        cursor.skip(1 + _GREETING_FILLER_SIZE)
        mariadb_capabilities = cursor.integer(4)
        salt += cursor.take(_SALT_TAIL_SIZE)
        cursor.skip(1)
        if b"\0" in salt:
            raise ProtocolError("greeting: the salt contains a NUL")
        plugin = cursor.nul_terminated().decode("utf-8", "replace")
        return cls(
            server_version,
            connection_id,
            salt,
            capabilities,
            mariadb_capabilities,
            charset,
            status,
            plugin,
        )


@dataclass(frozen=True, slots=True)
class LoginRequest:
    """The login of a client. Texts that are not UTF-8 survive as surrogate escapes.

    `capabilities` is what the client wrote: only what was offered as well is in force.
    """

    user: str
    auth_response: bytes = b""
    database: str | None = None
    plugin: str | None = NATIVE_PASSWORD
    attributes: dict[str, str] = field(default_factory=dict)
    capabilities: int = REPLICA_CAPABILITIES
    max_packet: int = 1 << 30
    charset: int = CHARSET_UTF8
    mariadb_capabilities: int = 0

    def build(self) -> bytes:
        """The capabilities decide which fields are written."""
        capabilities = self.capabilities
        parts = [
            _LOGIN_FIXED.pack(
                capabilities, self.max_packet, self.charset, self.mariadb_capabilities
            ),
            nul_terminated(_encoded(self.user)),
        ]
        if capabilities & Capability.PLUGIN_AUTH_LENENC_DATA:
            parts.append(lenenc_bytes(self.auth_response))
        elif capabilities & Capability.SECURE_CONNECTION:
            parts.append(bytes((len(self.auth_response),)) + self.auth_response)
        else:
            parts.append(nul_terminated(self.auth_response))
        if capabilities & Capability.CONNECT_WITH_DB:
            parts.append(nul_terminated(_encoded(self.database or "")))
        if capabilities & Capability.PLUGIN_AUTH:
            parts.append(nul_terminated(_encoded(self.plugin or "")))
        if capabilities & Capability.CONNECT_ATTRS:
            parts.append(self.built_attributes())
        return b"".join(parts)

    def built_attributes(self) -> bytes:
        pairs = [lenenc_bytes(_encoded(text)) for pair in self.attributes.items() for text in pair]
        return lenenc_bytes(b"".join(pairs))

    @classmethod
    def parse(cls, payload: bytes, *, secured: bool = False) -> LoginRequest:
        """Raises `ProtocolError` with the answer "Bad handshake" for anything that is no login.

        `secured`: it came inside TLS.
        """
        try:
            return cls._parse(Cursor(payload, "login request"), secured=secured)
        except ProtocolError as error:
            raise ProtocolError(error.reason, BadHandshake()) from None

    @classmethod
    def parse_change(cls, cursor: Cursor, *, has_attributes: bool) -> LoginRequest:
        """What COM_CHANGE_USER says. Raises `ProtocolError`.

        Args:
            has_attributes: whether they must come. Without it the fields from the character set on may be missing,
                and the plugin, which clients without PLUGIN_AUTH do not know of.
        """
        user = _decoded(cursor.nul_terminated())
        auth_response = cursor.short_bytes()
        database = _decoded(cursor.nul_terminated()) or None
        charset, plugin = CHARSET_UTF8, None
        if cursor.remaining or has_attributes:
            charset = cursor.integer(2)
        if cursor.remaining or has_attributes:
            plugin = _decoded(cursor.nul_terminated())
        attributes = _parse_attributes(cursor.lenenc_bytes()) if has_attributes else {}
        return cls(user, auth_response, database, plugin, attributes, charset=charset)

    @classmethod
    def _parse(cls, cursor: Cursor, *, secured: bool) -> LoginRequest:
        capabilities, max_packet, charset, mariadb_capabilities = _LOGIN_FIXED.unpack(
            cursor.take(_LOGIN_FIXED.size)
        )
        if not capabilities & Capability.PROTOCOL_41:
            raise ProtocolError("login request of the protocol before 4.1")
        if capabilities & Capability.SSL and not secured:
            raise ProtocolError("login request asks for TLS, which was not offered")
        user = _decoded(cursor.nul_terminated())
        if capabilities & Capability.PLUGIN_AUTH_LENENC_DATA:
            auth_response = cursor.lenenc_bytes()
        elif capabilities & Capability.SECURE_CONNECTION:
            auth_response = cursor.short_bytes()
        else:
            auth_response = cursor.nul_terminated()
        database = plugin = None
        if capabilities & Capability.CONNECT_WITH_DB:
            database = _decoded(cursor.nul_terminated())
        # Some clients set the bit and send nothing, of this and of the attributes.
        if capabilities & Capability.PLUGIN_AUTH and cursor.remaining:
            plugin = _decoded(cursor.nul_terminated())
        attributes = {}
        if capabilities & Capability.CONNECT_ATTRS and cursor.remaining:
            attributes = _parse_attributes(cursor.lenenc_bytes())
        return cls(
            user,
            auth_response,
            database,
            plugin,
            attributes,
            capabilities,
            max_packet,
            charset,
            mariadb_capabilities,
        )


@dataclass(frozen=True, slots=True)
class TlsRequest:
    """The head of a login request, sent in clear: the login itself follows inside TLS."""

    capabilities: int = REPLICA_CAPABILITIES
    max_packet: int = 1 << 30
    charset: int = CHARSET_UTF8

    def build(self) -> bytes:
        capabilities = self.capabilities | Capability.SSL
        return _LOGIN_FIXED.pack(capabilities, self.max_packet, self.charset, 0)

    @staticmethod
    def is_one(payload: bytes) -> bool:
        """Whether the packet in place of a login is such a request."""
        if len(payload) != _LOGIN_FIXED.size:
            return False
        capabilities: int = _LOGIN_FIXED.unpack(payload)[0]
        wanted = Capability.SSL | Capability.PROTOCOL_41
        return capabilities & wanted == wanted


def _parse_attributes(data: bytes) -> dict[str, str]:
    cursor = Cursor(data, "connection attributes")
    attributes: dict[str, str] = {}
    while cursor.remaining and len(attributes) < CONNECT_ATTRIBUTES_MAX:
        name = _decoded(cursor.lenenc_bytes())
        attributes[name] = _decoded(cursor.lenenc_bytes())
    return attributes


@dataclass(frozen=True, slots=True)
class AuthSwitchRequest:
    """The server asks the client to authenticate with another plugin."""

    plugin: str
    salt: bytes

    def build(self) -> bytes:
        end = b"\0" if self.plugin == NATIVE_PASSWORD else b""
        return bytes((EOF_MARK,)) + nul_terminated(self.plugin.encode()) + self.salt + end

    @classmethod
    def parse(cls, payload: bytes) -> AuthSwitchRequest:
        """Raises `ProtocolError`."""
        cursor = Cursor(payload, "auth switch request")
        if cursor.integer(1) != EOF_MARK:
            raise ProtocolError("auth switch request: wrong first byte")
        plugin = cursor.nul_terminated().decode("utf-8", "replace")
        salt = cursor.rest()
        return cls(plugin, salt.removesuffix(b"\0") if plugin == NATIVE_PASSWORD else salt)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
