"""The keys of encrypted files and archives, for commands that read them: as the server's configuration file says."""

from __future__ import annotations

import argparse
from pathlib import Path

from binlog_storage.archive.encryption import ArchiveKeys
from binlog_storage.classic.encryption import Keys
from binlog_storage.disk.local_path import path_argument

from binlog_server.settings import config as configuration


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


def archive_keys(config: Path | None, directory: Path | str | None = None) -> ArchiveKeys:
    """The keys for archives that a configuration file names, or else the environment. As `binlog_keys`."""
    if config is None:
        return ArchiveKeys.of_environment()
    return configuration.load(config, {"binlog_directory": directory}).archive_keys()
