"""Which tables are wanted, and whether a statement concerns them."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import ProtocolError
from binlog_protocol.sql.statements import ALL, StatementMeaning, TableName

from binlog_pipeline.errors import BadOption
from binlog_pipeline.groups import Groups
from binlog_pipeline.schemas.logged_statements import LoggedStatement, ddl_of, may_be_ddl
from binlog_pipeline.table_names import parsed_table

_WILD = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class Subscription:
    """`patterns` are of names as they are logged, with * ? [] in them; none at all are all tables."""

    patterns: tuple[TableName, ...]

    @classmethod
    def parse(cls, patterns: Sequence[str]) -> Subscription:
        """`db.table` each, as globs. Raises `BadOption`."""
        found = []
        for pattern in patterns:
            try:
                found.append(parsed_table(pattern))
            except ValueError:
                raise BadOption(
                    f"tables: {pattern!r} is no pattern of the form database.table, such as shop.*"
                ) from None
        return cls(tuple(found))

    @classmethod
    def one(cls, database: str, table: str) -> Subscription:
        """A table by its exact name."""
        return cls((TableName(_escaped(database), _escaped(table)),))

    def has(self, database: str, table: str) -> bool:
        """Whether rows of a table are wanted. Upper and lower case are not the same."""
        return not self.patterns or any(
            fnmatchcase(database, pattern.database) and fnmatchcase(table, pattern.table)
            for pattern in self.patterns
        )

    def empties(self, statement: StatementMeaning) -> list[TableName]:
        """Tables that are wanted, and are empty behind the statement; `*` for all of a database."""
        return [name for name in statement.emptied if self.has_any(name)]

    def has_any(self, name: TableName) -> bool:
        """The same of a table, or any of a database for `*`."""
        return self.has(*name) or (name.table == ALL and self.has_database(name.database))

    def may_concern(self, statement: StatementMeaning) -> bool:
        """Whether a statement may change columns of a table that is wanted.

        Upper and lower case are the same here: on some servers they are.
        """
        return not statement.is_certain or any(map(self._may_mean, statement.affected))

    def may_write(self, statement: LoggedStatement) -> bool:
        """Whether a statement that is not logged as rows may have changed rows of a database that is wanted."""
        if not self.patterns or self.has_database(statement.database):
            return True
        text = statement.sql.casefold()
        return any(
            _WILD & {*pattern.database} or pattern.database.casefold() in text
            for pattern in self.patterns
        )

    def has_database(self, database: str) -> bool:
        """Whether rows of any table of it are wanted."""
        return not self.patterns or any(fnmatchcase(database, p.database) for p in self.patterns)

    def _may_mean(self, name: TableName) -> bool:
        database, table = name.database.casefold(), name.table.casefold()
        return not self.patterns or any(
            fnmatchcase(database, pattern.database.casefold())
            and (table == ALL or fnmatchcase(table, pattern.table.casefold()))
            for pattern in self.patterns
        )


def _escaped(name: str) -> str:
    return "".join(f"[{letter}]" if letter in _WILD else letter for letter in name)


@dataclass(frozen=True, slots=True)
class DdlBarrier:
    """See `Barrier`: a batch begins with each statement that may change the columns of a table that is wanted."""

    subscription: Subscription

    def __call__(self, groups: Groups, i: int) -> bool:
        if not may_be_ddl(int(groups.flags2[i])):
            return False
        try:
            found = ddl_of(groups.payloads[i])
        except (
            ProtocolError
        ):  # cut off in a large group, or unknown here: then it is better to begin anew
            return True
        return found is not None and self.subscription.may_concern(found.meaning)
