"""A pool that does with fewer threads where the system gives no more: limits of processes, of a control group.

The pool of the library queues a call, then raises that no thread could be started: the call may be done by another
thread later, and nobody has its result.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor


class FewThreads(ThreadPoolExecutor):
    """One thread is started at once: what is called later is done by that one, if there can be no other.

    Raises `RuntimeError` where there cannot be one.
    """

    def __init__(self, threads: int | None = None, name: str = "") -> None:
        super().__init__(threads, name)
        self.submit(lambda: None)

    def _adjust_thread_count(self) -> None:
        try:
            super()._adjust_thread_count()
        except RuntimeError:
            if not self._threads:
                raise
