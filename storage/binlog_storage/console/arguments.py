"""The arguments of commands: how they are read, and those that many commands have."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.dump.target import seconds_of
from binlog_protocol.errors import BadGtidList, ServerError
from binlog_protocol.gtid import SlavePosition

BAD_ADDRESS: Final = (
    "the address is not HOST:PORT; in user and password write / ? # [ ] @ : % as %xx"
)
"""Of a `mariadb://` URL that cannot be taken apart; what is in it is not quoted: it may be a part of a password."""
_DIGITS: Final = compiled_later(r"-?[0-9]{1,20}", re.ASCII)
_UNITS: Final = "KMGTPE"  # of MariaDB's options: powers of 1024
_WITH_UNIT: Final = compiled_later(f"([0-9]{{1,20}})([{_UNITS}])", re.ASCII | re.IGNORECASE)
_SIZE_MAX: Final = 2**64 - 1
_NAME: Final = "(?:[^.`]+|`(?:[^`]|``)+`)"
_TABLE: Final = compiled_later(rf"(?:(?P<database>{_NAME})\.)?(?P<table>{_NAME})")


def parse(
    parser: argparse.ArgumentParser,
    commands: Mapping[str, argparse.ArgumentParser],
    argv: Sequence[str] | None,
) -> argparse.Namespace:
    """Read a command line. What is unknown ends the process, with the command or option that was perhaps meant."""
    for name in (sys.argv[1:] if argv is None else argv)[:1]:
        if not name.startswith("-") and name not in commands:
            parser.error(
                f"argument COMMAND: invalid choice: {name!r}{did_you_mean(name, commands)}; it is one of "
                f"{', '.join(commands)}"
            )
    _require_values(parser, commands, sys.argv[1:] if argv is None else argv)
    arguments, left = parser.parse_known_args(argv)
    if left:
        command = commands[arguments.command]
        known = re.findall(r"--[a-z][a-z-]*", command.format_help())
        meant = did_you_mean(left[0].partition("=")[0], known)
        command.error(f"unrecognized arguments: {' '.join(left)}{meant}")
    return arguments


def _require_values(
    parser: argparse.ArgumentParser,
    commands: Mapping[str, argparse.ArgumentParser],
    argv: Sequence[str],
) -> None:
    """Refuses `--option=--`: argparse takes `--` out wherever it stands, and the value would be a list."""
    for word in argv:
        option, _, value = word.partition("=")
        if option.startswith("--") and value == "--":
            named = commands.get(next((word for word in argv if word in commands), ""), parser)
            named.error(f"argument {option}: '--' is no value")


def target_of(arguments: argparse.Namespace) -> object:
    """What the command makes or changes: the argument that its parser has named as `makes`; None for none."""
    return getattr(arguments, arguments.makes, None) if "makes" in arguments else None


def as_typed(text: str, argv: Sequence[str]) -> str:
    """An error that begins with the name of an option, with the flag by which it was given on this command line."""
    name = re.match(r"\w+", text)
    flag = f"--{name[0].replace('_', '-')}" if name else ""
    if name is None or not any(word.partition("=")[0] == flag for word in argv):
        return text
    return flag + text.removeprefix(name[0])


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """What to say behind a name that is unknown: the nearest one of the known ones, or nothing."""
    near = difflib.get_close_matches(name, known, n=1)
    return f": did you mean {near[0]!r}?" if near else ""


class _Version(argparse.Action):
    """Prints the version, which is looked up only then: importlib.metadata brings the modules of e-mail."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        sys.stdout.write(f"{parser.prog} {version('binlog-server')}\n")
        parser.exit()


def add_version(parser: argparse.ArgumentParser) -> None:
    """Declare `--version`."""
    text = "show program's version number and exit"
    parser.add_argument("--version", action=_Version, nargs=0, default=argparse.SUPPRESS, help=text)


def add_json(parser: argparse.ArgumentParser, about: str = "one JSON object") -> None:
    """Declare `--json`. docs/commands.md has the shape of each."""
    parser.add_argument("--json", action="store_true", help=about)


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    """Declare `--dry-run`."""
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would be done, and change nothing"
    )


def whole_number(text: str, least: int | None = 0, most: int | None = None) -> int:
    """A number within its bounds that somebody has written. Raises `ValueError`, whose text says what it is.

    least, most: None where others know the bounds.
    """
    if _DIGITS.fullmatch(text):
        number = int(text)
        if (least is None or least <= number) and (most is None or number <= most):
            return number
    bounds = ""
    if least is not None:
        bounds = f" from {least} on" if most is None else f" from {least} to {most}"
    raise ValueError(f"{text!r} is no whole number{bounds}")


def size_of(text: str) -> int:
    """Bytes, perhaps with a unit, as in MariaDB's options. Raises `ValueError`, whose text says what it is."""
    size = int(text) if _DIGITS.fullmatch(text) else with_unit(text)
    if size is None or not 0 <= size <= _SIZE_MAX:
        raise ValueError(f"{text!r} is no size such as 64K, 16M or 1G")
    return size


def with_unit(text: str) -> int | None:
    """The number of a text such as 16M; None for one without a unit, or that is none. Its bounds are the caller's."""
    found = _WITH_UNIT.fullmatch(text)
    return None if found is None else int(found[1]) << 10 * (_UNITS.index(found[2].upper()) + 1)


def number_argument(least: int | None = 0, most: int | None = None) -> Callable[[str], int]:
    """`whole_number` as the `type` of an argument."""

    def number(text: str) -> int:
        try:
            return whole_number(text, least, most)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return number


def amount_argument(text: str, unit: str = "") -> float:
    """A number that may have a point, not below 0, as the `type` of an argument."""
    try:
        amount = float(text)
    except ValueError:
        amount = -1
    if not 0 <= amount < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number{unit} from 0 on")
    return amount


def seconds_argument(text: str) -> float:
    """The same, of seconds."""
    return amount_argument(text, " of seconds")


def table_name(text: str) -> tuple[str, str]:
    """Database, empty where none is said, and table. Raises `ValueError`, whose text says what a name is."""
    found = _TABLE.fullmatch(text)
    if found is None:
        raise ValueError(
            f"{text!r} is no table such as orders or shop.orders; a name with a dot in it stands in `backticks`"
        )
    database, table = (_unquoted(found[name] or "") for name in ("database", "table"))
    return database, table


def _unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def table_argument(text: str) -> str:
    """`table_name` as the `type` of an argument: TABLE or DATABASE.TABLE, without quotes."""
    try:
        return ".".join(filter(None, table_name(text)))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def gtid_position(text: str) -> SlavePosition:
    """A GTID position that somebody has written. Raises `ValueError`, whose text says what it is."""
    try:
        return SlavePosition.parse(text)
    except ServerError as error:
        why = "" if error.message == BadGtidList.text else f": {error.message}"
        raise ValueError(f"{text!r} is no GTID position such as 0-1-4711,3-2-15{why}") from None


def time_argument(text: str) -> float:
    """Seconds since 1970, as the `type` of an argument. A time is local, as for `mariadb-binlog`, and UTC with Z."""
    try:
        return seconds_of(text.strip(), None)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def position_argument(text: str) -> SlavePosition:
    """`gtid_position` as the `type` of an argument."""
    try:
        return gtid_position(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
