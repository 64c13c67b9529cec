"""All system variables in one table: name, kind, default, reach, privileges for SET, how each is read and applied.

The facts of MariaDB's variables stand in `recorded_variables`: one that means nothing here has no line in this file. It
is kept and shown, because clients SET it and read it again. A row here says what differs, and what the server does with
the variable. The kind and default of an option stand in `config.Config`, beside its type.

SELECT @@x, SHOW VARIABLES, SET and SET STATEMENT read the table. Tests hold docs/sql.md, docs/rights.md and the table
of options equal to it, and compare answers with a real MariaDB.

The values that a session has SET are in `SqlSession.variables`. Those of SET GLOBAL are in the configuration, or in
`kept_variables` of the server if they are no options; a restart reads the configuration file again. As in MariaDB, a
session begins with the kept global values of its login, and later SET GLOBAL does not change it.
"""

from __future__ import annotations

import dataclasses
import logging
import platform
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from decimal import ROUND_DOWN
from typing import TYPE_CHECKING, Any, Final

from binlog_protocol.errors import (
    EngineBinlogUnavailable,
    NoDefault,
    NotInTransaction,
    NotSupportedYet,
    OptionPreventsStatement,
    ServerError,
    UnknownServerError,
    UnknownSystemVariable,
    WrongVariableValue,
)
from binlog_protocol.events.checksum import ChecksumAlgorithm
from binlog_protocol.gtid import Gtid
from binlog_storage.binlog.options import FILE_BYTES_MAX
from binlog_storage.classic.options import FILE_BYTES_MIN
from binlog_storage.classic.store import ClassicEngine

from binlog_server.accounts.privileges import BINLOG_REPLAY
from binlog_server.settings.config import DEFAULTS, KINDS
from binlog_server.settings.engine_limits import (
    AFTER_COMMIT,
    AFTER_SYNC,
    SEMI_SYNC_WAIT_POINT,
)
from binlog_server.settings.option_kinds import (
    U32_MAX,
    Decimals,
    Number,
    OptionKind,
    Text,
)
from binlog_server.sql import maintenance, values
from binlog_server.sql.expressions import Scope
from binlog_server.sql.recorded_variables import RECORDED, MadeWhenAsked, Reach
from binlog_server.sql.state_texts import StateTexts
from binlog_server.sql.statement import ANYBODY
from binlog_server.sql.view import Level, Result, ServerView, Shown, Work, text_of

if TYPE_CHECKING:
    from binlog_server.sql.sql_session import SqlSession

log = logging.getLogger(__name__)

_DAY_S = 86400
Privileges = tuple[str, ...]
Check = Callable[["SqlSession", str], None]

# Two names of one variable.
_PAIRS: Final = (
    ("default_storage_engine", "storage_engine"),
    ("identity", "last_insert_id"),
    ("log_slow_query", "slow_query_log"),
    ("log_slow_query_file", "slow_query_log_file"),
    ("log_slow_query_time", "long_query_time"),
    ("log_slow_min_examined_row_limit", "min_examined_row_limit"),
    ("transaction_isolation", "tx_isolation"),
    ("transaction_read_only", "tx_read_only"),
)
_TWINS: Final = {**dict(_PAIRS), **{other: name for name, other in _PAIRS}}


class Variable:
    """One system variable: a row of the table.

    Args:
        kind: the values it may have, and their form; None for an option: the configuration has its kind.
        default: as SHOW VARIABLES prints it; None for an option: the configuration has its default.
        reach: None: that of MariaDB's variable, or GLOBAL.
        set_global: the privileges for SET GLOBAL, any one will do; None if the running server cannot change it.
        set_session: the same for SET SESSION, if sessions have values of their own.
        read: gives the global value, if it is neither an option nor a kept value; it gives None if the session has no
            such variable.
        check: called with a valid value, before it is SET. Raises `ServerError` if it may not be SET now.
        check_global: the same for SET GLOBAL, if it is another.
        then: called with the value that was SET GLOBAL, as it stands in the configuration.
        apply: does SET GLOBAL instead of storing the value; returns the work that is left, or None. Raises
            `ServerError`.
        kind_now: gives the kind for SET GLOBAL, if it depends on the running server.
        default_now: gives the value of SET GLOBAL x = DEFAULT, if it depends on the running server.
        stays: SET changes nothing, and `check` has told the client why; or says of a session whether its own SET does.
        in_transaction: whether it may be SET between BEGIN and COMMIT.

    Attributes:
        twin: another name of the same variable.
        in_statement: whether SET STATEMENT takes it.
        has_default: whether SET SESSION x = DEFAULT is known.
        is_session_read_only: SET SESSION is 1621: sessions have the global value of their login.
        is_shown: whether SHOW VARIABLES lists it.
        shown: the name as SHOW VARIABLES prints it.
        warning: what each SET says, or None.
    """

    def __init__(
        self,
        name: str,
        kind: OptionKind | None = None,
        default: str | None = None,
        reach: Reach | None = None,
        *,
        set_global: Privileges | None = None,
        set_session: Privileges | None = ANYBODY,
        read: Callable[[SqlSession], Shown | None] | None = None,
        check: Check = lambda session, value: None,
        check_global: Check | None = None,
        then: Callable[[SqlSession, Any], object] = lambda session, value: None,
        apply: Callable[[SqlSession, str], Result] | None = None,
        kind_now: Callable[[SqlSession], OptionKind] | None = None,
        default_now: Callable[[SqlSession], str] | None = None,
        stays: bool | Callable[[SqlSession], bool] = False,
        in_transaction: bool = True,
    ) -> None:
        facts = RECORDED.get(name)
        if reach is None:
            reach = Reach.GLOBAL if facts is None else facts.reach
        self.name: Final = name
        self.kind: Final = KINDS[name] if kind is None else kind
        self.default: Final = self.kind.text(DEFAULTS[name]) if default is None else default
        self.reach: Final = reach
        self.set_global: Final = set_global
        self.set_session: Final = None if reach is Reach.GLOBAL else set_session
        self.check: Final = check
        self.check_global: Final = check_global or check
        self._stays: Final = stays
        self.in_transaction: Final = in_transaction
        self.twin: Final = _TWINS.get(name, "")
        self.in_statement: Final = facts is None or facts.in_statement
        self.has_default: Final = facts is None or facts.has_default
        self.is_session_read_only: Final = facts is not None and facts.is_session_read_only
        self.is_shown: Final = facts is None or not facts.is_old
        self.shown: Final = name if facts is None else facts.shown
        self.warning: Final = None if facts is None else facts.warning
        self._is_option = kind is None
        # Whether a value that is SET is stored by `kept_variables` and by sessions, and nowhere else.
        self.is_kept: Final = not (kind is None or stays or read or apply)
        self._read, self._then, self._apply = read, then, apply
        self._kind_now, self._default_now = kind_now, default_now

    @classmethod
    def recorded(cls, name: str, **more: Any) -> Variable:
        """One of MariaDB's variables that is no option here, with its facts but for those in `more`."""
        facts = RECORDED[name]
        said = {field: getattr(facts, field) for field in _FACTS}
        return cls(name, **{**said, **more})

    def is_set_globally(self, scope: Scope) -> bool:
        """Whether SET with this scope sets the global value: GLOBAL, or no scope if there are no session values."""
        return self.set_global is not None and (scope is Scope.GLOBAL or self.reach is Reach.GLOBAL)

    def stays_in(self, session: SqlSession) -> bool:
        """Whether SET SESSION changes nothing."""
        return self._stays(session) if callable(self._stays) else self._stays

    def read(self, session: SqlSession) -> Shown | None:
        """The global value, or a function that makes it; None if this session has no such variable."""
        if self._read is not None:
            return self._read(session)
        if self._is_option:
            return self.kind.text(getattr(session.server.config, self.name))
        return session.server.kept_variables.get(self.name, self.default)

    def read_here(self, session: SqlSession) -> Shown | None:
        """The session's value, or the global one if sessions have none; as `read`."""
        found = session.variables.get(self.name)
        if found is not None:
            return found
        if self.is_kept and self.reach is not Reach.GLOBAL:
            return self.default  # the login has taken over what was SET GLOBAL before it
        return self.read(session)

    def global_kind(self, session: SqlSession) -> OptionKind:
        """The kind of values that SET GLOBAL takes now."""
        return self.kind if self._kind_now is None else self._kind_now(session)

    def global_default(self, session: SqlSession) -> str:
        """The value that SET GLOBAL x = DEFAULT gives now."""
        return self.default if self._default_now is None else self._default_now(session)

    def session_default(self, session: SqlSession) -> str | None:
        """The value that SET SESSION x = DEFAULT gives now; None for the one that sessions have without SET."""
        if not self.is_kept or self.reach is not Reach.SESSION:
            return None
        return session.server.kept_variables.get(self.name)

    def apply(self, session: SqlSession, value: str) -> Result:
        """SET GLOBAL with a value as SHOW VARIABLES prints it. Returns the work that is left, or None for OK.

        Raises `ServerError`.
        """
        if self.stays_in(session):
            return None
        if self._apply is not None:
            return self._apply(session, value)
        if self._is_option:
            _set_options(session, {self.name: self.kind.option(value)}, self._then)
        else:
            kept = session.server.kept_variables
            kept[self.name] = value
            if self.twin:
                kept[self.twin] = value
            self._then(session, value)
            if self.reach is Reach.GLOBAL and value != self.default:
                session.diagnostics.note(
                    UnknownServerError(f"{self.name} is kept and shown: {_NONE}")
                )
        log.info("%(variable)s is now %(value)s", {"variable": self.name, "value": value})
        return None


_FACTS: Final = ("kind", "default", "reach", "set_global", "set_session")
_NONE: Final = "it has no effect here"
_AS_AT_LOGIN: Final = ("max_tmp_session_space_usage",)  # options that stay so for a session


def inherited(server: ServerView) -> dict[str, str]:
    """The values with which a session begins: those that were SET GLOBAL and that sessions have, too."""
    kept = {
        name: value
        for name, value in server.kept_variables.items()
        if VARIABLES[name].reach is Reach.SESSION
    }
    return {**kept, **{name: str(getattr(server.config, name)) for name in _AS_AT_LOGIN}}


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
    for both. The format of groups from upstreams is not known; programs that ask want to be sure of rows.

    Where there are tables it is ROW, unless a session has SET it, but for an account that sends text for others.
    """
    texts, server = session.made_texts, session.server
    if server.publisher.read_only or _chooses_format(session):
        return "ROW"
    return lambda: (
        "MIXED" if _comes_from_others(session, texts or server.state_texts()) else "STATEMENT"
    )


def _chooses_format(session: SqlSession) -> bool:
    """Whether what a session changes is rows of tables here, so that it says how these are logged."""
    sends_text = session.may(BINLOG_REPLAY) and not session.makes_databases
    return session.server.config.local_tables and not sends_text


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
        raise NotInTransaction()
    session.require_no_upstream()


def _checksum_stays(session: SqlSession, value: str) -> None:
    """Warn that the value stays: scripts may SET it, as with MariaDB's engine binlog. Traditional files take it."""
    if is_traditional(session):
        return
    _warn_that(
        session,
        "binlog_checksum",
        _checksum(session),
        value,
        session.coordinates.why_checksum_stays,
    )


def _format_stays(session: SqlSession, value: str) -> None:
    """Warn that the value stays where it says what the groups are."""
    if not _chooses_format(session):
        now = text_of(_binlog_format(session))
        _warn_that(session, "binlog_format", now, value, "it says what groups there are here")


def _global_format_stays(session: SqlSession, value: str) -> None:
    """Warn that the global value stays."""
    if _chooses_format(session):
        why = "each session says by SET SESSION how its changes of tables here are logged"
        _warn_that(session, "binlog_format", "ROW", value, why)
    else:
        _format_stays(session, value)


def _rows_stay(name: str, now: str) -> Check:
    """Warn that the value stays: rows are in the groups of upstreams alone."""
    return lambda session, value: _warn_that(
        session, name, now, value, "rows come from upstreams, and stay as they are"
    )


def _logged_collations(session: SqlSession, value: str) -> None:
    """Refuse default collations of one's own: groups that are committed here do not carry them."""
    if value not in ("", VARIABLES["character_set_collations"].default):
        raise NotSupportedYet("character_set_collations: replicas would not get it")


def _warn_that(session: SqlSession, name: str, stays: str, value: str, why: str) -> None:
    if value != stays:
        session.warn(UnknownServerError(f"{name} stays {stays}: {why}"))


def _would_mislead(name: str, advice: str) -> Check:
    """Refuse another value: it would promise something that does not happen here."""

    def check(session: SqlSession, value: str) -> None:
        if value != VARIABLES[name].default:
            raise NotSupportedYet(f"{name}: {advice}")

    return check


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


def _known_variables(session: SqlSession, value: str) -> None:
    """Raises `UnknownSystemVariable` (1193) for a list that has another name than those of variables."""
    for part in value.split(","):
        name = part.strip(" ").lower()
        if name not in VARIABLES and name not in ("", "*"):
            raise UnknownSystemVariable(part.strip(" ")[:80])


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


def _tell_files(name: str) -> Callable[[SqlSession, int], None]:
    """Of traditional files: an `.ibb` store knows no such option."""

    def tell(session: SqlSession, value: int) -> None:
        if is_traditional(session):
            session.server.engine.set_option(name, value)

    return tell


def _tell_semi_sync(session: SqlSession, value: object) -> None:
    session.server.semi_sync.changed()


def _set_ignore_duplicates(session: SqlSession, value: bool) -> None:
    session.server.relay.domains.ignore_duplicates = value


def _read_only(session: SqlSession) -> str:
    """read_only: programs read it to find a server that takes commits, so it is ON also while these must wait."""
    publisher = session.server.publisher
    return _on(publisher.read_only or publisher.as_it_lies or publisher.missing is not None)


def _set_read_only(session: SqlSession, value: bool) -> None:
    publisher = session.server.publisher
    if not value:
        publisher.require_writable()
    publisher.read_only = value
    if publisher.missing is not None and not value:
        text = f"read_only is OFF later: {publisher.missing()}"
        session.warn(ServerError(OptionPreventsStatement, text))


def _set_strict(session: SqlSession, value: bool) -> None:
    session.server.publisher.strict = value


def _set_flush_log(session: SqlSession, value: int) -> None:
    session.server.syncer.flush_log_at_trx_commit = value


def is_traditional(session: SqlSession) -> bool:
    """Whether the store is one of traditional files."""
    return isinstance(session.server.engine, ClassicEngine)


def _set_sync_binlog(session: SqlSession, value: int) -> None:
    if is_traditional(session):
        session.server.syncer.sync_binlog = value
    else:
        log.warning("sync_binlog has no effect: innodb_flush_log_at_trx_commit decides")


def _set_checksum(session: SqlSession, value: str) -> Result:
    """Of traditional files: the next one, which begins now, has it."""
    server = session.server

    def begin_file(given_up: Callable[[], bool]) -> None:
        before = ChecksumAlgorithm[server.config.binlog_checksum]
        server.engine.set_option("binlog_checksum", ChecksumAlgorithm[value])
        try:
            server.engine.flush((), given_up)
        except BaseException:
            server.engine.set_option("binlog_checksum", before)
            raise

    def done() -> None:
        server.config = dataclasses.replace(server.config, binlog_checksum=value)
        log.info("binlog_checksum is now %(value)s", {"value": value})

    return Work.patient("flush", begin_file, done)


def _directory(session: SqlSession) -> str:
    return str(session.server.config.binlog_directory)


def _basename(session: SqlSession) -> str:
    """log_bin_basename: a part of the files' names, with their folder in front."""
    return str(session.server.config.binlog_directory / session.coordinates.base_name)


def _index(session: SqlSession) -> str:
    """log_bin_index: of traditional files; others need none."""
    name = session.coordinates.index_name
    return str(session.server.config.binlog_directory / name) if name else ""


def _port(session: SqlSession) -> str:
    return str(session.server.port)


def _has_tls(session: SqlSession) -> str:
    return "YES" if session.server.config.ssl else "DISABLED"


def _on(value: object) -> str:
    return "ON" if value else "OFF"


# --- the table ---

_SUPER = ("SUPER",)
_BINLOG = ("SUPER", "BINLOG ADMIN")
_CONNECTIONS = ("SUPER", "CONNECTION ADMIN")
_MASTER = ("SUPER", "REPLICATION MASTER ADMIN")
_REPLICATION = ("SUPER", "REPLICATION SLAVE ADMIN")
_COMMIT = (BINLOG_REPLAY,)  # for variables that decide a group's GTID and origin

SKIP_COUNTER: Final = "sql_slave_skip_counter"

# Variables whose values promise something that does not happen here, and what to do instead.
_MISLEADING: Final = (
    (
        (
            *("replicate_do_db", "replicate_do_table", "replicate_ignore_db"),
            *("replicate_ignore_table", "replicate_rewrite_db", "replicate_wild_do_table"),
            *("replicate_wild_ignore_table", "replicate_events_marked_for_skip"),
        ),
        "all that an upstream sends is kept; filter on the replicas",
    ),
    (("init_connect", "init_slave"), "no statement runs by itself here"),
)
# Values that are true here in the place of those of MariaDB on the machine of the recording.
_INSTEAD: Final = {
    **dict.fromkeys(
        (
            *("aria_log_dir_path", "basedir", "character_sets_dir", "general_log_file"),
            *("innodb_data_file_path", "innodb_temp_data_file_path", "lc_messages_dir"),
            *("log_slow_query_file", "pid_file", "plugin_dir"),
            *("relay_log_info_file", "slave_load_tmpdir", "slow_query_log_file", "socket"),
            *("tmpdir", "wsrep_data_home_dir", "wsrep_node_name", "wsrep_patch_version"),
            *("version_malloc_library", "version_source_revision", "ignore_db_dirs"),
        ),
        "",
    ),
    **dict.fromkeys(
        (
            *("have_crypt", "have_dynamic_loading", "have_geometry", "have_profiling"),
            *("have_query_cache", "have_rtree_keys"),
        ),
        "NO",
    ),
    "have_symlink": "DISABLED",
    "version_compile_machine": platform.machine(),
    "version_compile_os": platform.system(),
    "version_ssl_library": ssl.OPENSSL_VERSION,
}

_COMMITS: Final = (
    Variable("binlog_cache_size"),
    Variable("binlog_stmt_cache_size"),
    Variable.recorded(
        "binlog_format",
        read=_binlog_format,
        check=_format_stays,
        check_global=_global_format_stays,
        default_now=lambda session: text_of(_binlog_format(session)),
        stays=lambda session: not _chooses_format(session),
        in_transaction=False,
    ),
    Variable.recorded("binlog_row_image", check=_rows_stay("binlog_row_image", "FULL"), stays=True),
    Variable.recorded(
        "binlog_row_metadata",
        default="FULL",  # replicas and programs need the names of columns
        check=_rows_stay("binlog_row_metadata", "FULL"),
        stays=True,
    ),
    Variable("gtid_domain_id", set_session=_COMMIT, in_transaction=False),
    Variable.recorded("gtid_seq_no", set_session=_COMMIT, check=_in_order, in_transaction=False),
    Variable("gtid_strict_mode", set_global=_REPLICATION, then=_set_strict),
    Variable("server_id", set_session=_COMMIT),
    Variable.recorded(
        "pseudo_thread_id", set_session=_COMMIT, read=lambda session: str(session.connection_id)
    ),
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
    Variable("innodb_read_only"),
    # Without effect with an engine binlog; MariaDB takes it, so scripts may SET it.
    Variable("sync_binlog", set_global=_BINLOG, then=_set_sync_binlog),
)

_FILES: Final = (
    Variable("binlog_archive_cache_size"),
    Variable("binlog_archive_directory"),
    Variable("binlog_archive_encryption_key_id"),
    Variable("binlog_archive_format"),
    Variable("binlog_archive_interval"),
    Variable("binlog_archive_url"),
    Variable("binlog_directory", Text(), "", read=_directory),
    Variable.recorded("datadir", read=_directory),
    Variable(
        "binlog_storage_engine",
        Text(),
        "innodb",
        read=lambda session: session.coordinates.storage_engine,
    ),
    Variable(
        "binlog_checksum",
        set_global=_SUPER,
        read=_checksum,
        check=_checksum_stays,
        default_now=lambda session: "CRC32" if is_traditional(session) else _checksum(session),
        apply=_set_checksum,
        stays=lambda session: not is_traditional(session),
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
        kind_now=lambda session: Number(
            session.server.engine.max_binlog_size_min, FILE_BYTES_MAX, FILE_BYTES_MIN
        ),
    ),
    Variable(
        "max_binlog_total_size", set_global=_BINLOG, then=_tell_store("max_binlog_total_size")
    ),
    Variable(
        "binlog_large_commit_threshold",
        set_global=_SUPER,
        then=_tell_store("binlog_large_commit_threshold"),
    ),
    Variable(
        "slave_connections_needed_for_purge",
        set_global=_BINLOG,
        then=_tell_store("slave_connections_needed_for_purge"),
    ),
    Variable("binlog_gtid_index", set_global=_BINLOG, then=_tell_files("binlog_gtid_index")),
    Variable(
        "binlog_gtid_index_page_size",
        set_global=_BINLOG,
        then=_tell_files("binlog_gtid_index_page_size"),
    ),
    Variable(
        "binlog_gtid_index_span_min",
        set_global=_BINLOG,
        then=_tell_files("binlog_gtid_index_span_min"),
    ),
    Variable("encrypt_binlog"),
    # As of a plugin: only where it is used. Its password is not shown.
    Variable(
        "file_key_management_encryption_algorithm",
        read=lambda session: (
            session.server.config.file_key_management_encryption_algorithm
            if session.server.config.file_key_management_filename
            else None
        ),
    ),
    Variable(
        "file_key_management_filename",
        read=lambda session: session.server.config.file_key_management_filename or None,
    ),
    Variable("binlog_scrub_archive", set_global=_BINLOG),
    Variable("binlog_scrub_interval", set_global=_BINLOG),
    Variable("binlog_scrub_rate", set_global=_BINLOG),
    Variable("replica_slot_bytes", set_global=_BINLOG),
    Variable("replica_slot_seconds", set_global=_BINLOG),
    Variable(
        "binlog_gtid_begin", Text(), "", read=lambda session: session.server.gtid_begin
    ),  # as the status variable; mysql's gtid_purged is its kin
    Variable("innodb_binlog_state_interval"),
    Variable("innodb_log_buffer_size"),
    Variable("innodb_log_file_size"),
    Variable.recorded("log_bin", default="ON"),
    Variable.recorded("log_bin_basename", default="binlog", read=_basename),
    Variable.recorded("log_bin_index", default="", read=_index),
    Variable.recorded("log_slave_updates", default="ON"),  # this is what a relay is for
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
    Variable("report_host"),
    Variable.recorded("report_port", read=_port),
    Variable("replica_lag_grace_seconds"),
    Variable("rpl_semi_sync_master_enabled", set_global=_MASTER, then=_tell_semi_sync),
    Variable("rpl_semi_sync_master_timeout", set_global=_MASTER, then=_tell_semi_sync),
    Variable("rpl_semi_sync_master_wait_for_slave_count", set_global=_MASTER, then=_tell_semi_sync),
    Variable("rpl_semi_sync_master_wait_no_slave", set_global=_MASTER, then=_tell_semi_sync),
    Variable.recorded(
        SEMI_SYNC_WAIT_POINT, default=AFTER_COMMIT, check=_only_after_commit, stays=True
    ),
    Variable("rpl_semi_sync_slave_enabled", set_global=_REPLICATION, then=_tell_semi_sync),
    Variable(
        "rpl_semi_sync_slave_wait_for_slave_count", set_global=_REPLICATION, then=_tell_semi_sync
    ),
    Variable.recorded("skip_replication", in_transaction=False),
    Variable.recorded("sql_log_bin", in_transaction=False),
    Variable("slave_compressed_protocol", set_global=_REPLICATION),
    Variable("slave_net_timeout"),
    Variable.recorded(
        SKIP_COUNTER,
        reach=Reach.GLOBAL,
        read=lambda session: str(session.server.relay.skip_counter(session.master_connection)),
        check=_skippable,
        apply=_skip,
    ),
    *(
        Variable.recorded(name, check=_would_mislead(name, advice))
        for names, advice in _MISLEADING
        for name in names
    ),
)

_CLIENTS: Final = (
    Variable.recorded("bind_address", read=lambda session: session.server.config.listen_host),
    Variable("connect_timeout", set_global=_CONNECTIONS),
    *(Variable.recorded(name, read=_has_tls) for name in ("have_ssl", "have_openssl")),
    Variable("innodb_lock_wait_timeout", set_global=_SUPER),
    Variable.recorded("hostname", read=lambda session: socket.gethostname()),
    Variable("max_allowed_packet", set_global=_SUPER),
    Variable("max_connect_errors", set_global=_CONNECTIONS),
    Variable("max_connections", set_global=_CONNECTIONS),
    Variable("max_session_mem_used", set_global=_SUPER, set_session=None),
    Variable("max_total_session_mem_used"),
    Variable("max_tmp_session_space_usage", set_global=_SUPER),
    Variable("max_tmp_total_space_usage", set_global=_SUPER),
    Variable("max_user_connections", set_global=_SUPER),
    Variable.recorded("net_buffer_length", set_global=None),
    Variable("net_read_timeout", set_global=_SUPER),
    Variable("net_write_timeout", set_global=_SUPER),
    Variable.recorded("port", read=_port),
    Variable("require_secure_transport", set_global=_SUPER),
    Variable("tcp_keepalive_interval", set_global=_SUPER),
    Variable("tcp_keepalive_probes", set_global=_SUPER),
    Variable("tcp_keepalive_time", set_global=_SUPER),
    Variable("tls_version"),
    Variable("wait_timeout", set_global=_SUPER),
)

# Variables whose values are other than words and numbers, or have other names; groups carry most of them to replicas:
# see `sql.session_settings`.
_STATEMENTS: Final = (
    Variable.recorded(
        "character_set_client", kind=Text(parse=values.client_charset, numbered=True)
    ),
    *(
        Variable.recorded(name, kind=Text(parse=values.charset, numbered=True))
        for name in (
            *("character_set_connection", "character_set_database"),
            *("character_set_filesystem", "character_set_server"),
        )
    ),
    Variable.recorded(
        "character_set_results", kind=Text(parse=values.charset, numbered=True, null="")
    ),
    # Statements are UTF-8 here, and the replicas of all versions know this collation.
    *(
        Variable.recorded(
            name, kind=Text(parse=values.collation, numbered=True), default="utf8mb4_general_ci"
        )
        for name in ("collation_connection", "collation_database", "collation_server")
    ),
    Variable.recorded(
        "character_set_collations",
        kind=Text(parse=values.charset_collations),
        check=_logged_collations,
    ),
    Variable.recorded("redirect_url", kind=Text(parse=values.redirect_url)),
    Variable.recorded("session_track_system_variables", check=_known_variables),
    *(
        Variable.recorded(name, kind=Text(parse=values.storage_engine, null=null))
        for name, null in (
            ("default_storage_engine", None),
            ("default_tmp_storage_engine", ""),
            ("enforce_storage_engine", ""),
            ("storage_engine", None),
        )
    ),
    *(
        Variable.recorded(name, kind=Text(parse=values.locale, numbered=True))
        for name in ("lc_messages", "lc_time_names")
    ),
    Variable.recorded("sql_mode", kind=Text(parse=values.sql_mode, numbered=True)),
    Variable.recorded("time_zone", kind=Text(parse=values.time_zone)),
    # Microseconds are cut off, so that a time is never later than the one given; other numbers are rounded.
    Variable.recorded(
        "timestamp",
        kind=Decimals(0, U32_MAX, ROUND_DOWN),
        default="0.000000",
        read=lambda session: f"{time.time():.6f}",
    ),
)

# What is true of this server and of this session; and what MariaDB's values would claim.
_TRUE: Final = (
    Variable.recorded(
        "error_count",
        read=lambda session: str(sum(d.level == Level.ERROR for d in session.diagnostics)),
    ),
    Variable.recorded("in_transaction", read=lambda session: str(int(session.in_transaction()))),
    Variable.recorded("last_gtid", read=lambda session: str(session.last_gtid or "")),
    Variable.recorded("license", default="Apache-2.0"),
    Variable.recorded("log_error", default="", read=lambda session: ""),
    Variable.recorded("performance_schema", default="OFF"),
    Variable.recorded("server_uid", read=lambda session: session.server.server_uuid),
    Variable.recorded("system_time_zone", read=lambda session: time.strftime("%Z")),
    Variable.recorded("version", read=lambda session: session.server_version),
    Variable.recorded("version_comment", default="binlog-server"),
    Variable.recorded("warning_count", read=lambda session: str(len(session.diagnostics))),
    *(Variable.recorded(name, default=text) for name, text in _INSTEAD.items()),
)

_DECLARED: Final = (
    *_COMMITS,
    *_FILES,
    *_REPLICAS_AND_UPSTREAMS,
    *_CLIENTS,
    *_STATEMENTS,
    *_TRUE,
)
_ALL: Final = {row.name: row for row in _DECLARED}
assert len(_ALL) == len(_DECLARED)


def _variable(name: str) -> Variable:
    return _ALL.get(name) or (Variable(name) if name in KINDS else Variable.recorded(name))


VARIABLES: Final[Mapping[str, Variable]] = MadeWhenAsked(
    sorted(_ALL.keys() | RECORDED.keys()), _variable
)
