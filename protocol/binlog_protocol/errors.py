"""Errors of the protocol layer.

Kinds, by the party at fault and the one that hears of it:

=================  ==========================================================================
`ProtocolError`    the peer broke the protocol; the connection cannot go on
`ServerError`      our answer to a client: MariaDB's number, SQLSTATE and text
`RemoteError`      an ERR packet that an upstream sent to us
`BadValue`         a value that no column of that type holds: a mistake of the code that calls
=================  ==========================================================================

Errors of the server are data: an `ErrorKind` is a row of MariaDB's list, with the number and text of 10.11 and 11.8.
Called with the values for its text, in their order, it makes the `ServerError`::

    raise UnknownThread(7)

    except ServerError as error:
        if error.kind is UnknownThread: ...
"""

from __future__ import annotations

from typing import Final

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.dataclass import dataclass

_VALUE: Final = compiled_later(r"{(\w+)}")


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """One error: `text` has a name in braces for each value. `fatal`: the connection closes after it."""

    errno: int
    text: str
    sqlstate: str = "HY000"
    fatal: bool = False

    @property
    def names(self) -> list[str]:
        """The values that the text takes, in their order."""
        return list(dict.fromkeys(_VALUE.findall(self.text)))

    def __call__(self, *values: object) -> ServerError:
        message = self.text.format(**dict(zip(self.names, values, strict=True)))
        return ServerError(self, message)


class ServerError(Exception):
    """An error to be sent to a client in an ERR packet."""

    def __init__(self, kind: ErrorKind, message: str) -> None:
        super().__init__(kind, message)
        self.kind = kind
        self.errno = kind.errno
        self.sqlstate = kind.sqlstate
        self.fatal = kind.fatal
        self.message = message

    def __str__(self) -> str:
        return f"{self.errno} ({self.sqlstate}): {self.message}"


class SqlSyntaxError(ServerError):
    """ER_PARSE_ERROR: `near` is the text from the first token not understood, `line` its line."""

    def __init__(self, near: str, line: int = 1) -> None:
        super().__init__(_PARSE_ERROR, _PARSE_ERROR.text.format(near=near, line=line))
        self.near = near
        self.line = line


class ProtocolError(Exception):
    """The peer broke the protocol; the connection cannot go on.

    `reason` is for our log. `answer` is the error that a MariaDB server would send before it
    closes, or None when it would close in silence.
    """

    def __init__(self, reason: str, answer: ServerError | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.answer = answer


class PacketTooLarge(ProtocolError):
    """The length in a packet header says that the packet exceeds the limit. `next_seq`: the number of its answer."""

    def __init__(self, length: int, limit: int, next_seq: int = 1) -> None:
        super().__init__(f"packet of {length} bytes, limit {limit}", PacketTooBig())
        self.next_seq = next_seq


class BadValue(ValueError):
    """A value that a column cannot hold, or a row that a table cannot: a mistake of the caller here.

    What SQL says of such a value (an error, a warning, a value cut to fit) is decided before it gets this far.
    `what` is the reason, `where` the column or table.
    """

    def __init__(self, what: str, where: str = "") -> None:
        super().__init__(f"{where}: {what}" if where else what)
        self.what = what
        self.where = where


class RemoteError(Exception):
    """An ERR packet received from an upstream."""

    def __init__(self, errno: int, sqlstate: str, message: str) -> None:
        super().__init__(f"{errno} ({sqlstate}): {message}")
        self.errno = errno
        self.sqlstate = sqlstate
        self.message = message

    @property
    def may_pass(self) -> bool:
        """Whether the cause may pass by itself, so that another connection is worth it."""
        return self.errno in _PASSING


# The list, by numbers, with MariaDB's names. A text without a MariaDB version beside it is that of 10.11 and 11.8.

# EE_OUT_OF_FILERESOURCES
OutOfFiles = ErrorKind(
    23, "Out of resources when opening file '{file}' (Errcode: {errno} \"{text}\")"
)
# EE_LOCAL_TMP_SPACE_FULL, EE_GLOBAL_TMP_SPACE_FULL
LocalTmpSpaceFull = ErrorKind(41, "Local temporary space limit reached")
GlobalTmpSpaceFull = ErrorKind(42, "Global temporary space limit reached")
# HA_ERR_UNSUPPORTED of InnoDB: a warning
SnapshotIgnored = ErrorKind(
    138, "InnoDB: WITH CONSISTENT SNAPSHOT is ignored at READ UNCOMMITTED isolation level."
)
# HA_ERR_AUTOINC_ERANGE: the numbers of a column are used up
AutoIncrementUsedUp = ErrorKind(
    167, "Out of range value for column '{column}' at row {row}", "22003"
)
# ER_CANT_CREATE_TABLE
CannotCreateTable = ErrorKind(
    1005, 'Can\'t create table `{database}`.`{table}` (errno: {number} "{reason}")'
)
# ER_DB_CREATE_EXISTS
DatabaseExists = ErrorKind(1007, "Can't create database '{name}'; database exists")
# ER_DB_DROP_EXISTS
NoSuchDatabase = ErrorKind(1008, "Can't drop database '{name}'; database doesn't exist")
# ER_CANT_OPEN_FILE: there is no descriptor left at the moment. A replica that gets it in a dump comes again
CannotOpenFile = ErrorKind(1016, "{text}", fatal=True)
# ER_CHECKREAD
RecordHasChanged = ErrorKind(
    1020, "Record has changed since last read in table '{table}'; try restarting transaction"
)
# ER_DISK_FULL: what the statement has to write finds no room; nothing was done
NoRoomOnDisk = ErrorKind(
    1021,
    "Disk full ({reason}); nothing was done: free some space (PURGE BINARY LOGS), and try again",
)
# ER_ERROR_ON_WRITE: the store refuses what is committed
ErrorOnWrite = ErrorKind(1026, "Error writing file 'binlog': {reason}")
# ER_CON_COUNT_ERROR
TooManyConnections = ErrorKind(1040, "Too many connections", "08004", fatal=True)
# ER_OUT_OF_RESOURCES
OutOfResources = ErrorKind(
    1041,
    "Out of memory; what all sessions hold is more than max_total_session_mem_used={limit} bytes",
    fatal=True,
)
# ER_HANDSHAKE_ERROR: the login packet makes no sense
BadHandshake = ErrorKind(1043, "Bad handshake", "08S01", fatal=True)
# ER_DBACCESS_DENIED_ERROR
DatabaseAccessDenied = ErrorKind(
    1044, "Access denied for user '{user}'@'{host}' to database '{database}'", "42000"
)
# ER_ACCESS_DENIED_ERROR: unknown user or wrong password
AccessDenied = ErrorKind(
    1045, "Access denied for user '{user}'@'{host}' (using password: {answer})", "28000", fatal=True
)
# ER_NO_DB_ERROR
NoDatabaseSelected = ErrorKind(1046, "No database selected", "3D000")
# ER_UNKNOWN_COM_ERROR: a command byte that we do not serve
UnknownCommandError = ErrorKind(1047, "Unknown command", "08S01")
# ER_BAD_NULL_ERROR
ColumnNotNull = ErrorKind(1048, "Column '{column}' cannot be null", "23000")
# ER_BAD_DB_ERROR
UnknownDatabase = ErrorKind(1049, "Unknown database '{name}'", "42000")
# ER_TABLE_EXISTS_ERROR
TableExists = ErrorKind(1050, "Table '{table}' already exists", "42S01")
# ER_BAD_TABLE_ERROR: `t.*` of a table that the statement does not name; DROP of what there is not
UnknownTable = ErrorKind(1051, "Unknown table '{table}'", "42S02")
# ER_NON_UNIQ_ERROR
AmbiguousColumn = ErrorKind(1052, "Column '{column}' in {place} is ambiguous", "23000")
# ER_SERVER_SHUTDOWN
ServerShutdown = ErrorKind(1053, "Server shutdown in progress", "08S01", fatal=True)
# ER_BAD_FIELD_ERROR: `place` is the part of the statement, WHERE or SELECT
UnknownColumn = ErrorKind(1054, "Unknown column '{column}' in '{place}'", "42S22")
# ER_TOO_LONG_IDENT
TooLongIdentifier = ErrorKind(1059, "Identifier name '{name}' is too long", "42000")
# ER_DUP_FIELDNAME
DuplicateColumn = ErrorKind(1060, "Duplicate column name '{name}'", "42S21")
# ER_DUP_KEYNAME
DuplicateKeyName = ErrorKind(1061, "Duplicate key name '{name}'", "42000")
# ER_DUP_ENTRY
DuplicateEntry = ErrorKind(1062, "Duplicate entry '{value}' for key '{key}'", "23000")
# ER_WRONG_FIELD_SPEC
WrongColumnSpecifier = ErrorKind(1063, "Incorrect column specifier for column '{column}'", "42000")
# ER_PARSE_ERROR
_PARSE_ERROR = ErrorKind(
    1064,
    "You have an error in your SQL syntax; check the manual that corresponds to your MariaDB server version for "
    "the right syntax to use near '{near}' at line {line}",
    "42000",
)
# ER_EMPTY_QUERY
EmptyQuery = ErrorKind(1065, "Query was empty", "42000")
# ER_NONUNIQ_TABLE
NotUniqueTable = ErrorKind(1066, "Not unique table/alias: '{name}'", "42000")
# ER_INVALID_DEFAULT
InvalidDefault = ErrorKind(1067, "Invalid default value for '{column}'", "42000")
# ER_MULTIPLE_PRI_KEY
MultiplePrimaryKeys = ErrorKind(1068, "Multiple primary key defined", "42000")
# ER_TOO_MANY_KEYS
TooManyKeys = ErrorKind(1069, "Too many keys specified; max {limit} keys allowed", "42000")
# ER_TOO_MANY_KEY_PARTS
TooManyKeyParts = ErrorKind(
    1070, "Too many key parts specified; max {limit} parts allowed", "42000"
)
# ER_TOO_LONG_KEY
TooLongKey = ErrorKind(1071, "Specified key was too long; max key length is {limit} bytes", "42000")
# ER_KEY_COLUMN_DOES_NOT_EXITS
NoSuchKeyColumn = ErrorKind(1072, "Key column '{column}' doesn't exist in table", "42000")
# ER_TOO_BIG_FIELDLENGTH
ColumnTooLong = ErrorKind(
    1074,
    "Column length too big for column '{column}' (max = {limit}); use BLOB or TEXT instead",
    "42000",
)
# ER_WRONG_AUTO_KEY
WrongAutoIncrement = ErrorKind(
    1075,
    "Incorrect table definition; there can be only one auto column and it must be defined as a key",
    "42000",
)
# ER_BINLOG_CANT_DELETE_GTID_DOMAIN: files hold groups of it; domains have 32 bits; a warning
GtidDomainInUse = ErrorKind(
    1076,
    "Could not delete gtid domain. Reason: binlog files may contain gtids from the domain ('{domain_id}') being "
    "deleted. Make sure to first purge those files.",
)
GtidDomainTooLarge = ErrorKind(
    1076,
    "The value of gtid domain being deleted ('{domain_id}') exceeds its maximum size of 32 bit unsigned integer",
)
GtidDomainAbsent = ErrorKind(
    1076, "The gtid domain being deleted ('{domain_id}') is not in the current binlog state"
)
# ER_WRONG_SUB_KEY
WrongKeyPrefix = ErrorKind(
    1089,
    "Incorrect prefix key; the used key part isn't a string, the used length is longer than the key part, or the "
    "storage engine doesn't support unique prefix keys",
)
# ER_CANT_REMOVE_ALL_FIELDS
CannotDropAllColumns = ErrorKind(
    1090, "You can't delete all columns with ALTER TABLE; use DROP TABLE instead", "42000"
)
# ER_CANT_DROP_FIELD_OR_KEY
CannotDropColumn = ErrorKind(1091, "Can't DROP COLUMN `{name}`; check that it exists", "42000")
CannotDropKey = ErrorKind(1091, "Can't DROP INDEX `{name}`; check that it exists", "42000")
CannotDropConstraint = ErrorKind(
    1091, "Can't DROP CONSTRAINT `{name}`; check that it exists", "42000"
)
# ER_UPDATE_TABLE_USED
TableUsedTwice = ErrorKind(
    1093,
    "Table '{table}' is specified twice, both as a target for '{verb}' and as a separate source for data",
)
# ER_NO_SUCH_THREAD
UnknownThread = ErrorKind(1094, "Unknown thread id: {connection_id}")
# ER_KILL_DENIED_ERROR
KillDenied = ErrorKind(1095, "You are not owner of thread {connection_id}")
# ER_NO_TABLES_USED
NoTablesUsed = ErrorKind(1096, "No tables used")
# ER_TOO_BIG_SET
TooManyLabels = ErrorKind(1097, "Too many strings for column {column} and SET")
# ER_NO_UNIQUE_LOGFILE
NoUniqueLogFile = ErrorKind(1098, "Can't generate a unique log-filename {name}.(1-999)")
# ER_TABLE_NOT_LOCKED_FOR_WRITE
TableNotLockedForWrite = ErrorKind(
    1099, "Table '{table}' was locked with a READ lock and can't be updated"
)
# ER_TABLE_NOT_LOCKED
TableNotLocked = ErrorKind(1100, "Table '{table}' was not locked with LOCK TABLES")
# ER_WRONG_DB_NAME
WrongDatabaseName = ErrorKind(1102, "Incorrect database name '{name}'", "42000")
# ER_WRONG_TABLE_NAME
WrongTableName = ErrorKind(1103, "Incorrect table name '{name}'", "42000")
# ER_UNKNOWN_ERROR: what has no number of its own
UnknownServerError = ErrorKind(1105, "{text}")
# ER_UNKNOWN_TABLE: a table of information_schema that there is not
UnknownSchemaTable = ErrorKind(1109, "Unknown table '{table}' in information_schema", "42S02")
# ER_FIELD_SPECIFIED_TWICE
ColumnTwice = ErrorKind(1110, "Column '{column}' specified twice", "42000")
# ER_INVALID_GROUP_FUNC_USE
WrongGroupFunction = ErrorKind(1111, "Invalid use of group function")
# ER_TABLE_MUST_HAVE_COLUMNS
NoColumns = ErrorKind(1113, "A table must have at least 1 column", "42000")
# ER_RECORD_FILE_FULL
TableFull = ErrorKind(1114, "The table '{table}' is full")
# ER_UNKNOWN_CHARACTER_SET
UnknownCharacterSet = ErrorKind(1115, "Unknown character set: '{name}'", "42000")
# ER_TOO_MANY_FIELDS
TooManyColumns = ErrorKind(1117, "Too many columns")
# ER_TOO_BIG_ROWSIZE
RowTooLarge = ErrorKind(
    1118,
    "Row size too large. The maximum row size for the used table type, not counting BLOBs, is {limit}. This includes "
    "storage overhead, check the manual. You have to change some columns to TEXT or BLOBs",
    "42000",
)
# ER_HOST_IS_BLOCKED, in place of the greeting
HostBlocked = ErrorKind(
    1129,
    "Host '{host}' is blocked because of many connection errors; unblock with 'mariadb-admin flush-hosts'",
    fatal=True,
)
# ER_HOST_NOT_PRIVILEGED, in place of the greeting: no account is for clients from there
HostNotAllowed = ErrorKind(
    1130, "Host '{host}' is not allowed to connect to this MariaDB server", fatal=True
)
# ER_PASSWORD_NO_MATCH
NoSuchUser = ErrorKind(1133, "Can't find any matching row in the user table", "28000")
# ER_CANT_CREATE_THREAD
CannotCreateThread = ErrorKind(
    1135,
    'Can\'t create a new thread (errno {errno} "{text}"); if you are not out of available memory, you can consult the '
    "manual for a possible OS-dependent bug",
)
# ER_WRONG_VALUE_COUNT_ON_ROW
WrongValueCount = ErrorKind(1136, "Column count doesn't match value count at row {row}", "21S01")
# ER_CANT_REOPEN_TABLE
CannotReopenTable = ErrorKind(1137, "Can't reopen table: '{table}'")
# ER_REGEXP_ERROR
RegexFailed = ErrorKind(1139, "Regex error '{text}'", "42000")
# ER_NONEXISTING_GRANT
NonexistingGrant = ErrorKind(
    1141, "There is no such grant defined for user '{user}' on host '{host}'", "42000"
)
# ER_TABLEACCESS_DENIED_ERROR
TableAccessDenied = ErrorKind(
    1142,
    "{command} command denied to user '{user}'@'{host}' for table `{schema}`.`{table}`",
    "42000",
)
# ER_NO_SUCH_TABLE
NoSuchTable = ErrorKind(1146, "Table '{schema}.{table}' doesn't exist", "42S02")
# ER_NET_PACKET_TOO_LARGE
PacketTooBig = ErrorKind(
    1153, "Got a packet bigger than 'max_allowed_packet' bytes", "08S01", fatal=True
)
# ER_NET_PACKETS_OUT_OF_ORDER
PacketsOutOfOrder = ErrorKind(1156, "Got packets out of order", "08S01", fatal=True)
# ER_NET_UNCOMPRESS_ERROR
CannotUncompress = ErrorKind(1157, "Couldn't uncompress communication packet", "08S01", fatal=True)
# ER_WRONG_COLUMN_NAME
WrongColumnName = ErrorKind(1166, "Incorrect column name '{name}'", "42000")
# ER_BLOB_KEY_WITHOUT_LENGTH
LongColumnInKey = ErrorKind(
    1170, "BLOB/TEXT column '{column}' used in key specification without a key length", "42000"
)
# ER_PRIMARY_CANT_HAVE_NULL
NullablePrimaryKey = ErrorKind(
    1171,
    "All parts of a PRIMARY KEY must be NOT NULL; if you need NULL in a key, use UNIQUE instead",
    "42000",
)
# ER_TOO_MANY_ROWS
TooManyRows = ErrorKind(1172, "Result consisted of more than one row", "42000")
# ER_REQUIRES_PRIMARY_KEY
PrimaryKeyRequired = ErrorKind(1173, "This table type requires a primary key", "42000")
# ER_UPDATE_WITHOUT_KEY_IN_SAFE_MODE
ChangeWithoutKey = ErrorKind(
    1175,
    "You are using safe update mode and you tried to update a table without a WHERE that uses a KEY column",
)
# ER_KEY_DOES_NOT_EXITS
NoSuchKey = ErrorKind(1176, "Key '{key}' doesn't exist in table '{table}'", "42000")
# ER_CANT_DO_THIS_DURING_AN_TRANSACTION
NotInTransaction = ErrorKind(
    1179, "You are not allowed to execute this command in a transaction", "25000"
)
# ER_LOCK_OR_ACTIVE_TRANSACTION: the statement could keep the session's own transaction from its end
LockOrActiveTransaction = ErrorKind(
    1192,
    "Can't execute the given command because you have active locked tables or an active transaction",
)
# ER_UNKNOWN_SYSTEM_VARIABLE
UnknownSystemVariable = ErrorKind(1193, "Unknown system variable '{name}'")
# ER_WARNING_NOT_COMPLETE_ROLLBACK
IncompleteRollback = ErrorKind(
    1196, "Some non-transactional changed tables couldn't be rolled back"
)
# ER_SLAVE_MUST_STOP
SlaveMustStop = ErrorKind(
    1198,
    "This operation cannot be performed as you have a running slave '{name}'; run STOP SLAVE '{name}' first",
)
# ER_BAD_SLAVE: there is nothing to start
BadSlave = ErrorKind(
    1200,
    "Misconfigured slave: MASTER_HOST was not set; Fix in config file or with CHANGE MASTER TO",
)
# ER_MASTER_INFO: the options contradict each other or cannot be kept.  MariaDB says why in its log; here the text does
MasterInfoRefused = ErrorKind(
    1201, "Could not initialize master info structure for '{name}'; {reason}"
)
# ER_TOO_MANY_USER_CONNECTIONS: the server's max_user_connections
TooManyUserConnections = ErrorKind(
    1203,
    "User {user} already has more than 'max_user_connections' active connections",
    "42000",
    fatal=True,
)
# ER_LOCK_WAIT_TIMEOUT: the statement is undone, the transaction goes on
LockWaitExceeded = ErrorKind(1205, "Lock wait timeout exceeded; try restarting transaction")
# ER_WRONG_ARGUMENTS
WrongArguments = ErrorKind(1210, "Incorrect arguments to {what}")
# ER_LOCK_DEADLOCK
LockDeadlock = ErrorKind(
    1213, "Deadlock found when trying to get lock; try restarting transaction", "40001"
)
# ER_ERROR_WHEN_EXECUTING_COMMAND
CommandFailed = ErrorKind(1220, "Error when executing command {command}: {reason}")
# ER_WRONG_USAGE: two words that exclude each other
WrongUsage = ErrorKind(1221, "Incorrect usage of {one} and {other}")
# ER_WRONG_NUMBER_OF_COLUMNS_IN_SELECT: of a UNION
DifferentColumns = ErrorKind(
    1222, "The used SELECT statements have a different number of columns", "21000"
)
# ER_CANT_UPDATE_WITH_READLOCK: the session's own
ReadLockHeld = ErrorKind(1223, "Can't execute the query because you have a conflicting read lock")
# ER_USER_LIMIT_REACHED: a limit of the account
UserLimitReached = ErrorKind(
    1226,
    "User '{user}' has exceeded the '{resource}' resource (current value: {value})",
    "42000",
    fatal=True,
)
# ER_SPECIFIC_ACCESS_DENIED_ERROR
PrivilegeRequired = ErrorKind(
    1227,
    "Access denied; you need (at least one of) the {privilege} privilege(s) for this operation",
    "42000",
)
# ER_LOCAL_VARIABLE: SET GLOBAL of what only sessions have
SessionVariable = ErrorKind(
    1228, "Variable '{variable}' is a SESSION variable and can't be used with SET GLOBAL"
)
# ER_GLOBAL_VARIABLE: SET without GLOBAL
GlobalVariable = ErrorKind(
    1229, "Variable '{variable}' is a GLOBAL variable and should be set with SET GLOBAL"
)
# ER_NO_DEFAULT: SET x = DEFAULT of what can only be said
NoDefault = ErrorKind(1230, "Variable '{variable}' doesn't have a default value", "42000")
# ER_WRONG_VALUE_FOR_VAR
WrongVariableValue = ErrorKind(
    1231, "Variable '{variable}' can't be set to the value of '{value}'", "42000"
)
# ER_WRONG_TYPE_FOR_VAR
WrongVariableType = ErrorKind(1232, "Incorrect argument type to variable '{variable}'", "42000")
# ER_NOT_SUPPORTED_YET: a statement that could not be logged so that replicas do the same
NotSupportedYet = ErrorKind(1235, "This version of MariaDB doesn't yet support '{what}'", "42000")
# ER_MASTER_FATAL_ERROR_READING_BINLOG: the dump cannot go on; a replica stops on it
MasterFatalError = ErrorKind(1236, "{text}", fatal=True)
# The replica is ahead of this binlog
GtidNotInBinlog = ErrorKind(
    1236,
    "Error: connecting slave requested to start from GTID {gtid}, which is not in the master's binlog",
    fatal=True,
)
# This binlog has higher numbers in the domain, yet not that GTID
GtidDiverged = ErrorKind(
    1236,
    "Error: connecting slave requested to start from GTID {gtid}, which is not in the master's binlog. Since the "
    "master's binlog contains GTIDs with higher sequence numbers, it probably means that the slave has diverged "
    "due to executing extra erroneous transactions",
    fatal=True,
)
# The position lies before the earliest file
# A login whose name ends with +until=...: see `binlog_protocol.dump.target`
TargetNotInBinlog = ErrorKind(
    1236,
    "The login ends at GTID {gtid}, which is not in this binlog: it has higher sequence numbers of that domain. Say "
    "another target after +until=",
    fatal=True,
)
TargetPurged = ErrorKind(
    1236,
    "The login ends at {target}, and the binlog of that time has been purged: nobody knows where that is",
    fatal=True,
)
TargetReached = ErrorKind(
    1236,
    "The login ends at {target}, and that is reached, at GTID position '{position}'",
    fatal=True,
)
GtidPurged = ErrorKind(
    1236,
    "Could not find GTID state requested by slave in any binlog files. Probably the slave state is too old and "
    "required binlog files have been purged.",
    fatal=True,
)
# Strict mode: the GTID itself is missing between a lower and a higher one
GtidMissing = ErrorKind(
    1236,
    "The binlog on the master is missing the GTID {gtid} requested by the slave (even though both a prior and a "
    "subsequent sequence number does exist), and GTID strict mode is enabled",
    fatal=True,
)
# The file was purged, or never was there
FirstFileMissing = ErrorKind(
    1236, "Could not find first log file name in binary log index file", fatal=True
)
# No event begins at the position (MariaDB names the last event read: none was)
ImpossiblePosition = ErrorKind(
    1236,
    "Client requested master to start replication from impossible position; the first event '{file}' at "
    "{position}, the last event read from '{file}' at 4, the last byte read from '{file}' at 4.",
    fatal=True,
)
# Inside a group whose events have no positions of their own (`classic_positions`). The text is ours
PositionInsideOvertaken = ErrorKind(
    1236,
    "The connection broke inside a large transaction, whose events have no positions here: let the slave apply "
    "what it has, then CHANGE MASTER TO its Relay_Master_Log_File and Exec_Master_Log_Pos, or use GTID; the first "
    "event '{file}' at {position}, the last event read from '{file}' at 4, the last byte read from '{file}' at 4.",
    fatal=True,
)
# ER_INCORRECT_GLOBAL_LOCAL_VAR: only the start of the server sets it; or `scope`, GLOBAL or SESSION, is all that it has
ReadOnlyVariable = ErrorKind(1238, "Variable '{variable}' is a read only variable")
VariableOfScope = ErrorKind(1238, "Variable '{variable}' is a {scope} variable")
# ER_OPERAND_COLUMNS
OperandColumns = ErrorKind(1241, "Operand should contain {count} column(s)", "21000")
# ER_SUBQUERY_NO_1_ROW
SubqueryHasRows = ErrorKind(1242, "Subquery returns more than 1 row", "21000")
# ER_UNKNOWN_STMT_HANDLER: `name` may be a number; `who` asks for it
UnknownPreparedStatement = ErrorKind(
    1243, "Unknown prepared statement handler ({name}) given to {who}"
)
# ER_DERIVED_MUST_HAVE_ALIAS
DerivedWithoutAlias = ErrorKind(1248, "Every derived table must have its own alias", "42000")
# ER_COLLATION_CHARSET_MISMATCH
CollationMismatch = ErrorKind(
    1253, "COLLATION '{collation}' is not valid for CHARACTER SET '{charset}'", "42000"
)
# ER_SLAVE_WAS_RUNNING: a note, and an error of START SLAVE UNTIL
SlaveWasRunning = ErrorKind(1254, "Slave is already running")
# ER_SLAVE_WAS_NOT_RUNNING: a note
SlaveWasNotRunning = ErrorKind(1255, "Slave already has been stopped")
# ER_CUT_VALUE_GROUP_CONCAT: a warning
CutValue = ErrorKind(1260, "Row {number} was cut by {function}")
# ER_WARN_DATA_OUT_OF_RANGE
ColumnOutOfRange = ErrorKind(1264, "Out of range value for column '{column}' at row {row}", "22003")
# WARN_DATA_TRUNCATED
ColumnTruncated = ErrorKind(1265, "Data truncated for column '{column}' at row {row}", "01000")
# ER_CANT_AGGREGATE_2COLLATIONS
IllegalMix = ErrorKind(
    1267, "Illegal mix of collations {one} and {other} for operation '{operation}'"
)
# ER_REVOKE_GRANTS
CannotRevokeAll = ErrorKind(
    1269, "Can't revoke all privileges for one or more of the requested users"
)
# ER_CANT_AGGREGATE_3COLLATIONS, ER_CANT_AGGREGATE_NCOLLATIONS
IllegalMixOfThree = ErrorKind(
    1270, "Illegal mix of collations {one}, {other}, {third} for operation '{operation}'"
)
IllegalMixOfMany = ErrorKind(1271, "Illegal mix of collations for operation '{operation}'")
# ER_UNKNOWN_COLLATION
UnknownCollation = ErrorKind(1273, "Unknown collation: '{name}'")
# ER_BAD_SLAVE_UNTIL_COND
BadSlaveUntil = ErrorKind(
    1277, "Incorrect parameter or combination of parameters for START SLAVE UNTIL"
)
# ER_WRONG_NAME_FOR_INDEX
WrongKeyName = ErrorKind(1280, "Incorrect index name '{name}'", "42000")
# ER_UNKNOWN_STORAGE_ENGINE
UnknownStorageEngine = ErrorKind(1286, "Unknown storage engine '{name}'", "42000")
# ER_OPTION_PREVENTS_STATEMENT
OptionPreventsStatement = ErrorKind(
    1290,
    "The MariaDB server is running with the {option} option so it cannot execute this statement",
)
OptionPreventsBecause = ErrorKind(
    1290,
    "The MariaDB server is running with the {option} option so it cannot execute this statement: {reason}",
)
# ER_DUPLICATED_VALUE_IN_TYPE
DuplicateLabel = ErrorKind(1291, "Column '{column}' has duplicated value '{value}' in {type}")
# ER_TRUNCATED_WRONG_VALUE: warnings
IncorrectMoment = ErrorKind(1292, "Incorrect {kind} value: '{value}'", "22007")
TruncatedValue = ErrorKind(1292, "Truncated incorrect {kind} value: '{value}'", "22007")
# ER_TRUNCATED_WRONG_VALUE: of a column with dates or times. `column` with its table, quoted
WrongTime = ErrorKind(
    1292, "Incorrect {kind} value: '{value}' for column {column} at row {row}", "22007"
)
# ER_INVALID_ON_UPDATE
InvalidOnUpdate = ErrorKind(1294, "Invalid ON UPDATE clause for '{column}' column")
# ER_UNSUPPORTED_PS
NotPreparable = ErrorKind(
    1295, "This command is not supported in the prepared statement protocol yet"
)
# ER_UNKNOWN_TIME_ZONE
UnknownTimeZone = ErrorKind(1298, "Unknown or incorrect time zone: '{name}'")
# ER_INVALID_CHARACTER_STRING
InvalidCharacterString = ErrorKind(1300, "Invalid {charset} character string: '{text}'")
# ER_WARN_ALLOWED_PACKET_OVERFLOWED: a warning; the function gives NULL
AllowedPacketOverflowed = ErrorKind(
    1301, "Result of {function}() was larger than max_allowed_packet ({limit}) - truncated"
)
# ER_SP_DOES_NOT_EXIST
NoSuchSavepoint = ErrorKind(1305, "SAVEPOINT {name} does not exist", "42000")
UnknownRoutine = ErrorKind(1305, "{kind} {name} does not exist", "42000")
# ER_QUERY_INTERRUPTED: KILL QUERY
QueryInterrupted = ErrorKind(1317, "Query execution was interrupted", "70100")
# ER_SP_FETCH_NO_DATA
NoRows = ErrorKind(1329, "No data - zero rows fetched, selected, or processed", "02000")
# ER_WRONG_OBJECT
WrongObject = ErrorKind(1347, "'{database}.{table}' is not of type '{kind}'")
# ER_NO_DEFAULT_FOR_FIELD
ColumnWithoutDefault = ErrorKind(1364, "Field '{column}' doesn't have a default value")
# ER_DIVISION_BY_ZERO: here always a warning
DivisionByZero = ErrorKind(1365, "Division by 0", "22012")
# ER_TRUNCATED_WRONG_VALUE_FOR_FIELD: as `WrongTime`
WrongColumnValue = ErrorKind(
    1366, "Incorrect {kind} value: '{value}' for column {column} at row {row}", "22007"
)
# ER_ILLEGAL_VALUE_FOR_TYPE
IllegalValue = ErrorKind(1367, "Illegal {kind} '{value}' value found during parsing", "22007")
# ER_PASSWD_LENGTH: a hash that is none
PasswordFormat = ErrorKind(1372, "Password hash should be a {expected}-digit hexadecimal number")
# ER_UNKNOWN_TARGET_BINLOG
UnknownTargetBinlog = ErrorKind(1373, "Target log not found in binlog index")
# ER_BINLOG_PURGE_PROHIBITED: a note
PurgeProhibited = ErrorKind(1375, "{text}")
# ER_LOG_IN_USE: not all that PURGE was to delete could go. Warnings say why
BinlogFileInUse = ErrorKind(1378, "A purgeable log is in use, will not purge")
# ER_PS_MANY_PARAM
TooManyPlaceholders = ErrorKind(1390, "Prepared statement contains too many placeholders")
# ER_CANNOT_USER: an account that is there already, or is not
CannotUser = ErrorKind(1396, "Operation {operation} failed for {names}")
# ER_XAER_NOTA: no transaction is prepared by that name
UnknownXid = ErrorKind(1397, "XAER_NOTA: Unknown XID", "XAE04")
# ER_XAER_INVAL: an empty name, or ONE PHASE for what is prepared already
InvalidXaArguments = ErrorKind(
    1398, "XAER_INVAL: Invalid arguments (or unsupported command)", "XAE05"
)
# ER_XAER_RMFAIL: not in this state of the session's XA transaction
XaWrongState = ErrorKind(
    1399,
    "XAER_RMFAIL: The command cannot be executed when global transaction is in the  {state} state",
    "XAE07",
)
# ER_XAER_OUTSIDE: the session has a transaction of its own open
OutsideXa = ErrorKind(1400, "XAER_OUTSIDE: Some work is done outside global transaction", "XAE09")
# ER_XA_RBROLLBACK
XaRolledBack = ErrorKind(1402, "XA_RBROLLBACK: Transaction branch was rolled back", "XA100")
# ER_DATA_TOO_LONG
ColumnTooSmall = ErrorKind(1406, "Data too long for column '{column}' at row {row}", "22001")
# ER_WRONG_VALUE_FOR_TYPE: a warning
WrongFunctionValue = ErrorKind(1411, "Incorrect {kind} value: '{value}' for function {function}")
# ER_TABLE_DEF_CHANGED: the table is newer than the transaction's snapshot
TableChanged = ErrorKind(1412, "Table definition has changed, please retry transaction")
# ER_STMT_HAS_NO_OPEN_CURSOR
NoOpenCursor = ErrorKind(1421, "The statement ({number}) has no open cursor")
# ER_TOO_BIG_SCALE
TooBigScale = ErrorKind(1425, "Too big scale specified for '{column}'. Maximum is {limit}", "42000")
# ER_TOO_BIG_PRECISION
TooBigPrecision = ErrorKind(
    1426, "Too big precision specified for '{column}'. Maximum is {limit}", "42000"
)
# ER_M_BIGGER_THAN_D
ScaleAbovePrecision = ErrorKind(
    1427, "For float(M,D), double(M,D) or decimal(M,D), M must be >= D (column '{column}')", "42000"
)
# ER_TOO_BIG_DISPLAYWIDTH
DisplayWidthOutOfRange = ErrorKind(
    1439, "Display width out of range for '{column}' (max = {limit})", "42000"
)
# ER_XAER_DUPID
DuplicateXid = ErrorKind(1440, "XAER_DUPID: The XID already exists", "XAE08")
# ER_DATETIME_FUNCTION_OVERFLOW: a warning
TimeOverflow = ErrorKind(1441, "Datetime function: {kind} field overflow", "22008")
# ER_MAX_PREPARED_STMT_COUNT_REACHED
TooManyPreparedStatements = ErrorKind(
    1461,
    "Can't create more than max_prepared_stmt_count statements (current value: {limit})",
    "42000",
)
# ER_WRONG_STRING_LENGTH: see `require_chars`
TooLongString = ErrorKind(
    1470, "String '{text}' is too long for {what} (should be no longer than {limit})"
)
# ER_PLUGIN_IS_NOT_LOADED
PluginNotLoaded = ErrorKind(1524, "Plugin '{plugin}' is not loaded")
# ER_WRONG_VALUE: text that is no date, or no time
WrongValue = ErrorKind(1525, "Incorrect {kind} value: '{value}'")
# ER_CANT_CHANGE_TX_CHARACTERISTICS: SET TRANSACTION is for the next one
TransactionInProgress = ErrorKind(
    1568, "Transaction characteristics can't be changed while a transaction is in progress", "25001"
)
# ER_WRONG_PARAMCOUNT_TO_NATIVE_FCT
WrongParameterCount = ErrorKind(
    1582, "Incorrect parameter count in the call to native function '{function}'", "42000"
)
# ER_BINLOG_UNSAFE_STATEMENT: a note
UnsafeStatement = ErrorKind(
    1592,
    "Unsafe statement written to the binary log using statement format since BINLOG_FORMAT = STATEMENT. {reason}",
)
# ER_XA_RBDEADLOCK: it was a deadlock's victim
XaVictim = ErrorKind(
    1614, "XA_RBDEADLOCK: Transaction branch was rolled back: deadlock was detected", "XA102"
)
# ER_DELAYED_NOT_SUPPORTED
DelayedNotSupported = ErrorKind(1616, "DELAYED option not supported for table '{table}'")
# WARN_NO_MASTER_INFO: there is no upstream of that name
NoMasterConnection = ErrorKind(1617, "There is no master connection '{name}'")
# WARN_OPTION_IGNORED: a note
OptionIgnored = ErrorKind(1618, "{option} option ignored")
# ER_VARIABLE_IS_READONLY: a session has the global value of its login
SessionReadOnly = ErrorKind(
    1621, "SESSION variable '{variable}' is read-only. Use SET GLOBAL to assign the value"
)
# ER_SLAVE_HEARTBEAT_VALUE_OUT_OF_RANGE. `maximum` in seconds
HeartbeatOutOfRange = ErrorKind(
    1624,
    "The requested value for the heartbeat period is either negative or exceeds the maximum allowed ({maximum} "
    "seconds)",
)
# ER_TOO_LONG_TABLE_COMMENT, ER_TOO_LONG_FIELD_COMMENT
TooLongTableComment = ErrorKind(1628, "Comment for table '{name}' is too long (max = {limit})")
TooLongColumnComment = ErrorKind(1629, "Comment for field '{name}' is too long (max = {limit})")
# ER_UNKNOWN_LOCALE
UnknownLocale = ErrorKind(1649, "Unknown locale: '{name}'")
# ER_BINLOG_STMT_MODE_AND_ROW_ENGINE
RowsOnlyTable = ErrorKind(
    1665,
    "Cannot execute statement: impossible to write to binary log since BINLOG_FORMAT = STATEMENT and at least one "
    "table uses a storage engine limited to row-based logging. InnoDB is limited to row-logging when transaction "
    "isolation level is READ COMMITTED or READ UNCOMMITTED.",
)
# ER_INSIDE_TRANSACTION_PREVENTS_SWITCH_BINLOG_FORMAT
FormatInsideTransaction = ErrorKind(
    1679, "Cannot modify @@session.binlog_format inside a transaction"
)
# ER_DATA_OUT_OF_RANGE
OutOfRange = ErrorKind(1690, "{kind} value is out of range in '{expression}'", "22003")
# ER_INSIDE_TRANSACTION_PREVENTS_SWITCH_SQL_LOG_BIN
LoggingInsideTransaction = ErrorKind(
    1694, "Cannot modify @@session.sql_log_bin inside a transaction"
)
# ER_SLAVE_HEARTBEAT_VALUE_OUT_OF_RANGE_MIN, _MAX: warnings
HeartbeatTooShort = ErrorKind(
    1703,
    "The requested value for the heartbeat period is less than 1 millisecond. The value is reset to 0, meaning "
    "that heartbeating will effectively be disabled",
)
HeartbeatTooLong = ErrorKind(
    1704,
    "The requested value for the heartbeat period exceeds the value of `slave_net_timeout' seconds. A sensible "
    "value for the period should be less than the timeout",
)
# ER_UNKNOWN_EXPLAIN_FORMAT, which XA RECOVER uses, too
UnknownXaFormat = ErrorKind(1791, "Unknown XA RECOVER format name: '{name}'")
# ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION
ReadOnlyTransaction = ErrorKind(
    1792, "Cannot execute statement in a READ ONLY transaction", "25006"
)
# ER_INTERNAL_ERROR: a mistake of the server's own
InternalError = ErrorKind(1815, "Internal error: {text}")
# ER_DUP_CONSTRAINT_NAME
DuplicateConstraintName = ErrorKind(1826, "Duplicate CHECK constraint name '{name}'")
# ER_DUP_INDEX: a note
DuplicateIndex = ErrorKind(
    1831,
    "Duplicate index `{name}`. This is deprecated and will be disallowed in a future release",
)
# ER_MALFORMED_PACKET: a command whose body is cut short
MalformedPacket = ErrorKind(1835, "Malformed communication packet")
# ER_GENERATED_COLUMN_FUNCTION_IS_NOT_ALLOWED
FunctionNotAllowed = ErrorKind(
    1901, "Function or expression '{function}' cannot be used in the {clause} clause of `{name}`"
)
# ER_PRIMARY_KEY_BASED_ON_GENERATED_COLUMN, ER_WARNING_NON_DEFAULT_VALUE_FOR_GENERATED_COLUMN,
# ER_UNSUPPORTED_ACTION_ON_GENERATED_COLUMN
GeneratedPrimaryKey = ErrorKind(1903, "Primary key cannot be defined upon a generated column")
GeneratedValueIgnored = ErrorKind(
    1906, "The value specified for generated column '{column}' in table '{table}' has been ignored"
)
UnsupportedOnGenerated = ErrorKind(1907, "This is not yet supported for generated columns")
# ER_DATA_OVERFLOW: a warning
DataOverflow = ErrorKind(
    1916, "Got overflow when converting '{value}' to {kind}. Value truncated", "22003"
)
# ER_CONNECTION_KILLED: by KILL, while a statement was being answered
ConnectionKilled = ErrorKind(1927, "Connection was killed", "70100", fatal=True)
# ER_INSIDE_TRANSACTION_PREVENTS_SWITCH_SKIP_REPLICATION
SkippingInsideTransaction = ErrorKind(
    1929, "Cannot modify @@session.skip_replication inside a transaction"
)
# ER_SLAVE_STARTED, ER_SLAVE_STOPPED: notes
SlaveStarted = ErrorKind(1937, "SLAVE '{name}' started")
SlaveStopped = ErrorKind(1938, "SLAVE '{name}' stopped")
# ER_INCORRECT_GTID_STATE
BadGtidList = ErrorKind(1941, "Could not parse GTID list")
GtidListTooLong = ErrorKind(
    1941,
    "Could not parse GTID list: it has {size} bytes, and {most} are the most. Leave out domains that are not used "
    "any more (FLUSH BINARY LOGS DELETE_DOMAIN_ID there); a new store takes longer ones from binlog-server seed",
)
# ER_DUPLICATE_GTID_DOMAIN: `later` and `earlier` in the order of the text
DuplicateGtidDomain = ErrorKind(
    1943, "GTID {later} and {earlier} conflict (duplicate domain id {domain_id})"
)
# ER_GTID_STRICT_OUT_OF_ORDER
GtidOutOfOrder = ErrorKind(
    1950,
    "An attempt was made to binlog GTID {gtid} which would create an out-of-order sequence number with existing "
    "GTID {existing}, and gtid strict mode is enabled",
)
# ER_INSIDE_TRANSACTION_PREVENTS_SWITCH_GTID_DOMAIN_ID_SEQ_NO
GtidInsideTransaction = ErrorKind(
    1953, "Cannot modify @@session.gtid_domain_id or @@session.gtid_seq_no inside a transaction"
)
# ER_BINLOG_MUST_BE_EMPTY
BinlogNotEmpty = ErrorKind(
    1956,
    "This operation is not allowed if any GTID has been logged to the binary log. Run RESET MASTER first to erase "
    "the log",
)
# ER_NO_SUCH_QUERY
UnknownQueryId = ErrorKind(1957, "Unknown query id: {query_id}")
# ER_INVALID_ROLE
# With the letter O, as MariaDB sends it.
InvalidRole = ErrorKind(1959, "Invalid role specification `{role}`", "OP000")
# ER_STATEMENT_TIMEOUT: of max_statement_time, or of what a question here may take
StatementTimeout = ErrorKind(
    1969, "Query execution was interrupted (max_statement_time exceeded)", "70100"
)
# ER_SUBQUERIES_NOT_SUPPORTED
SubqueriesNotSupported = ErrorKind(1970, "{place} does not support subqueries or stored functions")
# ER_SET_STATEMENT_NOT_SUPPORTED
NotInSetStatement = ErrorKind(
    1971, "The system variable {variable} cannot be set in SET STATEMENT.", "42000"
)
# ER_USER_CREATE_EXISTS, ER_USER_DROP_EXISTS: notes
UserExists = ErrorKind(1973, "Can't create user {user}; it already exists")
UserAbsent = ErrorKind(1974, "Can't drop user {user}; it doesn't exist")
# ER_SECURE_TRANSPORT_REQUIRED
SecureTransportRequired = ErrorKind(
    3159,
    "Connections using insecure transport are prohibited while --require_secure_transport=ON.",
    "08004",
    fatal=True,
)
# ER_WITH_COL_WRONG_LIST
WrongColumnList = ErrorKind(
    4002, "WITH column list and SELECT field list have different column counts"
)
# ER_CONSTRAINT_FAILED
CheckFailed = ErrorKind(4025, "CONSTRAINT `{name}` failed for `{schema}`.`{table}`", "23000")
# ER_EXPRESSION_REFERS_TO_UNINIT_FIELD
UninitializedColumn = ErrorKind(
    4029, "Expression for field `{column}` is referring to uninitialized field `{name}`", "01000"
)
# ER_JSON_BAD_CHR, ER_JSON_EOS, ER_JSON_SYNTAX, ER_JSON_DEPTH, ER_JSON_PATH_SYNTAX, ER_JSON_PATH_NO_WILDCARD: warnings
JsonCharacter = ErrorKind(
    4036,
    "Character disallowed in JSON in argument {number} to function '{function}' at position {at}",
)
JsonEnds = ErrorKind(
    4037, "Unexpected end of JSON text in argument {number} to function '{function}'"
)
JsonSyntax = ErrorKind(
    4038,
    "Syntax error in JSON text in argument {number} to function '{function}' at position {at}",
)
JsonTooDeep = ErrorKind(
    4040,
    "Limit of 32 on JSON nested structures depth is reached in argument {number} to function '{function}' "
    "at position {at}",
)
JsonPathSyntax = ErrorKind(
    4042,
    "Syntax error in JSON path in argument {number} to function '{function}' at position {at}",
)
JsonPathNoWildcard = ErrorKind(
    4044,
    "Wildcards or range in JSON path not allowed in argument {number} to function '{function}'",
)
# ER_JSON_ONE_OR_ALL, ER_JSON_PATH_EMPTY: warnings
JsonOneOrAll = ErrorKind(
    4046, 'Argument {number} to function \'{function}\' must be "one" or "all".'
)
JsonPathNotAllowed = ErrorKind(
    4051, "Path expression '{path}' is not allowed in argument {number} to function '{function}'."
)
# The older dump with the same server_id hears this when a newer one begins
DuplicateServerId = ErrorKind(
    4052, "A slave with the same server_id is already connected", fatal=True
)
# ER_ILLEGAL_PARAMETER_DATA_TYPES2_FOR_OPERATION
IllegalParameterTypes = ErrorKind(
    4078, "Illegal parameter data types {one} and {other} for operation '{operation}'"
)
# The same number, in the text of 11.8 for an assignment
CannotCastInAssignment = ErrorKind(
    4078, "Cannot cast '{source}' as '{target}' in assignment of {column}"
)
# ER_ILLEGAL_PARAMETER_DATA_TYPE_FOR_OPERATION
IllegalParameterType = ErrorKind(
    4079, "Illegal parameter data type {given} for operation '{operation}'"
)
# ER_BACKUP_LOCK_IS_ACTIVE
BackupStageActive = ErrorKind(4145, "Can't execute the command as you have a BACKUP STAGE active")
# ER_BACKUP_NOT_RUNNING
BackupNotRunning = ErrorKind(4146, 'You must start backup with "BACKUP STAGE START"')
# ER_BACKUP_WRONG_STAGE
BackupStagePassed = ErrorKind(
    4147, "Backup stage '{stage}' is same or before current backup stage '{current}'"
)
# ER_BACKUP_UNKNOWN_STAGE
UnknownBackupStage = ErrorKind(
    4149,
    "Unknown backup stage: '{stage}'. Stage should be one of START, FLUSH, BLOCK_DDL, BLOCK_COMMIT or END",
)
# ER_ACCOUNT_HAS_BEEN_LOCKED
AccountLocked = ErrorKind(4151, "Access denied, this account is locked", fatal=True)
# ER_BINLOG_IN_USE
BinlogHasReaders = ErrorKind(4243, "{text}")
# ER_BINLOG_IN_USE_TRX
BinlogHasTransactions = ErrorKind(4244, "{text}")
# ER_ENGINE_BINLOG_REQUIRES_GTID, with the text that 12.3 sends to a replica
EngineBinlogNeedsGtid = ErrorKind(
    4246, "Slave must enable GTID mode when master uses --binlog-storage-engine", fatal=True
)
# ER_NOT_AVAILABLE_WITH_ENGINE_BINLOG: `feature` has no meaning in an engine binlog
EngineBinlogUnavailable = ErrorKind(
    4247, "{feature} is not available when --binlog-storage-engine is enabled"
)
# ER_BINLOG_CANNOT_READ_STATE
BinlogStateUnreadable = ErrorKind(4250, "Error reading GTID state from the binlog")

_PASSING: Final = frozenset(
    kind.errno
    for kind in (
        TooManyConnections,
        ServerShutdown,
        TooManyUserConnections,
        QueryInterrupted,
        ConnectionKilled,
    )
)


def require_chars(text: str, what: str, limit: int) -> None:
    """Raises 1470 for a text of more characters, of which it tells 70 bytes, as MariaDB does."""
    if len(text) > limit:
        data = text.encode("utf-8", "surrogateescape")
        shown = text if len(data) <= 70 else data[:67].decode("utf-8", "ignore") + "..."
        raise TooLongString(shown, what, limit)
