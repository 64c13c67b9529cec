"""Options of a table or a database: its character set, and whether the table is versioned. Others are passed over."""

from __future__ import annotations

from typing import Final

from binlog_protocol.dataclass import dataclass
from binlog_protocol.sql.token_reader import NotUnderstood
from binlog_protocol.sql.tokens import TokenKind
from binlog_protocol.tables.ddl_types import charset_of_collation, charset_of_name

from binlog_pipeline.schemas.ddl_columns import ColumnReader

_WITHOUT_EQUALS: Final = frozenset((
    "ENGINE", "AUTO_INCREMENT", "AVG_ROW_LENGTH", "CHECKSUM", "TABLE_CHECKSUM", "COMMENT", "CONNECTION",
    "DELAY_KEY_WRITE", "INSERT_METHOD", "KEY_BLOCK_SIZE", "MAX_ROWS", "MIN_ROWS", "PACK_KEYS", "PAGE_CHECKSUM",
    "PASSWORD", "ROW_FORMAT", "STATS_AUTO_RECALC", "STATS_PERSISTENT", "STATS_SAMPLE_PAGES", "TABLESPACE",
    "TRANSACTIONAL", "TYPE",
))  # fmt: skip
_QUERY: Final = frozenset(("SELECT", "AS", "IGNORE", "REPLACE", "VALUES"))


@dataclass(slots=True)
class Options:
    """The options of a table; None for those that the statement does not have. `engine` in small letters.

    is_reset: the character set is that of the database, or of the server.
    """

    charset: str | None = None
    collation_charset: str | None = None
    is_reset: bool = False
    is_versioned: bool = False
    engine: str | None = None

    def of(self, default: str | None) -> str | None:
        """The character set, where it would be `default`; None if that is not known."""
        return self.charset or self.collation_charset or default

    @property
    def says_charset(self) -> bool:
        """Whether the table has another one by them."""
        return self.is_reset or self.of(None) is not None


class OptionsReader(ColumnReader):
    """Reads the options of a table: ENGINE, character set, and the others."""

    def options(self, into: Options) -> None:
        """Read all options up to the end of the statement. Raises `NotUnderstood`."""
        while not self.is_at_end():
            if self.sign(","):
                continue
            if self.accept("PARTITION", "BY"):
                self._partitions()
            else:
                self.option(into)

    def option(self, into: Options) -> None:
        """The one that is next. Raises `NotUnderstood`."""
        if self.word() in _QUERY or self.is_sign("("):
            raise NotUnderstood("columns that come from a query")
        if self.accept("WITH", "SYSTEM", "VERSIONING"):
            into.is_versioned = True
            return
        self.accept("DEFAULT")
        if self.accept_charset():
            self.sign("=")
            if self.accept("DEFAULT"):
                into.is_reset = True
            else:
                into.charset = charset_of_name(self.text())
        elif self.accept("COLLATE"):
            self.sign("=")
            into.collation_charset = charset_of_collation(self.text())
        elif self.word() in ("ENGINE", "TYPE"):
            self.at += 1
            self.sign("=")
            into.engine = self.text().lower()
        else:
            self._other()

    def _other(self) -> None:
        shown = self.shown()
        needs_no_sign = self.word() in _WITHOUT_EQUALS
        if self.accept("DATA", "DIRECTORY") or self.accept("INDEX", "DIRECTORY"):
            needs_no_sign = True
        elif self.accept("UNION"):
            self.sign("=")
            self.skip_one()
            return
        else:
            self.identifier()
        if not self.sign("=") and not needs_no_sign:
            raise NotUnderstood(f"option {shown}")
        self.sign("-")
        self.text()

    def _partitions(self) -> None:
        """Step over the partitions, which stand at the end. Raises `NotUnderstood` for a query behind them."""
        while not self.is_at_end():
            token = self.token()
            if token is not None and token.kind is TokenKind.WORD and token.text.upper() in _QUERY:
                raise NotUnderstood("columns that come from a query")
            self.skip_one()
