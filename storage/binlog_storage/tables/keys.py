"""Keys in order, for scans of a range: a list of short sorted lists, so that one key more moves few others."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from itertools import islice
from operator import lt
from typing import Final

_CHUNK: Final = 512
AT_ONCE: Final = 4096
"""Keys that are sorted, or copied, in one go: 2 ms."""


class SortedKeys:
    """A sorted set of keys. Not thread-safe."""

    def __init__(self, keys: Iterable[bytes] = ()) -> None:
        self._chunks: list[list[bytes]] = [[]]
        self._lasts: list[bytes] = []
        self._append(sorted(keys))

    @classmethod
    def of_many(cls, keys: list[bytes]) -> SortedKeys:
        """The same, of keys that may come twice: sorting a million in one go would hold every thread for 0.6 s."""
        made = cls()
        if all(
            all(map(lt, keys[at : at + AT_ONCE], islice(keys, at + 1, at + AT_ONCE + 1)))
            for at in range(0, len(keys), AT_ONCE)
        ):
            for at in range(0, len(keys), AT_ONCE):
                made._append(keys[at : at + AT_ONCE])
            return made
        borders = sorted(keys[:: max(1, len(keys) // AT_ONCE)])[::4]
        parts: list[list[bytes]] = [[] for _ in range(len(borders) + 1)]
        for key in keys:
            parts[bisect_right(borders, key)].append(key)
        for part in parts:
            made._append(sorted(set(part)))
        return made

    def _append(self, ordered: list[bytes]) -> None:
        """Append keys behind all others."""
        chunks = [ordered[at : at + _CHUNK] for at in range(0, len(ordered), _CHUNK)]
        if chunks and not self._lasts:
            self._chunks.clear()
        self._chunks += chunks
        self._lasts += [chunk[-1] for chunk in chunks]

    def put(self, key: bytes, *, is_there: bool) -> None:
        """The key is in it from now on, or is not, whatever was before."""
        at = bisect_left(self._lasts, key)
        chunk = self._chunks[at] if at < len(self._lasts) else []
        place = bisect_left(chunk, key)
        was_there = place < len(chunk) and chunk[place] == key
        if is_there and not was_there:
            self.add(key)
        elif was_there and not is_there:
            self.discard(key)

    def add(self, key: bytes) -> None:
        """Add a key that is not in it."""
        lasts = self._lasts
        if not lasts:
            self._chunks[0].append(key)
            lasts.append(key)
            return
        at = min(bisect_left(lasts, key), len(lasts) - 1)
        chunk = self._chunks[at]
        insort(chunk, key)
        if len(chunk) > 2 * _CHUNK:
            self._chunks[at : at + 1] = [chunk[:_CHUNK], chunk[_CHUNK:]]
            lasts[at : at + 1] = [chunk[_CHUNK - 1], chunk[-1]]
        else:
            lasts[at] = chunk[-1]

    def discard(self, key: bytes) -> None:
        """Remove a key that is in it."""
        at = bisect_left(self._lasts, key)
        chunk = self._chunks[at]
        del chunk[bisect_left(chunk, key)]
        if chunk:
            self._lasts[at] = chunk[-1]
        else:
            del self._lasts[at]
            if self._lasts:
                del self._chunks[at]

    def from_(self, key: bytes, count: int, *, behind: bool = False) -> list[bytes]:
        """So many keys from this one on, or from the next one on."""
        found: list[bytes] = []
        at = bisect_left(self._lasts, key)
        find = bisect_right if behind else bisect_left
        while at < len(self._lasts) and len(found) < count:
            chunk = self._chunks[at]
            begin = 0 if found else find(chunk, key)
            found += chunk[begin : begin + count - len(found)]
            at += 1
        return found

    def before(self, key: bytes | None, count: int) -> list[bytes]:
        """So many keys in front of this one, the greatest first; None: from the end."""
        found: list[bytes] = []
        at = (
            len(self._lasts) - 1
            if key is None
            else min(bisect_left(self._lasts, key), len(self._lasts) - 1)
        )
        while at >= 0 and len(found) < count:
            chunk = self._chunks[at]
            end = len(chunk) if key is None or found else bisect_left(chunk, key)
            found += chunk[max(0, end - count + len(found)) : end][::-1]
            at -= 1
        return found
