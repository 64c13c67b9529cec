"""The manifest of an archive: which parts there are, in their order, and what is in each.

What is not in it does not count.

`_archive.json` is one JSON object:

    format, version   "binlog archive", 1; 2 with what is marked with *, 3 with `.ibb.zst` parts
    source            where the groups came from at first, for people: {"kind": ..., "name": ...}
    begin             GTID binlog state at the beginning: what had been logged before the first group
    chunks            lists of parts that are full and have a file of their own, the oldest first
    parts             the parts behind those
    numbers           * so many numbers of parts were given out: none is used again when parts have become one
    retired           * such parts, which are removed after a while: [{"at": since when, "names": [...]}, ...]
    key_id            * of the key with which parts are encrypted, and the manifest is authenticated
    mac               * by that key, of the object without `mac` and `sha256`
    sha256            of the object without this member, written with sorted keys and without spaces

A chunk file `_archive-000001.json` is the same with `format`, `version`, `parts` and `sha256` alone. So a manifest
stays small, whatever the archive has.

A part is what was read at one go, and one file of Parquet or `.ibb.zst`, as its name ends:

    name, size, sha256     of the file
    groups, crc32c         how many groups, and CRC-32C of their bytes in normal form, one behind the other
    payload_bytes          how many bytes these are
    first, last            GTIDs of the first and the last group
    gtids                  what the part adds to the binlog state: for each domain and server the last
    last_sha256            of the last group, by which a source is known again
    ts_min, ts_max         times of groups, in seconds since 1970
    file_base              is added to `file` of its rows, so that places grow through the archive
    last_place             [file, offset] of the end of the last group, with it
    markers_behind         start markers behind the last group
    key_id                 of the key with which the file is encrypted (`encryption`); without it, it is not
    sealed                 then in the place of `crc32c` and `last_sha256`: both, encrypted

Of a part that has nothing but start markers the texts are empty, and the numbers 0.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, field, fields, replace
from typing import Any, Final, Literal, NamedTuple, Self, TypeVar

from binlog_protocol.compiled_later import compiled_later
from binlog_protocol.dataclass import dataclass
from binlog_protocol.errors import ServerError
from binlog_protocol.gtid import BinlogState, Gtid, parse_gtid_list

from binlog_storage.archive.encryption import NO_KEYS, ArchiveKey, ArchiveKeys
from binlog_storage.archive.errors import ArchiveDamaged, NotAnArchive

MANIFEST_NAME: Final = "_archive.json"
FORMAT: Final = "binlog archive"
VERSION: Final = 3
_PLAIN_VERSION: Final = 1  # of archives that programs of that version can read
_PARQUET_VERSION: Final = 2  # the same
_NAME_DIGITS: Final = 16


PartFormName = Literal["parquet", "ibb"]
FORMS: Final[Mapping[PartFormName, str]] = {"parquet": ".parquet", "ibb": ".ibb.zst"}
"""The forms of parts, and how their names end."""


def part_name(number: int, form: PartFormName = "parquet") -> str:
    """File name of a part; parts are counted from 1."""
    return f"part-{number:08d}{FORMS[form]}"


def form_of(name: str) -> PartFormName:
    """The form of a part, by its name or that under which it is staged."""
    return "ibb" if name.endswith(FORMS["ibb"]) else "parquet"


def chunk_name(number: int) -> str:
    """File name of a chunk; chunks are counted from 1."""
    return f"_archive-{number:06d}.json"


def object_name(name: str, sha256: str) -> str:
    """The name of such a file in an object store: two who write the same number do not write the same object."""
    stem, dot, ending = name.partition(".")
    return f"{stem}-{sha256[:_NAME_DIGITS]}{dot}{ending}"


_PART_NAME: Final = compiled_later(r"part-([0-9]{8,18})(?:-[0-9a-f]{16})?\.(?:parquet|ibb\.zst)")


def part_number(name: str) -> int | None:
    """The number in the name of a part, in a folder or an object store; None of anything else."""
    found = _PART_NAME.fullmatch(name)
    return None if found is None else int(found[1])


@dataclass(frozen=True, slots=True)
class ArchivePart:
    """See the module. `name` is empty until it is published."""

    size: int
    sha256: str
    groups: int
    payload_bytes: int
    crc32c: int
    first: str
    last: str
    gtids: str
    last_sha256: str
    ts_min: int
    ts_max: int
    last_place: tuple[int, int]
    markers_behind: int = 0
    name: str = ""
    file_base: int = 0
    key_id: int = 0

    def added_to(self, state: BinlogState) -> BinlogState:
        """The binlog state behind it, if that was the one in front of it. A new one."""
        after = state.copy()
        after.overlay(parse_gtid_list(self.gtids))
        return after

    @property
    def last_gtid(self) -> Gtid:
        return Gtid.parse(self.last)

    def moved(self, file_base: int) -> Self:
        """It, with places that come so many files later."""
        if not self.groups:
            return replace(self, file_base=file_base)
        file_no, offset = self.last_place
        return replace(self, file_base=file_base, last_place=(file_no + file_base, offset))


class RetiredParts(NamedTuple):
    """Names of parts that have become one, and when, in seconds since 1970."""

    at: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ArchiveChunk:
    """A list of parts in a file of its own. `state` is behind its last part; the rest sums its parts up.

    highest: number of a part in it, if that is not how many parts there are up to its end.
    """

    name: str
    sha256: str
    parts: int
    state: str
    groups: int
    payload_bytes: int
    size: int
    ts_min: int
    ts_max: int
    highest: int = 0


@dataclass(frozen=True, slots=True)
class ArchiveManifest:
    """See the module."""

    begin: str
    source: Mapping[str, str] = field(default_factory=dict)
    chunks: tuple[ArchiveChunk, ...] = ()
    parts: tuple[ArchivePart, ...] = ()
    key_id: int = 0
    numbers: int = 0
    retired: tuple[RetiredParts, ...] = ()

    @property
    def _all(self) -> tuple[ArchiveChunk | ArchivePart, ...]:
        return (*self.chunks, *self.parts)

    @property
    def count(self) -> int:
        """Number of parts."""
        return sum(chunk.parts for chunk in self.chunks) + len(self.parts)

    @property
    def given(self) -> int:
        """The highest number that a part was given."""
        return self.numbers or self.count

    @property
    def listed(self) -> int:
        """The highest number of a part in a chunk."""
        highest = count = 0
        for chunk in self.chunks:
            count += chunk.parts
            highest = max(highest, chunk.highest or count)
        return highest

    @property
    def groups(self) -> int:
        """Number of groups."""
        return sum(one.groups for one in self._all)

    @property
    def payload_bytes(self) -> int:
        """Bytes of all groups, in normal form."""
        return sum(one.payload_bytes for one in self._all)

    @property
    def size(self) -> int:
        """Bytes of all parts as they are on disk."""
        return sum(one.size for one in self._all)

    @property
    def state(self) -> BinlogState:
        """The binlog state behind the last part."""
        state = BinlogState.parse(self.chunks[-1].state if self.chunks else self.begin)
        for part in self.parts:
            state.overlay(parse_gtid_list(part.gtids))
        return state

    def state_before(self, part: ArchivePart) -> BinlogState:
        """The binlog state in front of a part that is in no chunk."""
        return replace(self, parts=self.parts[: self.parts.index(part)]).state

    @property
    def last_part(self) -> ArchivePart | None:
        """The last part that has groups, of those that are not in a chunk."""
        return next((part for part in reversed(self.parts) if part.groups), None)

    @property
    def known_markers(self) -> int:
        """Start markers behind the last group."""
        count = 0
        for part in reversed(self.parts):
            count += part.markers_behind
            if part.groups:
                break
        return count

    def grown(self, part: ArchivePart, first_place: tuple[int, int]) -> ArchivePart:
        """A part whose places come behind those that are there, also where the source is another one now.

        Args:
            first_place: where its first group ends in the source.
        """
        last = self.last_part
        if not part.groups:
            return part
        base = 0 if last is None else last.file_base
        file_no, offset = first_place
        if last is not None and (file_no + base, offset) <= last.last_place:
            base = last.last_place[0] + 1 - file_no
        return part.moved(base)

    def build(self, keys: ArchiveKeys = NO_KEYS) -> bytes:
        """The bytes of the manifest file. Raises `NoBinlogKey`."""
        body: dict[str, Any] = {
            "begin": self.begin,
            "source": dict(self.source),
            "chunks": [_chunk_body(chunk) for chunk in self.chunks],
            "parts": _part_bodies(self.parts, keys),
        }
        if self.given != self.count:
            body["numbers"] = self.given
        if self.retired:
            body["retired"] = [{"at": at, "names": [*names]} for at, names in self.retired]
        if not self.key_id:
            return _closed(body)
        key = keys.get(self.key_id, "the manifest of the archive")
        return _closed({**body, "key_id": self.key_id}, key)

    @classmethod
    def parse(cls, data: bytes, where: str, keys: ArchiveKeys = NO_KEYS) -> Self:
        """Raises `NotAnArchive`, `ArchiveDamaged`, `NoBinlogKey`."""
        body = _opened(data, where, keys)
        try:
            made = cls(
                str(body["begin"]),
                {str(k): str(v) for k, v in body["source"].items()},
                tuple(_typed(ArchiveChunk(**chunk)) for chunk in body["chunks"]),
                _parts(body["parts"], keys, where),
                body.get("key_id", 0),
                _count(body.get("numbers", 0)),
                tuple(_retired(one) for one in body.get("retired", ())),
            )
            if made.numbers and made.numbers < made.count:
                raise ValueError(f"{made.count} parts have {made.numbers} numbers")
            _require_gtids(made.begin, *(chunk.state for chunk in made.chunks))
        except (KeyError, TypeError, ValueError, AttributeError, ServerError) as error:
            raise ArchiveDamaged(
                f"{where} is damaged: {repr(error)[:_ERROR_CHARS]}; {_RESTORE}"
            ) from None
        if keys.is_required and not made.key_id:
            raise keys.in_clear(where)
        for number, chunk in enumerate(made.chunks, 1):
            if chunk.name not in (
                chunk_name(number),
                object_name(chunk_name(number), chunk.sha256),
            ):
                raise ArchiveDamaged(
                    f"{where} is damaged: {chunk.name!a} stands where {chunk_name(number)} would; {_RESTORE}"
                )
        return made


def build_chunk(
    name: str,
    parts: Sequence[ArchivePart],
    before: BinlogState,
    keys: ArchiveKeys = NO_KEYS,
    *,
    is_object: bool = False,
) -> tuple[bytes, ArchiveChunk]:
    """The file of a chunk, and its entry in the manifest. `before`: the state in front of its first part.

    `is_object`: it gets its name from `object_name`.
    """
    data = _closed({"parts": _part_bodies(parts, keys)})
    state = before
    for part in parts:
        state = part.added_to(state)
    digest = hashlib.sha256(data).hexdigest()
    chunk = ArchiveChunk(
        object_name(name, digest) if is_object else name,
        digest,
        len(parts),
        str(state),
        sum(part.groups for part in parts),
        sum(part.payload_bytes for part in parts),
        sum(part.size for part in parts),
        *times_of(parts),
    )
    return data, chunk


def times_of(parts: Sequence[ArchivePart]) -> tuple[int, int]:
    """`ts_min` and `ts_max` of all of them."""
    return min(part.ts_min for part in parts), max(part.ts_max for part in parts)


def parse_chunk(
    data: bytes, chunk: ArchiveChunk, where: str, keys: ArchiveKeys = NO_KEYS
) -> tuple[ArchivePart, ...]:
    """Raises `ArchiveDamaged`, `NoBinlogKey`."""
    if hashlib.sha256(data).hexdigest() != chunk.sha256:
        raise ArchiveDamaged(f"{where} is not the one that the manifest means; {_RESTORE}")
    try:
        return _parts(_opened(data, where, keys)["parts"], keys, where)
    except (KeyError, TypeError, ValueError, AttributeError, ServerError) as error:
        raise ArchiveDamaged(
            f"{where} is damaged: {repr(error)[:_ERROR_CHARS]}; {_RESTORE}"
        ) from None


_T = TypeVar("_T", ArchivePart, ArchiveChunk)
_RESTORE: Final = "restore it from a copy"
_PLAIN_MEMBERS: Final = frozenset(("begin", "source", "chunks", "parts"))
_COUNT_MAX: Final = (1 << 62) - 1  # two of them fit into 64 bits with a sign
_SHOWN_CHARS: Final = 80
_ERROR_CHARS: Final = 300
_SPARE_VALUES: Final = 10_000
_BYTES_PER_BRACKET: Final = (
    32  # a part has two in 500 bytes and more, an entry of `retired` two in 68
)
_BYTES_PER_VALUE: Final = 4  # quotes and commas; a GTID in a list takes 6 bytes and more


def _chunk_body(chunk: ArchiveChunk) -> dict[str, Any]:
    body = asdict(chunk)
    if not chunk.highest:
        del body["highest"]
    return body


def _retired(body: Mapping[str, Any]) -> RetiredParts:
    found = RetiredParts(body["at"], tuple(map(str, body["names"])))
    # By these names something is deleted.
    if not _is_count(found.at) or any(part_number(name) is None for name in found.names):
        raise ValueError(f"parts were retired as {ascii(body)[:_SHOWN_CHARS]}")
    return found


def _part_bodies(parts: Iterable[ArchivePart], keys: ArchiveKeys) -> list[dict[str, Any]]:
    """As they stand in a manifest. Raises `NoBinlogKey`."""
    known: dict[int, ArchiveKey] = {}
    bodies = []
    for part in parts:
        body = asdict(part)
        number = body.pop("key_id")
        if number:
            key = known[number] = known.get(number) or keys.get(number, part.name)
            facts = f"{body.pop('crc32c')} {body.pop('last_sha256')}"
            body |= {"key_id": number, "sealed": key.seal(facts, part.sha256)}
        bodies.append(body)
    return bodies


def _parts(
    found: Iterable[Mapping[str, Any]], keys: ArchiveKeys, where: str
) -> tuple[ArchivePart, ...]:
    known: dict[int, ArchiveKey] = {}
    made = []
    for one in found:
        body = {**one, "last_place": tuple(one["last_place"])}
        if "sealed" in body:
            number, sealed = body["key_id"], str(body.pop("sealed"))
            if not _is_count(number) or not number:
                raise TypeError(f"key_id is {ascii(number)[:_SHOWN_CHARS]}")
            key = known[number] = known.get(number) or keys.get(number, where)
            facts = key.opened(sealed, str(body["sha256"]))
            if facts is None:
                raise keys.refused(number, where)
            crc32c, _, body["last_sha256"] = facts.partition(" ")
            body["crc32c"] = int(crc32c)
        made.append(_typed(ArchivePart(**body)))
    parts = tuple(made)
    for part in parts:
        _require_gtids(part.gtids, *filter(None, (part.first, part.last)))
        if len(part.last_place) != 2 or not all(map(_is_count, part.last_place)):
            raise TypeError(f"last_place is {ascii(part.last_place)[:_SHOWN_CHARS]}")
    return parts


def _typed(made: _T) -> _T:
    """A record of the manifest, checked for the types of its fields; `last_place` apart. Raises TypeError."""
    for field_ in fields(made):
        value = getattr(made, field_.name)
        is_right = {"int": _is_count(value), "str": isinstance(value, str)}
        if not is_right.get(str(field_.type), True):
            raise TypeError(f"{field_.name} is {ascii(value)[:_SHOWN_CHARS]}")
    return made


def _count(value: Any) -> int:
    if not _is_count(value):
        raise TypeError(f"a number is {ascii(value)[:_SHOWN_CHARS]}")
    return int(value)


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= _COUNT_MAX


def _require_gtids(*texts: str) -> None:
    """Raises `BadGtidList`."""
    for text in texts:
        parse_gtid_list(text)


def _closed(body: dict[str, Any], key: ArchiveKey | None = None) -> bytes:
    """With its checksum, and authenticated by a key."""
    is_plain = body.keys() <= _PLAIN_MEMBERS and not any(
        {"key_id", "highest"} & one.keys() for one in (*body["parts"], *body.get("chunks", ()))
    )
    version = _PLAIN_VERSION if is_plain else _PARQUET_VERSION
    if any(form_of(one["name"]) == "ibb" for one in body["parts"]):
        version = VERSION
    whole = {"format": FORMAT, "version": version, **body}
    proof = {} if key is None else {"mac": key.mac(_canonical(whole))}
    text = json.dumps({**whole, **proof, "sha256": _digest(whole)}, indent=1)
    return text.encode() + b"\n"


def _opened(data: bytes, where: str, keys: ArchiveKeys) -> dict[str, Any]:
    _require_plausible(data, where)
    try:
        body = json.loads(data)
        if not isinstance(body, dict) or body.get("format") != FORMAT:
            raise NotAnArchive(f"{where} is no manifest of an archive")
        if body.get("version") not in range(_PLAIN_VERSION, VERSION + 1):
            version = ascii(body.get("version"))[:_SHOWN_CHARS]
            raise NotAnArchive(
                f"{where} is of version {version}; this program reads those up to {VERSION}"
            )
        digest, mac = body.pop("sha256", None), body.pop("mac", None)
        found = _digest(body)
    except (ValueError, RecursionError) as error:
        raise ArchiveDamaged(f"{where} is damaged: {error}; {_RESTORE}") from None
    if digest != found:
        raise ArchiveDamaged(
            f"{where} is damaged: its sha256 is not the one that stands in it; {_RESTORE}"
        )
    number = body.get("key_id", 0)
    if not _is_count(number):
        raise ArchiveDamaged(f"{where} is damaged: its key_id is no number; {_RESTORE}")
    if number and mac != keys.get(number, where).mac(_canonical(body)):
        raise keys.refused(number, where)
    return body


def _require_plausible(data: bytes, where: str) -> None:
    """Check that it is not made of more values than a manifest of its size, before it is taken apart.

    Of brackets alone 180 MiB became 4.7 GB of objects, and no other thread ran for 50 s. Raises `ArchiveDamaged`.
    """
    brackets, texts, values = (
        data.count(b"[") + data.count(b"{"),
        data.count(b'"'),
        data.count(b","),
    )
    if (
        brackets > _SPARE_VALUES + len(data) // _BYTES_PER_BRACKET
        or texts + values > _SPARE_VALUES + len(data) // _BYTES_PER_VALUE
    ):
        raise ArchiveDamaged(
            f"{where} is damaged: it is made of {brackets + texts + values} values, too many for {len(data)} bytes of "
            f"a manifest; {_RESTORE}"
        )


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(_canonical(body)).hexdigest()


def _canonical(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
