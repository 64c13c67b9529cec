"""The system variables of MariaDB, as a real server has told them: `mariadb_variables.tsv`.

Most of them mean nothing here. They are kept and shown, because programs SET them and read them again. The file is
written by tests/integration/test_recorded_variables.py, never by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Final, TypeVar

from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import ErrorKind, ServerError

from binlog_server.settings.option_kinds import (
    Decimals,
    Flags,
    Number,
    OptionKind,
    SetOfWords,
    Switch,
    Text,
    Words,
)

T = TypeVar("T")

FILE: Final = Path(__file__).with_name("mariadb_variables.tsv")
HEAD: Final = """\
# The system variables of MariaDB 11.8, and of 10.11 what 11.8 has not (flag o).
# Columns: name; reach (G global, S session, B both); type (32: an INT, no BIGINT); default; words, or least, most
# and block of numbers; flags; privileges of SET GLOBAL and of SET SESSION, any one will do; number and text of the
# warning that each SET gives.
# Flags: r read only, R read only in sessions, s not in SET STATEMENT, d no DEFAULT in sessions, 0 NULL at first,
# N takes NULL, o only in 10.11.
"""


class Reach(Enum):
    """Where a variable has a value; named as in information_schema.SYSTEM_VARIABLES."""

    GLOBAL = "GLOBAL"
    SESSION = "SESSION"  # one value for each session, beside the global one
    SESSION_ONLY = "SESSION ONLY"


_NOT_BY_SUPER: Final = frozenset({"BINLOG REPLAY", "FILE", "READ_ONLY ADMIN"})
_REACHES: Final = {"G": Reach.GLOBAL, "B": Reach.SESSION, "S": Reach.SESSION_ONLY}


@dataclass(frozen=True, slots=True)
class Recorded:
    """The facts of one variable.

    shown: the name as SHOW VARIABLES prints it.
    default: as SHOW VARIABLES prints it.
    set_global, set_session: the privileges of which any one will do; None if it cannot be SET.
    is_session_read_only: its session values follow the global one, and SET SESSION is 1621.
    is_old: 11.8 has no such variable any more.
    type_name, limits, listed: as information_schema.SYSTEM_VARIABLES has them: the type; least, most and block of a
        number; the words that are values.
    warning: what each SET says; None for most.
    """

    name: str
    shown: str
    reach: Reach
    kind: OptionKind
    default: str
    set_global: tuple[str, ...] | None
    set_session: tuple[str, ...] | None
    is_session_read_only: bool
    in_statement: bool
    has_default: bool
    is_old: bool
    warning: ServerError | None
    type_name: str
    limits: tuple[str | None, str | None, str | None]
    listed: str | None

    @property
    def words(self) -> tuple[str, ...]:
        """Those that its values are made of; empty for other kinds."""
        return getattr(self.kind, "words", ())


def _kind(kind: str, default: str, values: str, flags: str) -> OptionKind:
    words = tuple(values.split(","))
    match kind:
        case "switch":
            return Switch()
        case "double":
            least, most, _ = values.split(" ")
            return Decimals(_limit(least), _limit(most))
        case "number" | "number32" | "signed" | "signed32":
            low, high, block = map(int, values.split(" "))
            return Number(low, high, max(1, block), is_signed=kind.startswith("signed"))
        case "word" if values:
            return Words(words)
        case "words":
            return SetOfWords(words)
        case "flags":
            return Flags(words, default)
    return Text(null="" if "0" in flags or "N" in flags else None, numbered=kind == "word")


def _limit(text: str) -> int | float:
    number = float(text)
    return int(number) if number.is_integer() else number


def _privileges(text: str) -> tuple[str, ...]:
    """SUPER stands for what it stood for in 10.11."""
    if not text:
        return ()
    return tuple(dict.fromkeys((*(() if text in _NOT_BY_SUPER else ("SUPER",)), *text.split(", "))))


def _recorded(line: str) -> Recorded:
    name, reach, kind, default, values, flags, of_global, of_session, warning = line.split("\t")
    number, _, text = warning.partition(" ")
    is_fixed = "r" in flags
    return Recorded(
        name.lower(),
        name,
        _REACHES[reach],
        _kind(kind, default, values, flags),
        default,
        set_global=None if is_fixed or reach == "S" else _privileges(of_global),
        set_session=None if is_fixed or reach == "G" or "R" in flags else _privileges(of_session),
        is_session_read_only="R" in flags,
        in_statement="s" not in flags,
        has_default="d" not in flags,
        is_old="o" in flags,
        warning=ServerError(ErrorKind(int(number), text), text) if number else None,
        type_name=_TYPE_NAMES[kind],
        limits=_limits(kind, values),
        listed="OFF,ON" if kind == "switch" else values if kind in _LISTS and values else None,
    )


_LISTS: Final = frozenset({"word", "words", "flags"})
_TYPE_NAMES: Final = {
    "switch": "BOOLEAN",
    "double": "DOUBLE",
    "word": "ENUM",
    "words": "SET",
    "flags": "FLAGSET",
    "text": "VARCHAR",
    "number": "BIGINT UNSIGNED",
    "number32": "INT UNSIGNED",
    "signed": "BIGINT",
    "signed32": "INT",
}


def _limits(kind: str, values: str) -> tuple[str | None, str | None, str | None]:
    if kind in _LISTS or kind in ("switch", "text"):
        return None, None, None
    least, most, block = values.split(" ")
    return least, most, None if kind == "double" else block


class MadeWhenAsked(Mapping[str, T]):
    """Values by name, each made when somebody asks for it first: of 700 variables a login asks for 100."""

    def __init__(self, names: Iterable[str], make: Callable[[str], T]) -> None:
        self._made: Final[dict[str, T | None]] = dict.fromkeys(names)
        self._make = make

    def __getitem__(self, name: str) -> T:
        found = self._made[name]
        if found is None:
            found = self._made[name] = self._make(name)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


def _lines() -> dict[str, str]:
    lines = FILE.read_text(encoding="utf-8").splitlines()
    return {line.partition("\t")[0].lower(): line for line in lines if not line.startswith("#")}


_LINES: Final = _lines()
RECORDED: Final[Mapping[str, Recorded]] = MadeWhenAsked(
    _LINES, lambda name: _recorded(_LINES[name])
)
