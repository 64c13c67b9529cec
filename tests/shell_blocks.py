"""Blocks of shell commands in README and docs, and what a comment above each says about running it.

    <!-- run -->                              tests/integration/test_shell_blocks.py runs it, in a folder of its own
    <!-- run: DIR=/srv/new; serving -->       with this in place of a word; beside a server of /var/lib/binlog-server
    <!-- run by tests/test_wheel.py -->       that test does
    <!-- usage -->                            no commands, but how one is called: its options are looked for
    <!-- not run: why -->

`<!-- all run by tests/test_wheel.py -->` anywhere in a page says that of all blocks that have no comment of their own.
Words of `run` besides NAME=TEXT: `serving`, and `checkout` for commands that start in a checkout.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
PROGRAMS: Final = (
    "binlog-server|binlog-spark|mariadb|mariadb-[a-z]+|docker|docker-compose|pip|python3?|make|curl|systemctl|apt|apt-get|kill|"
    "bash|mkdir|cp|mv|export|install|gcc|perf|helm|kubectl|promtool|openssl|ssh|rsync|tar|git|pytest|spark-submit|watch|sudo|"
    "deploy/[\\w.-]+|docker/[\\w.-]+|tests/[\\w./-]+"
)
_COMMAND: Final = re.compile(rf"\s*(?:\$ )?(?:\S*/bin/)?(?:{PROGRAMS})(?:\s+(?![=|:])|$)")
_FENCE: Final = re.compile(r"(\s*)```(\w*)")
_ALL: Final = re.compile(r"^<!-- all run by (\S+) -->$", re.MULTILINE)
# What stands between two calls; what is quoted (group 1) is looked over.
_BETWEEN: Final = re.compile(r"""('[^']*'|"(?:\\.|[^"\\])*")|\d?>(?:&\d)?|\|\|?|&&?|;""")
_MARK: Final = re.compile(r"\s*<!-- (run by|run|usage|not run)(?:[: ]+(.*?))? ?-->")


@dataclass(frozen=True)
class Block:
    """Commands of a page. `mark`: the first words of the comment above it, empty where there is none; `said`: the rest.

    `line`: of the first command.
    """

    page: str
    line: int
    text: str
    mark: str = ""
    said: str = ""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def words(self) -> list[str]:
        """Of `run`."""
        return [word.strip() for word in self.said.split(";") if word.strip()]


def pages(root: Path = ROOT) -> list[str]:
    """Those that users read, and those of the people who change the code."""
    found = [*root.glob("*.md"), *(root / "docs").rglob("*.md")]
    return sorted(str(path.relative_to(root)) for path in found if path.name != "CHANGELOG.md")


def blocks(page: str, root: Path = ROOT) -> Iterator[Block]:
    """The fenced ones."""
    whole = (root / page).read_text("utf-8")
    by_default = _ALL.search(whole)
    for kind, line, text, above in _pieces(whole):
        if kind != "sh":
            continue
        if mark := _MARK.fullmatch(above):
            yield Block(page, line, text, mark[1], mark[2] or "")
        else:
            yield Block(page, line, text, *(("run by", by_default[1]) if by_default else ()))


def hidden(page: str, root: Path = ROOT) -> Iterator[str]:
    """Commands that are in no fence with `sh`, where nobody would look for them."""
    for kind, line, text, _ in _pieces((root / page).read_text("utf-8")):
        if kind in ("", "indented", "bash", "shell", "console") and any(
            map(_COMMAND.match, text.splitlines())
        ):
            yield f"{page}:{line}: {text.splitlines()[0].strip()}: write it in a fence, ```sh"


def _pieces(text: str) -> Iterator[tuple[str, int, str, str]]:
    """Fences by their language, and indented code: kind, number of the first line, text, the line above."""
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        begin, above = at, lines[at - 1] if at else ""
        if fence := _FENCE.match(lines[at]):
            at += 1
            while at < len(lines) and lines[at].strip() != "```":
                at += 1
            body = lines[begin + 1 : at]
            yield fence[2], begin + 2, "\n".join(line[len(fence[1]) :] for line in body), above
            at += 1
        elif lines[at].startswith("    ") and lines[at].strip():
            while at < len(lines) and lines[at].startswith("    "):
                at += 1
            yield "indented", begin + 1, "\n".join(lines[begin:at]), above
        else:
            at += 1


def commands(text: str) -> Iterator[str]:
    """Logical lines: what a backslash continues is one, comments are left out."""
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        if told := re.sub(r"(^|\s)#.*", "", line).strip():
            yield told


def calls(text: str) -> Iterator[list[str]]:
    """Each call of one of our programs: its name and arguments."""
    for line in commands(text):
        if "binlog-" not in line:
            continue
        for part in _BETWEEN.sub(lambda found: found[1] or "\n", line).splitlines():
            words = shlex.split(part)
            if words and Path(words[0]).name in ("binlog-server", "binlog-spark"):
                yield [Path(words[0]).name, *words[1:]]
