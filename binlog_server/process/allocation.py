"""Memory: of the C library, how it is given back and how it is had untouched; of Python, what is never garbage."""

from __future__ import annotations

import contextlib
import ctypes
import gc
from typing import Final

# Of malloc.h of glibc.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_KEPT_BYTES: Final = 16 << 20
_MAPPED_FROM_BYTES: Final = 16 << 20


def keep_freed_memory() -> None:
    """Memory that was freed is used again, not given back and fetched anew for each buffer of a large group.

    Fetching it costs a page fault each 4 KiB, 15 to 20 % of the processor time of a large group. Up to 16 MiB stay
    with the process so. With another C library than glibc nothing happens.

    All threads share one heap: a batch of history is made in one of several and dropped on the loop, and each heap
    would keep what was ever made there, 30 MiB in all. Who allocates holds the interpreter's lock as a rule, so they
    hardly ever wait for one another. For a process that has one thread so far.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM_BYTES)


def spare_what_stays() -> None:
    """Leave out of every later search for garbage what is there now: modules, grammars, tables.

    A search through all of it holds every thread for 50 ms, and comes whenever some ten thousand objects are new: a
    client that asks for many rows would hold up replicas by it.
    """
    gc.collect()
    gc.freeze()


_bytearray = ctypes.pythonapi.PyByteArray_FromStringAndSize
_bytearray.restype = ctypes.py_object
_bytearray.argtypes = (ctypes.c_char_p, ctypes.c_ssize_t)


def untouched(size: int) -> bytearray:
    """A bytearray with arbitrary content, as the C library gives it: `bytearray(size)` writes zeros to all of it.

    Where that memory is new, only what is written to is taken from the machine. Raises `MemoryError`.
    """
    made: bytearray = _bytearray(None, size)
    return made
