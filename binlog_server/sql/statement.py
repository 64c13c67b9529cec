"""A statement that this server answers, as a class: its syntax, the privileges that it needs, its answer.

A module has a family of them, with a `Family` at its end. `parser` has all families.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

    from binlog_server.sql.expressions import Given
    from binlog_server.sql.sql_session import SqlSession
    from binlog_server.sql.view import Result

ANYBODY: Final[tuple[str, ...]] = ()
LOOK: Final = ("SUPER", "BINLOG MONITOR")
LOOK_AT_FILES: Final = (*LOOK, "BINLOG ADMIN")
LOOK_AT_REPLICAS: Final = (*LOOK, "REPLICATION MASTER ADMIN")
LOOK_AT_UPSTREAMS: Final = ("SUPER", "SLAVE MONITOR")
LOOK_AT_OTHERS: Final = ("PROCESS",)
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
    only_looks: its answer changes nothing, and so PREPARE may ask for the columns of its result by giving it.
    changes_store: it is refused where the store is served as it lies (innodb_read_only).
    commits: it commits an open transaction first, as with MariaDB, whether it succeeds then or not.
    uses_tables: the warnings of the statement before it are forgotten, also if it has none itself. As MariaDB does it,
        many a SHOW reads a table of information_schema, and a SELECT without FROM, SET and COMMIT use none.
    com: the name of its counter in SHOW STATUS behind `Com_`; empty where MariaDB has no such statement.
    """

    __slots__ = ()
    syntax: ClassVar[str]
    needs: ClassVar[tuple[str, ...]]
    is_free_for_ones_own: ClassVar[bool] = False
    only_looks: ClassVar[bool] = False
    changes_store: ClassVar[bool] = False
    commits: ClassVar[bool] = False
    uses_tables: ClassVar[bool] = False
    com: ClassVar[str] = ""

    @classmethod
    def built(cls, children: list[Any]) -> Self:
        """The statement from its rule's children: tokens, the values of rules, None for an optional part left out."""
        return cls(*children)

    def answer(self, session: SqlSession) -> Result:
        """The result, or the work that is left to do for it; None for OK. Raises `ServerError`, `StorageError`.

        `Unfinished` where a part of the statement itself is left to be read or computed: there is no other way to that.
        """
        raise NotImplementedError

    def described(self, session: SqlSession) -> Result:
        """The result from which its columns are taken when it is prepared; as `answer`.

        None if it has none, or if they are not known before it is executed.
        """
        return self.answer(session) if self.only_looks else None

    def given(self, parameters: Sequence[Given]) -> Statement | None:
        """The statement with these values for its parameters; None if it has to be parsed anew for them."""
        return None

    @property
    def is_logged(self) -> bool:
        """Whether the log tells who has said it: it changes something of the server."""
        return bool(self.needs) and not self.only_looks

    @property
    def told(self) -> str:
        """What the log tells of it in the place of its text, of which only the first words may be told."""
        return ""

    @property
    def counted_as(self) -> str:
        """The name of its counter: `com`, where that does not depend on what it says."""
        return self.com

    @property
    def held(self) -> int:
        """Bytes of memory that it keeps where it is kept, beside some for each character of its text."""
        return 0

    @property
    def is_about_diagnostics(self) -> bool:
        """Whether it asks for the diagnostics of the statement before it, and so leaves them as they are."""
        return False

    @property
    def forgets_warnings(self) -> bool:
        """Whether the warnings of the statement before it are gone, also if it has none itself: `uses_tables`."""
        return self.uses_tables

    @property
    def shows_state(self) -> bool:
        """Whether the answer needs `StateTexts`: the binlog state or position as text."""
        return False


class Rules:
    """Methods for the rules of a family, each with the name of its rule: children of the tree to a value.

    `lark_parser` makes a transformer of lark of them; a module of statements needs no lark.

    placed: names of those that are given first where the text of their rule stands.
    """

    placed: ClassVar[tuple[str, ...]] = ()
    text: str
    """The statement."""


class Family(NamedTuple):
    """Statements of one module.

    rules: those that their syntax names.
    builder: has a method for each of these rules.
    beginnings: first words that tell these statements from those that `statement_kind` or another grammar takes.
    """

    statements: tuple[type[Statement], ...]
    rules: str = ""
    builder: type[Rules] = Rules
    beginnings: tuple[tuple[str, ...], ...] = ()
