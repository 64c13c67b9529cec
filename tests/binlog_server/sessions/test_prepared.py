"""Prepared statements and the commands around them: answers as recorded from 11.8, bounds, and what is given back."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Sequence

import pytest
from binlog_protocol.connection.auth import native_password_scramble
from binlog_protocol.connection.commands import (
    LAST_PREPARED,
    ChangeUser,
    Query,
    ResetConnection,
    StmtBulkExecute,
    StmtClose,
    StmtExecute,
    StmtFetch,
    StmtPrepare,
    StmtReset,
    StmtSendLongData,
)
from binlog_protocol.connection.handshake import (
    MARIADB_CAPABILITIES,
    SERVER_CAPABILITIES,
    AuthSwitchRequest,
    Capability,
    LoginRequest,
)
from binlog_protocol.events.column_type import ColumnType
from binlog_protocol.values import lenenc_bytes
from binlog_protocol.wire.packets import frame_packet
from binlog_protocol.wire.results import Column, parse_error

from binlog_server.accounts.privileges import ALL_PRIVILEGES
from binlog_server.accounts.users import Account
from tests.binlog_server.lab import PASSWORD, Client, Lab, until

USER = "adm"
NEW = SERVER_CAPABILITIES & ~int(Capability.COMPRESS | Capability.CONNECT_ATTRS)
OLD = NEW & ~int(Capability.DEPRECATE_EOF | Capability.SESSION_TRACK)
EOF = b"\xfe\0\0\2\0"
OK = b"\0\0\0\2\0\0\0"
ONE = struct.pack("<i", 1)


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    async with Lab(users={USER: Account(PASSWORD, frozenset({ALL_PRIVILEGES}))}) as lab:
        yield lab


class Prepared:
    """A client of the binary protocol."""

    def __init__(self, client: Client, request: LoginRequest) -> None:
        self.client = client
        self.request = request
        self.deprecates = bool(request.capabilities & Capability.DEPRECATE_EOF)
        self.caches = bool(request.mariadb_capabilities)

    @classmethod
    async def of(cls, lab: Lab, capabilities: int = OLD, extended: int = 0) -> Prepared:
        client = await lab.connect()
        request = LoginRequest(
            USER,
            native_password_scramble(PASSWORD, client.greeting.salt),
            "d",
            capabilities=capabilities,
            charset=45,
            mariadb_capabilities=extended,
        )
        client.send(frame_packet(request.build(), 1)[0])
        assert (await client.answer())[:1] == b"\0"
        return cls(client, request)

    async def ask(self, command: bytes) -> bytes:
        return await self.client.ask(command)

    async def prepare(self, sql: str | bytes) -> tuple[int, int, int]:
        """Number, columns, parameters; an error is raised."""
        text = sql.encode() if isinstance(sql, str) else sql
        answer = await self.ask(StmtPrepare(text).build())
        if answer[:1] == b"\xff":
            raise parse_error(answer)
        number, columns, parameters = struct.unpack_from("<IHH", answer, 1)
        for count in (parameters, columns):
            for _ in range(count and count + (not self.deprecates)):
                await self.client.answer()
        return number, columns, parameters

    async def rest(self, first: bytes) -> list[bytes]:
        """All packets of an answer."""
        packets = [first]
        if first[:1] in (b"\0", b"\xff", b"\xfe"):
            return packets
        follow = first[0] if len(first) == 1 or first[1] else 0
        head = 1 + follow + (not self.deprecates)
        while len(packets) <= head or packets[-1][:1] not in (b"\xfe", b"\xff"):
            packets.append(await self.client.answer())
        return packets

    async def execute(
        self,
        number: int,
        types: Sequence[int] = (),
        values: bytes = b"",
        *,
        flags: int = 0,
        new: bool = True,
    ) -> list[bytes]:
        body = b""
        if types:
            body = bytes((len(types) + 7) // 8) + bytes((new,))
            body += b"".join(bytes((kind, 0)) for kind in types) if new else b""
        return await self.rest(await self.ask(StmtExecute(number, flags, body + values).build()))


def errno(answer: Sequence[bytes]) -> int:
    return parse_error(answer[0]).errno


async def test_looking(lab: Lab) -> None:
    client = await Prepared.of(lab)
    number, columns, parameters = await client.prepare("SELECT ?, ? AS x, 1")
    assert (number, columns, parameters) == (1, 3, 2)
    kinds, values = (ColumnType.LONG, ColumnType.VAR_STRING), ONE + lenenc_bytes(b"it's")
    answer = await client.execute(number, kinds, values)
    # Definitions as those of 11.8, but for the collation.
    assert answer[1].hex() == "03646566000000013f000c3f000b000000038100000000"
    assert answer[-2] == b"\0\0" + ONE + b"\4it's" + ONE
    assert answer == await client.execute(number, kinds, values, new=False)


async def test_set_of_what_is_computed(lab: Lab) -> None:
    client = await Prepared.of(lab)
    number, columns, parameters = await client.prepare("SET @a = ?, @b = CONCAT(@a, ?), @c = ? + 1")
    assert (columns, parameters) == (0, 3)
    kinds = (ColumnType.VAR_STRING, ColumnType.VAR_STRING, ColumnType.LONG)
    await client.client.query("SET @a = 'before'")
    answer = await client.execute(number, kinds, b"\1x\1y" + ONE)
    assert answer[0][:1] == b"\0"
    assert await client.client.query("SELECT @a, @b, @c") == [["x", "beforey", "2"]]


async def test_a_float_is_all_of_it_in_the_binary_protocol() -> None:
    """Its text has six digits, as in MariaDB."""
    accounts = {USER: Account(PASSWORD, frozenset({ALL_PRIVILEGES}))}
    async with Lab(users=accounts, local_tables=True) as lab:
        client = await Prepared.of(lab)
        for text in (
            "CREATE DATABASE d",
            "CREATE TABLE d.f (id INT PRIMARY KEY, f FLOAT, g FLOAT(9,2))",
        ):
            await client.client.query(text)
        await client.client.query("INSERT INTO d.f VALUES (1, 16777217, 1234.565)")
        assert await client.client.query("SELECT f, g FROM d.f") == [["16777200", "1234.57"]]
        number, _, _ = await client.prepare("SELECT f, g FROM d.f")
        answer = await client.execute(number)
        assert answer[-2] == b"\0\0" + struct.pack("<ff", 16777217, 1234.57)


async def test_a_limit_may_be_a_parameter(lab: Lab) -> None:
    client = await Prepared.of(lab)
    number, columns, parameters = await client.prepare(
        "SELECT a FROM (SELECT 1 a UNION SELECT 2) t WHERE a > ? LIMIT ?"
    )
    assert (columns, parameters) == (1, 2)
    answer = await client.execute(number, (ColumnType.LONG, ColumnType.LONG), bytes(4) + ONE)
    assert answer[-2] == b"\0\0" + ONE


SHOWS = [
    ("SHOW MASTER STATUS", 5),
    ("SHOW BINARY LOGS", 2),
    ("SHOW BINLOG EVENTS", 6),
    ("SHOW SLAVE STATUS", 54),
    ("SHOW PROCESSLIST", 9),
    ("SHOW WARNINGS", 3),
    ("SELECT @@gtid_binlog_pos", 1),
    ("SELECT MASTER_GTID_WAIT('0-1-1', 100)", 1),
    ("SELECT SCHEMA_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = ?", 1),
    ("SHOW VARIABLES WHERE Variable_name = ?", 2),
    ("SHOW COLLATION", 6),
    ("START SLAVE", 0),
    ("SET NAMES utf8mb4", 0),
    ("KILL 5", 0),
    ("PURGE BINARY LOGS TO 'binlog.000001'", 0),
    ("FLUSH LOGS", 0),
    ("BEGIN", 0),
    ("USE app", 0),
    ("INSERT INTO t VALUES (?)", 0),
]


@pytest.mark.parametrize(("sql", "columns"), SHOWS)
async def test_columns_are_told_at_once(lab: Lab, sql: str, columns: int) -> None:
    client = await Prepared.of(lab)
    number, found, parameters = await client.prepare(sql)
    assert found == columns
    if columns and not parameters and "WAIT" not in sql:
        answer = await client.execute(number)
        assert answer[0] == bytes((columns,))
        text = await client.rest(await client.ask(Query(sql).build()))
        assert answer[: columns + 2] == text[: columns + 2]
        assert len(answer) == len(text)


REFUSED = [
    ("", 1065),
    ("SELEC 1", 1064),
    ("SELECT 1; SELECT 2", 1064),
    ("SHOW VARIABLES LIKE ?", 1064),
    ("PREPARE s FROM 'SELECT 1'", 1295),
    ("EXECUTE s", 1295),
    ("DROP PREPARE s", 1295),
    ("DELETE FROM t WHERE a IN (" + "?," * 65_536 + "1)", 1390),
]


@pytest.mark.parametrize(("sql", "wanted"), REFUSED, ids=[sql[:30] for sql, _ in REFUSED])
async def test_what_cannot_be_prepared(lab: Lab, sql: str, wanted: int) -> None:
    client = await Prepared.of(lab)
    with pytest.raises(Exception, match=str(wanted)):
        await client.prepare(sql)
    assert lab.server.prepared_count.total == 0


async def test_errors_of_execute(lab: Lab) -> None:
    client = await Prepared.of(lab)
    number, _, _ = await client.prepare("SELECT ?")
    assert errno(await client.execute(999)) == 1243
    assert errno(await client.execute(number, (ColumnType.LONG,), ONE, new=False)) == 1210
    assert errno(await client.execute(number, (ColumnType.LONG,), ONE[:2])) == 1210
    cut = StmtExecute(number, 0, bytes(1) + b"\1" + bytes((ColumnType.LONG,))).build()
    assert errno([await client.ask(cut)]) == 1835
    assert errno([await client.ask(StmtFetch(number, 1).build())]) == 1421
    assert errno([await client.ask(StmtFetch(999, 1).build())]) == 1243
    assert errno([await client.ask(StmtReset(999).build())]) == 1243
    client.client.command(StmtClose(number).build())
    assert errno(await client.execute(number, (ColumnType.LONG,), ONE)) == 1243
    bulk = StmtBulkExecute(999, 128).build()
    assert errno([await client.ask(bulk)]) == 1295
    able = await Prepared.of(lab, NEW, MARIADB_CAPABILITIES)
    assert errno([await able.ask(bulk)]) == 1243


async def test_execute_behind_prepare_without_waiting(lab: Lab) -> None:
    client = await Prepared.of(lab, NEW, MARIADB_CAPABILITIES)
    last = StmtExecute(LAST_PREPARED).build()
    for sql in (b"SELECT 1", b"SELEC 1"):
        client.client.command(StmtPrepare(sql).build())
        client.client.command(last)
    packets = [await client.client.answer() for _ in range(7)]
    assert [p.hex() for p in packets[:5]] == [
        "000100000001000000000000",
        "03646566000000013100000c3f0001000000038100000000",
        "0100",  # the definitions are those of PREPARE
        "0000" + ONE.hex(),
        "fe000002000000",
    ]
    assert [parse_error(p).errno for p in packets[5:]] == [1064, 1243]


async def test_long_data(lab: Lab) -> None:
    client = await Prepared.of(lab)
    number, _, _ = await client.prepare("SELECT ?")

    def send(parameter: int, data: bytes) -> None:
        client.client.command(StmtSendLongData(number, parameter, data).build())

    send(0, b"long ")
    send(0, b"data")
    answer = await client.execute(number, (ColumnType.BLOB,))
    assert answer[-2] == b"\0\0" + lenenc_bytes(b"long data")
    answer = await client.execute(number, (ColumnType.BLOB,), lenenc_bytes(b"x"))
    assert answer[-2] == b"\0\0\1x"  # it was for one EXECUTE
    send(0, b"12")
    assert errno(await client.execute(number, (ColumnType.LONG,))) == 1210
    send(7, b"x")
    assert errno(await client.execute(number, (ColumnType.LONG,), ONE)) == 1210
    assert errno(await client.execute(number, (ColumnType.LONG,), ONE)) == 1210  # up to RESET
    assert await client.ask(StmtReset(number).build()) == OK
    assert (await client.execute(number, (ColumnType.LONG,), ONE))[-2] == b"\0\0" + ONE


async def test_long_data_is_bounded(lab: Lab) -> None:
    most = lab.server.config.max_allowed_packet
    client = await Prepared.of(lab)
    number, _, _ = await client.prepare("SELECT ?")
    for size in (most // 2, most // 2, 1):
        client.client.command(StmtSendLongData(number, 0, bytes(size)).build())
    answer = await client.execute(number, (ColumnType.BLOB,))
    assert parse_error(answer[0]).errno == 1105
    assert "max_allowed_packet" in parse_error(answer[0]).message
    (held,) = [size for _, size in lab.server.session_memory._held.values()]
    assert held >= most
    await client.ask(StmtReset(number).build())
    await until(lambda: not lab.server.session_memory._held)


async def test_memory_of_statements_is_counted_and_given_back(lab: Lab) -> None:
    client = await Prepared.of(lab)
    text = b"INSERT INTO t VALUES ('" + b"x" * 100_000 + b"', ?)"
    numbers = [(await client.prepare(text))[0] for _ in range(3)]
    assert lab.server.session_memory.held > 300_000
    for number in numbers:
        client.client.command(StmtClose(number).build())
    await client.ask(b"\x0e")
    assert lab.server.session_memory.held == 0
    await client.prepare(text)
    assert lab.server.prepared_count.total == 1
    await client.ask(ResetConnection().build())
    assert (lab.server.prepared_count.total, lab.server.session_memory.held) == (0, 0)
    assert errno(await client.execute(5)) == 1243
    await client.prepare(text)
    client.client.close()
    await until(lambda: lab.server.session_memory.held == 0)
    assert lab.server.prepared_count.total == 0


async def test_the_number_of_all_statements_is_bounded(lab: Lab) -> None:
    one, other = await Prepared.of(lab), await Prepared.of(lab)
    await one.client.query("SET GLOBAL max_prepared_stmt_count = 3")
    await one.prepare("SELECT 1")
    await one.client.query("PREPARE s FROM 'SELECT 1'")
    number, _, _ = await other.prepare("BEGIN")
    for refused in (one.prepare("BEGIN"), other.client.query("PREPARE s FROM 'SELECT 1'")):
        with pytest.raises(Exception, match=r"1461.*current value: 3"):
            await refused
    other.client.command(StmtClose(number).build())
    await one.prepare("BEGIN")


async def test_cursor(lab: Lab) -> None:
    """As recorded from 11.8."""
    client = await Prepared.of(lab)
    number, _, _ = await client.prepare("SELECT 1 UNION SELECT 2 UNION SELECT 3")
    first = await client.ask(StmtExecute(number, 1).build())
    packets = [first, await client.client.answer(), await client.client.answer()]
    assert packets[0] == b"\1"
    assert packets[2] == b"\xfe\0\0\x42\0"

    async def fetch(count: int) -> list[bytes]:
        found = [await client.ask(StmtFetch(number, count).build())]
        while found[-1][:1] == b"\0":
            found.append(await client.client.answer())
        return [p[2:] if p[:1] == b"\0" else p for p in found]

    def row(value: int) -> bytes:
        return struct.pack("<i", value)

    assert await fetch(1) == [row(1), b"\xfe\0\0\x42\0"]
    assert await client.ask(b"\x0e") == OK
    assert await fetch(2) == [row(2), row(3), b"\xfe\0\0\x42\0"]
    assert await fetch(2) == [b"\xfe\0\0\x82\0"]
    assert errno(await fetch(2)) == 1421


async def test_bulk_is_one_transaction_or_nothing(lab: Lab) -> None:
    client = await Prepared.of(lab, NEW, MARIADB_CAPABILITIES)
    number, _, _ = await client.prepare("INSERT INTO t VALUES (?, ?)")
    types = bytes((ColumnType.LONG, 0, ColumnType.VAR_STRING, 0))
    rows = b"\0" + ONE + b"\0\1x" + b"\1\2" + b"\3\1"
    answer = await client.rest(await client.ask(StmtBulkExecute(number, 128, types + rows).build()))
    assert answer == [b"\0\3\0\2\0\0\0"]
    assert lab.engine.binlog_state().position() is not None
    units = await client.rest(await client.ask(StmtBulkExecute(number, 192, types + rows).build()))
    assert units[0] == b"\2\1"
    assert [p for p in units if p[:1] == b"\0"] == [b"\0\0" + bytes(8) + b"\1" + bytes(7)] * 3
    before = str(lab.engine.binlog_state())
    for body in (types, types + rows + b"\0", types + rows + b"\7", types[:3]):
        answer = [await client.ask(StmtBulkExecute(number, 128, body).build())]
        assert errno(answer) == (1210 if body[:4] == types else 1835)
    assert str(lab.engine.binlog_state()) == before
    assert await client.ask(Query("COMMIT").build()) == OK
    assert str(lab.engine.binlog_state()) == before


@pytest.mark.parametrize("found", [False, True])
async def test_rows_that_were_met_are_counted_for_who_wants_them(found: bool) -> None:
    """CLIENT_FOUND_ROWS, which connectors of ORMs set; each number recorded from 11.8."""
    accounts = {USER: Account(PASSWORD, frozenset({ALL_PRIVILEGES}))}
    async with Lab(users=accounts, local_tables=True) as lab:
        capabilities = NEW if found else NEW & ~int(Capability.FOUND_ROWS)
        client = await Prepared.of(lab, capabilities, MARIADB_CAPABILITIES)

        async def affected(sql: str) -> int:
            answer = await client.ask(Query(sql).build())
            assert answer[0] == 0, answer
            return answer[1]

        for sql in ("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY, n INT)"):
            await affected(sql)
        assert await affected("INSERT INTO d.t VALUES (1, 1), (2, 2), (3, 3)") == 3
        assert await affected("UPDATE d.t SET n = 2") == (3 if found else 2)
        assert await affected("UPDATE d.t SET n = 2 WHERE id = 1") == found
        assert await affected("UPDATE d.t SET n = 3 WHERE id = 1") == 1
        assert await affected("UPDATE d.t SET n = 3 WHERE id = 7") == 0
        again = (
            "INSERT INTO d.t VALUES (1, 3), (2, 9), (8, 8) ON DUPLICATE KEY UPDATE n = VALUES(n)"
        )
        assert await affected(again) == 3 + found
        assert await affected("DELETE FROM d.t WHERE n = 3") == 1
        number, _, _ = await client.prepare("UPDATE d.t SET n = ? WHERE id = ?")
        for value, count in ((5, 1), (5, int(found)), (6, 1)):
            values = struct.pack("<ii", value, 2)
            told = await client.execute(number, [ColumnType.LONG, ColumnType.LONG], values)
            assert told[0][1] == count


async def test_bulk_tells_what_each_row_did() -> None:
    """Of tables here: the number that AUTO_INCREMENT gave, and the rows that were changed; recorded from 11.8."""
    accounts = {USER: Account(PASSWORD, frozenset({ALL_PRIVILEGES}))}
    async with Lab(users=accounts, local_tables=True) as lab:
        client = await Prepared.of(lab, NEW, MARIADB_CAPABILITIES)

        async def units(sql: str, *rows: Sequence[int]) -> list[tuple[int, int]]:
            number, _, count = await client.prepare(sql)
            body = bytes((ColumnType.LONG, 0)) * count
            body += b"".join(b"\0" + struct.pack("<i", value) for row in rows for value in row)
            told = await client.rest(await client.ask(StmtBulkExecute(number, 192, body).build()))
            found = [struct.unpack("<qq", p[2:18]) for p in told if p[:2] == b"\0\0"]
            for count in (sum(changed for _, changed in found), -1):
                told = await client.rest(await client.ask(Query("SELECT ROW_COUNT()").build()))
                assert told[-2] == bytes((len(str(count)),)) + str(count).encode()
            return found

        for sql in (
            "CREATE DATABASE d",
            "CREATE TABLE d.t (id INT AUTO_INCREMENT PRIMARY KEY, n INT)",
        ):
            assert (await client.ask(Query(sql).build()))[:1] == b"\0"
        inserted = await units("INSERT INTO d.t (n) VALUES (?)", [5], [6], [7])
        assert inserted == [(1, 1), (2, 1), (3, 1)]
        mixed = await units("INSERT INTO d.t (id, n) VALUES (?, ?)", [100, 1], [0, 2], [50, 3])
        assert mixed == [(0, 1), (101, 1), (0, 1)]
        changed = await units("UPDATE d.t SET n = n + ? WHERE id < ?", [1, 3], [1, 0], [1, 3])
        assert changed == [(0, 2), (0, 0), (0, 2)]
        assert await units("DELETE FROM d.t WHERE id = ?", [1], [1]) == [(0, 1), (0, 0)]


async def test_bulk_returns_the_rows_of_all() -> None:
    """One result, as 11.8 sends it; it was that of the last row."""
    accounts = {USER: Account(PASSWORD, frozenset({ALL_PRIVILEGES}))}
    async with Lab(users=accounts, local_tables=True) as lab:
        client = await Prepared.of(lab, NEW, MARIADB_CAPABILITIES)
        for engine in ("InnoDB", "MyISAM"):
            for sql in (
                "DROP DATABASE IF EXISTS d",
                "CREATE DATABASE d",
                f"CREATE TABLE d.t (id INT AUTO_INCREMENT PRIMARY KEY, n INT) ENGINE={engine}",
            ):
                assert (await client.ask(Query(sql).build()))[:1] == b"\0"
            number, _, _ = await client.prepare("INSERT INTO d.t (n) VALUES (?) RETURNING id, n")
            body = bytes((ColumnType.LONG, 0))
            body += b"".join(b"\0" + struct.pack("<i", value) for value in (5, 6, 7))
            for flags in (128, 192):
                bulk = StmtBulkExecute(number, flags, body).build()
                told = await client.rest(await client.ask(bulk))
                rows = [struct.unpack("<ii", p[2:10]) for p in told if p[:2] == b"\0\0"]
                assert [n for _, n in rows] == [5, 6, 7]
                assert [number for number, _ in rows] == list(range(rows[0][0], rows[0][0] + 3))


async def test_clients_are_told_of_json_and_native_types() -> None:
    """EXTENDED_METADATA, by which Node's drivers give objects for JSON; recorded from 11.8."""
    accounts = {USER: Account(PASSWORD, frozenset({ALL_PRIVILEGES}))}
    json, none = b"\x06\x01\x04json", b"\0"
    expected = {
        "j": json,
        "l": none,
        "u": b"\x06\x00\x04uuid",
        "i4": b"\x07\x00\x05inet4",
        "i6": b"\x07\x00\x05inet6",
        "JSON_ARRAY(1)": json,
        "JSON_EXTRACT(j, '$.a')": json,
        "JSON_KEYS(j)": none,
        "JSON_UNQUOTE(j)": none,
        "IFNULL(j, j)": json,
        "IFNULL(j, 'x')": none,
        "CASE WHEN 1 THEN j END": json,
        "COALESCE(u, u)": b"\x06\x00\x04uuid",
        "CONCAT(j, '')": none,
    }
    async with Lab(users=accounts, local_tables=True) as lab:
        client = await Prepared.of(lab, NEW, MARIADB_CAPABILITIES)
        for sql in (
            "CREATE DATABASE d",
            "CREATE TABLE d.t (id INT PRIMARY KEY, j JSON, l LONGTEXT, u UUID, i4 INET4, i6 INET6)",
        ):
            assert (await client.ask(Query(sql).build()))[:1] == b"\0"
        for text, told in expected.items():
            for sql in (
                f"SELECT {text} AS x FROM d.t",
                f"SELECT x FROM (SELECT {text} AS x FROM d.t) y",
            ):
                answer = await client.rest(await client.ask(Query(sql).build()))
                assert told + b"\x0c" in answer[1], (sql, answer[1])


async def test_sql(lab: Lab) -> None:
    client = (await Prepared.of(lab)).client
    await client.query("PREPARE s FROM 'SELECT ?, ?'")
    await client.query("SET @a = 'it''s'")
    assert await client.query("EXECUTE S USING @a, 1.50") == [["it's", "1.50"]]
    assert await client.query("EXECUTE IMMEDIATE 'SELECT ?' USING NULL") == [[None]]
    for sql, wanted in (
        ("EXECUTE s USING @a", 1210),
        ("EXECUTE none", 1243),
        ("DEALLOCATE PREPARE none", 1243),
        ("EXECUTE IMMEDIATE 'EXECUTE s'", 1295),
        ("PREPARE s FROM @none", 1064),
    ):
        with pytest.raises(Exception, match=str(wanted)):
            await client.query(sql)
    with pytest.raises(Exception, match="1243"):  # the last PREPARE has taken the name
        await client.query("EXECUTE s USING @a, @a")


async def test_several_statements(lab: Lab) -> None:
    client = await Prepared.of(lab, NEW)
    packets = []
    for sql, count in (
        ("SELECT 1; SELECT ';'", 8),
        ("SET @a=1; SELEC; SET @b=1", 2),
        ("BEGIN; INSERT INTO t VALUES (1); COMMIT;", 3),
    ):
        client.client.command(Query(sql).build())
        packets.append([await client.client.answer() for _ in range(count)])
    assert packets[0][3] == b"\xfe\0\0\x0a\0\0\0"
    assert packets[0][7] == b"\xfe\0\0\2\0\0\0"
    assert packets[1][0] == b"\0\0\0\x0a\0\0\0"
    assert errno(packets[1][1:]) == 1064
    assert packets[2] == [b"\0\0\0\x0b\0\0\0", b"\0\1\0\x0b\0\0\0", OK]
    # COM_SET_OPTION 1: no more of it.
    assert await client.ask(b"\x1b\1\0") == EOF
    assert errno([await client.ask(Query("SELECT 1; SELECT 2").build())]) == 1064
    assert errno([await client.ask(b"\x1b\2\0")]) == 1047


async def test_state_of_the_session(lab: Lab) -> None:
    """The packets of 11.8, but for the flag that it had autocommit off then."""
    client = await Prepared.of(lab, NEW)
    for command, wanted in (
        (b"\2app", "000000024000000006010403617070"),
        (b"\3USE app", "000000024000000006010403617070"),
        (b"\3SET @a=1", "00000002000000"),
        (b"\3SET time_zone='+01:00'", "00000002400000001300110974696d655f7a6f6e65062b30313a3030"),
        (b"\3SET autocommit=1", "000000024000000010000e0a6175746f636f6d6d6974024f4e"),
        (b"\3SET session_track_schema=0", "00000002000000"),
        (b"\3USE app", "00000002000000"),
        (b"\3SET session_track_state_change=1", "000000024000000003020131"),
        (b"\3USE mysql", "000000024000000003020131"),
    ):
        assert (await client.ask(command)).hex() == wanted, command


async def test_change_user(lab: Lab) -> None:
    client = await Prepared.of(lab)
    number, _, _ = await client.prepare("SELECT 1")
    await client.client.query("SET @a = 1")
    await client.client.query("BEGIN")
    switch = await client.ask(ChangeUser(LoginRequest(USER, b"", "other")).build())
    salt = AuthSwitchRequest.parse(switch).salt
    sequence = client.client.seen[-1].next_seq
    client.client.send(frame_packet(native_password_scramble(PASSWORD, salt), sequence)[0])
    assert (await client.client.answer()) == OK
    assert errno(await client.execute(number)) == 1243
    assert await client.client.query("SELECT @a, DATABASE(), @@in_transaction") == [
        [None, "other", "0"]
    ]
    (connection,) = lab.server.connections
    assert connection.account.startswith(USER)


async def test_change_user_with_a_wrong_password(lab: Lab) -> None:
    client = await Prepared.of(lab)
    await client.ask(ChangeUser(LoginRequest(USER, b"")).build())
    sequence = client.client.seen[-1].next_seq
    client.client.send(frame_packet(b"x" * 20, sequence)[0])
    assert (await client.client.error())[0] == 1045
    assert await client.client.closed()
    await until(lambda: not len(lab.server.connections))


async def test_fields_of_a_table(lab: Lab) -> None:
    client = await Prepared.of(lab)
    assert errno([await client.ask(b"\4t\0%")]) == 1146
    assert errno([await client.ask(b"\4")]) == 1103
    await client.ask(b"\2information_schema")
    found = [await client.ask(b"\4SCHEMATA\0")]
    while found[-1][:1] == b"\3":
        found.append(await client.client.answer())
    assert [Column.parse(p[:-1]).name for p in found[:-1]][:2] == ["CATALOG_NAME", "SCHEMA_NAME"]
    assert found[-1] == EOF


@pytest.mark.parametrize("extended", [0, MARIADB_CAPABILITIES])
async def test_a_large_result_is_sent_in_parts(lab: Lab, extended: int) -> None:
    """As text and in binary rows it has as many as there are, and one end."""
    client = await Prepared.of(lab, OLD, extended)
    text = await client.rest(await client.ask(Query("SHOW COLLATION").build()))
    number, columns, _ = await client.prepare("SHOW COLLATION")
    answer = await client.execute(number)
    rows = [p for p in answer if p[:1] == b"\0"]
    assert len(rows) == len(text) - 1 - columns - 2 > 500
    assert await client.ask(b"\x0e") == OK


async def test_a_bulk_that_fails_leaves_nothing_to_the_next_statement(lab: Lab) -> None:
    """It wanted a result for each row."""
    client = await Prepared.of(lab, OLD, MARIADB_CAPABILITIES)
    number, *_ = await client.prepare("INSERT INTO t VALUES (?)")
    body = bytes((ColumnType.BLOB, 0, 0, 0xFF))
    answer = await client.ask(StmtBulkExecute(number, 0xC0, body).build())
    assert parse_error(answer).errno == 1210
    assert await client.ask(Query("insert into t values (1) /* the long way */").build()) == (
        b"\0\1\0\2\0\0\0"
    )


async def test_names_of_prepared_statements_are_bounded(lab: Lab) -> None:
    client = await Prepared.of(lab)
    assert (await client.ask(Query(f"PREPARE {'x' * 64} FROM 'BEGIN'").build()))[:1] == b"\0"
    answer = await client.ask(Query(f"PREPARE {'x' * 65} FROM 'BEGIN'").build())
    assert parse_error(answer).errno == 1059


async def test_what_was_read_of_a_statement_is_counted(lab: Lab) -> None:
    """A tree has a kilobyte for each node."""
    client = await Prepared.of(lab)
    number, *_ = await client.prepare("SELECT " + "+".join(["1"] * 500))
    assert lab.server.session_memory.held > 500_000
    client.client.command(StmtClose(number).build())
    await client.client.query("SELECT 1")
    assert lab.server.session_memory.held == 0


@pytest.mark.parametrize(
    ("text", "number"),
    [("SELECT 1 +", 1064), ("SELECT a FROM b.c", 1235), ("SELECT LEFT(1)", 1582)],
)
async def test_what_makes_no_sense_is_told_at_prepare(lab: Lab, text: str, number: int) -> None:
    """By whatever door."""
    client = await Prepared.of(lab)
    for command in (
        StmtPrepare(text.encode()),
        Query(f"PREPARE s FROM '{text}'"),
        Query(f"EXECUTE IMMEDIATE '{text}'"),
    ):
        assert parse_error(await client.ask(command.build())).errno == number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("CAST(-1 AS UNSIGNED)", (1 << 64) - 1),
        ("CAST(-1e308 AS SIGNED)", -(1 << 63)),
        ("CAST(5 AS UNSIGNED)", 5),
    ],
)
async def test_a_number_has_room_in_its_column(lab: Lab, text: str, value: int) -> None:
    client = await Prepared.of(lab)
    number, *_ = await client.prepare(f"SELECT {text}")
    row = (await client.execute(number))[-2]
    assert int.from_bytes(row[2:], "little") in (value, value + (1 << 64))
