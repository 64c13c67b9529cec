"""Calls that may never return, each in a thread of its own: a resolver that is asked for a name, a file on any disk.

The threads of `asyncio.to_thread` are few, they are for the store, and the end of the program waits for them. Here
nobody waits for a thread: who has asked may be cancelled, or have a time limit, and the process may end. Who asks for
the same thing meanwhile gets the answer of the call that is under way, so that a thing that hangs costs one thread,
however often it is asked for.
"""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from binlog_storage.console.running import MORE_THREADS

T = TypeVar("T")

CALLS_MAX: Final = 64
_under_way: Final[dict[Hashable, Future[Any]]] = {}
_lock: Final = threading.Lock()


async def apart(thing: Hashable, call: Callable[[], T]) -> T:
    """The result of `call`, or what it raises. Raises `OSError` when too many calls have not returned, or there is no
    thread for it.

    Args:
        thing: calls with the same one give the same.
    """
    with _lock:
        asked = _under_way.get(thing)
        if asked is None:
            if len(_under_way) >= CALLS_MAX:
                raise OSError(
                    errno.EAGAIN,
                    f"{CALLS_MAX} names and files have been asked for that do not answer",
                )
            asked = _begin(thing, call)
    return await asyncio.wrap_future(asked)


def _begin(thing: Hashable, call: Callable[[], T]) -> Future[T]:
    found: Future[T] = Future()
    found.set_running_or_notify_cancel()  # who goes away does not cancel it for others

    def run() -> None:
        try:
            result = call()
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            _forget(thing)
            found.set_exception(error)
        else:
            _forget(thing)
            found.set_result(result)

    try:
        threading.Thread(target=run, name="binlog-apart", daemon=True).start()
    except RuntimeError as error:  # an error of the system: who waits tries again, or says it
        raise OSError(errno.EAGAIN, f"{error}: {MORE_THREADS}") from None
    _under_way[thing] = found
    return found


def _forget(thing: Hashable) -> None:
    with _lock:
        del _under_way[thing]
