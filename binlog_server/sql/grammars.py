"""Grammars of statements: the rules of a file and of its families, put together; text to statements by them.

The tables of a parser are compiled as modules are: to be made they take four times as long as to be loaded, so they are
kept where Python keeps a compiled module of that name, under the same conditions (`PYTHONDONTWRITEBYTECODE`,
`PYTHONPYCACHEPREFIX`, a folder that may be written), by whoever needs them first.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from collections.abc import Sequence
from functools import cached_property, partial
from hashlib import sha256
from importlib.util import cache_from_source
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from binlog_protocol.errors import SqlSyntaxError
from binlog_protocol.sql.plain import plain
from binlog_protocol.sql.tokens import STRING_OR_REST
from lark import Lark, Token, Transformer
from lark import __version__ as lark_version
from lark.exceptions import UnexpectedInput, UnexpectedToken, VisitError
from lark.lexer import PatternRE, PatternStr, TerminalDef

from binlog_server.sql.statement import Family, Statement
from binlog_server.sql.tokens import NEAR_CHARS

# Characters of a statement that is parsed. No statement that this server understands is longer.
STATEMENT_CHARS_MAX: Final = 64 * 1024
# Characters without those inside of strings: parsing takes 10 to 20 us for each.
CODE_CHARS_MAX: Final = 4 * 1024
# A longer statement is parsed in a thread, so that the loop does not wait; this much takes 3 ms at worst.
LOOP_CHARS_MAX: Final = 128

_STRING: Final = re.compile(STRING_OR_REST, re.DOTALL)
_KEY_WORD: Final = 1
_MODE: Final = 0o644  # of what is kept: it is run, so nobody else may write it


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
    def lark(self) -> Lark:
        """The parser. At the first call it is loaded (0.02 s of processor time), or made (0.1 s) and kept."""
        parts = (self.text, lark_version, Path(__file__).read_text(encoding="utf-8"))
        digest = sha256("\0".join(parts).encode()).digest()
        kept = Path(cache_from_source(str(Path(__file__).with_name(self._file)))).with_suffix(
            ".tables"
        )
        found = _kept_tables(kept, digest)
        if found is None:
            found = Lark(
                self.text,
                parser="lalr",
                propagate_positions=True,
                maybe_placeholders=True,
                edit_terminals=_whole_words,
            )
            if not sys.dont_write_bytecode:
                _keep_tables(found, kept, digest)
        return found

    @cached_property
    def _builder(self) -> type[_Builder]:
        parts = dict.fromkeys(family.builder for family in self._families)
        parts.pop(Transformer, None)
        return type("Builder", (_Builder, *parts), {"statements": self.statements})

    def is_begun_by(self, words: Sequence[str]) -> bool:
        """Whether a statement with these first words, in upper case, has a beginning of this grammar's families."""
        return any(tuple(words[: len(beginning)]) == beginning for beginning in self.beginnings)

    def parse(self, text: str, parameters: Sequence[object] | None = None) -> Any:
        """A statement. Raises `SqlSyntaxError` (1064), and the `ServerError` that a method of a builder raises.

        Args:
            parameters: what stands in the places of a prepared statement's question marks; None: it is none.
        """
        quotes_strings = self._quotes_strings
        if is_too_long(text):
            raise SqlSyntaxError(text[:NEAR_CHARS] if quotes_strings else "")
        text, lark = plain(text), self.lark
        try:
            tree = lark.parse(text)
        except UnexpectedInput as error:
            at = error.pos_in_stream if error.pos_in_stream is not None else len(text)
            if isinstance(error, UnexpectedToken) and error.token.type == "$END":
                at = len(text)
            # Searched from the beginning, so that the end of a string is not taken for text.
            shown = text if quotes_strings else _STRING.sub(lambda found: "?" * len(found[0]), text)
            raise SqlSyntaxError(shown[at : at + NEAR_CHARS], text.count("\n", 0, at) + 1) from None
        try:
            return self._builder(text, parameters).transform(tree)
        except VisitError as error:  # lark wraps what a method of the builder raises
            raise error.orig_exc from None
        except RecursionError:  # conditions nested too deep
            raise SqlSyntaxError(text[:NEAR_CHARS] if quotes_strings else "") from None


class _Builder(Transformer[Token, Any]):
    """Parse trees to statements; the families' builders have methods for the other rules."""

    statements: dict[str, type[Statement]]

    def __init__(self, text: str, parameters: Sequence[object] | None) -> None:
        super().__init__()
        self.text = text
        self._parameters = None if parameters is None else iter(parameters)

    def PARAMETER(self, token: Token) -> object:
        """Tokens come in the order of the text."""
        if self._parameters is None:
            at = token.start_pos or 0
            raise SqlSyntaxError(self.text[at : at + NEAR_CHARS], self.text.count("\n", 0, at) + 1)
        return next(self._parameters)

    def start(self, children: list[Any]) -> Any:
        return children[0]

    def __default__(self, data: str, children: list[Any], meta: object) -> Statement:
        return self.statements[data].built(children)


def _kept_tables(kept: Path, digest: bytes) -> Lark | None:
    """What was kept of a parser; None if there is nothing, or it is damaged, or of another grammar or version."""
    try:
        data = kept.read_bytes()
    except OSError:
        return None
    tables = data[len(digest) :]
    if data[: len(digest)] != _sealed(digest, tables):
        return None
    # A pickle runs what it says, as the compiled modules beside it do.
    return Lark.load(BytesIO(tables))


def _keep_tables(made: Lark, kept: Path, digest: bytes) -> None:
    """Not where it cannot be: then the next start makes them, too."""
    tables = BytesIO()
    made.save(tables)
    new = kept.with_name(f"{kept.name}.{os.getpid()}.{threading.get_ident()}")
    with contextlib.suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(new, "wb", opener=partial(os.open, mode=_MODE)) as file:
                file.write(_sealed(digest, tables.getvalue()) + tables.getvalue())
            new.replace(kept)
        except OSError:
            new.unlink(missing_ok=True)
            raise


def _sealed(digest: bytes, tables: bytes) -> bytes:
    """Not only of what they are made of: a power cut can leave anything, and a pickle of anything raises anything."""
    return sha256(digest + tables).digest()


def is_too_long(text: str, code_chars_max: int = CODE_CHARS_MAX) -> bool:
    """Whether a statement is too long for the grammars, and so a syntax error.

    Args:
        code_chars_max: characters outside of strings, at most.
    """
    return len(text) > code_chars_max and (
        len(text) > STATEMENT_CHARS_MAX or len(_STRING.sub("''", text)) > code_chars_max
    )


def _whole_words(terminal: TerminalDef) -> None:
    """For `Lark(edit_terminals=)`: a key word matches whole words only, so that REPLICA does not match in REPLICAS."""
    pattern = terminal.pattern
    if isinstance(pattern, PatternStr) and re.fullmatch(r"\w+", pattern.value):
        terminal.pattern = PatternRE(rf"{pattern.value}(?![a-zA-Z0-9_$])", pattern.flags)
        terminal.priority = _KEY_WORD  # above that of names
