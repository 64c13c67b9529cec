"""An object of a store, and how its library is called: for the modules that know one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import NamedTuple, TypeVar

_Found = TypeVar("_Found")


class StoredObject(NamedTuple):
    """An object: its size, the tag of this version of it, and its bytes. `pieces` raises `ArchiveUnreachable`."""

    size: int
    tag: str
    pieces: Iterable[bytes]


def heard(call: Callable[[], _Found], limit_s: float | None = None) -> _Found:
    """What a call of a library gives, which is deaf to signals: the main thread, which gets them, waits beside it.

    Args:
        limit_s: wait no longer, and raise `TimeoutError`. The call goes on, and may yet be done.
    """
    if limit_s is None and threading.current_thread() is not threading.main_thread():
        return call()
    found: Future[_Found] = Future()

    def work() -> None:
        try:
            found.set_result(call())
        except BaseException as error:  # noqa: BLE001  # for the other thread to raise
            found.set_exception(error)

    # Nobody waits for it at the end of the process, as for those of an executor.
    threading.Thread(target=work, daemon=True).start()
    return found.result(limit_s)
