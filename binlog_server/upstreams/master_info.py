"""The settings of one connection to an upstream, by CHANGE MASTER or a table of the configuration file.

Names are those of CHANGE MASTER in lower case without MASTER_. Defaults are MariaDB 11.8's: TLS, verified.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import field, fields, replace
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import (
    HeartbeatOutOfRange,
    HeartbeatTooLong,
    HeartbeatTooShort,
    MasterInfoRefused,
    ServerError,
    TooLongString,
    WrongArguments,
    require_chars,
)
from binlog_protocol.gtid import U32_MAX
from binlog_storage.console.arguments import BAD_ADDRESS, did_you_mean

from binlog_server.upstreams.candidates import PORT, Address, parse_candidates
from binlog_server.upstreams.client_tls import TlsOptions
from binlog_server.upstreams.password import KeyFile, Password, PasswordUnavailable

NAME_BYTES_MAX: Final = 191  # MariaDB's
HEARTBEAT_S_MAX: Final = 4294967
_HEARTBEAT_S_MIN: Final = 0.001
_TEXT_CHARS_MAX: Final = 512
_CHARS_MAX: Final = {"host": ("MASTER_HOST", 255), "user": ("MASTER_USER", 128)}
_PASSWORD_BYTES_MAX: Final = 96
_PASSWORD_KEYS: Final = {"password": "text", "password_file": "file", "password_env": "env"}

Warn = Callable[[ServerError], None]


def is_long_name(name: str) -> bool:
    """Whether a connection cannot have this name, because it is too long."""
    return len(name.encode(errors="replace")) > NAME_BYTES_MAX


@dataclass(frozen=True, slots=True)
class GroupFilter:
    """The filter of CHANGE MASTER. Only one of the first two may name domains; without any, all are wanted."""

    do_domain_ids: frozenset[int] = frozenset()
    ignore_domain_ids: frozenset[int] = frozenset()
    ignore_server_ids: frozenset[int] = frozenset()

    @property
    def is_about_domains(self) -> bool:
        """Whether some domains are left out as a whole."""
        return bool(self.do_domain_ids or self.ignore_domain_ids)

    def wants_domain(self, domain_id: int) -> bool:
        """Whether groups of the domain are taken in."""
        if self.do_domain_ids:
            return domain_id in self.do_domain_ids
        return domain_id not in self.ignore_domain_ids


@dataclass(frozen=True, slots=True)
class MasterInfo:
    """One upstream. Times in seconds.

    candidates: HOST:PORT each, to be followed instead when this one cannot be.
    check_last_group: an upstream must show that our last groups are the same there; without, their GTIDs will do.
    connect_retry: the longest pause between two attempts to connect.
    heartbeat_period: 0 asks for no heartbeats; None is a third of slave_net_timeout.
    ssl_verify_server_cert: None verifies where that is possible.
    """

    host: str = ""
    port: int = PORT
    user: str = ""
    password: Password = field(default=Password(), repr=False)
    connect_retry: int = 60
    heartbeat_period: float | None = None
    ssl: bool = True
    ssl_verify_server_cert: bool | None = True
    ssl_ca: str = ""
    ssl_capath: str = ""
    ssl_cert: str = ""
    ssl_key: str = ""
    ssl_crl: str = ""
    ssl_crlpath: str = ""
    ssl_cipher: str = ""
    use_gtid: str = "slave_pos"
    do_domain_ids: tuple[int, ...] = ()
    ignore_domain_ids: tuple[int, ...] = ()
    ignore_server_ids: tuple[int, ...] = ()
    candidates: tuple[str, ...] = ()
    check_last_group: bool = True

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return str(Address(self.host, self.port))

    @property
    def addresses(self) -> list[Address]:
        """The addresses that may be followed, this one first."""
        own = Address(self.host, self.port)
        return list(dict.fromkeys([own, *map(Address.parse, self.candidates)]))

    def at(self, address: Address) -> MasterInfo:
        """The same for one of the candidates."""
        return replace(self, host=address.host, port=address.port)

    @property
    def filter(self) -> GroupFilter:
        return GroupFilter(
            frozenset(self.do_domain_ids),
            frozenset(self.ignore_domain_ids),
            frozenset(self.ignore_server_ids),
        )

    @property
    def tls(self) -> TlsOptions:
        return TlsOptions(
            self.ssl,
            self.ssl_verify_server_cert,
            self.ssl_ca,
            self.ssl_capath,
            self.ssl_cert,
            self.ssl_key,
            self.ssl_crl,
            self.ssl_crlpath,
            self.ssl_cipher,
        )

    def heartbeat_s(self, slave_net_timeout: int) -> float:
        """The period to ask for."""
        return slave_net_timeout / 3 if self.heartbeat_period is None else self.heartbeat_period

    def silence_s(self, slave_net_timeout: int) -> float:
        """A connection that is silent for longer is lost: three heartbeats, and never more than slave_net_timeout."""
        period = self.heartbeat_s(slave_net_timeout)
        return min(3 * period, slave_net_timeout) if period else slave_net_timeout

    def changed(
        self, name: str, options: Mapping[str, Any], slave_net_timeout: int, warn: Warn
    ) -> MasterInfo:
        """The settings with these options, by the names of the fields, `password_file` and `password_env`.

        Raises `ServerError` with MariaDB's numbers: 1201, 1210, 1470, 1624. `warn` is told what is taken
        otherwise than written.
        """
        values = dict(options)
        for key, (option, limit) in _CHARS_MAX.items():
            require_chars(values.get(key, ""), option, limit)
        if len(values.get("password", "").encode("utf-8", "surrogateescape")) > _PASSWORD_BYTES_MAX:
            raise TooLongString("...", "MASTER_PASSWORD", _PASSWORD_BYTES_MAX)  # errors are logged
        for key, part in _PASSWORD_KEYS.items():
            if key in values:
                values["password"] = Password(**{part: values.pop(key)})
        if values.get("host") == "":
            raise WrongArguments("MASTER_HOST")
        if values.get("heartbeat_period") is not None:
            values["heartbeat_period"] = _heartbeat(
                values["heartbeat_period"], slave_net_timeout, warn
            )
        for key in ("do_domain_ids", "ignore_domain_ids", "ignore_server_ids"):
            if key in values:
                values[key] = tuple(sorted(set(values[key])))
        try:
            if "candidates" in values:
                values["candidates"] = parse_candidates(values["candidates"].split(","))
            changed = replace(self, **values)
            changed.check()
        except ValueError as error:
            raise MasterInfoRefused(name, str(error)) from None
        return changed

    def check(self) -> None:
        """Raises ValueError for what cannot be, or contradicts itself."""
        if self.do_domain_ids and self.ignore_domain_ids:
            raise ValueError(
                "DO_DOMAIN_IDS and IGNORE_DOMAIN_IDS cannot both name domains; empty one of them: IGNORE_DOMAIN_IDS=()"
            )
        if not 1 <= self.port <= 65535:
            raise ValueError(f"port {self.port} is not between 1 and 65535")
        for ids in (self.do_domain_ids, self.ignore_domain_ids, self.ignore_server_ids):
            if any(not 0 <= number <= U32_MAX for number in ids):
                raise ValueError(f"an id is between 0 and {U32_MAX}")
        for text in (self.host, self.user):
            if len(text) > _TEXT_CHARS_MAX or not text.isprintable():
                raise ValueError(
                    f"host and user are printable text of up to {_TEXT_CHARS_MAX} characters"
                )
        if self.ssl_key and not self.ssl_cert:
            raise ValueError("MASTER_SSL_KEY needs MASTER_SSL_CERT")

    # --- the store's state ---

    def to_state(self, keys: KeyFile) -> dict[str, Any]:
        """The settings in a form for JSON, the password encrypted. Raises `PasswordUnavailable`."""
        values: dict[str, Any] = {
            f.name: getattr(self, f.name) for f in fields(self) if f.name != "password"
        }
        for name, value in values.items():
            if isinstance(value, tuple):
                values[name] = list(value)
        return {**values, "password": keys.seal(self.password)}

    @classmethod
    def from_state(cls, kept: Mapping[str, Any], keys: KeyFile) -> tuple[MasterInfo, str]:
        """The settings from the store's state, and the reason if the password cannot be decrypted."""
        known = {f.name for f in fields(cls)}
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in kept.items()
            if name in known
        }
        problem = ""
        try:
            values["password"] = keys.open(kept.get("password", {}))
        except PasswordUnavailable as error:
            values["password"] = Password()
            problem = str(error)
        return cls(**values), problem

    # --- the configuration file ---

    @classmethod
    def from_url(cls, url: str) -> MasterInfo:
        """From `mariadb://user:password@host:port`; characters that a URL cannot hold as %xx. Raises ValueError.

        TLS is used if the upstream offers it, and verified if the upstream can prove its certificate by the password.
        """
        try:
            parts = urlsplit(url)
            port = PORT if parts.port is None else parts.port
        except ValueError:  # its text may quote a part of the password
            raise ValueError(BAD_ADDRESS) from None
        if not port:
            raise ValueError("port 0 is not between 1 and 65535")
        if parts.scheme not in ("mariadb", "mysql") or not parts.hostname or not parts.username:
            raise ValueError("write it as mariadb://user:password@host:port")
        if parts.path.strip("/") or parts.query or parts.fragment:
            raise ValueError("nothing may follow the port")
        password = Password(unquote(parts.password or ""))
        return cls(
            parts.hostname,
            port,
            unquote(parts.username),
            password,
            ssl_verify_server_cert=None,
        )

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> MasterInfo:
        """From a table of the configuration file. Raises ValueError."""
        values: dict[str, Any] = {}
        passwords = [key for key in _PASSWORD_KEYS if key in table]
        if len(passwords) > 1:
            raise ValueError(f"{' and '.join(passwords)}: give one of them")
        for key, value in table.items():
            part = _PASSWORD_KEYS.get(key)
            if part is not None:
                values["password"] = Password(**{part: _typed(key, value, str)})
            else:
                values[key] = _value(key, value)
        if not values.get("host") or not values.get("user"):
            raise ValueError("host and user are needed")
        info = cls(**values)
        info.check()
        period = info.heartbeat_period
        if period is not None and not (
            period == 0 or _HEARTBEAT_S_MIN <= period <= HEARTBEAT_S_MAX
        ):
            raise ValueError(
                f"heartbeat_period: {period} is neither 0 nor between {_HEARTBEAT_S_MIN} and {HEARTBEAT_S_MAX}"
            )
        return info


def upstreams(value: Any) -> dict[str, MasterInfo]:
    """The connections of the configuration file by name; "" is the default one. A URL, or tables. Raises ValueError.

    upstream = "mariadb://repl:secret@primary:3306"     # one, with the defaults

    [upstream]                                          # the default connection
    host = "primary"
    user = "repl"
    password_file = "/run/secrets/repl"

    [upstream.east]                                     # one with a name
    host = "db2"
    ...
    """
    if isinstance(value, str):
        return {"": MasterInfo.from_url(value)}
    if not isinstance(value, Mapping):
        raise ValueError(
            "write mariadb://user:password@host:port, or tables [upstream], [upstream.NAME]"
        )
    tables = {name: table for name, table in value.items() if isinstance(table, Mapping)}
    options = {name: option for name, option in value.items() if name not in tables}
    if options:
        tables = {"": options, **tables}
    found: dict[str, MasterInfo] = {}
    for name, table in tables.items():
        if is_long_name(name) or not name.isprintable():
            raise ValueError(f"a name is printable text of up to {NAME_BYTES_MAX} bytes")
        if name.lower() in map(str.lower, found):
            raise ValueError(f"{name!r} is there twice; names are compared without case")
        try:
            found[name] = MasterInfo.from_table(table)
        except ValueError as error:
            raise ValueError(f"{name}: {error}" if name else str(error)) from None
    return found


_KINDS: Final[Mapping[str, type]] = {
    "host": str,
    "port": int,
    "user": str,
    "connect_retry": int,
    "heartbeat_period": float,
    "check_last_group": bool,
    "ssl": bool,
    "ssl_verify_server_cert": bool,
    **dict.fromkeys(
        ("ssl_ca", "ssl_capath", "ssl_cert", "ssl_key", "ssl_crl", "ssl_crlpath", "ssl_cipher"), str
    ),
    **dict.fromkeys(
        ("do_domain_ids", "ignore_domain_ids", "ignore_server_ids", "candidates"), list
    ),
}


def _value(key: str, value: Any) -> Any:
    kind = _KINDS.get(key)
    if kind is None:
        known = [*_KINDS, *_PASSWORD_KEYS]
        meant = did_you_mean(key, known) or f"; there are {', '.join(known)}"
        raise ValueError(f"unknown option {key!r}{meant}")
    if kind is float and type(value) is int:
        return float(value)
    value = _typed(key, value, kind)
    if key == "candidates":
        if any(type(text) is not str for text in value):
            raise ValueError(f'{key}: write a list of addresses: ["db2:3306", "db3"]')
        return parse_candidates(value)
    if kind is list:
        if any(type(number) is not int for number in value):
            raise ValueError(f"{key}: write a list of numbers")
        return tuple(sorted(set(value)))
    if kind is int and value < 0:
        raise ValueError(f"{key}: {value} is below 0")
    return value


def no_such(kind: type) -> str:
    """What a value of a configuration is that is not of that kind, behind "is"."""
    if kind is bool:
        return "neither true nor false"
    return {int: "no whole number", float: "no number", str: "no text"}.get(kind, "no list")


def _typed(key: str, value: Any, kind: type) -> Any:
    if type(value) is not kind:
        shown = "it" if key in _PASSWORD_KEYS else repr(value)
        raise ValueError(f"{key}: {shown} is {no_such(kind)}")
    return value


def _heartbeat(period: float, slave_net_timeout: int, warn: Warn) -> float:
    """The heartbeat period that MariaDB takes for this one, in seconds. Raises `HeartbeatOutOfRange` (1624)."""
    if not math.isfinite(period) or not 0 <= period <= HEARTBEAT_S_MAX:
        raise HeartbeatOutOfRange(HEARTBEAT_S_MAX)
    if 0 < period < _HEARTBEAT_S_MIN:
        warn(HeartbeatTooShort())
        return 0.0
    if period > slave_net_timeout:
        warn(HeartbeatTooLong())
    return period
