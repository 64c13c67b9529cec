"""The side of a grammar that is lark's: its tables, text to a tree, the tree to a statement.

Loaded by the first statement that needs a grammar: lark and the tables take as long as a quarter of a start.

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
from collections.abc import Mapping, Sequence
from functools import partial
from hashlib import sha256
from importlib.util import cache_from_source
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.errors import SqlSyntaxError
from binlog_protocol.sql.tokens import STRING_OR_REST
from lark import Lark, Token, Transformer, v_args
from lark import __version__ as lark_version
from lark.exceptions import UnexpectedInput, UnexpectedToken, VisitError
from lark.lexer import PatternRE, PatternStr, TerminalDef

from binlog_server.sql.statement import Rules, Statement
from binlog_server.sql.tokens import NEAR_CHARS

_STRING: Final = compiled_later(STRING_OR_REST, re.DOTALL)
_KEY_WORD: Final = 1
_MODE: Final = 0o644  # of what is kept: it is run, so nobody else may write it


class LarkParser:
    """The parser of one grammar.

    Args:
        file: the name under which its tables are kept.
        rules: all of them, as lark reads them.
        statements: by their rules.
        families: the methods for the other rules.
        quotes_strings: see `Grammar`.
    """

    def __init__(
        self,
        file: Path,
        rules: str,
        statements: Mapping[str, type[Statement]],
        families: Sequence[type[Rules]],
        *,
        quotes_strings: bool,
    ) -> None:
        self.lark: Final = _loaded(file, rules)
        parts = tuple(part for part in dict.fromkeys(families) if part is not Rules)
        placed = {
            name: v_args(meta=True)(getattr(part, name)) for part in parts for name in part.placed
        }
        self._builder: Final[type[_Builder]] = type(
            "Builder", (_Builder, *parts), {"statements": statements, **placed}
        )
        self._quotes_strings = quotes_strings

    def parse(self, text: str, parameters: Sequence[object] | None) -> Any:
        """See `Grammar.parse`."""
        quotes_strings = self._quotes_strings
        try:
            tree = self.lark.parse(text)
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


def _loaded(file: Path, rules: str) -> Lark:
    """Loaded (0.02 s of processor time), or made (0.1 s) and kept."""
    parts = (rules, lark_version, Path(__file__).read_text(encoding="utf-8"))
    digest = sha256("\0".join(parts).encode()).digest()
    kept = Path(cache_from_source(str(file))).with_suffix(".tables")
    found = _kept_tables(kept, digest)
    if found is None:
        found = Lark(
            rules,
            parser="lalr",
            propagate_positions=True,
            maybe_placeholders=True,
            edit_terminals=_whole_words,
        )
        if not sys.dont_write_bytecode:
            _keep_tables(found, kept, digest)
    return found


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


def _whole_words(terminal: TerminalDef) -> None:
    """For `Lark(edit_terminals=)`: a key word matches whole words only, so that REPLICA does not match in REPLICAS."""
    pattern = terminal.pattern
    if isinstance(pattern, PatternStr) and re.fullmatch(r"\w+", pattern.value):
        terminal.pattern = PatternRE(rf"{pattern.value}(?![a-zA-Z0-9_$])", pattern.flags)
        terminal.priority = _KEY_WORD  # above that of names
