"""Object stores, as far as an archive needs one: whole objects, and a change of one only if nobody else has changed it.

The only place that knows obstore, which speaks to most of them; `hdfs_objects` knows HDFS.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import timedelta
from typing import IO, Any, Final, NamedTuple, Protocol, TypeVar

from binlog_protocol.compiled_later import compiled_later

from binlog_storage.archive.errors import ArchiveUnreachable, ObjectChanged, StoreLibraryMissing

HDFS: Final = "hdfs"
SCHEMES: Final = frozenset({"s3", "s3a", "gs", "az", "azure", "adl", "abfs", "abfss", HDFS})
_RETRIES: Final = 4  # of one call, behind 500, 503, or no answer
_RETRY: Final = timedelta(seconds=30)
_TIMEOUT: Final = timedelta(minutes=5)  # of a part of 64 MiB on a slow line
_SILENCE: Final = timedelta(seconds=30)  # without a byte of an answer
_CONNECT_TIMEOUT: Final = timedelta(seconds=10)
_SHOWN: Final = 300
_DURATION: Final = compiled_later(r" in [0-9.]+(?:ns|µs|ms|s)\b")
_CLOUDS: Final = ("AWS", "GOOGLE", "AZURE")
_BEHIND_ETAG: Final = "\n"
_Found = TypeVar("_Found")


class StoredObject(NamedTuple):
    """An object: its size, the tag of this version of it, and its bytes. `pieces` raises `ArchiveUnreachable`."""

    size: int
    tag: str
    pieces: Iterable[bytes]


class Objects(Protocol):
    """The objects below a URL. Any thread. All methods raise `ArchiveUnreachable`: it may have been done, or not."""

    @property
    def where(self) -> str:
        """The URL, for messages."""

    def get(self, name: str) -> StoredObject | None:
        """An object; None if there is none of that name."""

    def put(self, name: str, data: bytes | IO[bytes], instead_of: str | None) -> str:
        """Write an object as a whole, durably. Returns its tag. Raises `ObjectChanged`, and nothing is written then.

        Args:
            instead_of: only if that is the tag of what is there; None: only if there is nothing.
        """

    def names(self, prefix: str, behind: str) -> list[str]:
        """Names that begin so, and come behind `behind`, ascending."""

    def delete(self, name: str) -> None:
        """Delete an object; none of that name is no error."""


def open_by_obstore(url: str) -> Objects:
    """The objects of a URL with one of `SCHEMES`, but for `HDFS`: nothing is asked.

    Raises `StoreLibraryMissing`, `ArchiveUnreachable`.
    """
    try:
        import obstore
        from obstore import store
    except ModuleNotFoundError:
        raise StoreLibraryMissing(
            f"{url}: obstore is needed for object stores; pip install '.[archive]'"
        ) from None
    # The library takes its own variable for this only without options of ours.
    allow_http = any(os.environ.get(f"{one}_ALLOW_HTTP", "").lower() == "true" for one in _CLOUDS)
    options = {
        "timeout": _TIMEOUT,
        "connect_timeout": _CONNECT_TIMEOUT,
        "allow_http": allow_http,
    }
    retries = {"max_retries": _RETRIES, "retry_timeout": _RETRY}
    # What is wrong with the URL itself is a ValueError.
    with _said_of(url, (obstore.exceptions.BaseError, OSError, ValueError)):
        # A part that is sent has no answer until all of it is there.
        patient = store.from_url(url, client_options=options, retry_config=retries)
        made = store.from_url(
            url, client_options={**options, "read_timeout": _SILENCE}, retry_config=retries
        )
    return ObstoreObjects(obstore, made, url, patient)


class ObstoreObjects:
    """See `Objects`.

    Args:
        library: the module.
        store: one of its stores, which begins at `where`.
        patient: the same one, for what takes long to be sent.
    """

    def __init__(self, library: Any, store: Any, where: str, patient: Any = None) -> None:
        self._obstore: Final = library
        self._store: Final = store
        self._patient: Final = store if patient is None else patient
        self.where: Final = where

    def get(self, name: str) -> StoredObject | None:
        """See `Objects`."""
        with self._said(name):
            try:
                found = heard(lambda: self._obstore.get(self._store, name))
            except (self._obstore.exceptions.NotFoundError, FileNotFoundError):
                return None
            return StoredObject(found.meta["size"], _tag(found.meta), self._pieces(found, name))

    def _pieces(self, found: Any, name: str) -> Iterator[bytes]:
        with self._said(name):
            pieces = iter(found.stream())
            while (piece := heard(lambda: next(pieces, None))) is not None:
                yield bytes(piece)

    def put(self, name: str, data: bytes | IO[bytes], instead_of: str | None) -> str:
        """See `Objects`."""
        mode = "create" if instead_of is None else _version(instead_of)
        errors = self._obstore.exceptions
        store = self._store if isinstance(data, bytes) else self._patient
        with self._said(name):
            try:
                # In one request: only that can have a condition.
                done = heard(
                    lambda: self._obstore.put(store, name, data, mode=mode, use_multipart=False)
                )
            except (errors.AlreadyExistsError, errors.PreconditionError) as error:
                raise ObjectChanged(f"{self.where}/{name} is another one by now") from error
            return _tag(done)

    def names(self, prefix: str, behind: str) -> list[str]:
        """See `Objects`."""
        with self._said(prefix):
            pages = heard(lambda: [*self._obstore.list(self._store, offset=behind)])
            found = (one["path"] for page in pages for one in page)
            # Not every store knows the offset: Azurite tells all names (3.37).
            return sorted(name for name in found if name.startswith(prefix) and name > behind)

    def delete(self, name: str) -> None:
        """See `Objects`."""
        with self._said(name):
            try:
                heard(lambda: self._obstore.delete(self._store, name))
            except (self._obstore.exceptions.NotFoundError, FileNotFoundError):
                return

    @contextmanager
    def _said(self, name: str) -> Iterator[None]:
        with _said_of(f"{self.where}/{name}", (self._obstore.exceptions.BaseError, OSError)):
            yield


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


def _tag(meta: Any) -> str:
    """What the library tells two versions of an object apart by: ETag, and for Google's store its generation."""
    return f"{meta['e_tag'] or ''}{_BEHIND_ETAG}{meta.get('version') or ''}"


def _version(tag: str) -> dict[str, str]:
    """The version of `_tag`, as the library wants it for a condition."""
    etag, _, version = tag.partition(_BEHIND_ETAG)
    return {"e_tag": etag, "version": version} if version else {"e_tag": etag}


@contextmanager
def _said_of(where: str, errors: tuple[type[Exception], ...]) -> Iterator[None]:
    """These errors of the library and of the network are `ArchiveUnreachable`. Others are defects of ours, and seen."""
    try:
        yield
    except errors as error:
        text = str(error).split("\n\nDebug source", 1)[0]
        text = _DURATION.sub("", text)  # else no two errors are the same, and each is logged
        raise ArchiveUnreachable(f"{where}: {_without_keys(text)[:_SHOWN]}") from error


def _without_keys(text: str) -> str:
    return re.sub(r"(?i)(signature|credential|token|key)=[^&\s\"]+", r"\1=...", text)
