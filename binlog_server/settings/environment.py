"""Options in the environment of the server's process: for containers, which are given variables and files of secrets.

| variable                     | what it gives                                                                |
|------------------------------|------------------------------------------------------------------------------|
| `BINLOG_SERVER_NAME`         | the option `name`                                                            |
| `BINLOG_SERVER_NAME_FILE`    | the same: the contents of that file, without the end of its last line        |
| `BINLOG_SERVER_CONFIG`       | the configuration file, where `--config` is not given                        |

A number or a size is written as in the file, `true` and `false` also as ON, OFF, 1 and 0. `users` is TOML: an inline
table, or lines of `name = "password"`. `upstream` is a URL or such a table.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from binlog_protocol.compiled_later import compiled_later
from binlog_storage.disk.given_files import read_given_text

from binlog_server.settings.option_kinds import Decimals, Number, OptionKind, Switch

PREFIX: Final = "BINLOG_SERVER_"
CONFIG: Final = f"{PREFIX}CONFIG"
_OF_A_FILE: Final = "_file"
_FILE_BYTES_MAX: Final = 1 << 20
_TABLES: Final = ("upstream", "users")
_URL: Final = compiled_later(r"[a-z]+://")
_SWITCH: Final = {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}
# Of other uses: C or Python, the hand-over to a new process, the file.
_NO_OPTIONS: Final = frozenset(("PURE", "SPEEDUPS", "HAND_OVER", "CONFIG"))
# Kubernetes and Docker's links tell each container of a service of the name binlog-server by such variables.
_OF_A_SERVICE: Final = compiled_later(
    r"(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_\w+)?|NAME|ENV_\w+)"
)


def given_options(
    environment: Mapping[str, str], kinds: Mapping[str, OptionKind], known: Collection[str]
) -> Iterator[tuple[str, str, Any]]:
    """Each option that is given: its name, the variable that gives it, and its value as the file would have it.

    `known` are the names of options; another name is left to the caller. Raises ValueError, whose text begins with the
    variable.
    """
    seen: dict[str, str] = {}
    for variable in sorted(environment):
        if not variable.startswith(PREFIX):
            continue
        plain = variable.removeprefix(PREFIX)
        if plain in _NO_OPTIONS or _OF_A_SERVICE.fullmatch(plain):
            continue
        name, text = plain.lower(), environment[variable]
        of_a_file = name.removesuffix(_OF_A_FILE)
        if name not in known and of_a_file in known:
            name, text = of_a_file, _contents(variable, text)
        if name in seen:
            raise ValueError(f"{seen[name]} and {variable}: give one of them")
        seen[name] = variable
        yield name, variable, _value(variable, name, text, kinds.get(name))


def _contents(variable: str, path: str) -> str:
    try:
        return read_given_text(path, _FILE_BYTES_MAX).rstrip("\r\n")
    except OSError as error:
        raise ValueError(f"{variable}: cannot read {path}: {error.strerror}") from None


def _value(variable: str, name: str, text: str, kind: OptionKind | None) -> Any:
    match kind:
        case Switch():
            if text.lower() not in _SWITCH:
                raise ValueError(f"{variable}: {text[:80]!r} is neither true nor false")
            return _SWITCH[text.lower()]
        case Number():
            value = kind.written(text)
            if isinstance(value, str) and re.fullmatch(r"[0-9]{1,20}", value, re.ASCII):
                value = int(value)
            if not isinstance(value, int):
                raise ValueError(f"{variable}: {text[:80]!r} is no whole number")
            return value
        case Decimals():
            if not re.fullmatch(r"[0-9]{1,20}(\.[0-9]{1,20})?", text, re.ASCII):
                raise ValueError(f"{variable}: {text[:80]!r} is no number")
            return float(text)
    if name in _TABLES and not _URL.match(text):
        return _table(variable, text)
    return text


def _table(variable: str, text: str) -> Any:
    """An inline table, or its lines. What is wrong in it is not quoted: it may be a password."""
    import tomllib  # few servers have a table there

    text = text.strip()
    try:
        return tomllib.loads(f"x = {text}")["x"] if text.startswith("{") else tomllib.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(f"{variable}: it is neither a URL nor a table of TOML") from None
