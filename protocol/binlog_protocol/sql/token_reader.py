"""Going through the tokens of a statement, from one to the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from binlog_protocol.sql.tokens import Token, TokenKind

ALL: Final = "*"
_SHOWN: Final = 40  # characters


class TableName(NamedTuple):
    """`table` is `*` for all tables of a database."""

    database: str
    table: str

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"


class NotUnderstood(Exception):
    """Something stands in a statement that is not known here; the text says what."""


class TokenReader:
    """`at` is the number of the token that is next; `database` the one in use."""

    def __init__(self, found: Sequence[Token], database: str) -> None:
        self.tokens: Final = found
        self.database: Final = database
        self.at = 0

    def name(self) -> TableName:
        first = self.identifier()
        if self.sign("."):
            return TableName(first, self.identifier())
        return TableName(self.database, first)

    def identifier(self) -> str:
        token = self.token()
        if token is None or token.kind not in (TokenKind.WORD, TokenKind.QUOTED):
            raise NotUnderstood(f"no name, but {self.shown()}")
        self.at += 1
        return token.text

    def skip_to(self, word: str) -> None:
        """Move behind the next such word. Raises `NotUnderstood` without one."""
        while self.word() != word:
            if self.at >= len(self.tokens):
                raise NotUnderstood(f"no {word}")
            self.at += 1
        self.at += 1

    def accept(self, *words: str) -> bool:
        """Goes over these words, if they are all there."""
        at = self.at
        for word in words:
            if self.word() != word:
                self.at = at
                return False
            self.at += 1
        return True

    def sign(self, sign: str) -> bool:
        """Goes over that sign, if it is the next token."""
        found = self.is_sign(sign)
        self.at += found
        return found

    def word(self) -> str:
        """The word that is next, in capitals; empty if it is none."""
        token = self.token()
        return token.text.upper() if token is not None and token.kind is TokenKind.WORD else ""

    def is_at_end(self) -> bool:
        return self.at >= len(self.tokens)

    def skip_element(self) -> None:
        """Move to the next comma or ) that is outside of brackets, or to the end."""
        while not (self.is_at_end() or self.is_sign(",") or self.is_sign(")")):
            self.skip_one()

    def skip_one(self) -> None:
        """Over a token, or all between two brackets."""
        depth = 0
        while True:
            if self.is_at_end():
                raise NotUnderstood("its end is missing")
            if self.is_sign("("):
                depth += 1
            elif self.is_sign(")"):
                depth -= 1
            self.at += 1
            if depth <= 0:
                return

    def expect(self, sign: str) -> None:
        if not self.sign(sign):
            raise NotUnderstood(f"no {sign}, but {self.shown()}")

    def is_sign(self, sign: str) -> bool:
        """Whether that sign is the next token."""
        token = self.token()
        return token is not None and token.kind is TokenKind.SIGN and token.text == sign

    def shown(self) -> str:
        """The next token, for an error."""
        token = self.token()
        return "its end" if token is None else repr(token.text[:_SHOWN])

    def token(self) -> Token | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None
