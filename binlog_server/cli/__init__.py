"""The command line: `binlog-server COMMAND`.

Only the module of the command that is run is imported, and `serve` loads nothing that other commands print with.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Final

from binlog_storage.console.arguments import add_version, as_typed, parse, target_of
from binlog_storage.console.running import (
    EXIT_USAGE,
    end_by,
    not_interrupted,
    run_command,
    run_program,
)
from binlog_storage.disk.local_path import room_at

from binlog_server.process.allocation import keep_freed_memory

MODULES: Final = {
    "serve": "serve",
    "user": "user",
    "demo": "demo",
    "events": "events",
    "find": "find",
    "compare": "compare",
    "verify": "verify",
    "ls": "ls",
    "seed": "seed",
    "import": "import_files",
    "convert": "convert",
    "backup": "backup",
    "prepare": "backup",
    "recover": "recover",
    "monitoring": "monitoring",
    "doctor": "doctor",
}
"""By command the module here that has it: its `add_to` declares what the command takes, and what does it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns the exit code: 0 done, 1 failed, 2 wrong usage."""
    if argv is None:
        keep_freed_memory()  # in front of `run_program`, which starts a thread
    code = run_program("binlog-server", lambda: _run(argv))
    return end_by(code) if argv is None else code


def _run(argv: Sequence[str] | None) -> int:
    said = sys.argv[1:] if argv is None else list(argv)
    # Options in front of the command have no values.
    name = next((word for word in said if not word.startswith("-")), "")
    # No module that is imported is garbage, and to look for some is a tenth of the time that importing takes: now, or
    # in the first search, which would go through all of them. So they are never searched.
    gc.disable()
    try:
        with not_interrupted():
            whole, commands = parser(name)
            from binlog_server.settings.config import ConfigError
    finally:
        gc.freeze()
        gc.enable()
    arguments = parse(whole, commands, said)
    target = target_of(arguments)

    def work() -> int:
        try:
            return int(arguments.run(arguments))
        except ConfigError as error:
            raise ConfigError(as_typed(str(error), said)) from error

    return run_command("binlog-server", work, {ConfigError: EXIT_USAGE}, target, room_at)


def parser(
    command: str = "",
) -> tuple[argparse.ArgumentParser, Mapping[str, argparse.ArgumentParser]]:
    """The command line, and that of each command; of all if `command` is none."""
    parser = argparse.ArgumentParser(
        prog="binlog-server", description="A MariaDB replication server over a .ibb binlog store."
    )
    add_version(parser)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    modules = [MODULES[command]] if command in MODULES else MODULES.values()
    for module in dict.fromkeys(modules):
        import_module(f"{__name__}.{module}").add_to(commands)
    return parser, commands.choices
