"""A statement that this server answers, as a class: its syntax, the privileges that it needs, its answer.

A module has a family of them, with a `Family` at its end. `parser` has all families.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Self

from lark import Token, Transformer

if TYPE_CHECKING:
    from binlog_server.sql.sql_session import SqlSession
    from binlog_server.sql.view import Result

ANYBODY: Final[tuple[str, ...]] = ()
LOOK: Final = ("SUPER", "BINLOG MONITOR")
LOOK_AT_FILES: Final = (*LOOK, "BINLOG ADMIN")
CHANGE_FILES: Final = ("SUPER", "BINLOG ADMIN")


class Statement:
    """A statement as a value. Its docstring says what it is, its fields what it says.

    Names and meanings of privileges are MariaDB's; docs/rights.md shows them beside MariaDB's own, with the reason for
    each difference.

    syntax: the right side of its rule, in the language of lark. The rule has the name of the class: `rule_of`.
    needs: the privileges of which any one will do; for ALL PRIVILEGES and BINLOG REPLAY see
        `accounts.privileges.suffices`.
    is_free_for_ones_own: it needs none for one's own connections. Only the answer knows whose they are, so it checks
        the privileges itself, and for those of others only.
    commits: it commits an open transaction first, as with MariaDB, whether it succeeds then or not.
    """

    __slots__ = ()
    syntax: ClassVar[str]
    needs: ClassVar[tuple[str, ...]]
    is_free_for_ones_own: ClassVar[bool] = False
    commits: ClassVar[bool] = False

    @classmethod
    def built(cls, children: list[Any]) -> Self:
        """The statement from its rule's children: tokens, the values of rules, None for an optional part left out."""
        return cls(*children)

    def answer(self, session: SqlSession) -> Result:
        """The result, or the work that is left to do for it; None for OK. Raises `ServerError`, `StorageError`."""
        raise NotImplementedError

    @property
    def is_about_diagnostics(self) -> bool:
        """Whether it asks for the diagnostics of the statement before it, and so leaves them as they are."""
        return False

    @property
    def shows_state(self) -> bool:
        """Whether the answer needs `StateTexts`: the binlog state or position as text."""
        return False


class Family(NamedTuple):
    """Statements of one module.

    rules: those that their syntax names.
    builder: has a method for each of these rules.
    beginnings: first words that tell these statements from those that `statement_kind` or another grammar takes.
    """

    statements: tuple[type[Statement], ...]
    rules: str = ""
    builder: type[Transformer[Token, Any]] = Transformer
    beginnings: tuple[tuple[str, ...], ...] = ()
