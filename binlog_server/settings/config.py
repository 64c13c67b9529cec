"""The configuration: one value, from defaults, then a TOML file, then the environment, then the command line.

Names are MariaDB's where MariaDB has one. A TOML file holds them at the top level, and accounts in a table:

    server_id = 10
    max_binlog_size = "256M"

    [upstream]
    host = "primary"
    user = "repl"
    password_file = "/run/secrets/repl"

    [users]
    repl = "a password, or its hash: *0123..."
    test = {password_file = "/run/secrets/test", grants = ["BINLOG REPLAY"]}
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Final, get_args, get_type_hints

from binlog_protocol.dataclass import dataclass
from binlog_protocol.events.checksum import ChecksumAlgorithm
from binlog_protocol.events.format_description import SERVER_VERSION_SIZE
from binlog_protocol.limits import (
    COMMAND_PACKET_BYTES_MAX,
    EVENT_GROUP_BYTES_MAX,
    REPORT_HOST_BYTES_MAX,
)
from binlog_storage.archive.encryption import ArchiveKeys
from binlog_storage.archive.places import archive_path
from binlog_storage.binlog.options import (
    FILE_BYTES_MAX,
    LOG_BUFFER_SIZE_DEFAULT,
    PAGE_CACHE_BYTES_DEFAULT,
    STATE_INTERVAL_DEFAULT,
    UNDO_BACKGROUND,
    UNDO_SYNCHRONOUS,
    StoreOptions,
)
from binlog_storage.binlog.transaction import BINLOG_CACHE_SIZE
from binlog_storage.classic.encryption import ALGORITHMS, Keys
from binlog_storage.classic.gtid_index import PAGE_BYTES_MAX, PAGE_BYTES_MIN
from binlog_storage.classic.options import FILE_BYTES_MIN, LARGE_COMMIT_BYTES, ClassicOptions
from binlog_storage.console.arguments import did_you_mean
from binlog_storage.disk.given_files import read_given_text
from binlog_storage.disk.local_path import NotLocal, local_path, no_directory

from binlog_server.accounts.account import UserAccount
from binlog_server.accounts.privileges import privileges
from binlog_server.accounts.replica_policy import LIMITS, ReplicaPolicy, check_server_version
from binlog_server.accounts.users import Account
from binlog_server.process.logs import FORMATS, TEXT
from binlog_server.settings import engine_limits, environment
from binlog_server.settings.engine_limits import TRADITIONAL
from binlog_server.settings.option_kinds import (
    U32_MAX,
    U64_MAX,
    Decimals,
    Number,
    OptionKind,
    Switch,
    Text,
    Words,
)
from binlog_server.upstreams.master_info import MasterInfo, no_such, upstreams
from binlog_server.upstreams.password import KEY_NAME, Password, PasswordUnavailable

SERVER_VERSION = "11.8.9-MariaDB-binlog-server"
PORT = 3306
TLS_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
TOKEN_CHARS_MIN: Final = 16
LOG_LEVELS = ("DEBUG", "INFO", "WARNING")
# After a failure of the disk: serve what is durable and accept nothing more, or end with an exit status of 1.
ABORT_SERVER = "ABORT_SERVER"
ERROR_ACTIONS = ("READ_ONLY", ABORT_SERVER)
LOG_BIN = "binlog"
ROLLBACKS = {"BACKGROUND": UNDO_BACKGROUND, "SYNCHRONOUS": UNDO_SYNCHRONOUS}
_FILE_BYTES_MAX = 4 << 20  # of a configuration file
_PASSWORD_FILE: Final = "password_file"
_DAY_S = 86400
_YEAR_S = 365 * _DAY_S

PORTS: Final = Number(0, 65_535)
CONNECTIONS: Final = Number(10, 100_000)
_Seconds = Annotated[int, Number(1, _YEAR_S)]
_Keepalive = Annotated[int, Number(0, 32_767)]  # the system's limit
_Memory = Annotated[int, Number(1 << 20, 1 << 40)]
_TmpSpace = Annotated[int, Number(0, U64_MAX, 65_536)]
_CacheSize = Annotated[int, Number(4096, U64_MAX)]

_ARCHIVES = frozenset(("binlog_archive_directory", "binlog_archive_url"))
_PATHS = frozenset(
    (
        "binlog_directory",
        "binlog_archive_directory",
        "binlog_archive_url",
        "master_info_key_file",
        "ssl_cert",
        "ssl_key",
        "ssl_ca",
        "metrics_ssl_ca",
    )
)


class ConfigError(ValueError):
    """An error of the configuration: its text names the option."""


@dataclass(frozen=True, slots=True)
class Config:
    """All options. Times in seconds, sizes in bytes. Beside the type stands what its values may be, see `KINDS`."""

    binlog_directory: Path
    listen_host: str = "127.0.0.1"
    listen_port: Annotated[int, PORTS] = PORT
    # By name; "" is the default one.
    upstream: Mapping[str, MasterInfo] = field(default_factory=dict, repr=False)
    skip_slave_start: bool = False
    slave_compressed_protocol: bool = False
    gtid_ignore_duplicates: bool = False
    master_info_key_file: str = ""  # in the directory of the store, without it
    server_id: Annotated[int, Number(1, U32_MAX)] = 1
    gtid_domain_id: Annotated[int, Number(0, U32_MAX)] = 0
    gtid_strict_mode: bool = False
    read_only: bool | None = None  # None: with an upstream
    binlog_faults: bool = False  # ours: for tests, CREATE BINLOG FAULT
    innodb_read_only: bool = False  # the directory is served as it lies
    local_tables: bool = False  # ours: CREATE DATABASE makes one here, with tables
    server_version: Annotated[str, Text(SERVER_VERSION_SIZE)] = SERVER_VERSION
    binlog_storage_engine: str | None = None  # None: that of the directory, INNODB for a new one
    log_bin: str | None = None  # base name of a traditional binlog; None: as above, LOG_BIN
    binlog_gtid_index: bool = True  # these three: of traditional files
    binlog_gtid_index_page_size: Annotated[int, Number(PAGE_BYTES_MIN, PAGE_BYTES_MAX)] = 4096
    binlog_gtid_index_span_min: Annotated[int, Number(1, FILE_BYTES_MAX)] = 65536
    encrypt_binlog: bool = False  # and these four; the key file is that of archives, too
    file_key_management_filename: str = ""
    file_key_management_filekey: str = field(default="", repr=False)
    file_key_management_encryption_algorithm: Annotated[str, Words(ALGORITHMS)] = ALGORITHMS[0]
    max_binlog_size: Annotated[int, Number(FILE_BYTES_MIN, FILE_BYTES_MAX)] = FILE_BYTES_MAX
    innodb_binlog_state_interval: Annotated[int, Number(0, U32_MAX)] = STATE_INTERVAL_DEFAULT
    binlog_page_cache_size: _Memory = PAGE_CACHE_BYTES_DEFAULT
    dump_frame_cache_size: _Memory = 32 << 20
    binlog_cache_size: _CacheSize = BINLOG_CACHE_SIZE
    binlog_stmt_cache_size: _CacheSize = BINLOG_CACHE_SIZE
    innodb_flush_log_at_trx_commit: Annotated[int, Number(0, 3)] = 1
    sync_binlog: Annotated[int, Number(0, U32_MAX)] = 1  # of traditional files
    innodb_flush_log_at_timeout: Annotated[int, Number(0, 2700)] = 1
    innodb_log_file_size: Annotated[int, Number(4 << 20, 512 << 30)] = 96 << 20
    innodb_log_buffer_size: Annotated[int, Number(2 << 20, (1 << 31) - 4096)] = (
        LOG_BUFFER_SIZE_DEFAULT
    )
    innodb_lock_wait_timeout: Annotated[int, Number(0, 100_000_000)] = 50  # of sessions of clients
    innodb_force_recovery: Annotated[int, Number(0, 6)] = 0
    rollback_at_start: Annotated[str, Words(tuple(ROLLBACKS))] = "BACKGROUND"
    binlog_error_action: Annotated[str, Words(ERROR_ACTIONS)] = "READ_ONLY"
    binlog_checksum: Annotated[str, Words(tuple(ChecksumAlgorithm.__members__))] = "CRC32"
    max_binlog_total_size: Annotated[int, Number(0, U64_MAX)] = 0
    binlog_large_commit_threshold: Annotated[int, Number(10 << 20, U64_MAX)] = LARGE_COMMIT_BYTES
    binlog_archive_directory: str = ""  # what is not in that archive is not purged
    binlog_archive_url: str = ""  # the same; and the server archives there by itself
    binlog_archive_interval: Annotated[int, Number(1, _DAY_S)] = 5  # seconds
    binlog_archive_format: Annotated[str, Words(("PARQUET", "IBB"))] = "PARQUET"  # of new parts
    binlog_archive_encryption_key_id: Annotated[int, Number(0, U32_MAX)] = 0  # 0: as the archive is
    binlog_archive_cache_size: Annotated[int, Number(0, U64_MAX)] = 1 << 30  # of parts, on disk
    binlog_scrub_rate: Annotated[int, Number(0, U64_MAX)] = 4 << 20  # bytes a second; 0: none
    binlog_scrub_interval: _Seconds = 7 * _DAY_S  # from begin to begin
    binlog_scrub_archive: bool = False  # an object store may charge for what is read
    binlog_expire_logs_seconds: Annotated[int, Number(0, 99 * _DAY_S)] = 0
    expire_logs_days: Annotated[float, Decimals(0, 99)] = (
        0.0  # the same as binlog_expire_logs_seconds, in days
    )
    slave_connections_needed_for_purge: Annotated[int, Number(0, U32_MAX)] = 1
    # Ours. A night and a reboot; ten files of the default size: more than that, a disk should be asked for.
    replica_slot_seconds: Annotated[int, Number(0, 99 * _DAY_S)] = _DAY_S
    replica_slot_bytes: Annotated[int, Number(0, U64_MAX)] = 10 << 30
    max_allowed_packet: Annotated[int, Number(1024, 1 << 30, 1024)] = COMMAND_PACKET_BYTES_MAX
    max_session_mem_used: Annotated[int, Number(8192, U64_MAX)] = 1 << 20
    max_total_session_mem_used: _Memory = 256 << 20  # ours
    max_tmp_session_space_usage: _TmpSpace = 1 << 40
    max_tmp_total_space_usage: _TmpSpace = 1 << 40
    max_connections: Annotated[int, CONNECTIONS] = 2000
    max_user_connections: Annotated[int, Number(0, 2**31 - 1)] = 0
    max_connect_errors: Annotated[int, Number(1, U32_MAX)] = 100
    connect_timeout: Annotated[int, Number(2, _YEAR_S)] = 10
    net_read_timeout: _Seconds = 30
    net_write_timeout: _Seconds = 60
    tcp_keepalive_time: _Keepalive = 30
    tcp_keepalive_interval: _Keepalive = 5
    tcp_keepalive_probes: Annotated[int, Number(0, 127)] = 6
    replica_lag_grace_seconds: _Seconds = 60
    slave_net_timeout: _Seconds = 60
    wait_timeout: _Seconds = 28_800
    rpl_semi_sync_master_enabled: bool = False
    rpl_semi_sync_master_timeout: Annotated[int, Number(0, U64_MAX)] = 10_000  # milliseconds
    rpl_semi_sync_master_wait_no_slave: bool = True
    rpl_semi_sync_master_wait_for_slave_count: Annotated[int, Number(1, 65_535)] = 1  # MySQL's
    rpl_semi_sync_slave_enabled: bool = False
    rpl_semi_sync_slave_wait_for_slave_count: Annotated[int, Number(0, 65_535)] = 0  # ours
    max_event_group_size: _Memory = EVENT_GROUP_BYTES_MAX
    report_host: Annotated[str, Text(REPORT_HOST_BYTES_MAX)] = ""
    ssl: bool = True
    ssl_cert: str = ""
    ssl_key: str = ""
    ssl_ca: str = ""
    tls_version: str = ",".join(TLS_VERSIONS)
    require_secure_transport: bool = False
    log_level: Annotated[str, Words(LOG_LEVELS)] = "INFO"
    log_format: Annotated[str, Words(FORMATS)] = TEXT
    metrics_listen: str = ""  # HOST:PORT of the metrics' own listener; empty is none
    metrics_ssl: bool = False  # TLS there, with the certificate of the server
    metrics_ssl_ca: str = ""  # who signs certificates of those who see the status page
    # For the status page from other machines; as long as a token is that nobody guesses.
    metrics_token: str = field(default="", repr=False)
    users: Mapping[str, str | Account] = field(default_factory=dict, repr=False)
    ignored_options: tuple[str, ...] = ()  # given, but without effect here

    def __post_init__(self) -> None:
        for name, kind in KINDS.items():
            value = getattr(self, name)
            try:
                if value is not None:
                    kind.check(value)
            except ValueError as error:
                raise ConfigError(f"{name}: {error}") from None
        for name in (f.name for f in fields(self)):
            text = getattr(self, name)
            if isinstance(text, str | Path) and "\0" in str(text):
                raise ConfigError(f"{name}: {str(text)!r} holds a zero byte")
        _check_host("listen_host", self.listen_host)
        if self.metrics_listen:
            _check_host("metrics_listen", parse_listen(self.metrics_listen, "metrics_listen")[0])
        token = self.metrics_token
        if token and (
            len(token) < TOKEN_CHARS_MIN or not (token.isascii() and token.isprintable())
        ):
            raise ConfigError(
                f"metrics_token: it has {TOKEN_CHARS_MIN} printable ASCII characters or more"
            )
        for version in self.tls_versions:
            if version not in TLS_VERSIONS:
                known = ", ".join(TLS_VERSIONS)
                raise ConfigError(f"tls_version: {version!r} is none of {known}")
        if bool(self.ssl_cert) != bool(self.ssl_key):
            raise ConfigError(
                "ssl_cert and ssl_key: give both, or none for a certificate made at each start"
            )
        if self.metrics_listen and self.listen_port:
            there = (self.listen_host, self.listen_port)
            if parse_listen(self.metrics_listen, "metrics_listen") == there:
                raise ConfigError("metrics_listen: it is the same address as listen")
        if self.metrics_ssl and not (self.ssl and self.ssl_cert):
            raise ConfigError(
                "metrics_ssl: it takes the certificate of the server: give ssl_cert and ssl_key, and leave ssl on"
            )
        if self.metrics_ssl_ca and not self.metrics_ssl:
            raise ConfigError("metrics_ssl_ca: without metrics_ssl nobody could show a certificate")
        if self.require_secure_transport and not self.ssl:
            raise ConfigError("require_secure_transport: with ssl = false nobody could log in")
        if self.binlog_archive_directory and self.binlog_archive_url:
            raise ConfigError(
                "binlog_archive_directory and binlog_archive_url exclude each other: others archive, or the server"
            )
        if self.binlog_archive_encryption_key_id and not self.archive_keys().filename:
            raise ConfigError(
                "binlog_archive_encryption_key_id: file_key_management_filename names no key file that has the key"
            )
        try:
            check_server_version(self.server_version)
        except ValueError as error:
            raise ConfigError(f"server_version: {error}") from None
        try:
            if self.binlog_storage_engine == TRADITIONAL:
                self.traditional_options(self.log_bin or LOG_BIN)
            else:
                self.store_options()
        except ValueError as error:
            raise ConfigError(str(error)) from None

    @property
    def key_file(self) -> Path:
        """The path of the key that encrypts passwords for upstreams."""
        return Path(self.master_info_key_file or self.binlog_directory / KEY_NAME)

    @property
    def tls_versions(self) -> list[str]:
        """The names in `tls_version`."""
        return [name.strip() for name in self.tls_version.split(",")]

    def store_options(self) -> StoreOptions:
        """The part that the store needs."""
        return StoreOptions(
            self.max_binlog_size,
            self.innodb_binlog_state_interval,
            self.binlog_page_cache_size,
            self.expire_s,
            self.max_binlog_total_size,
            self.slave_connections_needed_for_purge,
            self.innodb_log_file_size,
            self.innodb_log_buffer_size,
            self.innodb_force_recovery,
            ROLLBACKS[self.rollback_at_start],
        )

    def traditional_options(self, log_bin: str) -> ClassicOptions:
        """The part that a traditional store needs; `log_bin` is the base name that it has."""
        return ClassicOptions(
            log_bin,
            self.max_binlog_size,
            ChecksumAlgorithm[self.binlog_checksum],
            self.server_id,
            self.server_version,
            self.expire_s,
            self.max_binlog_total_size,
            self.slave_connections_needed_for_purge,
            self.innodb_log_file_size,
            self.innodb_log_buffer_size,
            self.innodb_force_recovery,
            ROLLBACKS[self.rollback_at_start],
            self.binlog_large_commit_threshold,
            self.binlog_gtid_index,
            self.binlog_gtid_index_page_size,
            self.binlog_gtid_index_span_min,
            self.encrypt_binlog,
            self.file_key_management_filename,
            self.file_key_management_filekey,
            self.file_key_management_encryption_algorithm,
        )

    def binlog_keys(self) -> Keys | None:
        """The keys for encrypted traditional files; None without any. Reads the key file. Raises `NoBinlogKey`."""
        return self.traditional_options(self.log_bin or LOG_BIN).keys()

    def archive_keys(self, where: str | Path | None = None) -> ArchiveKeys:
        """The keys for encrypted parts of archives: of the key file, or of the one that the environment names.

        Args:
            where: the archive. If `binlog_archive_encryption_key_id` is of it, nothing in clear is taken for it: who
                can write there could put it there.
        """
        is_required = where == self.binlog_archive_url and self.binlog_archive_encryption_key_id > 0
        if not self.file_key_management_filename:
            return replace(ArchiveKeys.of_environment(), is_required=is_required)
        return ArchiveKeys(
            self.file_key_management_filename, self.file_key_management_filekey, is_required
        )

    @property
    def expire_s(self) -> int:
        """Age at which files are purged, in whichever of the two units it was given; 0 for never."""
        return self.binlog_expire_logs_seconds or round(self.expire_logs_days * _DAY_S)

    @property
    def purges_by_itself(self) -> bool:
        """Whether there is a limit of age or size beyond which files go."""
        return bool(self.expire_s or self.max_binlog_total_size)

    @property
    def session_memory_limit(self) -> int:
        """Bytes that all sessions hold together: enough for some that hold as much as one may."""
        return max(self.max_total_session_mem_used, 4 * self.max_allowed_packet)


def doubts(config: Config) -> list[str]:
    """What is allowed, and probably not meant: a line each."""
    found = [f"{name} has no effect: the binlog is in an engine" for name in config.ignored_options]
    total, file = config.max_binlog_total_size, config.max_binlog_size
    if 0 < total < 2 * file and config.binlog_storage_engine != TRADITIONAL:
        found.append(
            f"max_binlog_total_size = {total} cannot be kept: the file that is written and the one made ahead are "
            f"never purged, and have {file} bytes each (max_binlog_size)"
        )
    needed = config.slave_connections_needed_for_purge
    if config.purges_by_itself and needed > config.max_connections:
        found.append(
            f"no file is ever purged: slave_connections_needed_for_purge = {needed} is more than max_connections = "
            f"{config.max_connections}"
        )
    return found


def _kinds() -> Iterator[tuple[str, OptionKind]]:
    of_type: Mapping[Any, OptionKind] = {bool: Switch(), bool | None: Switch(), str: Text()}
    for name, hint in get_type_hints(Config, include_extras=True).items():
        kind = get_args(hint)[1] if hasattr(hint, "__metadata__") else of_type.get(hint)
        if kind is not None:
            yield name, kind


KINDS: Final[Mapping[str, OptionKind]] = dict(_kinds())
"""The kind of each option that is one value: the values it may have, in the file and elsewhere."""
DEFAULTS: Final[Mapping[str, Any]] = {f.name: f.default for f in fields(Config)}


_NO_HOST: Final = re.compile(r"[\s,/]")  # as in a list of addresses, and there is one


def parse_listen(text: str, option: str = "listen") -> tuple[str, int]:
    """HOST:PORT; the host may be empty (all addresses) or in brackets. Raises `ConfigError`."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or _NO_HOST.search(host):
        raise ConfigError(f"{option}: {text!r} is not HOST:PORT")
    if len(port) > 10 or not PORTS.low <= int(port) <= PORTS.high:
        raise ConfigError(f"{option}: port {port[:10]} is not between {PORTS.low} and {PORTS.high}")
    return host.strip("[]"), int(port)


def _check_host(name: str, host: str) -> None:
    """Refuse a name that nothing could ever find: a label of more than 63 characters, none between two dots."""
    try:
        host.encode("idna")
    except UnicodeError:
        raise ConfigError(f"{name}: {host!r} cannot be the name of a machine") from None


def load(
    path: Path | None, overrides: Mapping[str, Any], environ: Mapping[str, str] | None = None
) -> Config:
    """The configuration from a TOML file, if given, the environment, and options of the command line that are not None.

    `environ` has the variables of `environment`; without it none is looked at. Raises `ConfigError`.
    """
    environ = environ or {}
    if path is None and environ.get(environment.CONFIG):
        path = Path(environ[environment.CONFIG])
    values = _read(path) if path is not None else {}
    known = {f.name for f in fields(Config)} - {"ignored_options"}
    variables: dict[str, str] = {}  # of options that they have given

    def place(name: str) -> str:
        return f" in {variables[name]}" if name in variables else _place(path)

    try:
        for name, variable, value in environment.given_options(environ, KINDS, known | {"listen"}):
            values[name], variables[name] = value, variable
    except ValueError as error:
        raise ConfigError(str(error)) from None
    told = {name: value for name, value in overrides.items() if value is not None}
    values.update(told)
    given = values.keys() - told.keys()  # in the file or its variables, and not on the command line
    if "upstream" in values:
        try:
            values["upstream"] = upstreams(values["upstream"])
        except ValueError as error:
            raise ConfigError(f"upstream: {error}{place('upstream')}") from None
    try:
        ignored = engine_limits.take_options(values)
    except ValueError as error:
        raise ConfigError(f"{error}{_place(path)}") from None
    for name in values:
        if name not in known | {"listen"}:
            meant = engine_limits.instead_of(name) or did_you_mean(name, known | {"listen"})
            raise ConfigError(f"unknown option {name!r}{place(name)}{meant}")
    if "listen" in values:
        try:
            values["listen_host"], values["listen_port"] = parse_listen(str(values.pop("listen")))
        except ConfigError as error:
            raise ConfigError(f"{error}{place('listen') if 'listen' in given else ''}") from None
    if "binlog_directory" not in values:
        raise ConfigError("binlog_directory is missing: give --directory or set it in the file")
    if not isinstance(values["binlog_directory"], str | Path):
        raise ConfigError(
            f"binlog_directory: {values['binlog_directory']!r} is {no_such(str)}{place('binlog_directory')}"
        )
    for name in values.keys() & KINDS.keys():
        values[name] = KINDS[name].written(values[name])
    _check_types(values, place)
    for name in _PATHS & values.keys():
        try:
            path_of = archive_path if name in _ARCHIVES else local_path
            values[name] = str(path_of(values[name])) if values[name] else ""
        except NotLocal as error:
            raise ConfigError(f"{name}: {error}{place(name)}") from None
    values["binlog_directory"] = Path(values["binlog_directory"])
    users = values.get("users", {})
    values["users"] = {name: _account(name, value, place("users")) for name, value in users.items()}
    try:
        return Config(**values, ignored_options=ignored)
    except ConfigError as error:  # of a value; of several ones the first word is one of them
        first = str(error).partition(":")[0].partition(" ")[0]
        raise ConfigError(f"{error}{place(first) if first in given else ''}") from None


def _read(path: Path) -> dict[str, Any]:
    import tomllib  # few servers have a file

    try:
        return tomllib.loads(read_given_text(path, _FILE_BYTES_MAX))
    except FileNotFoundError:
        raise ConfigError(no_directory(path)) from None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (
        ValueError,
        RecursionError,
    ) as error:  # a number of 5,000 digits, brackets within brackets
        raise ConfigError(
            f'{path} is not TOML: {error}. A line is name = 10, name = "text" or name = true'
        ) from None


def _check_types(values: Mapping[str, Any], place: Callable[[str], str]) -> None:
    for name, value in values.items():
        default = DEFAULTS[name]
        if isinstance(default, float) and type(value) is int:
            continue  # a whole number of days
        if isinstance(default, (int, float, str)) and type(value) is not type(default):
            has_unit = isinstance(value, str) and isinstance(KINDS.get(name), Number)
            units = ", nor one with a unit, such as 64K, 16M or 1G" if has_unit else ""
            raise ConfigError(f"{name}: {value!r} is {no_such(type(default))}{units}{place(name)}")
    if type(values.get("read_only")) not in (bool, type(None)):
        raise ConfigError(
            f"read_only: {values['read_only']!r} is {no_such(bool)}{place('read_only')}"
        )
    if not isinstance(values.get("users", {}), Mapping):
        raise ConfigError(_USERS + place("users"))


_LIMIT: Final = Number(0, U64_MAX)  # of replicas, perhaps with a unit
_USERS = (
    'users: write a table of name = "password" or '
    'name = {password = "...", grants = ["BINLOG REPLAY"], max_lag_seconds = 600}, or password_file instead of password'
)


def _account(name: str, value: Any, place: str) -> str | Account:
    try:
        UserAccount(name)
    except ValueError as error:
        raise ConfigError(f"users: {error}{place}") from None
    if _is_option(name, value):
        raise ConfigError(
            f"users: {name} is an option of the server, and behind [users] it would be an account: write it in front "
            f"of the first table{place}. CREATE USER makes an account of that name"
        )
    if isinstance(value, str | Account):
        return value
    if isinstance(value, Mapping):
        known = ("password", _PASSWORD_FILE, "grants", "stream_style", "server_version", *LIMITS)
        for key in value:
            if key not in known:
                meant = did_you_mean(key, known)
                raise ConfigError(f"users: {name}: unknown option {key!r}{meant}{place}")
    if not isinstance(value, Mapping) or ("password" in value) == (_PASSWORD_FILE in value):
        raise ConfigError(_USERS + place)
    given = value.get("password", value.get(_PASSWORD_FILE))
    grants = value.get("grants", [])
    if not isinstance(given, str) or not isinstance(grants, list):
        raise ConfigError(_USERS + place)
    if _PASSWORD_FILE in value:
        given = _password_of(name, given, place)
    try:
        policy = ReplicaPolicy().changed(
            {
                key: _LIMIT.written(limit) if key in LIMITS else limit
                for key, limit in value.items()
                if key not in ("password", _PASSWORD_FILE, "grants")
            }
        )
        return Account(given, privileges(map(str, grants)), policy)
    except ValueError as error:
        raise ConfigError(f"users: {name}: {error}{place}") from None


def _is_option(name: str, value: Any) -> bool:
    """Whether it was meant as an option, as when a line is added at the end of a file, where a table goes on.

    `upstream`, `ssl` and `users` may be names of accounts, with a password.
    """
    if (name not in DEFAULTS and name != "listen") or isinstance(value, Mapping | Account):
        return False
    return "_" in name or name == "listen" or not isinstance(value, str)


def _password_of(name: str, path: str, place: str) -> str:
    """The first line of a file. An empty one would let everybody in."""
    try:
        password = Password(file=path).read()
    except PasswordUnavailable as error:
        raise ConfigError(f"users: {name}: {error}{place}") from None
    if not password:
        raise ConfigError(f"users: {name}: there is no password in {path}{place}")
    return password


def _place(path: Path | None) -> str:
    return f" in {path}" if path is not None else ""
