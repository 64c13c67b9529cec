"""Encrypted binlog files: their bytes, how they are read, and what a store of them leaves on its disk."""

from __future__ import annotations

import dataclasses
import random
import subprocess
import zlib
from contextlib import closing
from pathlib import Path

import pytest
from binlog_protocol.events.checksum import laid_out
from binlog_protocol.events.event_type import EventType
from binlog_protocol.events.header import build_event
from binlog_protocol.gtid import BinlogState, Gtid
from binlog_storage.classic.encryption import (
    ALGORITHMS,
    CountedFile,
    EventCipher,
    Keys,
    encryption_start,
    opened_to_read,
)
from binlog_storage.classic.errors import DamagedBinlog, UnreadableBinlog
from binlog_storage.classic.options import ClassicOptions
from binlog_storage.classic.spool import CACHE_FOLDER
from binlog_storage.classic.store import ClassicEngine
from binlog_storage.disk.key_file import read_keys
from binlog_storage.engine import Xid
from binlog_storage.errors import NoBinlogKey
from binlog_storage.testing.memory_disk import MemoryDisk
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.storage.classic.index_files import Bytes
from tests.storage.groups import (
    COMMIT_EVENT,
    append_all,
    begin_event,
    events,
    group,
    marker,
    payloads,
    read_from,
)

KEY = bytes(range(32))
PATH = Path("binlog.000001")
SECRET = b"no eye but ours"


def new_event(kind: EventType, body: bytes) -> bytes:
    return build_event(kind, body, server_id=1, timestamp=77)


class Closed(Bytes):
    def close(self) -> None:
        """There is nothing to close."""


# --- the key file ---


def keys_of(tmp_path: Path, text: bytes, filekey: str = "") -> dict[int, bytes]:
    path = tmp_path / "keys"
    path.write_bytes(text)
    return dict(read_keys(str(path), filekey))


HEX = KEY[:16].hex().encode()
LINES = [  # that 11.8.6 takes
    (b"1;" + HEX, 16),
    (b"# one\n\n  \t01;" + HEX + b" # and another", 16),
    (b"1;" + HEX.upper() + b"\r\n", 16),
    (b"1;" + KEY[:24].hex().encode() + b";5", 24),
    (b"300000;" + HEX + b"\n1;" + KEY.hex().encode(), 32),
    (b"1;" + HEX + b"\0", 16),
]


@pytest.mark.parametrize(("text", "size"), LINES)
def test_key_files(text: bytes, size: int, tmp_path: Path) -> None:
    assert keys_of(tmp_path, text)[1] == KEY[:size]


REFUSED = [  # and that it refuses, in these words
    (b"x;" + HEX, "Syntax error at {} line 1, column 1"),
    (b"1 " + HEX, "Syntax error at {} line 1, column 2"),
    (b"1 ;" + HEX, "Syntax error at {} line 1, column 2"),
    (b";" + HEX, "Syntax error at {} line 1, column 1"),
    (b"1;0011", "Invalid key at {} line 1, column 7"),
    (b"1;" + HEX + b"0", "Invalid key at {} line 1, column 35"),
    (b"1;" + HEX + b"00", "Invalid key at {} line 1, column 37"),
    (b"1;" + KEY.hex().encode() + b"ff", "Invalid key at {} line 1, column 67"),
    (b"1; " + HEX, "Invalid key at {} line 1, column 3"),
    (b"1;zz", "Invalid key at {} line 1, column 3"),
    (b"\n1;", "Invalid key at {} line 2, column 3"),
    (b"4294967296;" + HEX, "Invalid key id at {} line 1, column 10"),
    (b"0;" + HEX, "Invalid key id at {} line 1, column 2"),
    (b"3;" + HEX, "System key id 1 is missing at {} line 1, column 1"),
]


@pytest.mark.parametrize(("text", "said"), REFUSED)
def test_key_files_that_are_refused(text: bytes, said: str, tmp_path: Path) -> None:
    with pytest.raises(NoBinlogKey) as error:
        keys_of(tmp_path, text)
    assert str(error.value) == said.format(tmp_path / "keys")


@pytest.mark.long
def test_an_encrypted_key_file(tmp_path: Path) -> None:
    """Made by openssl, as MariaDB's manual says."""
    plain, path, password = tmp_path / "plain", tmp_path / "keys", tmp_path / "password"
    plain.write_bytes(b"1;" + KEY.hex().encode() + b"\n")
    password.write_bytes(b"our password\n")
    for digest in ("sha1", "sha256"):
        command = (
            f"openssl enc -aes-256-cbc -md {digest} -in {plain} -out {path} -pass file:{password}"
        )
        subprocess.run(command.split(), check=True, capture_output=True)
        if digest == "sha1":
            for filekey in ("our password", f"FILE:{password}"):
                assert read_keys(str(path), filekey)[1] == KEY
    for wrong in ("", "another", "our password"):
        with pytest.raises(NoBinlogKey, match=r"Cannot decrypt .*keys. Wrong key\?"):
            read_keys(str(path), wrong)
    with pytest.raises(NoBinlogKey, match=r"File '.*none' not found .Errcode: 2 "):
        read_keys(str(tmp_path / "none"), "")
    with pytest.raises(NoBinlogKey, match="file-key-management-filename is not set"):
        read_keys("", "")


# --- events ---


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_bytes_of_an_event(algorithm: str) -> None:
    """By hand, with another library: openssl."""
    nonce, begin = bytes(range(100, 112)), 5000
    event = new_event(EventType.QUERY, b"something of 37 bytes, and its header")
    iv = nonce + begin.to_bytes(4, "little")

    def openssl(mode: str, data: bytes, *more: str) -> bytes:
        command = ["openssl", "enc", f"-aes-256-{mode}", "-K", KEY.hex(), "-nopad", *more]
        return subprocess.run(command, input=data, check=True, capture_output=True).stdout

    mixed = event[4:9] + event[:4] + event[13:]
    whole = len(mixed) & -16
    if algorithm == "aes_ctr":
        data = openssl("ctr", mixed, "-iv", iv.hex())
    else:
        data = openssl("cbc", mixed[:whole], "-iv", iv.hex())
        pad = openssl("ecb", iv)
        data += bytes(a ^ b for a, b in zip(mixed[whole:], pad, strict=False))
    expected = data[5:9] + data[:5] + event[9:13] + data[9:]
    assert EventCipher(KEY, nonce, algorithm).sealed(event, begin) == expected


def file_of(sizes: list[int], algorithm: str, checksums: int) -> tuple[bytes, bytes, list[int]]:
    """The bytes behind the head in clear, a whole encrypted file, and where its events begin."""
    keys = Keys({1: KEY}, algorithm)
    head = bytearray(b"\xfebin")
    head += laid_out(new_event(EventType.FORMAT_DESCRIPTION, bytes(229)), 4, 1)
    start = laid_out(keys.start_event(1, 5), len(head), checksums)
    plain = bytearray()
    begins = []
    at = len(head) + len(start)
    first = new_event(EventType.GTID_LIST, bytes(4))
    for event in (first, *(new_event(EventType.QUERY, bytes([n % 251]) * n) for n in sizes)):
        begins.append(at + len(plain))
        plain += laid_out(event, at + len(plain), checksums)
    whole = keys.sealed_head(bytes(head) + start + bytes(plain))
    return bytes(plain), whole, begins


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.integers(0, 100) | st.integers(0, 4000), max_size=12),
    st.sampled_from(ALGORITHMS),
    st.sampled_from(ALGORITHMS),
    st.integers(0, 1),
    st.randoms(use_true_random=False),
)
def test_reads_of_any_size(
    sizes: list[int], algorithm: str, configured: str, checksums: int, rng: random.Random
) -> None:
    """Whichever algorithm the options say, the file tells its own."""
    plain, whole, begins = file_of(sizes, algorithm, checksums)
    start = encryption_start(Closed(whole))
    assert start is not None
    assert start.end == begins[0]
    keys = Keys({1: KEY}, configured)
    for _ in range(6):
        file = opened_to_read(keys, PATH, Closed(whole))
        assert file.size() == len(whole)
        head = file.pread(start.end, 0)
        assert head[: start.begin] == whole[: start.begin]
        assert head[start.begin + 17] == 0x80  # ignorable, as a master sends it
        at = rng.choice(begins)
        while at < len(whole):
            size = rng.choice((1, 3, 4, 9, 13, 16, 19, 20, 33, 100, 5000))
            read = file.pread(size, at)
            assert read == plain[at - start.end :][:size]
            at += len(read)
        cut = rng.randrange(start.end + 20, len(whole))
        cipher = keys.cipher(PATH, Closed(whole), start)
        torn = opened_to_read(keys, PATH, Closed(whole[:cut] + bytes(rng.randrange(60))))
        assert cipher is not None
        assert len(torn.pread(len(whole) + 60, start.end)) == torn.size() - start.end


def test_a_wrong_key_is_said() -> None:
    _, whole, _ = file_of([10], "aes_cbc", 1)
    with pytest.raises(NoBinlogKey, match="Event decryption failure: key 1 of the key file is not"):
        opened_to_read(Keys({1: KEY[::-1]}, "aes_cbc"), PATH, Closed(whole))
    file = Closed(whole[:275] + b"\2" + whole[276:])
    with pytest.raises(NoBinlogKey, match="encryption scheme 2"):
        opened_to_read(Keys({1: KEY}, "aes_cbc"), PATH, file)
    file = Closed(whole[:276] + b"\2" + whole[277:])
    with pytest.raises(NoBinlogKey, match="version 2 of its key"):
        opened_to_read(Keys({1: KEY}, "aes_cbc"), PATH, file)


def test_files_of_our_own() -> None:
    disk = MemoryDisk()
    with closing(disk.open("cache", create=True)) as raw:
        file = CountedFile.temporary(raw)
        data = bytes(range(256)) * 40
        for at in range(0, len(data), 1000):
            file.pwrite(data[at : at + 1000], at)
        assert raw.pread(len(data), 0) != data
        for at, size in ((0, 10), (15, 2), (16, 16), (4097, 3000)):
            assert file.pread(size, at) == data[at : at + size]
        assert zlib.crc32(file.pread(len(data), 0)) == zlib.crc32(data)


# --- a store ---


@pytest.fixture
def options(tmp_path: Path) -> ClassicOptions:
    path = tmp_path / "keys"
    path.write_bytes(b"1;" + KEY.hex().encode())
    return ClassicOptions(
        max_binlog_size=8192,
        encrypt_binlog=True,
        slave_connections_needed_for_purge=0,
        binlog_gtid_index_span_min=1000,
        file_key_management_filename=str(path),
    )


def secret(gtid: Gtid, size: int) -> tuple[bytes, bytes]:
    """The GTID event of a group, and the rest of it."""
    text = (SECRET * (size // len(SECRET) + 1))[:size]
    return begin_event(gtid), new_event(EventType.QUERY, bytes(20) + text) + COMMIT_EVENT


def write_all(engine: ClassicEngine) -> list[bytes]:
    """Groups of each way into the store."""
    made = []
    for number in range(1, 30):
        begin, rest = secret(Gtid(0, 1, number), number * 331 % 900 + 30)
        engine.append(begin + rest, Gtid(0, 1, number))
        made.append(begin + rest)
    one: bytes = marker(1).payload
    engine.append(one, None)
    made.append(one)
    for number, size in ((40, 60_000), (41, 1_200_000)):
        begin, rest = secret(Gtid(0, 1, number), size)
        writer = engine.begin()
        writer.spill(rest)
        writer.commit(begin, Gtid(0, 1, number))
        made.append(begin + rest)
    begin, rest = secret(Gtid(0, 1, 50), 50_000)
    writer = engine.begin()
    writer.spill(rest)
    writer.prepare(Xid(1, b"x"))
    engine.commit_prepared(Xid(1, b"x"), begin, Gtid(0, 1, 50))
    made.append(begin + rest)
    engine.sync()
    return made


@pytest.mark.long
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_store(options: ClassicOptions, algorithm: str) -> None:
    options = dataclasses.replace(options, file_key_management_encryption_algorithm=algorithm)
    disk = MemoryDisk()
    engine = ClassicEngine(disk, options)
    made = write_all(engine)
    first = engine.first_start().position
    assert read_from(engine, first) == made
    pending = engine.begin()
    pending.spill(SECRET * 9000)
    pending_xa = engine.begin()
    pending_xa.spill(events(90_000, "x") + secret(Gtid(0, 1, 1), 900)[1])
    pending_xa.prepare(Xid(1, b"waits"))
    assert disk.names(CACHE_FOLDER)
    assert not [name for name, data in disk.contents().items() if SECRET in data]
    pending.rollback()
    disk.crash()
    engine = ClassicEngine(disk, options)
    assert read_from(engine, first) == made
    begin = begin_event(Gtid(0, 1, 60))
    engine.commit_prepared(Xid(1, b"waits"), begin, Gtid(0, 1, 60))
    engine.sync()
    assert read_from(engine, first)[-1].startswith(begin)
    for file in engine.files():
        for pieces in engine.groups_of_file(file.number):
            assert b"".join(pieces) in [*made, read_from(engine, first)[-1]]
    state = BinlogState([Gtid(0, 1, 9)])
    start = engine.find_start(state.position())
    assert start.state == state
    assert read_from(engine, start.position) == read_from(engine, first)[9:]
    engine.close()
    assert not [name for name, data in disk.contents().items() if SECRET in data]
    with closing(ClassicEngine(disk, options)) as engine:
        assert read_from(engine, first)[:-1] == made
        assert engine.counters()["Binlog_gtid_index_miss"] == 0


def test_files_of_both_kinds(options: ClassicOptions) -> None:
    """Where the option changes, the next file has the other kind, from the start on."""
    plain = dataclasses.replace(options, encrypt_binlog=False)
    disk = MemoryDisk()
    made: list[bytes] = []
    for number, chosen in enumerate((plain, options, options, plain, options), 1):
        engine = ClassicEngine(disk, chosen)
        groups = [group(Gtid(number, 1, n), 200) for n in range(1, 4)]
        append_all(engine, groups)
        engine.sync()
        made += payloads(groups)
        assert read_from(engine, engine.first_start().position) == made
        if number == 2:
            disk.crash()
        else:
            engine.close()
    kinds = [
        encryption_start(Closed(disk.contents()[name])) is not None
        for name in sorted(disk.names())
        if name.startswith("binlog.0") and not name.endswith(".idx")
    ]
    assert kinds == [False, True, False, True]
    none = dataclasses.replace(options, encrypt_binlog=False, file_key_management_filename="")
    with pytest.raises(UnreadableBinlog, match="file_key_management_filename"):
        ClassicEngine(MemoryDisk(disk.contents()), none)


def test_keys_that_are_missing_or_wrong(options: ClassicOptions, tmp_path: Path) -> None:
    disk = MemoryDisk()
    with closing(ClassicEngine(disk, options)) as engine:
        write_all(engine)
    contents = disk.contents()
    Path(options.file_key_management_filename).write_bytes(b"1;" + KEY[::-1].hex().encode())
    for changed, said in (
        ({}, "Event decryption failure"),
        ({"file_key_management_filename": ""}, "file-key-management-filename is not set"),
        ({"file_key_management_filename": str(tmp_path / "no")}, "not found .Errcode: 2"),
    ):
        disk = MemoryDisk(contents)
        with pytest.raises(NoBinlogKey, match=said):
            ClassicEngine(disk, dataclasses.replace(options, **changed))  # type: ignore[arg-type]
        assert disk.contents() == contents


def test_options_do_not_show_the_password() -> None:
    assert "hidden" not in repr(ClassicOptions(file_key_management_filekey="hidden"))
    with pytest.raises(ValueError, match="aes_cbc or aes_ctr"):
        ClassicOptions(file_key_management_encryption_algorithm="aes_gcm")


def test_a_torn_tail_is_cut_and_damage_is_said(options: ClassicOptions, rng: random.Random) -> None:
    disk = MemoryDisk()
    engine = ClassicEngine(disk, dataclasses.replace(options, max_binlog_size=1 << 20))
    groups = [group(Gtid(0, 1, n), 300) for n in range(1, 20)]
    append_all(engine, groups)
    engine.sync()
    contents = disk.contents()
    data = contents["binlog.000001"]
    for cut in [len(data) - n for n in range(1, 60, 3)] + rng.sample(range(400, len(data)), 10):
        for tail in (b"", bytes(100)):
            torn = MemoryDisk({**contents, "binlog.000001": data[:cut] + tail})
            with closing(ClassicEngine(torn, options)) as engine:
                found = read_from(engine, engine.first_start().position)
                assert found == payloads(groups)[: len(found)]
                append_all(engine, [group(Gtid(1, 1, 1), 80)])
                engine.sync()
                assert len(read_from(engine, engine.first_start().position)) == len(found) + 1
    with closing(ClassicEngine(MemoryDisk(contents), options)) as engine:
        engine.flush()
        disk = MemoryDisk(engine._disk.contents())  # type: ignore[attr-defined]
    changed = bytearray(disk.contents()["binlog.000001"])
    changed[-200] ^= 1
    disk = MemoryDisk({**disk.contents(), "binlog.000001": bytes(changed)})
    with (
        closing(ClassicEngine(disk, options)) as engine,
        pytest.raises(DamagedBinlog, match="CRC-32"),
    ):
        read_from(engine, engine.first_start().position)


@pytest.mark.long
def test_another_algorithm_is_not_taken_for_the_files_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """By chance, in one file of 256, what it makes of the first event has the type of a GTID_LIST, too."""
    nonces = random.Random(1)
    monkeypatch.setattr("os.urandom", nonces.randbytes)
    for made in range(1500):
        plain, whole, begins = file_of([], ALGORITHMS[made % 2], 1)
        file = opened_to_read(Keys({1: KEY}, ALGORITHMS[(made + 1) % 2]), PATH, Closed(whole))
        assert file.pread(len(plain), begins[0]) == plain, made
