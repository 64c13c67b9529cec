"""Grammars of statements: the rules of a file and of its families, put together; text to statements by them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.errors import SqlSyntaxError
from binlog_protocol.sql.plain import plain
from binlog_protocol.sql.tokens import STRING_OR_REST

from binlog_server.sql.statement import Family, Statement
from binlog_server.sql.tokens import NEAR_CHARS

if TYPE_CHECKING:
    from lark import Lark

    from binlog_server.sql.lark_parser import LarkParser

# Characters of a statement that is parsed. No statement that this server understands is longer.
STATEMENT_CHARS_MAX: Final = 64 * 1024
# Characters without those inside of strings: parsing takes 10 to 20 us for each.
CODE_CHARS_MAX: Final = 4 * 1024
# A longer statement is parsed in a thread, so that the loop does not wait; this much takes 3 ms at worst.
LOOP_CHARS_MAX: Final = 128

_STRING: Final = compiled_later(STRING_OR_REST, re.DOTALL)


def rule_of(statement: type[Statement]) -> str:
    """The name of the rule for a statement: that of its class, as `show_binary_logs`."""
    return re.sub(r"\B(?=[A-Z])", "_", statement.__name__).lower()


class Grammar:
    """A grammar of statements.

    Args:
        file: the rules and terminals that more than one family names, in this folder; all statements, if the families
            have none.
        quotes_strings: whether a syntax error may quote strings of the statement; not if one may be a password.
    """

    def __init__(self, file: str, families: Sequence[Family], *, quotes_strings: bool) -> None:
        self._file = file
        self._families = families
        self._quotes_strings = quotes_strings
        self.statements: Final = {
            rule_of(statement): statement for family in families for statement in family.statements
        }
        self.beginnings: Final = [words for family in families for words in family.beginnings]

    @cached_property
    def text(self) -> str:
        """All rules, as lark reads them."""
        shared = Path(__file__).with_name(self._file).read_text(encoding="utf-8")
        rules = {name: statement.syntax.strip() for name, statement in self.statements.items()}
        if rules:
            rules["?statement"] = " | ".join(rules)
        rules["start"] = 'statement ";"*'
        lines = [f"{name}: {rule}" for name, rule in rules.items()]
        return "\n".join([shared, *lines, *(family.rules for family in self._families)])

    @cached_property
    def _parser(self) -> LarkParser:
        from binlog_server.sql.lark_parser import LarkParser  # see there

        return LarkParser(
            Path(__file__).with_name(self._file),
            self.text,
            self.statements,
            [family.builder for family in self._families],
            quotes_strings=self._quotes_strings,
        )

    @property
    def lark(self) -> Lark:
        """The parser of lark: had at the first call."""
        return self._parser.lark

    def is_begun_by(self, words: Sequence[str]) -> bool:
        """Whether a statement with these first words, in upper case, has a beginning of this grammar's families."""
        return any(tuple(words[: len(beginning)]) == beginning for beginning in self.beginnings)

    def parse(self, text: str, parameters: Sequence[object] | None = None) -> Any:
        """A statement. Raises `SqlSyntaxError` (1064), and the `ServerError` that a method of a builder raises.

        Args:
            parameters: what stands in the places of a prepared statement's question marks; None: it is none.
        """
        if is_too_long(text):
            raise SqlSyntaxError(text[:NEAR_CHARS] if self._quotes_strings else "")
        return self._parser.parse(plain(text), parameters)


def is_too_long(text: str, code_chars_max: int = CODE_CHARS_MAX) -> bool:
    """Whether a statement is too long for the grammars, and so a syntax error.

    Args:
        code_chars_max: characters outside of strings, at most.
    """
    return len(text) > code_chars_max and (
        len(text) > STATEMENT_CHARS_MAX or len(_STRING.sub("''", text)) > code_chars_max
    )
