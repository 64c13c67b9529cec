"""Completion for shells, and manual pages, made of the parsers of both programs: python deploy/texts.py SHARE

    SHARE/bash-completion/completions/NAME
    SHARE/zsh/site-functions/_NAME
    SHARE/fish/vendor_completions.d/NAME.fish
    SHARE/man/man1/NAME.1, and NAME-COMMAND.1 of each command: man binlog-server serve

SHARE is /usr/share, /usr/local/share, or ~/.local/share for one user. It needs the extra `texts`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import shtab
from argparse_manpage.manpage import Manpage
from binlog_pipeline import cli as of_pipeline

from binlog_server import cli as of_server

COMPLETIONS = {
    "bash": "bash-completion/completions/{}",
    "zsh": "zsh/site-functions/_{}",
    "fish": "fish/vendor_completions.d/{}.fish",
}


def parsers() -> Iterator[argparse.ArgumentParser]:
    """Of each program."""
    yield of_server.parser()[0]
    yield of_pipeline.parser()[0]


def write(share: Path) -> list[Path]:
    """Write all of it. Returns the files."""
    made = {}
    for parser in parsers():
        _complete_files(parser)
        for shell, name in COMPLETIONS.items():
            made[share / name.format(parser.prog)] = shtab.complete(parser, shell)
        for said, one in pages(parser):
            facts = {
                "project_name": "binlog-server",
                "version": version("binlog-server"),
                "manual_title": "User Commands",
                "description": said,
            }
            page = Manpage(one, facts)
            page.prog = one.prog.replace(" ", "-")  # as `man` looks for it, and `apropos` shows it
            made[share / f"man/man1/{page.prog}.1"] = str(page)
    for path, text in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return list(made)


def pages(
    parser: argparse.ArgumentParser, said: str | None = None
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Of a program, and of each command in it: what it does, in a line, and its parser."""
    yield said or (parser.description or "").partition("\n")[0].rstrip("."), parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {one.dest: one.help for one in action._choices_actions}
            for name, command in action.choices.items():
                if name in helps:  # the others are other names of one of these, or hidden
                    yield from pages(command, helps[name])


def _complete_files(parser: argparse.ArgumentParser) -> None:
    """Arguments of which nothing else is known may be files: what a shell does without any of this."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                _complete_files(command)
        elif action.nargs != 0 and action.choices is None:
            action.complete = shtab.FILE  # type: ignore[attr-defined]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for written in write(Path(sys.argv[1])):
        print(written)
