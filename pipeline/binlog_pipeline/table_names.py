"""Names of tables as options, manifests and plans have them: `shop.orders`, and shop.`a.b` where a name has a dot."""

from __future__ import annotations

import re
from typing import Final

from binlog_protocol.sql.token_reader import TableName

_PART: Final = r"`(?:[^`]|``)+`|[^.`][^.]*"
_NAME: Final = re.compile(rf"({_PART})\.({_PART})", re.DOTALL)


def parsed_table(text: str) -> TableName:
    """Each of the two names as it is, or in backticks, with ` doubled in them. Raises `ValueError`."""
    found = _NAME.fullmatch(text)
    if found is None:
        raise ValueError(
            "a table is named database.table; a name with a dot, or one that begins with a backtick, in backticks"
        )
    return TableName(*map(_plain, found.groups()))


def table_text(name: TableName) -> str:
    """The text that `parsed_table` takes."""
    return ".".join(map(_quoted, name))


def _plain(part: str) -> str:
    return part[1:-1].replace("``", "`") if part.startswith("`") else part


def _quoted(name: str) -> str:
    if "." not in name and not name.startswith("`"):
        return name
    return "`" + name.replace("`", "``") + "`"
