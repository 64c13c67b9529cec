"""A store of the other format, made of one that there is: its configuration, and the facts that go along."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from binlog_storage.classic.binlog import ClassicBinlog
from binlog_storage.classic.directory import bases
from binlog_storage.disk.durable_files import replace_file
from binlog_storage.disk.state import FILE_KEYS
from binlog_storage.ibb.file_names import file_number
from binlog_storage.intake.source import StoreSource
from binlog_storage.tables.facts import TAKEN_KEY

from binlog_server.settings.config import Config, ConfigError
from binlog_server.settings.engine_limits import INNODB, TRADITIONAL
from binlog_server.store.leases import in_another_store
from binlog_server.store.store_directory import StoreDirectory
from binlog_server.upstreams.password import KEY_NAME


def wanted_of(source: StoreSource, target: Path, log_bin: str | None) -> dict[str, Any]:
    """The options of the store that is made of this one. Raises `ConfigError`."""
    is_traditional = isinstance(source, ClassicBinlog)
    options: dict[str, Any] = {
        "binlog_directory": target,
        "binlog_storage_engine": INNODB if is_traditional else TRADITIONAL,
    }
    there = {path.name for path in target.iterdir()} if target.is_dir() else set()
    if bases(there) if is_traditional else any(file_number(name) is not None for name in there):
        format_name = "traditional files" if is_traditional else ".ibb files"
        raise ConfigError(
            f"{target} has {format_name}, as the store that is read has, and the other format is made: give another "
            "directory, or copy what is new by `binlog-server import`"
        )
    if log_bin is not None:
        if is_traditional:
            raise ConfigError("--log-bin names traditional files, and .ibb files are made")
        options["log_bin"] = log_bin
    return options


def without_limits(config: Config, **options: Any) -> Config:
    """The configuration with these options, and so that nothing is purged."""
    limits: dict[str, Any] = {
        "binlog_expire_logs_seconds": 0,
        "expire_logs_days": 0,
        "max_binlog_total_size": 0,
    }
    return dataclasses.replace(config, **limits, **options)


def take_facts(facts: Iterable[tuple[str, Any]], path: Path, directory: StoreDirectory) -> None:
    """Let a store know what the one of `path` knows: accounts, leases, upstreams, and the rest; and no more. Durable.

    Raises `StorageError`, `OSError`.
    """
    key, there = path / KEY_NAME, directory.path / KEY_NAME
    if key.is_file() and not there.exists():
        replace_file(there, key.read_bytes(), 0o600)
    engine, state = directory.engine, directory.state
    staying = FILE_KEYS | {TAKEN_KEY}
    changes: dict[str, Any] = dict.fromkeys(key for key, _ in state.items("") if key not in staying)
    for name, value in facts:
        if name not in staying:
            changes[name] = in_another_store(name, value, engine, state.binlog_age)
    state.update(changes)
