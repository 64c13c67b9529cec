"""The keys of encrypted files and archives, for commands that read them: as the server's configuration file says."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Final

from binlog_storage.archive.encryption import ArchiveKeys
from binlog_storage.archive.remembered_manifests import ManifestMemory
from binlog_storage.classic.encryption import Keys
from binlog_storage.disk.local_path import path_argument

from binlog_server.settings import config as configuration

_MANIFESTS_NAME: Final = "manifests.json"


def add_key_options(parser: argparse.ArgumentParser) -> None:
    """Add the option that says where the keys are."""
    parser.add_argument(
        "--config",
        type=path_argument,
        metavar="FILE.toml",
        help="the server's: file_key_management_filename and what else encrypted binlog files are read with",
    )


def binlog_keys(config: Path | None, directory: Path | str | None = None) -> Keys | None:
    """The keys that a configuration file names; None without one, or without keys.

    directory: where it names none. Raises `ConfigError`, `NoBinlogKey`.
    """
    if config is None:
        return None
    return configuration.load(config, {"binlog_directory": directory}).binlog_keys()


def archive_keys(
    config: Path | None, directory: Path | str | None = None, index: Path | None = None
) -> ArchiveKeys:
    """The keys for archives that a configuration file names, or else the environment. As `binlog_keys`.

    index: a folder in which it is remembered which manifests were seen.
    """
    keys = ArchiveKeys.of_environment()
    if config is not None:
        keys = configuration.load(config, {"binlog_directory": directory}).archive_keys()
    if index is None:
        return keys
    index.mkdir(parents=True, exist_ok=True)
    return replace(keys, memory=ManifestMemory(index / _MANIFESTS_NAME))
