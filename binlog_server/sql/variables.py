"""All system variables in one table: name, kind, default, reach, privileges for SET, how each is read and applied.

The kind and default of an option stand in `config.Config`, beside its type; its row here has only the rest. SELECT @@x,
SHOW VARIABLES, SET and SET STATEMENT read the table. Tests hold docs/sql.md, docs/rights.md and the table of options
equal to it, and compare kinds, limits, defaults and reaches with a real MariaDB.

A variable without effect here is one line of four values: it is kept and shown, because clients SET it and read it
again. The values that a session has SET are in `SqlSession.variables`. Those of SET GLOBAL are in the configuration, or
in `kept_variables` of the server if they are no options; a restart reads the configuration file again.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Mapping
from decimal import ROUND_DOWN
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from binlog_protocol.errors import EngineBinlogUnavailable, UnknownServerError, WrongVariableValue
from binlog_protocol.errors.sql_errors import (
    NoDefault,
    NotInTransaction,
    OptionPreventsStatement,
)
from binlog_protocol.gtid import Gtid
from binlog_storage.binlog.options import FILE_BYTES_MAX

from binlog_server.accounts.privileges import BINLOG_REPLAY
from binlog_server.settings.config import DEFAULTS, KINDS
from binlog_server.settings.engine_limits import AFTER_COMMIT, AFTER_SYNC, SEMI_SYNC_WAIT_POINT
from binlog_server.settings.option_kinds import (
    U32_MAX,
    U64_MAX,
    Decimals,
    Kind,
    Number,
    Switch,
    Text,
    Words,
)
from binlog_server.sql import maintenance, values
from binlog_server.sql.expressions import Scope
from binlog_server.sql.state_texts import StateTexts
from binlog_server.sql.statement import ANYBODY
from binlog_server.sql.view import Level, Result, Shown, Work

if TYPE_CHECKING:
    from binlog_server.sql.sql_session import SqlSession

log = logging.getLogger(__name__)

_DAY_S = 86400
_YEAR_S = 365 * _DAY_S
Privileges = tuple[str, ...]
Check = Callable[["SqlSession", str], None]


class Reach(Enum):
    """Where a variable has a value; named as in information_schema.SYSTEM_VARIABLES."""

    GLOBAL = "GLOBAL"
    SESSION = "SESSION"  # one value for each session, beside the global one
    SESSION_ONLY = "SESSION ONLY"


class Variable:
    """One system variable: a row of the table.

    Args:
        kind: the values it may have, and their form; None for an option: the configuration has its kind.
        default: as SHOW VARIABLES prints it; None for an option: the configuration has its default.
        set_global: the privileges for SET GLOBAL, any one will do; None if the running server cannot change it.
        set_session: the same for SET SESSION, if sessions have values of their own.
        read: gives the global value, if it is neither an option nor a kept value; it gives None if the session has no
            such variable.
        check: called with a valid value, before it is SET. Raises `ServerError` if it may not be SET now.
        then: called with the value that was SET GLOBAL, as it stands in the configuration.
        apply: does SET GLOBAL instead of storing the value; returns the work that is left, or None. Raises
            `ServerError`.
        kind_now: gives the kind for SET GLOBAL, if it depends on the running server.
        default_now: gives the value of SET GLOBAL x = DEFAULT, if it depends on the running server.
        in_statement: whether SET STATEMENT takes it.
        in_transaction: whether it may be SET between BEGIN and COMMIT.
        has_default: whether SET SESSION x = DEFAULT is known.
        twin: another name of the same variable.
    """

    def __init__(
        self,
        name: str,
        kind: Kind | None = None,
        default: str | None = None,
        reach: Reach = Reach.GLOBAL,
        *,
        set_global: Privileges | None = None,
        set_session: Privileges | None = ANYBODY,
        read: Callable[[SqlSession], Shown | None] | None = None,
        check: Check = lambda session, value: None,
        then: Callable[[SqlSession, Any], object] = lambda session, value: None,
        apply: Callable[[SqlSession, str], Result] | None = None,
        kind_now: Callable[[SqlSession], Kind] | None = None,
        default_now: Callable[[SqlSession], str] | None = None,
        in_statement: bool = True,
        in_transaction: bool = True,
        has_default: bool = True,
        twin: str = "",
    ) -> None:
        self.name: Final = name
        self.kind: Final = KINDS[name] if kind is None else kind
        self.default: Final = self.kind.text(DEFAULTS[name]) if default is None else default
        self.reach: Final = reach
        self.set_global: Final = set_global
        self.set_session: Final = None if reach is Reach.GLOBAL else set_session
        self.check: Final = check
        self.in_statement: Final = in_statement
        self.in_transaction: Final = in_transaction
        self.has_default: Final = has_default
        self.twin: Final = twin
        self._is_option = kind is None
        self._read, self._then, self._apply = read, then, apply
        self._kind_now, self._default_now = kind_now, default_now

    def is_set_globally(self, scope: Scope) -> bool:
        """Whether SET with this scope sets the global value: GLOBAL, or no scope if there are no session values."""
        return self.set_global is not None and (scope is Scope.GLOBAL or self.set_session is None)

    def read(self, session: SqlSession) -> Shown | None:
        """The global value, or a function that makes it; None if this session has no such variable."""
        if self._read is not None:
            return self._read(session)
        if self._is_option:
            return self.kind.text(getattr(session.server.config, self.name))
        return session.server.kept_variables.get(self.name, self.default)

    def global_kind(self, session: SqlSession) -> Kind:
        """The kind of values that SET GLOBAL takes now."""
        return self.kind if self._kind_now is None else self._kind_now(session)

    def global_default(self, session: SqlSession) -> str:
        """The value that SET GLOBAL x = DEFAULT gives now."""
        return self.default if self._default_now is None else self._default_now(session)

    def apply(self, session: SqlSession, value: str) -> Result:
        """SET GLOBAL with a value as SHOW VARIABLES prints it. Returns the work that is left, or None for OK.

        Raises `ServerError`.
        """
        if self._apply is not None:
            return self._apply(session, value)
        if self._is_option:
            _set_options(session, {self.name: self.kind.option(value)}, self._then)
        else:
            session.server.kept_variables[self.name] = value
            self._then(session, value)
        log.info("%(variable)s is now %(value)s", {"variable": self.name, "value": value})
        return None


def _set_options(
    session: SqlSession, changes: Mapping[str, Any], then: Callable[[SqlSession, Any], object]
) -> None:
    """Replace the configuration by one with these options; code that needs an option reads it there each time.

    All are changed or none. `then` is called with the first value. Raises `WrongVariableValue` (1231).
    """
    server = session.server
    before = server.config
    name, value = next(iter(changes.items()))
    try:
        server.config = dataclasses.replace(before, **changes)
        then(session, value)
    except ValueError as error:
        server.config = before
        log.warning("%s", error)
        raise WrongVariableValue(name, str(value)) from error


def _of_the_state(
    name: str, make: Callable[[SqlSession, StateTexts], str], **more: Any
) -> Variable:
    """A variable whose text grows with the number of domains: made when it is shown, perhaps in a thread."""

    def read(session: SqlSession) -> Shown:
        texts, server = session.made_texts, session.server
        return lambda: make(session, texts or server.state_texts())

    def default_now(session: SqlSession) -> str:
        raise NoDefault(name)

    kind = Text(parse=values.gtid_list)
    return Variable(name, kind, "", read=read, default_now=default_now, **more)


# --- functions for `read` ---


def _slave_position(session: SqlSession, texts: StateTexts) -> str:
    """gtid_slave_pos: the binlog's position, if groups came from other servers, or if the position was SET and nothing
    was logged since; empty if all groups were committed here."""
    found = _comes_from_others(session, texts) or texts.position == session.server.gtid_begin
    return texts.position if found else ""


def _binlog_format(session: SqlSession) -> Shown:
    """binlog_format: STATEMENT for a binlog of this server's own commits, ROW for a relay that takes no commits, MIXED
    for both. The format of groups from upstreams is not known; programs that ask want to be sure of rows."""
    texts, server = session.made_texts, session.server
    if server.publisher.read_only:
        return "ROW"
    return lambda: (
        "MIXED" if _comes_from_others(session, texts or server.state_texts()) else "STATEMENT"
    )


def _comes_from_others(session: SqlSession, texts: StateTexts) -> bool:
    server = session.server
    return texts.has_others_than(server.config.server_id) or bool(server.relay.connections)


def _checksum(session: SqlSession) -> str:
    """binlog_checksum: NONE in the engine style, whose events have no checksums; else the configured one, on which
    positions depend."""
    return session.coordinates.checksum(session.server.config.binlog_checksum)


# --- functions for `check` ---


def _no_upstream(session: SqlSession, value: str) -> None:
    """Raises 1198 while an upstream is followed: the variable decides on the history that groups are added to."""
    session.require_no_upstream()


def _no_transaction(session: SqlSession, value: str) -> None:
    """Raises 1192: behind read_only=1 the session could not commit its own transaction."""
    session.require_no_transaction()


def _state_may_be_set(session: SqlSession, value: str) -> None:
    if session.in_transaction():
        raise NotInTransaction
    session.require_no_upstream()


def _checksum_stays(session: SqlSession, value: str) -> None:
    """Warn that the value stays: scripts may SET it, as with MariaDB's engine binlog."""
    now = _checksum(session)
    if value != now:
        why = session.coordinates.why_checksum_stays
        session.warn(UnknownServerError.errno, f"binlog_checksum stays {now}: {why}")


def _only_after_commit(session: SqlSession, value: str) -> None:
    """Refuse AFTER_SYNC, as MariaDB does with an engine binlog: a group in the binlog is committed already."""
    if value == AFTER_SYNC:
        raise EngineBinlogUnavailable(f"{SEMI_SYNC_WAIT_POINT}={value}")


def _in_order(session: SqlSession, value: str) -> None:
    """Raises `GtidOutOfOrder` (1950) for a gtid_seq_no that is not above the domain's last, in strict mode."""
    server, variables = session.server, session.variables
    domain = int(variables.get("gtid_domain_id", server.config.gtid_domain_id))
    origin = int(variables.get("server_id", server.config.server_id))
    server.publisher.require_in_order(Gtid(domain, origin, int(value)))


def _skippable(session: SqlSession, value: str) -> None:
    session.server.relay.require_skippable(session.master_connection, int(value))


# --- functions for `then` and `apply` ---


def _set_binlog_state(session: SqlSession, value: str) -> Result:
    server = session.server
    return Work.patient(
        "reset",
        lambda given_up: maintenance.set_binlog_state(server, value, given_up),
        server.history_changed,
    )


def _set_slave_position(session: SqlSession, value: str) -> Result:
    server = session.server
    return Work.patient(
        "reset",
        lambda given_up: maintenance.set_slave_position(server, value, given_up),
        server.history_changed,
    )


def _skip(session: SqlSession, value: str) -> None:
    session.server.relay.skip(session.master_connection, int(value))


def _expire(session: SqlSession, seconds: int) -> None:
    """Set the age limit, in either unit: the option in the other unit is reset."""
    name = "binlog_expire_logs_seconds"
    _set_options(session, {name: seconds, "expire_logs_days": 0.0}, _tell_store(name))
    log.info("%(variable)s is now %(value)s", {"variable": name, "value": seconds})


def _tell_store(name: str) -> Callable[[SqlSession, int], None]:
    return lambda session, value: session.server.engine.set_option(name, value)


def _tell_semi_sync(session: SqlSession, value: object) -> None:
    session.server.semi_sync.changed()


def _set_ignore_duplicates(session: SqlSession, value: bool) -> None:
    session.server.relay.domains.ignore_duplicates = value


def _read_only(session: SqlSession) -> str:
    """read_only: programs read it to find a server that takes commits, so it is ON also while these must wait."""
    publisher = session.server.publisher
    return _on(publisher.read_only or publisher.missing is not None)


def _set_read_only(session: SqlSession, value: bool) -> None:
    publisher = session.server.publisher
    publisher.read_only = value
    if publisher.missing is not None and not value:
        text = f"read_only is OFF later: {publisher.missing()}"
        session.warn(OptionPreventsStatement.errno, text)


def _set_strict(session: SqlSession, value: bool) -> None:
    session.server.publisher.strict = value


def _set_flush_log(session: SqlSession, value: int) -> None:
    session.server.syncer.flush_log_at_trx_commit = value


def _warn_of_sync_binlog(session: SqlSession, value: str) -> None:
    log.warning("sync_binlog has no effect: innodb_flush_log_at_trx_commit decides")


def _stays(session: SqlSession, value: str) -> None:
    """Change nothing: there is one value only, or none has an effect. `check` has told the client."""


def _on(value: object) -> str:
    return "ON" if value else "OFF"


# --- the table ---

_SUPER = ("SUPER",)
_BINLOG = ("SUPER", "BINLOG ADMIN")
_CONNECTIONS = ("SUPER", "CONNECTION ADMIN")
_MASTER = ("SUPER", "REPLICATION MASTER ADMIN")
_REPLICATION = ("SUPER", "REPLICATION SLAVE ADMIN")
_COMMIT = (BINLOG_REPLAY,)  # for variables that decide a group's GTID and origin

_U64 = Number(0, U64_MAX)
_SECONDS = Number(1, _YEAR_S)
_INCREMENT = Number(1, 65_535)
_ISOLATION = Words(("READ-UNCOMMITTED", "READ-COMMITTED", "REPEATABLE-READ", "SERIALIZABLE"))
_FORMAT = Words(("MIXED", "STATEMENT", "ROW"))
_SWITCH, _TEXT = Switch(), Text()
_BOTH, _ONLY = Reach.SESSION, Reach.SESSION_ONLY

SKIP_COUNTER: Final = "sql_slave_skip_counter"

_COMMITS: Final = (
    Variable("binlog_cache_size"),
    Variable("binlog_stmt_cache_size"),
    Variable(
        "binlog_format",
        Words(("MIXED", "STATEMENT", "ROW")),
        "MIXED",
        _BOTH,
        read=_binlog_format,
        set_session=None,
    ),
    Variable("binlog_annotate_row_events", _SWITCH, "ON", _BOTH, set_session=None),
    Variable(
        "binlog_row_image",
        Words(("MINIMAL", "NOBLOB", "FULL", "FULL_NODUP")),
        "FULL",
        _BOTH,
        set_session=None,
    ),
    Variable("binlog_row_metadata", Words(("NO_LOG", "MINIMAL", "FULL")), "FULL"),
    Variable("gtid_domain_id", reach=_BOTH, set_session=_COMMIT, in_transaction=False),
    Variable(
        "gtid_seq_no", _U64, "0", _ONLY, set_session=_COMMIT, check=_in_order, in_transaction=False
    ),
    Variable("gtid_strict_mode", set_global=_REPLICATION, then=_set_strict),
    Variable("server_id", reach=_BOTH, set_session=_COMMIT),
    Variable("pseudo_thread_id", Number(0, U32_MAX), "0", _ONLY, set_session=_COMMIT),
    Variable(
        "read_only",
        set_global=("READ_ONLY ADMIN",),
        read=_read_only,
        check=_no_transaction,
        then=_set_read_only,
        default_now=lambda session: _on(session.server.relay.connections),
    ),
    Variable("innodb_flush_log_at_trx_commit", set_global=_BINLOG, then=_set_flush_log),
    Variable("innodb_flush_log_at_timeout"),
    # Without effect with an engine binlog; MariaDB takes it, so scripts may SET it.
    Variable("sync_binlog", Number(0, U32_MAX), "0", set_global=_BINLOG, then=_warn_of_sync_binlog),
)

_FILES: Final = (
    Variable("binlog_archive_directory"),
    Variable(
        "binlog_directory",
        _TEXT,
        "",
        read=lambda session: str(session.server.config.binlog_directory),
    ),
    Variable(
        "datadir", _TEXT, "", read=lambda session: str(session.server.config.binlog_directory)
    ),
    Variable(
        "binlog_storage_engine",
        _TEXT,
        "innodb",
        read=lambda session: session.coordinates.storage_engine,
    ),
    Variable(
        "binlog_checksum",
        set_global=_SUPER,
        read=_checksum,
        check=_checksum_stays,
        apply=_stays,
        default_now=_checksum,
    ),
    Variable(
        "binlog_expire_logs_seconds",
        set_global=_BINLOG,
        read=lambda session: str(session.server.config.expire_s),
        apply=lambda session, value: _expire(session, int(value)),
    ),
    Variable(
        "expire_logs_days",
        set_global=_BINLOG,
        read=lambda session: f"{session.server.config.expire_s / _DAY_S:.6f}",
        apply=lambda session, value: _expire(session, round(float(value) * _DAY_S)),
    ),
    Variable(
        "max_binlog_size",
        set_global=_BINLOG,
        then=_tell_store("max_binlog_size"),
        kind_now=lambda session: Number(session.server.engine.max_binlog_size_min, FILE_BYTES_MAX),
    ),
    Variable(
        "max_binlog_total_size", set_global=_BINLOG, then=_tell_store("max_binlog_total_size")
    ),
    Variable(
        "slave_connections_needed_for_purge",
        set_global=_BINLOG,
        then=_tell_store("slave_connections_needed_for_purge"),
    ),
    Variable("innodb_binlog_state_interval"),
    Variable("innodb_log_buffer_size"),
    Variable("innodb_log_file_size"),
    Variable("encrypt_binlog", _SWITCH, "OFF"),
    Variable("log_bin", _SWITCH, "ON"),
    Variable("log_slave_updates", _SWITCH, "ON"),
)

_REPLICAS_AND_UPSTREAMS: Final = (
    _of_the_state("gtid_binlog_pos", lambda session, texts: texts.position),
    _of_the_state("gtid_current_pos", lambda session, texts: texts.position),
    _of_the_state(
        "gtid_binlog_state",
        lambda session, texts: texts.state,
        set_global=_MASTER,
        check=_state_may_be_set,
        apply=_set_binlog_state,
    ),
    _of_the_state(
        "gtid_slave_pos",
        _slave_position,
        set_global=_REPLICATION,
        check=_no_upstream,
        apply=_set_slave_position,
    ),
    Variable(
        "gtid_ignore_duplicates",
        set_global=_REPLICATION,
        check=_no_upstream,
        then=_set_ignore_duplicates,
    ),
    Variable("default_master_connection", _TEXT, "", _ONLY),
    Variable("report_host"),
    Variable("replica_lag_grace_seconds"),
    Variable("rpl_semi_sync_master_enabled", set_global=_MASTER, then=_tell_semi_sync),
    Variable("rpl_semi_sync_master_timeout", set_global=_MASTER, then=_tell_semi_sync),
    Variable("rpl_semi_sync_master_wait_for_slave_count", set_global=_MASTER, then=_tell_semi_sync),
    Variable("rpl_semi_sync_master_wait_no_slave", set_global=_MASTER, then=_tell_semi_sync),
    Variable(
        SEMI_SYNC_WAIT_POINT,
        Words((AFTER_SYNC, AFTER_COMMIT)),
        AFTER_COMMIT,
        set_global=_MASTER,
        check=_only_after_commit,
        apply=_stays,
    ),
    Variable("rpl_semi_sync_slave_enabled", set_global=_REPLICATION, then=_tell_semi_sync),
    Variable(
        "rpl_semi_sync_slave_wait_for_slave_count", set_global=_REPLICATION, then=_tell_semi_sync
    ),
    Variable("skip_replication", _SWITCH, "OFF", _ONLY, in_statement=False, in_transaction=False),
    Variable("slave_compressed_protocol", set_global=_REPLICATION),
    Variable("slave_net_timeout"),
    Variable(
        SKIP_COUNTER,
        Number(0, U32_MAX),
        "0",
        set_global=_SUPER,
        read=lambda session: str(session.server.relay.skip_counter(session.master_connection)),
        check=_skippable,
        apply=_skip,
    ),
)

_CLIENTS: Final = (
    Variable("connect_timeout", set_global=_CONNECTIONS),
    Variable(
        "have_ssl",
        _TEXT,
        "YES",
        read=lambda session: "YES" if session.server.config.ssl else "DISABLED",
    ),
    Variable("hostname", _TEXT, "", read=lambda session: session.server.config.report_host),
    Variable("init_connect", _TEXT, ""),
    Variable("interactive_timeout", _SECONDS, "28800", _BOTH, in_statement=False),
    Variable("max_allowed_packet", reach=_BOTH, set_session=None),
    Variable("max_connect_errors"),
    Variable("max_connections", set_global=_CONNECTIONS),
    Variable("max_session_mem_used", reach=_BOTH, set_session=None),
    Variable("max_total_session_mem_used"),
    Variable("max_user_connections", reach=_BOTH, set_global=_SUPER, set_session=None),
    Variable("net_buffer_length", Number(1024, 1 << 20), "16384", _BOTH, set_session=None),
    Variable("net_read_timeout", reach=_BOTH, set_global=_SUPER),
    Variable("net_write_timeout", reach=_BOTH, set_global=_SUPER),
    Variable("port", Number(0, 65_535), "", read=lambda session: str(session.server.port)),
    Variable("require_secure_transport"),
    Variable("tcp_keepalive_interval"),
    Variable("tcp_keepalive_probes"),
    Variable("tcp_keepalive_time"),
    Variable("tls_version"),
    Variable("wait_timeout", reach=_BOTH, set_global=_SUPER, in_statement=False),
)

# Variables that groups carry to replicas: see `sql.session_settings`.
_STATEMENTS: Final = (
    Variable("auto_increment_increment", _INCREMENT, "1", _BOTH),
    Variable("auto_increment_offset", _INCREMENT, "1", _BOTH),
    Variable("autocommit", _SWITCH, "ON", _BOTH, in_statement=False),
    Variable(
        "character_set_client",
        Text(parse=values.client_charset, numbered=True),
        "utf8mb4",
        _BOTH,
        in_statement=False,
    ),
    Variable(
        "character_set_connection",
        Text(parse=values.charset, numbered=True),
        "utf8mb4",
        _BOTH,
        in_statement=False,
    ),
    Variable(
        "character_set_results",
        Text(parse=values.charset, numbered=True, null=""),
        "utf8mb4",
        _BOTH,
    ),
    Variable("check_constraint_checks", _SWITCH, "ON", _BOTH),
    Variable(
        "collation_connection",
        Text(parse=values.collation, numbered=True),
        "utf8mb4_general_ci",
        _BOTH,
        in_statement=False,
    ),
    Variable("explicit_defaults_for_timestamp", _SWITCH, "ON", _BOTH),
    Variable("foreign_key_checks", _SWITCH, "ON", _BOTH),
    Variable("insert_id", _U64, "0", _ONLY),
    Variable("last_insert_id", _U64, "0", _ONLY, has_default=False),
    Variable("rand_seed1", _U64, "0", _ONLY, has_default=False),
    Variable("rand_seed2", _U64, "0", _ONLY, has_default=False),
    Variable("sql_auto_is_null", _SWITCH, "OFF", _BOTH),
    Variable("sql_mode", Text(parse=values.sql_mode, numbered=True), "", _BOTH),
    Variable("time_zone", Text(parse=values.time_zone), "SYSTEM", _BOTH),
    # Microseconds are cut off, so that a time is never later than the one given; other numbers are rounded.
    Variable(
        "timestamp",
        Decimals(0, U32_MAX, ROUND_DOWN),
        "0.000000",
        _ONLY,
        read=lambda session: f"{time.time():.6f}",
    ),
    Variable("transaction_isolation", _ISOLATION, "REPEATABLE-READ", _BOTH, twin="tx_isolation"),
    Variable("tx_isolation", _ISOLATION, "REPEATABLE-READ", _BOTH, twin="transaction_isolation"),
    Variable("transaction_read_only", _SWITCH, "OFF", _BOTH, twin="tx_read_only"),
    Variable("tx_read_only", _SWITCH, "OFF", _BOTH, twin="transaction_read_only"),
    Variable("unique_checks", _SWITCH, "ON", _BOTH),
)

# Variables that connectors read first; the values are those of a MariaDB server that is read-only and has a binlog.
_ASKED_FOR: Final = (
    Variable("character_set_database", _TEXT, "utf8mb4", _BOTH, set_session=None),
    Variable("character_set_filesystem", _TEXT, "binary", _BOTH, set_session=None),
    Variable("character_set_server", _TEXT, "utf8mb4", _BOTH, set_session=None),
    Variable("character_set_system", _TEXT, "utf8mb3"),
    Variable("collation_database", _TEXT, "utf8mb4_general_ci", _BOTH, set_session=None),
    Variable("collation_server", _TEXT, "utf8mb4_general_ci", _BOTH, set_session=None),
    Variable(
        "error_count",
        _U64,
        "",
        _ONLY,
        read=lambda session: str(sum(d.level == Level.ERROR for d in session.diagnostics)),
        set_session=None,
    ),
    Variable("license", _TEXT, "Apache-2.0"),
    Variable("lower_case_table_names", Number(0, 2), "0"),
    Variable("max_statement_time", Decimals(0, _YEAR_S), "0.000000", _BOTH),
    # Dump programs SET it.
    Variable("optimizer_switch", Text(parse=values.optimizer_switch, numbered=True), "", _BOTH),
    Variable("performance_schema", _SWITCH, "OFF"),
    Variable("query_cache_size", _U64, "0"),
    Variable("query_cache_type", Words(("OFF", "ON", "DEMAND")), "OFF", _BOTH, set_session=None),
    Variable("server_uid", _TEXT, "", read=lambda session: session.server.server_uuid),
    Variable("sql_notes", _SWITCH, "ON", _BOTH),
    Variable("sql_quote_show_create", _SWITCH, "ON", _BOTH),
    Variable("system_time_zone", _TEXT, "", read=lambda session: time.strftime("%Z")),
    Variable("version", _TEXT, "", read=lambda session: session.server.config.server_version),
    Variable("version_comment", _TEXT, "binlog-server"),
    Variable(
        "warning_count",
        _U64,
        "",
        _ONLY,
        read=lambda session: str(len(session.diagnostics)),
        set_session=None,
    ),
)

_ALL: Final = (
    *_COMMITS,
    *_FILES,
    *_REPLICAS_AND_UPSTREAMS,
    *_CLIENTS,
    *_STATEMENTS,
    *_ASKED_FOR,
)
VARIABLES: Final[Mapping[str, Variable]] = {
    row.name: row for row in sorted(_ALL, key=lambda row: row.name)
}
assert len(VARIABLES) == len(_ALL)
