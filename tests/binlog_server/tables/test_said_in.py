"""Sessions of other character sets than UTF-8: what their texts are, beside columns and as bytes. 11.8 answers so."""

from __future__ import annotations

import pytest

from tests.binlog_server.lab import ROOT, Client
from tests.binlog_server.tables.scene import lab_with

TABLE = (
    "CREATE TABLE shop.t (id INT PRIMARY KEY, a VARCHAR(20) UNIQUE, c BLOB, v VARBINARY(20)) "
    "COLLATE utf8mb4_general_ci"
)
SCHEMA = ("CREATE DATABASE shop", TABLE)
# The client's character set, a text in it, and that text's bytes as hexadecimal digits in UTF-8.
TEXTS = [
    ("latin1", b"\xe9\x80", "C3A9E282AC"),
    ("cp1251", b"\xef\xf0\xe8", "D0BFD180D0B8"),
    ("koi8r", b"\xd0\xd2", "D0BFD180"),
    ("sjis", b"\x95\x5c\x8e\xa6", "E8A1A8E7A4BA"),  # with a backslash for its second byte
    ("gbk", b"\xbf\x5c", "E7B897"),
    ("euckr", b"\xc7\xd1", "ED959C"),
]


async def said(client: Client, raw: bytes) -> list[list[str | None]]:
    return await client.query(raw.decode("utf-8", "surrogateescape"))


@pytest.mark.parametrize(("charset", "raw", "utf8"), TEXTS)
async def test_texts_beside_columns_and_as_bytes(charset: str, raw: bytes, utf8: str) -> None:
    name, own = charset.encode(), raw.hex().upper()
    async with lab_with(*SCHEMA, users=ROOT) as lab:
        client = await lab.root()
        await client.query(f"SET NAMES {charset}")
        await said(client, b"INSERT INTO shop.t VALUES (1, '%b', '%b', _binary'%b')" % ((raw,) * 3))
        await said(
            client, b"INSERT INTO shop.t VALUES (2, 'x%b', CONCAT('%b', 'x'), a)" % (raw, raw)
        )
        await said(
            client,
            b"INSERT INTO shop.t VALUES (3, _%b X'%b7A', IF(1, '%b', ''), 'y')"
            % (name, own.encode(), raw),
        )
        assert await client.query("SELECT HEX(a), HEX(c), HEX(v) FROM shop.t ORDER BY id") == [
            [utf8, own, own],
            ["78" + utf8, own + "78", "78" + utf8],
            [utf8 + "7A", own, "79"],
        ]
        for condition, ids in {
            b"a = '%b'": ["1"],
            b"a IN ('%b', 'x')": ["1"],
            b"a LIKE '%%%b'": ["1", "2"],
            b"a >= '%b' AND a <= '%b'": ["1"],
            b"c = '%b'": ["1", "3"],
            b"a = _%b'%%b'" % name: ["1"],
            b"a = CONCAT('', '%b')": ["1"],
        }.items():
            where = condition % ((raw,) * condition.replace(b"%%", b"").count(b"%b"))
            rows = await said(client, b"SELECT id FROM shop.t WHERE " + where + b" ORDER BY id")
            assert [row[0] for row in rows] == ids, condition
        await said(client, b"UPDATE shop.t SET v = 'z%b' WHERE a = '%b'" % (raw, raw))
        ((found, shown),) = await client.query("SELECT HEX(v), a FROM shop.t WHERE id = 1")
        assert found == "7A" + own
        assert (shown or "").encode("utf-8", "surrogateescape") == raw


@pytest.mark.parametrize(("charset", "raw", "utf8"), TEXTS)
async def test_user_variables_and_prepared_texts(charset: str, raw: bytes, utf8: str) -> None:
    own = raw.hex().upper()
    async with lab_with(*SCHEMA, users=ROOT) as lab:
        client = await lab.root()
        await client.query(f"SET NAMES {charset}")
        await said(client, b"SET @a = '%b', @b = LOWER('%b'), @c = X'C3A9'" % (raw, raw))
        await said(client, b"SET @both = CONCAT(@a, '%b')" % raw)
        assert await client.query("SELECT HEX(@both)") == [[own * 2]]
        await said(client, b"INSERT INTO shop.t VALUES (1, '%b', '', '')" % raw)
        question = b"SELECT id FROM shop.t WHERE a = ?"
        await said(client, b"PREPARE p FROM '%b'" % question)
        await said(client, b"PREPARE q FROM 'SELECT HEX(\"%b\")'" % raw)
        for _ in range(2):  # the other time in UTF-8
            assert await client.query("SELECT id FROM shop.t WHERE a = @a") == [["1"]]
            assert await client.query("SELECT HEX(@a), HEX(@b), HEX(@c), @a = @b") == [
                [own, own, "C3A9", "1"]
            ]
            assert await client.query("EXECUTE p USING @a") == [["1"]]
            await client.query("SET NAMES utf8mb4")
        await client.query(f"SET NAMES {charset}")
        assert await client.query("EXECUTE q") == [[own]]
        await said(client, b"SELECT @d := '%b', @e := X'%b'" % (raw, own.encode()))
        assert await client.query("SELECT HEX(@d), HEX(@e)") == [[own, own]]
        await client.query("INSERT INTO shop.t VALUES (2, CONCAT(@d, '2'), @d, @e)")
        assert await client.query("SELECT HEX(a), HEX(c), HEX(v) FROM shop.t WHERE id = 2") == [
            [utf8 + "32", own, own]
        ]


async def test_conversions() -> None:
    """What a character set does not have is a question mark; bytes are taken for its text."""
    expected = {
        "HEX(CONVERT('é' USING latin1))": "E9",
        "HEX(CONVERT('é漢' USING ascii))": "3F3F",
        "CONVERT('é漢' USING latin1)": "é?",
        "HEX(CONVERT('é' USING ucs2))": "00E9",
        "HEX(CONVERT('😀' USING utf8mb3))": "3F",
        "HEX(CONVERT('é' USING binary))": "C3A9",
        "CONVERT(X'E9' USING latin1)": "é",
        "CAST('héé' AS CHAR(2) CHARACTER SET latin1)": "hé",
        "CONVERT(CAST(CONVERT('Ã©' USING latin1) AS BINARY) USING utf8mb4)": "é",
        "_latin1'é'": "Ã©",
        "CHAR_LENGTH(_latin1'é')": "2",
        "HEX(_latin1'é')": "C3A9",
        "_latin1 X'E9'": "é",
        "_utf16 X'00E9'": "é",
        "HEX(_utf16 X'00E9')": "00E9",
        "HEX(_binary'é')": "C3A9",
    }
    async with lab_with(users=ROOT) as lab:
        client = await lab.root()
        await client.query("SET NAMES utf8mb4")
        found = {text: (await client.query(f"SELECT {text}"))[0][0] for text in expected}
        assert found == expected
        await client.query("SET character_set_connection = latin1")
        assert await client.query("SELECT HEX('é'), LENGTH('é漢'), 'é漢'") == [["E9", "2", "é?"]]
