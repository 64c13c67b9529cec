"""ALTER TABLE: the definition that it makes, the statement for replicas, and what rows become."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from binlog_protocol.errors import ServerError

from binlog_server.tables.alteration import AlteredTable, CopiedRows, read_alteration
from binlog_server.tables.cells import normal_default
from binlog_server.tables.definitions import DEFAULT_COLLATION, Creation, create_text, read_table
from binlog_server.tables.held import HeldTable
from binlog_server.tables.rows import Shown
from tests.binlog_server.tables.asking import asker

TABLE = (
    "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(10), n INT NOT NULL DEFAULT 3, j JSON, "
    "x TEXT CHARACTER SET utf8mb3, KEY kv (v,n), UNIQUE u (n))"
)
ALL = [
    "`id` int(11) NOT NULL",
    "`v` varchar(10) DEFAULT NULL",
    "`n` int(11) NOT NULL DEFAULT 3",
    "`j` longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT NULL CHECK (json_valid(`j`))",
    "`x` text CHARACTER SET utf8mb3 COLLATE utf8mb3_general_ci DEFAULT NULL",
    "PRIMARY KEY (`id`)",
    "UNIQUE KEY `u` (`n`)",
    "KEY `kv` (`v`,`n`)",
]
ID, V, N, J, X, PRIMARY, U, KV = ALL
UTF8 = "CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"


def held(text: str, number: int = 1024) -> HeldTable:
    session = asker()
    made = read_table(
        text,
        "shop",
        lambda database: DEFAULT_COLLATION,
        lambda column, literal: normal_default(column, literal, session),
    )
    assert isinstance(made, Creation)
    return HeldTable(number, made.table)


def altered(actions: str, table: str = TABLE) -> AlteredTable:
    session = asker()
    return read_alteration(
        f"ALTER TABLE t {actions}",
        "shop",
        held(table).definition,
        lambda column, literal: normal_default(column, literal, session),
    )


MADE: dict[str, tuple[list[str], str]] = {
    "ADD c INT": ([ID, V, N, J, X, "`c` int(11) DEFAULT NULL", *ALL[5:]], "ADD COLUMN `c` int(11) DEFAULT NULL"),
    "ADD COLUMN c VARCHAR(5) NOT NULL DEFAULT 'q' FIRST, ADD d DATE NOT NULL AFTER v": (
        ["`c` varchar(5) NOT NULL DEFAULT 'q'", ID, V, "`d` date NOT NULL", N, J, X, *ALL[5:]],
        f"ADD COLUMN `c` varchar(5) {UTF8} NOT NULL DEFAULT 'q' FIRST, ADD COLUMN `d` date NOT NULL AFTER `v`",
    ),
    "ADD (c INT, d INT UNIQUE)": (
        [*ALL[:5], "`c` int(11) DEFAULT NULL", "`d` int(11) DEFAULT NULL", PRIMARY, U, "UNIQUE KEY `d` (`d`)", KV],
        "ADD COLUMN `c` int(11) DEFAULT NULL, ADD COLUMN `d` int(11) DEFAULT NULL, ADD UNIQUE KEY `d` (`d`)",
    ),
    "ADD IF NOT EXISTS v INT": (ALL, ""),
    "DROP v, DROP COLUMN IF EXISTS nope": ([ID, N, J, X, PRIMARY, U, "KEY `kv` (`n`)"], "DROP COLUMN `v`"),
    "DROP j": ([ID, V, N, X, *ALL[5:]], "DROP COLUMN `j`"),
    "MODIFY j TEXT": (
        [ID, V, N, "`j` text DEFAULT NULL", X, *ALL[5:]], f"CHANGE COLUMN `j` `j` text {UTF8} DEFAULT NULL"),
    "CHANGE j k JSON FIRST": (
        [J.replace("`j`", "`k`"), ID, V, N, X, *ALL[5:]],
        f"CHANGE COLUMN `j` {J.replace('`j`', '`k`')} FIRST",
    ),
    "RENAME COLUMN j TO k": ([ID, V, N, J.replace("`j`", "`k`"), X, *ALL[5:]], "RENAME COLUMN `j` TO `k`"),
    "MODIFY id BIGINT": (["`id` bigint(20) NOT NULL", *ALL[1:]], "CHANGE COLUMN `id` `id` bigint(20) NOT NULL"),
    "RENAME COLUMN v TO n, RENAME COLUMN n TO v": (
        [ID, V.replace("`v`", "`n`"), N.replace("`n`", "`v`"), J, X, PRIMARY,
         "UNIQUE KEY `u` (`v`)", "KEY `kv` (`n`,`v`)"],
        "RENAME COLUMN `v` TO `n`, RENAME COLUMN `n` TO `v`",
    ),
    "ALTER n SET DEFAULT '7', ALTER COLUMN v SET DEFAULT 5": (
        [ID, "`v` varchar(10) DEFAULT '5'", "`n` int(11) NOT NULL DEFAULT 7", *ALL[3:]],
        "ALTER COLUMN `n` SET DEFAULT 7, ALTER COLUMN `v` SET DEFAULT '5'",
    ),
    "ALTER n DROP DEFAULT": ([ID, V, "`n` int(11) NOT NULL", *ALL[3:]], "ALTER COLUMN `n` DROP DEFAULT"),
    "ADD KEY (n), ADD CONSTRAINT c UNIQUE (v(3))": (
        [*ALL[:7], "UNIQUE KEY `c` (`v`(3))", KV, "KEY `n` (`n`)"],
        "ADD UNIQUE KEY `c` (`v`(3)), ADD KEY `n` (`n`)",
    ),
    "ADD KEY IF NOT EXISTS kv (id)": (ALL, ""),
    "DROP KEY u, DROP INDEX IF EXISTS nope, DROP CONSTRAINT kv": (ALL[:6], "DROP KEY `u`, DROP KEY `kv`"),
    "RENAME KEY u TO w": ([*ALL[:6], "UNIQUE KEY `w` (`n`)", KV], "RENAME KEY `u` TO `w`"),
    "DROP PRIMARY KEY, ADD PRIMARY KEY (n, id)": (
        [*ALL[:5], "PRIMARY KEY (`n`,`id`)", U, KV],
        "DROP PRIMARY KEY, ADD PRIMARY KEY (`n`,`id`)",
    ),
    "CONVERT TO CHARACTER SET utf8mb3": (
        [ID, V, N, J.replace("utf8mb4_bin", "utf8mb3_general_ci").replace("utf8mb4", "utf8mb3"),
         "`x` text DEFAULT NULL", *ALL[5:]],
        "CONVERT TO CHARACTER SET utf8mb3 COLLATE utf8mb3_general_ci",
    ),
    "FORCE, ALGORITHM=COPY, LOCK NONE": (ALL, ""),
}  # fmt: skip


@pytest.mark.parametrize("actions", MADE)
def test_made(actions: str) -> None:
    made = altered(actions)
    lines, said = MADE[actions]
    assert [line.strip(" ,") for line in create_text(made.table).splitlines()[1:-1]] == lines
    assert made.text == (f"ALTER TABLE `shop`.`t` {said}" if said else "")
    if said:  # what replicas get makes the same
        assert altered(made.text.removeprefix("ALTER TABLE `shop`.`t` ")).table == made.table


def test_options() -> None:
    made = altered(
        "COMMENT='c', AUTO_INCREMENT=7, CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, RENAME TO other.u"
    )
    assert made.first_number == 7
    assert (made.table.database, made.table.name, made.table.comment) == ("other", "u", "c")
    assert made.text.endswith(
        "COMMENT='c', AUTO_INCREMENT=7, DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin, RENAME TO `other`.`u`"
    )
    assert made.table.columns[1].collation == DEFAULT_COLLATION


REFUSED = {
    "ADD v INT": 1060,
    "ADD c INT AFTER nope": 1054,
    "DROP nope": 1091,
    "DROP KEY nope": 1091,
    "DROP PRIMARY KEY": 1173,
    "DROP id": 1173,
    "DROP id, DROP v, DROP n, DROP j, DROP x": 1090,
    "MODIFY nope INT": 1054,
    "CHANGE v n INT": 1060,
    "RENAME COLUMN v TO n": 1060,
    "RENAME KEY nope TO k": 1176,
    "ALTER nope SET DEFAULT 1": 1054,
    "ALTER n SET DEFAULT 'x'": 1067,
    "ADD KEY kv (id)": 1061,
    "ADD KEY (nope)": 1072,
    "ADD PRIMARY KEY (n)": 1068,
    "MODIFY x INT AUTO_INCREMENT": 1075,
    "ADD c INT,": 1064,
    "ADD c": 1064,
    "NONSENSE": 1235,
    "ADD c INT DEFAULT 1 nonsense": 1235,
    "ORDER BY id": 1235,
    "ADD FOREIGN KEY (n) REFERENCES u (id)": 1235,
    "ADD CHECK (nn > 1)": 1054,
    "DROP CONSTRAINT nn": 1091,
    "ADD PARTITION (PARTITION p VALUES IN (1))": 1235,
    "ENGINE=MyISAM": 1235,
    "CONVERT TO CHARACTER SET latin1": 1235,
    "DISABLE": 1064,
    "ENABLE KEYS, nonsense": 1235,
}


@pytest.mark.parametrize("actions", ["DISABLE KEYS", "ENABLE KEYS, DISABLE KEYS"])
def test_what_a_dump_says_of_keys_does_nothing(actions: str) -> None:
    made = altered(actions)
    assert not made.clauses
    assert made.table == held(TABLE).definition


@pytest.mark.parametrize("actions", REFUSED)
def test_refused(actions: str) -> None:
    with pytest.raises(ServerError) as caught:
        altered(actions)
    assert caught.value.errno == REFUSED[actions], caught.value


ROWS = "CREATE TABLE t (id INT PRIMARY KEY, v {})"
CONVERTED: list[tuple[str, Any, str, Any]] = [
    # a column and its value, another one, and what that has then: an error is its number
    ("INT", 300, "v TINYINT", 1264),
    ("INT", 100, "v TINYINT UNSIGNED", 100),
    ("INT", None, "v INT NOT NULL", 1265),
    ("INT", 7, "v VARCHAR(5)", "7"),
    ("VARCHAR(9)", "abc", "v INT", 1292),
    ("VARCHAR(9)", "12", "v INT", 12),
    ("VARCHAR(9)", "abc", "v VARCHAR(2)", 1265),
    ("VARCHAR(9)", "abc", "v VARCHAR(200)", "abc"),
    ("VARCHAR(9)", "ä", "v VARBINARY(9)", "ä".encode()),
    ("VARCHAR(9)", "{", "v JSON", 4025),
    ("VARCHAR(9)", "[]", "v JSON", "[]"),
    ("VARCHAR(9)", "b", "v ENUM('a','b')", "b"),
    ("VARCHAR(9)", "c", "v ENUM('a','b')", 1265),
    ("VARCHAR(20)", "2024-02-30", "v DATE", 1292),
    ("VARCHAR(20)", "2024-02-03", "v DATETIME(1)", "2024-02-03 00:00:00.0"),
    ("DECIMAL(5,2)", "1.55", "v DECIMAL(4,1)", "1.6"),
]


@pytest.mark.parametrize(("was", "given", "now", "expected"), CONVERTED)
def test_converted(was: str, given: Any, now: str, expected: Any) -> None:
    text = ROWS.format(was)
    session, old = asker(), held(text)
    made = altered(f"MODIFY {now}", text)
    new = HeldTable(1025, made.table)
    stored = old.format.value(1, given if "DECIMAL" not in was else Decimal(given))
    raw = old.format.joined([old.format.value(0, 1), stored])
    conversion = CopiedRows(old, new, made.sources, session)
    if isinstance(expected, int) and expected > 1000:
        with pytest.raises(ServerError) as caught:
            list(conversion.rows(iter([(b"", raw)])))
        assert caught.value.errno == expected
        return
    (row,) = conversion.rows(iter([(b"", raw)]))
    found = Shown(new, session.local).row(row)[1]
    assert (str(found) if "DECIMAL" in was else found) == expected


@pytest.mark.parametrize(
    ("actions", "is_right"),
    [
        ("MODIFY v INT", False),
        ("CHANGE v w INT", False),
        ("MODIFY v INT AS (a + 1) STORED", False),
        ("MODIFY s INT AS (a + 1) VIRTUAL", False),
        ("MODIFY a INT AS (id + 1) VIRTUAL", False),
        ("MODIFY v BIGINT AS (a + 2) VIRTUAL", True),
        ("MODIFY s INT", True),
        ("MODIFY a INT AS (id + 1) STORED", True),
    ],
)
def test_a_virtual_column_stays_one(actions: str, is_right: bool) -> None:
    """A replica refuses the rest, and stops."""
    table = "CREATE TABLE t (id INT PRIMARY KEY, a INT, v INT AS (a + 1), s INT AS (a + 1) STORED)"
    if is_right:
        altered(actions, table)
        return
    with pytest.raises(ServerError) as refused:
        altered(actions, table)
    assert refused.value.errno == 1907


def test_new_columns_have_their_defaults() -> None:
    session, old = asker(), held(ROWS.format("INT"))
    made = altered(
        "ADD a INT NOT NULL DEFAULT 5, ADD b DATE NOT NULL, ADD c DATETIME DEFAULT NOW(), ADD d ENUM('x') NOT NULL, "
        "ADD e INT NOT NULL AUTO_INCREMENT UNIQUE FIRST",
        ROWS.format("INT"),
    )
    new = HeldTable(1025, made.table)
    rows = [(b"", old.format.row([number, None])) for number in (4, 5)]
    found = [
        Shown(new, session.local).row(raw)
        for raw in CopiedRows(old, new, made.sources, session).rows(iter(rows))
    ]
    rest = [None, 5, "0000-00-00", "2026-11-23 03:04:05", "x"]
    assert found == [[1, 4, *rest], [2, 5, *rest]]


def test_what_keeps_its_rows() -> None:
    for actions, keeps in {
        "RENAME COLUMN v TO w, COMMENT='x', ADD KEY (x(3)), ALTER n SET DEFAULT 1, RENAME TO u": True,
        "MODIFY n INT NOT NULL COMMENT 'c'": True,
        "MODIFY n INT": False,
        "MODIFY v VARCHAR(11)": False,
        "ADD UNIQUE (v)": False,
        "DROP KEY u": False,
        "MODIFY v VARCHAR(10) FIRST": False,
        "MODIFY v VARCHAR(10) COLLATE utf8mb4_bin": False,
    }.items():
        assert altered(actions).keeps_rows is keeps, actions
