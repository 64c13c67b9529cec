"""Options of MariaDB that mean nothing, or are refused, where the binlog is in an engine, as it is here.

They are taken from a configuration that was a MariaDB's, so that whoever moves one hears what each has become. Names,
values and errors 4247 and 4248 are those of MariaDB 12.3 with `binlog_storage_engine`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Final

from binlog_protocol.errors import EngineBinlogUnavailable, ServerError

_ENGINE: Final = "binlog_storage_engine"
INNODB, TRADITIONAL = "innodb", ""
"""Its values: `.ibb` files, and traditional ones."""
AFTER_SYNC, AFTER_COMMIT = "AFTER_SYNC", "AFTER_COMMIT"
SEMI_SYNC_WAIT_POINT: Final = "rpl_semi_sync_master_wait_point"


def take_options(options: MutableMapping[str, Any]) -> tuple[str, ...]:
    """Take the options out that are of no use here; returns those that somebody might count on.

    `binlog_storage_engine` stays; of traditional files `encrypt_binlog` and a base name for `log_bin`; and
    `sync_binlog` but for "innodb".

    Raises ValueError for one that is refused, with what to do.
    """
    engine = options.get(_ENGINE)
    if engine is not None:
        if str(engine).lower() not in (INNODB, TRADITIONAL):
            refused = EngineBinlogUnavailable(f"{_ENGINE}={_shown(engine)}")
            raise ValueError(
                f'{_ENGINE}: {refused.message}. Write "{INNODB}", or "{TRADITIONAL}" for traditional binlog files'
            )
        engine = options[_ENGINE] = str(engine).lower()
    # Without an engine the directory says whether it means something.
    kept = set() if engine == INNODB else {"sync_binlog"}
    if engine == TRADITIONAL:
        kept |= {"encrypt_binlog"} | ({"log_bin"} if _is_name(options.get("log_bin")) else set())
    without_effect: list[str] = []
    for name in [name for name in options if name in _OPTIONS and name not in kept]:
        value = options.pop(name)
        is_default, refusal, advice = _OPTIONS[name]
        if is_default(value):
            continue
        if refusal is None:
            without_effect.append(name)
        else:
            raise ValueError(f"{name}: {refusal(value).message}. {advice}")
    return tuple(without_effect)


def instead_of(name: str) -> str:
    """What to write in place of an option of MariaDB that is none here; nothing for one that is not known."""
    known = name.replace("-", "_").lower()
    found = _INSTEAD.get(known)
    if found is None:
        found = next((advice for start, advice in _FAMILIES.items() if known.startswith(start)), "")
    return f": {found}" if found else ""


def _unavailable(name: str) -> Callable[[Any], ServerError]:
    return lambda value: EngineBinlogUnavailable(f"{name}={_shown(value)}")


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return ("OFF", "ON")[value]
    text = str(value)
    return text if text.isprintable() else repr(text)  # in one line of the log


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and not _is_on(value) and not _is_off(value) and value != "1"


def _is_off(value: Any) -> bool:
    return value is False or value == 0 or str(value).upper() == "OFF"


def _is_on(value: Any) -> bool:
    return value is True or value == 1 or str(value).upper() in ("", "ON")


# What needs no answer; the error for everything else, None if it is only ignored; what to do.
_OPTIONS: Final[
    Mapping[str, tuple[Callable[[Any], bool], Callable[[Any], ServerError] | None, str]]
] = {
    "log_bin": (
        _is_on,
        _unavailable("log_bin"),
        "The binlog is always on and its files have fixed names: leave it out, and set binlog_directory; "
        'or write binlog_storage_engine = "" for traditional files of that name',
    ),
    "sync_binlog": (lambda value: value == 0, None, ""),
    "tc_heuristic_recover": (
        _is_off,
        _unavailable("tc_heuristic_recover"),
        "Transactions that were prepared are found in the binlog itself: leave it out",
    ),
    "encrypt_binlog": (
        _is_off,
        _unavailable("encrypt_binlog"),
        "Leave it out, and encrypt the disk under binlog_directory; or, of traditional files, write "
        'binlog_storage_engine = "" beside it',
    ),
    "init_rpl_role": (
        lambda value: str(value).upper() == "MASTER",
        _unavailable("init_rpl_role"),
        "What this server had acknowledged is kept by its redo log: leave it out",
    ),
    SEMI_SYNC_WAIT_POINT: (
        lambda value: str(value).upper() == AFTER_COMMIT,
        _unavailable(SEMI_SYNC_WAIT_POINT),
        f"Leave it out, or write {AFTER_COMMIT}",
    ),
    "wsrep_on": (
        _is_off,
        _unavailable("wsrep_on"),
        "A binlog server is no node of a Galera cluster: follow one of its nodes as upstream",
    ),
}

_LISTEN: Final = 'write listen = "HOST:PORT"'
_AS_SENT: Final = "what an upstream sends is kept as it is: leave it out"
_FILTER: Final = "all that an upstream sends is kept: filter on the replicas"
_NO_SECTIONS: Final = "there are no sections of programs: write the options at the top of the file"
_INSTEAD: Final[Mapping[str, str]] = {
    "bind_address": _LISTEN,
    "port": _LISTEN,
    "socket": f"there is no socket file: {_LISTEN}",
    "datadir": "write binlog_directory",
    "log_error": "the log goes to the standard error",
    "user": "start it as that user",
    "skip_name_resolve": "names of clients are never looked up: leave it out",
    "log_slave_updates": "what an upstream sends is always logged: leave it out",
    "sync_relay_log": "there is no relay log: leave it out",
    "slave_exec_mode": "nothing is applied here: leave it out",
    "slave_skip_errors": "nothing is applied here: leave it out",
    "binlog_format": _AS_SENT,
    "binlog_do_db": _FILTER,
    "binlog_ignore_db": _FILTER,
    "mysqld": _NO_SECTIONS,
    "mariadbd": _NO_SECTIONS,
    "mariadb": _NO_SECTIONS,
    "server": _NO_SECTIONS,
}
_FAMILIES: Final[Mapping[str, str]] = {
    "replicate_": _FILTER,
    "relay_log": "there is no relay log: leave it out",
    "slave_parallel_": "nothing is applied here: leave it out",
    "binlog_row_": _AS_SENT,
}
"""By the beginning of their names."""
