def take_part(
    buffer: bytearray | memoryview,
    at: int,
    stop: int,
    seq: int,
    checksums: int,
    roles: bytes,
    semi_sync: bool,
) -> tuple[int, int, bytearray, int, int, int, int] | None: ...
def take_run(
    buffer: bytearray | memoryview,
    at: int,
    stop: int,
    seq: int,
    checksums: int,
    roles: bytes,
    semi_sync: bool,
    bare: bool = ...,
) -> tuple[int, int, bytearray, bytes, bytes, int, int, int, int, int, int] | None: ...
def pass_groups(
    buffer: bytes | bytearray | memoryview,
    at: int,
    stop: int,
    enough: int,
    checksums: int,
    roles: bytes,
) -> int: ...
def crc32(data: bytes | bytearray | memoryview, before: int = ..., /) -> int: ...
def is_sound(event: bytes, roles: bytes) -> bool: ...
def lay_out(
    payload: bytes | bytearray | memoryview, begin: int, checksums: int
) -> bytes | None: ...
