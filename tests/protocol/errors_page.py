"""docs/errors.md, made of the list of errors: python -m tests.protocol.errors_page writes it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from binlog_protocol import errors
from binlog_protocol.errors import ErrorKind

PAGE: Final = Path(__file__).parents[2] / "docs" / "errors.md"
_SOURCE: Final = Path(errors.__file__)
_NAMED: Final = re.compile(
    r"^# ((?:ER|EE|HA)_[A-Z0-9_]+)(?P<more>[^\n]*)\n(?:#[^\n]*\n)*_?(\w+) = ErrorKind\(",
    re.MULTILINE,
)
HEAD: Final = """# Errors that the server sends

Number, SQLSTATE and text of each error are MariaDB's; a few texts go on with what to do here. A word in braces stands
for a value. Behind an error that closes, the connection ends. What an error of a replica means, and what to do, is in
[troubleshooting.md](troubleshooting.md), and `binlog-server doctor --error "the text"` looks there.

This page is made of the code (`python -m tests.protocol.errors_page`).

| number | SQLSTATE | MariaDB's name | text | closes |
|---:|---|---|---|---|
"""


def kinds() -> dict[str, ErrorKind]:
    """All of them by their names in the code."""
    return {name: kind for name, kind in vars(errors).items() if isinstance(kind, ErrorKind)}


def page() -> str:
    """The text of docs/errors.md."""
    found = _NAMED.findall(_SOURCE.read_text("utf-8"))
    names = {attribute: name for name, _, attribute in found}
    rows = {
        (
            kind.errno,
            kind.sqlstate,
            names.get(attribute.removeprefix("_"), ""),
            kind.text.replace("|", "\\|").replace("\n", " "),
            "yes" if kind.fatal else "",
        )
        for attribute, kind in kinds().items()
    }
    return HEAD + "".join(
        f"| {number} | {state} | {name and f'`{name}`'} | {_code(text)} | {closes} |\n"
        for number, state, name, text, closes in sorted(rows)
    )


def _code(text: str) -> str:
    """As code in Markdown, also where it has a backtick itself."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
