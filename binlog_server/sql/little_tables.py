"""The rows of the tables of information_schema, performance_schema and mysql: what is true of this server.

Every table that a MariaDB 11.8 has there is there, empty where nothing of it is true here; `queries.catalog` declares
them. A table with rows has a function below, and a line in `_ROWS`. It is called on the loop, takes what it needs of
the server's state, and gives a function that makes the rows in a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import (
    DatabaseAccessDenied,
    NoDatabaseSelected,
    NoSuchTable,
    NotSupportedYet,
    ServerError,
    TableAccessDenied,
    UnknownSchemaTable,
)
from binlog_protocol.events.collation_names import collation_name
from binlog_protocol.tables.definition import KeyKind, StoredTable
from binlog_protocol.wire.results import Column

from binlog_server.accounts.privileges import CREATE_USER, OF_TABLES, SINGLE, USAGE
from binlog_server.dumps.replica_rows import ReplicaRows
from binlog_server.queries.catalog import (
    INFORMATION_SCHEMA,
    MYSQL,
    PERFORMANCE_SCHEMA,
    SCHEMAS,
    TableDefinition,
    load,
    tables,
)
from binlog_server.queries.like import like_matches
from binlog_server.queries.types import Type
from binlog_server.sql import places
from binlog_server.sql.recorded_variables import RECORDED, Reach
from binlog_server.sql.slave_status import upstream_rows
from binlog_server.sql.statement import LOOK_AT_FILES, LOOK_AT_REPLICAS, LOOK_AT_UPSTREAMS
from binlog_server.sql.status_variables import shown_status
from binlog_server.sql.variables import VARIABLES
from binlog_server.sql.view import Shown, text_of
from binlog_server.tables.definitions import DIRECT_ENGINES
from binlog_server.tables.held import TEMPORARY_TABLE, HeldDatabase, HeldTable

if TYPE_CHECKING:
    from binlog_server.accounts.account import UserAccount
    from binlog_server.settings.config import Config
    from binlog_server.sql.sql_session import SqlSession

Rows = Sequence[Sequence[Any]]
Made = Callable[[], Rows]
_UTF8: Final = "utf8mb3_general_ci"
_NO: Final = ("N", "Y")
VISIBLE: Final = (INFORMATION_SCHEMA, PERFORMANCE_SCHEMA)
"""The databases that are shown. Not mysql: programs that dump all databases would dump its tables. Who names it, finds
them."""


@dataclass(frozen=True, slots=True)
class LittleTable:
    """A table for one question."""

    definition: TableDefinition
    rows: Made

    @property
    def name(self) -> str:
        """As MariaDB writes it."""
        return self.definition.name

    @property
    def is_view(self) -> bool:
        """Whether a result column is named as the table has it, not as the statement."""
        return self.definition.kind == "VIEW"

    @property
    def columns(self) -> Sequence[Type]:
        """The types of its columns."""
        return self.definition.columns


def is_schema(database: str) -> bool:
    """Whether a database has little tables."""
    return database.lower() in SCHEMAS


def like(columns: Sequence[Column], pattern: str) -> list[Column]:
    """The columns with names LIKE a pattern; all without one."""
    return [column for column in columns if like_matches(pattern or "%", column.name)]


def no_tables(what: str) -> ServerError:
    """1235: there are no tables of that database here. No rows would say that the upstream has none."""
    return NotSupportedYet(f"{what}: a binlog server holds no tables; ask the upstream")


def definition(
    session: SqlSession, schema: str | None, name: str, what: str, *, is_read: bool = True
) -> TableDefinition:
    """The declaration of a table, of the current database without a schema. `is_read`: its rows are looked at.

    Raises `NoDatabaseSelected` (1046), `UnknownSchemaTable` (1109), `NoSuchTable` (1146), `TableAccessDenied` (1142),
    and for tables of other databases `NotSupportedYet` (1235).
    """
    database = schema if schema is not None else session.database.decode("utf-8", "replace")
    if not database:
        raise NoDatabaseSelected()
    if database in session.server.tables.databases:
        return held_table(session, database, name, is_read=is_read).declared
    if database.lower() not in SCHEMAS:
        raise no_tables(what)
    found = tables(database.lower()).get(name.lower())
    if found is None:
        if database.lower() == INFORMATION_SCHEMA:
            raise UnknownSchemaTable(name)
        raise NoSuchTable(database, name)
    if found.schema == MYSQL and not session.may(CREATE_USER):
        user, _, host = session.account.rpartition("@")
        raise TableAccessDenied("SELECT", user, host, MYSQL, found.name)
    return found


def held_table(session: SqlSession, database: str, name: str, *, is_read: bool) -> HeldTable:
    """A table that is here. Raises 1142, 1146."""
    found = session.find_table(database, name)
    is_own = found is not None and found.is_temporary  # who has made it may do anything with it
    if is_read and not is_own and not session.may("SELECT"):
        user, _, host = session.account.rpartition("@")
        raise TableAccessDenied("SELECT", user, host, database, name)
    if found is None:
        raise NoSuchTable(database, name)
    return found


def table(session: SqlSession, found: TableDefinition) -> LittleTable:
    """A table with its rows. On the loop."""
    make = _ROWS.get((found.schema, found.name.upper()))
    return LittleTable(found, (lambda: ()) if make is None else make(session, found))


def about(held: HeldTable) -> Mapping[tuple[str | None, str], LittleTable]:
    """COLUMNS and STATISTICS with the rows of this table alone, for SHOW: information_schema has none of a temporary
    one, and those of the table that it hides."""
    known = tables(INFORMATION_SCHEMA)
    columns, keys = known["columns"], known["statistics"]
    return {
        (INFORMATION_SCHEMA, columns.name): LittleTable(
            columns, lambda: _rows_of_columns(columns, [held.declared])
        ),
        (INFORMATION_SCHEMA, keys.name): LittleTable(keys, lambda: _rows_of_keys(keys, [held])),
    }


# --- databases and tables ---


def _schemata(session: SqlSession, of: TableDefinition) -> Made:
    collations = dict.fromkeys(VISIBLE, _UTF8)
    for name, held in held_databases(session).items():
        collations[name] = collation_name(held.database.collation)
    return lambda: [
        of.row(
            catalog_name="def",
            schema_name=name,
            default_character_set_name=collation.partition("_")[0],
            default_collation_name=collation,
        )
        for name, collation in sorted(collations.items())
    ]


def _readable(session: SqlSession) -> Sequence[str]:
    """The databases whose tables the session may read."""
    return SCHEMAS if session.may(CREATE_USER) else VISIBLE


def require_database(session: SqlSession, name: str) -> None:
    """Raises `DatabaseAccessDenied` (1044) for a database that is here, unless the account may do anything with it."""
    if name in session.server.tables.databases and not held_databases(session):
        user, _, host = session.account.rpartition("@")
        raise DatabaseAccessDenied(user, host, name)


def held_databases(session: SqlSession) -> Mapping[str, HeldDatabase]:
    """The databases that are here, for an account that may do anything with them."""
    return session.server.tables.databases if session.may(*OF_TABLES) else {}


def _held_tables(session: SqlSession) -> list[HeldTable]:
    return [
        table for database in held_databases(session).values() for table in database.tables.values()
    ]


def shown_tables(session: SqlSession) -> Mapping[tuple[str | None, str], LittleTable]:
    """TABLES for SHOW TABLES, which calls a temporary one otherwise than information_schema does."""
    of = tables(INFORMATION_SCHEMA)["tables"]
    made = _tables(session, of, temporary_kind="TEMPORARY TABLE")
    return {(INFORMATION_SCHEMA, of.name): LittleTable(of, made)}


def _tables(
    session: SqlSession, of: TableDefinition, temporary_kind: str = TEMPORARY_TABLE
) -> Made:
    held = [*session.temporary, *_held_tables(session)]
    numbers = {table.number: session.server.tables.peek_number(table) for table in held}
    schemas = _readable(session)

    def row(one: TableDefinition) -> tuple[Any, ...]:
        known = {
            "table_catalog": "def",
            "table_schema": one.schema,
            "table_name": one.name,
            "table_type": one.kind,
        }
        if one.kind == "VIEW":
            return of.row(**known, table_comment="VIEW")
        return of.row(
            **known,
            engine=one.engine,
            version=11,
            row_format="Fixed",
            data_length=0,
            index_length=0,
            data_free=0,
            table_collation=_UTF8,
            create_options="",
            table_comment="",
        )

    def row_of_held(table: HeldTable) -> tuple[Any, ...]:
        definition = table.definition
        return of.row(
            table_catalog="def",
            table_schema=table.database,
            table_name=table.name,
            table_type=temporary_kind if table.is_temporary else table.declared.kind,
            engine=definition.engine,
            version=10,
            row_format="Dynamic",
            table_rows=None,
            auto_increment=None if definition.auto_increment is None else numbers[table.number],
            table_collation=collation_name(definition.collation),
            create_options="",
            table_comment=definition.comment,
            temporary="Y" if table.is_temporary else "N",
        )

    def made() -> Rows:
        ours = [row(one) for schema in schemas for one in tables(schema).values()]
        return [*ours, *map(row_of_held, held)]

    return made


def _columns(session: SqlSession, of: TableDefinition) -> Made:
    schemas = _readable(session)
    held = [table.declared for table in _held_tables(session)]

    def made() -> Rows:
        ours = [row for schema in schemas for row in _column_rows(schema)]
        return [*ours, *_rows_of_columns(of, held)]

    return made


@cache
def _column_rows(schema: str) -> Rows:
    return _rows_of_columns(tables(INFORMATION_SCHEMA)["columns"], tables(schema).values())


def _rows_of_columns(of: TableDefinition, those: Iterable[TableDefinition]) -> Rows:
    found = []
    for one in those:
        for at, column in enumerate(one.definitions, 1):
            precision, scale = column.precision
            found.append(
                of.row(
                    table_catalog="def",
                    table_schema=one.schema,
                    table_name=one.name,
                    column_name=column.name,
                    ordinal_position=at,
                    column_default=column.default,
                    is_nullable="YES" if column.may_be_null else "NO",
                    data_type=column.data_type,
                    character_maximum_length=column.characters,
                    character_octet_length=column.octets,
                    numeric_precision=precision,
                    numeric_scale=scale,
                    datetime_precision=column.datetime_precision,
                    character_set_name=column.character_set,
                    collation_name=column.collation or None,
                    column_type=column.column_type,
                    column_key=column.key,
                    extra=column.extra,
                    privileges="select",
                    column_comment=column.comment,
                    is_generated="NEVER" if column.expression is None else "ALWAYS",
                    generation_expression=column.expression,
                    is_system_time_period_start="NO",
                    is_system_time_period_end="NO",
                )
            )
    return found


# --- what the server can ---


def _statistics(session: SqlSession, of: TableDefinition) -> Made:
    held = _held_tables(session)
    return lambda: _rows_of_keys(of, held)


def _rows_of_keys(of: TableDefinition, held: Iterable[HeldTable]) -> Rows:
    return [
        of.row(
            table_catalog="def",
            table_schema=table.database,
            table_name=table.name,
            non_unique=int(not key.is_unique),
            index_schema=table.database,
            index_name=key.name,
            seq_in_index=at,
            column_name=table.definition.columns[part.column].name,
            collation="A",
            sub_part=part.prefix or None,
            nullable="YES" if table.definition.columns[part.column].nullable else "",
            index_type="BTREE",
            comment="",
            index_comment="",
            ignored="NO",
        )
        for table in held
        for key in table.definition.keys
        for at, part in enumerate(key.parts, 1)
    ]


def _constraints(table: StoredTable) -> Iterator[tuple[str, str]]:
    """The name and kind of each constraint."""
    for key in table.keys:
        if key.is_unique:
            yield key.name, "PRIMARY KEY" if key.kind is KeyKind.PRIMARY else "UNIQUE"
    for name, _ in table.checks:
        yield name, "CHECK"


def _table_constraints(session: SqlSession, of: TableDefinition) -> Made:
    held = _held_tables(session)

    def rows() -> Rows:
        return [
            of.row(
                constraint_catalog="def",
                constraint_schema=table.database,
                constraint_name=name,
                table_schema=table.database,
                table_name=table.name,
                constraint_type=kind,
            )
            for table in held
            for name, kind in _constraints(table.definition)
        ]

    return rows


def _key_column_usage(session: SqlSession, of: TableDefinition) -> Made:
    held = _held_tables(session)

    def rows() -> Rows:
        return [
            of.row(
                constraint_catalog="def",
                constraint_schema=table.database,
                constraint_name=key.name,
                table_catalog="def",
                table_schema=table.database,
                table_name=table.name,
                column_name=table.definition.columns[part.column].name,
                ordinal_position=at,
            )
            for table in held
            for key in table.definition.keys
            if key.is_unique
            for at, part in enumerate(key.parts, 1)
        ]

    return rows


def _check_constraints(session: SqlSession, of: TableDefinition) -> Made:
    held = _held_tables(session)
    return lambda: [
        of.row(
            constraint_catalog="def",
            constraint_schema=table.database,
            table_name=table.name,
            constraint_name=name,
            level="Column" if name in places else "Table",
            check_clause=expression,
        )
        for table in held
        for places in [{column.name for column in table.definition.columns}]
        for name, expression in table.definition.checks
    ]


def _engines(session: SqlSession, of: TableDefinition) -> Made:
    return lambda: engines(session.server.config)


ENGINE: Final = (
    "InnoDB",
    "DEFAULT",
    "The binlog in its files (binlog_storage_engine); there are no tables",
    "YES",
    "YES",
    "YES",
)


SQLITE_ENGINE: Final = (
    "SQLITE",
    "YES",
    "Rows in a SQLite file, which commits with the binlog by two phases",
    "YES",
    "YES",
    "YES",
)


_ROWS_HERE: Final = "Rows in memory and in the redo log that the binlog has, too"
_ROWS_AT_ONCE: Final = "Rows as InnoDB's here, but what a statement changes stays: no transactions"


def engines(config: Config) -> list[tuple[str, ...]]:
    """The rows of SHOW ENGINES."""
    if not config.local_tables:
        return [ENGINE]
    direct = [(name, "YES", _ROWS_AT_ONCE, "NO", "NO", "NO") for name in DIRECT_ENGINES]
    return [(*ENGINE[:2], _ROWS_HERE, *ENGINE[3:]), *direct, SQLITE_ENGINE]


def _plugins(session: SqlSession, of: TableDefinition) -> Made:
    kinds = {
        "InnoDB": "STORAGE ENGINE",
        "mysql_native_password": "AUTHENTICATION",
        "ed25519": "AUTHENTICATION",
    }
    return lambda: [
        of.row(
            plugin_name=name,
            plugin_version="1.0",
            plugin_status="ACTIVE",
            plugin_type=kind,
            plugin_license="Apache-2.0",
            load_option="FORCE",
            plugin_maturity="Stable",
        )
        for name, kind in kinds.items()
    ]


@cache
def _recorded(name: str) -> Any:
    return load(name)


def _character_sets(session: SqlSession, of: TableDefinition) -> Made:
    return lambda: _recorded("collations")["character_sets"]


def _collations(session: SqlSession, of: TableDefinition) -> Made:
    return lambda: [
        of.row(
            collation_name=name,
            character_set_name=charset,
            id=number,
            is_default=default,
            is_compiled=compiled,
            sortlen=sortlen,
        )
        for name, charset, number, default, compiled, sortlen in _recorded("collations")[
            "collations"
        ]
    ]


def _applicability(session: SqlSession, of: TableDefinition) -> Made:
    def rows() -> Rows:
        return [
            (name, charset, _full_name(name, charset), number, "Yes" if default else "")
            for charset, found in _recorded("collations")["applicable"].items()
            for name, number, *default in found
        ]

    return rows


def _full_name(collation: str, charset: str) -> str:
    is_whole = collation == charset or collation.startswith(f"{charset}_")
    return collation if is_whole else f"{charset}_{collation}"


def _keywords(session: SqlSession, of: TableDefinition) -> Made:
    return lambda: [(word,) for word in _recorded("keywords")]


def _sql_functions(session: SqlSession, of: TableDefinition) -> Made:
    def rows() -> Rows:
        from binlog_server.queries.aggregates import AGGREGATES
        from binlog_server.queries.functions import names

        return [(name,) for name in sorted(names() | AGGREGATES.keys())]

    return rows


# --- variables and status ---


def _named(shown: Mapping[str, Shown]) -> Made:
    return lambda: [(name.upper(), text_of(value)) for name, value in sorted(shown.items())]


def _global_variables(session: SqlSession, of: TableDefinition) -> Made:
    return _named(session.system_variables(globally=True))


def _session_variables(session: SqlSession, of: TableDefinition) -> Made:
    return _named(session.system_variables(globally=False))


def _global_status(session: SqlSession, of: TableDefinition) -> Made:
    return _named(shown_status(session, globally=True))


def _session_status(session: SqlSession, of: TableDefinition) -> Made:
    return _named(shown_status(session, globally=False))


def _system_variables(session: SqlSession, of: TableDefinition) -> Made:
    own = session.system_variables(globally=False)
    everybody = session.system_variables(globally=True)
    kept = frozenset(session.server.kept_variables)

    def rows() -> Rows:
        found = []
        for name, variable in sorted(VARIABLES.items()):
            value, shared = own.get(variable.shown), everybody.get(variable.shown)
            if value is None and shared is None:
                continue
            facts = RECORDED.get(name)
            least, most, block = _NO_LIMITS if facts is None else facts.limits
            found.append(
                of.row(
                    variable_name=name.upper(),
                    session_value=None
                    if variable.reach is Reach.GLOBAL or value is None
                    else text_of(value),
                    global_value=None if shared is None else text_of(shared),
                    global_value_origin=_origin(variable.default, shared, name in kept),
                    default_value=variable.default,
                    variable_scope=variable.reach.value,
                    variable_type="VARCHAR" if facts is None else facts.type_name,
                    variable_comment="",
                    numeric_min_value=least,
                    numeric_max_value=most,
                    numeric_block_size=block,
                    enum_value_list=None if facts is None else facts.listed,
                    read_only="YES" if variable.set_global is None else "NO",
                    command_line_argument=None,
                )
            )
        return found

    return rows


def _origin(default: str, shown: Shown | None, is_set: bool) -> str:
    """Where a global value comes from."""
    if is_set:
        return "SQL"
    return "COMPILE-TIME" if shown is None or text_of(shown) == default else "CONFIG"


_NO_LIMITS: Final = (None, None, None)


# --- who is here ---


def _processlist(session: SqlSession, of: TableDefinition) -> Made:
    found, space = session.processes(), session.server.tmp_space
    return lambda: [
        of.row(
            id=row[0],
            user=row[1],
            host=row[2],
            db=row[3],
            command=row[4],
            time=row[5],
            state=row[6],
            info=row[7],
            time_ms=f"{int(str(row[5] or 0)) * 1000}.000",
            progress="0.000",
            tid=row[0],
            tmp_space_used=space.used_by(int(str(row[0]))),
        )
        for row in found
    ]


def _accounts(session: SqlSession) -> Sequence[UserAccount]:
    return () if session.accounts is None else session.accounts.seen()


def _user_privileges(session: SqlSession, of: TableDefinition) -> Made:
    accounts = _accounts(session)
    return lambda: [
        of.row(
            grantee=f"'{account.user}'@'{account.host}'",
            table_catalog="def",
            privilege_type=privilege,
            is_grantable="NO",
        )
        for account in accounts
        for privilege in _privileges_of(account)
    ]


def _privileges_of(account: UserAccount) -> list[str]:
    everything = "ALL PRIVILEGES" in account.grants
    return [name for name in SINGLE if everything or name in account.grants] or [USAGE]


_PRIVILEGE_COLUMNS: Final = {
    "reload_priv": "RELOAD",
    "process_priv": "PROCESS",
    "super_priv": "SUPER",
    "repl_slave_priv": "REPLICATION SLAVE",
    "repl_client_priv": "BINLOG MONITOR",
    "create_user_priv": CREATE_USER,
}


def _users(session: SqlSession, of: TableDefinition) -> Made:
    accounts = _accounts(session)

    def row(account: UserAccount) -> tuple[Any, ...]:
        granted = _privileges_of(account)
        # With ALL PRIVILEGES a monitor looks for those of tables, too.
        other = _NO["ALL PRIVILEGES" in account.grants]
        known: dict[str, Any] = {
            name.lower(): other for name in of.places if name.endswith("_PRIV")
        }
        known |= {column: _NO[name in granted] for column, name in _PRIVILEGE_COLUMNS.items()}
        return of.row(
            **known,
            host=account.host,
            user=account.user,
            plugin=account.credential.plugin,
            is_role="N",
            password_expired="N",
            max_statement_time="0.000000",
            default_role="",
        )

    return lambda: [row(account) for account in accounts]


def _enabled_roles(session: SqlSession, of: TableDefinition) -> Made:
    return lambda: [(None,)]


# --- the binlog ---


def _slave_status(session: SqlSession, of: TableDefinition) -> Made:
    found = _followed(session)
    return lambda: [
        of.row(**{name: value for name, value in row.items() if name.upper() in of.places})
        for row in found
    ]


def _followed(session: SqlSession) -> list[Mapping[str, Any]]:
    if not session.may(*LOOK_AT_UPSTREAMS):
        return []
    return [row for _, row in upstream_rows(session)]


def _replicas(session: SqlSession, of: TableDefinition) -> Made:
    if not session.may(*LOOK_AT_REPLICAS):
        return lambda: ()
    rows = ReplicaRows(session.server.engine, list(session.server.connections))
    return lambda: list(rows)


def _files(session: SqlSession, of: TableDefinition) -> Made:
    if not session.may(*LOOK_AT_FILES):
        return lambda: ()
    found = list(places.files(session.server, session.coordinates))
    return lambda: found


def _leases(session: SqlSession, of: TableDefinition) -> Made:
    if not session.may(*LOOK_AT_FILES):
        return lambda: ()
    leases, coordinates = session.server.leases, session.coordinates
    return lambda: places.leases(leases, coordinates)


def _upstreams(session: SqlSession, of: TableDefinition) -> Made:
    found = _followed(session)
    names = {
        "connection_name": "Connection_name",
        "host": "Master_Host",
        "port": "Master_Port",
        "user": "Master_User",
        "io_running": "Slave_IO_Running",
        "state": "Slave_IO_State",
        "last_errno": "Last_IO_Errno",
        "last_error": "Last_IO_Error",
        "gtid_io_pos": "Gtid_IO_Pos",
    }
    return lambda: [of.row(**{own: row[name] for own, name in names.items()}) for row in found]


STATE: Final = frozenset({"SLAVE_STATUS", "BINLOG_UPSTREAMS"})
"""Tables whose rows are made of `SqlSession.state_texts`, on the loop."""
_Provider = Callable[["SqlSession", TableDefinition], Made]
_ROWS: Final[Mapping[tuple[str, str], _Provider]] = {
    **{
        (INFORMATION_SCHEMA, name): make
        for name, make in {
            "ALL_PLUGINS": _plugins,
            "BINLOG_FILES": _files,
            "BINLOG_LEASES": _leases,
            "BINLOG_REPLICAS": _replicas,
            "BINLOG_UPSTREAMS": _upstreams,
            "CHARACTER_SETS": _character_sets,
            "CHECK_CONSTRAINTS": _check_constraints,
            "COLLATIONS": _collations,
            "COLLATION_CHARACTER_SET_APPLICABILITY": _applicability,
            "COLUMNS": _columns,
            "ENABLED_ROLES": _enabled_roles,
            "ENGINES": _engines,
            "GLOBAL_STATUS": _global_status,
            "GLOBAL_VARIABLES": _global_variables,
            "KEYWORDS": _keywords,
            "KEY_COLUMN_USAGE": _key_column_usage,
            "PLUGINS": _plugins,
            "PROCESSLIST": _processlist,
            "SCHEMATA": _schemata,
            "SESSION_STATUS": _session_status,
            "SESSION_VARIABLES": _session_variables,
            "STATISTICS": _statistics,
            "SLAVE_STATUS": _slave_status,
            "SQL_FUNCTIONS": _sql_functions,
            "SYSTEM_VARIABLES": _system_variables,
            "TABLES": _tables,
            "TABLE_CONSTRAINTS": _table_constraints,
            "USER_PRIVILEGES": _user_privileges,
        }.items()
    },
    (PERFORMANCE_SCHEMA, "GLOBAL_STATUS"): _global_status,
    (PERFORMANCE_SCHEMA, "SESSION_STATUS"): _session_status,
    (MYSQL, "USER"): _users,
}
