"""What statements make of tables: their text alone, without a server. test_ddl_seed_server.py asks servers the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
from binlog_pipeline.schemas.ddl_alter import may_shift, moves
from binlog_pipeline.schemas.ddl_catalog import DdlCatalog
from binlog_pipeline.schemas.ddl_history import apply
from binlog_pipeline.schemas.logged_statements import LoggedStatement
from binlog_pipeline.schemas.seed import Seed
from binlog_protocol.sql.statements import parse_statement
from binlog_protocol.sql.token_reader import TableName
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pipeline.ddl_corpus import DATABASES, EXECUTED, OF_11_8

T = TableName("d", "t")
DATABASE = "CREATE DATABASE d CHARACTER SET utf8mb4"
TABLE = "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(5), b UUID)"
NO_BACKSLASH_ESCAPES = 1 << 20
MODES = {
    "ANSI_QUOTES": 4,
    "ORACLE": 512,
    "MAXDB": 4096,
    "NO_BACKSLASH_ESCAPES": NO_BACKSLASH_ESCAPES,
}


def logged(sql: str, sql_mode: int = 0, *, is_temporary: bool = False) -> LoggedStatement:
    escapes = not sql_mode & NO_BACKSLASH_ESCAPES
    ansi_quotes = bool(sql_mode & MODES["ANSI_QUOTES"]) or None
    meaning = parse_statement(sql, "d", backslash_escapes=escapes, ansi_quotes=ansi_quotes)
    return LoggedStatement("d", sql, meaning, sql_mode, "latin1", is_temporary)


def after(*statements: str | LoggedStatement) -> DdlCatalog:
    catalog = DdlCatalog()
    for number, one in enumerate(statements, 1):
        apply(catalog, logged(one) if isinstance(one, str) else one, f"0-1-{number}")
    return catalog


def told(catalog: DdlCatalog, name: TableName = T) -> list[str]:
    """The layouts of a table, the newest first."""
    return [
        ", ".join(
            " ".join((c.name, str(c.type), *([c.charset] if c.charset else [])))
            for c in since.layout.logged_columns
        )
        + f" ({', '.join(since.layout.logged_key)})"
        for one, past in catalog.known()
        if one == name
        for since in past
    ]


def seed_of(catalog: DdlCatalog) -> Seed:
    tables = [
        since.layout.entry(name, since.gtid) for name, past in catalog.known() for since in past
    ]
    return Seed.parse({"version": 1, "tables": tables})


def test_a_temporary_table_that_is_renamed() -> None:
    """RENAME TABLE says of none that it is one. What has a name already is no base table's new name."""
    other = "CREATE TABLE tmp (a INT, c TEXT)"
    catalog = after(DATABASE, TABLE, other, "RENAME TABLE t TO tmp", "ALTER TABLE t ADD x INT")
    assert told(catalog, TableName("d", "tmp")) == ["a int(11), c text utf8mb4 ()"]
    assert told(catalog)[0].endswith("x int(11) (id)")
    made = logged("CREATE TEMPORARY TABLE t (z INT)", is_temporary=True)
    catalog = after(DATABASE, TABLE, made, "RENAME TABLE t TO u")
    for name in (T, TableName("d", "u")):
        assert told(catalog, name) == []
        assert "may be a temporary table" in catalog.unknown[T]
    # The name of a table that is there, and is not known.
    unknown = ("ALTER TABLE v ADD x INT", "RENAME TABLE t TO v")
    assert told(after(DATABASE, TABLE, *unknown), TableName("d", "v")) == []
    gone = ("ALTER TABLE v ADD x INT", "DROP TABLE v", "RENAME TABLE t TO v")
    assert len(told(after(DATABASE, TABLE, *gone), TableName("d", "v"))) == 1
    swap = ("ALTER TABLE v ADD x INT", "RENAME TABLE v TO w, t TO v, w TO t")
    catalog = after(DATABASE, TABLE, *swap)
    assert len(told(catalog, TableName("d", "v"))) == 1
    assert told(catalog) == []


def test_layouts_the_newest_first() -> None:
    catalog = after(
        DATABASE,
        TABLE,
        "ALTER TABLE t ADD c INT FIRST",
        "ALTER TABLE t COMMENT 'no column changes'",
        "ALTER TABLE t DROP c, MODIFY a TEXT",
    )
    assert told(catalog) == [
        "id int(11), a text utf8mb4, b uuid (id)",
        "c int(11), id int(11), a varchar(5) utf8mb4, b uuid (id)",
        "id int(11), a varchar(5) utf8mb4, b uuid (id)",
    ]
    ((_, past),) = catalog.known()
    assert [since.gtid for since in past] == ["0-1-5", "0-1-3", "0-1-2"]
    seed = seed_of(catalog)
    assert [len(table.columns) for table in seed.tables["d", "t"]] == [3, 4, 3]


def test_a_table_under_another_name() -> None:
    catalog = after(DATABASE, TABLE, "RENAME TABLE t TO e.u", "CREATE TABLE t (x INT)")
    assert told(catalog) == ["x int(11) ()", "id int(11), a varchar(5) utf8mb4, b uuid (id)"]
    assert told(catalog, TableName("e", "u")) == ["id int(11), a varchar(5) utf8mb4, b uuid (id)"]
    catalog = after(
        TABLE, "ALTER TABLE t RENAME u, DROP a", "DROP TABLE u", "ALTER TABLE t ADD x INT"
    )
    assert told(catalog, TableName("d", "u")) == ["id int(11), b uuid (id)"]
    assert catalog.unknown == {T: "0-1-4: its CREATE TABLE is not there"}


def test_a_database_that_is_dropped_takes_all_with_it() -> None:
    catalog = after(DATABASE, TABLE, "DROP DATABASE d", "CREATE TABLE t (a CHAR(3))")
    assert told(catalog)[0] == "a char(3) ()"  # and no character set is known
    catalog = after(DATABASE, TABLE, "DROP DATABASE d", "ALTER TABLE t ADD x INT")
    assert catalog.unknown.keys() == {T}


CHARSETS = [
    ((), "CREATE TABLE t (a CHAR(3), b BLOB)", "a char(3), b blob ()"),
    ((), "CREATE TABLE t (a CHAR(3), b TEXT CHARSET ascii) CHARSET big5", "a char(3) big5, b text ascii ()"),
    (("CREATE DATABASE d",), "CREATE TABLE t (a CHAR(3))", "a char(3) latin1 ()"),
    (("CREATE DATABASE IF NOT EXISTS d CHARSET big5",), "CREATE TABLE t (a CHAR(3))", "a char(3) ()"),
    ((DATABASE, "CREATE DATABASE IF NOT EXISTS d CHARSET big5"), "CREATE TABLE t (a CHAR(3))", "a char(3) utf8mb4 ()"),
    ((DATABASE, "ALTER DATABASE d COLLATE big5_bin"), "CREATE TABLE t (a CHAR(3))", "a char(3) big5 ()"),
    ((DATABASE, "ALTER DATABASE d CHARSET klingon"), "CREATE TABLE t (a CHAR(3))", "a char(3) ()"),
    ((DATABASE, "ALTER DATABASE d COMMENT 'x'"), "CREATE TABLE t (a CHAR(3))", "a char(3) utf8mb4 ()"),
    (("CREATE DATABASE d COLLATE klingon_bin",), "CREATE TABLE t (a CHAR(3))", "a char(3) ()"),
    ((DATABASE,), "CREATE TABLE t (a CHAR(3)) COLLATE uca1400_ai_ci", "a char(3) utf8mb4 ()"),
    ((DATABASE,), "CREATE TABLE t (a CHAR(3) CHARSET utf8)", "a char(3) utf8mb3 ()"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "sql", "want"), CHARSETS)
def test_character_sets_by_default(before: tuple[str, ...], sql: str, want: str) -> None:
    assert told(after(*before, sql)) == [want]


BEYOND = "beyond ASCII"
NOT_UNDERSTOOD = [
    ("CREATE TABLE t (a KLINGON)", "type klingon"),
    ("CREATE TABLE t (a INT FROBNICATED)", "'FROBNICATED' of a column"),
    ("CREATE TABLE t (a INT) FROBNICATED 5", "option 'FROBNICATED'"),
    ("CREATE TABLE t (a INT DEFAULT 1 + 2)", "no name, but '+'"),
    ("CREATE TABLE t (a INT, a INT)", "two columns of one name"),
    ("CREATE TABLE t (a INT, PRIMARY KEY (b))", "column b of the primary key"),
    ("CREATE TABLE t (a INT PRIMARY KEY, PRIMARY KEY (a))", "two primary keys"),
    ("CREATE TABLE t (a INT", "no ), but its end"),
    ("CREATE TABLE t (PRIMARY KEY (a))", "without columns"),
    ("CREATE TABLE t (a INT) SELECT 1 AS b", "come from a query"),
    ("CREATE TABLE t (a INT) PARTITION BY HASH (a) SELECT 1 AS b", "come from a query"),
    ("CREATE TABLE t AS SELECT 1", "come from a query"),
    ("CREATE TABLE t LIKE u", "its CREATE TABLE is not there"),
    ("CREATE TABLE t (a VARCHAR(20000))", "too long"),
    ("CREATE TABLE t (a VARCHAR(16384))", "too long"),
    ("CREATE TABLE t (a CHAR(256) CHARSET latin1)", "too long"),
    ("CREATE TABLE t (a TEXT(100))", "unknown character set"),
    ("CREATE TABLE t (a ENUM('a '))", "unknown character set"),
    ("CREATE TABLE t (a ENUM(0x61))", "label '0x61'"),
    ("CREATE TABLE t (a ENUM('\u00e9') CHARACTER SET binary)", BEYOND),
    ("CREATE TABLE t (a SET('a', '\u00e9') BYTE)", BEYOND),
    ("CREATE TABLE t (a ENUM('\u00e9') COLLATE binary)", BEYOND),
    ("CREATE TABLE t (a ENUM('\u00e9')) CHARACTER SET binary", BEYOND),
    ("ALTER TABLE t ADD e ENUM('\u00e9') CHARACTER SET binary", BEYOND),
    ("ALTER TABLE t MODIFY b SET('\u00e9') CHARACTER SET binary", BEYOND),
    ("ALTER TABLE t CHANGE b e ENUM('\u00e9') COLLATE 'binary'", BEYOND),
    ("ALTER TABLE t CHARACTER SET binary, ADD e ENUM('\u00e9')", BEYOND),
    ("ALTER TABLE t ADD e ENUM('\u00e9') CHARSET latin1, CONVERT TO CHARACTER SET binary", "beside a column"),
    ("CREATE TABLE t (a CHAR(3) CHARSET klingon)", "character set klingon"),
    ("CREATE TABLE t (a CHAR(3) COLLATE klingon_ci)", "character set klingon"),
    ("CREATE TABLE t (a INT) CHARSET klingon", "character set klingon"),
    ("CREATE TABLE t (a TEXT UNIQUE)", "hidden column"),
    ("CREATE TABLE t (a TEXT, UNIQUE (a))", "hidden column"),
    ("CREATE TABLE t (a INT, UNIQUE (a) USING HASH)", "hidden column"),
    ("CREATE TABLE t (a VARCHAR(4096) CHARSET latin1, UNIQUE (a))", "hidden column"),
    ("CREATE TABLE t (a VARCHAR(3073) CHARSET latin1 UNIQUE)", "hidden column"),
    ("CREATE TABLE t (a VARCHAR(769) UNIQUE) CHARSET utf8mb4", "hidden column"),
    ("CREATE TABLE t (a VARCHAR(769) UNIQUE)", "hidden column"),
    ("CREATE TABLE t (a VARCHAR(1600) CHARSET latin1, b VARBINARY(1473), UNIQUE (a, b))", "hidden column"),
    ("CREATE TABLE t (a VARCHAR(3072) CHARSET latin1, b INT, UNIQUE (a, b))", "hidden column"),
    ("CREATE TABLE t (a VARCHAR(5000) CHARSET latin1, UNIQUE (a(3073)))", "hidden column"),
    ("CREATE TABLE t (a VARCHAR(1001) CHARSET latin1, UNIQUE (a)) ENGINE=MyISAM", "hidden column"),
    ("CREATE TABLE t (a INT COMMENT 'x\ufffd')", "not valid in its character set"),
    ("CREATE TABLE t (a INT, PRIMARY KEY (a, p WITHOUT OVERLAPS))", "a period"),
    ("CREATE SEQUENCE t", "CREATE SEQUENCE"),
    ("CREATE WONDER t", "any table"),
    ("ALTER TABLE t FROBNICATE", "FROBNICATE"),
    ("ALTER TABLE t ADD c INT, FROBNICATE d", "FROBNICATE"),
    ("ALTER TABLE t ADD c INT FROBNICATED", "FROBNICATED"),
    ("ALTER TABLE t ADD c INT AFTER nothing", "no column nothing"),
    ("ALTER TABLE t ADD a INT", "two columns"),
    ("ALTER TABLE t DROP c", "no column c"),
    ("ALTER TABLE t MODIFY c INT", "no column c"),
    ("ALTER TABLE t RENAME COLUMN c TO x", "no column c"),
    ("ALTER TABLE t MODIFY a INT, DROP a", "changed twice"),
    ("ALTER TABLE t ADD PRIMARY KEY (a)", "second primary key"),
    ("ALTER TABLE t ADD id INT FIRST, CHANGE id z INT", "goes to a new one"),
    ("ALTER TABLE t RENAME COLUMN id TO z, ADD id INT", "goes to a new one"),
    ("ALTER TABLE t DROP id, ADD id INT", "goes to a new one"),
    ("ALTER TABLE t ADD UNIQUE (b), MODIFY b TEXT", "hidden column"),
    ("ALTER TABLE t EXCHANGE PARTITION p WITH TABLE u", "EXCHANGE"),
    ("ALTER TABLE t CONVERT PARTITION p TO TABLE u", "CONVERT"),
    ("ALTER TABLE t CONVERT TO CHARACTER SET latin1", "unknown one"),
    ("ALTER TABLE t CONVERT TO CHARACTER SET latin1, CHARACTER SET utf8mb4", "another character set"),
    ("ALTER TABLE t ADD j JSON, CONVERT TO CHARACTER SET latin1", "beside a column of another one"),
    ("CREATE UNIQUE INDEX u ON t (a) USING HASH", "hidden column"),
    ("ALTER TABLE t ADD c VARCHAR(800) CHARSET utf8mb4 UNIQUE", "hidden column"),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "why"), NOT_UNDERSTOOD)
def test_nothing_is_guessed(sql: str, why: str) -> None:
    catalog = after(TABLE, sql)
    assert told(catalog) == []
    assert catalog.unknown[T].startswith("0-1-2: ")
    assert why in catalog.unknown[T]
    # No ALTER TABLE makes it known again, and the first reason stands.
    apply(catalog, logged("ALTER TABLE t DROP a"), "0-1-3")
    assert why in catalog.unknown[T]
    apply(catalog, logged("CREATE OR REPLACE TABLE t (z INT)"), "0-1-4")
    assert told(catalog) == ["z int(11) ()"]
    assert T not in catalog.unknown


def test_labels_of_columns_that_are_binary() -> None:
    """Those of ASCII are the same bytes in each session, but for one that writes text in two bytes a letter."""
    of_bytes = "CREATE DATABASE d CHARACTER SET binary"
    for sql in ("CREATE TABLE t (a ENUM('\u00e9'))", "CREATE TABLE t (a SET('a', '\u00e9'))"):
        assert BEYOND in after(of_bytes, sql).unknown[T]
        assert told(after(DATABASE, sql)) != []
    sql = "CREATE TABLE t (a ENUM('a', 'b '))"
    assert told(after(of_bytes, sql)) == ["a enum('a','b ') binary ()"]
    wide = replace(logged(sql), literal_charset="utf16")
    assert BEYOND in after(of_bytes, wide).unknown[T]
    assert told(after(DATABASE, wide)) == ["a enum('a','b') utf8mb4 ()"]


@pytest.mark.parametrize("sql", ["CREATE TABLE t (a DATE)", "ALTER TABLE t ADD c TIMESTAMP"])
@pytest.mark.parametrize("mode", ["ORACLE", "MAXDB"])
def test_modes_in_which_types_are_others(sql: str, mode: str) -> None:
    assert mode in after(TABLE, logged(sql, MODES[mode])).unknown[T]


@pytest.mark.parametrize(
    ("sql", "unknown"),
    [
        ("ALTER TABLE t ADD c INT", "t"),
        ("CREATE TABLE u LIKE t", "u"),
        ("RENAME TABLE t TO u", "u"),
        ("DROP INDEX `PRIMARY` ON t", "t"),
    ],
)
def test_a_temporary_table_may_be_meant(sql: str, unknown: str) -> None:
    catalog = after(TABLE, logged(sql, is_temporary=True))
    assert "temporary" in catalog.unknown[TableName("d", unknown)]


def test_statements_that_failed() -> None:
    def failed(sql: str) -> LoggedStatement:
        return replace(logged(sql), has_failed=True)

    catalog = after(TABLE, failed("CREATE OR REPLACE TABLE t (x INT)"), "CREATE TABLE t (y INT)")
    assert told(catalog) == ["y int(11) ()", "id int(11), a varchar(5), b uuid (id)"]
    catalog = after(TABLE, failed("DROP TABLE t, u"), "ALTER TABLE t ADD c INT")
    assert "CREATE TABLE is not there" in catalog.unknown[T]
    assert "failed" in after(TABLE, failed("ALTER TABLE t ADD c INT")).unknown[T]


def test_temporary_tables_are_no_tables() -> None:
    catalog = after(TABLE, "CREATE TEMPORARY TABLE t (x INT)", "DROP TEMPORARY TABLE t")
    assert told(catalog) == ["id int(11), a varchar(5), b uuid (id)"]


def test_quotes() -> None:
    ansi, plain = MODES["ANSI_QUOTES"], MODES["NO_BACKSLASH_ESCAPES"]
    assert told(after(logged('CREATE TABLE "t" ("a""\\" ENUM(\'"\'))', ansi))) == [
        "a\"\\ enum('\"') ()"
    ]
    assert told(after('CREATE TABLE t (a ENUM("x""y", "it\'s", "\\"") COMMENT ", b INT")')) == [
        "a enum('x\"y','it''s','\"') ()"
    ]
    assert told(after(logged("CREATE TABLE t (a ENUM('\\', \"\\\"))", plain))) == [
        "a enum('\\\\','\\\\') ()"
    ]
    assert "label" in after(logged('CREATE TABLE t (a ENUM("x"))', ansi)).unknown[T]


def test_layouts_that_a_log_without_names_does_not_tell_apart() -> None:
    create = "CREATE TABLE t (a INT, b BIGINT, c CHAR(3))"

    def hidden(alter: str) -> bool:
        ((_, (new, old)),) = after(create, alter).known()
        return old.layout.may_be_taken_for(new.layout)

    assert hidden("ALTER TABLE t CHANGE a x INT UNSIGNED")
    assert hidden("ALTER TABLE t MODIFY c BINARY(3)")
    assert not hidden("ALTER TABLE t MODIFY a INT AFTER b")
    assert not hidden("ALTER TABLE t DROP a")


@pytest.mark.parametrize(
    ("sql", "moved", "shifts"),
    [
        ("ALTER TABLE t ADD c INT", "+column +hidden", False),
        ("ALTER TABLE t DROP c", "-column -hidden", False),
        ("ALTER TABLE t DROP c, ADD d INT", "+column +hidden -column -hidden", True),
        ("ALTER TABLE t DROP INDEX i, ADD d INT", "+column +hidden -hidden", True),
        ("ALTER TABLE t DROP INDEX i, ADD UNIQUE (a)", "+hidden -hidden", False),
        ("ALTER TABLE t DROP c, ADD UNIQUE (a)", "+hidden -column -hidden", True),
        ("ALTER TABLE t MODIFY c INT AFTER a", "+column +hidden -column -hidden", True),
        ("ALTER TABLE t MODIFY c INT", "+hidden -hidden", False),
        ("ALTER TABLE t ENGINE=MyISAM", "+hidden -hidden", False),
        ("ALTER TABLE t ADD SYSTEM VERSIONING", "+column", False),
        ("ALTER TABLE t DROP SYSTEM VERSIONING", "-column -hidden", False),
        ("ALTER TABLE t RENAME COLUMN a TO b", "", False),
        ("ALTER TABLE t COMMENT 'ADD c INT, DROP d'", "", False),
        ("SET STATEMENT max_statement_time=1 FOR ALTER TABLE t DROP c", "-column -hidden", False),
        ("DROP INDEX i ON t", "+hidden -hidden", False),
        ("CREATE UNIQUE INDEX i ON t (a)", "+hidden -hidden", False),
        ("ALTER TABLE t FROBNICATE", "+column +hidden -column -hidden", True),
    ],
)
def test_columns_that_come_and_go(sql: str, moved: str, shifts: bool) -> None:
    found = moves(logged(sql))
    assert (" ".join(sorted(found)), may_shift(found)) == (moved, shifts)


LONG = "CREATE TABLE t (id INT, f VARCHAR(1000) CHARSET latin1, g VARCHAR(9) CHARSET latin1, UNIQUE (f, g))"
LATER = [
    ("MODIFY f TEXT", True),
    ("MODIFY f VARCHAR(4000) CHARSET latin1", True),
    ("CHANGE f h VARCHAR(3100) CHARSET latin1", True),
    ("CHARSET utf8mb4, CONVERT TO CHARACTER SET utf8mb4", True),
    ("ENGINE=MyISAM", True),
    ("TYPE MYISAM", True),
    ("ENGINE=Aria", False),
    ("MODIFY f VARCHAR(3000) CHARSET latin1", False),
    ("MODIFY id VARCHAR(5000) CHARSET latin1", False),
    ("DROP f, ADD f TEXT", False),
    ("DROP f, DROP g, ADD f TEXT", False),
]


@pytest.mark.parametrize(("alter", "hidden"), LATER)
@pytest.mark.parametrize("by_index", [False, True])
def test_a_key_that_is_there_may_bring_a_hidden_column_later(
    alter: str, hidden: bool, by_index: bool
) -> None:
    made = [LONG]
    if by_index:
        made = [LONG.replace(", UNIQUE (f, g)", ""), "CREATE UNIQUE INDEX u ON t (f, g)"]
    catalog = after(*made, f"ALTER TABLE t {alter.removeprefix('CHARSET utf8mb4, ')}")
    if hidden:
        assert "hidden column" in catalog.unknown[T]
        assert told(catalog) == []
    else:
        assert not catalog.unknown


def test_a_key_under_another_name_of_its_column() -> None:
    rename = "ALTER TABLE t RENAME COLUMN f TO h"
    assert "hidden column" in after(LONG, rename, "ALTER TABLE t MODIFY h TEXT").unknown[T]
    assert not after(LONG, rename, "ALTER TABLE t ADD f TEXT").unknown


def test_a_table_like_another_has_its_keys() -> None:
    catalog = after(LONG, "CREATE TABLE u LIKE t", "ALTER TABLE u MODIFY f TEXT")
    assert catalog.unknown.keys() == {TableName("d", "u")}


SQL = [sql for sql in (*DATABASES, *EXECUTED, *OF_11_8) if not sql.startswith(("SET ", "USE "))]


@pytest.mark.by_turns(3)
@pytest.mark.parametrize("mode", [0, 4, NO_BACKSLASH_ESCAPES])
@settings(max_examples=150)
@given(data=st.data())
def test_no_statement_raises(mode: int, data: st.DataObject) -> None:
    """Parts of real statements in any order, and bytes of any kind between them."""
    pieces = data.draw(
        st.lists(
            st.one_of(
                st.text(max_size=12),
                st.text(alphabet="abc `'\"\\/*!-#\n();,.=@0x1", max_size=12),
                st.builds(
                    lambda sql, begin, size: sql[begin : begin + size],
                    st.sampled_from(SQL),
                    st.integers(0, 300),
                    st.integers(1, 80),
                ),
            ),
            max_size=8,
        )
    )
    begin = data.draw(
        st.sampled_from(("", "CREATE TABLE t (", "ALTER TABLE t ", "CREATE TABLE t (a INT) "))
    )
    catalog = after(DATABASE, TABLE, logged(begin + " ".join(pieces), mode))
    seed_of(catalog)


@pytest.mark.by_turns(3)
@pytest.mark.parametrize("sql", SQL)
def test_statements_that_are_cut_off(sql: str) -> None:
    for end in range(0, len(sql), max(1, len(sql) // 40)):
        catalog = after(DATABASE, TABLE, sql[:end])
        seed_of(catalog)


def test_long_statements_are_read_in_linear_time() -> None:
    columns = ", ".join(f"c{i} ENUM('a', 'b') DEFAULT 'a' COMMENT '(,'" for i in range(4000))
    catalog = after(f"CREATE TABLE t ({columns})", f"CREATE TABLE u (a INT DEFAULT {'(' * 50_000}")
    assert len(told(catalog)) == 1
    assert "end is missing" in catalog.unknown[TableName("d", "u")]
