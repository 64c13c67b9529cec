"""Names of .ibb files: `binlog-NNNNNN.ibb`, six digits or more. Other names in the directory are left alone."""

from __future__ import annotations

from collections.abc import Iterable

from binlog_protocol.compiled_later import compiled_later

LOCK_NAME = "binlog-server.lock"
"""The name of the file by which a process holds the directory of a store."""

_NAME = compiled_later(r"binlog-([0-9]{6,19})\.ibb")


def file_name(file_no: int) -> str:
    """`binlog-000000.ibb` for 0."""
    return f"binlog-{file_no:06d}.ibb"


def file_number(name: str) -> int | None:
    """The number in a name as `file_name` makes it; None for any other name."""
    match = _NAME.fullmatch(name)
    if match is None or file_name(int(match[1])) != name:
        return None
    return int(match[1])


def file_numbers(names: Iterable[str]) -> list[int]:
    """All file numbers among `names`, ascending."""
    return sorted(number for name in names if (number := file_number(name)) is not None)


def no_files(names: Iterable[str]) -> str:
    """What to say of a directory with these names that has no `.ibb` file."""
    index = next((name for name in sorted(names) if name.endswith(".index")), None)
    if index is None:
        return "has neither .ibb files nor the index of a traditional binlog"
    return (
        f"holds no binlog-NNNNNN.ibb, but traditional binlog files, which {index} names: `binlog-server events` shows "
        "them, `binlog-server convert` makes an .ibb store of them, `binlog-server import --index` takes their groups "
        "into a store, and a server over them is read as any server"
    )
